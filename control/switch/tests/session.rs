// SPDX-License-Identifier: Apache-2.0
//! A session with a conforming switch: after any failure of either side the desired entries are
//! restored, and no frame passes unimpaired meanwhile.

use crate::common::{
    GE, INSTANCE, RULES, client, config, count_ready, end, epoch, known, offload, ready, rig,
};
use crate::common::{Told, counted, offload_by, session, stands, timing, until};
use emu::units::Direction::{Forward, Return};
use p4runtime::proto::p4::config::v1 as config_pb;
use p4runtime::{Count, Entry};
use p4server::Fake;
use prost::Message as _;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use switch::{Ageing, Config, Loss, News, Offload, Phase, Point, Program, Timing};

#[tokio::test]
async fn empty_switch_gets_its_program_and_ports_last() {
    let (fake, switch, told) = rig().await;
    let log = fake.log();
    assert_eq!(log[0], "push");
    let first = log.iter().position(|line| line.contains("linkemu.ports")).unwrap();
    assert!(log[first..].iter().all(|line| line.contains("linkemu.ports")), "{log:#?}");
    let groups = fake.groups();
    assert_eq!(groups[&1], BTreeSet::from([4, 5]));
    assert_eq!(groups[&2], BTreeSet::from([3]));
    let entries = log.iter().filter(|line| line.starts_with("insert")).count();
    let News::Ready { pushed, entries: said, .. } = told.lock().unwrap()[0] else {
        panic!("{told:?}");
    };
    assert_eq!((pushed, said as usize), (true, entries));
    assert_eq!(switch.status().phase, Phase::Ready);
    assert_eq!(switch.status().entries as usize, entries);
}

#[tokio::test]
async fn losses_are_written_before_their_numbers_return() {
    let (fake, switch, _told) = rig().await;
    let said = offload(&switch).await;
    let (one, other) = (said.forward_loss, said.return_loss);
    assert!(one != 0 && other != 0 && one != other, "{said:?}");
    assert_eq!(said.epoch, epoch(&fake));
    assert!(said.marks);
    let entry = |slot: u16| Entry::new("linkemu.loss").exact("slot", slot);
    let independent = entry(one).does("linkemu.independent").with("p", 7u8);
    assert!(fake.entries("linkemu.loss").contains(&independent));
    // The same losses again, then with directions swapped.
    assert_eq!(offload(&switch).await, said);
    let swapped = switch.offload(INSTANCE, RULES, GE, Loss::Independent(7)).await;
    assert_eq!((swapped.forward_loss, swapped.return_loss), (other, one));
    let none = switch.offload(INSTANCE, RULES, Loss::None, Loss::None).await;
    assert_eq!((none.forward_loss, none.return_loss), (0, 0));
    assert_eq!(fake.entries("linkemu.loss").len(), 2);
}

#[tokio::test]
async fn restarted_linkd_and_switch_use_other_numbers() {
    let mut before = BTreeSet::new();
    // Eight equal draws out of 65535 are no coincidence.
    for _ in 0..8 {
        let (fake, switch, _told) = rig().await;
        before.insert(offload(&switch).await.forward_loss);
        end(switch, &fake).await;
    }
    assert!(before.len() > 1, "{before:?}");
}

#[tokio::test]
async fn unused_loss_expires_and_used_loss_stays() {
    let fake = Fake::start(1).await.unwrap();
    let timing = Timing { idle: Duration::from_millis(300), ..timing() };
    let (switch, told) = session(config(fake.address()), timing);
    ready(&told, 1).await;
    let kept = switch.offload(INSTANCE, RULES, Loss::Independent(1), Loss::None).await;
    switch.in_use(&kept);
    switch.offload(INSTANCE, RULES, Loss::Independent(2), Loss::None).await;
    until("the unused one goes", || fake.entries("linkemu.loss").len() == 1).await;
    tokio::time::sleep(timing.idle * 2).await;
    let left = fake.entries("linkemu.loss");
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].action.params["p"], 1);
}

#[tokio::test]
async fn thousand_clients_are_written_once_then_only_differences() {
    let (fake, switch, _told) = rig().await;
    offload(&switch).await;
    let clients: Vec<_> = (3..1003).map(client).collect();
    switch.set_clients(INSTANCE, RULES, clients.clone());
    stands(&switch, &fake, 1000).await;
    fake.clear_log();
    let mut fewer = clients[1..].to_vec();
    fewer[0].number = 2000;
    switch.set_clients(INSTANCE, RULES, fewer);
    until("differences", || known(&fake) == 999 && !fake.log().is_empty()).await;
    until("status", || switch.status().clients == 999).await;
    let expected = [
        "delete linkemu.prefixes4[address=0xa000003/32]",
        "modify linkemu.prefixes4[address=0xa000004/32] -> linkemu.set_client(box=0, client=2000)",
    ];
    assert_eq!(fake.log(), expected);
}

