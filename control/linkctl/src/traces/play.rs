// SPDX-License-Identifier: Apache-2.0
//! `linkctl trace play`: a trace of any length, in windows that the link gets one after the other.
//!
//! Two successive windows have half of their steps in common, and both name the time of UTC of
//! their first step. So it does not matter when within the common half the link takes the
//! next window, and each step is in force at its time to the nanosecond.

use super::parse_step;
use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use crate::set;
use crate::target::{Condition, Direction};
use crate::terminal::{self, warn};
use ::trace::{RateError, RateFile, read_path, read_rate};
use clap::Args;
use profile::{PIPE_RATE_BPS, RATE_TRACE_STEP_NS, Rate, counted, format_duration};
use proto::linkemu::v1 as pb;
use serde::Serialize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{Signal, SignalKind, signal};
use view::instant;

/// Steps that two successive windows have in common.
const HALF: usize = 16_384;
/// How long before the first step the link gets it.
const LEAD_NS: u64 = 1_000_000_000;
/// How long the last step lasts at most until the link is as before.
const TAIL_NS: u64 = 10_000_000_000;
/// The most that the clocks of linkctl and of the link may differ by.
const CLOCKS_NS: u64 = 500_000_000;
/// What a trace replaces, and what comes back after it.
const PATHS: [&str; 5] = ["rate_bps", "rate_trace", "capacity", "reconfiguration", "path_trace"];

#[derive(Debug, Args)]
pub struct PlayArgs {
    /// CSV or Parquet with columns such as time_s, rate_mbps, delay_ms and loss; or mahimahi with
    /// --step
    trace: PathBuf,
    /// Length of a step; without it, the median time between rows
    #[arg(long, value_name = "TIME", value_parser = parse_step)]
    step: Option<u64>,
    /// Towards the client, from it, or each of both
    #[arg(short, long, value_enum, default_value = "both")]
    direction: Direction,
    /// Take it even if there is too little memory or time
    #[arg(long)]
    lossy: bool,
}

/// A trace in memory.
#[derive(Debug, Default, PartialEq)]
struct Long {
    step_ns: u64,
    rates_bps: Vec<u64>,
    delays_ns: Vec<u64>,
    losses: Vec<f64>,
}

#[derive(Serialize)]
struct View<'a> {
    file: &'a str,
    step_ns: u64,
    steps: usize,
    windows: usize,
    begin_utc: Option<String>,
    begin_unix_ns: u64,
}

pub async fn run(context: &Context, args: &PlayArgs) -> Result<(), Failure> {
    let long = Long::read(&args.trace, args.step)?;
    let mut signals = Signals::take()?;
    let connection = Connection::open(context).await?;
    let link = connection.get_link().await?;
    let before = link.profile.unwrap_or_default();
    let generation = link.applied.map_or(0, |applied| applied.generation);
    let mut playing = Playing { connection: &connection, args, generation };
    let played = play(&mut playing, &long, &mut signals).await;
    // If somebody else has changed the link, it is theirs.
    let restored = playing.restore(&before).await;
    let (begin_ns, windows) = played?;
    restored?;
    let file = args.trace.display().to_string();
    let (step_ns, steps) = (long.step_ns, long.steps());
    match context.output {
        Output::Json => output::json(&View {
            file: &file,
            step_ns,
            steps,
            windows,
            begin_utc: instant::utc(Some(&timestamp(begin_ns))),
            begin_unix_ns: begin_ns,
        }),
        Output::Text => output::text(&format!(
            "{file}: {} of {} played in {}; the link has its former rate, delay and loss again",
            counted(steps, "step", "steps"),
            format_duration(step_ns),
            counted(windows, "window", "windows")
        )),
    }
}

/// The link while it plays a trace.
struct Playing<'a> {
    connection: &'a Connection,
    args: &'a PlayArgs,
    /// Of the last change by this command. The next change is refused if there was another one.
    generation: u64,
}

