// SPDX-License-Identifier: Apache-2.0
//! Figures of reconfigurations and of the burstiness of losses.

use super::{Compared, HALF, LEAST_COUNT, Named, SHARE, short};
use crate::seconds;
use crate::verify::comparison::Group;
use crate::verify::decision::Error;
use crate::verify::periods::{APART, NEAR, PeriodFigures};

/// The floor of an index of dispersion: that of independent losses.
const INDEPENDENT: f64 = 1.0;

impl<'a> Compared<'a> {
    /// The figures by the periods; `period` is their length in seconds.
    pub fn periods(&mut self, period: f64, baseline: &'a PeriodFigures, link: &'a PeriodFigures) {
        let named = |name: String, unit, scale| Named::new(Group::Periods, name, unit, scale);
        let every = short(period);
        let between = format!("share of the variance between periods of {every} s");
        self.fixed(named(between, "", 1.0), baseline.between, link.between);
        let changes = "share of the changes at boundaries".into();
        self.fixed(named(changes, "", 1.0), baseline.at_boundaries, link.at_boundaries);
        let apart =
            [format!("within a period, at {} s", short(APART * period)), format!("at {every} s")];
        for (i, name) in apart.into_iter().enumerate() {
            let figures = [baseline, link].map(|f| f.autocorrelation[i]);
            let named = Named::new(Group::Autocorrelation, name, "", 1.0).rare_if(true);
            self.fixed(named, figures[0], figures[1]);
        }
        let percent = short(100.0 * NEAR);
        let lost = format!("lost within {percent} % of a period from boundaries");
        let named_lost = named(lost, "%", 100.0).rare_if(true);
        self.ratio(named_lost, SHARE, &baseline.lost, &link.lost);
        if baseline.near.of.iter().sum::<f64>() >= LEAST_COUNT {
            let near = named("share of the losses that are there".into(), "%", 100.0).rare_if(true);
            self.ratio(near, HALF, &baseline.near, &link.near);
        }
    }

    /// Indices of dispersion of the losses, by the window in ns.
    pub fn bursts(&mut self, baseline: &[(u64, (f64, f64))], link: &[(u64, (f64, f64))]) {
        for ((window, of_baseline), (_, of_link)) in baseline.iter().zip(link) {
            let name = format!("dispersion of counts in {} s", short(seconds(*window)));
            let named = Named::new(Group::Losses, name, "", 1.0).rare_if(true);
            let tolerance = self.tolerance(&named, of_baseline.0, INDEPENDENT);
            self.estimated(named, tolerance, *of_baseline, *of_link);
        }
    }

    /// A figure between zero and one. Its tolerance is the margin times one half.
    fn fixed(&mut self, named: Named, baseline: (f64, f64), link: (f64, f64)) {
        let tolerance = self.margin * HALF;
        let because = format!("{} % of one half", short(100.0 * self.margin));
        self.estimated(named, (tolerance, because), baseline, link);
    }

    /// A figure that has a standard error.
    fn estimated(
        &mut self,
        named: Named,
        tolerance: (f64, String),
        baseline: (f64, f64),
        link: (f64, f64),
    ) {
        let errors = [baseline.1, link.1]
            .map(|error| Box::new(move |z: f64, by: f64| z * error / by.sqrt()) as Error<'a>);
        self.push(named, [baseline.0, link.0], tolerance, errors);
    }
}
