// SPDX-License-Identifier: Apache-2.0
//! Two real dataplanes with real workers, whose ports are queues of this process. The test is the
//! switch: it gives each frame to the box that owns the client.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant as Wall};

use dataplane::accounts::PortAccount;
use dataplane::dataplane::{Dataplane, Fixed, Ports};
use dataplane::links::Links;
use dataplane::service::Service;
use dpdk::TscClock;
use emu::engine::{Departure, Engine, Limits};
use emu::frame::Frame;
use emu::plan::Room;
use emu::units::{Direction, Instant};
use fake::declared_switch;
use group::file::GroupFile;
use group::group::Group;
use owner::Changes;
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::dataplane_server::DataplaneServer;
use proto::linkemu::v1 as pb;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use worker::clock::Clock;
use worker::command::channel;
use worker::io::{Arrivals, EgressCounters, PacketIo, Reception};
use worker::run::{Idle, Worker};

/// From one frame to the next, and of the client: 1000 bytes at 1.6 Mbit/s.
const EVERY: Duration = Duration::from_millis(4);
const SERVICE_NS: u64 = 5_000_000;
const DELAY_NS: u64 = 30_000_000;
const FRAMES: u32 = 150;
/// The first frame after the move began.
const MOVED: u32 = 75;

type Queue = Arc<Mutex<VecDeque<Vec<u8>>>>;
/// Number of each frame, and when it was due.
type Left = Vec<(u32, Instant)>;

/// Ports that take frames from a queue, and remember those that they sent.
struct Line {
    queue: Queue,
    left: Left,
}

impl PacketIo for Line {
    type Buffer = Vec<u8>;

    fn receive(
        &mut self,
        clock: &mut impl Clock,
        arrivals: &mut impl Arrivals<Vec<u8>>,
        _: usize,
    ) -> usize {
        let Some(frame) = self.queue.lock().unwrap().pop_front() else { return 0 };
        arrivals.burst(Reception::new(clock.now(), Direction::Forward), &mut [Some(frame)]);
        1
    }

    fn transmit(&mut self, departure: Departure<'_, Vec<u8>>) -> bool {
        let number = departure.bytes()[34..38].try_into().unwrap();
        self.left.push((u32::from_be_bytes(number), departure.due));
        if let Frame::Buffer(buffer) = departure.frame {
            buffer.take();
        }
        true
    }

    fn flush(&mut self, _: Instant) {}

    fn egress(&self, _: usize, _: Direction) -> EgressCounters {
        EgressCounters::default()
    }

    fn wait(&mut self, _: Duration) -> bool {
        !self.queue.lock().unwrap().is_empty()
    }
}

struct NoPorts;

impl Ports for NoPorts {
    fn accounts(&self) -> Vec<[PortAccount; 2]> {
        vec![Default::default()]
    }
}

/// A box: its dataplane, and the ports of its worker.
struct RealBox {
    clock: TscClock,
    dataplane: Dataplane,
    queue: Queue,
    worker: JoinHandle<Left>,
}

impl RealBox {
    fn new(place: u32) -> Self {
        let clock = TscClock::calibrate(Duration::from_millis(100));
        let catalog = profile::Catalog::built_in();
        let transparent = catalog.get("transparent").unwrap().as_proto().clone();
        let plan = dp::Plan { profile: Some(transparent), seed: 1, ..Default::default() };
        let compiled = compile::compile(&plan).unwrap();
        let (handle, inbox) = channel(4);
        let queue = Queue::default();
        let line = Line { queue: queue.clone(), left: Left::new() };
        let worker = thread::spawn(move || {
            let limits = Limits::copying(16 << 20, 4, 1514);
            let engine = Engine::new(limits, compiled, Instant::ZERO).unwrap();
            let mut worker = Worker::new(engine, line, clock, inbox, Idle::Adaptive);
            worker.run();
            worker.into_io().left
        });
        let boxes = vec![dp::SwitchBox { wan_port: 10 * place, client_port: 10 * place + 1 }];
        let switch = declared_switch("http://127.0.0.1:9559");
        let description = dp::DescribeResponse {
            version: "test".into(),
            instance: u64::from(place) + 1,
            switch: Some(dp::Switch {
                boxes,
                sharing: 2,
                wan_ports: vec![40],
                client_ports: vec![41],
                ..switch
            }),
            ..Default::default()
        };
        let room =
            Room { clients: 4, frame: 1514, capacity: 16 << 20, workers: 1, ..Room::default() };
        let fixed = Fixed { room, description, ..Fixed::default() };
        let dataplane = Dataplane::new(vec![handle], clock, Box::new(NoPorts), fixed, plan);
        Self { clock, dataplane, queue, worker }
    }

    fn serve(&self, path: PathBuf) {
        let service = DataplaneServer::new(Service::new(Links::new(self.dataplane.clone())));
        let incoming = UnixListenerStream::new(UnixListener::bind(path).unwrap());
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(async move { server.serve_with_incoming(incoming).await });
    }
}

/// A frame of the client with a number, of 1000 bytes.
fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![0; 1000];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[16..18].copy_from_slice(&986_u16.to_be_bytes());
    frame[26..30].copy_from_slice(&[192, 0, 2, 1]);
    frame[30..34].copy_from_slice(&[10, 0, 0, 7]);
    frame[34..38].copy_from_slice(&number.to_be_bytes());
    frame
}

/// The second clock less the first one, read at the same time.
fn apart(one: &TscClock, other: &TscClock) -> i64 {
    let reads = (0..100).map(|_| {
        let (before, middle, after) = (one.now(), other.now(), one.now());
        (after - before, middle as i64 - before as i64)
    });
    reads.min().unwrap().1
}

