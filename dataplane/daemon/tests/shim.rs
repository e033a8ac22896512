// SPDX-License-Identifier: Apache-2.0
//! A dataplane behind a P4 switch, over DPDK's ring ports and without hugepages: what shims go
//! in, and what they say when they come back.

use crate::eal::eal;
use std::time::{Duration, Instant as Wall};

use compile::compile;
use dataplane::dataplane::{Dataplane, Fixed};
use dataplane::pairs::PortPair;
use dataplane::ports::{self, Counted, Needs, Opened, PairQueues};
use dataplane::workers::{self, Settings};
use dpdk::{MbufBurst, RxQueue, TscClock, Waiter};
use emu::client::ClientKey;
use emu::engine::{Departure, Limits};
use emu::frame::{Buffer, Frame};
use emu::plan::Room;
use emu::tag::Tagged;
use emu::units::{Direction, Instant, Nanos};
use owner::{Changes, Terms};
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use shim::{Numbers, SHIM, Shim, Tick};
use worker::dpdk_io::{DpdkIo, PortQueues, Source};
use worker::edge::Tail;
use worker::io::PacketIo;
use worker::run::Idle;
use worker::shim::ShimIo;

const TICK: Tick = Tick::Microsecond;
/// There is one worker.
const NUMBERS: Numbers = Numbers { tick: TICK, room: 4096, workers: 1, worker: 0 };
const EPOCH: u16 = 7;
const SLOT: u16 = 9;
const DELAY_NS: u64 = 5_000_000;
/// The longest frame behind the shim.
const LONGEST: u32 = 1518;

fn pairs() -> Vec<PortPair> {
    let ports = ["wan=net_ring0", "client=net_ring1"].map(|s| s.parse().unwrap());
    vec![PortPair { name: None, ports }]
}

/// A link that loses all frames, in the switch.
fn plan(offload: Option<pb::Offload>) -> pb::Plan {
    let mut profile = profile::Catalog::built_in().get("transparent").unwrap().as_proto().clone();
    let forward = profile.forward_pipe.as_mut().unwrap();
    forward.delay = Some(model::Delay { base_ns: DELAY_NS, ..model::Delay::default() });
    forward.packet_loss = 1.0;
    // A rule makes a client of who only receives.
    let prefixes = vec!["10.0.0.1/32".into()];
    let alice = model::Client { name: "alice".into(), prefixes, ..model::Client::default() };
    let clients = Some(model::Clients { clients: vec![alice], ..model::Clients::default() });
    pb::Plan { profile: Some(profile), seed: 1, offload, clients }
}

fn offload() -> pb::Offload {
    let (epoch, forward_loss) = (EPOCH.into(), SLOT.into());
    pb::Offload { epoch, forward_loss, return_loss: 0, marks: true }
}

