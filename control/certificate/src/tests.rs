// SPDX-License-Identifier: Apache-2.0
use super::*;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::GetCertificateRequest as Limits;

/// A run that keeps all limits, some of them just.
fn sound() -> pb::Stats {
    let count = |packets| Some(pb::Count { packets, bytes: 100 * packets });
    let pipe = pb::PipeStats { received: count(10), sent: count(10), ..Default::default() };
    let memory =
        |used_max_bytes| pb::Memory { capacity_bytes: 1_000, used_bytes: 0, used_max_bytes };
    let worker = |used| pb::WorkerStats { memory: Some(memory(used)), ..Default::default() };
    pb::Stats {
        time_ns: 9_000_000_000,
        generation: 7,
        clients: vec![pb::ClientStats {
            client: "10.0.0.1".into(),
            forward_pipe: Some(pipe.clone()),
            return_pipe: Some(pipe),
            ..Default::default()
        }],
        lateness: Some(pb::Lateness {
            count: 1,
            p99_ns: 1_000_000,
            max_ns: 10_000_000,
            ..Default::default()
        }),
        memory: Some(pb::Memory { capacity_bytes: 2_000, used_bytes: 0, used_max_bytes: 1_000 }),
        // From before the mark.
        emulator_drops: 1_000,
        stall_max_ns: 10_000_000,
        span: Some(pb::Span {
            since_ns: 4_000_000_000,
            marked: true,
            generation: 4,
            sent: count(1),
            ..Default::default()
        }),
        workers: vec![worker(10), worker(990)],
        ..Default::default()
    }
}

fn judged(stats: pb::Stats, limits: &Limits) -> Certificate {
    judge(&stats, limits).unwrap()
}

/// The criteria that fail by the default limits after this change to a sound run.
fn failing(change: impl Fn(&mut pb::Stats, &mut pb::Span)) -> Vec<(&'static str, u64, u64)> {
    let mut stats = sound();
    let mut span = stats.span.take().unwrap();
    change(&mut stats, &mut span);
    stats.span = Some(span);
    let certificate = judged(stats, &Limits::default());
    let failed: Vec<_> =
        crate::failed(&certificate).map(|c| (&*c.name.clone().leak(), c.value, c.limit)).collect();
    assert_eq!(certificate.holds, failed.is_empty());
    failed
}

#[test]
fn run_at_its_limits_passes() {
    let certificate = judged(sound(), &Limits::default());
    assert!(certificate.holds);
    assert_eq!((certificate.generation, certificate.changes), (7, 3));
    assert!(certificate.remarks.is_empty());
    let names: Vec<_> = certificate.criteria.iter().map(|c| &*c.name).collect();
    let all = [
        "packets",
        "emulator_drops",
        "lateness_p99",
        "stall",
        "lateness_max",
        "memory",
        "conservation",
        "port_faults",
        "unplaced",
    ];
    assert_eq!(names, all);
}