#[tokio::test]
async fn wider_prefix_exists_only_with_the_longer_one() {
    let (fake, switch, _told) = rig().await;
    offload(&switch).await;
    let prefix = |number, length| switch::Client {
        number,
        matches: vec![switch::Match::Prefix([10, 0, 0, 0].into(), length)],
    };
    let lengths = |word: &str| {
        let log = fake.log();
        let lines = log.iter().filter(|line| line.starts_with(word) && line.contains("=0xa000000"));
        let length = |line: &String| line.split(['/', ']']).nth(1).unwrap().to_owned();
        lines.map(length).collect::<Vec<_>>()
    };
    switch.set_clients(INSTANCE, RULES, vec![prefix(3, 8), prefix(4, 24), prefix(5, 16)]);
    stands(&switch, &fake, 3).await;
    assert_eq!(lengths("insert"), ["24", "16", "8"]);
    offload_by(&switch, RULES + 1).await;
    assert_eq!(lengths("delete"), ["8", "16", "24"]);
}

#[tokio::test]
async fn clients_of_another_dataplane_are_ignored() {
    let (fake, switch, _told) = rig().await;
    offload(&switch).await;
    switch.set_clients(INSTANCE + 1, RULES, vec![client(3)]);
    switch.set_clients(INSTANCE, RULES, vec![client(4), client(5)]);
    stands(&switch, &fake, 2).await;
    switch.set_clients(INSTANCE + 1, RULES, vec![client(3)]);
    offload(&switch).await;
    assert_eq!(known(&fake), 2);
}

#[tokio::test]
async fn new_dataplane_epoch_starts_after_old_clients_are_deleted() {
    let (fake, switch, _told) = rig().await;
    let before = offload(&switch).await;
    switch.set_clients(INSTANCE, RULES, vec![client(3), client(4)]);
    stands(&switch, &fake, 2).await;
    fake.count("linkemu.fates", 3 << 4, Count { packets: 5, bytes: 500 });
    assert_eq!(switch.counts().await.clients[&3].0[0].received.packets, 5);
    fake.clear_log();
    let after = switch.offload(INSTANCE + 1, RULES, Loss::Independent(7), GE).await;
    assert_ne!(after.epoch, before.epoch);
    assert_eq!((after.forward_loss, after.return_loss), (before.forward_loss, before.return_loss));
    assert_eq!(after.epoch, epoch(&fake));
    assert_eq!(known(&fake), 0);
    let log = fake.log();
    let last_client = log.iter().rposition(|line| line.contains("prefixes4")).unwrap();
    let first_port = log.iter().position(|line| line.contains("linkemu.ports")).unwrap();
    assert!(last_client < first_port, "{log:#?}");
    // Counts of the number do not pass to the client of the new dataplane.
    assert_eq!(fake.counted("linkemu.fates", 3 << 4), Count::default());
    let counts = switch.counts().await;
    assert_eq!((counts.instance, counts.clients.get(&3)), (INSTANCE + 1, None));
    assert!(!counts.ready, "another one's clients were said");
}

#[tokio::test]
async fn new_dataplane_counts_survive_a_lost_switch() {
    for table in ["linkemu.prefixes4", "linkemu.ports"] {
        let (fake, switch, told) = rig().await;
        offload(&switch).await;
        switch.set_clients(INSTANCE, RULES, vec![client(3)]);
        stands(&switch, &fake, 1).await;
        let five = Count { packets: 5, bytes: 500 };
        fake.count("linkemu.fates", 3 << 4, five);
        fake.count("linkemu.fates", 2 << 4, five);
        assert_eq!(switch.counts().await.clients[&3][Forward].received, five);
        fake.refuse(Some(table));
        let asked = switch.offload(INSTANCE + 1, RULES, Loss::None, Loss::None);
        assert_eq!(asked.await, Offload::default());
        fake.refuse(None);
        ready(&told, 2).await;
        let counts = switch.counts().await;
        assert_eq!((counts.instance, counts.clients.get(&3)), (INSTANCE + 1, None));
        assert_eq!(counts.clients[&2][Forward].received, Count::default(), "{table}");
        assert_eq!(fake.counted("linkemu.fates", 3 << 4), Count::default());
    }
}

#[tokio::test]
async fn new_rules_start_an_epoch_without_clients_and_keep_counts() {
    let (fake, switch, _told) = rig().await;
    let before = offload(&switch).await;
    switch.set_clients(INSTANCE, RULES, vec![client(3), client(4)]);
    stands(&switch, &fake, 2).await;
    let five = Count { packets: 5, bytes: 500 };
    fake.count("linkemu.fates", 3 << 4, five);
    fake.clear_log();
    let after = switch.offload(INSTANCE, RULES + 1, Loss::Independent(7), GE).await;
    assert_ne!(after.epoch, before.epoch);
    assert_eq!((after.epoch, known(&fake)), (epoch(&fake), 0));
    let log = fake.log();
    let last_client = log.iter().rposition(|line| line.contains("prefixes4")).unwrap();
    let first_port = log.iter().position(|line| line.contains("linkemu.ports")).unwrap();
    assert!(last_client < first_port, "{log:#?}");
    assert!(!log.iter().any(|line| line.starts_with("set")), "{log:#?}");
    // Clients found by the old rules are ignored.
    switch.set_clients(INSTANCE, RULES, vec![client(3), client(4)]);
    offload_by(&switch, RULES + 1).await;
    assert_eq!(known(&fake), 0);
    switch.set_clients(INSTANCE, RULES + 1, vec![client(3)]);
    stands(&switch, &fake, 1).await;
    assert_eq!(switch.counts().await.clients[&3][Forward].received, five);
    // A new linkd knows them too.
    end(switch, &fake).await;
    let (switch, told) = session(config(fake.address()), timing());
    ready(&told, 1).await;
    assert_eq!(offload_by(&switch, RULES + 1).await, after);
    assert_eq!(known(&fake), 1);
    assert_ne!(offload_by(&switch, RULES).await.epoch, after.epoch);
    assert_eq!(known(&fake), 0);
}

