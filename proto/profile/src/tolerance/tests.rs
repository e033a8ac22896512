// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::{Catalog, Profile};

fn of(toml: &str) -> pb::Tolerance {
    let text = format!("name = \"link\"\n{toml}");
    tolerance(Profile::from_toml(&text).unwrap_or_else(|e| panic!("{text}: {e}")).as_proto())
}

/// A link with the same delay in both directions.
fn both(rate: &str, queue: &str, delay: &str) -> pb::Tolerance {
    let pipe = |name: &str| {
        format!("[{name}]\nrate = \"{rate}\"\nqueue.limit = \"{queue}\"\ndelay = {{ {delay} }}\n")
    };
    of(&format!("{}{}", pipe("forward"), pipe("return")))
}

#[test]
fn built_in_profiles_have_the_limits_of_their_links() {
    // Microseconds, and a word of each reason.
    let expected = [
        ("5g-nsa", 1_000, "strict", 10_000, "strict"),
        ("adsl2plus", 1_000, "strict", 10_000, "strict"),
        ("docsis31", 1_000, "strict", 10_000, "strict"),
        ("geo-600", 6_000, "1 % of its round trip of 600 ms", 16_000, "RFC 9406"),
        ("geo-rain", 6_000, "1 % of its round trip of 600 ms", 16_000, "RFC 9406"),
        ("geo-rcs2", 5_001, "1 % of its round trip of 500 ms", 26_500, "superframe of 26.5 ms"),
        ("lte", 1_000, "strict", 11_631, "RFC 9406"),
        ("lte-driving", 1_000, "strict", 10_000, "strict"),
        ("starlink", 1_000, "strict", 10_000, "strict"),
        (
            "starlink-lagos",
            2_101,
            "10 % of the spread of the return",
            21_010,
            "spread of the return",
        ),
        ("starlink-victoria", 1_036, "10 % of the spread", 10_362, "spread of the return"),
        ("transatlantic", 1_000, "strict", 10_000, "strict"),
        ("transparent", 1_000, "strict", 10_000, "strict"),
        ("vdsl2", 1_000, "strict", 10_000, "strict"),
        ("viasat2", 5_748, "1 % of its round trip of 575 ms", 41_470, "superframe of 41.5 ms"),
        (
            "viasat2-bad-day",
            5_748,
            "1 % of its round trip of 575 ms",
            41_470,
            "superframe of 41.5 ms",
        ),
        (
            "viasat2-fixed",
            5_748,
            "1 % of its round trip of 575 ms",
            41_470,
            "return time slot of 41.5 ms",
        ),
        (
            "viasat2-pings",
            5_748,
            "1 % of its round trip of 575 ms",
            41_430,
            "return time slot of 41.4 ms",
        ),
        ("wifi-busy", 9_674, "10 % of the spread of the forward", 96_740, "spread of the forward"),
    ];
    let catalog = Catalog::built_in();
    let found: Vec<_> = catalog.iter().map(|entry| entry.profile.name().to_owned()).collect();
    assert_eq!(found, expected.map(|(name, ..)| name.to_owned()));
    for (name, lateness, why_late, stall, why_stall) in expected {
        let it = tolerance(catalog.get(name).unwrap().as_proto());
        assert_eq!(
            (it.lateness_ns / 1_000, it.stall_ns / 1_000),
            (lateness, stall),
            "{name} {it:?}"
        );
        assert!(it.lateness_reason.starts_with(&format!("{name}: ")), "{name} {it:?}");
        assert!(it.lateness_reason.contains(why_late), "{name} {it:?}");
        assert!(it.stall_reason.contains(why_stall), "{name} {it:?}");
    }
}

#[test]
fn low_rate_counts_with_the_serialization_of_a_short_frame() {
    // 480 bits take 200 ms in each direction.
    let it = both("2.4 kbit/s", "100 kB", "base = \"50 ms\"");
    assert_eq!(
        (it.lateness_ns, it.lateness_reason),
        (5 * MS, "link: 1 % of its round trip of 500 ms".into())
    );
    // Where the rate varies, at its highest.
    let trace = |rates| {
        let pipe = |name| {
            format!(
                "[{name}]\nrate_trace = {{ step = \"1 s\", rates = [{rates}] }}\n\
                 queue.limit = \"100 kB\"\ndelay.base = \"50 ms\"\n"
            )
        };
        of(&format!("{}{}", pipe("forward"), pipe("return"))).lateness_ns
    };
    assert_eq!(trace("\"down\", \"2.4 kbit/s\""), 5 * MS);
    assert_eq!(trace("\"1 Gbit/s\", \"2.4 kbit/s\"") / 1_000, 1_000);
}

#[test]
fn slow_variation_is_no_spread() {
    let body = |correlation: &str| {
        let body = format!(
            "base = \"5 ms\", body = {{ correlation = \"{correlation}\", \
             quantiles = [\"0 ms\", \"100 ms\"] }}"
        );
        both("unlimited", "1 MB", &body)
    };
    assert_eq!((body("1 s").lateness_ns, body("1 s").stall_ns), (8 * MS, 80 * MS));
    assert_eq!((body("2 s").lateness_ns, body("2 s").stall_ns), (LATENESS, STALL));
}

#[test]
fn stall_is_bounded_by_queue_and_retransmission_timeout() {
    let slots = |queue| both("10 Mbit/s", queue, "base = \"5 ms\", slot = \"900 ms\"");
    let most = slots("1 MB");
    assert_eq!(most.stall_ns, 100 * MS);
    assert!(most.stall_reason.contains("retransmission timeout"), "{most:?}");
    // 50 kB are 40 ms; a tenth of the slot is more than the stall may be.
    let short = slots("50 kB");
    assert_eq!((short.stall_ns, short.lateness_ns), (20 * MS, 20 * MS));
    assert_eq!(short.stall_reason, "link: half of what the forward queue can hold, 40 ms");
    assert_eq!(short.lateness_reason, short.stall_reason);
    // The strict limit holds for any queue.
    assert_eq!(slots("1518 B").stall_ns, STALL);
}

#[test]
fn extreme_and_empty_links_have_limits() {
    assert_eq!(tolerance(&pb::Profile::default()).lateness_ns, LATENESS);
    let delay = pb::Delay { base_ns: u64::MAX, slot_ns: u64::MAX, ..Default::default() };
    let pipe = pb::Pipe { rate_bps: Some(1), delay: Some(delay), ..Default::default() };
    let (forward_pipe, return_pipe) = (Some(pipe.clone()), Some(pipe));
    let it = tolerance(&pb::Profile { forward_pipe, return_pipe, ..Default::default() });
    assert_eq!((it.lateness_ns, it.stall_ns), (STALL_MOST, STALL_MOST));
}

#[test]
fn strictest_takes_each_limit_with_its_reason() {
    let limit = |lateness_ns, stall_ns, why: &str| pb::Tolerance {
        lateness_ns,
        lateness_reason: why.into(),
        stall_ns,
        stall_reason: why.into(),
    };
    let it = strictest(limit(1, 8, "a"), &limit(2, 7, "b"));
    assert_eq!(
        (it.lateness_ns, &*it.lateness_reason, it.stall_ns, &*it.stall_reason),
        (1, "a", 7, "b")
    );
}