/// Plays the whole trace. Returns the time of its first step and the number of windows.
async fn play(
    playing: &mut Playing<'_>,
    long: &Long,
    signals: &mut Signals,
) -> Result<(u64, usize), Failure> {
    let begin_ns = now_ns() + LEAD_NS;
    let bar = terminal::bar(&playing.args.trace.display().to_string());
    bar.set_length(long.steps() as u64);
    let mut windows = 0;
    for window in long.windows() {
        // In the middle of what it has in common with the one before.
        let due = match windows {
            0 => 0,
            _ => begin_ns + long.ns(window.start + HALF / 2),
        };
        signals.sleep_until(due, begin_ns, long, &bar).await?;
        let (pipe, paths) = long.pipe(&window, begin_ns);
        let change = playing.patch(playing.args.direction, pipe, &paths).await?;
        let applied = change.applied.unwrap_or_default();
        warn(&change.remarks);
        let at = applied.effective_utc.map_or(0, unix_ns);
        if windows == 0 {
            let off = at.abs_diff(now_ns());
            if off > CLOCKS_NS {
                return Err(Failure::failed(
                    "clock",
                    format!(
                        "the clocks of this host and of the link differ by {}: the first step would \
                         be in force at another time",
                        format_duration(off)
                    ),
                )
                .hint("run linkctl on the appliance, or synchronise both clocks (chrony)"));
            }
        }
        let first = if windows == 0 { 0 } else { begin_ns + long.ns(window.start) };
        let last = match windows {
            0 => begin_ns,
            _ => begin_ns + long.ns(window.start + HALF),
        };
        if !(first..last).contains(&at) {
            return Err(Failure::failed(
                "late",
                format!(
                    "the link took window {} {} too late: it repeated steps meanwhile",
                    windows + 1,
                    format_duration(at.saturating_sub(last))
                ),
            ));
        }
        windows += 1;
    }
    signals.sleep_until(begin_ns + long.ns(long.steps()), begin_ns, long, &bar).await?;
    bar.finish_and_clear();
    Ok((begin_ns, windows))
}

impl Playing<'_> {
    /// Gives the link back what it had before.
    async fn restore(&mut self, before: &pb::Profile) -> Result<(), Failure> {
        let pipes = [
            (Direction::Forward, before.forward_pipe.as_ref()),
            (Direction::Return, before.return_pipe.as_ref()),
        ];
        for (direction, pipe) in pipes {
            let played = matches!(self.args.direction, Direction::Both);
            let (true, Some(pipe)) = (played || self.args.direction == direction, pipe) else {
                continue;
            };
            let mut paths: Vec<&str> = PATHS.to_vec();
            let unused = if pipe.rate_trace.is_some() { "rate_bps" } else { "rate_trace" };
            paths.retain(|path| *path != unused);
            self.patch(direction, pipe.clone(), &paths).await?;
        }
        Ok(())
    }

    async fn patch(
        &mut self,
        direction: Direction,
        pipe: pb::Pipe,
        paths: &[&str],
    ) -> Result<pb::Link, Failure> {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let change = pb::PipeUpdate {
            direction: pb::Direction::from(direction) as i32,
            pipe: Some(pipe),
            mask: Some(prost_types::FieldMask { paths }),
            ..Default::default()
        };
        let condition = Condition {
            expect_generation: Some(self.generation),
            lossy: self.args.lossy,
            ..Default::default()
        };
        let answer = set::update(self.connection, &[], change.into(), &condition).await?;
        let link = answer.into_one();
        if let Some(applied) = &link.applied {
            self.generation = applied.generation;
        }
        Ok(link)
    }
}

