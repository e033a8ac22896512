// SPDX-License-Identifier: Apache-2.0
//! Several port pairs: a frame leaves on the pair that it came in by, links and clients can be those
//! of a pair, and a pair that takes nothing does not hold up the others.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use emu::client::{ClientKey, ClientName};
use emu::engine::{Departure, Engine, Limits};
use emu::frame::Frame;
use emu::links::{Board, MAIN};
use emu::matches::Match;
use emu::mtu::{AnswerPlan, MtuPlan};
use emu::plan::Plan;
use emu::rules::Rule;
use emu::units::{BitRate, ByDirection, Direction, Instant, Nanos, Probability};
use worker::capture::{Capture, Point, Selection, Sighting, Sink};
use worker::clock::{Clock, VirtualClock};
use worker::command::{Report, channel};
use worker::distribute::{Distributed, Lending, connect};
use worker::edge::{Edge, Tail};
use worker::io::{Arrivals, EgressCounters, PacketIo};
use worker::paired::{Paired, PairedIo};
use worker::run::{Idle, Worker};
use worker::sim::{Arrival, SimIo, resolving, run, run_all};

use Direction::{Forward, Return};

type Buffer = Paired<Vec<u8>>;
type Sim = Worker<PairedIo<SimIo>, VirtualClock>;

const PAIRS: u8 = 3;

