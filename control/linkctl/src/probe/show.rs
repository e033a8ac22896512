// SPDX-License-Identifier: Apache-2.0
//! How probing goes and went: progress while it runs, and the result as text and JSON.

use super::thread::Event;
use crate::terminal::say;
use ::probe::{Extent, Plan, Reflected, Report, Target};
use indicatif::{ProgressBar, ProgressStyle};
use profile::{counted, format_duration};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval of progress lines without a terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(30);
/// Parts of a full bar.
const BAR: u64 = 10_000;

/// Live progress: a bar on a terminal, plain lines elsewhere.
pub struct Progress {
    bar: Option<ProgressBar>,
    target: String,
    timeout: Duration,
    said: Instant,
    interrupted: bool,
    refused: bool,
    unsendable: bool,
    overflowed: bool,
}

impl Progress {
    /// Result of a run with this plan.
    pub fn new(plan: &Plan) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let open = plan.extent == Extent::Open;
            let bar = ProgressBar::new(BAR);
            let template = if open { "{spinner} {msg}" } else { "{wide_bar:.cyan/blue} {msg}" };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            target: plan.target.to_string(),
            timeout: plan.timeout,
            said: Instant::now(),
            interrupted: false,
            refused: false,
            unsendable: false,
            overflowed: false,
        }
    }

    pub fn show(&mut self, event: &Event<Report>) {
        let report = match event {
            Event::Report(report) => report,
            Event::Interrupt => {
                if !std::mem::replace(&mut self.interrupted, true) {
                    let most = shown(self.timeout);
                    self.say(&format!(
                        "waiting for the last replies, {most} at most; \
                         interrupt again to leave them"
                    ));
                }
                return;
            }
        };
        self.warn(report);
        let line = line(report);
        match &self.bar {
            Some(bar) => {
                let done = report.remaining.map_or(0.0, |remaining| {
                    report.elapsed.as_secs_f64() / (report.elapsed + remaining).as_secs_f64()
                });
                bar.set_position((done * BAR as f64) as u64);
                bar.set_message(line);
                bar.tick();
            }
            None if self.said.elapsed() >= PLAIN_INTERVAL => {
                self.said = Instant::now();
                say(&line);
            }
            None => {}
        }
    }

    /// Prints warnings, each kind once.
    pub fn warn(&mut self, report: &Report) {
        let counts = &report.counts;
        let target = &self.target;
        let mut warnings = Vec::new();
        if counts.refused > 0 && !std::mem::replace(&mut self.refused, true) {
            warnings.push(format!(
                "nobody listens at {target} (ICMP port unreachable), so probes are lost: \
                 start linkctl probe reflect there"
            ));
        }
        if counts.unsendable > 0 && !std::mem::replace(&mut self.unsendable, true) {
            let why = report.trouble.map_or_else(String::new, |kind| format!(" ({kind})"));
            warnings
                .push(format!("this host cannot send to {target}{why}: such probes count as lost"));
        }
        if counts.overflowed > 0 && !std::mem::replace(&mut self.overflowed, true) {
            warnings.push(
                "this host dropped replies, for its buffer was full, and their probes count as \
                 lost: raise net.core.rmem_max"
                    .into(),
            );
        }
        warnings.iter().for_each(|warning| self.say(&format!("warning: {warning}")));
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(line)),
            None => say(line),
        }
    }

    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(report: &Report) -> String {
    let counts = &report.counts;
    let mut line = format!("{} sent, {} lost", counts.sent, counts.lost);
    if let Some(ratio) = counts.loss_ratio() {
        line += &format!(" ({:.4} %)", 100.0 * ratio);
    }
    if let Some(rtt) = report.rtt {
        line += &format!(", RTT p50 {:.3} ms, p99 {:.3} ms", ms(rtt.p50), ms(rtt.p99));
    }
    let whole = report.remaining.map(|remaining| remaining.as_secs());
    if let Some(seconds) = whole.filter(|seconds| *seconds > 0) {
        line += &format!(", {} left", shown(Duration::from_secs(seconds)));
    }
    line
}

