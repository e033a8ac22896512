// SPDX-License-Identifier: Apache-2.0
//! Several workers through the daemon's own code, over DPDK's virtual ports and without
//! hugepages.

use crate::eal::eal;
use std::time::{Duration, Instant as Wall};

use compile::compile;
use dataplane::dataplane::{Dataplane, Fixed};
use dataplane::pairs::PortPair;
use dataplane::polling;
use dataplane::ports::{self, Counted, Needs, OpenError, Opened, PairQueues};
use dataplane::workers::Settings;
use dpdk::{Counters, Error, MbufBurst, TscClock};
use emu::engine::Limits;
use emu::plan::Room;
use emu::units::Nanos;
use owner::{Changes, Terms};
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use worker::distribute::{DEPTH, Lending};
use worker::edge::Tail;
use worker::run::Idle;

fn specs(wan: &str, client: &str) -> Vec<PortPair> {
    let ports = [format!("wan={wan}"), format!("client={client}")].map(|s| s.parse().unwrap());
    vec![PortPair { name: None, ports }]
}

/// Two cores, or one twice.
fn cores() -> Vec<usize> {
    let all = ports::cores();
    vec![all[0], *all.last().unwrap()]
}

const BUFFERS: u64 = 16 << 20;

fn needs(cores: &[usize]) -> Needs<'_> {
    Needs {
        cores,
        max_frame: Some(1518),
        buffers: BUFFERS,
        min_data_room: 0,
        shim: 0,
        pairs: 1,
        vlan: 0,
    }
}

fn plan(profile: &str) -> pb::Plan {
    let profile = profile::Catalog::built_in().get(profile).unwrap().as_proto().clone();
    pb::Plan { profile: Some(profile), seed: 1, ..pb::Plan::default() }
}

fn change(profile: &str) -> pb::Change {
    pb::Change { profile: plan(profile).profile, ..Default::default() }
}