#[tokio::test]
async fn restarted_switch_is_restored_and_keeps_counts() {
    let (fake, switch, told) = rig().await;
    let before = offload(&switch).await;
    switch.set_clients(INSTANCE, RULES, vec![client(3)]);
    switch.set_gate(Some(3), Some(Return), true).await.unwrap();
    stands(&switch, &fake, 1).await;
    assert!(fake.digest(&[3, 0x42, 0]));
    until("a host", || fake.entries("linkemu.hosts").len() == 1).await;
    let (lost, both) = ((3 << 4) + 3, Count { packets: 5, bytes: 500 });
    fake.count("linkemu.fates", lost, both);
    assert_eq!(switch.counts().await.clients[&3][Forward].lost, both);

    fake.restart();
    ready(&told, 2).await;
    let news = told.lock().unwrap().clone();
    assert!(matches!(news[1], News::Lost { .. }), "{news:?}");
    assert!(matches!(news[2], News::Ready { pushed: true, .. }), "{news:?}");
    assert!(switch.status().restored > Duration::ZERO);
    for (table, entries) in
        [("linkemu.loss", 2), ("linkemu.gates", 1), ("linkemu.hosts", 1), ("linkemu.sources", 1)]
    {
        assert_eq!(fake.entries(table).len(), entries, "{table}");
    }
    assert_eq!(known(&fake), 1);
    let log = fake.log();
    let first = log.iter().position(|line| line.contains("linkemu.ports")).unwrap();
    assert!(log[first..].iter().all(|line| line.contains("linkemu.ports")), "{log:#?}");
    // The clock restarted, so the epoch changed; loss numbers did not.
    let after = offload(&switch).await;
    assert_ne!(after.epoch, before.epoch);
    assert_eq!((after.forward_loss, after.return_loss), (before.forward_loss, before.return_loss));

    let counts = switch.counts().await;
    assert!(counts.ready);
    assert_eq!(counts.clients[&3][Forward].lost, both);
    fake.count("linkemu.fates", lost, Count { packets: 2, bytes: 20 });
    let sum = Count { packets: 7, bytes: 520 };
    assert_eq!(switch.counts().await.clients[&3][Forward].lost, sum);
}

#[tokio::test]
async fn requests_are_served_while_counters_are_read() {
    let (fake, switch, _told) = rig().await;
    offload(&switch).await;
    counted(&switch, &[client(3)]).await;
    fake.hang_reads(true);
    let counts = async {
        let counts = switch.counts().await;
        (counts, fake.entries("linkemu.gates").len())
    };
    let others = async {
        // The reading has begun.
        tokio::time::sleep(Duration::from_millis(50)).await;
        switch.set_gate(Some(3), Some(Return), true).await.unwrap();
        switch.set_clients(INSTANCE, RULES, vec![client(3), client(4)]);
        switch.written().await.unwrap();
        fake.count("linkemu.fates", 4 << 4, Count { packets: 1, bytes: 60 });
        fake.hang_reads(false);
    };
    let ((counts, gates), ()) = tokio::join!(counts, others);
    assert_eq!(gates, 1, "the gate was closed before the reading ended");
    assert!(counts.ready);
    // Known since then, and counted from the next reading on.
    assert_eq!(counts.clients[&4][Forward].received.packets, 0);
    let next = switch.counts().await;
    assert!(next.ready);
    assert_eq!(next.clients[&4][Forward].received.packets, 1);
}

#[tokio::test]
async fn reading_for_another_dataplane_counts_for_nothing() {
    let (fake, switch, _told) = rig().await;
    offload(&switch).await;
    counted(&switch, &[client(3)]).await;
    fake.count("linkemu.fates", 3 << 4, Count { packets: 9, bytes: 540 });
    assert_eq!(switch.counts().await.clients[&3][Forward].received.packets, 9);
    fake.hang_reads(true);
    let another = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let offload = switch.offload(INSTANCE + 1, RULES, Loss::Independent(7), GE);
        let release = async {
            // Until the new dataplane's clearing waits for its own reads.
            tokio::time::sleep(Duration::from_millis(50)).await;
            fake.hang_reads(false);
        };
        tokio::join!(offload, release);
    };
    let (counts, ()) = tokio::join!(switch.counts(), another);
    assert!(!counts.ready);
    assert_eq!(counts.instance, INSTANCE + 1);
    assert!(counts.clients.get(&3).is_none_or(|client| client[Forward].received.packets == 0));
}

#[tokio::test]
async fn frames_of_all_ports_are_counted() {
    let (fake, switch, _told) = rig().await;
    let one = Count { packets: 1, bytes: 60 };
    fake.count("linkemu.port_drops", 9 * 8, one);
    fake.count("linkemu.port_drops", 2 * 8 + 1, one);
    let counts = switch.counts().await;
    assert_eq!(counts.ports[&9].unknown_port, one);
    assert_eq!(counts.ports[&2].no_shim, one);
    assert_eq!(counts.ports.len(), 6);
}

