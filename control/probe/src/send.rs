// SPDX-License-Identifier: Apache-2.0
//! The sender: the core, a socket, a log and a clock in one blocking thread.
//!
//! The loop drains the socket, writes completed rows and sends a due probe. Otherwise it waits for the
//! earliest of: next probe, datagram, timeout of the oldest probe, next tick. It wakes up shortly
//! before a probe is due and polls until then.

use crate::clock::{Clock, Stamp};
use crate::error::Error;
use crate::log::Log;
use crate::packet::{HEADER, Header, Kind};
use crate::plan::Plan;
use crate::prober::Prober;
use crate::report::{Recorder, Report};
use crate::socket::{Receiver, wait};
use crate::stop::{Stop, Urgency};
use nix::errno::Errno;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

/// How often the log is flushed and a report is given.
const TICK: Duration = Duration::from_millis(500);
/// Time before a due probe from which the loop polls; longer than a wake-up takes.
const AWAKE: Duration = Duration::from_micros(50);
/// Most datagrams read before the schedule is checked again.
const BATCH: usize = 64;

/// Sends probes and writes their results to the file at `path`, until the end of the plan or a stop
/// request. Blocks. Reports twice a second on this thread: a slow `tell` delays probes.
///
/// # Errors
/// If the socket or the log fails. The log is complete up to its last line and can be resumed.
pub fn send(
    plan: &Plan,
    path: &Path,
    resume: bool,
    stop: &Stop,
    mut tell: impl FnMut(&Report),
) -> Result<Report, Error> {
    plan.check()?;
    let target = plan.target.resolve(plan.source)?;
    let socket = connect(target, plan.source)?;
    let receiver = Receiver::new(&socket).map_err(Error::system("prepare the socket"))?;
    let session = getrandom::u32().map_err(Error::system("draw a session"))?;
    let seed = getrandom::u64().map_err(Error::system("draw a seed"))?;
    // The default slack lets the kernel wake this thread up 50 us late.
    let _ = nix::sys::prctl::set_timerslack(1);
    let opening = Clock::start();
    let (log, mut opened) = Log::open(path, plan, resume, seed, opening.now().utc)?;
    // The schedule starts now; the time of opening is part of the log's time.
    let clock = Clock::start();
    opened.start.elapsed += opening.now().elapsed;
    let mut payload = vec![0; plan.size];
    payload.iter_mut().skip(HEADER).zip(0_u8..=255).for_each(|(byte, fill)| *byte = fill);
    let mut sender = Sender {
        socket,
        receiver,
        clock,
        log,
        prober: Prober::new(plan, opened.seed.unwrap_or(0), opened.start),
        recorder: Recorder::new(plan.timeout),
        session,
        payload,
        report: Report { first_sequence: opened.start.sequence, ..Report::default() },
    };
    let result = sender.run(stop, &mut tell);
    // Completed rows are written even after an error.
    let flushed = sender.log.flush();
    result?;
    flushed?;
    Ok(sender.report())
}

fn connect(target: SocketAddr, source: Option<IpAddr>) -> Result<UdpSocket, Error> {
    let any =
        if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let address = SocketAddr::new(source.unwrap_or(any), 0);
    let socket = UdpSocket::bind(address).map_err(|source| Error::Bind { address, source })?;
    socket.connect(target).map_err(|source| Error::Connect { target, source })?;
    Ok(socket)
}

struct Sender {
    socket: UdpSocket,
    receiver: Receiver,
    clock: Clock,
    log: Log,
    prober: Prober,
    recorder: Option<Recorder>,
    session: u32,
    payload: Vec<u8>,
    /// Counters that neither the prober nor the receiver has.
    report: Report,
}

impl Sender {
    fn run(&mut self, stop: &Stop, tell: &mut impl FnMut(&Report)) -> Result<(), Error> {
        // Time at which the socket was last empty.
        let mut empty = self.clock.now();
        let mut tick = Duration::ZERO;
        loop {
            match stop.urgency() {
                Urgency::None => {}
                Urgency::Finish => self.prober.end(),
                Urgency::Now => return Ok(()),
            }
            let now = self.clock.now();
            if self.read(&empty)? {
                empty = now;
            }
            while let Some(row) = self.prober.settle(empty.elapsed) {
                if let (Some(recorder), Some(reply)) = (&mut self.recorder, row.reply) {
                    recorder.record(reply.rtt);
                }
                self.log.write(&row)?;
            }
            if self.prober.done() {
                return Ok(());
            }
            if now.elapsed >= tick {
                tick = now.elapsed + TICK;
                self.log.flush()?;
                tell(&self.report());
            }
            match self.prober.due(self.clock.now().elapsed) {
                Some(sequence) => self.transmit(sequence)?,
                None => self.wait(stop, tick)?,
            }
        }
    }

