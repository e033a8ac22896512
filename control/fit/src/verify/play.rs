// SPDX-License-Identifier: Apache-2.0
//! A profile played in virtual time: what its link does to probes, by the emulation core
//! that the dataplane runs.
//!
//! A week of probes takes about a second. The prober is at the client: a probe goes the
//! return way first, and its echo comes the forward way.

use std::collections::VecDeque;

use emu::engine::{Departure, Engine, Limits};
use emu::units::{Direction, Instant};
use proto::dataplane::v1::Plan;

use crate::baseline::{Probe, Series, Waiting};
use crate::splitmix::word;
use crate::work::{self, Cancelled};
use profile::{Profile, Violations};

/// One client with few packets at a time needs little.
const LIMITS: Limits = Limits::copying(16 << 20, 1, 1514);
/// The processes of idle pipes are brought up to date every so many probes.
const KEEP_UP: u64 = 1000;
/// An IPv4 header and a UDP datagram of 20 bytes in an Ethernet frame.
const FRAME: usize = 62;
/// Where the datagram's payload begins.
const PAYLOAD: usize = 42;

/// Why a profile cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// It breaks the schema's rules.
    #[error("the profile is not valid:\n{0}")]
    Profile(#[from] Violations),
    #[error("the emulation core refused the profile: {0}")]
    Engine(String),
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

/// Sends probes at the given instants, ascending, in ns since the link began.
///
/// # Errors
/// If the profile cannot be played.
pub fn play(
    profile: &Profile,
    seed: u64,
    sent_ns: impl IntoIterator<Item = u64>,
) -> Result<Series, PlayError> {
    let sent_ns = sent_ns.into_iter();
    let count = sent_ns.size_hint().0;
    played(profile, seed, count, &mut Timed(sent_ns.peekable()))
}

/// Sends `count` probes as a prober that waits: each when the one before was answered or given up.
///
/// # Errors
/// If the profile cannot be played.
pub fn play_waiting(
    profile: &Profile,
    seed: u64,
    interval_ns: u64,
    waiting: Waiting,
    count: usize,
) -> Result<Series, PlayError> {
    let jitter = Box::new(regular(interval_ns, u64::MAX / interval_ns.max(1)));
    played(
        profile,
        seed,
        count,
        &mut OneByOne { interval_ns, waiting, left: count, jitter, sent: 0, due: interval_ns },
    )
}

/// When probes are sent.
trait Sends {
    /// The next time, if no answer comes before.
    fn next(&mut self) -> Option<u64>;
    /// The next probe is sent.
    fn sent(&mut self, now: u64);
    /// An answer comes, to the last probe or to one before. Returns whether it counts.
    fn answered(&mut self, last: bool, now: u64) -> bool;
}

struct Timed<I: Iterator<Item = u64>>(std::iter::Peekable<I>);

impl<I: Iterator<Item = u64>> Sends for Timed<I> {
    fn next(&mut self) -> Option<u64> {
        self.0.peek().copied()
    }

    fn sent(&mut self, _: u64) {
        self.0.next();
    }

    fn answered(&mut self, _: bool, _: u64) -> bool {
        true
    }
}

struct OneByOne<'a> {
    interval_ns: u64,
    waiting: Waiting,
    left: usize,
    jitter: Box<dyn Iterator<Item = u64> + 'a>,
    sent: u64,
    due: u64,
}

impl Sends for OneByOne<'_> {
    fn next(&mut self) -> Option<u64> {
        (self.left > 0).then_some(self.due)
    }

    fn sent(&mut self, now: u64) {
        self.left -= 1;
        let late = self.jitter.next().unwrap_or(0) % self.interval_ns;
        self.sent = now;
        self.due = now.saturating_add(self.waiting.after_loss_ns).saturating_add(late).max(now + 1);
    }

    fn answered(&mut self, last: bool, now: u64) -> bool {
        if last {
            let late =
                self.due.saturating_sub(self.sent.saturating_add(self.waiting.after_loss_ns));
            let next = match self.waiting.after_answer_ns {
                Some(pause) => now.saturating_add(pause),
                None => self.sent.saturating_add(self.interval_ns),
            };
            self.due = next.saturating_add(late).max(now + 1);
        }
        last
    }
}

