// SPDX-License-Identifier: Apache-2.0
//! The closed form that the fit rests on is what the emulation core plays: a week of pings
//! through the built-in `viasat2`, one every 200 ms, loses and delays what the profile
//! states.

use crate::common::{WEEK as PINGS, viasat2_week};
use fit::delay::stated::law;
use profile::Catalog;
use proto::linkemu::v1 as pb;

const INTERVAL: f64 = 0.2;

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Lost pings that the profile states, with the variance of their number: a compound
/// Poisson sum over episodes. An episode of length d holds K pings, E K = d / δ; for a
/// fixed d ≤ δ, K is 0 or 1; for an exponential one E K² ≤ m + 2 m².
fn stated_losses(profile: &pb::Profile) -> (f64, f64) {
    let (mut mean, mut variance) = (0.0, 0.0);
    let pipes = [&profile.forward_pipe, &profile.return_pipe];
    for o in pipes.into_iter().flatten().flat_map(|p| &p.outages) {
        let (interval, duration) = (seconds(o.interval_ns), seconds(o.duration_ns));
        let episodes = PINGS as f64 * INTERVAL / (interval + duration);
        let m = duration / INTERVAL;
        mean += episodes * m;
        variance += episodes
            * match o.law() {
                pb::DurationLaw::Fixed => m,
                _ => m + 2.0 * m * m,
            };
    }
    (mean, variance)
}

#[test]
fn week_of_pings_matches_the_profile() {
    let catalog = Catalog::built_in();
    let viasat2 = catalog.get("viasat2").unwrap();
    let series = viasat2_week();
    let (mean, variance) = stated_losses(viasat2.as_proto());
    println!("lost {}, stated {mean:.0} ± {:.0}; SAT20: 604", series.lost(), variance.sqrt());
    assert!((series.lost() as f64 - mean).abs() < 4.0 * variance.sqrt());
    assert!((mean - 604.0).abs() < 0.02 * 604.0, "{mean}");

    let law = law(viasat2.as_proto()).unwrap();
    let rtt: Vec<f64> = series.iter().filter_map(|p| p.rtt_ns).map(seconds).collect();
    let share = |n: usize| n as f64 / rtt.len() as f64;
    for y in [0.58, 0.60, 0.62, 0.625, 0.632, 0.65, 0.69, 0.75, 0.82] {
        let seen = share(rtt.iter().filter(|r| **r > y).count());
        let stated = law.exceedance(y);
        // Episodes come as a Poisson process, and the time that each adds has a coefficient
        // of variation of about one: relative variance 2 / episodes. Within the slot little
        // is left to chance; the probes' own jitter, and their beat with superframes, make five thousandths.
        let x = y - law.base - law.body.top();
        let episodes: f64 = law.excursions.iter().map(|e| e.episodes(x.max(0.0))).sum();
        let tolerance =
            4.0 * stated * (2.0 / (episodes * PINGS as f64 * INTERVAL)).sqrt() + 5e-3 * stated;
        println!("P(> {y} s) {seen:.3e}, stated {stated:.3e} ± {:.0e}", tolerance / 4.0);
        assert!((seen - stated).abs() < tolerance, "{y}");
    }
    // Pairs: above a level, and two probes later still.
    for (y, lag) in [(0.63, 1), (0.65, 1), (0.65, 2), (0.69, 1)] {
        let pairs = rtt.windows(lag + 1).filter(|w| w[0] > y && w[lag] > y).count();
        let stated = law.joint(y, lag as f64 * INTERVAL);
        // Fewer and shorter overlaps: the number of pairs is over-dispersed by a few.
        let tolerance = 4.0 * (4.0 * stated / rtt.len() as f64).sqrt() + 0.02 * stated;
        println!("P(two {lag} apart > {y} s) {:.3e}, stated {stated:.3e}", share(pairs));
        assert!((share(pairs) - stated).abs() < tolerance, "{y} {lag}");
    }
}
