// SPDX-License-Identifier: Apache-2.0
//! Messages that break one rule each.

use super::*;

fn broken(change: impl FnOnce(&mut pb::Profile)) -> Vec<(String, String)> {
    let mut profile = crate::Catalog::built_in().get("viasat2-pings").unwrap().as_proto().clone();
    change(&mut profile);
    let found = validate(&profile).err().unwrap_or_default();
    found.into_iter().map(|v| (v.path, v.message)).collect()
}

fn forward(profile: &mut pb::Profile) -> &mut pb::Pipe {
    profile.forward_pipe.as_mut().unwrap()
}

/// Rules broken by a change of a complete forward pipe.
fn broken_pipe(change: impl FnOnce(&mut pb::Pipe)) -> Vec<(String, String)> {
    broken(|p| {
        let pipe = forward(p);
        pipe.rate_bps = None;
        pipe.rate_trace = Some(pb::RateTrace {
            step_ns: 1_000_000,
            rates_bps: vec![0, 5_000],
            ..Default::default()
        });
        pipe.fade = Some(pb::Fade { interval_ns: 1 << 40, duration_ns: 1 << 30, factor: 30.0 });
        pipe.packet_loss = 0.5;
        pipe.delay.as_mut().unwrap().body =
            Some(pb::Body { correlation_ns: 1 << 20, quantiles_ns: vec![0, 0, 5] });
        change(pipe);
    })
}

fn fitted() -> pb::Provenance {
    pb::Provenance {
        source: "pings.csv".into(),
        samples: 10,
        lost: 10,
        estimates: vec![pb::Estimate {
            parameter: "delay.base".into(),
            value: "275 ms".into(),
            ..Default::default()
        }],
        goodness: vec![pb::Goodness { test: "runs".into(), ..Default::default() }],
        ..Default::default()
    }
}

fn trace(pipe: &mut pb::Pipe) -> &mut pb::RateTrace {
    pipe.rate_trace.as_mut().unwrap()
}

fn fade(pipe: &mut pb::Pipe) -> &mut pb::Fade {
    pipe.fade.as_mut().unwrap()
}

fn body(pipe: &mut pb::Pipe) -> &mut pb::Body {
    pipe.delay.as_mut().unwrap().body.as_mut().unwrap()
}

#[test]
fn opportunities_are_checked() {
    let of = |step_ns: u64, size_bytes: u32, runs: &[u64]| {
        let opportunities = Some(pb::Opportunities { size_bytes, runs: runs.to_vec() });
        let trace = pb::RateTrace { step_ns, opportunities, ..Default::default() };
        broken_pipe(|pipe| *self::trace(pipe) = trace)
    };
    let runs = "forward.rate_trace.opportunities.runs";
    for (trace, path, expected) in [
        (of(1_000_000, 1504, &[]), runs, "a list of 0 is too short"),
        (of(1_000_000, 1504, &[16, 32]), runs, "never an opportunity"),
        (of(1_000_000, 1504, &[1, 15]), runs, "no duration"),
        (of(1_000_000, 1504, &[17, 0]), "forward.rate_trace.opportunities.runs[1]", "0 is below 1"),
        (of(999_999, 1504, &[17]), "forward.rate_trace.step", "is below 1 ms"),
        (of(1_000_000, 0, &[17]), "forward.rate_trace.opportunities.size", "is below 1 B"),
        (of(1_000_000, 1504, &vec![17; 524_289]), runs, "a list of 524289 is too long"),
    ] {
        assert_eq!(trace.len(), 1, "{trace:?}");
        assert_eq!(trace[0].0, path);
        assert!(trace[0].1.contains(expected), "{trace:?}");
    }
    let found = broken_pipe(|pipe| {
        let opportunities = Some(pb::Opportunities { size_bytes: 1504, runs: vec![17] });
        trace(pipe).opportunities = opportunities;
    });
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].1.contains("rates is given as well"), "{found:?}");
}

