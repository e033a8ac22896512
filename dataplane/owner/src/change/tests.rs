// SPDX-License-Identifier: Apache-2.0

use pb::Direction::{Forward, Return, Unspecified};
use prost_types::FieldMask;

use super::*;

fn built_in(name: &str) -> Option<pb::Profile> {
    profile::Catalog::built_in().get(name).map(|it| it.as_proto().clone())
}

fn part(direction: pb::Direction, paths: &[&str], pipe: pb::Pipe) -> dp::Change {
    let paths = paths.iter().map(|it| (*it).to_owned()).collect();
    let (pipe, mask) = (Some(pipe), Some(FieldMask { paths }));
    let part = dp::Part { direction: direction.into(), pipe, mask };
    dp::Change { parts: vec![part], ..Default::default() }
}

/// A link that is patched, and checked as an executor does.
struct Patched(pb::Profile);

impl Patched {
    fn new() -> Self {
        Self(built_in("viasat2").unwrap())
    }

    /// Returns the drop runs that it arms, or where it is wrong.
    fn patch(
        &mut self,
        direction: pb::Direction,
        paths: &[&str],
        pipe: pb::Pipe,
    ) -> Result<[bool; 2], Vec<String>> {
        let plan = dp::Plan { profile: Some(self.0.clone()), seed: 7, ..Default::default() };
        let merged = match merge(&part(direction, paths, pipe), plan) {
            Ok(merged) => merged,
            Err(ChangeError::Invalid(found)) => return Err(places(found)),
            Err(error) => panic!("{error}"),
        };
        assert!(!merged.restart && merged.plan.seed == 7);
        let profile = merged.plan.profile.unwrap();
        profile::validate(&profile).map_err(places)?;
        self.0 = profile;
        Ok(merged.arm)
    }

    fn forward(&self) -> &pb::Pipe {
        self.0.forward_pipe.as_ref().unwrap()
    }

    fn back(&self) -> &pb::Pipe {
        self.0.return_pipe.as_ref().unwrap()
    }
}

fn places(found: Violations) -> Vec<String> {
    found.into_iter().map(|it| it.path).collect()
}

fn wrong<const N: usize>(places: [&str; N]) -> Result<[bool; 2], Vec<String>> {
    Err(places.map(str::to_owned).to_vec())
}

fn rate(bps: u64) -> pb::Pipe {
    pb::Pipe { rate_bps: Some(bps), ..Default::default() }
}

fn queue(queue: pb::Queue) -> pb::Pipe {
    pb::Pipe { queue: Some(queue), ..Default::default() }
}

#[test]
fn patch_changes_what_its_mask_names_and_the_link_is_no_longer_the_fitted_one() {
    let mut link = Patched::new();
    let before = link.0.clone();
    assert!(before.provenance.is_some());
    link.patch(Forward, &["rate_bps"], rate(72_000_000)).unwrap();
    let mut expected = before.clone();
    expected.name = "viasat2*".into();
    expected.forward_pipe.as_mut().unwrap().rate_bps = Some(72_000_000);
    expected.provenance = None;
    assert_eq!(link.0, expected);
    link.patch(Unspecified, &["rate_bps", "outages"], pb::Pipe::default()).unwrap();
    for pipe in [link.forward(), link.back()] {
        assert_eq!((pipe.rate_bps, pipe.outages.len()), (None, 0));
        assert!(pipe.queue.unwrap().random_drop.is_some());
    }
    // One name has one mark.
    assert_eq!(link.0.name, "viasat2*");
    let delay = pb::Delay { base_ns: 7, slot_ns: 9, ..Default::default() };
    let pipe = pb::Pipe { delay: Some(delay), ..Default::default() };
    let before = link.back().delay.clone().unwrap();
    link.patch(Return, &["delay.base_ns"], pipe).unwrap();
    assert_eq!(link.back().delay, Some(pb::Delay { base_ns: 7, ..before }));
    assert_eq!(link.forward().delay.as_ref().unwrap().base_ns, 275_000_000);
}

#[test]
fn rate_and_rate_trace_replace_each_other() {
    let mut link = Patched::new();
    let rates_bps = vec![12_000_000, 0];
    let trace = pb::RateTrace { step_ns: 100_000_000, rates_bps, ..Default::default() };
    let traced = pb::Pipe { rate_trace: Some(trace), ..Default::default() };
    let has = |link: &Patched| (link.forward().rate_bps, link.forward().rate_trace.is_some());
    // No trace to take away: the rate stays.
    link.patch(Forward, &["rate_trace"], pb::Pipe::default()).unwrap();
    assert_eq!(has(&link), (Some(144_000_000), false));
    link.patch(Forward, &["rate_trace"], traced.clone()).unwrap();
    assert_eq!((has(&link), link.back().rate_bps), ((None, true), Some(12_000_000)));
    link.patch(Unspecified, &["rate_bps"], rate(50_000)).unwrap();
    assert_eq!(has(&link), (Some(50_000), false));
    // A mask with both fields sets both to the values of the request.
    for mask in [["rate_trace", "rate_bps"], ["rate_bps", "rate_trace"]] {
        link.patch(Forward, &mask, traced.clone()).unwrap();
        assert_eq!(has(&link), (None, true));
        let both = pb::Pipe { rate_bps: Some(50_000), ..traced.clone() };
        assert_eq!(link.patch(Forward, &mask, both), wrong(["forward.rate_trace"]));
        link.patch(Forward, &mask, rate(50_000)).unwrap();
        assert_eq!(has(&link), (Some(50_000), false));
    }
}