fn change() -> dp::Change {
    let mut profile = profile::Catalog::built_in().get("transparent").unwrap().as_proto().clone();
    for pipe in [&mut profile.forward_pipe, &mut profile.return_pipe].into_iter().flatten() {
        pipe.rate_bps = Some(1_600_000);
        pipe.queue = Some(pb::Queue { limit_bytes: 1 << 20, ..Default::default() });
        pipe.delay = Some(pb::Delay { base_ns: DELAY_NS, ..Default::default() });
    }
    let client =
        pb::Client { name: "a".into(), prefixes: vec!["10.0.0.7/32".into()], ..Default::default() };
    let clients = Some(pb::Clients { clients: vec![client], ..Default::default() });
    dp::Change { profile: Some(profile), clients, ..Default::default() }
}

async fn group(boxes: &[RealBox], directory: &Path) -> Group {
    let mut text = String::new();
    for (place, it) in boxes.iter().enumerate() {
        let path = directory.join(format!("b{place}"));
        text += &format!(
            "[[box]]\nname = \"b{}\"\ndataplane = \"unix:{}\"\n",
            place + 1,
            path.display()
        );
        it.serve(path);
    }
    text += "[owner]\na = \"b1\"\n";
    let group = Group::new(GroupFile::parse(&text, directory).unwrap(), 7);
    let keeping = group.clone();
    tokio::spawn(async move { keeping.keep("test").await });
    group.settle().await.unwrap();
    group
}

#[tokio::test]
async fn client_moves_between_real_dataplanes_without_loss_or_overtaking() {
    let directory = tempfile::tempdir().unwrap();
    let boxes: Vec<_> = (0..2).map(RealBox::new).collect();
    let group = group(&boxes, directory.path()).await;
    let made = group.apply(change(), owner::Terms::default()).await.unwrap();
    // Each box has its instant on its own clock.
    let mut instants = Vec::new();
    for it in &boxes {
        instants.push(it.dataplane.plan().await.unwrap().applied.effective_ns as i64);
    }
    let offset = apart(&boxes[0].clock, &boxes[1].clock);
    let spread = (instants[1] - instants[0] - offset).unsigned_abs();
    let errors: u64 = group.boxes().iter().map(|it| it.clock_error_ns).sum();
    println!("instants are {spread} ns apart; the clocks are known to {errors} ns");
    // Beyond the clocks: a worker that is late, as the answer says.
    let late = made.remarks.iter().any(|it| it.contains("made the change"));
    assert!(late || spread <= 2 * errors + 10_000, "{spread} {errors} {:?}", made.remarks);

    let owner = Arc::new(Mutex::new(0));
    let queues: Vec<_> = boxes.iter().map(|it| it.queue.clone()).collect();
    let switch = thread::spawn({
        let owner = owner.clone();
        move || {
            let start = Wall::now();
            for number in 0..FRAMES {
                thread::sleep((start + EVERY * number).saturating_duration_since(Wall::now()));
                let owner = *owner.lock().unwrap();
                let queue: &Queue = &queues[owner];
                queue.lock().unwrap().push_back(frame(number));
            }
        }
    });
    tokio::time::sleep(EVERY * MOVED).await;
    let (clients, to) = (vec!["a".to_owned()], "b2".to_owned());
    let request = dp::BeginMoveRequest { clients, to, ..Default::default() };
    let begun = group.begin_move(request).await.unwrap();
    *owner.lock().unwrap() = 1;
    let finished = group.finish_move(begun.r#move).await.unwrap();
    println!("frames were held for {} µs", finished.held_ns / 1_000);
    assert_eq!(finished.abandoned, 0);
    switch.join().unwrap();
    // Until all have left: the queue has half of them.
    let stats = loop {
        let stats = group.stats(false).await.unwrap();
        let client = stats.clients.iter().find(|it| it.client == "a").unwrap();
        let sent = client.forward_pipe.as_ref().unwrap().sent.unwrap();
        if sent.packets == u64::from(FRAMES) {
            break stats;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let client = stats.clients.iter().find(|it| it.client == "a").unwrap();
    let pipe = client.forward_pipe.as_ref().unwrap();
    assert_eq!(pipe.received.unwrap().packets, u64::from(FRAMES));
    assert_eq!((pipe.held.unwrap_or_default().packets, pipe.dropped.len()), (0, 0));
    let mut all = Left::new();
    for (place, it) in boxes.into_iter().enumerate() {
        it.dataplane.stop().await.unwrap();
        let left = it.worker.join().unwrap();
        assert!(left.len() > 20, "box {place} has sent {} frames", left.len());
        let back = if place == 0 { 0 } else { -offset };
        all.extend(
            left.into_iter().map(|(n, due)| (n, Instant(due.0.saturating_add_signed(back)))),
        );
    }
    // On one clock, in the order in which they came, and none faster than the rate. The clocks are
    // known to their errors.
    let numbers: Vec<_> = all.iter().map(|it| it.0).collect();
    assert_eq!(numbers, (0..FRAMES).collect::<Vec<_>>());
    for pair in all.windows(2) {
        let gap = pair[1].1.0 as i64 - pair[0].1.0 as i64;
        assert!(gap >= -(2 * errors as i64), "{pair:?}");
    }
    let last = all.last().unwrap().1.0 - all[0].1.0;
    assert!(last >= u64::from(FRAMES - 3) * SERVICE_NS, "{last}");
}
