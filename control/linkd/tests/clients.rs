// SPDX-License-Identifier: Apache-2.0
//! Client rules: part of the plan, changed apart from the profile.

use crate::common::Lab;
use proto::linkemu::v1 as pb;
use std::collections::BTreeMap;
use tonic::{Code, Status};
use tonic_types::StatusExt;

fn client(name: &str, prefix: &str) -> pb::Client {
    pb::Client { name: name.into(), prefixes: vec![prefix.into()], ..Default::default() }
}

fn two() -> pb::Clients {
    let automatic = Some(pb::Automatic { limit: Some(9), ..Default::default() });
    let clients = vec![client("alice", "10.1.0.0/24"), client("bob", "10.0.0.0/8")];
    pb::Clients { clients, automatic, beams: Vec::new() }
}

async fn get(lab: &mut Lab) -> (pb::Clients, u64) {
    let answer =
        lab.client.get_clients(pb::GetClientsRequest::default()).await.unwrap().into_inner();
    (answer.clients.unwrap(), answer.applied.unwrap().generation)
}

#[tokio::test]
async fn what_is_wrong_is_told_and_changes_nothing() {
    let mut lab = Lab::new();
    let refused = lab.update(two()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    lab.set("viasat2").await.unwrap();
    let mut bad = two();
    bad.clients[1] = client("bob", "10.1.0.0/24");
    bad.clients.push(client("", "10.1.0.1/24"));
    let refused = lab.update(bad).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let fields = refused.get_details_bad_request().unwrap().field_violations;
    let fields: Vec<_> = fields.into_iter().map(|v| (v.field, v.description)).collect();
    assert_eq!(fields.len(), 2);
    assert_eq!(fields[0].0, "client[1].prefix[0]");
    assert!(fields[0].1.contains("for alice and for bob"), "{fields:?}");
    assert_eq!(fields[1].0, "client[2].name");
    let none = lab.update(pb::LinkUpdate::default()).await.unwrap_err();
    assert!(none.message().contains("changes nothing"), "{}", none.message());
    let stale = pb::LinkUpdate { expected_generation: Some(7), ..two().into() };
    assert_eq!(lab.update(stale).await.unwrap_err().code(), Code::Aborted);
    // Refusals of the dataplane pass unchanged.
    lab.fake.state().refuse = Some(Status::failed_precondition("needs one worker"));
    let refused = lab.update(two()).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::FailedPrecondition, "needs one worker"));
    assert_eq!(get(&mut lab).await, (pb::Clients::default(), 1));
}

#[tokio::test]
async fn every_client_is_listed_with_its_kind_and_its_accounts() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    lab.update(two()).await.unwrap();
    let count = |packets| Some(pb::Count { packets, bytes: 100 * packets });
    let drop =
        |reason: pb::DropReason, packets| pb::Drop { reason: reason as i32, count: count(packets) };
    let pipe = pb::PipeStats {
        received: count(10),
        sent: count(4),
        dropped: vec![drop(pb::DropReason::Aqm, 1), drop(pb::DropReason::Outage, 2)],
        held: count(3),
        ..Default::default()
    };
    let stats = |name: String| pb::ClientStats {
        client: name,
        forward_pipe: Some(pipe.clone()),
        return_pipe: None,
        ..Default::default()
    };
    let names = ["bypass", "default", "10.0.0.1", "2001:db8::1", "alice", "carol"];
    let many = (0..1_000).map(|n| format!("10.2.{}.{}", n / 250, n % 250));
    lab.fake.state().stats.clients =
        names.map(str::to_owned).into_iter().chain(many).map(stats).collect();
    let mut listing =
        lab.client.list_clients(pb::ListClientsRequest::default()).await.unwrap().into_inner();
    let mut found = BTreeMap::new();
    while let Some(part) = listing.message().await.unwrap() {
        assert!(part.clients.len() <= 512);
        found.extend(part.clients.into_iter().map(|state| (state.client.clone(), state)));
    }
    assert_eq!(found.len(), 1_007);
    use pb::ClientKind::{Automatic, Bypass, Default as Shared, Named};
    for (name, kind, removed) in [
        ("bypass", Bypass, false),
        ("default", Shared, false),
        ("10.0.0.1", Automatic, false),
        ("2001:db8::1", Automatic, false),
        ("alice", Named, false),
        ("bob", Named, false),
        ("carol", Named, true),
    ] {
        assert_eq!((found[name].kind(), found[name].removed), (kind, removed), "{name}");
    }
    let account = found["alice"].forward_account.unwrap();
    let expected = [count(10), count(4), count(3), count(3)];
    assert_eq!([account.received, account.sent, account.dropped, account.held], expected);
    // It has had no frame yet.
    let none = found["bob"].forward_account.unwrap();
    assert_eq!(none.received, Some(pb::Count::default()));
}