#[test]
fn fade_goes_with_the_last_outage() {
    let mut link = Patched::new();
    let fade = pb::Fade { interval_ns: 1 << 45, duration_ns: 1 << 40, factor: 30.0 };
    let faded = pb::Pipe { fade: Some(fade), ..Default::default() };
    let outages = |outages| pb::Pipe { outages, ..Default::default() };
    link.patch(Forward, &["fade"], faded.clone()).unwrap();
    let one = link.forward().outages[1];
    link.patch(Forward, &["outages"], outages(vec![one])).unwrap();
    assert_eq!((link.forward().fade, link.back().fade), (Some(fade), None));
    assert_eq!(link.patch(Forward, &["outages", "fade"], faded.clone()), wrong(["forward.fade"]));
    // An outage that is too frequent for the current fade.
    let frequent = pb::Outage { interval_ns: 200_000_000, duration_ns: 1_000_000, law: 2 };
    let refused = link.patch(Forward, &["outages"], outages(vec![frequent]));
    assert_eq!(refused, wrong(["forward.fade.factor"]));
    link.patch(Forward, &["outages"], outages(Vec::new())).unwrap();
    assert_eq!((link.forward().outages.len(), link.forward().fade), (0, None));
    assert_eq!(link.patch(Forward, &["fade"], faded), wrong(["forward.fade"]));
}

#[test]
fn model_of_loss_replaces_the_others() {
    let mut link = Patched::new();
    let gilbert =
        pb::GilbertElliott { to_bad: 0.01, to_good: 0.25, loss_in_bad: 1.0, loss_in_good: 0.0 };
    let four = pb::FourStateLoss { p13: 0.01, p31: 0.2, ..Default::default() };
    let all = pb::Pipe {
        packet_loss: 0.5,
        gilbert_elliott: Some(gilbert),
        four_state_loss: Some(four),
        duplicate: 0.125,
        ..Default::default()
    };
    link.patch(Forward, &["packet_loss", "duplicate"], all.clone()).unwrap();
    let mut expected = link.forward().clone();
    assert_eq!((expected.packet_loss, expected.duplicate), (0.5, 0.125));
    link.patch(Forward, &["gilbert_elliott"], all.clone()).unwrap();
    (expected.packet_loss, expected.gilbert_elliott) = (0.0, Some(gilbert));
    assert_eq!(link.forward(), &expected);
    link.patch(Forward, &["four_state_loss"], all.clone()).unwrap();
    (expected.gilbert_elliott, expected.four_state_loss) = (None, Some(four));
    assert_eq!(link.forward(), &expected);
    // One that is taken away leaves the others alone.
    link.patch(Forward, &["gilbert_elliott", "packet_loss"], pb::Pipe::default()).unwrap();
    assert_eq!(link.forward(), &expected);
    let refused = link.patch(Forward, &["packet_loss", "gilbert_elliott"], all);
    assert_eq!(refused, wrong(["forward.gilbert_elliott"]));
}

#[test]
fn drop_run_is_armed_where_the_mask_names_it() {
    let mut link = Patched::new();
    let drop_run = Some(pb::DropRun { pass_packets: 999, drop_packets: 1, once: true });
    let once = pb::Pipe { drop_run, rate_bps: Some(50_000), ..Default::default() };
    for (direction, mask, armed) in [
        (Forward, &["drop_run"][..], [true, false]),
        // The very same again.
        (Forward, &["drop_run"], [true, false]),
        (Return, &["rate_bps", "drop_run"], [false, true]),
        (Unspecified, &["drop_run"], [true, true]),
        (Unspecified, &["rate_bps"], [false, false]),
    ] {
        assert_eq!(link.patch(direction, mask, once.clone()), Ok(armed), "{direction:?} {mask:?}");
    }
    assert_eq!((link.forward().drop_run, link.back().drop_run), (drop_run, drop_run));
}