#[test]
fn empty_message_breaks_rules_without_panic() {
    let paths: Vec<_> =
        validate(&pb::Profile::default()).unwrap_err().into_iter().map(|v| v.path).collect();
    assert_eq!(paths, ["name", "forward", "return"]);
    let found = validate_pipe("forward", &pb::Pipe::default()).unwrap_err();
    let paths: Vec<_> = found.iter().map(|v| v.path.as_str()).collect();
    assert_eq!(paths, ["forward.queue", "forward.delay"]);
}

#[test]
fn non_finite_and_out_of_range_probabilities_are_refused() {
    for hostile in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-9, 1.0 + 1e-9] {
        let found = broken(|p| {
            let queue = forward(p).queue.as_mut().unwrap();
            queue.random_drop.as_mut().unwrap().probability_at_limit = hostile;
        });
        assert_eq!(found.len(), 1, "{hostile}");
        assert_eq!(found[0].0, "forward.queue.random_drop.probability_at_limit");
        let found = broken(|p| {
            let delay = p.return_pipe.as_mut().unwrap().delay.as_mut().unwrap();
            delay.excursions[0].shape = if hostile == -1e-9 { -1.1 } else { hostile };
        });
        assert_eq!(found.len(), 1, "{hostile}");
        assert_eq!(found[0].0, "return.delay.excursions[0].shape");
        let found = broken_pipe(|p| p.packet_loss = hostile);
        assert_eq!(found.len(), 1, "{hostile}");
        assert_eq!(found[0].0, "forward.packet_loss");
        let found = broken_pipe(|p| fade(p).factor = hostile.min(0.9));
        assert_eq!(found.len(), 1, "{hostile}");
        assert_eq!(found[0].0, "forward.fade.factor");
        let found = broken(|p| {
            p.provenance = Some(fitted());
            p.provenance.as_mut().unwrap().goodness[0].p_value = hostile;
        });
        assert_eq!(found.len(), 1, "{hostile}");
        assert_eq!(found[0].0, "provenance.goodness[0].p_value");
    }
}

#[test]
fn messages_name_the_value_the_limit_and_the_remedy() {
    let found = broken(|p| forward(p).rate_bps = Some(999));
    assert_eq!(found[0].1, "999 bit/s is below 1 kbit/s: write 1 kbit/s to 400 Gbit/s");
    let found = broken(|p| forward(p).queue.as_mut().unwrap().limit_bytes = 1_000);
    assert_eq!(found[0].1, "1 kB is below 1.518 kB: write 1.518 kB to 64 GiB");
    assert_eq!(
        found[1].1,
        "18 MB is above the queue's limit of 1 kB: lower the threshold or raise the limit"
    );
    let found = broken(|p| forward(p).delay.as_mut().unwrap().base_ns = u64::MAX);
    assert!(found[0].1.contains("is above 1 min: write 0 ms to 1 min"), "{}", found[0].1);
}

fn mtu() -> pb::Mtu {
    pb::Mtu { limit_bytes: 1_280, rate_hz: 1_000, ..Default::default() }
}

