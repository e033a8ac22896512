// SPDX-License-Identifier: Apache-2.0
//! Owners of clients, and their moves.

use std::time::Duration;

use fake::FakeDataplane;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use tokio::time::sleep;
use tonic::{Code, Status};

use crate::common::{Lab, clients, fakes, set};

impl Lab {
    async fn begin(&self, clients: &[&str], to: &str) -> Result<dp::BeginMoveResponse, Status> {
        let clients = clients.iter().map(|it| (*it).to_owned()).collect();
        let request = dp::BeginMoveRequest { clients, to: to.into(), who: "tester".into() };
        self.boxes.clone().begin_move(request).await.map(tonic::Response::into_inner)
    }

    async fn finish(&self, id: u64) -> Result<dp::FinishMoveResponse, Status> {
        let request = dp::FinishMoveRequest { r#move: id };
        self.boxes.clone().finish_move(request).await.map(tonic::Response::into_inner)
    }

    async fn owners(&self) -> Vec<(String, u32)> {
        let owners = self.plan().await.owners.unwrap();
        owners.clients.into_iter().map(|it| (it.client, it.owner)).collect()
    }

    fn look(&self, place: usize, client: &str, received: u64, queued: u64, last_due_ns: u64) {
        let pipe = dp::PipeLook { received, queued, held: queued, last_due_ns };
        let look = dp::ClientLook { forward_pipe: Some(pipe), return_pipe: Some(pipe) };
        self.fakes[place].state().looks.insert(client.to_owned(), look);
    }

    fn holds(&self, place: usize) -> Vec<(u64, dp::HoldClient)> {
        self.fakes[place].state().holds.clone()
    }
}

/// Two boxes with the clients `a` and `b` on the first one.
async fn lab() -> Lab {
    let lab = Lab::unsettled(fakes(&[0, 5_000_000_000]), "a = \"b1\"\nb = \"b1\"\n").await;
    lab.group.settle().await.unwrap();
    lab.apply(set("viasat2")).await.unwrap();
    lab.apply(clients(&["a", "b"])).await.unwrap();
    lab
}

#[tokio::test]
async fn clients_get_their_boxes_by_rule_and_by_load_before_the_change() {
    let lab = Lab::unsettled(fakes(&[0, 0]), "x = \"b2\"\n\"10.0.0.9\" = \"b2\"\n").await;
    lab.group.settle().await.unwrap();
    lab.apply(set("viasat2")).await.unwrap();
    assert_eq!(lab.owners().await, [("10.0.0.9".to_owned(), 1)]);
    let applying = lab.apply(clients(&["x", "y", "z"]));
    let watching = async {
        // While the change waits for its instant.
        while lab.fakes[0].state().generation == 1 {
            let owners = lab.owners().await;
            if owners.len() == 4 {
                return (lab.fakes[0].state().generation, owners);
            }
            sleep(Duration::from_millis(1)).await;
        }
        panic!("the change was made before the clients had owners");
    };
    let (made, (generation, owners)) = tokio::join!(applying, watching);
    made.unwrap();
    assert_eq!(generation, 1);
    let owners: Vec<_> = owners.iter().map(|(client, place)| (&**client, *place)).collect();
    assert_eq!(owners, [("10.0.0.9", 1), ("x", 1), ("y", 0), ("z", 0)]);
    let boxes = lab.list().await;
    assert_eq!((boxes[0].clients, boxes[1].clients), (2, 2));
}

#[tokio::test]
async fn client_is_served_again_when_its_former_box_has_served_it() {
    let lab = lab().await;
    lab.look(0, "a", 10, 3, 0);
    lab.look(0, "b", 20, 0, 0);
    let version = lab.plan().await.owners.unwrap().version;
    let begun = lab.begin(&["a", "b"], "b2").await.unwrap();
    let owners = lab.plan().await.owners.unwrap();
    assert_eq!(owners.version, version + 1);
    assert!(owners.clients.iter().all(|it| it.owner == 1), "{owners:?}");
    // Held there before anything is looked at.
    let holds = lab.holds(1);
    let held: Vec<_> = holds.iter().map(|(_, it)| (&*it.client, it.hold_ns)).collect();
    assert_eq!(held, [("a", Some(10_000_000_000)), ("b", Some(10_000_000_000))]);
    assert_eq!(lab.fakes[0].state().looked, 0);
    assert!(lab.begin(&["a"], "b1").await.unwrap_err().message().contains("is being moved"));
    let served_ns = FakeDataplane::common_ns();
    let serving = async {
        while lab.holds(1).len() < 3 {
            sleep(Duration::from_millis(1)).await;
        }
        // `b` is served while `a` still has packets there; then a late one comes for `a`.
        let released = lab.holds(1)[2..].to_vec();
        lab.look(0, "a", 11, 0, served_ns + 400_000_000);
        (released, FakeDataplane::common_ns())
    };
    let (finished, (released, late_ns)) = tokio::join!(lab.finish(begun.r#move), serving);
    let finished = finished.unwrap();
    assert_eq!(finished.abandoned, 0);
    let first: Vec<_> = released.iter().map(|(_, it)| (&*it.client, it.hold_ns)).collect();
    assert_eq!(first, [("b", None)]);
    assert_eq!((released[0].1.forward_due_ns, released[0].1.return_due_ns), (0, 0));
    let holds = lab.holds(1);
    let [.., (at_ns, last)] = &*holds else { panic!("{holds:?}") };
    assert_eq!((holds.len(), &*last.client, last.hold_ns), (4, "a", None));
    assert!(at_ns - late_ns >= 20_000_000, "{at_ns} {late_ns}");
    // On the new owner's clock, which is 5 s ahead, and not before the former one's.
    let due_ns = served_ns + 5_400_000_000;
    let errors: u64 = lab.list().await.iter().map(|it| it.clock_error_ns).sum();
    assert!((due_ns..=due_ns + 8 * errors).contains(&last.forward_due_ns), "{last:?} {errors}");
    assert!(finished.held_ns >= 40_000_000, "{finished:?}");
    // Asked again, it says the same.
    assert_eq!(lab.finish(begun.r#move).await.unwrap(), finished);
    let (_, moved) = lab.event(0, pb::EventKind::ClientsMoved).await;
    assert_eq!((&*moved.subject, &*moved.who), ("b2", "tester"));
    assert!(moved.message.starts_with("2 clients moved from b1 to b2; packets waited"));
}

#[tokio::test]
async fn next_group_finishes_the_moves_of_one_that_was_killed() {
    const CLIENT: &str = "10.0.0.4";
    let fakes = fakes(&[0, 5_000_000_000, 0]);
    // The first box had the client for long, the third one served it until it began to move to the second one.
    let pipe = |queued, last_due_ns| {
        let pipe = dp::PipeLook { received: 10, queued, held: queued, last_due_ns };
        dp::ClientLook { forward_pipe: Some(pipe), return_pipe: Some(pipe) }
    };
    let now_ns = FakeDataplane::common_ns();
    fakes[0].state().looks.insert(CLIENT.into(), pipe(0, now_ns.saturating_sub(1_000_000)));
    fakes[2].state().looks.insert(CLIENT.into(), pipe(3, 0));
    let hold = dp::HoldClient {
        client: CLIENT.into(),
        hold_ns: Some(10_000_000_000),
        ..Default::default()
    };
    fakes[1].state().holds.push((now_ns, hold));
    let lab = Lab::unsettled(fakes, "").await;
    lab.group.settle().await.unwrap();
    let owner =
        |owners: Vec<(String, u32)>| owners.into_iter().find(|it| it.0 == CLIENT).unwrap().1;
    assert_eq!(owner(lab.owners().await), 1);
    sleep(Duration::from_millis(50)).await;
    assert_eq!(lab.holds(1).len(), 1, "the third box still serves it");
    let refused = lab.begin(&[CLIENT], "b1").await.unwrap_err();
    assert!(refused.message().contains("is being moved"), "{refused}");
    lab.fakes[2].state().looks.insert(CLIENT.into(), pipe(0, now_ns + 400_000_000));
    let (_, moved) = lab.event(0, pb::EventKind::ClientsMoved).await;
    assert!(moved.message.starts_with("1 client moved from b3 to b2"), "{}", moved.message);
    let holds = lab.holds(1);
    let [_, (_, last)] = &*holds else { panic!("{holds:?}") };
    assert_eq!((&*last.client, last.hold_ns), (CLIENT, None));
    let due_ns = now_ns + 5_400_000_000;
    assert!((due_ns..due_ns + 100_000_000).contains(&last.forward_due_ns), "{last:?} {due_ns}");
}

#[tokio::test]
async fn packets_that_come_to_the_former_box_later_are_reported() {
    let lab = lab().await;
    lab.look(0, "a", 10, 0, 0);
    let begun = lab.begin(&["a"], "b2").await.unwrap();
    lab.finish(begun.r#move).await.unwrap();
    lab.look(0, "a", 13, 0, 0);
    let (first, _) = lab.event(0, pb::EventKind::ClientsMoved).await;
    let (_, late) = lab.event(first, pb::EventKind::ClientsMoved).await;
    assert!(late.message.starts_with("6 packets of 1 moved client still came to box b1"));
}

#[tokio::test]
async fn clients_of_a_box_that_is_down_are_abandoned() {
    let mut lab = lab().await;
    lab.look(0, "a", 10, 3, 0);
    lab.stop(0);
    lab.until("b1 is down", |boxes| !boxes[0].up).await;
    let begun = lab.begin(&["a", "10.0.0.2"], "b2").await.unwrap();
    let finished = lab.finish(begun.r#move).await.unwrap();
    // The address 10.0.0.2 is of an even bucket, so of the first box.
    assert_eq!(finished.abandoned, 2);
    assert!(finished.held_ns < 2_000_000_000, "{finished:?}");
    let released: Vec<_> =
        lab.holds(1).into_iter().filter(|(_, it)| it.hold_ns.is_none()).collect();
    assert_eq!(released.len(), 2);
    let (_, moved) = lab.event(0, pb::EventKind::ClientsMoved).await;
    assert!(moved.message.contains("the former box of 2 of them was down"), "{}", moved.message);
    assert_eq!(lab.owners().await[0], ("10.0.0.2".to_owned(), 1));
}

#[tokio::test]
async fn moves_that_cannot_be_are_refused_and_change_nothing() {
    let mut lab = lab().await;
    let before = lab.plan().await.owners;
    let many: Vec<_> = (0..4097).map(|n| format!("c{n}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    lab.fakes[1].state().refuse = Some(Status::failed_precondition("no slot is free"));
    for (clients, to, code, words) in [
        (&["c"][..], "b2", Code::NotFound, "neither an address nor a client"),
        (&["a"], "b3", Code::NotFound, "the boxes are b1, b2"),
        (&["bypass"], "b2", Code::NotFound, "neither"),
        (&many, "b2", Code::InvalidArgument, "4097 are more than 4096"),
        (&["a"], "b2", Code::FailedPrecondition, "box b2: no slot is free"),
    ] {
        let refused = lab.begin(clients, to).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(words), "{refused}");
    }
    assert_eq!(lab.finish(9).await.unwrap_err().code(), Code::NotFound);
    // Where they are already.
    let begun = lab.begin(&["a", "b"], "b1").await.unwrap();
    assert_eq!(lab.finish(begun.r#move).await.unwrap(), dp::FinishMoveResponse::default());
    assert_eq!(lab.plan().await.owners, before);
    lab.stop(1);
    lab.until("b2 is down", |boxes| !boxes[1].up).await;
    let refused = lab.begin(&["a"], "b2").await.unwrap_err();
    assert!(refused.message().starts_with("box b2 is down"), "{refused}");
}