/// `count` is the number of probes, as far as it is known, for the progress.
fn played(
    profile: &Profile,
    seed: u64,
    count: usize,
    sends: &mut dyn Sends,
) -> Result<Series, PlayError> {
    let profile = Some(profile.as_proto().clone());
    let plan = compile::compile(&Plan { profile, seed, ..Plan::default() })?;
    let mut engine = Engine::new(LIMITS, plan, Instant::ZERO)
        .map_err(|error| PlayError::Engine(error.to_string()))?;
    let mut series = Series::default();
    // Outstanding probes, oldest first: (send time, round trip).
    let mut open: VecDeque<(u64, Option<u64>)> = VecDeque::new();
    let mut closed = 0_u64;
    // Number of probes with a known fate: first in, first out, so a probe that was sent before an
    // answered one is lost if it was not answered.
    let mut decided = 0_usize;
    let mut echoes: Vec<u64> = Vec::new();
    let mut number = 0_u64;
    loop {
        let sending = sends.next().map(Instant);
        let Some(now) = [sending, engine.next_deadline()].into_iter().flatten().min() else {
            break;
        };
        if sending == Some(now) {
            engine.arrive(now, Direction::Return, &probe(number));
            open.push_back((now.0, None));
            number += 1;
            sends.sent(now.0);
            if number.is_multiple_of(KEEP_UP) {
                if work::is_cancelled() {
                    return Err(Cancelled.into());
                }
                work::done(number as f64 / count.max(1) as f64);
                engine.keep_up(now);
            }
        }
        let next = number;
        engine.release(now, usize::MAX, &mut |d: Departure<'_>| {
            let number = payload(d.bytes());
            match d.direction {
                Direction::Return => echoes.push(number),
                Direction::Forward => {
                    let place = number.checked_sub(closed).and_then(|i| usize::try_from(i).ok());
                    if let Some((i, probe)) = place.and_then(|i| Some((i, open.get_mut(i)?)))
                        && sends.answered(number + 1 == next, d.due.0)
                    {
                        probe.1 = Some(d.due.0 - probe.0);
                        decided = decided.max(i + 1);
                    }
                }
            }
            true
        });
        for number in echoes.drain(..) {
            engine.arrive(now, Direction::Forward, &probe(number));
        }
        // None of these probes is in flight.
        if engine.next_deadline().is_none() {
            decided = open.len();
        }
        closed += decided as u64;
        for (sent_ns, rtt_ns) in open.drain(..std::mem::take(&mut decided)) {
            series.push(Probe { sent_ns, rtt_ns });
        }
    }
    for (sent_ns, rtt_ns) in open {
        series.push(Probe { sent_ns, rtt_ns });
    }
    Ok(series)
}

fn probe(number: u64) -> [u8; FRAME] {
    let mut f = [0; FRAME];
    f[12..14].copy_from_slice(&[8, 0]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&48_u16.to_be_bytes());
    // The client's address at both ends: it is the client's in either direction.
    f[26..30].copy_from_slice(&[10, 0, 0, 1]);
    f[30..34].copy_from_slice(&[10, 0, 0, 1]);
    f[PAYLOAD..PAYLOAD + 8].copy_from_slice(&number.to_be_bytes());
    f
}

fn payload(frame: &[u8]) -> u64 {
    let mut number = [0; 8];
    if let Some(bytes) = frame.get(PAYLOAD..PAYLOAD + 8) {
        number.copy_from_slice(bytes);
    }
    u64::from_be_bytes(number)
}

/// Send times of `count` probes, one interval apart except for a jitter of up to half a
/// millisecond (or a hundredth of the interval), as a common host's sender has: a perfect
/// one would beat with the slots of a link.
pub fn regular(interval_ns: u64, count: u64) -> impl Iterator<Item = u64> {
    let jitter = (interval_ns / 100).clamp(1, 500_000);
    (1..=count).map(move |i| i * interval_ns + word(i + 1) % jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_prober_sends_after_answer_or_timeout() {
        let catalog = profile::Catalog::built_in();
        let profile = catalog.get("viasat2").unwrap();
        const S: u64 = 1_000_000_000;
        let waiting = Waiting { after_answer_ns: None, after_loss_ns: 5 * S };
        let series = play_waiting(profile, 1, S, waiting, 100_000).unwrap();
        assert_eq!(series.len(), 100_000);
        assert!(series.lost() > 5, "{}", series.lost());
        let probes: Vec<Probe> = series.iter().collect();
        for pair in probes.windows(2) {
            let gap = pair[1].sent_ns - pair[0].sent_ns;
            let least = pair[0].rtt_ns.map_or(5 * S, |rtt| S.max(rtt));
            assert!((least..least + S / 100).contains(&gap), "{gap} {:?}", pair[0]);
        }
        let waiting = Waiting { after_answer_ns: Some(S), ..waiting };
        let series = play_waiting(profile, 1, S, waiting, 1_000).unwrap();
        let probes: Vec<Probe> = series.iter().collect();
        let gap = probes[1].sent_ns - probes[0].sent_ns - probes[0].rtt_ns.unwrap();
        assert!((S..S + S / 100).contains(&gap), "{gap}");
    }

    #[test]
    fn every_probe_is_in_the_series_once_and_in_order() {
        let catalog = profile::Catalog::built_in();
        let entry = catalog.get("viasat2").unwrap();
        let profile = Profile::try_from(entry.as_proto().clone()).unwrap();
        let series = play(&profile, 1, regular(200_000_000, 200_000)).unwrap();
        assert_eq!(series.len(), 200_000);
        assert_eq!(series.segments().len(), 1);
        assert!(series.lost() > 5 && series.lost() < 200, "{}", series.lost());
        let again = play(&profile, 1, regular(200_000_000, 200_000)).unwrap();
        assert_eq!(series, again);
        let least = series.iter().flat_map(|p| p.rtt_ns).min().unwrap();
        assert!((570_000_000..580_000_000).contains(&least), "{least}");
    }
}