#[test]
fn message_source_must_be_address_of_host() {
    let v4 = ["10.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "255.255.255.255", "2001:db8::1", "x"];
    for address in v4 {
        let found = broken(|p| forward(p).mtu = Some(pb::Mtu { address: address.into(), ..mtu() }));
        assert_eq!((found.len(), found[0].0.as_str()), (1, "forward.mtu.address"), "{address}");
        assert!(found[0].1.contains("is not the IPv4 address of a host"), "{}", found[0].1);
    }
    for address in ["::", "::1", "ff02::1", "::ffff:10.0.0.1", "10.0.0.1", "2001:db8::1/64"] {
        let with = pb::Mtu { address_v6: address.into(), ..mtu() };
        let found = broken(|p| forward(p).mtu = Some(with));
        assert_eq!((found.len(), found[0].0.as_str()), (1, "forward.mtu.address_v6"), "{address}");
    }
    let (address, address_v6) = ("192.0.2.1".into(), "2001:db8::1".into());
    assert!(broken(|p| forward(p).mtu = Some(pb::Mtu { address, address_v6, ..mtu() })).is_empty());
}

#[test]
fn every_limit_is_checked() {
    let one = |change: fn(&mut pb::Pipe), path: &str| {
        let found = broken(|p| change(forward(p)));
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        assert_eq!(found[0].0, path);
    };
    one(|p| p.rate_bps = Some(400_000_000_001), "forward.rate");
    one(|p| p.overhead_bytes = -65, "forward.overhead");
    one(|p| p.overhead_bytes = 257, "forward.overhead");
    one(|p| p.link_layer = 3, "forward.link_layer");
    one(|p| p.mtu = Some(pb::Mtu { limit_bytes: 67, ..mtu() }), "forward.mtu.limit");
    one(|p| p.mtu = Some(pb::Mtu { limit_bytes: 10_211, ..mtu() }), "forward.mtu.limit");
    one(|p| p.mtu = Some(pb::Mtu { rate_hz: 0, ..mtu() }), "forward.mtu.rate");
    one(|p| p.mtu = Some(pb::Mtu { exceeded: 3, ..mtu() }), "forward.mtu.exceeded");
    one(|p| p.queue.as_mut().unwrap().limit_bytes = (64 << 30) + 1, "forward.queue.limit");
    one(|p| p.delay.as_mut().unwrap().slot_ns = 1_000_000_001, "forward.delay.slot");
    one(|p| p.outages[0].interval_ns = 9_999_999, "forward.outages[0].interval");
    one(|p| p.outages[0].duration_ns = 999, "forward.outages[0].duration");
    one(|p| p.outages[1].law = 0, "forward.outages[1].law");
    one(|p| p.outages[1].law = 77, "forward.outages[1].law");
    one(|p| p.outages = vec![p.outages[0]; 9], "forward.outages");
    one(|p| p.packet_loss = 1.001, "forward.packet_loss");
    assert!(broken(|p| forward(p).rate_bps = Some(0)).is_empty());
    assert!(broken(|p| forward(p).rate_bps = None).is_empty());
}

#[test]
fn names_are_plain_with_at_most_one_mark() {
    for good in ["a", "viasat2*", "geo-600", "A.b_c"] {
        assert!(broken(|p| p.name = good.into()).is_empty(), "{good}");
    }
    for bad in ["", "*", "a**", "-a", "a b", "../etc", "ü", "a\u{1b}[2J"] {
        assert_eq!(broken(|p| p.name = bad.into())[0].0, "name", "{bad}");
    }
    assert_eq!(broken(|p| p.name = "a".repeat(65)).len(), 1);
    assert_eq!(broken(|p| p.group = "a\nb".into())[0].0, "group");
    assert_eq!(broken(|p| p.group = "a".repeat(65))[0].0, "group");
    // Each fault is reported once.
    assert_eq!(broken(|p| p.group = "a\u{1b}".into()).len(), 1);
    assert_eq!(broken(|p| p.name = "a\u{1b}".into()).len(), 1);
    assert_eq!(broken(|p| p.description = "\u{1b}[2J".into())[0].0, "description");
}

#[test]
fn every_limit_of_cross_traffic_is_checked() {
    let sound = pb::CrossTraffic { rate_bps: 30_000_000, frame_bytes: 1_500, ..Default::default() };
    let with = |cross: pb::CrossTraffic| broken_pipe(|p| p.cross_traffic = Some(cross));
    let periods = |on_ns, off_ns, shape| {
        with(pb::CrossTraffic { on_off: Some(pb::OnOff { on_ns, off_ns, shape }), ..sound })
    };
    let one = |found: Vec<(String, String)>, path: &str| {
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        assert_eq!(found[0].0, format!("forward.cross_traffic{path}"));
    };
    assert_eq!(with(sound), []);
    assert_eq!(with(pb::CrossTraffic { poisson: true, ..sound }), []);
    assert_eq!(periods(3_600_000_000_000, 1_000_000, 1.05), []);
    for rate_bps in [0, 999, 400_000_000_001] {
        one(with(pb::CrossTraffic { rate_bps, ..sound }), ".rate");
    }
    for frame_bytes in [0, 63, 10_225] {
        one(with(pb::CrossTraffic { frame_bytes, ..sound }), ".frame");
    }
    one(periods(999_999, 1_000_000, 1.5), ".on_off.on");
    one(periods(1_000_000, 3_600_000_000_001, 1.5), ".on_off.off");
    one(periods(1_000_000, 1_000_000, 1.04), ".on_off.shape");
    one(periods(1_000_000, 1_000_000, f64::NAN), ".on_off.shape");
    // More than one frame per microsecond while they arrive.
    let frame_bytes = 64;
    assert_eq!(with(pb::CrossTraffic { rate_bps: 512_000_000, frame_bytes, ..sound }), []);
    one(with(pb::CrossTraffic { rate_bps: 512_000_001, frame_bytes, ..sound }), ".rate");
    let on_off = Some(pb::OnOff { on_ns: 1_000_000, off_ns: 9_000_000, shape: 1.5 });
    let most = pb::CrossTraffic { rate_bps: 51_200_000, frame_bytes, on_off, ..sound };
    assert_eq!(with(most), []);
    let found = with(pb::CrossTraffic { rate_bps: 51_200_001, ..most });
    assert!(found[0].1.contains("write at most 51.2 Mbit/s"), "{found:?}");
    one(found, ".rate");
    let both = pb::CrossTraffic { poisson: true, on_off, ..sound };
    one(with(both), ".on_off");
    let unlimited = broken_pipe(|p| (p.rate_trace, p.cross_traffic) = (None, Some(sound)));
    one(unlimited, "");
}

#[test]
fn every_limit_of_capacity_on_demand_is_checked() {
    let built_in = crate::Catalog::built_in();
    let rcs2 = built_in.get("geo-rcs2").unwrap().as_proto().clone();
    let with = |change: &dyn Fn(&mut pb::Pipe, &mut pb::Access)| {
        let mut profile = rcs2.clone();
        let pipe = profile.return_pipe.as_mut().unwrap();
        let mut access = pipe.access.take().unwrap();
        change(pipe, &mut access);
        pipe.access = Some(access);
        broken(|p| *p = profile.clone())
    };
    let one = |change: &dyn Fn(&mut pb::Pipe, &mut pb::Access), path: &str, words: &str| {
        let found = with(change);
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        assert_eq!(found[0].0, format!("return.access{path}"));
        assert!(found[0].1.contains(words), "{found:?}");
    };
    assert_eq!(with(&|_, _| {}), []);
    one(&|_, a| a.superframe_ns = 999_999, ".superframe", "below 1 ms");
    one(&|_, a| a.burst_bytes = 0, ".burst", "below 1 B");
    one(&|_, a| a.burst_bytes = 13_251, ".burst", "write at least 4.000302 Mbit/s");
    assert_eq!(with(&|_, a| a.burst_bytes = 13_250), []);
    let late = |_: &mut pb::Pipe, a: &mut pb::Access| {
        (a.request_delay_ns, a.request_interval_ns) = (60_000_000_001, 1_000_000_000);
    };
    one(&late, ".request_delay", "above 1 min");
    one(&|_, a| a.plan_delay_ns = 60_000_000_000, ".request_interval", "more than 256");
    let rare = |_: &mut pb::Pipe, a: &mut pb::Access| {
        (a.plan_delay_ns, a.request_interval_ns) = (60_000_000_000, 1_000_000_000);
    };
    assert_eq!(with(&rare), []);
    let silent = |_: &mut pb::Pipe, a: &mut pb::Access| {
        (a.constant, a.free, a.volume_bytes, a.rate_requests) = (0, 0, 0, None);
    };
    one(&silent, "", "no packet could leave");
    let down = |_: &mut pb::Pipe, a: &mut pb::Access| {
        a.rate_requests.as_mut().unwrap().max_bps = 0;
    };
    one(&down, ".rate_requests.max", "is down");
    one(&|p, _| p.rate_bps = None, "", "write a rate");
    assert_eq!(with(&|p, _| p.rate_bps = Some(0)), [], "down");
    one(&|p, _| p.delay.as_mut().unwrap().slot_ns = 1, ".superframe", "wait twice");
    let cross = pb::CrossTraffic { rate_bps: 1_000_000, frame_bytes: 1_500, ..Default::default() };
    one(&|p, _| p.cross_traffic = Some(cross), "", "cross_traffic");
    let mut forward = rcs2.clone();
    let access = forward.return_pipe.as_ref().unwrap().access;
    forward.forward_pipe.as_mut().unwrap().access = access;
    let found = broken(|p| *p = forward.clone());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, "forward.access");
}

