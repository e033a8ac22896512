// SPDX-License-Identifier: Apache-2.0
//! Statistics of all boxes, and owners that a new process finds in them.

use fake::FakeDataplane;
use proto::linkemu::v1 as pb;

use crate::common::{Lab, clients, fakes, set};

fn count(packets: u64) -> Option<pb::Count> {
    Some(pb::Count { packets, bytes: 100 * packets })
}

/// So many packets of a client each way, of which some are held.
fn client(name: &str, number: u32, packets: u64, held: u64) -> pb::ClientStats {
    let pipe = pb::PipeStats {
        received: count(packets),
        sent: count(packets - held),
        held: count(held),
        ..Default::default()
    };
    let (forward_pipe, return_pipe) = (Some(pipe.clone()), Some(pipe));
    pb::ClientStats { client: name.into(), forward_pipe, return_pipe, number, ..Default::default() }
}

fn give(fake: &FakeDataplane, clients: Vec<pb::ClientStats>) {
    let port = |name: &str| pb::PortStats { name: name.into(), missed: 1, ..Default::default() };
    let ports = vec![port("wan"), port("client")];
    fake.state().stats = pb::Stats { clients, ports, ..Default::default() };
}

fn received(stats: &pb::Stats, name: &str) -> u64 {
    let client = stats.clients.iter().find(|it| it.client == name).unwrap();
    client.forward_pipe.as_ref().unwrap().received.unwrap().packets
}

#[tokio::test]
async fn sum_has_all_boxes_and_keeps_the_counts_of_one_that_ends() {
    let boxes = fakes(&[0, 0]);
    give(&boxes[0], vec![client("default", 2, 1, 0), client("a", 3, 10, 0)]);
    give(&boxes[1], vec![client("default", 2, 2, 0), client("a", 5, 7, 4)]);
    let mut lab = Lab::unsettled(boxes, "a = \"b2\"\n").await;
    lab.group.settle().await.unwrap();
    lab.apply(set("viasat2")).await.unwrap();
    lab.apply(clients(&["a"])).await.unwrap();
    let stats = lab.stats(true).await;
    assert_eq!(stats.span.as_ref().unwrap().boxes.as_ref().unwrap().gaps, [""; 0]);
    assert_eq!((received(&stats, "a"), received(&stats, "default")), (17, 3));
    let number = |name: &str| stats.clients.iter().find(|it| it.client == name).unwrap().number;
    assert_eq!((number("a"), number("default")), (2048 + 5, 2));
    assert_eq!((stats.generation, stats.ports.len()), (2, 4));
    assert_eq!((lab.fakes[0].state().marks, lab.fakes[1].state().marks), (1, 1));
    let span = lab.stats(false).await.span.unwrap();
    assert_eq!(span.boxes.unwrap().gaps, [""; 0]);
    assert_eq!((span.marked, span.received.unwrap().packets), (true, 0));
    lab.stop(1);
    lab.until("b2 is down", |boxes| !boxes[1].up).await;
    let stats = lab.stats(true).await;
    assert_eq!(received(&stats, "a"), 17);
    assert_eq!(stats.span.unwrap().boxes.unwrap().gaps, ["b2"]);
    // Another dataplane begins: what the former one held is lost.
    give(&lab.fakes[1], vec![client("a", 5, 1, 0)]);
    lab.fakes[1].state().instance += 50;
    lab.start(1);
    lab.until("b2 is up", |boxes| boxes[1].up).await;
    let stats = lab.stats(false).await;
    assert_eq!((received(&stats, "a"), stats.emulator_drops), (18, 8));
    let span = stats.span.unwrap();
    assert_eq!((span.overload, span.boxes.unwrap().gaps), (8, vec!["b2".to_owned()]));
}

#[tokio::test]
async fn owners_of_a_former_process_are_found_in_the_boxes() {
    let boxes = fakes(&[0, 0]);
    let profile = profile::Catalog::built_in().get("viasat2").map(|it| it.as_proto().clone());
    let clients = clients(&["a", "b", "c", "d"]).change.unwrap().clients;
    for fake in &boxes {
        let mut state = fake.state();
        state.generation = 3;
        state.plan = Some(proto::dataplane::v1::Plan {
            profile: profile.clone(),
            clients: clients.clone(),
            ..Default::default()
        });
    }
    // `a` holds packets at the second box, `b` has more there, `10.0.0.1` (of the second box's bucket)
    // is at the first one.
    give(&boxes[0], vec![client("a", 3, 90, 0), client("b", 4, 5, 0), client("10.0.0.1", 5, 9, 0)]);
    give(&boxes[1], vec![client("a", 3, 10, 1), client("b", 4, 6, 0), client("c", 5, 1, 0)]);
    let lab = Lab::unsettled(boxes, "c = \"b1\"\n").await;
    lab.group.settle().await.unwrap();
    let plan = lab.plan().await;
    assert_eq!(plan.applied.unwrap().generation, 3);
    let owners = plan.owners.unwrap().clients.into_iter().map(|it| (it.client, it.owner));
    let owners: Vec<_> = owners.collect();
    let expected = [("10.0.0.1", 0), ("a", 1), ("b", 1), ("c", 0), ("d", 0)];
    assert_eq!(owners, expected.map(|(client, place)| (client.to_owned(), place)));
}