/// A program with smaller counters and a second counter for fates, as for Tofino.
fn smaller() -> Program {
    let mut info = p4runtime::proto::p4::config::v1::P4Info::decode(p4src::BMV2_P4INFO).unwrap();
    let name = |counter: &p4runtime::proto::p4::config::v1::Counter| {
        counter.preamble.clone().unwrap_or_default().name
    };
    for counter in &mut info.counters {
        match name(counter).as_str() {
            "linkemu.fates" => counter.size = 4 * 16,
            "linkemu.transit" => counter.size = 4 * 64,
            _ => {}
        }
    }
    let mut beside = info.counters.iter().find(|c| name(c) == "linkemu.fates").unwrap().clone();
    let preamble = beside.preamble.as_mut().unwrap();
    (preamble.id, preamble.name) = (preamble.id + 1000, "linkemu.fates_returned".into());
    info.counters.push(beside);
    Program { device: p4src::BMV2_JSON.into(), p4info: info.encode_to_vec().into() }
}

#[tokio::test]
async fn fates_sum_their_counters_within_bounds() {
    let fake = Fake::start(1).await.unwrap();
    let config = switch::Config { program: smaller(), ..config(fake.address()) };
    let (switch, told) = session(config, timing());
    ready(&told, 1).await;
    offload(&switch).await;
    counted(&switch, &[client(3), client(4), client(4095)]).await;
    let one = Count { packets: 1, bytes: 60 };
    fake.count("linkemu.fates", 3 << 4, one);
    fake.count("linkemu.fates_returned", (3 << 4) + 1, one);
    fake.count("linkemu.fates", (3 << 4) + 2, one);
    fake.count("linkemu.transit", 3 << 6, one);
    let counts = switch.counts().await;
    assert!(counts.ready);
    let fates = counts.clients[&3][Forward];
    assert_eq!((fates.received, fates.returned, fates.delivered), (one, one, one));
    assert_eq!(counts.transit[Forward].counts[0], 1);
    // Clients that it does not count are not classified.
    let known: BTreeSet<_> = fake
        .entries("linkemu.prefixes4")
        .iter()
        .map(|entry| entry.action.params["client"])
        .collect();
    assert_eq!(known, BTreeSet::from([0, 2, 3]));
    // All cells are cleared.
    switch.offload(INSTANCE + 1, RULES, Loss::None, Loss::None).await;
    assert_eq!(fake.counted("linkemu.fates_returned", (3 << 4) + 1), Count::default());
    assert_eq!(fake.counted("linkemu.transit", 3 << 6), Count::default());
}

#[tokio::test]
async fn transit_times_are_counted_by_bucket() {
    let (fake, switch, _told) = rig().await;
    let one = Count { packets: 1, bytes: 0 };
    let transit = ((2 << 1) | 1) * 32;
    fake.count("linkemu.transit", transit, one);
    fake.count("linkemu.transit", transit + 31, one);
    // No delivered frames, so no transit times.
    assert_eq!(switch.counts().await.transit[Return].counts.iter().sum::<u64>(), 0);
    fake.count("linkemu.fates", (2 << 4) + 8 + 2, one);
    fake.count("linkemu.lateness", 26, one);
    fake.count("linkemu.lateness", 31, one);
    fake.count("linkemu.lateness", 32 + 30, one);
    let counts = switch.counts().await;
    let times = &counts.transit[Return];
    assert_eq!(times.counts.len(), times.bounds.len() + 1);
    assert_eq!((times.counts[0], times.counts.last()), (1, Some(&1)));
    assert_eq!(counts.lateness[Forward].counts.iter().sum::<u64>(), 1);
    assert_eq!(counts.early, 1);
}

#[tokio::test]
async fn new_linkd_adopts_entries_without_a_write() {
    let (fake, switch, _told) = rig().await;
    // As Stratum does: what linkd has to find again is in keys and parameters.
    fake.drop_metadata(true);
    let before = offload(&switch).await;
    switch.set_clients(INSTANCE, RULES, vec![client(3)]);
    stands(&switch, &fake, 1).await;
    fake.digest(&[3, 0x42, 0]);
    until("a host", || fake.entries("linkemu.sources").len() == 1).await;
    fake.count("linkemu.fates", 3 << 4, Count { packets: 5, bytes: 500 });
    end(switch, &fake).await;

    fake.clear_log();
    let (switch, told) = session(config(fake.address()), timing());
    ready(&told, 1).await;
    assert!(matches!(told.lock().unwrap()[0], News::Ready { pushed: false, .. }));
    assert_eq!(offload(&switch).await, before);
    assert!(!switch.counts().await.ready, "nobody has said which clients there are");
    switch.set_clients(INSTANCE, RULES, vec![client(3)]);
    until("clients", || switch.status().clients == 1).await;
    assert!(fake.log().is_empty(), "{:#?}", fake.log());
    let counts = switch.counts().await;
    assert!(counts.ready);
    assert_eq!(counts.clients[&3][Forward].received.packets, 5);
}

#[tokio::test]
async fn switch_whose_note_is_of_another_epoch_starts_another() {
    let (fake, switch, _told) = rig().await;
    let before = offload(&switch).await;
    end(switch, &fake).await;
    // A linkd that ended between its note and its ports.
    for entry in fake.entries("linkemu.notes") {
        fake.remove(&entry);
    }
    let (switch, told) = session(config(fake.address()), timing());
    ready(&told, 1).await;
    assert!(matches!(told.lock().unwrap()[0], News::Ready { pushed: false, .. }));
    assert_ne!(offload(&switch).await.epoch, before.epoch);
    assert_eq!(fake.entries("linkemu.notes").len(), 1);
}

