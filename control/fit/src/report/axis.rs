// SPDX-License-Identifier: Apache-2.0
//! The scale of a plot: its range, its ticks and their labels.
//!
//! A logarithmic axis is a linear one over the decimal logarithm. Ranges and ticks are chosen
//! here, so that no value, however odd, reaches the plotting library's own search for them.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// Beyond this a value is not plotted, nor below its inverse on a logarithmic axis.
const LARGEST: f64 = 1e12;
/// Steps of an axis in hours that people can read off.
const HOURS: [f64; 10] = [0.25, 0.5, 1.0, 3.0, 6.0, 12.0, 24.0, 48.0, 168.0, 336.0];

/// Quantity on a linear axis, which determines its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Real,
    Whole,
    Hours,
}

#[derive(Clone, Debug)]
pub struct Axis {
    logarithmic: bool,
    /// Start of the plotted value: the logarithm on a logarithmic axis.
    from: f64,
    to: f64,
    ticks: Vec<f64>,
    /// Decimals of a label on a linear axis.
    decimals: usize,
}

impl Axis {
    /// From one value to another.
    pub fn between(from: f64, to: f64, kind: Kind) -> Self {
        let step = step(to - from, kind);
        let first = (from / step).ceil();
        let ticks: Vec<f64> = (0..20).map(|n| (first + f64::from(n)) * step).collect();
        let ticks = ticks.into_iter().filter(|t| *t <= to + 1e-9 * step).collect();
        let decimals = if step < 1.0 { (-step.log10()).ceil().min(12.0) as usize } else { 0 };
        // A quarter of an hour has two.
        let decimals = decimals.max(if kind == Kind::Hours && step < 0.5 { 2 } else { 0 });
        Self { logarithmic: false, from, to, ticks, decimals }
    }

    pub fn linear(values: impl Iterator<Item = f64>, kind: Kind) -> Self {
        let (least, largest) = extent(values.filter(|v| v.abs() <= LARGEST)).unwrap_or((0.0, 1.0));
        let span = largest - least;
        // A single value is in the middle; a span within the rounding error counts as one value.
        let rounding = 1e-9 * largest.abs().max(least.abs()).max(1.0);
        let pad = if span > rounding { 0.03 * span } else { rounding.max(0.5) };
        Self::between(least - pad, largest + pad, kind)
    }

    /// Logarithmic, in whole decades around some values.
    pub fn decades(values: impl Iterator<Item = f64>) -> Self {
        let (least, largest) = extent(logarithms(values)).unwrap_or((0.0, 1.0));
        let (from, to) = (least.floor(), largest.ceil());
        Self::powers(from, if to > from { to } else { from + 1.0 })
    }

    /// Logarithmic if most of the values crowd at the left end of a linear axis.
    pub fn fitting(values: impl Iterator<Item = f64>, kind: Kind) -> Self {
        let values: Vec<f64> = values.collect();
        let mut logs: Vec<f64> = logarithms(values.iter().copied()).collect();
        logs.sort_by(f64::total_cmp);
        let median = logs.get(logs.len() / 2);
        match (logs.first(), median, logs.last()) {
            (Some(first), Some(median), Some(last)) if last - median > 1.0 => {
                let pad = 0.03 * (last - first);
                Self::powers(first - pad, last + pad)
            }
            _ => Self::linear(values.into_iter(), kind),
        }
    }

    /// Logarithmic, from one power of ten to another.
    fn powers(from: f64, to: f64) -> Self {
        let stride = ((to - from) / 7.0).ceil().max(1.0);
        let first = (from / stride).floor();
        let within: &[f64] = if to - from < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let ticks = (0..20)
            .flat_map(|n| within.iter().map(move |w| (first + f64::from(n)) * stride + w.log10()))
            .filter(|t| (from - 1e-9..=to + 1e-9).contains(t))
            .collect();
        Self { logarithmic: true, from, to, ticks, decimals: 0 }
    }

    /// Where a value is on the axis, if it is on it.
    pub fn place(&self, value: f64) -> Option<f64> {
        let place = if self.logarithmic { value.log10() } else { value };
        // A margin for the rounding of whole decades.
        (self.from - 1e-9..=self.to + 1e-9).contains(&place).then_some(place)
    }

    /// The places of its ends.
    pub const fn ends(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// Label of a tick.
    fn label(&self, place: f64) -> String {
        if !self.logarithmic {
            // The tick at zero may be -0.
            return format!("{:.*}", self.decimals, place + 0.0);
        }
        let value = 10_f64.powf(place);
        match place {
            p if !(-5.5..=5.5).contains(&p) => format!("{value:.0e}"),
            p if p < 0.0 => format!("{value:.*}", (-p - 1e-9).ceil().max(0.0) as usize),
            _ => format!("{value:.0}"),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (place - self.from) / (self.to - self.from);
        from + (f64::from(to - from) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(place: &f64) -> String {
        place.to_string()
    }

    fn format_ext(&self, place: &f64) -> String {
        self.label(*place)
    }
}

/// The distance of ticks over a span.
fn step(span: f64, kind: Kind) -> f64 {
    let at_most = match kind {
        Kind::Real => 7.0,
        Kind::Whole => 14.0,
        Kind::Hours => 9.0,
    };
    let wanted = (span / at_most).max(f64::MIN_POSITIVE);
    if kind == Kind::Hours
        && let Some(step) = HOURS.into_iter().find(|h| *h >= wanted && wanted > 0.1)
    {
        return step;
    }
    let decade = 10_f64.powf(wanted.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|m| m * decade >= wanted).unwrap_or(10.0) * decade;
    if kind == Kind::Whole { step.max(1.0) } else { step }
}

/// The least and the largest.
fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |extent, v| {
        let (least, largest) = extent.unwrap_or((v, v));
        Some((v.min(least), v.max(largest)))
    })
}

/// The decimal logarithms of those that have one that can be shown.
fn logarithms(values: impl Iterator<Item = f64>) -> impl Iterator<Item = f64> {
    values.filter(|v| (1.0 / LARGEST..=LARGEST).contains(v)).map(f64::log10)
}