impl Long {
    fn read(path: &Path, step_ns: Option<u64>) -> Result<Self, Failure> {
        let unread =
            |error: RateError| Failure::failed("trace", format!("{}: {error}", path.display()));
        let mut long = Self::default();
        match read_rate(path, step_ns) {
            Ok(RateFile::Steps(steps)) => {
                warn(&steps.remarks);
                (long.step_ns, long.rates_bps) = (steps.step_ns, steps.rates_bps);
            }
            Ok(RateFile::Opportunities(_)) => {
                return Err(Failure::usage(format!(
                    "{} has single opportunities, of which a profile holds many: `set rate --trace` \
                     plays them, and with --step 10ms this does, averaged",
                    path.display()
                )));
            }
            Err(RateError::NoColumn { .. }) => {}
            Err(error) => return Err(unread(error)),
        }
        match read_path(path, step_ns) {
            Ok(steps) => {
                if long.rates_bps.is_empty() {
                    warn(&steps.remarks);
                }
                long.step_ns = steps.step_ns;
                (long.delays_ns, long.losses) = (steps.delays_ns, steps.losses);
            }
            Err(RateError::NoPath | RateError::NoColumn { .. }) if !long.rates_bps.is_empty() => {}
            Err(error) => return Err(unread(error)),
        }
        long.check()?;
        Ok(long)
    }

    /// Before the first window is in force: a later one must not be refused.
    fn check(&self) -> Result<(), Failure> {
        let bad = |message: String| Err(Failure::failed("trace", message));
        if !RATE_TRACE_STEP_NS.contains(&self.step_ns) {
            return bad(format!(
                "steps of {} are outside of {} to {}: choose another --step",
                format_duration(self.step_ns),
                format_duration(*RATE_TRACE_STEP_NS.start()),
                format_duration(*RATE_TRACE_STEP_NS.end())
            ));
        }
        let wrong = |rate: &&u64| **rate > 0 && !PIPE_RATE_BPS.contains(rate);
        if let Some(rate) = self.rates_bps.iter().find(wrong) {
            return bad(format!(
                "a rate of {} is outside of {} to {}, and not zero",
                Rate::from_bps(Some(*rate)),
                Rate::from_bps(Some(*PIPE_RATE_BPS.start())),
                Rate::from_bps(Some(*PIPE_RATE_BPS.end()))
            ));
        }
        Ok(())
    }

    fn steps(&self) -> usize {
        self.rates_bps.len().max(self.delays_ns.len()).max(self.losses.len())
    }

    /// The length of so many steps.
    fn ns(&self, steps: usize) -> u64 {
        self.step_ns.saturating_mul(steps as u64)
    }

    /// The steps of each window.
    fn windows(&self) -> impl Iterator<Item = Range<usize>> {
        let steps = self.steps();
        let count = steps.saturating_sub(HALF).div_ceil(HALF).max(1);
        (0..count).map(move |k| k * HALF..((k + 2) * HALF).min(steps))
    }

    /// A window as a change. The first one has its first step also before, and the last one its last
    /// step also after it.
    fn pipe(&self, window: &Range<usize>, begin_ns: u64) -> (pb::Pipe, Vec<&'static str>) {
        let pad = |ns: u64| usize::try_from(ns.div_ceil(self.step_ns)).unwrap_or(0);
        let before = if window.start == 0 { pad(2 * LEAD_NS) } else { 0 };
        let after = if window.end == self.steps() { pad(TAIL_NS) } else { 0 };
        let begin_ns = begin_ns + self.ns(window.start) - self.ns(before);
        let mut pipe = pb::Pipe::default();
        let mut paths = Vec::new();
        if !self.rates_bps.is_empty() {
            let rates_bps = padded(&self.rates_bps[window.clone()], before, after);
            let step_ns = self.step_ns;
            pipe.rate_trace =
                Some(pb::RateTrace { step_ns, rates_bps, begin_ns, ..Default::default() });
            paths.push("rate_trace");
        }
        if !(self.delays_ns.is_empty() && self.losses.is_empty()) {
            let step_ns = self.step_ns;
            let of = |range: Range<usize>, len: usize| if len == 0 { 0..0 } else { range };
            let delays = of(window.clone(), self.delays_ns.len());
            let delays_ns = padded(&self.delays_ns[delays], before, after);
            let losses = of(window.clone(), self.losses.len());
            let losses = padded(&self.losses[losses], before, after);
            pipe.path_trace = Some(pb::PathTrace { step_ns, delays_ns, losses, begin_ns });
            paths.push("path_trace");
        }
        (pipe, paths)
    }
}

