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

async fn set(lab: &mut Lab, clients: pb::Clients) -> Result<pb::ChangeResponse, Status> {
    let request = pb::SetClientsRequest { clients: Some(clients), ..Default::default() };
    lab.client.set_clients(request).await.map(tonic::Response::into_inner)
}

async fn get(lab: &mut Lab) -> (pb::Clients, u64) {
    let answer = lab.client.get_clients(pb::GetClientsRequest {}).await.unwrap().into_inner();
    (answer.clients.unwrap(), answer.applied.unwrap().generation)
}

#[tokio::test]
async fn what_is_wrong_is_told_and_changes_nothing() {
    let mut lab = Lab::new();
    let refused = set(&mut lab, two()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    lab.set("viasat2").await.unwrap();
    let mut bad = two();
    bad.clients[1] = client("bob", "10.1.0.0/24");
    bad.clients.push(client("", "10.1.0.1/24"));
    let refused = set(&mut lab, bad).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let fields = refused.get_details_bad_request().unwrap().field_violations;
    let fields: Vec<_> = fields.into_iter().map(|v| (v.field, v.description)).collect();
    assert_eq!(fields.len(), 2);
    assert_eq!(fields[0].0, "client[1].prefix[0]");
    assert!(fields[0].1.contains("for alice and for bob"), "{fields:?}");
    assert_eq!(fields[1].0, "client[2].name");
    let none = lab.client.set_clients(pb::SetClientsRequest::default()).await.unwrap_err();
    assert_eq!(none.code(), Code::InvalidArgument);
    let stale = pb::SetClientsRequest {
        clients: Some(two()),
        expected_generation: Some(7),
        ..Default::default()
    };
    assert_eq!(lab.client.set_clients(stale).await.unwrap_err().code(), Code::Aborted);
    // Refusals of the dataplane pass unchanged.
    lab.fake.state().refuse = Some(Status::failed_precondition("needs one worker"));
    let refused = set(&mut lab, two()).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::FailedPrecondition, "needs one worker"));
    assert_eq!(get(&mut lab).await, (pb::Clients::default(), 1));
}

#[tokio::test]
async fn every_client_is_listed_with_its_kind_and_its_accounts() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    set(&mut lab, two()).await.unwrap();
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
        lab.client.list_clients(pb::ListClientsRequest {}).await.unwrap().into_inner();
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

#[tokio::test]
async fn clients_are_listed_in_pages_by_name_or_by_count_and_filtered() {
    let lab = Lab::new();
    let count = |bytes| Some(pb::Count { packets: bytes / 100, bytes });
    let stats = |n: u64| pb::ClientStats {
        client: format!("Host{n:03}"),
        forward_pipe: Some(pb::PipeStats { received: count(n % 7 * 100), ..Default::default() }),
        ..Default::default()
    };
    lab.fake.state().stats.clients = (0..120).map(stats).collect();
    let mut client = lab.client.clone();
    let mut pages = async |request: pb::ListClientPageRequest| {
        let (mut names, mut sizes, mut token) = (Vec::new(), Vec::new(), String::new());
        loop {
            let request = pb::ListClientPageRequest { page_token: token, ..request.clone() };
            let page = client.list_client_page(request).await?.into_inner();
            sizes.push((page.clients.len(), page.total_size));
            names.extend(page.clients.into_iter().map(|state| state.client));
            token = page.next_page_token;
            if token.is_empty() {
                return Ok::<_, Status>((names, sizes));
            }
        }
    };
    let (names, sizes) = pages(pb::ListClientPageRequest::default()).await.unwrap();
    assert_eq!(sizes, [(50, 120), (50, 120), (20, 120)]);
    assert!(names.is_sorted() && names.len() == 120);
    let order = pb::ClientOrder::Received as i32;
    let most = pb::ListClientPageRequest { order, page_size: 18, ..Default::default() };
    let (names, _) = pages(most).await.unwrap();
    assert_eq!((&*names[0], &*names[1], &*names[17]), ("Host006", "Host013", "Host005"));
    let filter = pb::ListClientPageRequest { filter: "hOST01".into(), ..Default::default() };
    let (names, sizes) = pages(filter).await.unwrap();
    assert_eq!((sizes, &*names[9]), (vec![(10, 10)], "Host019"));
    for (request, field) in [
        (pb::ListClientPageRequest { page_size: 513, ..Default::default() }, "page_size"),
        (pb::ListClientPageRequest { filter: "a".repeat(65), ..Default::default() }, "filter"),
    ] {
        let status = pages(request).await.unwrap_err();
        assert_eq!(status.get_details_bad_request().unwrap().field_violations[0].field, field);
    }
    let beyond = pb::ListClientPageRequest { page_token: "9999".into(), ..Default::default() };
    let page = lab.client.clone().list_client_page(beyond).await.unwrap().into_inner();
    assert!(page.clients.is_empty() && page.next_page_token.is_empty());
    let wrong = pb::ListClientPageRequest { page_token: "x".into(), ..Default::default() };
    assert!(lab.client.clone().list_client_page(wrong).await.is_err());
}
