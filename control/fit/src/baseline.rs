// SPDX-License-Identifier: Apache-2.0
//! A baseline: measured round trips of a real link, or published figures.
//!
//! Times are nanoseconds since the first probe was sent; round trips are in
//! nanoseconds. Probes are in the order in which they were sent.

use std::ops::Range;

use jiff::Timestamp;

use crate::seconds;

/// The round trip of a probe that was lost.
const LOST: u64 = u64::MAX;

/// Where a baseline is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file as it was given, or the study.
    pub name: String,
    pub format: Format,
    /// SHA-256 of the file's bytes, unpacked if gzip packed them, in hexadecimal.
    pub sha256: String,
}

/// The formats that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Log of `linkctl probe send`.
    Probe,
    /// The output of `ping`, with or without `-D`.
    Ping,
    /// The JSON of `irtt client -o`.
    Irtt,
    /// CSV with columns that the user named.
    Columns,
    Summary,
}

impl Format {
    pub const ALL: [Self; 5] = [Self::Probe, Self::Ping, Self::Irtt, Self::Columns, Self::Summary];

    /// Its name on the command line and in a profile's provenance.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Ping => "ping",
            Self::Irtt => "irtt",
            Self::Columns => "columns",
            Self::Summary => "summary",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// At equal intervals with the sender's jitter.
    Constant,
    Poisson,
    /// At any times: the probes follow the answers, or the user says so.
    Irregular,
}

/// Pace of a prober that sends a probe only when the one before was answered or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// From an answer to the next probe; `None` if that is sent at the interval.
    pub after_answer_ns: Option<u64>,
    /// From a lost probe to the next: the timeout and what follows it.
    pub after_loss_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    pub sent_ns: u64,
    /// Its round trip; `None` if it was lost.
    pub rtt_ns: Option<u64>,
}

/// One-way delays of a probe that came back, where both clocks were synchronised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneWay {
    /// From the prober to the reflector.
    pub there_ns: u64,
    /// From the reflector to the prober.
    pub back_ns: u64,
}

/// Probes in columns: 16 bytes each, so that ten million are 160 MB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    sent_ns: Vec<u64>,
    rtt_ns: Vec<u64>,
    /// First probes after a break, ascending; zero is not among them.
    breaks: Vec<usize>,
    /// Those of the breaks over which the time is not known.
    jumps: Vec<usize>,
}

impl Series {
    /// Adds the probe that was sent next. A probe that was not sent later than the one
    /// before starts after a break.
    pub fn push(&mut self, probe: Probe) {
        if self.sent_ns.last().is_some_and(|last| probe.sent_ns <= *last) {
            self.interrupt();
        }
        self.sent_ns.push(probe.sent_ns);
        self.rtt_ns.push(probe.rtt_ns.map_or(LOST, |rtt| rtt.min(LOST - 1)));
    }

    /// The next probe comes after a break of unknown length: the clock jumped.
    pub fn interrupt(&mut self) {
        self.pause();
        let next = self.sent_ns.len();
        if next > 0 && self.jumps.last() != Some(&next) {
            self.jumps.push(next);
        }
    }

    /// The next probe comes after a break: no probe was sent until then.
    pub fn pause(&mut self) {
        let next = self.sent_ns.len();
        if next > 0 && self.breaks.last() != Some(&next) {
            self.breaks.push(next);
        }
    }

    /// Appends another series after a break; its time continues at the end of this one.
    pub fn extend(&mut self, other: &Self) {
        let end = self.sent_ns.last().copied().unwrap_or(0);
        self.interrupt();
        let offset = self.sent_ns.len();
        self.breaks.extend(other.breaks.iter().map(|b| b + offset));
        self.jumps.extend(other.jumps.iter().map(|b| b + offset));
        self.sent_ns.extend(other.sent_ns.iter().map(|t| t.saturating_add(end)));
        self.rtt_ns.extend_from_slice(&other.rtt_ns);
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.sent_ns.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sent_ns.is_empty()
    }

    #[must_use]
    pub fn get(&self, index: usize) -> Option<Probe> {
        let (sent_ns, rtt) = (*self.sent_ns.get(index)?, *self.rtt_ns.get(index)?);
        Some(Probe { sent_ns, rtt_ns: (rtt != LOST).then_some(rtt) })
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = Probe> + Clone + '_ {
        self.slice(0..self.len())
    }