#[test]
fn every_limit_of_varying_delay_and_loss_is_checked() {
    assert!(broken_pipe(|_| {}).is_empty());
    let one = |change: fn(&mut pb::Pipe), path: &str| {
        let found = broken_pipe(change);
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        assert_eq!(found[0].0, path);
    };
    one(|p| p.rate_bps = Some(0), "forward.rate_trace");
    one(|p| p.rate_bps = Some(5_000), "forward.rate_trace");
    one(|p| trace(p).step_ns = 999_999, "forward.rate_trace.step");
    one(|p| trace(p).step_ns = 3_600_000_000_001, "forward.rate_trace.step");
    one(|p| trace(p).rates_bps = vec![], "forward.rate_trace.rates");
    one(|p| trace(p).rates_bps = vec![0, 0], "forward.rate_trace.rates");
    one(|p| trace(p).rates_bps = vec![5_000; 65_537], "forward.rate_trace.rates");
    one(|p| trace(p).rates_bps[1] = 999, "forward.rate_trace.rates[1]");
    one(|p| trace(p).rates_bps[0] = 400_000_000_001, "forward.rate_trace.rates[0]");
    one(|p| fade(p).interval_ns = 9_999_999, "forward.fade.interval");
    one(|p| fade(p).duration_ns = 9_999_999, "forward.fade.duration");
    one(|p| fade(p).factor = 0.999, "forward.fade.factor");
    one(|p| fade(p).factor = 1e6 + 1.0, "forward.fade.factor");
    one(|p| p.outages.clear(), "forward.fade");
    one(|p| body(p).correlation_ns = 999_999, "forward.delay.body.correlation");
    one(|p| body(p).correlation_ns = 3_600_000_000_001, "forward.delay.body.correlation");
    one(|p| body(p).quantiles_ns = vec![5], "forward.delay.body.quantiles");
    one(|p| body(p).quantiles_ns = vec![5; 1_026], "forward.delay.body.quantiles");
    one(|p| body(p).quantiles_ns[1] = 6, "forward.delay.body.quantiles[2]");
    one(|p| body(p).quantiles_ns[2] = 60_000_000_001, "forward.delay.body.quantiles[2]");
}

