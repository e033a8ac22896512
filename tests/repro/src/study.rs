// SPDX-License-Identifier: Apache-2.0
//! The description of a study: hosts, link, experiments, and the figures that it published.
//!
//! A study is a TOML file in `tests/repro/studies`. Each `[[row]]` is an experiment that is repeated:
//! one or more simultaneous transfers over one link. Each `[[figure]]` is a published number, with
//! its tolerance and its place in the paper.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use quicflow::page::Page;
use serde::{Deserialize, Deserializer, Serialize};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Short name, for example `sat20`: the name of the file and of the directory of results.
    pub name: String,
    pub title: String,
    /// Citation.
    pub source: String,
    /// What a reader must know about the comparison.
    #[serde(default)]
    pub notes: Vec<String>,
    pub hosts: Hosts,
    pub link: Link,
    pub limits: Limits,
    pub metrics: Metrics,
    pub size: Size,
    pub row: Vec<Row>,
    #[serde(default)]
    pub figure: Vec<crate::figure::Figure>,
    #[serde(default)]
    pub order: Vec<crate::figure::Order>,
}

/// Settings of the two hosts.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hosts {
    /// Software of the authors' hosts, for the report.
    pub published: String,
    /// Kernel parameters below `/proc/sys`, with dots, of both hosts.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
    /// MTU of the hosts' interfaces; 1500 if absent.
    pub mtu: Option<u16>,
    /// Queueing discipline of the hosts' interfaces, as `tc qdisc replace … root` takes it.
    pub qdisc: Option<String>,
}

/// A profile, and the parameters of it that are replaced.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Name of a built-in profile, or a file relative to the study's file.
    pub profile: Option<String>,
    /// Paths that are removed first, for example `forward.queue.random_drop`.
    #[serde(default)]
    pub remove: Vec<String>,
    /// Built-in scenario that runs during the transfers, and may replace the profile.
    pub scenario: Option<String>,
    /// Tables that are merged into the profile's TOML.
    #[serde(default)]
    pub change: toml::Table,
}

/// Conditions under which a flow counts.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Longest stall of the emulator.
    #[serde(deserialize_with = "span", serialize_with = "written")]
    pub stall: Duration,
    /// Lateness of the emulator that 99 % of packets must not exceed.
    #[serde(deserialize_with = "span", serialize_with = "written")]
    pub lateness: Duration,
    /// Longest duration of an experiment.
    #[serde(deserialize_with = "span", serialize_with = "written")]
    pub experiment: Duration,
    /// Void attempts in a row after which a run gives up.
    pub attempts: u32,
}

/// Definitions of the metrics, as the authors computed them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Throughput and retransmissions of iperf3's reports take the place of a capture: the authors
    /// read them there, or a capture would disturb a fast flow.
    #[serde(default)]
    pub from_iperf3: bool,
    /// Bytes of the start-up phase: its throughput is this over the whole seconds that it took.
    pub startup_bytes: Option<u64>,
    /// Bytes between which the steady state is measured.
    pub steady_bytes: Option<[u64; 2]>,
    /// Sizes of objects for download times, in bytes.
    #[serde(default)]
    pub object_bytes: Vec<u64>,
    /// Round-trip times of at most this are ignored.
    #[serde(default, deserialize_with = "some_span", serialize_with = "some_written")]
    pub rtt_floor: Option<Duration>,
    /// Round-trip times from this time on belong to the steady state.
    #[serde(default, deserialize_with = "some_span", serialize_with = "some_written")]
    pub rtt_steady_from: Option<Duration>,
    /// A round-trip time: the share of samples at or above it is a metric.
    #[serde(default, deserialize_with = "some_span", serialize_with = "some_written")]
    pub rtt_high: Option<Duration>,
}

/// Number of valid flows of each row, and the pause between experiments.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// In the full form. A figure with fewer flows does not agree: it is undecided.
    pub flows: u32,
    /// In the short form, which takes at most 25 minutes.
    pub short: u32,
    #[serde(deserialize_with = "span")]
    pub pause: Duration,
}

