// SPDX-License-Identifier: Apache-2.0
//! Changes of the plan: one instant, all boxes or none, and boxes that come and go.

use std::time::Duration;

use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use tonic::{Code, Status};

use crate::common::{Lab, clients, fakes, set};

/// The instants of the last changes of all boxes, on the clock of all fakes.
fn instants(lab: &Lab) -> Vec<u64> {
    let last = |fake: &fake::FakeDataplane| {
        let state = fake.state();
        let at_ns = state.applies.last().unwrap().at_ns.unwrap();
        at_ns.saturating_add_signed(-state.skew_ns)
    };
    lab.fakes.iter().map(last).collect()
}

fn spread(instants: &[u64]) -> u64 {
    instants.iter().max().unwrap() - instants.iter().min().unwrap()
}

fn generations(lab: &Lab) -> Vec<u64> {
    lab.fakes.iter().map(|it| it.state().generation).collect()
}

#[tokio::test]
async fn change_is_made_by_all_boxes_at_one_instant_of_different_clocks() {
    let lab = Lab::unsettled(fakes(&[0, 5_000_000_000, -1_000_000_000]), "").await;
    lab.group.settle().await.unwrap();
    let asked_ns = fake::FakeDataplane::common_ns();
    let made = lab.apply(set("viasat2")).await.unwrap();
    assert_eq!(made.applied.unwrap().generation, 1);
    assert_eq!(generations(&lab), [1, 1, 1]);
    let boxes = lab.list().await;
    let mut errors: Vec<_> = boxes.iter().map(|it| it.clock_error_ns).collect();
    errors.sort_unstable();
    // The bounds of the two worst clocks, of this list and of those by which the instants were set.
    let instants = instants(&lab);
    assert!(spread(&instants) <= 4 * errors[2] + 10_000, "{instants:?} {errors:?}");
    assert!(instants[0] >= asked_ns + 100_000_000, "{instants:?} {asked_ns}");
    // Their wall clocks are those of this machine.
    let apart = boxes.iter().map(|it| it.clock_offset_ns.unsigned_abs()).max().unwrap();
    assert!(apart < 1_000_000_000, "{apart}");
    assert!(boxes.iter().all(|it| it.up && it.current));
}

#[tokio::test]
async fn box_that_refuses_keeps_all_from_changing() {
    let lab = Lab::new(3).await;
    lab.apply(set("viasat2")).await.unwrap();
    lab.apply(clients(&["a", "b", "c"])).await.unwrap();
    let before = lab.plan().await;
    lab.fakes[1].state().refuse = Some(Status::failed_precondition("2 GB do not fit"));
    let refused = lab.apply(clients(&["a", "b", "d"])).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.message(), "box b2: 2 GB do not fit");
    assert_eq!(generations(&lab), [2, 2, 2]);
    assert_eq!(lab.fakes[0].state().withdrawals, lab.fakes[2].state().withdrawals);
    assert!(lab.fakes[0].state().withdrawals >= 2, "at the start, and now");
    let after = lab.plan().await;
    assert_eq!((&after.plan, after.applied), (&before.plan, before.applied));
    let names = |plan: &dp::GetPlanResponse| -> Vec<String> {
        let owners = plan.owners.clone().unwrap();
        owners.clients.into_iter().map(|it| it.client).collect()
    };
    assert_eq!((names(&after), names(&before)), (names(&before), names(&after)));
    lab.fakes[1].state().refuse = None;
    let made = lab.apply(clients(&["a", "b", "d"])).await.unwrap();
    assert_eq!(made.applied.unwrap().generation, 3);
    assert_eq!(
        (names(&lab.plan().await), generations(&lab)),
        (vec!["a".into(), "b".into(), "d".into()], vec![3; 3])
    );
}

#[tokio::test]
async fn box_that_was_down_gets_the_plan_before_it_is_current() {
    let mut lab = Lab::new(2).await;
    lab.apply(set("viasat2")).await.unwrap();
    lab.stop(1);
    lab.until("b2 is down", |boxes| !boxes[1].up).await;
    let (_, lost) = lab.event(0, pb::EventKind::BoxLost).await;
    assert_eq!(lost.subject, "b2");
    assert!(lost.message.contains("linkctl group move --from b2"), "{}", lost.message);
    let made = lab.apply(set("starlink")).await.unwrap();
    let remarks = made.remarks.join("\n");
    assert!(remarks.contains("box b2 is down and gets this change when it is back"), "{remarks}");
    assert_eq!((made.applied.unwrap().generation, generations(&lab)), (2, vec![2, 1]));
    lab.start(1);
    let boxes = lab.until("b2 is current", |boxes| boxes[1].up && boxes[1].current).await;
    assert_eq!(boxes[1].message, "");
    let plan = lab.plan().await.plan.unwrap();
    let state = lab.fakes[1].state();
    assert_eq!(state.plan.as_ref().unwrap().profile, plan.profile);
    assert_eq!(state.generation, 2);
    // Its processes went on.
    assert!(!state.applies.last().unwrap().restart);
}