/// A UDP packet to or from 10.0.0.`host`, with its number and its pair in the payload.
fn frame(direction: Direction, host: u8, pair: u8, number: u32, len: u16) -> Vec<u8> {
    let mut f = vec![2; 12];
    f.extend([8, 0, 0x45, 0]);
    f.extend((len - 14).to_be_bytes());
    // DF, so that it is answered.
    f.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    let (client, remote) = ([10, 0, 0, host], [192, 0, 2, 1]);
    let (source, destination) =
        if direction == Forward { (remote, client) } else { (client, remote) };
    f.extend([source, destination].concat());
    let sum = f[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>();
    let sum = !((sum >> 16) + (sum & 0xffff)) as u16;
    f[24..26].copy_from_slice(&sum.to_be_bytes());
    f.extend(number.to_be_bytes());
    f.push(pair);
    f.resize(len.into(), 0);
    f
}

fn number_of(frame: &[u8]) -> (u32, u8) {
    (u32::from_be_bytes(*frame[34..].first_chunk().unwrap()), frame[38])
}

/// Frames of several hosts, some longer than the copy break, on all pairs. Each host has sent
/// before; the same hosts are on all pairs.
fn arrivals(pair: u8) -> Vec<Arrival> {
    let mut all = Vec::new();
    for host in 1..5 {
        all.push(Arrival {
            at: Instant(0),
            direction: Return,
            frame: resolving([10, 0, 0, host].into()),
        });
    }
    for n in 0..400_u32 {
        let direction = Direction::BOTH[n as usize % 2];
        let len = [60, 590, 1514][n as usize % 3];
        let host = 1 + (n / 7 % 4) as u8;
        let at = Instant(1_000 + u64::from(n) * 10_000 + u64::from(pair));
        all.push(Arrival { at, direction, frame: frame(direction, host, pair, n, len) });
    }
    all
}

const LIMITS: Limits =
    Limits { copy_break: 1_000, buffers: 64, ..Limits::copying(8 << 20, 16, 1_514) };

fn plan(delay: Nanos) -> Plan {
    let mut plan = Plan { seed: 5, ..Plan::transparent() };
    for pipe in &mut plan.pipes.0 {
        pipe.rate = BitRate::bps(500_000_000).into();
        pipe.delay.base = delay;
        pipe.packet_loss = Probability::new(0.05).into();
        pipe.duplicate = Probability::new(0.1);
    }
    plan
}

fn io() -> PairedIo<SimIo> {
    PairedIo::new((0..PAIRS).map(|pair| SimIo::new(arrivals(pair), 8)).collect())
}

fn worker(plan: Plan) -> (Sim, VirtualClock) {
    let clock = VirtualClock::default();
    let engine = Engine::<Buffer>::new(LIMITS, plan, Instant::ZERO).unwrap();
    let (_, inbox) = channel(16);
    (Worker::new(engine, io(), clock.clone(), inbox, Idle::Busy), clock)
}

fn name(text: &str) -> ClientName {
    text.parse().unwrap()
}

fn names() -> [ClientName; 3] {
    ["a", "b", "c"].map(name)
}

fn of_pair(pair: &str) -> Rule {
    Rule::Match(Match { port_pair: Some(name(pair)), ..Match::default() })
}

#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<Vec<Sighting>>>);

impl Sink for Seen {
    fn take(&mut self, sighting: &Sighting, _: &[u8]) {
        self.0.lock().unwrap().push(*sighting);
    }
}

#[test]
fn frames_leave_unchanged_on_their_own_pair_and_are_conserved() {
    for captured in [false, true] {
        let (mut worker, clock) = worker(plan(Nanos::from_millis(3)));
        let seen = Seen::default();
        if captured {
            let selection = Selection::new(Vec::new(), ByDirection([true; 2]));
            let capture = Capture::new(selection, Instant::ZERO, 64, Box::new(seen.clone()));
            let main = worker.links_mut().link(MAIN).unwrap();
            main.set_observer(Edge::observer(Tail::Pair, Some(capture)));
        }
        run(&mut worker, &clock);
        let mut report = Report::default();
        worker.report(MAIN, clock.clone().now(), false, &mut report);
        assert!(report.snapshot.is_conserved());
        assert_eq!((report.snapshot.total().held.packets, report.snapshot.buffers), (0, 0));
        let mut left = 0;
        for (pair, io) in (0..).zip(worker.io().pairs()) {
            for sent in io.sent.iter().filter(|sent| sent.client != ClientKey::Bypass) {
                let (number, of) = number_of(&sent.frame);
                assert_eq!(of, pair);
                let len = [60, 590, 1514][number as usize % 3];
                let host = 1 + (number / 7 % 4) as u8;
                assert_eq!(sent.frame, frame(sent.direction, host, pair, number, len));
            }
            let bypassed = io.sent.iter().filter(|sent| sent.client == ClientKey::Bypass).count();
            assert_eq!(bypassed, 4);
            // Each pair brought 400 frames; a few were lost or doubled.
            assert!((360..480).contains(&(io.sent.len() - bypassed)), "{}", io.sent.len());
            left += io.sent.len() as u64;
        }
        assert_eq!(report.snapshot.total().sent.packets, left);
        let egress = |s: &&Sighting| s.point == Point::Egress && s.number.is_some();
        let egresses = seen.0.lock().unwrap().iter().filter(egress).count();
        assert_eq!(egresses as u64, if captured { left } else { 0 });
    }
}

#[test]
fn several_workers_keep_pairs_apart() {
    let clock = VirtualClock::default();
    let mut shares: Vec<Vec<Distributed<SimIo>>> = vec![Vec::new(), Vec::new()];
    for pair in 0..PAIRS {
        let ports = vec![SimIo::new(arrivals(pair), 8), SimIo::new(Vec::new(), 8)];
        let connected = connect(ports, Lending { lends: true, longest: 1_514 });
        shares.iter_mut().zip(connected).for_each(|(share, io)| share.push(io));
    }
    let mut workers: Vec<_> = shares
        .into_iter()
        .map(|share| {
            let plan = plan(Nanos::from_millis(1));
            let engine = Engine::<Buffer>::new(LIMITS, plan, Instant::ZERO).unwrap();
            let (_, inbox) = channel(16);
            Worker::new(engine, PairedIo::new(share), clock.clone(), inbox, Idle::Busy)
        })
        .collect();
    run_all(&mut workers, &clock);
    for pair in 0..PAIRS {
        let mut sent = 0;
        for worker in &workers {
            let of_clients = worker.io().pairs()[usize::from(pair)].inner().sent.iter();
            for frame in of_clients.filter(|sent| sent.client != ClientKey::Bypass) {
                assert_eq!(number_of(&frame.frame).1, pair);
                sent += 1;
            }
        }
        assert!((360..480).contains(&sent), "{sent}");
    }
    let both = workers.iter().all(|w| w.io().pairs().iter().any(|io| io.inner().sent.len() > 50));
    assert!(both, "each worker owns some clients");
}

#[test]
fn rule_by_pair_assigns_its_frames_to_a_link() {
    let (slow, fast) = (Nanos::from_millis(50), Nanos::from_millis(2));
    let (mut worker, clock) = worker(plan(fast));
    let links = worker.links_mut();
    let other = Engine::sharing(LIMITS, plan(slow), Instant::ZERO).unwrap();
    links.add(1, Box::new(other), None).unwrap();
    let mut board = Board::default();
    board.insert(of_pair("b"), name("second"), 1).unwrap();
    board.set_pairs(&names()).unwrap();
    links.set_board(Instant::ZERO, Arc::new(board));
    run(&mut worker, &clock);
    for (pair, io) in (0_u8..).zip(worker.io().pairs()) {
        let expected = if pair == 1 { slow } else { fast };
        for sent in io.sent.iter().filter(|sent| sent.client != ClientKey::Bypass) {
            let (number, of) = number_of(&sent.frame);
            assert_eq!(of, pair);
            let arrived = Instant(1_000 + u64::from(number) * 10_000 + u64::from(pair));
            let took = sent.due.since(arrived);
            assert!(took >= expected && took < expected + Nanos::from_millis(5), "{took:?}");
        }
        assert!(io.sent.len() > 360);
    }
}

#[test]
fn rule_by_pair_makes_a_client_of_its_frames() {
    let mut plan = plan(Nanos::ZERO);
    let mut rules = emu::rules::Rules::default();
    rules.insert(of_pair("c"), name("third")).unwrap();
    rules.reserved = 1;
    rules.set_pairs(&names()).unwrap();
    plan.rules = Arc::new(rules);
    let (mut worker, clock) = worker(plan);
    run(&mut worker, &clock);
    for (pair, io) in (0..).zip(worker.io().pairs()) {
        let mut whose = BTreeMap::<bool, usize>::new();
        for sent in io.sent.iter().filter(|sent| sent.client != ClientKey::Bypass) {
            *whose.entry(sent.client == ClientKey::Named(name("third"))).or_default() += 1;
        }
        assert_eq!(whose.keys().copied().collect::<Vec<_>>(), [pair == 2], "{whose:?}");
    }
}

#[test]
fn answer_to_packet_above_mtu_leaves_on_its_pair() {
    let mut plan = Plan::transparent();
    let answers = Some(AnswerPlan { v4: None, v6: None, rate: 1000 });
    plan.pipes[Forward].mtu = Some(MtuPlan { limit: 1_000, answers });
    let (mut worker, clock) = worker(plan);
    run(&mut worker, &clock);
    for (pair, io) in (0..).zip(worker.io().pairs()) {
        let is_answer = |f: &[u8]| f.len() > 38 && f[12..14] == [8, 0] && f[23] == 1;
        let answers: Vec<_> = io.sent.iter().filter(|s| is_answer(&s.frame)).collect();
        assert!(answers.len() > 10, "{}", answers.len());
        for answer in answers {
            assert_eq!(answer.direction, Return);
            // The quoted packet: behind Ethernet, IP and ICMP headers, without its own Ethernet.
            let quoted = &answer.frame[14 + 20 + 8..];
            assert_eq!(quoted[24], pair);
        }
    }
}

/// A port pair that takes frames or not.
#[derive(Debug, Default)]
struct Valve {
    open: bool,
    offered: usize,
    sent: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl PacketIo for Valve {
    type Buffer = Vec<u8>;

    fn receive(&mut self, _: &mut impl Clock, _: &mut impl Arrivals<Vec<u8>>, _: usize) -> usize {
        0
    }

    fn transmit(&mut self, d: Departure<'_, Vec<u8>>) -> bool {
        self.offered += 1;
        if self.open {
            self.sent.borrow_mut().push(d.bytes().to_vec());
            if let Frame::Buffer(buffer) = d.frame {
                buffer.take();
            }
        }
        self.open
    }

    fn flush(&mut self, _now: Instant) {}

    fn egress(&self, _pair: usize, _direction: Direction) -> EgressCounters {
        EgressCounters { staged: 0, dropped: self.offered as u64 }
    }

    fn wait(&mut self, _timeout: Duration) -> bool {
        false
    }
}

/// Offers the frames of an engine to a [`PairedIo`].
struct Out<'a>(&'a mut PairedIo<Valve>);

impl emu::engine::Egress<Buffer> for Out<'_> {
    fn offer(&mut self, departure: Departure<'_, Buffer>) -> bool {
        self.0.transmit(departure)
    }

    fn is_full(&self, direction: Direction) -> bool {
        self.0.is_full(direction)
    }
}