#[tokio::test]
async fn program_of_another_version_or_target_is_refused_with_both() {
    let fake = Fake::start(1).await.unwrap();
    let mut info = config_pb::P4Info::decode(p4src::BMV2_P4INFO).unwrap();
    info.pkg_info.as_mut().unwrap().version = "0".into();
    let info = info.encode_to_vec();
    for (p4info, found) in [
        (info, "\"linkemu 0 (v1model)\", and this linkd needs \"linkemu 2 (v1model)\""),
        (p4src::SWX_P4INFO.to_vec(), "\"linkemu 2 (pna)\", and this linkd needs \"linkemu 2 (v1"),
        (Vec::new(), "\"  ()\", and this linkd needs \"linkemu 2 (v1model)\": compile p4src"),
    ] {
        let mut config = config(fake.address());
        config.program = Program { device: Vec::new().into(), p4info: p4info.into() };
        let (switch, told) = session(config, timing());
        until("it is refused", || !told.lock().unwrap().is_empty()).await;
        let News::Lost { why } = &told.lock().unwrap()[0] else { panic!("{told:?}") };
        assert!(why.contains(found), "{why}");
        assert_eq!(switch.status().program, "");
    }
    let (switch, told) = session(config(fake.address()), timing());
    ready(&told, 1).await;
    assert_eq!(switch.status().program, "linkemu 2 (v1model)");
}

#[tokio::test]
async fn new_linkd_with_new_dataplane_starts_over() {
    let (fake, switch, _told) = rig().await;
    let before = offload(&switch).await;
    switch.set_clients(INSTANCE, RULES, vec![client(3)]);
    stands(&switch, &fake, 1).await;
    end(switch, &fake).await;
    fake.clear_log();
    let (switch, told) = session(config(fake.address()), timing());
    ready(&told, 1).await;
    assert!(fake.log().is_empty(), "nothing is known of the dataplane yet");
    let after = switch.offload(INSTANCE + 1, RULES, Loss::None, Loss::None).await;
    assert_ne!(after.epoch, before.epoch);
    let log = fake.log();
    let at = |start: &str| log.iter().position(|line| line.starts_with(start)).unwrap();
    let (gone, port) = (at("delete linkemu.prefixes4[address=0xa000003/32]"), at("modify"));
    assert!(gone < port && log[port].contains("linkemu.ports"), "{log:#?}");
}

#[tokio::test]
async fn foreign_changes_are_repaired() {
    let (fake, switch, told) = rig().await;
    offload(&switch).await;
    end(switch, &fake).await;
    let lost = fake.entries("linkemu.loss");
    let ports = fake.entries("linkemu.ports");
    fake.remove(&fake.entries("linkemu.transit_bins")[0]);
    fake.remove(&ports[0]);
    let (_switch, again) = session(config(fake.address()), timing());
    ready(&again, 1).await;
    assert_eq!(fake.entries("linkemu.ports").len(), ports.len());
    assert_eq!(fake.entries("linkemu.loss"), lost);
    let of = |told: &crate::common::Told| match told.lock().unwrap()[0] {
        News::Ready { entries, .. } => entries,
        _ => 0,
    };
    assert_eq!(of(&told) + 2, of(&again), "all of the first, and two losses");
}

#[tokio::test]
async fn entries_that_others_change_are_repaired_counted_and_reported() {
    let fake = Fake::start(1).await.unwrap();
    let timing = Timing { check: Duration::from_millis(100), ..timing() };
    let (switch, told) = session(config(fake.address()), timing);
    ready(&told, 1).await;
    offload(&switch).await;
    counted(&switch, &[client(3), client(4)]).await;
    stands(&switch, &fake, 2).await;
    let repairs = || -> Vec<String> {
        let news = told.lock().unwrap();
        let what = |news: &News| match news {
            News::Repaired { what } => Some(what.clone()),
            _ => None,
        };
        news.iter().filter_map(what).collect()
    };
    // Several checks without a difference, while hosts are learned.
    for mac in 1..=20_u128 {
        assert!(fake.digest(&[4, mac, 1]));
        tokio::time::sleep(timing.check / 10).await;
    }
    until("hosts are learned", || fake.entries("linkemu.hosts").len() == 20).await;
    assert!(switch.check().await);
    assert_eq!((repairs(), switch.counts().await.foreign), (Vec::new(), 0));
    let ports = fake.entries("linkemu.ports");
    fake.remove(&ports[0]);
    until("the entry is repaired", || !repairs().is_empty()).await;
    assert_eq!(repairs(), ["linkemu.ports: 1"]);
    assert_eq!(fake.entries("linkemu.ports"), ports);
    assert_eq!(switch.counts().await.foreign, 1);
    // The session goes on.
    assert_eq!((count_ready(&told), fake.pushes()), (1, 1));
}

