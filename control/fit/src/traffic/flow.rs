// SPDX-License-Identifier: Apache-2.0
//! One bulk flow from a server to a client over the link of a profile, in virtual time.

use std::collections::VecDeque;

use emu::units::{Direction, Instant};
use profile::Profile;

use super::path::{Content, Path};
use super::tcp::{Ack, Bbr, Control, Cubic, DELAY_NS, INITIAL_WINDOW, MSS, Receiver, Sender};
use crate::verify::PlayError;

const SECOND_NS: u64 = 1_000_000_000;
/// A lost handshake is repeated after this time, RFC 6298 §2.1.
const HANDSHAKE_NS: u64 = SECOND_NS;

/// A congestion control that is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    Cubic,
    Bbr,
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        })
    }
}

impl std::str::FromStr for Algorithm {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "cubic" => Ok(Self::Cubic),
            "bbr" => Ok(Self::Bbr),
            other => Err(format!("{other:?} is no modelled congestion control: cubic or bbr")),
        }
    }
}

/// The hosts and the transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    pub algorithm: Algorithm,
    pub bytes: u64,
    /// Segments that are sent before an acknowledgement.
    pub initial_window: u32,
    /// Most bytes that the receiver lets be in flight.
    pub receive_window: u64,
    /// Linux 5.1 and later: BBR's window allows for lumps of acknowledgements.
    pub lumps: bool,
    /// Time that the server takes for an acknowledgement.
    ///
    /// A link with slots delivers hundreds of them at once. What the server sends in the middle of
    /// such a burst makes the delivery rate of BBR too high, by up to a slot per round trip.
    pub per_ack_ns: u64,
    /// The flow is given up after this time.
    pub limit_ns: u64,
    /// The flow is of no interest once it has so many bytes and so much time has passed, in ns.
    pub enough: (u64, u64),
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Cubic,
            bytes: 1 << 30,
            initial_window: INITIAL_WINDOW,
            receive_window: 30_000_000,
            lumps: true,
            per_ack_ns: 4_000,
            limit_ns: 600 * SECOND_NS,
            enough: (u64::MAX, 0),
        }
    }
}

/// What was observed of a flow. Times count from the first packet of the server.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// Bytes that the client's application had at the end of each whole second, and at the end.
    pub received: Vec<u64>,
    /// Instant, and round trip of the segment that is acknowledged, both in µs.
    pub rtts: Vec<(u32, u32)>,
    pub segments: u64,
    pub transmissions: u64,
    pub recoveries: u32,
    pub timeouts: u32,
    pub complete: bool,
}

/// Plays a flow.
///
/// # Errors
/// If the profile cannot be played.
pub fn play(profile: &Profile, seed: u64, setup: &Setup) -> Result<Flow, PlayError> {
    let mut run = Run::new(Path::new(profile, seed)?, *setup, seed);
    run.run();
    Ok(run.finish())
}

struct Run {
    path: Path,
    setup: Setup,
    seed: u64,
    total: u32,
    sender: Option<Sender>,
    receiver: Receiver,
    /// Acknowledgements that the server has yet to process, and when the first of them is done.
    acks: VecDeque<Ack>,
    busy: u64,
    /// When the delayed acknowledgement is sent.
    delayed: Option<u64>,
    /// When the handshake is repeated.
    handshake: Option<u64>,
    flow: Flow,
}

impl Run {
    fn new(path: Path, setup: Setup, seed: u64) -> Self {
        let total = u32::try_from(setup.bytes.div_ceil(MSS)).unwrap_or(u32::MAX);
        Self {
            path,
            setup,
            seed,
            total,
            sender: None,
            receiver: Receiver::default(),
            acks: VecDeque::new(),
            busy: 0,
            delayed: None,
            handshake: Some(0),
            flow: Flow::default(),
        }
    }