#[test]
fn pair_that_takes_nothing_does_not_hold_up_clients_of_others() {
    const CLIENTS: u8 = 100;
    let sent = Rc::<RefCell<Vec<Vec<u8>>>>::default();
    let valve = |open| Valve { open, sent: sent.clone(), ..Valve::default() };
    let mut io = PairedIo::new(vec![valve(true), valve(false)]);
    // All clients but the last one have frames of the pair that takes nothing. The last one's come
    // in by the other pair. Then the first client gets one of that pair, too.
    let mut rules = emu::rules::Rules::default();
    for host in 1..=CLIENTS {
        let rule = Rule::Prefix([10, 0, 0, host].into(), 32);
        rules.insert(rule, name(&format!("c{host}"))).unwrap();
    }
    rules.reserved = CLIENTS.into();
    let limits = Limits { clients: CLIENTS.into(), ..LIMITS };
    let plan = Plan { rules: Arc::new(rules), ..Plan::transparent() };
    let mut engine = Engine::<Buffer>::new(limits, plan, Instant::ZERO).unwrap();
    let mut arrive = |host, pair: u8| {
        let label = emu::frame::Label { tag: &[pair, 0, 0, 0], pair, ..emu::frame::Label::NONE };
        let frame = frame(Forward, host, pair, 0, 60);
        engine.arrive_labelled(Instant::ZERO, Forward, &frame, label);
    };
    (1..CLIENTS).for_each(|host| arrive(host, 1));
    arrive(CLIENTS, 0);
    arrive(1, 0);
    let mut turn = |io: &mut PairedIo<Valve>| {
        let n = engine.release(Instant::ZERO, usize::MAX, &mut Out(io));
        io.flush(Instant::ZERO);
        n
    };
    assert_eq!(turn(&mut io), 1, "the other pair's client is served in the same turn");
    assert_eq!(sent.borrow()[0], frame(Forward, CLIENTS, 0, 0, 60));
    assert_eq!(turn(&mut io), 0, "the queue of the first client is in order");
    // The pair was asked once in each turn.
    assert_eq!(io.egress(1, Forward).dropped, 2);
    assert_eq!(io.egress(0, Forward).dropped, 1);
    let mut io = PairedIo::new(vec![valve(true), valve(true)]);
    assert_eq!(turn(&mut io), usize::from(CLIENTS));
}
