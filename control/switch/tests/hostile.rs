// SPDX-License-Identifier: Apache-2.0
//! A session with a switch that refuses or gives invalid answers: errors have a clear message, and
//! the switch is used again as soon as possible.

use crate::common::{
    INSTANCE, RULES, client, config, counted, known, offload, ready, rig, session, stands, timing,
    until,
};
use emu::units::Direction::Forward;
use p4runtime::Count;
use p4runtime::proto::p4::config::v1 as config_pb;
use p4server::{Fake, Wrong};
use prost::Message as _;
use std::net::Ipv6Addr;
use std::time::Duration;
use switch::{Client, Loss, Match, News, Offload, Phase, Program, Switch, Timing};

#[tokio::test]
async fn rejected_clients_are_reported_and_retried() {
    let (fake, switch, _told) = rig().await;
    offload(&switch).await;
    fake.refuse(Some("linkemu.prefixes4"));
    switch.set_clients(INSTANCE, RULES, vec![client(3)]);
    until("said", || switch.status().message.contains("Table is full")).await;
    let status = switch.status();
    assert_eq!(status.phase, Phase::Ready, "{}", status.message);
    assert!(status.message.contains("linkemu.prefixes4[address="), "{}", status.message);
    fake.refuse(None);
    until("tried again", || known(&fake) == 1).await;
    until("well", || switch.status().message.is_empty()).await;
}

#[tokio::test]
async fn rejected_loss_stays_in_the_dataplane() {
    let (fake, switch, _told) = rig().await;
    fake.refuse(Some("linkemu.loss"));
    let said = offload(&switch).await;
    assert_eq!((said.forward_loss, said.return_loss), (0, 0));
    assert_ne!(said.epoch, 0);
}

#[tokio::test]
async fn number_of_another_loss_is_not_returned() {
    let fake = Fake::start(1).await.unwrap();
    let timing = Timing { idle: Duration::from_millis(100), ..timing() };
    let (switch, told) = session(config(fake.address()), timing);
    ready(&told, 1).await;
    let said = |loss| switch.offload(INSTANCE, RULES, loss, Loss::None);
    let first = said(Loss::Independent(1)).await.forward_loss;
    assert_ne!(first, 0);
    fake.refuse(Some("linkemu.loss"));
    until("idle, and refused", || switch.status().message.contains("Table is full")).await;
    assert_eq!(said(Loss::Independent(2)).await.forward_loss, 0);
    assert_eq!(fake.entries("linkemu.loss")[0].action.params["p"], 1);
    fake.refuse(None);
    assert_eq!(said(Loss::Independent(2)).await.forward_loss, first);
}

#[tokio::test]
async fn rejected_gate_is_not_applied_later() {
    let (fake, switch, told) = rig().await;
    switch.set_gate(Some(7), Some(Forward), true).await.unwrap();
    fake.refuse(Some("linkemu.gates"));
    let refused = switch.set_gate(Some(8), None, true).await.unwrap_err();
    assert!(refused.to_string().contains("Table is full"), "{refused}");
    let refused = switch.set_gate(Some(7), None, false).await.unwrap_err();
    assert!(refused.to_string().contains("Table is full"), "{refused}");
    fake.refuse(None);
    tokio::time::sleep(timing().retry * 3).await;
    let gates = || (switch.status().gates, fake.entries("linkemu.gates").len());
    assert_eq!(gates(), (vec![(Some(7), Forward)], 1));
    // Not even when the switch is lost meanwhile.
    fake.down(true);
    assert!(switch.set_gate(Some(8), None, true).await.is_err());
    until("lost", || switch.status().phase == Phase::Lost).await;
    fake.down(false);
    ready(&told, 2).await;
    assert_eq!(gates(), (vec![(Some(7), Forward)], 1));
}

#[tokio::test]
async fn gate_of_a_timed_out_caller_is_unchanged() {
    let (fake, switch, _told) = rig().await;
    fake.hang(true);
    let asked = tokio::spawn({
        let switch = switch.clone();
        async move { switch.set_gate(Some(8), None, true).await }
    });
    tokio::time::sleep(timing().poll * 2).await;
    asked.abort();
    assert!(asked.await.unwrap_err().is_cancelled());
    fake.hang(false);
    // Answered after the abandoned request.
    switch.set_gate(Some(9), Some(Forward), true).await.unwrap();
    assert_eq!(switch.status().gates, [(Some(9), Forward)]);
    assert_eq!(fake.entries("linkemu.gates").len(), 1);
}