    fn run(&mut self) {
        let mut arrived = Vec::new();
        let deadline = |s: &Option<Sender>| s.as_ref().and_then(Sender::deadline);
        loop {
            let processed = (!self.acks.is_empty()).then_some(self.busy);
            let timers = [self.handshake, self.delayed, deadline(&self.sender), processed];
            let path = self.path.next_deadline().map(|at| at.0);
            let Some(now) = timers.into_iter().chain([path]).flatten().min() else { break };
            if now > self.setup.limit_ns
                || self.receiver.delivered() == self.total
                || self.enough(now)
            {
                break;
            }
            self.count(now);
            let at = Instant(now);
            self.path.release(at, &mut arrived);
            for (direction, content) in arrived.drain(..) {
                match (direction, content) {
                    (Direction::Forward, content) => self.at_client(now, content),
                    (Direction::Return, content) => self.at_server(now, content),
                }
            }
            if self.delayed.is_some_and(|at| at <= now) {
                self.delayed = None;
                if let Some(ack) = self.receiver.delayed() {
                    self.path.send(at, Direction::Return, Content::Ack(ack));
                }
            }
            self.path.flush(at, Direction::Return);
            if self.busy <= now
                && let Some(ack) = self.acks.pop_front()
            {
                self.acknowledge(now, &ack);
                self.busy = now + self.setup.per_ack_ns;
            }
            if self.handshake.is_some_and(|at| at <= now) {
                self.handshake = Some(now + HANDSHAKE_NS);
                self.path.send(at, Direction::Forward, Content::Handshake);
            }
            if let Some(sender) = &mut self.sender {
                let path = &mut self.path;
                sender.transmit(now, |n| path.send(at, Direction::Forward, Content::Data(n)));
            }
            self.path.flush(at, Direction::Forward);
        }
    }

    fn enough(&self, now: u64) -> bool {
        let (bytes, after) = self.setup.enough;
        now >= after && u64::from(self.receiver.delivered()) * MSS >= bytes
    }

    /// Enters the seconds that have passed.
    fn count(&mut self, now: u64) {
        while (self.flow.received.len() as u64 + 1) * SECOND_NS <= now {
            self.flow.received.push(u64::from(self.receiver.delivered()) * MSS);
        }
    }

    fn at_client(&mut self, now: u64, content: Content) {
        let at = Instant(now);
        match content {
            Content::Handshake => self.path.send(at, Direction::Return, Content::Handshake),
            Content::Data(number) => match self.receiver.receive(number) {
                Some(ack) => {
                    self.delayed = None;
                    self.path.send(at, Direction::Return, Content::Ack(ack));
                }
                None => self.delayed = Some(now + DELAY_NS),
            },
            Content::Ack(_) => {}
        }
    }

    fn at_server(&mut self, now: u64, content: Content) {
        match content {
            Content::Handshake if self.sender.is_none() => {
                // Of a repeated handshake, the last one.
                let rtt = self.handshake.map_or(now, |again| now - (again - HANDSHAKE_NS));
                self.handshake = None;
                let control: Box<dyn Control> = match self.setup.algorithm {
                    Algorithm::Cubic => Box::<Cubic>::default(),
                    Algorithm::Bbr => Box::new(Bbr::new(self.seed, self.setup.lumps, now, rtt)),
                };
                let window = self.setup.receive_window / MSS;
                let window = u32::try_from(window).unwrap_or(u32::MAX).max(1);
                let windows = [self.setup.initial_window, window];
                self.sender = Some(Sender::new(control, self.total, windows, now, rtt));
            }
            Content::Ack(ack) => {
                if self.acks.is_empty() {
                    self.busy = self.busy.max(now + self.setup.per_ack_ns);
                }
                self.acks.push_back(ack);
            }
            Content::Handshake | Content::Data(_) => {}
        }
    }

    fn acknowledge(&mut self, now: u64, ack: &Ack) {
        if let Some(rtt) = self.sender.as_mut().and_then(|s| s.acknowledge(now, ack)) {
            let us = |ns: u64| u32::try_from(ns / 1000).unwrap_or(u32::MAX);
            self.flow.rtts.push((us(now), us(rtt)));
        }
    }

