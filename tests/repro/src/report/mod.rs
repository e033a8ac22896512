// SPDX-License-Identifier: Apache-2.0
//! The report of a study: verdicts, rows and conditions of the flows, as JSON, as a page, and as a
//! section of docs/studies.md.

pub mod document;
pub mod page;
pub mod plots;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use crate::figure::Statistic;
use crate::link::{self, Identity};
use crate::machine::Machine;
use crate::metrics::Metrics;
use crate::server;
use crate::statistics;
use crate::store::{Record, Store, identity};
use crate::study::{Place, Row, Study};
use crate::verdict::{self, Flows, Judged, Verdict};

/// Everything that a report shows.
#[derive(Debug, Serialize)]
pub struct Report {
    pub study: String,
    pub title: String,
    pub source: String,
    pub published_hosts: String,
    pub notes: Vec<String>,
    /// Day of the newest flow, as YYYY-MM-DD; absent without flows.
    pub date: Option<String>,
    pub machines: Vec<Machine>,
    pub profiles: Vec<Identity>,
    pub needed: u32,
    pub figures: Vec<Judged>,
    pub rows: Vec<RowReport>,
}

#[derive(Debug, Serialize)]
pub struct RowReport {
    pub name: String,
    pub not_run: Option<String>,
    pub flows: usize,
    /// Kernels of the senders.
    pub kernels: BTreeSet<String>,
    /// Reasons of void attempts.
    pub void: Vec<String>,
    /// Mean and standard deviation of each metric.
    pub metrics: BTreeMap<String, (f64, Option<f64>)>,
    #[serde(skip)]
    pub records: Vec<Record>,
}

impl Report {
    /// Reads the results of a study below `root`, which has a directory for each study.
    ///
    /// # Errors
    /// If results cannot be read, or the link of a row does not resolve.
    pub fn of(study: &Study, beside: &Path, root: &Path, kernel: &str) -> anyhow::Result<Self> {
        let rows = study
            .row
            .iter()
            .map(|row| RowReport::of(study, row, beside, root, kernel))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let records = || rows.iter().flat_map(|row| &row.records);
        let mut flows = Flows {
            needed: study.size.flows as usize,
            kernel: kernel.to_owned(),
            ..Flows::default()
        };
        for row in &rows {
            let metrics: Vec<Metrics> =
                row.records.iter().map(|r| r.attempt.metrics.clone()).collect();
            flows.rows.insert(row.name.clone(), metrics);
            if let Some(reason) = &row.not_run {
                flows.not_run.insert(row.name.clone(), reason.clone());
            }
        }
        let numbers = study.figure.iter().map(|f| verdict::figure(f, &flows));
        let orders = study.order.iter().map(|o| verdict::order(o, &flows));
        let figures = numbers.chain(orders).collect();
        let machines: BTreeSet<_> = records().map(|r| r.machine.clone()).collect();
        let profiles: BTreeSet<_> = records().map(|r| r.profile.clone()).collect();
        let date = records().map(|r| &r.started).max();
        Ok(Self {
            study: study.name.clone(),
            title: study.title.clone(),
            source: study.source.clone(),
            published_hosts: study.hosts.published.clone(),
            notes: study.notes.clone(),
            date: date.and_then(|d| d.get(..10)).map(str::to_owned),
            machines: machines.into_iter().collect(),
            profiles: profiles.into_iter().collect(),
            needed: study.size.flows,
            figures,
            rows,
        })
    }

    /// Number of figures with a verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.figures.iter().filter(|f| f.verdict == verdict).count()
    }

    /// One line: how many figures agree, differ, and so on.
    #[must_use]
    pub fn total(&self) -> String {
        use Verdict::{Agrees, Differs, Explained, NotRun, Undecided};
        let counts = [Agrees, Explained, Differs, Undecided, NotRun]
            .map(|verdict| (self.count(verdict), verdict.word()));
        let shown = counts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}"));
        format!("{} figures: {}", self.figures.len(), shown.collect::<Vec<_>>().join(", "))
    }
}

impl RowReport {
    /// Flows and the sender's kernel.
    pub(crate) fn account(&self) -> String {
        let kernels: Vec<_> = self.kernels.iter().map(|k| format!("Linux {k}")).collect();
        let sender = if kernels.is_empty() {
            String::new()
        } else {
            format!(", sender {}", kernels.join(", "))
        };
        format!("{} valid flows, {} void{sender}", self.flows, self.void.len())
    }

    fn of(
        study: &Study,
        row: &Row,
        beside: &Path,
        root: &Path,
        kernel: &str,
    ) -> anyhow::Result<Self> {
        let mut report = Self {
            name: row.name.clone(),
            not_run: row.not_run.clone(),
            flows: 0,
            kernels: BTreeSet::new(),
            void: Vec::new(),
            metrics: BTreeMap::new(),
            records: Vec::new(),
        };
        if let Some(other) = &row.from {
            let (other, file) =
                Study::load(&beside.join(format!("{other}.toml")).display().to_string())?;
            let row = other.row(&row.name)?;
            let folder = file.parent().unwrap_or(Path::new(""));
            return Self::of(&other, row, folder, root, kernel);
        }
        let directory = root.join(&study.name);
        if row.not_run.is_some() || !directory.exists() {
            return Ok(report);
        }
        let link = link::resolve(&study.link, &row.link, beside, None)
            .with_context(|| format!("the link of {}", row.name))?;
        let store = Store::open(&directory)?;
        // The guest's kernel is a part of the project's set-up, the machine's is not.
        let kernel = match row.server {
            Place::Namespace => Some(kernel.to_owned()),
            Place::Guest => server::kernel(row.server).ok(),
        };
        if let Some(kernel) = kernel {
            let identity = identity(study, row, &link, &kernel)?;
            report.records = store.valid(&row.name, Some(&identity))?;
        }
        report.void =
            store.void(&row.name)?.into_iter().filter_map(|record| record.attempt.void).collect();
        report.flows = report.records.len();
        report.kernels = report.records.iter().map(|r| r.kernel.clone()).collect();
        let names: BTreeSet<&String> =
            report.records.iter().flat_map(|r| r.attempt.metrics.keys()).collect();
        for name in names {
            let values: Vec<f64> = report
                .records
                .iter()
                .filter_map(|r| r.attempt.metrics.get(name).copied())
                .collect();
            if let Some(mean) = statistics::estimate(&values, Statistic::Mean) {
                let sd = statistics::deviation(&values);
                report.metrics.insert(name.clone(), (mean.value, sd));
            }
        }
        Ok(report)
    }
}

/// Three significant digits or more, without an exponent.
#[must_use]
pub fn digits(value: f64) -> String {
    match value.abs() {
        _ if value == f64::INFINITY => "∞".to_owned(),
        _ if value == f64::NEG_INFINITY => "−∞".to_owned(),
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 1.0 || v == 0.0 => format!("{value:.2}"),
        v if v >= 0.01 => format!("{value:.4}"),
        _ => format!("{value:.6}"),
    }
}

/// Paper, accepted range, ours and interval of a figure, as text.
pub(crate) fn cells(judged: &Judged) -> [String; 4] {
    let range = |(low, high): (f64, f64)| format!("{} to {}", digits(low), digits(high));
    let paper = judged.paper.map_or_else(|| "above 0".to_owned(), digits);
    let accepted = judged.accepted.map_or_else(String::new, range);
    let ours = judged.ours.map_or_else(|| "–".to_owned(), |o| digits(o.value));
    let interval = judged.ours.map_or_else(String::new, |o| range((o.low, o.high)));
    [paper, accepted, ours, interval]
}