#[tokio::test]
async fn caller_that_asks_for_a_check_need_not_wait_for_its_interval() {
    let (fake, switch, told) = rig().await;
    offload(&switch).await;
    counted(&switch, &[client(3), client(4)]).await;
    stands(&switch, &fake, 2).await;
    let ports = fake.entries("linkemu.ports");
    let clients = fake.entries("linkemu.prefixes4");
    ports.iter().take(2).chain(clients.last()).for_each(|entry| fake.remove(entry));
    assert!(switch.check().await);
    let what = "linkemu.ports: 2, linkemu.prefixes4: 1".to_owned();
    assert_eq!(told.lock().unwrap().last(), Some(&News::Repaired { what }));
    assert_eq!(fake.entries("linkemu.ports"), ports);
    assert_eq!(fake.entries("linkemu.prefixes4"), clients);
    assert_eq!(switch.counts().await.foreign, 3);
}

#[tokio::test]
async fn table_that_the_switch_returns_otherwise_is_reported_once_and_not_checked() {
    let (fake, switch, told) = rig().await;
    offload(&switch).await;
    counted(&switch, &[client(3)]).await;
    fake.alter("linkemu.loss");
    assert!(switch.check().await && switch.check().await);
    let limits = "linkemu.loss cannot be checked: it returns other entries than were written";
    until("it is told", || switch.status().message == limits).await;
    let repaired =
        told.lock().unwrap().iter().filter(|it| matches!(it, News::Repaired { .. })).count();
    assert_eq!((repaired, switch.counts().await.foreign), (1, 2));
}

#[tokio::test]
async fn taken_switch_is_left_alone_then_restored() {
    let (fake, switch, told) = rig().await;
    let before = offload(&switch).await;
    let mut other = config(fake.address());
    other.election = 9;
    other.host_ports.client = vec![4];
    let (thief, theirs) = session(other, timing());
    ready(&theirs, 1).await;
    until("taken", || switch.status().phase == Phase::Taken).await;
    let by = told.lock().unwrap()[1].clone();
    assert!(matches!(&by, News::Taken { by } if by.contains('9')), "{by:?}");
    assert!(switch.set_gate(None, None, true).await.is_err());
    assert_eq!(fake.entries("linkemu.ports").len(), 4);
    fake.clear_log();
    tokio::time::sleep(timing().poll * 4).await;
    assert!(fake.log().is_empty());

    drop(thief);
    ready(&told, 2).await;
    assert_eq!(fake.entries("linkemu.ports").len(), 5);
    let after = offload(&switch).await;
    assert_eq!((after.forward_loss, after.epoch), (before.forward_loss, epoch(&fake)));
    assert_eq!(fake.pushes(), 1);
}

#[tokio::test]
async fn host_is_learned_moved_and_acknowledged() {
    let (fake, _switch, _told) = rig().await;
    let at = |port: u128| {
        let hosts = fake.entries("linkemu.hosts");
        let sources = fake.entries("linkemu.sources");
        let source = Entry::new("linkemu.sources").exact("port", port).exact("mac", 0x42u8);
        hosts.len() == 1
            && hosts[0].action.params["port"] == port
            && sources == [source.does("linkemu.known")]
    };
    assert!(fake.digest(&[4, 0x42, 1]));
    until("learned", || at(4)).await;
    assert!(fake.digest(&[5, 0x42, 1]));
    until("moved", || at(5)).await;
    // Invalid digests: a port of the other side, a group address, too few members.
    for row in [&[3, 0x43, 1][..], &[4, 1 << 40, 1], &[4]] {
        assert!(fake.digest(row));
    }
    until("acknowledged", || fake.acknowledged() == 5).await;
    assert!(at(5));
}

/// The program with tables of so many hosts.
fn small_tables(hosts: i64) -> Program {
    let mut info = p4runtime::proto::p4::config::v1::P4Info::decode(p4src::BMV2_P4INFO).unwrap();
    for table in &mut info.tables {
        let name = &table.preamble.as_ref().unwrap().name;
        if ["linkemu.hosts", "linkemu.sources"].contains(&&**name) {
            table.size = hosts;
        }
    }
    Program { device: p4src::BMV2_JSON.into(), p4info: info.encode_to_vec().into() }
}

#[tokio::test]
async fn flood_of_false_hosts_is_bounded_reported_and_forgotten() {
    let fake = Fake::start(1).await.unwrap();
    let ask_if_full = Duration::from_secs(2);
    let ageing = Ageing { ask_if_full, forget: Duration::from_millis(100), ..Ageing::default() };
    let config = Config { program: small_tables(64), ..config(fake.address()) };
    let (switch, told) = session(config, Timing { ageing, ..timing() });
    ready(&told, 1).await;
    let hosts = || fake.entries("linkemu.hosts").len();
    let limits = || -> Vec<String> {
        let news = told.lock().unwrap();
        let what = |news: &News| match news {
            News::Limits { what } => Some(what.clone()),
            _ => None,
        };
        news.iter().filter_map(what).collect()
    };
    for mac in 1..=100_u64 {
        assert!(fake.digest(&[4, mac.into(), 1]));
        if mac % 20 == 0 {
            until("acknowledged", || fake.acknowledged() == mac).await;
        }
    }
    until("the table is full", || hosts() == 64 && limits().len() == 1).await;
    assert!(limits()[0].starts_with("it knows 64 hosts, the most"), "{:?}", limits());
    assert_eq!(switch.status().message, limits()[0]);
    until("they are forgotten", || limits().len() == 2).await;
    assert_eq!((limits()[1].as_str(), &*switch.status().message), ("", ""));
    assert!(hosts() <= 48, "{}", hosts());
    let real = Entry::new("linkemu.hosts").exact("direction", 1u8).exact("mac", 0x4242u16);
    let real = real.does("linkemu.to_host").with("port", 3u8);
    assert!(fake.digest(&[3, 0x4242, 0]));
    until("a real host is learned", || fake.entries("linkemu.hosts").contains(&real)).await;
    assert_eq!((count_ready(&told), fake.pushes()), (1, 1));
}