#[test]
fn aqm_replaces_the_others() {
    let mut link = Patched::new();
    let codel = pb::CoDel { target_ns: 30_000_000, interval_ns: 600_000_000 };
    let red = pb::Red {
        min_bytes: 6_000_000,
        max_bytes: 18_000_000,
        probability_at_max: 0.1,
        weight: 0.002,
        packet_bytes: 1_000,
        gentle: true,
    };
    let both = pb::Queue { codel: Some(codel), red: Some(red), ecn: true, ..Default::default() };
    let limit_bytes = 36_000_000;
    link.patch(Forward, &["queue.codel", "queue.ecn"], queue(both)).unwrap();
    assert_eq!(link.forward().queue, Some(pb::Queue { limit_bytes, red: None, ..both }));
    link.patch(Forward, &["queue.red"], queue(both)).unwrap();
    assert_eq!(link.forward().queue, Some(pb::Queue { limit_bytes, codel: None, ..both }));
    let less = queue(pb::Queue { limit_bytes: 10_000_000, ..Default::default() });
    assert_eq!(link.patch(Forward, &["queue.limit_bytes"], less), wrong(["forward.queue.limit"]));
    let refused = link.patch(Forward, &["queue.codel", "queue.red"], queue(both));
    assert_eq!(refused, wrong(["forward.queue.codel"]));
}

#[test]
fn limit_below_the_current_threshold_is_refused_unless_both_are_set() {
    let limit = |limit_bytes| queue(pb::Queue { limit_bytes, ..Default::default() });
    let merged = merge(
        &part(Forward, &["queue.limit_bytes"], limit(10_000_000)),
        dp::Plan { profile: built_in("viasat2"), ..Default::default() },
    );
    let message = merged.unwrap_err().to_string();
    for words in ["10 MB is below the current threshold of random drop, 18 MB", "set both"] {
        assert!(message.contains(words), "{message}");
    }
    let mut link = Patched::new();
    link.patch(Forward, &["queue.limit_bytes"], limit(20_000_000)).unwrap();
    assert!(link.forward().queue.unwrap().random_drop.is_some());
    let both = ["queue.limit_bytes", "queue.random_drop"];
    link.patch(Forward, &both, limit(10_000_000)).unwrap();
    assert_eq!(link.forward().queue, limit(10_000_000).queue);
    assert_eq!(link.back().queue.unwrap().limit_bytes, 36_000_000);
}

#[test]
fn all_that_is_wrong_with_a_patch_is_told_at_once() {
    let mut link = Patched::new();
    let before = link.0.clone();
    for (paths, pipe, place) in [
        (&["queue.limt"][..], rate(50_000), "mask.paths[0]"),
        (&[], rate(50_000), "mask"),
        (&["queue.limit_bytes"], rate(50_000), "pipe.queue"),
        (&["queue"], rate(50_000), "forward.queue"),
        (&["rate_bps"], rate(5), "forward.rate"),
    ] {
        assert_eq!(link.patch(Unspecified, paths, pipe).unwrap_err()[0], place);
    }
    assert_eq!(link.0, before);
    let of = |direction, pipe| {
        let paths = vec!["rate_bsp".into(), "delay.base_ns".into()];
        let part = dp::Part { direction, pipe, mask: Some(FieldMask { paths }) };
        let change = dp::Change { parts: vec![part], ..Default::default() };
        merge(&change, dp::Plan { profile: built_in("viasat2"), ..Default::default() })
    };
    let told = of(9, Some(pb::Pipe::default())).unwrap_err().to_string();
    for words in ["direction: 9 is no direction", "the nearest is \"rate_bps\"", "pipe.delay: "] {
        assert!(told.contains(words), "{told}");
    }
    // Without a pipe, everything in it is missing.
    let told = of(0, None).unwrap_err().to_string();
    assert!(told.contains("pipe: missing") && !told.contains("pipe.delay"), "{told}");
}

#[test]
fn without_a_profile_there_is_nothing_to_change() {
    let clients = dp::Change { clients: Some(pb::Clients::default()), ..Default::default() };
    for change in [part(Forward, &["rate_bps"], rate(50_000)), clients] {
        let refused = merge(&change, dp::Plan::default()).unwrap_err().status("it");
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        assert!(refused.message().contains("set one first"), "{}", refused.message());
    }
}

#[test]
fn profile_seed_and_clients_are_kept_by_changes_that_do_not_name_them() {
    let mut plan = dp::Plan::default();
    let client = pb::Client { name: "alice".into(), ..Default::default() };
    let clients = Some(pb::Clients { clients: vec![client], ..Default::default() });
    let [first, other] = ["viasat2", "geo-600"].map(built_in);
    for (change, expected) in [
        (
            dp::Change { profile: first.clone(), seed: Some(77), ..Default::default() },
            (&first, 77, &None),
        ),
        (dp::Change { clients: clients.clone(), ..Default::default() }, (&first, 77, &clients)),
        (dp::Change { profile: other.clone(), ..Default::default() }, (&other, 77, &clients)),
    ] {
        plan = merge(&change, plan).unwrap().plan;
        assert_eq!((&plan.profile, plan.seed, &plan.clients), expected);
    }
}
