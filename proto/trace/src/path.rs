// SPDX-License-Identifier: Apache-2.0
//! Delay and loss over time, from CSV or Parquet: columns `time_s` (or `ms`, `us`, `ns`), `delay_s` (or `ms`,
//! `us`, `ns`) and `loss` (a probability) or `loss_percent`. One of delay and loss may be absent, and
//! other columns are ignored, so that a file can have a rate as well.
//!
//! A row holds until the next one, the last as long as the one before. In steps that are longer
//! than the rows the values are averaged over time.

use crate::{Column, MS, PARQUET, RateError, RateFormat, S, Table, content};
use std::path::Path;

/// In nanoseconds.
const DELAY: Column = Column {
    name: "delay",
    names: [("delay_s", S), ("delay_ms", MS), ("delay_us", 1_000), ("delay_ns", 1)],
    listed: "delay_s, delay_ms, delay_us or delay_ns",
    most: (60_000_000_000, "more than 1 min"),
};

/// In billionths.
const LOSS: Column = Column {
    name: "loss",
    names: [
        ("loss", ONE),
        ("loss_percent", ONE / 100),
        ("loss_permille", ONE / 1_000),
        ("loss_ppm", ONE / 1_000_000),
    ],
    listed: "loss, loss_percent, loss_permille or loss_ppm",
    most: (ONE as i64, "more than 1"),
};

const ONE: u64 = 1_000_000_000;

/// Delay and loss in steps of equal length.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSteps {
    pub step_ns: u64,
    /// One-way delay in each step; empty without the column.
    pub delays_ns: Vec<u64>,
    /// Probability of loss in each step; empty without the column.
    pub losses: Vec<f64>,
    /// Corrections that were made, as text.
    pub remarks: Vec<String>,
}

/// Reads CSV or Parquet. Without a step, that of the median time between its rows.
///
/// # Errors
/// If it has no such columns, or a row cannot be understood.
pub fn read_path(path: &Path, step_ns: Option<u64>) -> Result<PathSteps, RateError> {
    let (bytes, _) = content(path)?;
    let format = if bytes.starts_with(PARQUET) { RateFormat::Parquet } else { RateFormat::Csv };
    let table = Table::read(bytes, format, &[&DELAY, &LOSS])?;
    let column = |index: usize| {
        let pieces = table.pieces(index)?;
        pieces.map(|pieces| pieces.steps(format, step_ns)).transpose()
    };
    let (delays, losses) = (column(0)?, column(1)?);
    let either = delays.as_ref().or(losses.as_ref());
    let Some((step_ns, _)) = either.cloned() else { return Err(RateError::NoPath) };
    let values = |found: Option<(u64, Vec<u64>)>| found.map_or(Vec::new(), |it| it.1);
    let losses = values(losses).iter().map(|loss| *loss as f64 / ONE as f64).collect();
    Ok(PathSteps { step_ns, delays_ns: values(delays), losses, remarks: table.remarks() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str, step_ns: Option<u64>) -> Result<PathSteps, RateError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("path.csv");
        std::fs::write(&path, text).unwrap();
        read_path(&path, step_ns)
    }

    #[test]
    fn row_holds_until_the_next_and_is_averaged_in_longer_steps() {
        let text = "time_ms,delay_ms,loss,rate_mbps\n0,35.5,0,9\n1,40,0.25,9\n3,20,1,9\n4,20,0,9\n";
        let found = steps(text, None).unwrap();
        assert_eq!(found.step_ns, MS);
        assert_eq!(found.delays_ns, [35_500_000, 40_000_000, 40_000_000, 20_000_000, 20_000_000]);
        assert_eq!(found.losses, [0.0, 0.25, 0.25, 1.0, 0.0]);
        let coarse = steps(text, Some(5 * MS)).unwrap();
        assert_eq!((coarse.step_ns, coarse.delays_ns), (5 * MS, vec![31_100_000]));
        assert_eq!(coarse.losses, [0.3]);
    }

    #[test]
    fn either_column_may_be_absent_and_has_a_unit() {
        let found = steps("time_s,delay_us\n0,5\n1,7\n", None).unwrap();
        assert_eq!((found.delays_ns, found.losses), (vec![5_000, 7_000], vec![]));
        let found = steps("time_s,loss_percent\n0,50\n1,0.5\n", None).unwrap();
        assert_eq!((found.delays_ns, found.losses), (vec![], vec![0.5, 0.005]));
    }

    #[test]
    fn bad_paths_are_refused() {
        for (text, expected) in [
            ("time_s,rate_bps\n0,5\n1,7\n", "no column of delay or loss"),
            ("time,delay_ms\n0,5\n1,7\n", "no column time_s"),
            (
                "time_s,delay_ms\n0,5\n1,60001\n",
                "line 3: the delay is negative, or more than 1 min",
            ),
            ("time_s,delay_ms\n0,5\n1,-1\n", "line 3: the delay is negative"),
            ("time_s,loss\n0,1.1\n1,0\n", "line 2: the loss is negative, or more than 1"),
            ("time_s,loss\n0,x\n1,0\n", "line 2: the loss is no number"),
            ("time_s,loss\n0,1\n", "no duration"),
        ] {
            let error = steps(text, None).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