    fn finish(mut self) -> Flow {
        self.flow.received.push(u64::from(self.receiver.delivered()) * MSS);
        self.flow.complete = self.receiver.delivered() == self.total;
        self.flow.segments = self.receiver.delivered().into();
        if let Some(sender) = &self.sender {
            self.flow.transmissions = sender.sums.transmissions;
            self.flow.recoveries = sender.sums.recoveries;
            self.flow.timeouts = sender.sums.timeouts;
        }
        self.flow
    }
}

impl Flow {
    /// Whole seconds until `bytes` were received; none if they were not.
    #[must_use]
    pub fn seconds_to(&self, bytes: u64) -> Option<usize> {
        let place = self.received.partition_point(|r| *r < bytes);
        (place < self.received.len()).then_some(place + 1)
    }

    /// Mbit/s from byte `from` to byte `to`, over whole seconds.
    #[must_use]
    pub fn throughput(&self, from: u64, to: u64) -> Option<f64> {
        let begin = if from == 0 { 0 } else { self.seconds_to(from)? };
        let seconds = self.seconds_to(to)?.checked_sub(begin).filter(|s| *s > 0)?;
        Some((to - from) as f64 * 8e-6 / seconds as f64)
    }

    /// When the first segment was sent, in s: of the first acknowledgement.
    #[must_use]
    pub fn begun_s(&self) -> Option<f64> {
        self.rtts.first().map(|(at, rtt)| (f64::from(*at) - f64::from(*rtt)) / 1e6)
    }

    /// Acknowledgements of segments that were sent before the first one arrived; none without
    /// round trips. They are one for each segment at the start of a flow.
    #[must_use]
    pub fn first_window(&self) -> Option<u32> {
        let (first, _) = self.rtts.first()?;
        let sent_before = |(at, rtt): &&(u32, u32)| at.saturating_sub(*rtt) < *first;
        u32::try_from(self.rtts.iter().take_while(sent_before).count()).ok()
    }

    /// Round trips in ms above `least_ms` within a span in seconds.
    pub fn rtts_ms(
        &self,
        span_s: std::ops::Range<f64>,
        least_ms: f64,
    ) -> impl Iterator<Item = f64> + '_ {
        self.rtts
            .iter()
            .filter(move |(at, _)| span_s.contains(&(f64::from(*at) / 1e6)))
            .map(|(_, rtt)| f64::from(*rtt) / 1e3)
            .filter(move |rtt| *rtt > least_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link of 20 Mbit/s towards the client, 100 ms in both directions together, with `queue` and
    /// further lines of the forward direction.
    fn link(queue: &str, more: &str) -> Profile {
        let text = format!(
            "name = \"lab\"\n[forward]\nrate = \"20 Mbit/s\"\nqueue.limit = \"{queue}\"\n\
             delay.base = \"50 ms\"\n{more}\n[return]\nrate = \"20 Mbit/s\"\n\
             queue.limit = \"1 MB\"\ndelay.base = \"50 ms\""
        );
        Profile::from_toml(&text).unwrap()
    }

    fn flow(profile: &Profile, algorithm: Algorithm, bytes: u64) -> Flow {
        let setup = Setup { algorithm, bytes, ..Setup::default() };
        let flow = play(profile, 1, &setup).unwrap();
        assert!(flow.complete);
        flow
    }

    /// Goodput of the link in Mbit/s.
    const GOODPUT: f64 = 20.0 * 1448.0 / 1514.0;

    #[test]
    fn bulk_flow_fills_a_deep_queue_and_reaches_the_goodput() {
        let profile = link("500 kB", "");
        for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
            let flow = flow(&profile, algorithm, 60_000_000);
            let share = flow.throughput(20_000_000, 60_000_000).unwrap() / GOODPUT;
            assert!((0.9..1.02).contains(&share), "{algorithm:?} {share}");
            let rtts: Vec<f64> = flow.rtts_ms(0.0..1e9, 0.0).collect();
            let least = rtts.iter().copied().fold(f64::MAX, f64::min);
            assert!((100.0..102.0).contains(&least), "{algorithm:?} {least}");
        }
    }

