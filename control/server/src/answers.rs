// SPDX-License-Identifier: Apache-2.0
//! Answers to requests that may be sent again.
//!
//! A caller names its request; the same name again gets the same answer. The last answers
//! are kept here; that a change was made at all the dataplane remembers too, by a key, for
//! a linkd that was started anew in between.

use prost::Message;
use proto::linkemu::v1 as pb;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use tonic::Status;

/// Answers that are kept,
const KEPT: usize = 1024;
/// and the bytes of them.
const KEPT_BYTES: usize = 16 << 20;

/// A request that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Of caller and name.
    name: [u8; 32],
    /// Of what is asked for.
    what: [u8; 32],
}

impl Named {
    /// Nothing, if the request has no name.
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

    /// Whether it is another one sent again.
    ///
    /// # Errors
    /// If that had its name and was not the same.
    pub fn repeats(&self, known: &Self) -> Result<bool, Status> {
        match self.name == known.name {
            true if self.what != known.what => Err(crate::refusal::field(
                "request_id",
                "another request had this name: give each request a name of its own, and send \
                 only the same one again under it",
            )),
            same => Ok(same),
        }
    }

    /// What the dataplane knows the change by.
    pub fn key(&self) -> String {
        let half = |hash: &[u8; 32]| hash.first_chunk().map_or(0, |h| u128::from_be_bytes(*h));
        format!("{:032x}{:032x}", half(&self.name), half(&self.what))
    }
}

/// The last answers.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    kept: VecDeque<(Named, pb::ChangeResponse)>,
    bytes: usize,
}

impl Answers {
    /// The answer that a request has had.
    pub fn to(&self, named: &Named) -> Result<Option<pb::ChangeResponse>, Status> {
        for (known, answer) in self.kept.iter().rev() {
            if named.repeats(known)? {
                return Ok(Some(pb::ChangeResponse { repeated: true, ..answer.clone() }));
            }
        }
        Ok(None)
    }

    /// Keeps an answer.
    pub fn keep(&mut self, named: Named, answer: pb::ChangeResponse) {
        self.bytes += answer.encoded_len();
        self.kept.push_back((named, answer));
        while self.kept.len() > KEPT || self.bytes > KEPT_BYTES {
            let Some((_, oldest)) = self.kept.pop_front() else { return };
            self.bytes -= oldest.encoded_len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(id: &str, seed: u64) -> Named {
        let request = pb::SetProfileRequest { seed: Some(seed), ..Default::default() };
        Named::new("SetProfile", "ci", id, &request).unwrap()
    }

    #[test]
    fn a_name_is_one_request_and_the_oldest_are_forgotten() {
        let mut answers = Answers::default();
        let answer = pb::ChangeResponse { seed: 9, ..Default::default() };
        assert_eq!(answers.to(&named("a", 1)).unwrap(), None);
        answers.keep(named("a", 1), answer.clone());
        let again = answers.to(&named("a", 1)).unwrap().unwrap();
        assert_eq!(again, pb::ChangeResponse { repeated: true, ..answer.clone() });
        assert!(answers.to(&named("a", 2)).is_err());
        assert_eq!(answers.to(&named("b", 1)).unwrap(), None);
        for n in 0..KEPT {
            answers.keep(named(&n.to_string(), 1), answer.clone());
        }
        assert_eq!(answers.to(&named("a", 1)).unwrap(), None);
        assert_eq!(answers.bytes, KEPT * answer.encoded_len());
    }

    #[test]
    fn large_answers_are_bounded_by_their_bytes() {
        let mut answers = Answers::default();
        let remarks = vec!["x".repeat(1 << 20)];
        for n in 0..40 {
            let answer = pb::ChangeResponse { remarks: remarks.clone(), ..Default::default() };
            answers.keep(named(&n.to_string(), 1), answer);
        }
        assert!(answers.bytes <= KEPT_BYTES && answers.kept.len() == 15, "{}", answers.kept.len());
    }

    #[test]
    fn without_a_name_there_is_nothing_to_remember() {
        let request = pb::SetProfileRequest::default();
        assert_eq!(Named::new("SetProfile", "ci", "", &request), None);
        // Caller and name do not run into each other.
        let of = |caller, id| Named::new("SetProfile", caller, id, &request).unwrap().key();
        assert_ne!(of("a", "bc"), of("ab", "c"));
        assert_eq!(of("a", "bc").len(), 64);
    }
}