fn inner(len: usize, number: u8) -> Vec<u8> {
    let mut f = vec![number; len];
    f[12..14].copy_from_slice(&[8, 0]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
    f[30..34].copy_from_slice(&[10, 0, 0, 1]);
    f
}

fn wrap(direction: Direction, client: u16, epoch: u16, inner: &[u8]) -> Vec<u8> {
    let shim = Shim {
        direction,
        mark: false,
        client,
        epoch,
        loss: 0,
        stamp: 0x1234_5678_9abc,
        planned: 0,
    };
    [&shim.to_bytes()[..], inner].concat()
}

/// A receive queue that the test fills before the worker starts: the worker does not discard its frames.
struct Filled(Option<RxQueue>);

impl Source for Filled {
    fn burst(&mut self, into: &mut MbufBurst, most: usize) -> usize {
        self.0.burst(into, most)
    }
}

/// A frame that leaves through `wan` enters there.
fn inject<I: PacketIo>(io: &mut I, bytes: &[u8]) {
    let departure = || Departure {
        client: &ClientKey::Default,
        direction: Direction::Return,
        due: Instant::ZERO,
        frame: Frame::Bytes(bytes),
        tagged: Tagged::default(),
    };
    while !io.transmit(departure()) {
        io.flush(Instant::ZERO);
    }
    io.flush(Instant::ZERO);
}

/// Receives frames from the ring, up to a count and a time.
fn collect(rx: &mut RxQueue, most: usize) -> Vec<Vec<u8>> {
    let (mut frames, deadline) = (Vec::new(), Wall::now() + Duration::from_secs(60));
    while frames.len() < most {
        assert!(Wall::now() < deadline, "{} frames came out", frames.len());
        let mut burst = MbufBurst::new();
        rx.burst(&mut burst);
        frames.extend(burst.drain().map(|mbuf| mbuf.bytes().to_vec()));
    }
    frames
}

#[test]
fn frames_come_back_with_their_client_their_loss_and_how_long_they_were_to_be_kept() {
    let cores = vec![ports::cores()[0]];
    let needs = Needs {
        cores: &cores,
        max_frame: Some(LONGEST),
        buffers: 1 << 20,
        min_data_room: 0,
        shim: SHIM,
        pairs: 1,
        vlan: 0,
    };
    let eal = eal();
    let opened = ports::open(&eal, &pairs(), needs).unwrap();
    let Opened { ports, mut shares, max_frame, kept, .. } = opened;
    assert_eq!(max_frame, LONGEST);
    let mut share = shares.remove(0);
    let PairQueues::Two([wan, client]) = share.pairs.remove(0) else { unreachable!() };
    let mut out = client.rx.unwrap();
    let wan = PortQueues { rx: Filled(wan.rx), tx: wan.tx };
    let client = PortQueues { rx: Filled(None), tx: client.tx };
    let mut io = DpdkIo::new(wan, client, share.pool.clone(), Waiter::new());

    let forward = Direction::Forward;
    let long = inner(LONGEST as usize, 4);
    let good = [
        // To be classified, and believed: of the default client, and of the bypass.
        wrap(forward, 0, EPOCH, &inner(60, 1)),
        wrap(forward, 2, EPOCH, &inner(61, 2)),
        wrap(forward, 1, EPOCH, &inner(62, 3)),
        // The longest one, of another epoch, stays in its buffer.
        wrap(forward, 2, EPOCH + 1, &long),
    ];
    let mut cut = wrap(forward, 0, EPOCH, &[]);
    cut.truncate(31);
    let bad = [
        inner(60, 5),
        wrap(Direction::Return, 0, EPOCH, &inner(60, 6)),
        {
            let mut f = wrap(forward, 0, EPOCH, &inner(60, 7));
            f[14] = 0x20;
            f
        },
        cut,
        // A shim and nothing, and one with too long a frame.
        wrap(forward, 2, EPOCH, &[]),
        wrap(forward, 2, EPOCH, &inner(LONGEST as usize + 1, 8)),
    ];
    for frame in good.iter().chain(&bad) {
        inject(&mut io, frame);
    }

    let clock = TscClock::calibrate(Duration::from_millis(20));
    let running = plan(Some(offload()));
    let compiled = compile(&running).unwrap();
    let limits = Limits {
        memory: 16 << 20,
        clients: 4,
        frame: max_frame,
        copy_break: 256,
        buffers: kept,
        idle: Nanos::ZERO,
        offloaded: NUMBERS.clients(),
    };
    let settings =
        Settings { idle: Idle::Busy, cores: cores.clone(), limits, tail: Tail::Shim(NUMBERS) };
    let workers =
        workers::spawn(&eal, vec![ShimIo::new(io, NUMBERS)], clock, &compiled, &settings).unwrap();
    let room = Room {
        clients: 4,
        frame: max_frame,
        capacity: 1 << 40,
        tag: SHIM,
        unanswered: true,
        ..Room::default()
    };
    let description =
        pb::DescribeResponse { switch: Some(pb::Switch::default()), ..Default::default() };
    let counted = Box::new(Counted::new(ports.into(), &pairs(), Vec::new()));
    let dataplane = Dataplane::new(
        workers.handles,
        clock,
        counted,
        Fixed { room, description, ..Fixed::default() },
        running,
    );

    let mut came = collect(&mut out, good.len());
    // The bypass does not delay.
    came.sort_by_key(|f| f[SHIM as usize]);
    let shims: Vec<_> = came.iter().map(|f| Shim::read(f).unwrap()).collect();
    for ((shim, inner), sent) in shims.iter().zip(&good) {
        assert_eq!(*inner, &sent[SHIM as usize..]);
        assert_eq!((shim.direction, shim.mark, shim.stamp), (forward, false, 0x1234_5678_9abc));
    }
    let said: Vec<_> = shims.iter().map(|(s, _)| (s.client, s.epoch, s.loss, s.planned)).collect();
    let delay = (DELAY_NS / 1_000) as u32;
    let expected = [
        (3, EPOCH, SLOT, delay),
        (2, EPOCH, SLOT, delay),
        (1, EPOCH, 0, 0),
        (3, EPOCH + 1, SLOT, delay),
    ];
    assert_eq!(said, expected);

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stats = runtime.block_on(async {
        let current = dataplane.plan().await.unwrap();
        assert_eq!(current.plan.offload, Some(offload()));
        let wrong = pb::Offload { epoch: 65_536, ..offload() };
        let refused = dataplane.set_offload(Some(wrong), 0).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
        let refused = dataplane.set_offload(None, 1).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Aborted, "{refused}");
        // A change of the profile returns losses and marks to the box, and keeps client numbers.
        let profile = Some(model::Profile { name: "other".into(), ..plan(None).profile.unwrap() });
        let change = pb::Change { profile, ..Default::default() };
        let made = dataplane.apply(change, Terms::default()).await.unwrap();
        let kept = pb::Offload { epoch: offload().epoch, ..Default::default() };
        assert_eq!(made.plan.as_ref().unwrap().offload, Some(kept));
        dataplane.set_offload(Some(offload()), 1).await.unwrap();
        let current = dataplane.plan().await.unwrap();
        assert_eq!((current.plan.offload, current.applied), (Some(offload()), made.applied));
        let change = pb::Change { clients: Some(Default::default()), ..Default::default() };
        let made = dataplane.apply(change, Terms::default()).await.unwrap();
        assert_eq!(made.plan.as_ref().unwrap().offload, None);
        assert_eq!(made.applied.generation, 2);
        dataplane.stop().await.unwrap()
    });
    for thread in workers.threads {
        thread.join().unwrap();
    }
    let numbers: Vec<_> = stats.clients.iter().map(|c| (c.client.as_str(), c.number)).collect();
    assert_eq!(numbers, [("bypass", 1), ("default", 2), ("alice", 3)]);
    let pipe = |client: usize| stats.clients[client].forward_pipe.clone().unwrap();
    let dropped = |reason| {
        let found = pipe(0).dropped.iter().find(|d| d.reason() == reason).cloned();
        let count = found.and_then(|d| d.count).unwrap_or_default();
        (count.packets, count.bytes)
    };
    let bytes: usize = bad[..4].iter().map(Vec::len).sum();
    assert_eq!(dropped(model::DropReason::Shim), (4, bytes as u64));
    assert_eq!(dropped(model::DropReason::Runt), (1, 0));
    assert_eq!(dropped(model::DropReason::Oversize), (1, u64::from(LONGEST) + 1));
    // The shim is in no account.
    let sent = |client| pipe(client).sent.map(|c| (c.packets, c.bytes)).unwrap();
    assert_eq!([sent(0), sent(1), sent(2)], [(1, 62), (1, 61), (2, 60 + u64::from(LONGEST))]);
    drop(dataplane);
    drop(out);
    assert_eq!(share.pool.in_use(), 0);
}
