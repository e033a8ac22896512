// SPDX-License-Identifier: Apache-2.0
//! Compares published figures with flows.
//!
//! A figure *agrees* if there are as many flows as the study asks for, our value is in the accepted
//! range, and the confidence interval is at most twice as wide as that range. It *differs* if the
//! interval is outside the range, with any number of flows from three on. A difference with a known
//! and measured reason is *explained*. Everything else is *undecided*.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::figure::{Explained, Figure, Order, Statistic};
use crate::metrics::Metrics;
use crate::statistics::{self, Estimate};

/// Fewer flows decide nothing.
const LEAST: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Agrees,
    Differs,
    Explained,
    Undecided,
    NotRun,
}

impl Verdict {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::Explained => "explained",
            Self::Undecided => "undecided",
            Self::NotRun => "not run",
        }
    }
}

/// A verdict with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    pub id: String,
    pub place: String,
    /// What is compared.
    pub what: String,
    /// The published value; absent for an order.
    pub paper: Option<f64>,
    /// Accepted range.
    pub accepted: Option<(f64, f64)>,
    pub ours: Option<Estimate>,
    pub verdict: Verdict,
    pub reason: String,
}

/// The valid flows of a study.
#[derive(Debug, Default)]
pub struct Flows {
    /// Metrics of each flow, by row.
    pub rows: BTreeMap<String, Vec<Metrics>>,
    /// Reasons of the rows that are not run.
    pub not_run: BTreeMap<String, String>,
    /// Flows that a row needs.
    pub needed: usize,
    pub kernel: String,
}

impl Flows {
    fn of(&self, rows: &[&String], metrics: &[&String]) -> Vec<Vec<f64>> {
        let flows = rows.iter().filter_map(|row| self.rows.get(*row)).flatten();
        flows.filter_map(|flow| metrics.iter().map(|m| flow.get(*m).copied()).collect()).collect()
    }

    fn reason_not_run(&self, rows: &[&String]) -> Option<&String> {
        rows.iter().find_map(|row| self.not_run.get(*row))
    }
}

/// Compares a published number.
#[must_use]
pub fn figure(figure: &Figure, flows: &Flows) -> Judged {
    let Figure { metric, statistic, per, relative_to, .. } = figure;
    let rows: Vec<&String> = [&figure.row].into_iter().chain(&figure.with).collect();
    let bottom = relative_to.as_ref().map_or_else(|| rows.clone(), |row| vec![row]);
    let divisor = per.as_ref().unwrap_or(metric);
    let ours = match (per, relative_to) {
        (None, None) => {
            let values = flows.of(&rows, &[metric]).concat();
            statistics::estimate(&values, *statistic)
        }
        (Some(_), None) => statistics::paired(&flows.of(&rows, &[metric, divisor]), *statistic),
        (_, Some(_)) => statistics::ratio(
            &flows.of(&rows, &[metric]).concat(),
            &flows.of(&bottom, &[divisor]).concat(),
            *statistic,
        ),
    };
    let accepted = figure.band();
    let (verdict, reason) = match flows.reason_not_run(&[&rows[..], &bottom[..]].concat()) {
        Some(reason) => (Verdict::NotRun, reason.clone()),
        None => within(ours, accepted, flows, figure.explained.as_ref()),
    };
    let names = rows.iter().map(|r| r.as_str()).collect::<Vec<_>>().join(" and ");
    let mut what = format!("{names}: {} of {metric}", word(*statistic));
    if per.is_some() {
        what = format!("{what} per {divisor}");
    }
    if let Some(row) = relative_to {
        what = format!("{what}, relative to {row}");
    }
    Judged {
        id: figure.id.clone(),
        place: figure.place.clone(),
        what,
        paper: Some(figure.value),
        accepted: Some(accepted),
        ours,
        verdict,
        reason,
    }
}

fn within(
    ours: Option<Estimate>,
    (low, high): (f64, f64),
    flows: &Flows,
    explained: Option<&Explained>,
) -> (Verdict, String) {
    let Some(ours) = ours else { return (Verdict::Undecided, "no flows".to_owned()) };
    let outside = ours.high < low || ours.low > high;
    let inside = (low..=high).contains(&ours.value);
    if ours.flows >= LEAST && outside {
        return difference(flows, explained);
    }
    if let Some(few) = too_few(ours, flows) {
        return (Verdict::Undecided, few);
    }
    if !inside {
        let reason = "outside of the accepted range, and the interval reaches it";
        return (Verdict::Undecided, reason.to_owned());
    }
    if ours.high - ours.low > 2.0 * (high - low) {
        let reason = "the interval is more than twice as wide as the accepted range";
        return (Verdict::Undecided, reason.to_owned());
    }
    (Verdict::Agrees, String::new())
}

