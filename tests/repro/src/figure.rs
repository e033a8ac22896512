// SPDX-License-Identifier: Apache-2.0
//! A published figure: a number, or an order of two rows.

use anyhow::ensure;
use serde::{Deserialize, Serialize};

/// A published number.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Name, unique in the study.
    pub id: String,
    pub row: String,
    /// Rows with flows that count as well.
    #[serde(default)]
    pub with: Vec<String>,
    /// Metric of a flow, for example `steady_mbps`.
    pub metric: String,
    #[serde(default)]
    pub statistic: Statistic,
    /// The value is a ratio: to the same statistic of another metric.
    pub per: Option<String>,
    /// The value is a ratio: to the same statistic of another row.
    pub relative_to: Option<String>,
    pub value: f64,
    /// Accepted deviation, as a share of the value. Either this or `factor`.
    pub tolerance: Option<f64>,
    /// Accepted factor, in both directions.
    pub factor: Option<f64>,
    /// Table, figure or section of the paper.
    pub place: String,
    /// Known reason for a difference.
    pub explained: Option<Explained>,
}

/// Statistic over the flows of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    #[default]
    Mean,
    Sd,
    Median,
    /// First quartile.
    P25,
    /// Third quartile.
    P75,
    Max,
}

/// A statement that one row has a lower value than another.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    pub id: String,
    pub metric: String,
    /// Metric of the row with the higher value, if it is another one.
    pub more_metric: Option<String>,
    #[serde(default)]
    pub statistic: Statistic,
    /// The ratio to the same statistic of another metric is compared.
    pub per: Option<String>,
    /// Row with the lower value.
    pub less: String,
    /// Row with the higher value.
    pub more: String,
    pub place: String,
    pub explained: Option<Explained>,
}

/// A measured reason for a difference.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Explained {
    /// The reason, with the measurement that shows it.
    pub reason: String,
    /// It applies to kernels from this release on, for example `5.2`; to all if absent.
    pub kernel_from: Option<String>,
}

impl Figure {
    /// The accepted range.
    #[must_use]
    pub fn band(&self) -> (f64, f64) {
        match (self.factor, self.tolerance) {
            (Some(factor), _) => (self.value / factor, self.value * factor),
            (None, tolerance) => {
                let off = (self.value * tolerance.unwrap_or_default()).abs();
                (self.value - off, self.value + off)
            }
        }
    }

    pub(crate) fn check(&self) -> anyhow::Result<()> {
        ensure!(self.value.is_finite(), "the value {} is not finite", self.value);
        ensure!(
            self.tolerance.is_some() != self.factor.is_some(),
            "it needs either `tolerance` or `factor`"
        );
        ensure!(self.tolerance.is_none_or(|t| t > 0.0), "the tolerance is not above 0");
        ensure!(self.factor.is_none_or(|f| f > 1.0), "the factor is not above 1");
        Ok(())
    }
}
