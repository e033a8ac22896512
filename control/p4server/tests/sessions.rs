// SPDX-License-Identifier: Apache-2.0
//! Sessions over both kinds of sockets, and writes of callers without a stream.

use p4::p4_runtime_client::P4RuntimeClient;
use p4runtime::proto::p4::v1 as p4;
use p4runtime::{Change, Entry, Error, P4Info, Session, StreamEvent, Target};
use p4server::Fake;
use std::sync::Arc;
use tonic::Code;
use tonic::transport::Endpoint;

const ELECTION: u64 = 1;

async fn primary(address: String) -> (Session, p4runtime::Stream) {
    let target = Target { address, tls: None, device: 1, election: ELECTION };
    let info = Arc::new(P4Info::decode(p4src::BMV2_P4INFO).unwrap());
    let (session, mut stream) = Session::connect(&target, info).await.unwrap();
    assert!(matches!(stream.next().await.unwrap(), StreamEvent::Primary));
    session.push(p4src::BMV2_JSON, p4src::BMV2_P4INFO, 1).await.unwrap();
    (session, stream)
}

fn known(mac: u32) -> Entry {
    let entry = Entry::new("linkemu.sources").exact("port", 1_u32).exact("mac", mac);
    entry.does("linkemu.known")
}

#[tokio::test]
async fn election_id_of_the_primary_is_no_permission_to_write() {
    let fake = Fake::start(1).await.unwrap();
    let (session, _stream) = primary(fake.address()).await;
    session.write(&[Change::Insert(known(1))]).await.unwrap();
    let channel = Endpoint::from_shared(fake.address()).unwrap().connect().await.unwrap();
    let mut other = P4RuntimeClient::new(channel);
    let info = P4Info::decode(p4src::BMV2_P4INFO).unwrap();
    let entry = known(1).key.encode(&info).unwrap();
    let delete = p4::Update {
        r#type: p4::update::Type::Delete.into(),
        entity: Some(p4::Entity { entity: Some(p4::entity::Entity::TableEntry(entry)) }),
    };
    let election_id = Some(p4::Uint128 { high: 0, low: ELECTION });
    let request = p4::WriteRequest { device_id: 1, election_id, updates: vec![delete] };
    let refused = other.write(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    assert!(refused.message().contains("the primary's stream alone"), "{refused}");
    let push =
        p4::SetForwardingPipelineConfigRequest { device_id: 1, election_id, ..Default::default() };
    let refused = other.set_forwarding_pipeline_config(push).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    assert_eq!(fake.entries("linkemu.sources"), [known(1)]);
    session.write(&[Change::Delete(known(1).key)]).await.unwrap();
}

#[tokio::test]
async fn session_is_held_over_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p4.sock");
    let fake = Fake::start_at(1, &path).unwrap();
    let (session, _stream) = primary(fake.address()).await;
    session.write(&[Change::Insert(known(1))]).await.unwrap();
    assert_eq!(session.entries("linkemu.sources").await.unwrap(), [known(1)]);
    let nowhere = format!("unix:{}", directory.path().join("none").display());
    let target = Target { address: nowhere.clone(), tls: None, device: 1, election: ELECTION };
    let error = Session::connect(&target, session.info().clone()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&nowhere), "{error}");
}

#[tokio::test]
async fn stalls_are_read_and_begin_again_with_a_program() {
    let fake = Fake::start(1).await.unwrap();
    let (session, _stream) = primary(fake.address()).await;
    assert_eq!(session.stalls().await.unwrap().unwrap().0.len(), 0);
    fake.stall(300_000_000);
    let stalls = session.stalls().await.unwrap().unwrap().0;
    let [(bound, 1)] = Vec::from_iter(stalls)[..] else { panic!("not one stall") };
    assert!((300_000_000..=318_750_000).contains(&bound), "{bound}");
    session.push(p4src::BMV2_JSON, p4src::BMV2_P4INFO, 1).await.unwrap();
    assert_eq!(session.stalls().await.unwrap().unwrap().0.len(), 0);
}