fn too_few(ours: Estimate, flows: &Flows) -> Option<String> {
    let needed = flows.needed.max(LEAST);
    (ours.flows < needed).then(|| format!("{} of {needed} flows", ours.flows))
}

fn difference(flows: &Flows, explained: Option<&Explained>) -> (Verdict, String) {
    match explained.filter(|e| applies(e, &flows.kernel)) {
        Some(explained) => (Verdict::Explained, explained.reason.clone()),
        None => (Verdict::Differs, String::new()),
    }
}

/// Compares an order of two rows.
#[must_use]
pub fn order(order: &Order, flows: &Flows) -> Judged {
    let Order { metric, statistic, less, more, .. } = order;
    let divisor = order.per.as_ref();
    let more_metric = order.more_metric.as_ref().unwrap_or(metric);
    let values = |row, metric| {
        let metrics: Vec<&String> = [metric].into_iter().chain(divisor).collect();
        flows.of(&[row], &metrics)
    };
    let sides = (values(less, metric), values(more, more_metric));
    let ours = statistics::difference(&sides.0, &sides.1, *statistic);
    let (verdict, reason) = match (flows.reason_not_run(&[less, more]), ours) {
        (Some(reason), _) => (Verdict::NotRun, reason.clone()),
        (None, None) => (Verdict::Undecided, "no flows".to_owned()),
        (None, Some(ours)) if ours.flows >= LEAST && ours.high < 0.0 => {
            difference(flows, order.explained.as_ref())
        }
        (None, Some(ours)) => match too_few(ours, flows) {
            Some(few) => (Verdict::Undecided, few),
            None if ours.low > 0.0 => (Verdict::Agrees, String::new()),
            None => (Verdict::Undecided, "the interval of the difference contains 0".to_owned()),
        },
    };
    let per = divisor.map(|d| format!(" per {d}")).unwrap_or_default();
    let what = match &order.more_metric {
        None => format!("{less} < {more}: {} of {metric}{per}", word(*statistic)),
        Some(other) => {
            format!("{less} {metric} < {more} {other}: {}{per}", word(*statistic))
        }
    };
    Judged {
        id: order.id.clone(),
        place: order.place.clone(),
        what,
        paper: None,
        accepted: None,
        ours,
        verdict,
        reason,
    }
}

/// Whether an explanation applies to a kernel.
fn applies(explained: &Explained, kernel: &str) -> bool {
    let numbers = |release: &str| -> Vec<u32> {
        release.split(['.', '-']).map_while(|part| part.parse().ok()).take(2).collect()
    };
    explained.kernel_from.as_deref().is_none_or(|from| numbers(kernel) >= numbers(from))
}

