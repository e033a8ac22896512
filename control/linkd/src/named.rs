// SPDX-License-Identifier: Apache-2.0
//! Requests with a `request_id`, which a caller may send again. The dataplane keeps their answers by
//! the key and the fingerprint that are made here.

use data_encoding::HEXLOWER;
use prost::Message;
use sha2::{Digest, Sha256};

/// A request with a `request_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Hash of caller and `request_id`.
    name: [u8; 32],
    /// Hash of method and request.
    what: [u8; 32],
}

impl Named {
    /// `None` without a `request_id`.
    pub fn new(method: &str, caller: &str, id: &str, request: &impl Message) -> Option<Self> {
        let hash = |parts: [&[u8]; 2]| {
            let mut hash = Sha256::new();
            for part in parts {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
            hash.finalize().into()
        };
        let what = || hash([method.as_bytes(), &request.encode_to_vec()]);
        let name = || hash([caller.as_bytes(), id.as_bytes()]);
        (!id.is_empty()).then(|| Self { name: name(), what: what() })
    }

    /// The idempotency key: a hash of caller and `request_id`.
    pub fn key(&self) -> String {
        HEXLOWER.encode(&self.name)
    }

    /// A hash of method and request.
    pub fn fingerprint(&self) -> String {
        HEXLOWER.encode(&self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::linkemu::v1 as pb;

    #[test]
    fn key_depends_on_caller_and_id_and_fingerprint_on_the_request() {
        let request = |seed| pb::ProfileUpdate { seed: Some(seed), ..Default::default() };
        let of = |caller, id, seed| Named::new("UpdateLinks", caller, id, &request(seed));
        assert_eq!(of("ci", "", 1), None);
        let named = of("a", "bc", 1).unwrap();
        assert_ne!(named.key(), of("ab", "c", 1).unwrap().key());
        let other = of("a", "bc", 2).unwrap();
        assert_eq!(named.key(), other.key());
        assert_ne!(named.fingerprint(), other.fingerprint());
        assert_eq!((named.key().len(), named.fingerprint().len()), (64, 64));
    }
}
