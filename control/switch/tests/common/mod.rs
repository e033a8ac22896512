// SPDX-License-Identifier: Apache-2.0
//! A simulated switch and a session with it.

use p4server::Fake;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use switch::{
    Ageing, Client, Config, Loss, Match, News, Offload, Program, Sides, Stages, Switch, Target,
    Timing,
};

/// Time limit; only a failing test waits this long.
const LIMIT: Duration = Duration::from_secs(30);
pub const INSTANCE: u64 = 77;
pub const RULES: u64 = 5;
pub const GE: Loss =
    Loss::GilbertElliott { to_bad: 1, to_good: 2, loss_in_bad: u32::MAX, loss_in_good: 0 };

pub type Told = Arc<Mutex<Vec<News>>>;

pub fn config(address: String) -> Config {
    Config {
        address,
        tls: None,
        device: 1,
        election: 5,
        target: Target::Bmv2,
        boxes: vec![Sides { wan: 1, client: 2 }],
        host_ports: Sides { wan: vec![3], client: vec![4, 5] },
        mirror_port: None,
        stages: Stages { classifies: true, loses: true, marks: true },
        program: Program::embedded(p4src::BMV2_JSON, p4src::BMV2_P4INFO),
    }
}

/// Short intervals, and time limits as long as a test may take.
pub fn timing() -> Timing {
    Timing {
        poll: Duration::from_millis(50),
        first_wait: Duration::from_millis(5),
        retry: Duration::from_millis(100),
        check: Duration::from_secs(600),
        idle: Duration::from_secs(600),
        patience: LIMIT,
        ask: LIMIT,
        fresh: Duration::ZERO,
        ageing: Ageing::default(),
    }
}

pub fn session(config: Config, timing: Timing) -> (Switch, Told) {
    let told = Told::default();
    let tell = Arc::clone(&told);
    (Switch::start_timed(config, timing, move |news| tell.lock().unwrap().push(news)), told)
}

/// A switch and a session that has restored it.
pub async fn rig() -> (Fake, Switch, Told) {
    let fake = Fake::start(1).await.unwrap();
    let (switch, told) = session(config(fake.address()), timing());
    ready(&told, 1).await;
    (fake, switch, told)
}

/// Ends a session and waits until the switch has seen it, so that its election id is free.
pub async fn end(switch: Switch, fake: &Fake) {
    drop(switch);
    until("the session ends", || fake.controllers() == 0).await;
}

pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub fn count_ready(told: &Told) -> usize {
    let news = told.lock().unwrap();
    news.iter().filter(|news| matches!(news, News::Ready { .. })).count()
}

pub async fn ready(told: &Told, times: usize) {
    until("the switch is ready", || count_ready(told) >= times).await;
}

pub async fn offload(switch: &Switch) -> Offload {
    offload_by(switch, RULES).await
}

pub async fn offload_by(switch: &Switch, rules: u64) -> Offload {
    switch.offload(INSTANCE, rules, Loss::Independent(7), GE).await
}

/// Sets the clients and waits until they are counted.
pub async fn counted(switch: &Switch, clients: &[Client]) {
    switch.set_clients(INSTANCE, RULES, clients.to_vec());
    let start = Instant::now();
    while !switch.counts().await.ready {
        assert!(start.elapsed() < LIMIT, "nothing is counted within {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub fn client(number: u16) -> Client {
    let address = Ipv4Addr::from(0x0a00_0000 + u32::from(number));
    Client { number, matches: vec![Match::Prefix(address.into(), 32)] }
}

/// Number of entries of these clients in the IPv4 prefix table, in addition to the special
/// addresses.
pub fn known(fake: &Fake) -> usize {
    let named = |entry: &&p4runtime::Entry| entry.action.params["client"] > 2;
    fake.entries("linkemu.prefixes4").iter().filter(named).count()
}

/// Waits until the switch has this number of clients and the session has published it. An entry can
/// be visible before the last write of the same change.
pub async fn stands(switch: &Switch, fake: &Fake, clients: usize) {
    let said = || switch.status().clients as usize;
    until("clients", || (known(fake), said()) == (clients, clients)).await;
}

pub fn epoch(fake: &Fake) -> u16 {
    let ports = fake.entries("linkemu.ports");
    let first = ports[0].action.params["epoch"];
    assert!(ports.iter().all(|port| port.action.params["epoch"] == first));
    u16::try_from(first).unwrap()
}