#[test]
fn two_workers_are_one_dataplane() {
    let eal = eal();
    let cores = cores();
    // The null driver brings frames without end, of no client: all the first worker's.
    let specs = specs("net_null", "net_null");
    let opened = ports::open(&eal, &specs, needs(&cores)).unwrap();
    assert_eq!(opened.shares.len(), 2);
    assert_eq!((opened.max_frame, opened.lends), (1518, false));
    // Half of the buffers each: data, headroom and what a buffer takes beside.
    assert_eq!(u64::from(opened.kept), BUFFERS / 2 / (1518 + 128 + 512));
    let Opened { ports, shares, lends, max_frame, kept, .. } = opened;
    let limits = Limits {
        memory: 64 << 20,
        clients: 4,
        frame: max_frame,
        copy_break: 256,
        buffers: kept,
        idle: Nanos::ZERO,
        offloaded: 0,
    };
    let pools: Vec<_> = shares.iter().map(|s| s.pool.clone()).collect();
    let clock = TscClock::calibrate(Duration::from_millis(20));
    let running = plan("transparent");
    let compiled = compile(&running).unwrap();
    let settings = Settings { idle: Idle::Busy, cores, limits, tail: Tail::None };
    let lending = Lending { lends, longest: max_frame };
    let (workers, counters) =
        polling::spawn(&eal, shares, lending, clock, &compiled, &settings).unwrap();
    let room = Room { clients: 4, frame: max_frame, capacity: 1 << 40, ..Room::default() };
    let fixed = Fixed { room, ..Fixed::default() };
    let counted = Box::new(Counted::new(ports.into(), &specs, counters));
    let dataplane = Dataplane::new(workers.handles, clock, counted, fixed, running);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stats = runtime.block_on(async {
        // Overloaded as it is, it answers.
        let deadline = Wall::now() + Duration::from_secs(60);
        loop {
            let stats = dataplane.stats(false).await.unwrap();
            let bypass = stats.clients[0].forward_pipe.clone().unwrap();
            if bypass.received.unwrap().packets > 10_000 {
                break;
            }
            assert!(Wall::now() < deadline, "{stats:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let applied = dataplane.apply(change("geo-600"), Terms::default()).await.unwrap();
        assert_eq!(applied.applied.generation, 1);
        assert_eq!(dataplane.home(), None);
        // Clients that share something have one worker.
        let automatic = model::Automatic { limit: Some(3), ..Default::default() };
        let beam =
            model::Beam { name: "b".into(), forward_rate_bps: Some(0), ..Default::default() };
        for clients in [
            model::Clients { automatic: Some(automatic), ..Default::default() },
            model::Clients { beams: vec![beam], ..Default::default() },
        ] {
            let ruled = pb::Change { clients: Some(clients), ..change("geo-600") };
            let applied = dataplane.apply(ruled, Terms::default()).await.unwrap();
            assert_eq!(applied.remarks, [] as [&str; 0]);
            assert_eq!(dataplane.home(), Some(0));
        }
        clock.correct();
        dataplane.stop().await.unwrap()
    });
    for thread in workers.threads {
        thread.join().unwrap();
    }
    assert_eq!(stats.generation, 3);
    // The fixed clients are one each.
    let names: Vec<&str> = stats.clients.iter().map(|c| c.client.as_str()).collect();
    assert_eq!(names, ["bypass", "default"]);
    let mut taken = 0;
    for pipe in stats.clients.iter().flat_map(|c| [&c.forward_pipe, &c.return_pipe]) {
        let pipe = pipe.as_ref().unwrap();
        let packets = |c: Option<proto::linkemu::v1::Count>| c.unwrap().packets;
        let dropped: u64 = pipe.dropped.iter().map(|d| packets(d.count)).sum();
        let received = packets(pipe.received);
        let came = received + packets(pipe.duplicated) + packets(pipe.generated);
        assert_eq!(came, packets(pipe.sent) + dropped + packets(pipe.held));
        taken += received;
    }
    // All frames at the ports were received or are counted as missed, except those in the rings and
    // between workers when these stopped one by one.
    let brought: u64 = stats.ports.iter().map(|p| p.received.unwrap().packets).sum();
    let missed: u64 = stats.ports.iter().map(|p| p.missed).sum();
    let unaccounted = brought.checked_sub(taken + missed).unwrap();
    assert!(unaccounted <= 2 * (DEPTH as u64 + 64), "{taken} taken, {missed} missed of {brought}");
    drop(dataplane);
    assert_eq!(pools.iter().map(|p| p.in_use()).sum::<u32>(), 0);
}

#[test]
fn frames_before_all_workers_are_ready_are_discarded_and_not_received() {
    let eal = eal();
    let cores = cores();
    // A frame that a ring device sends comes in there. One that a worker passed on would go to and
    // fro for ever.
    let specs = specs("net_ring", "net_ring");
    let mut opened = ports::open(&eal, &specs, needs(&cores)).unwrap();
    for (n, share) in opened.shares.iter_mut().enumerate() {
        let PairQueues::Two(ports) = &mut share.pairs[0] else { panic!("two ports") };
        for port in ports {
            let mut early = MbufBurst::new();
            for _ in 0..=n {
                early.push(share.pool.alloc(&[0xff; 60]).unwrap()).unwrap();
            }
            assert_eq!(port.tx.burst(&mut early), n + 1);
        }
    }
    let Opened { ports, shares, lends, max_frame, kept, .. } = opened;
    let limits = Limits { buffers: kept, ..Limits::copying(4 << 20, 4, max_frame) };
    let pools: Vec<_> = shares.iter().map(|s| s.pool.clone()).collect();
    let clock = TscClock::calibrate(Duration::from_millis(20));
    let running = plan("transparent");
    let settings = Settings { idle: Idle::Busy, cores, limits, tail: Tail::None };
    let lending = Lending { lends, longest: max_frame };
    let compiled = compile(&running).unwrap();
    let (workers, counters) =
        polling::spawn(&eal, shares, lending, clock, &compiled, &settings).unwrap();
    for port in &ports {
        let Counters { rx_packets, rx_bytes, rx_early, .. } = port.counters().unwrap();
        assert_eq!((rx_packets, rx_bytes, rx_early), (0, 0, 3), "{}", port.name());
    }
    let counted = Box::new(Counted::new(ports.into(), &specs, counters));
    let dataplane = Dataplane::new(workers.handles, clock, counted, Fixed::default(), running);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stats = runtime.block_on(async {
        for _ in 0..100 {
            dataplane.turned().await.unwrap();
        }
        dataplane.stop().await.unwrap()
    });
    for thread in workers.threads {
        thread.join().unwrap();
    }
    let passed = stats.workers.iter().map(|worker| worker.received.unwrap().packets);
    assert_eq!(passed.sum::<u64>(), 0);
    assert!(stats.ports.iter().all(|port| port.received.unwrap().packets == 0));
    drop(dataplane);
    assert_eq!(pools.iter().map(|p| p.in_use()).sum::<u32>(), 0);
}

#[test]
fn a_port_with_too_few_transmit_queues_is_refused_with_the_numbers() {
    let eal = eal();
    // A ring device has 16.
    let cores = [cores()[0]; 17];
    let refused = ports::open(&eal, &specs("net_ring", "net_null"), needs(&cores)).map(drop);
    let refused = refused.unwrap_err();
    assert!(matches!(refused, OpenError::Dpdk(Error::Queues { asked: 17, .. })), "{refused}");
    let text = refused.to_string();
    let numbers = "port `wan`: 17 transmit queue(s) asked for, the device has 16";
    assert!(text.contains(numbers), "{text}");
    assert!(text.contains("fewer --workers"), "{text}");
}