#[test]
fn criterion_beyond_its_limit_fails_alone() {
    assert_eq!(failing(|_, _| {}), []);
    assert_eq!(failing(|_, span| span.sent = None), [("packets", 0, 1)]);
    assert_eq!(failing(|_, span| span.overload = 1), [("emulator_drops", 1, 0)]);
    assert_eq!(failing(|_, span| span.missed = 1), [("emulator_drops", 1, 0)]);
    assert_eq!(failing(|_, span| span.transmit_dropped = 1), [("emulator_drops", 1, 0)]);
    assert_eq!(failing(|_, span| span.port_faults = 1), [("port_faults", 1, 0)]);
    assert_eq!(failing(|_, span| span.unplaced = 1), [("unplaced", 1, 0)]);
    let witness = pb::SwitchSpan { is_whole: true, ..Default::default() };
    for (switch, failed) in [
        (witness.clone(), None),
        (pb::SwitchSpan { is_whole: false, ..witness.clone() }, Some(("switch_gaps", 1, 0))),
        (pb::SwitchSpan { lost_to_box: 3, ..witness.clone() }, Some(("switch_to_box", 3, 0))),
        (pb::SwitchSpan { lost_from_box: 2, ..witness.clone() }, Some(("switch_from_box", 2, 0))),
        (pb::SwitchSpan { lost_to_hosts: 7, ..witness.clone() }, Some(("switch_to_hosts", 7, 0))),
        (
            pb::SwitchSpan { excess_p99_ns: 1_000_001, ..witness.clone() },
            Some(("switch_excess_p99", 1_000_001, 1_000_000)),
        ),
        (
            pb::SwitchSpan { excess_max_ns: 16_777_216, ..witness.clone() },
            Some(("switch_excess_max", 16_777_216, 10_000_000)),
        ),
        (pb::SwitchSpan { stall_max_ns: Some(10_000_000), ..witness.clone() }, None),
        (
            pb::SwitchSpan { stall_max_ns: Some(301_989_888), ..witness.clone() },
            Some(("switch_stall", 301_989_888, 10_000_000)),
        ),
        (pb::SwitchSpan { early: 1, ..witness.clone() }, Some(("switch_early", 1, 0))),
        (pb::SwitchSpan { dropped: 4, ..witness.clone() }, Some(("switch_drops", 4, 0))),
        (pb::SwitchSpan { foreign_changes: 3, ..witness }, Some(("switch_entries", 3, 0))),
    ] {
        let failed = Vec::from_iter(failed);
        assert_eq!(failing(|_, span| span.switch = Some(switch.clone())), failed);
    }
    let late = failing(|stats, _| stats.lateness.as_mut().unwrap().p99_ns += 1);
    assert_eq!(late, [("lateness_p99", 1_000_001, 1_000_000)]);
    assert_eq!(failing(|stats, _| stats.stall_max_ns += 1), [("stall", 10_000_001, 10_000_000)]);
    let one = failing(|stats, _| stats.lateness.as_mut().unwrap().max_ns += 1);
    assert_eq!(one, [("lateness_max", 10_000_001, 10_000_000)]);
    let full = failing(|stats, _| stats.workers[1].memory.as_mut().unwrap().used_max_bytes += 1);
    assert_eq!(full, [("memory", 991, 990)]);
    let off = failing(|stats, _| {
        let forward = stats.clients[0].forward_pipe.as_mut().unwrap();
        forward.held = Some(pb::Count { packets: 1, bytes: 0 });
    });
    assert_eq!(off, [("conservation", 1, 0)]);
}

#[test]
fn loss_in_the_switch_is_named_with_its_port() {
    let loss = |port, to_hosts, packets| pb::SwitchPortLoss { port, to_hosts, packets };
    let switch = pb::SwitchSpan {
        is_whole: true,
        lost_to_box: 4,
        lost_to_hosts: 7,
        lost_at_egress: vec![loss(0, false, 3), loss(2, true, 5), loss(3, true, 2)],
        ..Default::default()
    };
    let span = pb::Span { switch: Some(switch), ..sound().span.unwrap() };
    let certificate = judged(pb::Stats { span: Some(span), ..sound() }, &Limits::default());
    let failed: Vec<_> = crate::failed(&certificate).map(|c| c.text.clone()).collect();
    let expected = [
        "switch_to_box 4 packets, at most 0 packets (lost at the switch's egress: 3 at port 0)",
        "switch_to_hosts 7 packets, at most 0 packets (lost at the switch's egress: 5 at port 2, \
         2 at port 3)",
    ];
    assert_eq!(failed, expected);
    let places = |name: &str| {
        let found = certificate.criteria.iter().find(|criterion| criterion.name == name);
        found.unwrap().places.iter().map(|place| place.port).collect::<Vec<_>>()
    };
    assert_eq!(places("switch_to_hosts"), [2, 3]);
    assert!(places("switch_from_box").is_empty());
}

#[test]
fn switch_that_does_not_report_stalls_is_remarked() {
    let remarks = |stall_max_ns| {
        let switch = pb::SwitchSpan { is_whole: true, stall_max_ns, ..Default::default() };
        let span = pb::Span { switch: Some(switch), ..sound().span.unwrap() };
        judged(pb::Stats { span: Some(span), ..sound() }, &Limits::default()).remarks
    };
    assert!(remarks(None)[0].contains("does not report for how long it stood still"));
    assert!(remarks(Some(0)).is_empty());
}

#[test]
fn changed_limits_change_the_verdict() {
    let stats =
        || pb::Stats { span: Some(pb::Span { missed: 5, ..sound().span.unwrap() }), ..sound() };
    let holds = |limits: Limits| judged(stats(), &limits).holds;
    let loose = || Limits { emulator_drops: Some(5), ..Limits::default() };
    assert!(holds(loose()));
    assert!(!holds(Limits { emulator_drops: Some(4), ..loose() }));
    assert!(!holds(Limits { packets: Some(2), ..loose() }));
    assert!(!holds(Limits { lateness_p99_ns: Some(999_999), ..loose() }));
    assert!(!holds(Limits { stall_ns: Some(9_999_999), ..loose() }));
    assert!(!holds(Limits { memory_percent: Some(98), ..loose() }));
    assert!(holds(Limits { changes: Some(3), ..loose() }));
    assert!(!holds(Limits { changes: Some(2), ..loose() }));
}

