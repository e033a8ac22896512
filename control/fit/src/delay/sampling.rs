// SPDX-License-Identifier: Apache-2.0
//! How much the figures of a log vary by chance, if a law holds.
//!
//! Episodes come at random, so the counts that they leave are compound Poisson sums:
//! their covariance is the number of episodes times the mean product of one episode's counts.
//! That mean is taken over a lattice of episodes (durations, extra delays, phases of the
//! probes and of the slots; the Kronecker sequence of the plastic number's kin,
//! H. Niederreiter, 1992), so that it is the same in every run. The law's own errors are
//! better known than a log's: a log without its largest episodes does not know that it
//! lacks them.

use nalgebra::DMatrix;

use super::body::quantile;
use super::law::{Body, Excursions, Law};
use super::moments::Figures;

/// Episodes of the lattice, per class.
const EPISODES: u32 = 12_000;
/// Probes of one episode that are looked at.
const PROBES: usize = 4_000;

/// Fractional parts of multiples of these fill the unit cube evenly.
const GENERATORS: [f64; 4] = [
    0.856_674_883_854_502_9,
    0.733_891_856_627_126_1,
    0.628_706_721_119_175_7,
    0.538_597_257_138_8,
];

/// The covariance of the figures of `probes` probes, `interval` apart.
#[must_use]
pub fn covariance(law: &Law, figures: &Figures, interval: f64, probes: f64) -> DMatrix<f64> {
    let n = figures.len();
    let mut sum = DMatrix::zeros(n, n);
    for class in &law.excursions {
        let episodes = probes * interval / (class.interval + class.duration);
        let weight = episodes / f64::from(EPISODES) / (probes * probes);
        let mut counts = vec![0.0; n];
        let mut hit = Vec::new();
        for k in 1..=EPISODES {
            let u = GENERATORS.map(|g| (g * f64::from(k)).fract());
            leave(law, class, figures, interval, u, &mut counts, &mut hit);
            for i in &hit {
                for j in &hit {
                    sum[(*i, *j)] += weight * counts[*i] * counts[*j];
                }
            }
            for i in hit.drain(..) {
                counts[i] = 0.0;
            }
        }
    }
    sum
}

/// The counts that one episode leaves, and the indices of the nonzero ones.
fn leave(
    law: &Law,
    class: &Excursions,
    figures: &Figures,
    interval: f64,
    u: [f64; 4],
    counts: &mut [f64],
    hit: &mut Vec<usize>,
) {
    let levels = &figures.levels;
    let extra = class.amplitude(1.0 - u[0]);
    let lasts = -class.duration * (1.0 - u[1]).ln();
    let longest = lasts + extra;
    let mut add = |k: usize| {
        if counts[k] == 0.0 {
            hit.push(k);
        }
        counts[k] += 1.0;
    };
    let mut seen: Vec<usize> = Vec::new();
    // The first probe comes within an interval of the start; all before it are quiet.
    let mut t = u[2] * interval;
    while t < longest && seen.len() < PROBES {
        let wait = match &law.body {
            Body::Slot { period, regular: true } => (u[3] * period - t).rem_euclid(*period),
            Body::Slot { period, regular: false } => {
                period * (u[3] + GENERATORS[3] * seen.len() as f64).fract()
            }
            Body::Held { quantiles, .. } => quantile(quantiles, u[3]),
        };
        let age = t + wait;
        let raised = if age <= lasts { extra } else { (extra - (age - lasts)).max(0.0) };
        let y = law.base + wait + raised;
        let above = levels.partition_point(|l| *l < y);
        // Without the episode it would have been here.
        let plain = levels.partition_point(|l| *l < law.base + wait);
        if above > plain {
            add(above - 1);
        }
        for (k, joint) in figures.joints.iter().enumerate() {
            let then = seen.len().checked_sub(joint.lag).map_or(0, |i| seen[i]);
            if joint.level < above.min(then) {
                add(levels.len() + k);
            }
        }
        seen.push(above);
        t += interval;
    }
}