    #[test]
    fn cubic_fills_the_queue_and_bbr_probes_below_it() {
        let profile = link("500 kB", "");
        let mean = |algorithm| {
            let flow = flow(&profile, algorithm, 60_000_000);
            let rtts: Vec<f64> = flow.rtts_ms(5.0..1e9, 0.0).collect();
            rtts.iter().sum::<f64>() / rtts.len() as f64
        };
        let (cubic, bbr) = (mean(Algorithm::Cubic), mean(Algorithm::Bbr));
        // The queue holds 200 ms.
        assert!((200.0..300.0).contains(&cubic), "{cubic}");
        assert!((100.0..200.0).contains(&bbr), "{bbr}");
    }

    #[test]
    fn slow_start_doubles_the_window_each_round_trip() {
        let profile = link("10 MB", "");
        let flow = flow(&profile, Algorithm::Cubic, 1_000_000);
        let at = |n: f64| flow.rtts_ms(0.0..n, 0.0).count();
        // 10, 20 and 40 segments; the first 16 are acknowledged one by one, then two at a time.
        assert_eq!([at(0.25), at(0.35), at(0.45)], [10, 10 + 6 + 7, 10 + 6 + 7 + 20]);
    }

    #[test]
    fn each_lost_segment_is_sent_again_once() {
        for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
            let profile = link("10 MB", "packet_loss = \"0.1 %\"");
            let flow = flow(&profile, algorithm, 20_000_000);
            let again = flow.transmissions - flow.segments;
            // 13,812 segments, 0.1 % lost, ± 4 standard deviations.
            assert!((2..=29).contains(&again), "{algorithm:?} {again}");
            assert_eq!(flow.timeouts, 0);
        }
    }

    #[test]
    fn loss_slows_cubic_and_not_bbr() {
        let profile = link("10 MB", "packet_loss = \"0.5 %\"");
        let rate = |algorithm| flow(&profile, algorithm, 20_000_000).throughput(0, 20_000_000);
        let (cubic, bbr) = (rate(Algorithm::Cubic).unwrap(), rate(Algorithm::Bbr).unwrap());
        assert!(cubic < 0.5 * GOODPUT && bbr > 0.75 * GOODPUT, "{cubic} {bbr}");
    }

    #[test]
    fn outage_of_seconds_ends_in_a_timeout_and_the_flow_recovers() {
        let outages =
            "[[forward.outages]]\ninterval = \"10 s\"\nduration = \"2 s\"\nlaw = \"fixed\"";
        let profile = link("10 MB", outages);
        for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
            let flow = flow(&profile, algorithm, 40_000_000);
            assert!(flow.timeouts > 0, "{algorithm:?}");
        }
    }

    #[test]
    fn receive_window_limits_the_flow() {
        let profile = link("10 MB", "");
        let setup = Setup { bytes: 5_000_000, receive_window: 100_000, ..Setup::default() };
        let flow = play(&profile, 1, &setup).unwrap();
        let rate = flow.throughput(1_000_000, 5_000_000).unwrap();
        // 69 segments per round trip of 101 ms.
        assert!((7.0..8.1).contains(&rate), "{rate}");
    }

    #[test]
    fn same_seed_gives_the_same_flow() {
        let profile = link("500 kB", "packet_loss = \"0.1 %\"");
        let once = flow(&profile, Algorithm::Cubic, 5_000_000);
        let again = flow(&profile, Algorithm::Cubic, 5_000_000);
        assert_eq!((once.received, once.rtts), (again.received, again.rtts));
    }
}