/// An experiment that is repeated.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Name, unique in the study.
    pub name: String,
    /// Changes of the study's link.
    #[serde(default)]
    pub link: Link,
    /// Where the sender runs.
    #[serde(default)]
    pub server: Place,
    /// Simultaneous transfers.
    #[serde(default)]
    pub transfer: Vec<Transfer>,
    /// Number of rounds that run at once, each with clients of their own: links of a few Mbit/s
    /// leave the machine idle.
    #[serde(default = "one")]
    pub parallel: u8,
    /// Time between the starts of parallel rounds: they then see different parts of a link that
    /// changes.
    #[serde(default, deserialize_with = "some_span", serialize_with = "some_written")]
    pub stagger: Option<Duration>,
    /// Reason for which this row cannot be run; it has no transfers then.
    pub not_run: Option<String>,
    /// Another study, with a row of this name: its flows are the flows of this row.
    pub from: Option<String>,
}

/// Host of the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// A network namespace, with the kernel of this machine.
    #[default]
    Namespace,
    /// A QEMU guest with another kernel.
    Guest,
}

/// A download: the server sends, the client receives.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Prefix of its metrics (`NAME.METRIC`) if a row has several transfers.
    #[serde(default)]
    pub name: String,
    pub tool: Tool,
    /// QUIC stack, for `quic`.
    pub stack: Option<Stack>,
    /// Congestion control, as the sender's system calls it.
    pub algorithm: String,
    /// Client of the link, from 0 on. Transfers to one client share its queue and rate.
    #[serde(default)]
    pub client: u8,
    /// Exactly one of `bytes`, `duration` and, for `quic`, `page`.
    pub bytes: Option<u64>,
    #[serde(default, deserialize_with = "some_span", serialize_with = "some_written")]
    pub duration: Option<Duration>,
    pub page: Option<Page>,
}

/// Most clients of a bed: rounds at once times clients of a round.
const CLIENTS: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// `iperf3 --reverse`: kernel TCP.
    Iperf3,
    /// `quicflow`.
    Quic,
}

/// A QUIC stack of `quicflow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stack {
    Quinn,
    S2n,
}

impl Study {
    /// Reads a study by name, or by the path of its file.
    ///
    /// # Errors
    /// If the file cannot be read or a description is inconsistent.
    pub fn load(name: &str) -> anyhow::Result<(Self, PathBuf)> {
        let path = if name.contains('/') || Path::new(name).extension().is_some() {
            PathBuf::from(name)
        } else {
            directory().join(format!("{name}.toml"))
        };
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!("read the study {}; there are {}", path.display(), names().join(", "))
        })?;
        let study = Self::parse(&text).with_context(|| path.display().to_string())?;
        Ok((study, path))
    }

    /// # Errors
    /// As [`Study::load`].
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let study: Self = crate::grid::expand(text.parse()?)?.try_into()?;
        study.check()?;
        Ok(study)
    }

    /// Rows that can be run in this study.
    pub fn runnable(&self) -> impl Iterator<Item = &Row> {
        self.row.iter().filter(|row| !row.transfer.is_empty())
    }

    /// The row of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn row(&self, name: &str) -> anyhow::Result<&Row> {
        let found = self.row.iter().find(|r| r.name == name);
        found.with_context(|| {
            let known: Vec<_> = self.row.iter().map(|r| r.name.as_str()).collect();
            format!("{} has no row {name:?}; it has {}", self.name, known.join(", "))
        })
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.size.flows > 0, "size.flows is 0: at least 1");
        ensure!(self.limits.attempts > 0, "limits.attempts is 0: at least 1");
        ensure!(self.link.profile.is_some(), "link.profile is missing");
        let mut names = HashSet::new();
        for row in &self.row {
            row.check().with_context(|| format!("row {:?}", row.name))?;
            ensure!(names.insert(&row.name), "two rows have the name {:?}", row.name);
        }
        let mut ids = HashSet::new();
        for figure in &self.figure {
            let rows = [Some(&figure.row), figure.relative_to.as_ref()];
            for row in rows.into_iter().flatten().chain(&figure.with) {
                self.row(row).with_context(|| format!("figure {:?}", figure.id))?;
            }
            figure.check().with_context(|| format!("figure {:?}", figure.id))?;
            ensure!(ids.insert(&figure.id), "two figures have the id {:?}", figure.id);
        }
        for order in &self.order {
            for side in [&order.less, &order.more] {
                self.row(side).with_context(|| format!("order {:?}", order.id))?;
            }
            ensure!(ids.insert(&order.id), "two figures have the id {:?}", order.id);
        }
        Ok(())
    }
}