#[test]
fn full_worker_beside_empty_worker_fails() {
    let mut stats = sound();
    stats.workers[0].memory.as_mut().unwrap().used_max_bytes = 1_000;
    stats.workers[1].memory.as_mut().unwrap().used_max_bytes = 0;
    let certificate = judged(stats, &Limits::default());
    assert_eq!(failed_names(&certificate), ["memory"]);
}

#[test]
fn condition_without_failure_is_remarked() {
    let mut stats = sound();
    stats.span.as_mut().unwrap().marked = false;
    stats.span.as_mut().unwrap().lossy = true;
    let certificate = judged(stats, &Limits::default());
    assert!(certificate.holds);
    assert_eq!(certificate.remarks.len(), 2);
}

#[test]
fn certificate_without_span_has_no_verdict() {
    let stats = pb::Stats { span: None, ..sound() };
    assert_eq!(judge(&stats, &Limits::default()).unwrap_err(), NoSpan);
}

#[test]
fn extreme_figures_do_not_overflow() {
    let all = u64::MAX;
    let memory = Some(pb::Memory { capacity_bytes: all, used_bytes: all, used_max_bytes: all });
    let stats = pb::Stats {
        generation: 0,
        memory,
        workers: Vec::new(),
        stall_max_ns: all,
        span: Some(pb::Span {
            overload: all,
            missed: all,
            transmit_dropped: all,
            generation: all,
            ..Default::default()
        }),
        ..sound()
    };
    let certificate = judged(stats, &Limits { memory_percent: Some(255), ..Limits::default() });
    assert!(!certificate.holds);
    assert_eq!(certificate.changes, 0);
    assert_eq!(certificate.criteria[1].value, all);
    assert_eq!(certificate.criteria[1].unit, "packets");
    assert!(certificate.criteria[0].at_least && !certificate.criteria[1].at_least);
}

#[test]
fn box_that_did_not_answer_fails_the_run_and_is_named() {
    let gaps = |names: &[&str]| {
        let gaps = names.iter().map(|name| (*name).to_owned()).collect();
        Some(pb::BoxSpan { gaps })
    };
    assert_eq!(failing(|_, span| span.boxes = gaps(&[])), []);
    assert_eq!(failing(|_, span| span.boxes = gaps(&["b2"])), [("boxes", 1, 0)]);
    let mut stats = sound();
    stats.span.as_mut().unwrap().boxes = gaps(&["b2", "b3"]);
    let remarks = judged(stats, &Limits::default()).remarks;
    assert!(remarks[0].starts_with("box b2 ") && remarks[1].starts_with("box b3 "), "{remarks:?}");
}

/// The run over a link of a built-in profile, in which a packet was late by this at p99 and the worker
/// stalled for that.
fn over(link: &str, p99_ns: u64, stall_ns: u64) -> pb::Stats {
    let catalog = profile::Catalog::built_in();
    let mut stats = sound();
    let tolerance = profile::tolerance(catalog.get(link).unwrap().as_proto());
    stats.span.as_mut().unwrap().tolerance = Some(tolerance);
    stats.lateness = Some(pb::Lateness { p99_ns, max_ns: stall_ns, ..Default::default() });
    stats.stall_max_ns = stall_ns;
    stats
}

fn failed_names(certificate: &Certificate) -> Vec<&str> {
    crate::failed(certificate).map(|c| &*c.name).collect()
}

#[test]
fn lateness_is_limited_by_the_link() {
    const MS: u64 = 1_000_000;
    let usual = Limits::default();
    let certificate = judged(over("viasat2", 5 * MS, 30 * MS), &usual);
    assert!(certificate.holds, "{certificate:?}");
    let late = certificate.criteria.iter().find(|c| c.name == "lateness_p99").unwrap();
    assert_eq!(late.reason, "viasat2: 1 % of its round trip of 575 ms");
    // The same lateness on a link that is short and constant, and by strict limits on any link.
    let all = ["lateness_p99", "stall", "lateness_max"];
    assert_eq!(failed_names(&judged(over("transparent", 5 * MS, 30 * MS), &usual)), all);
    let strict = Limits { strict: true, ..usual };
    let certificate = judged(over("viasat2", 5 * MS, 30 * MS), &strict);
    assert_eq!(failed_names(&certificate), all);
    assert_eq!(
        crate::failed(&certificate).next().unwrap().reason,
        "the strict limit, as requested"
    );
    // A limit that is given holds for strict runs too.
    let given = Limits { lateness_p99_ns: Some(5 * MS), stall_ns: Some(30 * MS), ..strict };
    let certificate = judged(over("transparent", 5 * MS, 30 * MS), &given);
    assert_eq!((certificate.holds, &*certificate.criteria[2].reason), (true, "as requested"));
}