#[tokio::test]
async fn refusal_without_a_primary_reconnects() {
    let (fake, switch, told) = rig().await;
    fake.deny(true);
    assert!(switch.set_gate(Some(7), None, true).await.is_err());
    until("said", || {
        let news = told.lock().unwrap();
        news.iter().any(|news| matches!(news, News::Taken { .. }))
    })
    .await;
    fake.deny(false);
    ready(&told, 2).await;
    switch.set_gate(Some(7), None, true).await.unwrap();
}

#[tokio::test]
async fn switch_without_ports_is_not_ready() {
    let fake = Fake::start(1).await.unwrap();
    fake.refuse(Some("linkemu.ports"));
    let (switch, told) = session(config(fake.address()), timing());
    until("said", || switch.status().message.contains("linkemu.ports")).await;
    assert!(matches!(told.lock().unwrap()[0], News::Lost { .. }));
    fake.refuse(None);
    ready(&told, 1).await;
}

/// Each client number three times, with one MAC each.
fn many() -> Vec<Client> {
    let many = (0..3u16).flat_map(|high| (3..4096).map(move |low| (high, low)));
    let of = |(high, low): (u16, u16)| Client {
        number: low,
        matches: vec![Match::Mac([2, 0, 0, high as u8, (low >> 8) as u8, low as u8])],
    };
    many.map(of).collect()
}

/// Number of entries that name a client.
fn named(fake: &Fake) -> usize {
    let tables = ["linkemu.macs", "linkemu.vlans", "linkemu.prefixes4", "linkemu.prefixes6"];
    tables.into_iter().map(|table| fake.entries(table).len()).sum()
}

#[tokio::test]
async fn too_many_clients_are_withheld_without_a_write() {
    let (fake, switch, _told) = rig().await;
    offload(&switch).await;
    switch.set_clients(INSTANCE, RULES, vec![client(3)]);
    stands(&switch, &fake, 1).await;
    switch.set_clients(INSTANCE, RULES, many());
    until("said", || switch.status().message.contains("linkemu.macs holds 8192")).await;
    let status = switch.status();
    assert_eq!((status.phase, status.clients, named(&fake)), (Phase::Ready, 0, 0));
    fake.clear_log();
    switch.set_clients(INSTANCE, RULES, many());
    tokio::time::sleep(timing().retry * 3).await;
    assert!(fake.log().is_empty(), "{:?}", fake.log());
    switch.set_clients(INSTANCE, RULES, vec![client(3)]);
    until("fewer", || known(&fake) == 1 && switch.status().message.is_empty()).await;
}

#[tokio::test]
async fn rejected_rule_is_not_replaced_by_a_wider_one() {
    let fake = Fake::start(1).await.unwrap();
    let timing = Timing { retry: Duration::from_secs(600), ..timing() };
    let (switch, told) = session(config(fake.address()), timing);
    ready(&told, 1).await;
    offload(&switch).await;
    let rules = |number, v6: bool| Client {
        number,
        matches: vec![
            Match::Mac([2, 0, 0, 0, 0, number as u8]),
            Match::Prefix(if v6 { Ipv6Addr::UNSPECIFIED.into() } else { [10, 0, 0, 0].into() }, 8),
        ],
    };
    let both = || vec![rules(3, false), rules(4, true)];
    fake.refuse(Some("linkemu.prefixes6"));
    switch.set_clients(INSTANCE, RULES, both());
    until("said", || switch.status().message.contains("Table is full")).await;
    assert_eq!((switch.status().clients, named(&fake)), (0, 0));
    // The same clients again do not cause a retry.
    fake.clear_log();
    switch.set_clients(INSTANCE, RULES, both());
    assert_ne!(offload(&switch).await.epoch, 0);
    tokio::time::sleep(timing.poll * 4).await;
    assert!(fake.log().is_empty(), "{:?}", fake.log());
}

