// SPDX-License-Identifier: Apache-2.0
//! Progress of fits and verifications, and their cancellation.

use crate::common::INTERVAL_NS;
use fit::fitted::{Fitted, Options, fit};
use fit::read::{self, Limits, ReadError, read_open};
use fit::verify::{Settings, against_profile, distributions, play, regular};
use fit::work::{Cancelled, Observer, Step, observe, phase};
use profile::Catalog;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const PROBES: u64 = 12_000;

/// Notes the progress, and cancels when a step begins.
struct Notes {
    progress: Mutex<Vec<(Step, f64)>>,
    cancel_in: Option<Step>,
    is_cancelled: AtomicBool,
}

impl Notes {
    fn new(cancel_in: Option<Step>) -> Arc<Self> {
        let (progress, is_cancelled) = Default::default();
        Arc::new(Self { progress, cancel_in, is_cancelled })
    }

    fn last(&self) -> Option<Step> {
        self.progress.lock().unwrap().last().map(|(step, _)| *step)
    }
}

impl Observer for Notes {
    fn progress(&self, step: Step, done: f64) {
        self.progress.lock().unwrap().push((step, done));
        if self.cancel_in == Some(step) {
            self.is_cancelled.store(true, Ordering::Relaxed);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}

/// A log with delay excursions and losses, as a table.
fn log() -> String {
    let catalog = Catalog::built_in();
    let series = play(catalog.get("viasat2").unwrap(), 1, regular(INTERVAL_NS, PROBES)).unwrap();
    let mut text = "sent,rtt,seq\n".to_owned();
    for (number, probe) in series.iter().enumerate() {
        if let Some(rtt) = probe.rtt_ns {
            writeln!(text, "{},{},{number}", probe.sent_ns as f64 / 1e9, rtt as f64 / 1e6).unwrap();
        }
    }
    text
}

fn options(limits: Limits) -> read::Options {
    let columns = Some("sent=sent:s,rtt=rtt:ms,seq=seq".parse().unwrap());
    read::Options { columns, limits, ..read::Options::default() }
}

/// Everything that a job does.
fn work(text: &str) -> Option<Fitted> {
    phase(0.0, 0.3);
    let options = options(Limits::default());
    let input = read_open(text.as_bytes(), text.len() as u64, "log", &options).ok()?;
    phase(0.3, 0.6);
    let fitted = fit(&input, &Options::new("x")).ok()?;
    phase(0.6, 0.8);
    distributions(&input, &fitted.profile, 1).ok()?;
    phase(0.8, 1.0);
    against_profile(&input, &fitted.profile, &Settings::default()).ok()?;
    Some(fitted)
}

#[test]
fn progress_rises_through_all_steps_and_each_can_be_cancelled() {
    let text = log();
    let notes = Notes::new(None);
    let observed = observe(notes.clone(), || work(&text)).unwrap().unwrap();
    let input = read_open(text.as_bytes(), 0, "log", &options(Limits::default())).unwrap();
    let alone = fit(&input, &Options::new("x")).unwrap();
    assert_eq!(observed.profile.to_toml(), alone.profile.to_toml());
    let progress = notes.progress.lock().unwrap();
    assert!(progress.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{progress:?}");
    assert!(progress.last().unwrap().1 > 0.95);
    for step in Step::ALL {
        assert!(progress.iter().any(|(seen, _)| *seen == step), "{step:?}");
        let notes = Notes::new(Some(step));
        assert_eq!(observe(notes.clone(), || work(&text)).err(), Some(Cancelled));
        assert_eq!(notes.last(), Some(step), "it went on after it was cancelled");
    }
}

#[test]
fn log_above_a_limit_is_refused_before_it_is_kept() {
    let text = log();
    let read = |limits| read_open(text.as_bytes(), 0, "log", &options(limits)).unwrap_err();
    let few = Limits { probes: 5_000, ..Limits::default() };
    assert!(matches!(read(few), ReadError::TooMany { most: 5_000 }));
    let short = Limits { bytes: 50_000, ..Limits::default() };
    assert!(read(short).to_string().contains("more than 50 kB"), "{}", read(short));
    // Numbers that are missing are probes too.
    let gap = "sent,rtt,seq\n1,10,1\n2,10,2\n90000,10,90000\n";
    let few = Limits { probes: 50_000, ..Limits::default() };
    let error = read_open(gap.as_bytes(), 0, "log", &options(few)).unwrap_err();
    assert!(matches!(error, ReadError::TooMany { .. }), "{error}");
    // So are those of published figures, which a verification plays.
    let published = std::fs::read("baselines/viasat2.toml").unwrap();
    let limits = few;
    let options = read::Options { limits, ..read::Options::default() };
    let error = read_open(&*published, 0, "log", &options).unwrap_err();
    assert!(matches!(error, ReadError::TooMany { .. }), "{error}");
    // irtt's round trips are counted as they are read.
    let trip = r#"{"seqno":1,"lost":false,"timestamps":{"client":{"send":{"wall":1}}}}"#;
    let trips = vec![trip; 60_000].join(",");
    let irtt = format!(r#"{{"config":null,"irtt":1,"system_info":1,"round_trips":[{trips}]}}"#);
    let error = read_open(irtt.as_bytes(), 0, "log", &options).unwrap_err();
    assert!(matches!(error, ReadError::TooMany { .. }), "{error}");
}
