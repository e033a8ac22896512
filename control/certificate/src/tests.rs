// SPDX-License-Identifier: Apache-2.0
use super::*;
use proto::linkemu::v1 as pb;

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
            max_ns: 1 << 40,
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
    Certificate::new(&stats.into(), limits).unwrap()
}

/// The criteria that fail by the default limits after this change to a sound run.
fn failing(change: impl Fn(&mut pb::Stats, &mut pb::Span)) -> Vec<(&'static str, u64, u64)> {
    let mut stats = sound();
    let mut span = stats.span.take().unwrap();
    change(&mut stats, &mut span);
    stats.span = Some(span);
    let certificate = judged(stats, &Limits::default());
    let failed: Vec<_> = certificate.failed().map(|c| (c.name, c.value, c.limit)).collect();
    assert_eq!(certificate.verdict == Verdict::Pass, failed.is_empty());
    failed
}

#[test]
fn run_at_its_limits_passes() {
    let certificate = judged(sound(), &Limits::default());
    assert_eq!(certificate.verdict, Verdict::Pass);
    assert_eq!((certificate.generation, certificate.changes), (7, 3));
    assert!(certificate.remarks.is_empty());
    let names: Vec<_> = certificate.criteria.iter().map(|c| c.name).collect();
    let all = [
        "packets",
        "emulator_drops",
        "lateness_p99",
        "stall",
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
        (pb::SwitchSpan { early: 1, ..witness }, Some(("switch_early", 1, 0))),
    ] {
        let failed = Vec::from_iter(failed);
        assert_eq!(failing(|_, span| span.switch = Some(switch.clone())), failed);
    }
    let late = failing(|stats, _| stats.lateness.as_mut().unwrap().p99_ns += 1);
    assert_eq!(late, [("lateness_p99", 1_000_001, 1_000_000)]);
    assert_eq!(failing(|stats, _| stats.stall_max_ns += 1), [("stall", 10_000_001, 10_000_000)]);
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
    let failed: Vec<_> = certificate.failed().map(ToString::to_string).collect();
    let expected = [
        "switch_to_box 4 packets, at most 0 packets (lost at the switch's egress: 3 at port 0)",
        "switch_to_hosts 7 packets, at most 0 packets (lost at the switch's egress: 5 at port 2, \
         2 at port 3)",
    ];
    assert_eq!(failed, expected);
    let json = serde_json::to_value(&certificate).unwrap();
    let of = |name: &str| {
        let all = json["criteria"].as_array().unwrap().iter();
        all.clone().find(|criterion| criterion["name"] == name).unwrap().clone()
    };
    assert_eq!(of("switch_to_hosts")["places"][1]["port"], 3);
    assert_eq!(of("switch_from_box").get("places"), None);
}

#[test]
fn changed_limits_change_the_verdict() {
    let stats =
        || pb::Stats { span: Some(pb::Span { missed: 5, ..sound().span.unwrap() }), ..sound() };
    let verdict = |limits: Limits| judged(stats(), &limits).verdict;
    let loose = Limits { emulator_drops: 5, ..Limits::default() };
    assert_eq!(verdict(loose), Verdict::Pass);
    assert_eq!(verdict(Limits { emulator_drops: 4, ..loose }), Verdict::Fail);
    assert_eq!(verdict(Limits { packets: 2, ..loose }), Verdict::Fail);
    assert_eq!(verdict(Limits { lateness_p99_ns: 999_999, ..loose }), Verdict::Fail);
    assert_eq!(verdict(Limits { stall_ns: 9_999_999, ..loose }), Verdict::Fail);
    assert_eq!(verdict(Limits { memory_percent: 98, ..loose }), Verdict::Fail);
    assert_eq!(verdict(Limits { changes: Some(3), ..loose }), Verdict::Pass);
    assert_eq!(verdict(Limits { changes: Some(2), ..loose }), Verdict::Fail);
}

#[test]
fn full_worker_beside_empty_worker_fails() {
    let mut stats = sound();
    stats.workers[0].memory.as_mut().unwrap().used_max_bytes = 1_000;
    stats.workers[1].memory.as_mut().unwrap().used_max_bytes = 0;
    let certificate = judged(stats, &Limits::default());
    assert_eq!(certificate.failed().map(|c| c.name).collect::<Vec<_>>(), ["memory"]);
}

#[test]
fn condition_without_failure_is_remarked() {
    let mut stats = sound();
    stats.span.as_mut().unwrap().marked = false;
    stats.span.as_mut().unwrap().lossy = true;
    let certificate = judged(stats, &Limits::default());
    assert_eq!(certificate.verdict, Verdict::Pass);
    assert_eq!(certificate.remarks.len(), 2);
}

#[test]
fn certificate_without_span_has_no_verdict() {
    let stats = pb::Stats { span: None, ..sound() };
    assert_eq!(Certificate::new(&stats.into(), &Limits::default()).unwrap_err(), NoSpan);
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
    let certificate = judged(stats, &Limits { memory_percent: 255, ..Limits::default() });
    assert_eq!(certificate.verdict, Verdict::Fail);
    assert_eq!(certificate.changes, 0);
    let json = serde_json::to_value(&certificate).unwrap();
    assert_eq!(json["criteria"][1]["value"], all);
    assert_eq!(json["criteria"][1]["unit"], "packets");
    assert_eq!(json["criteria"][0]["bound"], "at_least");
    assert_eq!(json["verdict"], "fail");
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