#[tokio::test]
async fn wrong_device_and_absent_switch_are_told_with_the_remedy() {
    let fake = Fake::start(2).await.unwrap();
    let lost = |told: &Told| -> String {
        match told.lock().unwrap().first() {
            Some(News::Lost { why }) => why.clone(),
            _ => String::new(),
        }
    };
    let (_switch, told) = session(config(fake.address()), timing());
    until("the wrong device", || !lost(&told).is_empty()).await;
    let why = lost(&told);
    assert!(why.starts_with("the switch has no device 1: ") && why.contains("`device`"), "{why}");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (_switch, told) = session(config(format!("http://{free}")), timing());
    until("no switch", || !lost(&told).is_empty()).await;
    let why = lost(&told);
    assert!(
        why.contains("cannot be reached: Connection refused") && why.contains("`address`"),
        "{why}"
    );
}

#[tokio::test]
async fn restoration_is_timed_from_the_return_of_the_switch() {
    let (fake, switch, told) = rig().await;
    let away = Duration::from_secs(2);
    fake.down(true);
    until("it is lost", || switch.status().phase == Phase::Lost).await;
    tokio::time::sleep(away).await;
    fake.down(false);
    ready(&told, 2).await;
    let restored = switch.status().restored;
    assert!(restored > Duration::ZERO && restored < away, "{restored:?}");
}

#[tokio::test]
async fn gate_closes_and_opens_for_one_and_all() {
    let (fake, switch, _told) = rig().await;
    let gates = || fake.entries("linkemu.gates").len();
    switch.set_gate(Some(7), None, true).await.unwrap();
    assert_eq!(gates(), 2);
    switch.set_gate(None, Some(Forward), true).await.unwrap();
    assert_eq!(gates(), 3);
    assert_eq!(switch.status().gates, [(None, Forward), (Some(7), Forward), (Some(7), Return)]);
    switch.set_gate(Some(7), Some(Return), false).await.unwrap();
    switch.set_gate(None, None, false).await.unwrap();
    assert_eq!(switch.status().gates, [(Some(7), Forward)]);
    assert_eq!(gates(), 1);
    for number in [0, switch::MAX_CLIENTS] {
        assert!(switch.set_gate(Some(number), None, true).await.is_err());
    }
}

#[tokio::test]
async fn gate_does_not_pass_to_another_dataplane() {
    let (fake, switch, _told) = rig().await;
    offload(&switch).await;
    for number in [None, Some(switch::DEFAULT), Some(7)] {
        switch.set_gate(number, Some(Return), true).await.unwrap();
    }
    // Under other rules a number still belongs to the same client.
    offload_by(&switch, RULES + 1).await;
    assert_eq!(fake.entries("linkemu.gates").len(), 3);
    switch.offload(INSTANCE + 1, RULES, Loss::None, Loss::None).await;
    assert_eq!(switch.status().gates, [(None, Return), (Some(switch::DEFAULT), Return)]);
    assert_eq!(fake.entries("linkemu.gates").len(), 2);
}

#[tokio::test]
async fn copies_are_set_restored_and_counted() {
    let fake = Fake::start(1).await.unwrap();
    let config = Config { mirror_port: Some(6), ..config(fake.address()) };
    let (switch, told) = session(config.clone(), timing());
    ready(&told, 1).await;
    // A frame of bmv2 has a port or a group, so there is one for each port, and for both floods.
    let groups = fake.groups();
    let single = [1, 2, 3, 4, 5].map(|port| (16 + port, BTreeSet::from([port, 6])));
    let floods = [(528, BTreeSet::from([4, 5, 6])), (529, BTreeSet::from([3, 6]))];
    for (group, ports) in single.into_iter().chain(floods) {
        assert_eq!(groups.get(&group), Some(&ports), "group {group}");
    }
    let looks = || {
        let ports = fake.entries("linkemu.ports");
        let all = ports.iter().map(|port| port.action.params["mirrors"]).collect::<BTreeSet<_>>();
        assert_eq!((ports.len(), all.len()), (5, 1), "{ports:?}");
        all.contains(&1)
    };
    let copied = || fake.entries("linkemu.mirrors").len();
    assert_eq!((looks(), copied()), (false, 0));
    offload(&switch).await;
    let of = |cell, point| (Some(cell), Forward, point);
    let mirrors =
        BTreeSet::from([of(7, Point::Box), of(7, Point::Hosts), (None, Return, Point::Hosts)]);
    switch.set_mirrors(mirrors.clone()).await.unwrap();
    assert_eq!((looks(), copied()), (true, 3));
    assert_eq!(BTreeSet::from_iter(switch.status().mirrors), mirrors);
    // Frames that were copied, and copies that were sent.
    let count = |packets| Count { packets, bytes: 60 * packets };
    for (counter, index, packets) in
        [("linkemu.mirrored", 0, 5), ("linkemu.mirrored", 3, 2), ("linkemu.sent", 6, 6)]
    {
        fake.count(counter, index, count(packets));
    }
    let mirrored = switch.counts().await.mirrored;
    assert_eq!((mirrored.at_box[Forward], mirrored.at_hosts[Return]), (count(5), count(2)));
    assert_eq!((mirrored.at_box[Return], mirrored.sent), (count(0), count(6)));
    assert!(!switch.counts().await.egress.contains_key(&6));
    fake.restart();
    ready(&told, 2).await;
    assert_eq!((looks(), copied()), (true, 3));
    fake.count("linkemu.mirrored", 0, count(1));
    assert_eq!(switch.counts().await.mirrored.at_box[Forward], count(6));
    // Another dataplane has another client 7.
    switch.offload(INSTANCE + 1, RULES, Loss::None, Loss::None).await;
    assert_eq!(switch.status().mirrors, [(None, Return, Point::Hosts)]);
    assert_eq!((looks(), copied()), (true, 1));
    // The next linkd adopts the entries of ports, and copies nothing.
    let epoch = epoch(&fake);
    drop(switch);
    until("the session has ended", || fake.controllers() == 0).await;
    let (switch, told) = session(config, timing());
    ready(&told, 1).await;
    assert_eq!((looks(), copied(), crate::common::epoch(&fake)), (false, 0, epoch));
    switch.set_mirrors(mirrors.clone()).await.unwrap();
    switch.set_mirrors(BTreeSet::new()).await.unwrap();
    assert_eq!((looks(), copied()), (false, 0));
}

