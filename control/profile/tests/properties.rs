// SPDX-License-Identifier: Apache-2.0
//! What holds for every profile and every text.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use profile::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proto::linkemu::v1 as pb;

fn outage() -> impl Strategy<Value = pb::Outage> {
    (INTERVAL_NS, DURATION_NS, 1..=2_i32).prop_map(|(interval_ns, duration_ns, law)| pb::Outage {
        interval_ns,
        duration_ns,
        law,
    })
}

fn excursion() -> impl Strategy<Value = pb::Excursion> {
    (INTERVAL_NS, DURATION_NS, EXTRA_NS, EXTRA_NS, EXTRA_NS, SHAPE_MIN..SHAPE_BELOW).prop_map(
        |(interval_ns, duration_ns, a, b, scale_ns, shape)| pb::Excursion {
            interval_ns,
            duration_ns,
            location_ns: a.min(b),
            scale_ns,
            shape,
            max_ns: a.max(b),
        },
    )
}

fn queue() -> impl Strategy<Value = pb::Queue> {
    let drop = option::of((0.0..=1.0, 0.0..=1.0_f64, 0.0..=1.0_f64));
    (QUEUE_BYTES, drop).prop_map(|(limit_bytes, drop)| pb::Queue {
        limit_bytes,
        random_drop: drop.map(|(share, low, high): (f64, f64, f64)| pb::RandomDrop {
            threshold_bytes: (limit_bytes as f64 * share) as u64,
            probability_at_threshold: low,
            probability_at_limit: high,
        }),
    })
}

fn pipe() -> impl Strategy<Value = pb::Pipe> {
    (
        option::of(prop_oneof![1 => Just(0), 9 => RATE_BPS]),
        OVERHEAD_BYTES,
        queue(),
        vec(outage(), 0..=CLASSES),
        BASE_NS,
        SLOT_NS,
        vec(excursion(), 0..=CLASSES),
    )
        .prop_map(
            |(rate_bps, overhead_bytes, queue, outages, base_ns, slot_ns, excursions)| pb::Pipe {
                rate_bps,
                overhead_bytes,
                queue: Some(queue),
                outages,
                delay: Some(pb::Delay { base_ns, slot_ns, excursions }),
            },
        )
}

fn valid() -> impl Strategy<Value = pb::Profile> {
    let text = "[^\\p{Cc}]{0,40}(\n[\"'\\\\#=]{0,5}\t)?";
    ("[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}\\*?", text, text, pipe(), pipe()).prop_map(
        |(name, description, source, forward, back)| pb::Profile {
            name,
            description,
            source,
            forward_pipe: Some(forward),
            return_pipe: Some(back),
        },
    )
}

proptest! {
    #[test]
    fn a_valid_profile_round_trips_through_toml(message in valid()) {
        let profile = Profile::try_from(message.clone()).unwrap();
        let text = profile.to_toml();
        let back = Profile::from_toml(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(back.as_proto(), &message);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in any::<String>()) {
        let _ = Profile::from_toml(&text);
    }

    #[test]
    fn no_damage_to_a_profile_makes_the_reader_panic(
        message in valid(), at in any::<prop::sample::Index>(), junk in "\\PC{0,8}", cut in 0..20_usize,
    ) {
        let text = Profile::try_from(message).unwrap().to_toml();
        let chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        let head: String = chars[..at].iter().collect();
        let tail: String = chars[(at + cut).min(chars.len())..].iter().collect();
        if let Err(found) = Profile::from_toml(&format!("{head}{junk}{tail}")) {
            prop_assert!(!found.is_empty());
            prop_assert!(found.iter().all(|v| v.place.is_some()));
        }
    }

    #[test]
    fn no_text_makes_a_unit_parser_panic(text in "\\PC{0,30}|[0-9. ]{0,30}[a-zA-Z/%µ ]{0,8}") {
        let _ = (parse_rate(&text), parse_size(&text), parse_duration(&text));
        let _ = (parse_overhead(&text), parse_probability(&text));
    }

    #[test]
    fn quantities_read_back_to_themselves(n in any::<u64>(), shift in 0..64_u32, o in any::<i32>(), p in 0.0..=1.0) {
        let n = n >> shift;
        let rate = Rate::from_bps(Some(n));
        prop_assert_eq!(parse_rate(&rate.to_string()), Ok(rate));
        prop_assert_eq!(parse_size(&format_size(n)), Ok(n));
        prop_assert_eq!(parse_duration(&format_duration(n)), Ok(n));
        prop_assert_eq!(parse_overhead(&format_overhead(o)), Ok(o));
        prop_assert_eq!(parse_probability(&format_probability(p)), Ok(p));
    }

    #[test]
    fn probabilities_of_any_size_read_back(bits in any::<u64>()) {
        let p = f64::from_bits(bits).abs();
        prop_assume!(p.is_finite());
        prop_assert_eq!(parse_probability(&format_probability(p)), Ok(p));
    }
}