/// Values with the first one repeated before them, and the last one after them.
fn padded<T: Copy>(values: &[T], before: usize, after: usize) -> Vec<T> {
    let (Some(first), Some(last)) = (values.first(), values.last()) else { return Vec::new() };
    let before = std::iter::repeat_n(*first, before);
    let after = std::iter::repeat_n(*last, after);
    before.chain(values.iter().copied()).chain(after).collect()
}

/// The signals that end a play before its time.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn take() -> Result<Self, Failure> {
        let failed = |error| Failure::failed("internal", format!("cannot take signals: {error}"));
        let [interrupt, terminate] = [SignalKind::interrupt(), SignalKind::terminate()]
            .map(|kind| signal(kind).map_err(failed));
        Ok(Self { interrupt: interrupt?, terminate: terminate? })
    }

    /// Shows how far it is, until a time of UTC; fails at a signal.
    async fn sleep_until(
        &mut self,
        due_ns: u64,
        begin_ns: u64,
        long: &Long,
        bar: &indicatif::ProgressBar,
    ) -> Result<(), Failure> {
        loop {
            let now = now_ns();
            bar.set_position(now.saturating_sub(begin_ns) / long.step_ns.max(1));
            if now >= due_ns {
                return Ok(());
            }
            let some = Duration::from_nanos((due_ns - now).min(500_000_000));
            tokio::select! {
                () = tokio::time::sleep(some) => {}
                _ = self.interrupt.recv() => break,
                _ = self.terminate.recv() => break,
            }
        }
        Err(Failure::failed("interrupted", "interrupted by a signal"))
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn unix_ns(at: prost_types::Timestamp) -> u64 {
    let seconds = u64::try_from(at.seconds).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(at.nanos).unwrap_or(0))
}

fn timestamp(ns: u64) -> prost_types::Timestamp {
    let seconds = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
    prost_types::Timestamp { seconds, nanos: i32::try_from(ns % 1_000_000_000).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn long(steps: usize) -> Long {
        let rates_bps = (0..steps as u64).map(|k| 1_000_000 + k).collect();
        let losses = (0..steps).map(|k| k as f64 / steps as f64).collect();
        Long { step_ns: 1_000_000, rates_bps, losses, ..Long::default() }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn each_step_is_in_force_at_its_time(steps in 1_usize..100_000, probe in any::<u64>()) {
            let long = long(steps);
            let begin = 1_764_000_000_000_000_000;
            let windows: Vec<_> = long.windows().collect();
            prop_assert_eq!(windows.last().unwrap().end, steps);
            let k = (probe % steps as u64) as usize;
            let at = begin + long.ns(k);
            // Between two changes, each in the middle of what two windows have in common.
            let due = |w: &Range<usize>| if w.start == 0 { 0 } else { begin + long.ns(w.start + HALF / 2) };
            let current = windows.iter().rev().find(|w| due(w) <= at).unwrap();
            let (pipe, _) = long.pipe(current, begin);
            let (rate, path) = (pipe.rate_trace.unwrap(), pipe.path_trace.unwrap());
            let step = ((at - rate.begin_ns) / rate.step_ns) as usize;
            prop_assert_eq!(rate.rates_bps.get(step), long.rates_bps.get(k));
            prop_assert_eq!(path.losses.get(step), long.losses.get(k));
            prop_assert_eq!(path.begin_ns, rate.begin_ns);
            prop_assert!(rate.rates_bps.len() <= *profile::RATE_TRACE_RATES_BPS_ITEMS.end());
            prop_assert!(path.delays_ns.is_empty());
        }
    }

    #[test]
    fn first_and_last_value_last_longer() {
        let long = long(3);
        let (pipe, paths) = long.pipe(&(0..3), 5_000_000_000);
        let trace = pipe.rate_trace.unwrap();
        assert_eq!(paths, ["rate_trace", "path_trace"]);
        assert_eq!((trace.begin_ns, trace.rates_bps.len()), (3_000_000_000, 12_003));
        assert_eq!(trace.rates_bps[1_998..2_004], [0, 0, 0, 1, 2, 2].map(|k| 1_000_000 + k));
    }
}