#[tokio::test]
async fn copies_that_cannot_be_are_refused() {
    let (_fake, switch, _told) = rig().await;
    let one = BTreeSet::from([(Some(7), Forward, Point::Box)]);
    let refused = switch.set_mirrors(one.clone()).await.unwrap_err().to_string();
    assert!(
        refused.contains("no port for copies: give a free port of it as `mirror`"),
        "{refused}"
    );
    let fake = Fake::start(1).await.unwrap();
    let config = Config { mirror_port: Some(6), ..config(fake.address()) };
    let (switch, told) = session(config, timing());
    ready(&told, 1).await;
    let many = (1..=1025).map(|cell| (Some(cell), Forward, Point::Box)).collect();
    let refused = switch.set_mirrors(many).await.unwrap_err().to_string();
    assert!(
        refused.starts_with("1025 entries are needed") && refused.contains("1024"),
        "{refused}"
    );
    let none = BTreeSet::from([(Some(switch::MAX_CLIENTS), Forward, Point::Box)]);
    assert!(switch.set_mirrors(none).await.is_err());
    fake.refuse(Some("linkemu.mirrors"));
    let refused = switch.set_mirrors(one.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("linkemu.mirrors"), "{refused}");
    fake.refuse(None);
    assert_eq!(switch.status().mirrors, []);
    switch.set_mirrors(one).await.unwrap();
    assert_eq!(fake.entries("linkemu.mirrors").len(), 1);
}

#[tokio::test]
async fn missing_switch_runs_no_stage() {
    let fake = Fake::start(1).await.unwrap();
    fake.down(true);
    let timing = Timing { ask: Duration::from_millis(50), ..timing() };
    let (switch, told) = session(config(fake.address()), timing);
    until("lost", || !told.lock().unwrap().is_empty()).await;
    assert_eq!(offload(&switch).await, Offload::default());
    let counts = switch.counts().await;
    assert!(!counts.ready);
    assert!(switch.set_gate(None, None, true).await.is_err());
    assert_eq!(switch.status().phase, Phase::Lost);
    assert_eq!(told.lock().unwrap().len(), 1, "it is told once");
    fake.down(false);
    ready(&told, 1).await;
}

#[tokio::test]
async fn silent_switch_is_lost_and_recovers() {
    let fake = Fake::start(1).await.unwrap();
    let timing = Timing { patience: Duration::from_secs(1), ..timing() };
    let (switch, told) = session(config(fake.address()), timing);
    ready(&told, 1).await;
    fake.hang(true);
    until("lost", || switch.status().phase == Phase::Lost).await;
    let why = switch.status().message;
    assert!(why.contains("has not answered"), "{why}");
    fake.hang(false);
    ready(&told, 2).await;
    assert!(matches!(told.lock().unwrap().last(), Some(News::Ready { pushed: false, .. })));
}

#[tokio::test]
async fn slow_switch_is_waited_for_once_and_reports_recovery() {
    let fake = Fake::start(1).await.unwrap();
    let timing = Timing { ask: Duration::from_millis(100), ..timing() };
    let (switch, told) = session(config(fake.address()), timing);
    ready(&told, 1).await;
    fake.hang(true);
    assert_eq!(offload(&switch).await, Offload::default());
    let mut again = pin!(offload(&switch));
    let first = poll_fn(|context| Poll::Ready(again.as_mut().poll(context))).await;
    assert_eq!(first, Poll::Ready(Offload::default()), "at once");
    fake.hang(false);
    ready(&told, 2).await;
    assert!(!told.lock().unwrap().iter().any(|news| matches!(news, News::Lost { .. })));
    let patient = async {
        while offload(&switch).await.epoch == 0 {
            tokio::time::sleep(timing.ask).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), patient).await.unwrap();
}

#[tokio::test]
async fn session_ends_with_its_last_handle() {
    let (fake, switch, told) = rig().await;
    let other = switch.clone();
    drop(switch);
    offload(&other).await;
    end(other, &fake).await;
    assert_eq!(count_ready(&told), 1);
}