fn ms(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

fn shown(time: Duration) -> String {
    format_duration(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

#[derive(Serialize)]
pub struct SendView<'a> {
    target: String,
    file: &'a Path,
    /// Above zero in a resumed file; the counts are of the probes from it on.
    first_sequence: u64,
    elapsed_s: f64,
    sent: u64,
    received: u64,
    lost: u64,
    loss_ratio: Option<f64>,
    duplicates: u64,
    late: u64,
    skipped: u64,
    foreign: u64,
    unfinished: u64,
    refused: u64,
    unsendable: u64,
    overflowed: u64,
    rtt_ms: Option<RttView>,
}

#[derive(Serialize)]
struct RttView {
    min: f64,
    p50: f64,
    p99: f64,
    max: f64,
}

impl<'a> SendView<'a> {
    /// By the report of a run that is over.
    pub fn new(target: &Target, file: &'a Path, report: &Report) -> Self {
        let rtt_ms = report.rtt.map(|rtt| RttView {
            min: ms(rtt.min),
            p50: ms(rtt.p50),
            p99: ms(rtt.p99),
            max: ms(rtt.max),
        });
        let counts = report.counts;
        Self {
            target: target.to_string(),
            file,
            first_sequence: report.first_sequence,
            elapsed_s: report.elapsed.as_secs_f64(),
            sent: counts.sent,
            received: counts.received,
            lost: counts.lost,
            loss_ratio: counts.loss_ratio(),
            duplicates: counts.duplicates,
            late: counts.late,
            skipped: counts.skipped,
            foreign: counts.foreign,
            unfinished: counts.outstanding,
            refused: counts.refused,
            unsendable: counts.unsendable,
            overflowed: counts.overflowed,
            rtt_ms,
        }
    }

    pub fn text(&self) -> String {
        let Self { sent, received, lost, elapsed_s, first_sequence, .. } = self;
        let file = self.file.display();
        let sent = counted(sent, "probe", "probes");
        let mut lines = vec![format!("{sent} to {} in {elapsed_s:.1} s", self.target)];
        let ratio = self.loss_ratio.map(|ratio| format!(" ({:.4} %)", 100.0 * ratio));
        lines.push(format!("  {received} received, {lost} lost{}", ratio.unwrap_or_default()));
        if let Some(RttView { min, p50, p99, max }) = &self.rtt_ms {
            lines.push(format!(
                "  RTT min {min:.3} ms, p50 {p50:.3} ms, p99 {p99:.3} ms, max {max:.3} ms"
            ));
        }
        // Counters of zero are omitted.
        for (count, what) in [
            (self.late, "late: replies after the timeout, their probes are lost"),
            (self.duplicates, "duplicates: further replies to a probe"),
            (self.foreign, "foreign: datagrams that are no replies to these probes"),
            (self.skipped, "skipped: not sent, for this process was held up"),
            (self.unfinished, "unfinished: still under way at the end, not in the file"),
            (self.refused, "refused: answers that nobody listens there"),
            (self.unsendable, "unsendable: this host could not send, counted as lost"),
            (self.overflowed, "overflowed: dropped by this host, counted as lost"),
        ] {
            if count > 0 {
                lines.push(format!("  {count} {what}"));
            }
        }
        lines.push(match first_sequence {
            0 => format!("  written to {file}"),
            n => format!("  appended to {file}, which had {n} already"),
        });
        lines.join("\n")
    }
}

#[derive(Serialize)]
pub struct ReflectView {
    reflected: u64,
    ignored: u64,
    unsendable: u64,
    overflowed: u64,
}

impl From<Reflected> for ReflectView {
    fn from(counts: Reflected) -> Self {
        let Reflected { reflected, ignored, unsendable, overflowed } = counts;
        Self { reflected, ignored, unsendable, overflowed }
    }
}

impl ReflectView {
    pub fn text(&self) -> String {
        let Self { reflected, ignored, unsendable, overflowed } = self;
        format!(
            "{reflected} reflected, {ignored} ignored (no probes), {unsendable} not answerable, \
             {overflowed} dropped by this host"
        )
    }
}