    pub fn slice(&self, range: Range<usize>) -> impl ExactSizeIterator<Item = Probe> + Clone + '_ {
        let (sent, rtt) = (&self.sent_ns[range.clone()], &self.rtt_ns[range]);
        sent.iter().zip(rtt).map(|(sent_ns, rtt)| Probe {
            sent_ns: *sent_ns,
            rtt_ns: (*rtt != LOST).then_some(*rtt),
        })
    }

    /// The stretches without a break; none is empty.
    #[must_use]
    pub fn segments(&self) -> Vec<Range<usize>> {
        self.between(&self.breaks)
    }

    /// The stretches over which all times are known; none is empty.
    #[must_use]
    pub fn timed(&self) -> Vec<Range<usize>> {
        self.between(&self.jumps)
    }

    fn between(&self, breaks: &[usize]) -> Vec<Range<usize>> {
        let ends = breaks.iter().copied().chain([self.len()]);
        let mut start = 0;
        ends.map(|end| std::mem::replace(&mut start, end)..end).filter(|s| !s.is_empty()).collect()
    }

    /// The same probes, with a break wherever two are more than `most_ns` apart.
    #[must_use]
    pub fn paused_where_longer(&self, most_ns: u64) -> Self {
        let mut series = self.clone();
        let gaps = self.sent_ns.windows(2).zip(1..);
        let long = gaps.filter(|(pair, _)| pair[1].saturating_sub(pair[0]) > most_ns);
        series.breaks.extend(long.map(|(_, next)| next));
        series.breaks.sort_unstable();
        series.breaks.dedup();
        series
    }

    #[must_use]
    pub fn lost(&self) -> usize {
        self.rtt_ns.iter().filter(|rtt| **rtt == LOST).count()
    }
}

/// A measured baseline, probe by probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    pub source: Source,
    /// The probing interval: the median between two probes, or the mean if they are
    /// exponential.
    pub interval_ns: u64,
    /// How the probes were spaced.
    pub spacing: Spacing,
    /// Set if the prober waits for each answer.
    pub waiting: Option<Waiting>,
    /// The finest step of the round trips that were written.
    pub resolution_ns: u64,
    pub series: Series,
    /// Medians of the one-way delays, where the log has them and the clocks were
    /// synchronised.
    pub one_way: Option<OneWay>,
    /// When the first probe was sent and when the last one was sent or came back, by the prober's
    /// wall clock, where the log has it.
    pub recorded: Option<[Timestamp; 2]>,
    /// Remark from the certificate of the emulator in its path, if one was given.
    pub emulator: Option<String>,
    /// Faults of the log and their corrections, as text.
    pub remarks: Vec<String>,
}

impl Baseline {
    /// A series without faults, of a prober that does not wait and sends at constant intervals.
    #[must_use]
    pub fn regular(name: &str, interval_ns: u64, series: Series) -> Self {
        let (name, sha256) = (name.to_owned(), String::new());
        Self {
            source: Source { name, format: Format::Probe, sha256 },
            interval_ns,
            spacing: Spacing::Constant,
            waiting: None,
            resolution_ns: 1,
            series,
            one_way: None,
            recorded: None,
            emulator: None,
            remarks: Vec::new(),
        }
    }
}

/// Losses by a study's own count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossCounts {
    pub lost: u64,
    /// Lost probes without a lost neighbour.
    pub single: u64,
    /// Runs of two and more.
    pub runs: u64,
    /// The longest run, in probes.
    pub longest: u64,
}

/// Published figures of a link without a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub source: Source,
    pub interval_ns: u64,
    /// Probes behind the loss counts; zero if none were published.
    pub loss_samples: u64,
    /// The losses, where they were published.
    pub losses: Option<LossCounts>,
    /// Probes behind the distribution of the round trips; zero if none was published.
    pub delay_samples: u64,
    /// The distribution: (round trip in ns, probability of a longer one), strictly ascending
    /// in the round trip and strictly descending in the probability. Two points or more;
    /// none if no distribution was published.
    pub exceedance: Vec<(u64, f64)>,
    /// Largest round trips, in ns, of spans with as many probes, such as days.
    pub maxima_ns: Vec<u64>,
    /// Standard error of a published round trip in the body, in ns: of reading a plot.
    pub reading_error_ns: u64,
    /// Standard error in the tail, as a share of the difference from the median.
    pub reading_error_share: f64,
}

impl Summary {
    /// The distribution with the round trips in seconds.
    #[must_use]
    pub fn points(&self) -> Vec<(f64, f64)> {
        self.exceedance.iter().map(|(y, p)| (seconds(*y), *p)).collect()
    }

    /// The standard error of reading a round trip, all in seconds.
    #[must_use]
    pub fn reading_error(&self, round_trip: f64, median: f64) -> f64 {
        seconds(self.reading_error_ns).max(self.reading_error_share * (round_trip - median))
    }
}