const GILBERT: pb::GilbertElliott =
    pb::GilbertElliott { to_bad: 0.01, to_good: 0.25, loss_in_bad: 1.0, loss_in_good: 0.0 };
const FOUR: pb::FourStateLoss =
    pb::FourStateLoss { p13: 0.5, p31: 0.5, p32: 0.5, p23: 0.1, p14: 0.5 };

#[test]
fn every_limit_of_per_packet_loss_is_checked() {
    let one = |change: &dyn Fn(&mut pb::Pipe), path: &str| {
        let found = broken(|p| change(forward(p)));
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        assert_eq!(found[0].0, path);
    };
    let gilbert = |change: fn(&mut pb::GilbertElliott), path: &str| {
        one(&|p| change(p.gilbert_elliott.insert(GILBERT)), path);
    };
    gilbert(|it| it.to_bad = f64::NAN, "forward.gilbert_elliott.to_bad");
    gilbert(|it| it.to_good = 0.0, "forward.gilbert_elliott.to_good");
    gilbert(|it| it.loss_in_bad = 1.1, "forward.gilbert_elliott.loss_in_bad");
    gilbert(|it| it.loss_in_good = -0.1, "forward.gilbert_elliott.loss_in_good");
    let four = |change: fn(&mut pb::FourStateLoss), path: &str| {
        one(&|p| change(p.four_state_loss.insert(FOUR)), path);
    };
    four(|it| it.p13 = f64::INFINITY, "forward.four_state_loss.p13");
    four(|it| it.p31 = 0.0, "forward.four_state_loss.p31");
    four(|it| it.p32 = 0.6, "forward.four_state_loss.p32");
    four(|it| it.p23 = 0.0, "forward.four_state_loss.p23");
    four(|it| it.p14 = 0.6, "forward.four_state_loss.p14");
    let run = |pass_packets, drop_packets, once| pb::DropRun { pass_packets, drop_packets, once };
    one(&|p| p.drop_run = Some(run(0, 1, false)), "forward.drop_run.pass");
    one(&|p| p.drop_run = Some(run(u64::MAX, 1, true)), "forward.drop_run.pass");
    one(&|p| p.drop_run = Some(run(1, 0, false)), "forward.drop_run.drop");
    one(&|p| p.duplicate = 1.1, "forward.duplicate");
    one(&|p| p.corrupt = f64::NAN, "forward.corrupt");
    let reorder = |probability, by_ns| pb::Reorder { probability, by_ns };
    one(&|p| p.reorder = Some(reorder(1.1, 1_000)), "forward.reorder.probability");
    one(&|p| p.reorder = Some(reorder(0.5, 999)), "forward.reorder.by");
    one(&|p| p.reorder = Some(reorder(0.5, 60_000_000_001)), "forward.reorder.by");
    assert!(broken(|p| forward(p).drop_run = Some(run(0, 1, true))).is_empty());
    assert!(broken(|p| forward(p).gilbert_elliott = Some(GILBERT)).is_empty());
    assert!(broken(|p| forward(p).four_state_loss = Some(FOUR)).is_empty());
}