fn word(statistic: Statistic) -> &'static str {
    match statistic {
        Statistic::Mean => "mean",
        Statistic::Sd => "SD",
        Statistic::Median => "median",
        Statistic::P25 => "first quartile",
        Statistic::P75 => "third quartile",
        Statistic::Max => "maximum",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(text: &str) -> Figure {
        let common = "id = \"f\"\nrow = \"bbr\"\nmetric = \"m\"\nplace = \"Table I\"\n";
        toml::from_str(&format!("{common}{text}")).unwrap()
    }

    fn row(values: &[f64]) -> Vec<Metrics> {
        values
            .iter()
            .map(|v| Metrics::from([("m".to_owned(), *v), ("d".to_owned(), 2.0)]))
            .collect()
    }

    fn flows(bbr: &[f64], cubic: &[f64], needed: usize) -> Flows {
        let rows = [("bbr".to_owned(), row(bbr)), ("cubic".to_owned(), row(cubic))];
        let kernel = "6.18.44-x".to_owned();
        Flows { rows: rows.into(), needed, kernel, ..Flows::default() }
    }

    fn verdict(text: &str, bbr: &[f64], needed: usize) -> Verdict {
        figure(&expected(text), &flows(bbr, &[], needed)).verdict
    }

    #[test]
    fn value_within_tolerance_agrees_with_enough_flows_only() {
        let text = "value = 100\ntolerance = 0.05";
        let values = [101.0, 102.0, 103.0, 104.0];
        assert_eq!(verdict(text, &values, 4), Verdict::Agrees);
        assert_eq!(verdict(text, &values, 5), Verdict::Undecided);
        assert_eq!(verdict(text, &[], 0), Verdict::Undecided);
        // Two flows are too few, whatever the study says.
        assert_eq!(verdict(text, &[100.0, 100.0], 1), Verdict::Undecided);
    }

    #[test]
    fn interval_decides_about_a_difference() {
        let text = "value = 100\ntolerance = 0.05";
        assert_eq!(verdict(text, &[120.0, 121.0, 122.0], 20), Verdict::Differs);
        // Outside, but the interval reaches the range.
        assert_eq!(verdict(text, &[100.0, 112.0, 124.0, 112.0], 4), Verdict::Undecided);
        // Inside by chance: the interval is far wider than the range.
        assert_eq!(verdict(text, &[50.0, 100.0, 150.0, 100.0], 4), Verdict::Undecided);
    }

    #[test]
    fn difference_is_explained_on_newer_kernels_only() {
        let text = |from: &str| {
            format!(
                "value = 100\ntolerance = 0.05\n[explained]\nreason = \"r\"\nkernel_from = \"{from}\""
            )
        };
        let far = [120.0, 121.0, 122.0];
        assert_eq!(verdict(&text("5.4"), &far, 3), Verdict::Explained);
        assert_eq!(verdict(&text("6.19"), &far, 3), Verdict::Differs);
        assert_eq!(verdict(&text("5.4"), &[100.0, 100.5, 101.0], 3), Verdict::Agrees);
    }

    #[test]
    fn deviation_is_compared_by_a_factor() {
        let text = "value = 1.6\nfactor = 1.5\nstatistic = \"sd\"";
        let values: Vec<f64> = (0..20).map(|n| 100.0 + f64::from(n % 5)).collect();
        assert_eq!(verdict(text, &values, 20), Verdict::Agrees);
        assert_eq!(verdict(&text.replace("1.6", "16"), &values, 20), Verdict::Differs);
    }

    #[test]
    fn ratios_take_another_metric_or_another_row() {
        let flows = flows(&[99.0, 100.0, 101.0], &[199.0, 200.0, 201.0], 3);
        let per = figure(&expected("value = 50\ntolerance = 0.05\nper = \"d\""), &flows);
        assert_eq!((per.verdict, per.ours.unwrap().value), (Verdict::Agrees, 50.0));
        let text = "value = 0.5\ntolerance = 0.05\nrelative_to = \"cubic\"";
        let relative = figure(&expected(text), &flows);
        assert_eq!((relative.verdict, relative.ours.unwrap().value), (Verdict::Agrees, 0.5));
    }

    #[test]
    fn order_is_decided_by_the_interval_of_the_difference() {
        let text = "id = \"o\"\nmetric = \"m\"\nless = \"bbr\"\nmore = \"cubic\"\nplace = \"IV\"\n";
        for statistic in ["mean", "median"] {
            let claim: Order =
                toml::from_str(&format!("{text}statistic = \"{statistic}\"")).unwrap();
            let of = |bbr: &[f64], cubic: &[f64], needed| {
                order(&claim, &flows(bbr, cubic, needed)).verdict
            };
            let (low, high) = ([1.0, 2.0, 3.0, 2.0], [11.0, 12.0, 13.0, 12.0]);
            assert_eq!(of(&low, &high, 4), Verdict::Agrees);
            assert_eq!(of(&low, &high, 5), Verdict::Undecided);
            assert_eq!(of(&high, &low, 4), Verdict::Differs);
            assert_eq!(of(&low, &low, 4), Verdict::Undecided);
        }
    }

    #[test]
    fn order_of_two_metrics_of_a_row_is_decided() {
        let text = "id = \"o\"\nless = \"bbr\"\nmore = \"bbr\"\nplace = \"IV\"\n";
        let of = |less: &str, more: &str| {
            let sides = format!("metric = \"{less}\"\nmore_metric = \"{more}\"");
            let claim: Order = toml::from_str(&format!("{text}{sides}")).unwrap();
            order(&claim, &flows(&[9.0, 10.0, 11.0], &[], 3)).verdict
        };
        // Metric d is 2 in all flows.
        assert_eq!(of("d", "m"), Verdict::Agrees);
        assert_eq!(of("m", "d"), Verdict::Differs);
    }

    #[test]
    fn row_that_is_not_run_has_its_reason() {
        let mut flows = flows(&[], &[], 3);
        flows.not_run.insert("bbr".to_owned(), "proprietary".to_owned());
        let judged = figure(&expected("value = 1\ntolerance = 0.1"), &flows);
        assert_eq!((judged.verdict, judged.reason.as_str()), (Verdict::NotRun, "proprietary"));
    }
}