#[test]
fn stopped_dataplane_fails_on_every_built_in_link() {
    for entry in profile::Catalog::built_in().iter() {
        let name = entry.profile.name();
        // Few packets were in flight: not even one of a hundred was late.
        let mut stats = over(name, 1_000, 300_000_000);
        stats.lateness.as_mut().unwrap().max_ns = 1_000;
        assert_eq!(failed_names(&judged(stats, &Limits::default())), ["stall"], "{name}");
    }
}

#[test]
fn every_criterion_has_a_reason() {
    let mut stats = sound();
    let span = stats.span.as_mut().unwrap();
    span.switch = Some(pb::SwitchSpan { is_whole: true, ..Default::default() });
    span.boxes = Some(pb::BoxSpan::default());
    let certificate = judged(stats, &Limits { changes: Some(9), ..Limits::default() });
    let without: Vec<_> = certificate.criteria.iter().filter(|c| c.reason.is_empty()).collect();
    assert!(without.is_empty() && certificate.remedies.is_empty(), "{without:?}");
}

#[test]
fn run_without_packets_blames_no_one() {
    let mut stats = sound();
    stats.span.as_mut().unwrap().sent = None;
    let empty = judged(stats.clone(), &Limits::default());
    assert!(!empty.holds);
    assert!(empty.summary.starts_with("no packets were sent"), "{}", empty.summary);
    assert!(empty.remedies[0].starts_with("send packets"), "{:?}", empty.remedies);
    // One that stood still as well may have stopped them.
    stats.stall_max_ns += 1;
    let stopped = judged(stats, &Limits::default());
    assert_eq!(stopped.summary, "the emulator may have been the bottleneck");
    let few = judged(sound(), &Limits { packets: Some(2), ..Limits::default() });
    assert!(few.summary.starts_with("too few packets"), "{}", few.summary);
    assert_eq!(judged(sound(), &Limits::default()).summary, "the emulator was not the bottleneck");
}

#[test]
fn late_run_names_who_had_the_processor() {
    let remedies = |host: Option<pb::HostSpan>| {
        let mut stats = sound();
        stats.stall_max_ns += 1;
        stats.span.as_mut().unwrap().host = host;
        judged(stats, &Limits::default()).remedies.join("\n")
    };
    let ms = |n: u64| Some(n * 1_000_000);
    let waited = pb::HostSpan {
        waited_ns: ms(250),
        stolen_ns: ms(0),
        load: Some(2.34),
        processors: 2,
        ..Default::default()
    };
    let said = remedies(Some(waited));
    for word in [
        "for 250.0 ms of 5.0 s",
        "load average 2.3, 2 processors",
        "(--nice; it had 0)",
        "reserved cores",
    ] {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
    assert!(!remedies(Some(pb::HostSpan { nice: -19, ..waited })).contains("--nice"));
    let stolen = pb::HostSpan { waited_ns: ms(0), stolen_ns: ms(30), ..Default::default() };
    assert!(remedies(Some(stolen)).starts_with("the hypervisor withheld"));
    let busy = remedies(Some(pb::HostSpan::default()));
    assert!(busy.contains("--workers") && busy.contains("hugepages"), "{busy}");
    assert!(remedies(None).contains("docs/install.md"));
    assert!(remedies(None).contains("--max-stall"));
}

#[test]
fn lost_packets_have_the_remedy_of_their_reason() {
    let remedies = |span: pb::Span| {
        judged(pb::Stats { span: Some(span), ..sound() }, &Limits::default()).remedies.join("\n")
    };
    let span = || sound().span.unwrap();
    assert!(remedies(pb::Span { overload: 1, ..span() }).contains("--memory"));
    let missed = remedies(pb::Span { missed: 1, ..span() });
    assert!(missed.contains("framecnt") && missed.contains("processors of their own"), "{missed}");
    assert!(remedies(pb::Span { unconfirmed: 1, ..span() }).contains("netdev_max_backlog"));
    assert!(remedies(pb::Span { transmit_dropped: 1, ..span() }).contains("MTU"));
}