#[test]
fn every_limit_of_an_aqm_is_checked() {
    let one = |change: &dyn Fn(&mut pb::Queue), path: &str| {
        let found = broken(|p| {
            let queue = forward(p).queue.as_mut().unwrap();
            queue.random_drop = None;
            change(queue);
        });
        let paths: Vec<_> = found.iter().map(|(path, _)| path.as_str()).collect();
        let expected: Vec<_> = Some(path).filter(|path| !path.is_empty()).into_iter().collect();
        assert_eq!(paths, expected, "{found:?}");
    };
    const RED: pb::Red = pb::Red {
        min_bytes: 6_000_000,
        max_bytes: 36_000_000,
        probability_at_max: 0.1,
        weight: 0.002,
        packet_bytes: 1_000,
        gentle: true,
    };
    let red = |change: fn(&mut pb::Red), path: &str| one(&|q| change(q.red.insert(RED)), path);
    red(|_| {}, "");
    red(|it| it.min_bytes = it.max_bytes, "forward.queue.red.min");
    red(|it| it.max_bytes = 36_000_001, "forward.queue.red.max");
    red(|it| it.probability_at_max = 0.0, "forward.queue.red.probability");
    red(|it| it.weight = f64::NAN, "forward.queue.red.weight");
    red(|it| it.packet_bytes = 0, "forward.queue.red.packet");
    const CODEL: pb::CoDel = pb::CoDel { target_ns: 5_000_000, interval_ns: 100_000_000 };
    let codel =
        |change: fn(&mut pb::CoDel), path: &str| one(&|q| change(q.codel.insert(CODEL)), path);
    codel(|_| {}, "");
    codel(|it| it.target_ns = 0, "forward.queue.codel.target");
    codel(|it| it.target_ns = 100_000_001, "forward.queue.codel.target");
    codel(|it| it.interval_ns = 60_000_000_001, "forward.queue.codel.interval");
    const PIE: pb::Pie = pb::Pie {
        target_ns: 15_000_000,
        update_ns: 15_000_000,
        alpha_hz: 0.125,
        beta_hz: 1.25,
        max_burst_ns: 150_000_000,
    };
    let pie = |change: fn(&mut pb::Pie), path: &str| one(&|q| change(q.pie.insert(PIE)), path);
    pie(|_| {}, "");
    pie(|it| it.target_ns = 999, "forward.queue.pie.target");
    pie(|it| it.update_ns = 999_999, "forward.queue.pie.update");
    pie(|it| it.alpha_hz = -0.1, "forward.queue.pie.alpha");
    pie(|it| it.beta_hz = f64::INFINITY, "forward.queue.pie.beta");
    pie(|it| it.max_burst_ns = u64::MAX, "forward.queue.pie.max_burst");
    one(&|q| (q.ecn, q.pie) = (true, Some(PIE)), "");
    one(&|q| q.ecn = true, "forward.queue.ecn");
    one(&|q| (q.red, q.pie) = (Some(RED), Some(PIE)), "forward.queue.pie");
}

