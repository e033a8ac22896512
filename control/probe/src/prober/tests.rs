// SPDX-License-Identifier: Apache-2.0
//! Loss, late replies, duplicates and hold-ups in virtual time.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const MS: Duration = Duration::from_millis(1);

fn plan(extent: Extent) -> Plan {
    let target = "host".parse().unwrap();
    Plan { interval: 10 * MS, timeout: 100 * MS, extent, ..Plan::new(target) }
}

fn utc(at: Duration) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000) + at
}

fn reflected(at: Duration) -> u64 {
    utc(at).duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn prober(extent: Extent) -> Prober {
    Prober::new(&plan(extent), 0, Start::default())
}

/// Sends due probes on time.
fn send(prober: &mut Prober, n: u64) {
    for _ in 0..n {
        let at = prober.next_instant().unwrap();
        assert!(prober.due(at).is_some());
        prober.sent(at, utc(at));
    }
}

#[test]
fn a_reply_in_time_gives_its_round_trip_and_way_there() {
    let mut prober = prober(Extent::Open);
    send(&mut prober, 1);
    assert_eq!(prober.settle(MS), None);
    prober.reply(0, reflected(30 * MS), 80 * MS);
    let reply = Some(Reply { rtt: 80 * MS, there_ns: 30_000_000 });
    let row = Row { sequence: 0, sent_utc: utc(Duration::ZERO), sent: Duration::ZERO, reply };
    assert_eq!(prober.settle(80 * MS), Some(row));
    assert_eq!(prober.counts(), Counts { sent: 1, received: 1, ..Counts::default() });
}

#[test]
fn a_probe_is_lost_only_after_its_timeout_and_once_the_socket_was_read_beyond_it() {
    let mut prober = prober(Extent::Open);
    send(&mut prober, 1);
    assert_eq!(prober.next_loss(), Some(100 * MS));
    assert_eq!(prober.settle(100 * MS), None);
    prober.reply(0, 0, 100 * MS);
    assert_eq!(prober.settle(99 * MS).unwrap().reply.unwrap().rtt, 100 * MS);

    send(&mut prober, 1);
    assert_eq!(prober.settle(110 * MS), None);
    assert_eq!(prober.settle(110 * MS + Duration::from_nanos(1)).unwrap().reply, None);
    assert_eq!(prober.counts().lost, 1);
}

#[test]
fn a_reply_after_the_timeout_is_late_and_its_probe_lost_whichever_is_seen_first() {
    let mut prober = prober(Extent::Open);
    send(&mut prober, 2);
    // Read before the loss was settled, and after.
    prober.reply(0, 0, 101 * MS);
    assert_eq!(prober.settle(300 * MS).unwrap().reply, None);
    assert_eq!(prober.settle(300 * MS).unwrap().reply, None);
    prober.reply(1, 0, 300 * MS);
    assert_eq!(prober.counts(), Counts { sent: 2, lost: 2, late: 2, ..Counts::default() });
}

#[test]
fn a_second_reply_is_a_duplicate_before_and_after_the_row_was_taken() {
    let mut prober = prober(Extent::Open);
    send(&mut prober, 2);
    prober.reply(1, 0, 20 * MS);
    prober.reply(1, 0, 21 * MS);
    prober.reply(0, 0, 22 * MS);
    while prober.settle(22 * MS).is_some() {}
    prober.reply(0, 0, 23 * MS);
    prober.reply(1, 0, 500 * MS);
    let expected = Counts { sent: 2, received: 2, duplicates: 3, ..Counts::default() };
    assert_eq!(prober.counts(), expected);
}

#[test]
fn a_late_reply_that_comes_twice_is_late_once() {
    let mut prober = prober(Extent::Open);
    send(&mut prober, 1);
    assert!(prober.settle(200 * MS).is_some());
    prober.reply(0, 0, 200 * MS);
    prober.reply(0, 0, 201 * MS);
    let expected = Counts { sent: 1, lost: 1, late: 1, duplicates: 1, ..Counts::default() };
    assert_eq!(prober.counts(), expected);
}

#[test]
fn a_number_that_was_not_sent_is_foreign() {
    let start = Start { sequence: 1000, elapsed: Duration::ZERO };
    let mut prober = Prober::new(&plan(Extent::Open), 0, start);
    prober.reply(999, 0, MS);
    send(&mut prober, 1);
    for sequence in [999, 1001, 0, u32::MAX, 1000_u32.wrapping_add(1 << 31)] {
        prober.reply(sequence, 0, MS);
    }
    assert_eq!(prober.counts().foreign, 6);
    prober.reply(1000, u64::MAX, MS);
    assert_eq!(prober.settle(MS).unwrap().reply.unwrap().there_ns, i64::MAX);
}

#[test]
fn numbers_continue_beyond_32_bits() {
    let start = Start { sequence: u64::from(u32::MAX), elapsed: Duration::ZERO };
    let mut prober = Prober::new(&plan(Extent::Open), 0, start);
    send(&mut prober, 3);
    for sequence in [1, 0, u32::MAX] {
        prober.reply(sequence, 0, 30 * MS);
    }
    let rows: Vec<_> = std::iter::from_fn(|| prober.settle(30 * MS)).collect();
    let first = u64::from(u32::MAX);
    assert!(rows.iter().map(|row| row.sequence).eq(first..first + 3));
    assert_eq!(prober.counts().received, 3);
}

#[test]
fn late_sender_skips_probes_without_burst() {
    let mut prober = prober(Extent::Open);
    send(&mut prober, 1);
    // Due at 10, 20, ... 120 ms; at 125 ms that of 120 ms is not late by an interval.
    let now = 125 * MS;
    assert_eq!(prober.due(now), Some(1));
    prober.sent(now, utc(now));
    assert_eq!(prober.due(now), None);
    assert_eq!(prober.next_instant(), Some(130 * MS));
    assert_eq!(
        prober.counts(),
        Counts { sent: 2, outstanding: 2, skipped: 11, ..Counts::default() }
    );
}

#[test]
fn a_count_ends_with_its_last_probe_and_a_duration_before_its_instant() {
    let mut prober = prober(Extent::Count(3));
    assert_eq!(prober.remaining(Duration::ZERO), Some(20 * MS));
    send(&mut prober, 3);
    assert_eq!((prober.next_instant(), prober.due(900 * MS)), (None, None));
    assert!(!prober.done());
    while prober.settle(900 * MS).is_some() {}
    assert!(prober.done());

    let mut prober = self::prober(Extent::Duration(30 * MS));
    send(&mut prober, 3);
    assert_eq!((prober.next_instant(), prober.due(900 * MS)), (None, None));
    // Beyond the end nothing was skipped.
    assert_eq!(prober.counts().skipped, 0);
}

#[test]
fn counts_and_durations_are_of_the_log_over_all_its_runs() {
    let start = Start { sequence: 2, elapsed: 25 * MS };
    let mut resumed = Prober::new(&plan(Extent::Count(3)), 0, start);
    send(&mut resumed, 1);
    assert_eq!(resumed.next_instant(), None);
    assert_eq!(resumed.settle(900 * MS).unwrap().sent, 25 * MS);

    let mut resumed = Prober::new(&plan(Extent::Duration(30 * MS)), 0, start);
    send(&mut resumed, 1);
    assert_eq!(resumed.next_instant(), None);

    for extent in [Extent::Count(2), Extent::Duration(25 * MS)] {
        assert!(Prober::new(&plan(extent), 0, start).done());
    }
}

#[test]
fn stopped_sender_awaits_probes_in_flight() {
    let mut prober = prober(Extent::Open);
    send(&mut prober, 2);
    prober.end();
    assert_eq!((prober.due(90 * MS), prober.done()), (None, false));
    prober.reply(0, 0, 90 * MS);
    prober.reply(1, 0, 90 * MS);
    while prober.settle(90 * MS).is_some() {}
    assert!(prober.done());
}

#[test]
fn memory_is_bounded_by_the_timeout_and_not_by_the_run() {
    let mut prober = prober(Extent::Count(100_000));
    let limit = plan(Extent::Open).outstanding_limit();
    let mut most = 0;
    while let Some(at) = prober.next_instant() {
        send(&mut prober, 1);
        while prober.settle(at).is_some() {}
        most = most.max(prober.outstanding.len());
        assert!(prober.history.len() <= HISTORY);
    }
    // Timeout / interval, plus the probe that was just sent.
    assert_eq!(most, 11);
    assert!(most <= limit && prober.outstanding.capacity() <= limit.next_power_of_two());

    // The limit holds even if rows are not taken: no more probes are sent.
    let mut stuck = self::prober(Extent::Open);
    for k in 0..10_000 {
        let at = 10 * MS * k;
        if stuck.due(at).is_some() {
            stuck.sent(at, utc(at));
        }
    }
    let counts = stuck.counts();
    assert_eq!((counts.sent, counts.sent + counts.skipped), (limit as u64, 10_000));
}

proptest! {
    #![proptest_config(ProptestConfig {
        // 200 cases by default, scaled by PROPTEST_CASES / 256.
        cases: ProptestConfig::default().cases.saturating_mul(200).div_ceil(256),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_probe_gives_the_row_that_the_network_gave_it(
        // Replies to each probe, after so many ms.
        fates in proptest::collection::vec(proptest::collection::vec(1_u64..250, 0..3), 1..200),
        // A loop that wakes up late: in ms.
        holds in proptest::collection::vec(prop_oneof![9 => Just(1_u64), 1 => 1_u64..80], 1..50),
        poisson in any::<bool>(),
    ) {
        let spacing = if poisson { Spacing::Poisson { seed: None } } else { Spacing::Constant };
        let count = fates.len() as u64;
        let plan = Plan { spacing, ..plan(Extent::Count(count)) };
        let mut prober = Prober::new(&plan, 7, Start::default());
        // By arrival.
        let mut network: BTreeMap<Duration, Vec<u32>> = BTreeMap::new();
        let mut sent = Vec::new();
        let mut rows = Vec::new();
        let mut now = Duration::ZERO;
        let mut holds = holds.iter().cycle();
        while !prober.done() {
            while let Some(arrival) = network.first_entry().filter(|entry| *entry.key() <= now) {
                let (at, sequences) = arrival.remove_entry();
                sequences.into_iter().for_each(|sequence| prober.reply(sequence, 0, at));
            }
            rows.extend(std::iter::from_fn(|| prober.settle(now)));
            prop_assert!(prober.outstanding.len() <= plan.outstanding_limit());
            if let Some(sequence) = prober.due(now) {
                prop_assert_eq!(sequence, sent.len() as u64);
                prober.sent(now, utc(now));
                for ms in &fates[sent.len()] {
                    network.entry(now + MS * *ms as u32).or_default().push(sequence as u32);
                }
                sent.push(now);
                continue;
            }
            now += MS * *holds.next().unwrap() as u32;
        }
        prop_assert_eq!(rows.len() as u64, count);
        for (index, row) in rows.iter().enumerate() {
            let first = fates[index].iter().copied().min();
            let expected = first.filter(|ms| *ms <= 100).map(|ms| MS * ms as u32);
            prop_assert_eq!(row.sequence, index as u64);
            prop_assert_eq!(row.sent, sent[index]);
            prop_assert_eq!(row.reply.map(|reply| reply.rtt), expected);
        }
        let counts = prober.counts();
        prop_assert_eq!((counts.sent, counts.outstanding), (count, 0));
        prop_assert_eq!(counts.received + counts.lost, count);
        prop_assert_eq!(counts.foreign, 0);
    }

    #[test]
    fn any_replies_at_any_time_leave_the_counts_whole(
        replies in proptest::collection::vec((any::<u32>(), 0_u32..40, any::<u64>(), 0_u64..400), 0..200),
    ) {
        let mut prober = prober(Extent::Count(20));
        let mut rows = 0;
        for (any, near, reflected, at) in &replies {
            if let Some(instant) = prober.next_instant() {
                send(&mut prober, 1);
                rows += u64::from(prober.settle(instant).is_some());
            }
            prober.reply(if *near < 20 { *near } else { *any }, *reflected, MS * *at as u32);
        }
        rows += std::iter::from_fn(|| prober.settle(Duration::MAX)).count() as u64;
        let counts = prober.counts();
        prop_assert_eq!(counts.sent, rows);
        prop_assert_eq!(counts.received + counts.lost, rows);
        let heard = counts.received + counts.late + counts.duplicates + counts.foreign;
        prop_assert_eq!(heard, replies.len() as u64);
    }
}
