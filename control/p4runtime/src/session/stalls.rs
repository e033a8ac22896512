// SPDX-License-Identifier: Apache-2.0
//! Stalls of a switch: how often its pipeline stood still, and for how long.
//!
//! P4 has no object for this. `linkd-p4switch` answers a read of an extern whose type is in the range that
//! P4Runtime leaves to architectures; other servers refuse it.

use super::Error;
use crate::proto::p4::v1 as p4;
use p4::entity::Entity as Kind;
use prost::Message;
use std::collections::BTreeMap;

/// The extern's type (P4Runtime: 0x81 and above are free), and its only object.
const TYPE: u32 = 0x81;
const OBJECT: u32 = TYPE << 24 | 1;
const URL: &str = "type.googleapis.com/linkemu.Stalls";
/// Bins of an answer, at most.
const BINS: usize = 4096;
/// Significant bits of a bin's bound: it is at most a sixteenth above a stall in its bin.
const BITS: u32 = 5;

/// Number of stalls by the upper bound of their durations, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stalls(pub BTreeMap<u64, u64>);

/// The message in the extern's entry.
#[derive(Clone, PartialEq, Eq, Message)]
struct Entry {
    /// Ascending.
    #[prost(uint64, repeated, tag = "1")]
    bounds_ns: Vec<u64>,
    /// As many.
    #[prost(uint64, repeated, tag = "2")]
    counts: Vec<u64>,
}

impl Stalls {
    /// Counts a stall of so many ns.
    pub fn add(&mut self, ns: u64) {
        let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(BITS);
        let bound = ns.div_ceil(1 << shift).saturating_mul(1 << shift);
        *self.0.entry(bound).or_default() += 1;
    }

    pub(super) fn asked() -> Kind {
        Kind::ExternEntry(p4::ExternEntry { extern_type_id: TYPE, extern_id: OBJECT, entry: None })
    }

    /// Whether this is what a request for stalls names.
    #[must_use]
    pub fn is_asked_by(asked: &p4::ExternEntry) -> bool {
        (asked.extern_type_id, asked.extern_id) == (TYPE, OBJECT)
    }

    /// The answer to a request for them.
    #[must_use]
    pub fn encode(&self) -> p4::ExternEntry {
        let (bounds_ns, counts) = self.0.iter().unzip();
        let value = Entry { bounds_ns, counts }.encode_to_vec();
        let entry = Some(prost_types::Any { type_url: URL.into(), value });
        p4::ExternEntry { extern_type_id: TYPE, extern_id: OBJECT, entry }
    }

    pub(super) fn decode(answered: &Kind) -> Result<Self, Error> {
        let strange = || Error::strange("something else than its stalls");
        let Kind::ExternEntry(answered) = answered else { return Err(strange()) };
        let entry = answered.entry.as_ref().filter(|_| Self::is_asked_by(answered));
        let entry = Entry::decode(&*entry.ok_or_else(strange)?.value).map_err(|_| strange())?;
        if entry.bounds_ns.len() != entry.counts.len() || entry.counts.len() > BINS {
            return Err(strange());
        }
        Ok(Self(entry.bounds_ns.into_iter().zip(entry.counts).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stall_is_counted_in_a_bin_at_most_a_sixteenth_above_it() {
        let bound = |ns: u64| {
            let mut stalls = Stalls::default();
            stalls.add(ns);
            *stalls.0.first_key_value().unwrap().0
        };
        assert_eq!([0, 1, 31, 32, 33].map(bound), [0, 1, 31, 32, 34]);
        assert_eq!(bound(u64::MAX), u64::MAX);
        for ns in (0..60).map(|n| 12_345_u64 << (n / 2)).take(40) {
            assert!((ns..=ns + ns / 16).contains(&bound(ns)), "{ns}");
        }
    }

    #[test]
    fn stalls_are_decoded_as_encoded() {
        let mut stalls = Stalls::default();
        [1_000_000, 300_000_000, 300_000_001].into_iter().for_each(|ns| stalls.add(ns));
        let answer = Kind::ExternEntry(stalls.encode());
        assert_eq!(Stalls::decode(&answer).unwrap(), stalls);
        assert!(Stalls::decode(&Stalls::asked()).is_err());
    }

    proptest! {
        #[test]
        fn any_answer_decodes_without_panic(value: Vec<u8>) {
            let entry = Some(prost_types::Any { type_url: String::new(), value });
            let _ = Stalls::decode(&Kind::ExternEntry(p4::ExternEntry {
                extern_type_id: TYPE, extern_id: OBJECT, entry,
            }));
        }
    }
}
