// SPDX-License-Identifier: Apache-2.0
//! The period by which a baseline and a link are compared: that of the baseline, or of the link if
//! the baseline has none. The phase of each side is its own.

use profile::Profile;

use super::figures::{exceeded, sorted};
use super::periods::{PeriodFigures, Periods, phase};
use crate::baseline::{Baseline, Series};
use crate::period::{Period, detect};
use crate::seconds;

/// Round trips are cut to the one that is exceeded with this probability.
const CUT: f64 = 0.01;

/// Periods that differ by less than this share are the same.
const SAME: f64 = 1e-3;

pub struct Periodic {
    /// In seconds.
    pub period: f64,
    /// The boundary of the baseline after its zero; `None` if it has no period.
    baseline: Option<f64>,
    link: Option<f64>,
    cut: u64,
    middle: u64,
    periods: Periods,
}

impl Periodic {
    /// For a link that plays a profile. None if neither has a period.
    pub fn of_profile(baseline: &Baseline, profile: &Profile) -> Option<Self> {
        let profile = profile.as_proto();
        let pipes = [&profile.return_pipe, &profile.forward_pipe];
        let stated = pipes.into_iter().flatten().find_map(|pipe| pipe.reconfiguration.as_ref());
        // A play begins at zero of either clock.
        let stated = stated.map(|of| (seconds(of.period_ns), Some(seconds(of.phase_ns))));
        Self::of(baseline, || stated)
    }

    /// For a link that was measured. None if neither has a period.
    pub fn of_log(baseline: &Baseline, live: &Baseline) -> Option<Self> {
        let of = |found: Period| (found.length.value, Some(found.phase.value));
        Self::of(baseline, || detect(&live.series, live.interval_ns).map(of))
    }

    fn of(baseline: &Baseline, other: impl Fn() -> Option<(f64, Option<f64>)>) -> Option<Self> {
        let found = detect(&baseline.series, baseline.interval_ns);
        let (period, link) = match &found {
            Some(found) => {
                let period = found.length.value;
                // The phase of another period says nothing.
                let same = other().filter(|(of, _)| (of / period - 1.0).abs() < SAME);
                (period, same.and_then(|(_, phase)| phase))
            }
            None => other()?,
        };
        let sorted = sorted(&baseline.series);
        let (cut, middle) = (exceeded(&sorted, CUT), exceeded(&sorted, 0.5));
        let periods = Periods::new(period, seconds(baseline.interval_ns), cut, middle);
        let baseline = found.map(|found| found.phase.value);
        Some(Self { period, baseline, link, cut, middle, periods })
    }

    /// Adds a series of the link; all of them have the same phase.
    pub fn add(&mut self, series: &Series) {
        let (period, cut, middle) = (self.period, self.cut, self.middle);
        let phase = *self.link.get_or_insert_with(|| phase(series, period, cut, middle));
        self.periods.add(series, phase);
    }

    /// The figures of the baseline and of the link.
    pub fn figures(&self, baseline: &Baseline) -> [PeriodFigures; 2] {
        let Self { period, cut, middle, .. } = *self;
        let mut own = Periods::new(period, seconds(baseline.interval_ns), cut, middle);
        let phase = self.baseline.unwrap_or_else(|| phase(&baseline.series, period, cut, middle));
        own.add(&baseline.series, phase);
        [own.figures(), self.periods.figures()]
    }
}
