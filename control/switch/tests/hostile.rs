// SPDX-License-Identifier: Apache-2.0
//! A session with a switch that refuses, or answers what no switch may: errors in words, and
//! a switch that is used again as soon as it can be.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::{INSTANCE, RULES, client, config, known, offload, ready, rig, session, timing, until};
use p4runtime::Count;
use switch::fake::{Fake, Wrong};
use switch::{News, Phase, Program, Switch};

#[tokio::test]
async fn clients_that_a_switch_refuses_are_said_and_tried_again() {
    let (fake, switch, _told) = rig().await;
    offload(&switch).await;
    fake.refuse(Some("linkemu.prefixes4"));
    switch.set_clients(INSTANCE, RULES, vec![client(3)]);
    until("said", || switch.status().message.contains("Table is full")).await;
    let status = switch.status();
    assert_eq!(status.phase, Phase::Ready, "{}", status.message);
    assert!(status.message.contains("linkemu.prefixes4[address=0xa000003/32]"));
    fake.refuse(None);
    until("tried again", || known(&fake) == 1).await;
    until("well", || switch.status().message.is_empty()).await;
}

#[tokio::test]
async fn a_loss_that_a_switch_refuses_is_drawn_by_the_dataplane() {
    let (fake, switch, _told) = rig().await;
    fake.refuse(Some("linkemu.loss"));
    let said = offload(&switch).await;
    assert_eq!((said.forward_loss, said.return_loss), (0, 0));
    assert_ne!(said.epoch, 0);
}

#[tokio::test]
async fn a_switch_that_refuses_its_ports_is_not_ready() {
    let fake = Fake::start(1).await.unwrap();
    fake.refuse(Some("linkemu.ports"));
    let (switch, told) = session(config(fake.address()), timing());
    until("said", || switch.status().message.contains("linkemu.ports")).await;
    assert!(matches!(told.lock().unwrap()[0], News::Lost { .. }));
    fake.refuse(None);
    ready(&told, 1).await;
}

#[tokio::test]
async fn more_clients_than_the_table_holds_are_no_end() {
    let (fake, switch, _told) = rig().await;
    offload(&switch).await;
    let many = (0..3u16).flat_map(|high| (3..4096).map(move |low| (high, low)));
    let many = many.map(|(high, low)| switch::Client {
        number: low,
        matches: vec![switch::Match::Mac([2, 0, 0, high as u8, (low >> 8) as u8, low as u8])],
    });
    switch.set_clients(INSTANCE, RULES, many.collect());
    until("said", || switch.status().message.contains("Table is full")).await;
    assert_eq!(fake.entries("linkemu.macs").len(), 8192);
    assert_eq!(switch.status().phase, Phase::Ready);
}

async fn counts_fail(wrong: Wrong, words: &str) {
    let (fake, switch, told) = rig().await;
    offload(&switch).await;
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
    assert!(switch.counts().await.ready);
}

#[tokio::test]
async fn counters_below_zero_are_an_error() {
    counts_fail(Wrong::Negative, "something else than a count").await;
}

#[tokio::test]
async fn counters_that_are_left_out_are_an_error() {
    counts_fail(Wrong::Missing, "no count for").await;
}

#[tokio::test]
async fn an_answer_without_end_is_an_error() {
    counts_fail(Wrong::Endless, "more than 1048576 entities").await;
}

#[tokio::test]
async fn entries_that_cannot_be_are_cleared_by_a_new_program() {
    for wrong in [Wrong::UnknownTable, Wrong::CutBytes] {
        let (fake, switch, _told) = rig().await;
        common::end(switch, &fake).await;
        fake.answer(Some(wrong));
        let (switch, told) = session(config(fake.address()), timing());
        until("something is told", || !told.lock().unwrap().is_empty()).await;
        fake.answer(None);
        recovers(&switch).await;
    }
}

#[tokio::test]
async fn a_program_that_is_none_or_another_one_s_is_said() {
    let fake = Fake::start(1).await.unwrap();
    for (p4info, words) in
        [(&b"\xff\xff"[..], "no P4Info"), (b"", "no table \"linkemu.transit_bins\"")]
    {
        let mut config = config(fake.address());
        config.program = Program::embedded(b"{}", p4info);
        let (switch, told) = session(config, timing());
        until("told", || !told.lock().unwrap().is_empty()).await;
        let status = switch.status();
        assert!(status.message.contains(words), "{}", status.message);
        assert_eq!(offload(&switch).await, switch::Offload::default());
    }
}

#[tokio::test]
async fn an_address_where_nothing_is_or_that_is_none_is_said() {
    for address in ["http://127.0.0.1:1", "not an address", "http://[::1]:1/x y"] {
        let (_switch, told) = session(config(address.into()), timing());
        until("told", || !told.lock().unwrap().is_empty()).await;
        let news = told.lock().unwrap()[0].clone();
        assert!(matches!(&news, News::Lost { why } if why.contains(address)), "{news:?}");
    }
}
