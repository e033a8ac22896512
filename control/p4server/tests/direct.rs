// SPDX-License-Identifier: Apache-2.0
//! Direct counters, which linkemu's own program does not have.

use p4runtime::entry::Key;
use p4runtime::proto::p4::config::v1 as config;
use p4runtime::{Change, Count, Entry, P4Info, Session, StreamEvent, Target};
use p4server::Fake;
use prost::Message;
use std::sync::Arc;

/// A program with one table of one exact field, and a counter for each entry.
fn program() -> Vec<u8> {
    let preamble =
        |id, name: &str| Some(config::Preamble { id, name: name.into(), alias: name.into() });
    let field = config::MatchField {
        id: 1,
        name: "port".into(),
        bitwidth: 9,
        match_type: config::match_field::MatchType::Exact.into(),
    };
    config::P4Info {
        tables: vec![config::Table {
            preamble: preamble(7, "t"),
            match_fields: vec![field],
            action_refs: vec![config::ActionRef { id: 9 }],
            size: 8,
        }],
        actions: vec![config::Action { preamble: preamble(9, "pass"), params: Vec::new() }],
        direct_counters: vec![config::DirectCounter {
            preamble: preamble(8, "passed"),
            direct_table_id: 7,
        }],
        ..Default::default()
    }
    .encode_to_vec()
}

#[tokio::test]
async fn direct_counts_are_read_by_entry() {
    let fake = Fake::start(1).await.unwrap();
    let target = Target { address: fake.address(), tls: None, device: 1, election: 1 };
    let info = Arc::new(P4Info::decode(&program()).unwrap());
    let (session, mut stream) = Session::connect(&target, info).await.unwrap();
    assert!(matches!(stream.next().await.unwrap(), StreamEvent::Primary));
    session.push(b"", &program(), 1).await.unwrap();
    assert_eq!(session.direct_counts("passed").await.unwrap(), []);
    let entry = |port: u32| Entry::new("t").exact("port", port).does("pass");
    let changes = [1, 2].map(|port| Change::Insert(entry(port)));
    session.write(&changes).await.unwrap();
    let keys: Vec<Key> = [1, 2].map(|port| entry(port).key).into();
    let count = Count { packets: 3, bytes: 180 };
    fake.count_direct(&keys[1], count);
    let counts = session.direct_counts("passed").await.unwrap();
    assert_eq!(counts, [(keys[0].clone(), Count::default()), (keys[1].clone(), count)]);
    let error = session.direct_counts("other").await.unwrap_err().to_string();
    assert!(error.contains("no direct counter \"other\""), "{error}");
}