#[test]
fn two_per_packet_loss_models_are_refused() {
    let found = broken(|p| {
        let pipe = forward(p);
        pipe.packet_loss = 0.1;
        pipe.gilbert_elliott = Some(GILBERT);
        pipe.four_state_loss = Some(FOUR);
    });
    let message = "packet_loss is given as well: leave out one of both";
    let expected = ["forward.gilbert_elliott", "forward.four_state_loss"];
    assert_eq!(found, expected.map(|path| (path.to_owned(), message.to_owned())));
}

#[test]
fn fade_keeps_every_outage_above_its_minimum_interval() {
    // The shortest interval is 23 min 36 s = 1416 s: 141 600 times 10 ms.
    assert!(broken_pipe(|p| fade(p).factor = 141_600.0).is_empty());
    let found = broken_pipe(|p| fade(p).factor = 141_600.5);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, "forward.fade.factor");
    assert_eq!(
        found[0].1,
        "141600.5 makes the shortest interval between episodes, 23 min 36 s, shorter than 10 ms: \
         write at most 141600"
    );
    // An interval out of range is reported once.
    let found = broken_pipe(|p| p.outages[0].interval_ns = 5);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, "forward.outages[0].interval");
}

#[test]
fn invalid_list_reports_its_first_values() {
    let found = broken_pipe(|p| trace(p).rates_bps = vec![1; 65_536]);
    assert_eq!(found.len(), FAULTS);
    let found = broken_pipe(|p| body(p).quantiles_ns = vec![u64::MAX; 1 << 20]);
    assert_eq!(found.len(), FAULTS + 1);
    assert_eq!(found[0].1, "a list of 1048576 is too long: write 2 to 1025 values");
}

#[test]
fn every_limit_of_a_provenance_is_checked() {
    assert!(broken(|p| p.provenance = Some(fitted())).is_empty());
    let one = |change: fn(&mut pb::Provenance), path: &str| {
        let found = broken(|p| change(p.provenance.insert(fitted())));
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        assert_eq!(found[0].0, path);
    };
    let long = || "a".repeat(TEXT_BYTES + 1);
    one(|p| p.source = String::new(), "provenance.source");
    one(|p| p.source = "\u{1b}[2J".into(), "provenance.source");
    one(|p| p.format = "a".repeat(TEXT_BYTES + 1), "provenance.format");
    for bad in ["a", &"g".repeat(64), &"a".repeat(65), &long(), "\u{1b}"] {
        let found = broken(|p| p.provenance.insert(fitted()).sha256 = bad.into());
        assert_eq!(found.len(), 1, "{bad}");
        assert_eq!(found[0].0, "provenance.sha256");
    }
    one(|p| p.lost = 11, "provenance.lost");
    one(|p| p.samples = u64::MAX, "provenance.samples");
    one(|p| p.interval_ns = u64::MAX, "provenance.interval");
    one(|p| p.unidentified = vec![String::new(); 257], "provenance.unidentified");
    one(|p| p.remarks = vec!["\r".into()], "provenance.remarks[0]");
    one(|p| p.remarks = vec!["a".repeat(4_096); 17], "provenance");
    one(|p| p.estimates = vec![p.estimates[0].clone(); 257], "provenance.estimates");
    one(|p| p.estimates[0].parameter.clear(), "provenance.estimates[0].parameter");
    one(|p| p.estimates[0].value.clear(), "provenance.estimates[0].value");
    one(|p| p.estimates[0].low = "\0".into(), "provenance.estimates[0].low");
    one(|p| p.estimates[0].high = "\0".into(), "provenance.estimates[0].high");
    one(|p| p.estimates[0].method = "\0".into(), "provenance.estimates[0].method");
    one(|p| p.goodness = vec![p.goodness[0].clone(); 257], "provenance.goodness");
    one(|p| p.goodness[0].test.clear(), "provenance.goodness[0].test");
    one(|p| p.goodness[0].statistic = f64::NAN, "provenance.goodness[0].statistic");
    one(|p| p.goodness[0].degrees_of_freedom = -1.0, "provenance.goodness[0].degrees_of_freedom");
    one(
        |p| p.goodness[0].degrees_of_freedom = f64::INFINITY,
        "provenance.goodness[0].degrees_of_freedom",
    );
}