#[tokio::test]
async fn restarted_box_gets_the_plan_with_its_seed() {
    let mut lab = Lab::new(2).await;
    let mut request = set("viasat2");
    request.change.as_mut().unwrap().seed = Some(77);
    request.change.as_mut().unwrap().restart = true;
    lab.apply(request).await.unwrap();
    lab.apply(clients(&["a"])).await.unwrap();
    lab.stop(0);
    lab.until("b1 is down", |boxes| !boxes[0].up).await;
    {
        let mut state = lab.fakes[0].state();
        (state.instance, state.generation, state.plan) = (200, 0, None);
        state.applies.clear();
    }
    lab.start(0);
    let boxes = lab.until("b1 is current", |boxes| boxes[0].up && boxes[0].current).await;
    assert_eq!(boxes[0].instance, 200);
    let plan = lab.plan().await.plan.unwrap();
    {
        let state = lab.fakes[0].state();
        assert_eq!(state.plan.as_ref(), Some(&plan));
        assert!(state.applies.iter().all(|it| it.restart), "{:?}", state.applies);
    }
    // The next change is made by both, each at its own generation.
    let made = lab.apply(set("starlink")).await.unwrap();
    assert_eq!((made.applied.unwrap().generation, generations(&lab)), (3, vec![2, 3]));
}

#[tokio::test]
async fn group_starts_with_the_plan_of_its_boxes_if_all_agree() {
    let plan = |name: &str| {
        let profile = profile::Catalog::built_in().get(name).map(|it| it.as_proto().clone());
        Some(dp::Plan { profile, seed: 5, ..Default::default() })
    };
    let of = |plans: [(u64, Option<dp::Plan>); 2]| {
        let fakes = fakes(&[0, 0]);
        for (fake, (generation, plan)) in fakes.iter().zip(plans) {
            let mut state = fake.state();
            (state.generation, state.plan) = (generation, plan);
        }
        fakes
    };
    let lab = Lab::unsettled(of([(4, plan("viasat2")), (7, plan("viasat2"))]), "").await;
    lab.group.settle().await.unwrap();
    let current = lab.plan().await;
    assert_eq!((current.applied.unwrap().generation, current.plan), (7, plan("viasat2")));
    lab.apply(set("starlink")).await.unwrap();
    assert_eq!(generations(&lab), [5, 8]);
    assert_eq!(lab.plan().await.applied.unwrap().generation, 8);
    // One was restarted, so that linkd applies its last link.
    let lab = Lab::unsettled(of([(4, plan("viasat2")), (0, plan("transparent"))]), "").await;
    lab.group.settle().await.unwrap();
    assert_eq!(lab.plan().await.applied.unwrap().generation, 0);
    assert_eq!(generations(&lab), [4, 0]);
    lab.apply(set("starlink")).await.unwrap();
    let (one, other) = (lab.fakes[0].state().plan.clone(), lab.fakes[1].state().plan.clone());
    let without = |plan: Option<dp::Plan>| plan.map(|it| (it.profile, it.seed));
    assert_eq!(without(one), without(other));
}

#[tokio::test]
async fn boxes_that_do_not_fit_are_refused_at_the_start() {
    let fakes = fakes(&[0, 0]);
    fakes[1].state().room = Some(pb::Room { workers: 1, ..Default::default() });
    let lab = Lab::unsettled(fakes, "").await;
    let fault = lab.group.settle().await.unwrap_err();
    assert!(fault.contains("the number of workers is"), "{fault}");
    let refused = lab.apply(set("viasat2")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
}

#[tokio::test]
async fn what_needs_one_box_is_refused() {
    let lab = Lab::new(2).await;
    lab.apply(set("viasat2")).await.unwrap();
    let mut request = clients(&["a"]);
    let list = request.change.as_mut().unwrap().clients.as_mut().unwrap();
    list.clients[0].matches.push(pb::Match { protocol: "tcp".into(), ..Default::default() });
    let refused = lab.apply(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("cannot steer"), "{}", refused.message());
    let mut dataplane = lab.dataplane.clone();
    let link = Some(pb::NamedLink { name: "links/a".into(), ..Default::default() });
    let request = dp::AddLinkRequest { link, ..Default::default() };
    let refused = dataplane.add_link(request).await.unwrap_err();
    assert!(refused.message().contains("without a group"), "{}", refused.message());
    assert_eq!(generations(&lab), [1, 1]);
}

#[tokio::test]
async fn silent_box_does_not_keep_the_others_from_changing() {
    let lab = Lab::new(2).await;
    lab.apply(set("viasat2")).await.unwrap();
    lab.fakes[1].state().stall = Some(Duration::from_millis(600));
    let made = lab.apply(set("starlink")).await.unwrap();
    assert!(made.remarks.join(" ").contains("box b2 has not made this change"), "{made:?}");
    lab.fakes[1].state().stall = None;
    lab.until("b2 is current", |boxes| boxes[1].up && boxes[1].current).await;
    let name = |place: usize| lab.fakes[place].state().plan.clone().unwrap().profile.unwrap().name;
    assert_eq!((name(0), name(1)), ("starlink".to_owned(), "starlink".to_owned()));
}