impl Transfer {
    fn check(&self) -> anyhow::Result<()> {
        let amounts = [self.bytes.is_some(), self.duration.is_some(), self.page.is_some()];
        if amounts.into_iter().filter(|given| *given).count() != 1 {
            bail!("a transfer needs one of `bytes`, `duration` and `page`");
        }
        let quic = self.tool == Tool::Quic;
        ensure!(
            quic == self.stack.is_some(),
            "`stack` belongs to the tool `quic`, and it needs one"
        );
        ensure!(quic || self.page.is_none(), "`page` belongs to the tool `quic`");
        Ok(())
    }
}

impl Row {
    /// Number of clients in a round.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.transfer.iter().map(|t| usize::from(t.client) + 1).max().unwrap_or(1)
    }

    fn check(&self) -> anyhow::Result<()> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        ensure!(
            !self.name.is_empty() && self.name.chars().all(plain),
            "a name has letters, digits, `-`, `_` and `.`: it is part of a file's name"
        );
        let sources = [!self.transfer.is_empty(), self.not_run.is_some(), self.from.is_some()];
        ensure!(
            sources.into_iter().filter(|given| *given).count() == 1,
            "it needs one of: transfers, the reason `not_run`, or the study `from` which it comes"
        );
        let clients = self.clients() * usize::from(self.parallel);
        ensure!(
            (1..=CLIENTS).contains(&clients),
            "{clients} clients at once (`parallel` times clients): 1 to {CLIENTS}"
        );
        let quic = self.transfer.iter().any(|t| t.tool == Tool::Quic);
        ensure!(
            self.server == Place::Namespace || !quic && self.parallel == 1,
            "a guest sends by iperf3 only, and one round at a time"
        );
        let mut names = HashSet::new();
        for transfer in &self.transfer {
            transfer.check()?;
            ensure!(
                names.insert(&transfer.name),
                "two transfers have the name {:?}: their metrics would be the same",
                transfer.name
            );
        }
        Ok(())
    }
}

/// The directory of the studies.
#[must_use]
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("studies")
}

/// Names of all studies, sorted.
#[must_use]
pub fn names() -> Vec<String> {
    let files = std::fs::read_dir(directory()).into_iter().flatten().flatten();
    let mut names: Vec<String> = files
        .filter(|f| f.path().extension().is_some_and(|e| e == "toml"))
        .filter_map(|f| Some(f.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

fn one() -> u8 {
    1
}

fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    humantime::parse_duration(&text)
        .map_err(|e| serde::de::Error::custom(format!("{text:?} is no duration: {e}")))
}

fn some_span<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    span(from).map(Some)
}

fn written<S: serde::Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_duration(*span))
}

#[allow(clippy::ref_option)]
fn some_written<S: serde::Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    span.map(|s| humantime::format_duration(s).to_string()).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_study_is_consistent_and_its_links_resolve() {
        let all = names();
        assert!(all.contains(&"sat20".to_owned()), "{all:?}");
        for name in all {
            let (study, file) = Study::load(&name).unwrap();
            assert_eq!(study.name, name);
            for row in &study.row {
                let beside = file.parent().unwrap();
                crate::link::resolve(&study.link, &row.link, beside, None).unwrap();
            }
        }
    }

    #[test]
    fn inconsistent_description_names_its_place() {
        let text = std::fs::read_to_string(directory().join("sat20.toml")).unwrap();
        for (from, to, part) in [
            ("row = \"cubic\"\nmetric", "row = \"reno\"\nmetric", "reno"),
            ("bytes = 1_073_741_824", "", "one of `bytes`"),
            ("tolerance = 0.05", "tolerance = -1.0", "above 0"),
            ("name = \"bbr\"", "name = \"cubic\"", "two rows"),
            ("stall = \"350 ms\"", "stall = \"350\"", "no duration"),
            ("id = \"object-1mb-bbr\"", "id = \"object-1mb-cubic\"", "two figures"),
        ] {
            let error = Study::parse(&text.replacen(from, to, 1)).unwrap_err();
            assert!(format!("{error:#}").contains(part), "{part}: {error:#}");
        }
    }
}