fn capacity(mean: f64, spread: f64) -> pb::Capacity {
    pb::Capacity { mean, spread, correlation_ns: 60_000_000_000, daily: vec![1.0, 0.9] }
}

#[test]
fn capacity_needs_constant_rate_and_feasible_spread() {
    let of = |capacity, rate: fn(&mut pb::Pipe)| {
        broken(|p| {
            rate(forward(p));
            forward(p).capacity = Some(capacity);
        })
    };
    let valid = capacity(0.85, 0.12);
    let path = |found: &[(String, String)]| found.iter().map(|f| f.0.clone()).collect::<Vec<_>>();
    let none = of(valid.clone(), |p| p.rate_bps = None);
    assert_eq!(path(&none), ["forward.capacity"]);
    assert!(none[0].1.contains("there is no rate"), "{}", none[0].1);
    let trace = of(valid.clone(), |p| {
        p.rate_bps = None;
        p.rate_trace = Some(pb::RateTrace {
            step_ns: 1_000_000,
            rates_bps: vec![5_000],
            ..Default::default()
        });
    });
    assert_eq!(path(&trace), ["forward.capacity"]);
    let wide = of(capacity(0.9, 0.3), |_| ());
    assert_eq!(path(&wide), ["forward.capacity.spread"]);
    assert!(wide[0].1.contains("30 % is too much"), "{}", wide[0].1);
    let constant = pb::Capacity { spread: 0.0, mean: 1.0, ..valid };
    let mut profile = crate::Catalog::built_in().get("viasat2-pings").unwrap().as_proto().clone();
    forward(&mut profile).capacity = Some(constant);
    assert_eq!(validate(&profile), Ok(()));
}

#[test]
fn reconfiguration_needs_a_change_and_a_phase_within_its_period() {
    let valid = pb::Reconfiguration {
        period_ns: 15_000_000_000,
        phase_ns: 12_000_000_000,
        clock: pb::PeriodClock::Utc as i32,
        values: pb::ValueOrder::Drawn as i32,
        delays_ns: vec![0, 4_000_000],
        shares: vec![0.5, 1.0],
        outage_probability: 0.2,
        outage_ns: 80_000_000,
        outage_law: 0,
    };
    let mut profile = crate::Catalog::built_in().get("viasat2-pings").unwrap().as_proto().clone();
    forward(&mut profile).reconfiguration = Some(valid.clone());
    assert_eq!(validate(&profile), Ok(()));
    let one = |change: fn(&mut pb::Reconfiguration), path: &str| {
        let mut changed = valid.clone();
        change(&mut changed);
        let found = broken(|p| forward(p).reconfiguration = Some(changed));
        let paths: Vec<_> = found.iter().map(|f| f.0.as_str()).collect();
        assert_eq!(paths, [format!("forward.reconfiguration{path}")], "{found:?}");
    };
    one(|r| r.phase_ns = r.period_ns, ".phase");
    one(|r| r.clock = 0, ".clock");
    one(|r| r.delays_ns.reverse(), ".delays[1]");
    one(|r| r.shares.reverse(), ".shares[1]");
    one(|r| r.outage_ns = 0, ".outage");
    one(|r| r.outage_ns = r.period_ns + 1, ".outage");
    one(|r| r.outage_probability = 0.0, ".outage_probability");
    one(
        |r| {
            (r.delays_ns, r.shares) = (vec![], vec![]);
            (r.outage_ns, r.outage_probability) = (0, 0.0);
        },
        "",
    );
}

#[test]
fn regime_keeps_intervals_of_its_excursions_long_enough() {
    let found = broken_pipe(|p| {
        let e = &mut p.delay.as_mut().unwrap().excursions;
        e.push(pb::Excursion { interval_ns: 1 << 30, duration_ns: 1 << 20, ..Default::default() });
        e[0].regime =
            Some(pb::Fade { interval_ns: 60_000_000_000, duration_ns: 1_000_000_000, factor: 1e6 });
    });
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "forward.delay.excursions[0].regime.factor");
}