#[tokio::test]
async fn undeletable_client_entry_loses_the_session() {
    let (fake, switch, told) = rig().await;
    let before = offload(&switch).await;
    switch.set_clients(INSTANCE, RULES, vec![client(3)]);
    stands(&switch, &fake, 1).await;
    fake.refuse(Some("linkemu.prefixes4"));
    let none = switch.offload(INSTANCE + 1, RULES, Loss::None, Loss::None);
    assert_eq!(none.await, Offload::default());
    until("lost", || told.lock().unwrap().iter().any(|n| matches!(n, News::Lost { .. }))).await;
    assert_eq!(crate::common::epoch(&fake), before.epoch);
    fake.refuse(None);
    ready(&told, 2).await;
    assert_eq!(known(&fake), 0);
    assert_ne!(crate::common::epoch(&fake), before.epoch);
}

async fn counts_fail(wrong: Wrong, words: &str) {
    let (fake, switch, told) = rig().await;
    offload(&switch).await;
    counted(&switch, &[]).await;
    let five = Count { packets: 5, bytes: 500 };
    fake.count("linkemu.fates", 2 << 4, five);
    assert_eq!(switch.counts().await.clients[&2].0[0].received, five);
    fake.answer(Some(wrong));
    let counts = switch.counts().await;
    assert!(!counts.ready);
    assert_eq!(counts.clients[&2].0[0].received, five, "the last known");
    until("lost", || {
        let news = told.lock().unwrap();
        news.iter().any(|news| matches!(news, News::Lost { why } if why.contains(words)))
    })
    .await;
    fake.answer(None);
    recovers(&switch).await;
}

async fn recovers(switch: &Switch) {
    until("ready", || switch.status().phase == Phase::Ready).await;
    assert_ne!(offload(switch).await.epoch, 0);
    counted(switch, &[]).await;
}

#[tokio::test]
async fn negative_counters_are_an_error() {
    counts_fail(Wrong::Negative, "something else than a count").await;
}

#[tokio::test]
async fn missing_counters_are_an_error() {
    counts_fail(Wrong::Missing, "no count for").await;
}

#[tokio::test]
async fn endless_answer_is_an_error() {
    counts_fail(Wrong::Endless, "more than 1048576 entities").await;
}

#[tokio::test]
async fn invalid_entries_are_cleared_by_loading_the_program() {
    for wrong in [Wrong::UnknownTable, Wrong::CutBytes] {
        let (fake, switch, _told) = rig().await;
        crate::common::end(switch, &fake).await;
        fake.answer(Some(wrong));
        let (switch, told) = session(config(fake.address()), timing());
        until("something is told", || !told.lock().unwrap().is_empty()).await;
        fake.answer(None);
        recovers(&switch).await;
    }
}

#[tokio::test]
async fn invalid_program_is_reported() {
    let fake = Fake::start(1).await.unwrap();
    // A program of our name and version, with nothing in it.
    let (name, version, arch) = ("linkemu".into(), "2".into(), "v1model".into());
    let pkg_info = Some(config_pb::PkgInfo { name, version, arch });
    let empty = config_pb::P4Info { pkg_info, ..Default::default() }.encode_to_vec();
    for (p4info, words) in [
        (b"\xff\xff".to_vec(), "not a P4Info"),
        (Vec::new(), "this linkd needs \"linkemu 2 (v1model)\""),
        (empty, "no table \"linkemu.transit_bins\""),
    ] {
        let mut config = config(fake.address());
        config.program = Program { device: b"{}".into(), p4info: p4info.into() };
        let (switch, told) = session(config, timing());
        until("told", || !told.lock().unwrap().is_empty()).await;
        let status = switch.status();
        assert!(status.message.contains(words), "{}", status.message);
        assert_eq!(offload(&switch).await, switch::Offload::default());
    }
}

#[tokio::test]
async fn unreachable_or_invalid_address_is_reported() {
    for address in ["http://127.0.0.1:1", "not an address", "http://[::1]:1/x y"] {
        let (_switch, told) = session(config(address.into()), timing());
        until("told", || !told.lock().unwrap().is_empty()).await;
        let news = told.lock().unwrap()[0].clone();
        assert!(matches!(&news, News::Lost { why } if why.contains(address)), "{news:?}");
    }
}