    /// Reads datagrams; whether the socket is empty then.
    fn read(&mut self, empty: &Stamp) -> Result<bool, Error> {
        for _ in 0..BATCH {
            let datagram = match self.receiver.receive(&self.socket) {
                Ok(Some(datagram)) => datagram,
                Ok(None) => return Ok(true),
                // The network's answer to an earlier probe.
                Err(error) => {
                    self.trouble("receive replies", error)?;
                    continue;
                }
            };
            let at = self.clock.now().arrival(datagram.stamped, empty);
            match Header::decode(datagram.bytes) {
                Ok(Header { kind: Kind::Reply { received_ns }, session, sequence })
                    if session == self.session && datagram.bytes.len() == self.payload.len() =>
                {
                    self.prober.reply(sequence, received_ns, at);
                }
                _ => self.prober.foreign(),
            }
        }
        Ok(false)
    }

    fn transmit(&mut self, sequence: u64) -> Result<(), Error> {
        // The wire has the lower 32 bits.
        let header =
            Header { kind: Kind::Request, session: self.session, sequence: sequence as u32 };
        if let Some(bytes) = self.payload.first_chunk_mut() {
            *bytes = header.encode();
        }
        // A send reports the answer to an earlier probe, and sends nothing then.
        for _ in 0..3 {
            let Stamp { elapsed, utc } = self.clock.now();
            let error = match self.socket.send(&self.payload) {
                Ok(_) => {
                    self.prober.sent(elapsed, utc);
                    return Ok(());
                }
                Err(error) => Errno::try_from(error).unwrap_or(Errno::EIO),
            };
            match error {
                Errno::ECONNREFUSED => self.trouble("send probes", error)?,
                Errno::EINTR => {}
                // This host's queue is full: that says nothing of the link.
                Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM => break,
                _ => {
                    self.trouble("send probes", error)?;
                    self.prober.sent(elapsed, utc);
                    return Ok(());
                }
            }
        }
        self.prober.skip();
        Ok(())
    }

    /// Counts errors that a link under test can cause; fails for others.
    fn trouble(&mut self, what: &'static str, error: Errno) -> Result<(), Error> {
        match error {
            Errno::EINTR => return Ok(()),
            Errno::ECONNREFUSED => self.report.counts.refused += 1,
            Errno::ENETUNREACH
            | Errno::EHOSTUNREACH
            | Errno::ENETDOWN
            | Errno::EHOSTDOWN
            | Errno::EADDRNOTAVAIL
            | Errno::ENODEV
            | Errno::ENOPROTOOPT
            | Errno::EPROTO
            // A packet filter, or its table of connections is full.
            | Errno::EPERM => self.report.counts.unsendable += 1,
            _ => return Err(Error::system(what)(error)),
        }
        self.report.trouble = Some(io::Error::from(error).kind());
        Ok(())
    }

    fn wait(&mut self, stop: &Stop, tick: Duration) -> Result<(), Error> {
        let next = self.prober.next_instant().map(|next| next.saturating_sub(AWAKE));
        let until = [next, self.prober.next_loss()].into_iter().flatten().fold(tick, Ord::min);
        match until.checked_sub(self.clock.now().elapsed) {
            None | Some(Duration::ZERO) => Ok(()),
            timeout => wait(&self.socket, stop, timeout).map_err(Error::system("wait")),
        }
    }

    fn report(&self) -> Report {
        let Report { counts, first_sequence, trouble, .. } = self.report;
        let elapsed = self.clock.now().elapsed;
        Report {
            first_sequence,
            counts: crate::Counts {
                refused: counts.refused,
                unsendable: counts.unsendable,
                overflowed: self.receiver.overflowed(),
                ..self.prober.counts()
            },
            rtt: self.recorder.as_ref().and_then(Recorder::rtt),
            elapsed,
            remaining: self.prober.remaining(elapsed),
            trouble,
        }
    }
}
