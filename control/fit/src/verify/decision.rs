// SPDX-License-Identifier: Apache-2.0
//! Verdicts: each figure is tested for equivalence.
//!
//! A tolerance is fixed by the baseline alone. A figure passes if the confidence interval of the
//! difference between link and baseline lies within the tolerance (two one-sided tests,
//! D. J. Schuirmann, 1987), fails if it lies outside, and is undecided if it does neither: an
//! error as large as the tolerance never passes.
//!
//! The link passes if all figures do, so that each is tested at the full level (R. L. Berger,
//! "Multiparameter Hypothesis Testing and Acceptance Sampling", 1982). It fails if one figure does,
//! so that each of n is tested at one n-th of the level (C. E. Bonferroni, 1936).
//!
//! How long a log has to be is extrapolated: the figures stay as they are, and the variance of a
//! count grows in proportion to the length, as it does for stationary links and logs that are
//! much longer than the correlations in them. So errors fall with the square root of the length, and
//! those of counts near zero in proportion to it.

use statrs::distribution::{ContinuousCDF, Normal};

use super::comparison::{Group, Row, Verdict, length};

/// A log is long enough for a figure if the error is at most this share of the tolerance. A link
/// that equals the baseline then passes in the figure with a probability above 99.9 %, at a
/// confidence of 95 %: the difference may be two thirds of the tolerance, 3.3 standard errors.
const PLANNED: f64 = 1.0 / 3.0;
/// Where a difference is this near to the tolerance, as a share of it, no length is stated.
const NEAR: f64 = 0.1;
/// No longer log is advised, in seconds: ten years.
const LONGEST_S: f64 = 10.0 * 365.25 * 86_400.0;

/// Half of the confidence interval of a figure of one log: so many standard errors to each side,
/// if the log were so many times as long as it is.
pub type Error<'a> = Box<dyn Fn(f64, f64) -> f64 + 'a>;

/// A figure to be decided. Values, tolerance and errors are multiplied by `scale` for the unit.
pub struct Candidate<'a> {
    pub group: Group,
    pub figure: String,
    /// Its unit.
    pub unit: &'static str,
    /// From values to the unit.
    pub scale: f64,
    /// Baseline first, then link.
    pub values: [f64; 2],
    pub tolerance: f64,
    /// How the tolerance was derived, for the report.
    pub because: String,
    /// Baseline first, then link.
    pub errors: [Error<'a>; 2],
    /// Whether the figure is left out if the baseline is too short to estimate it. A longer log
    /// has rarer events, so without this the rarest figure would always be undecided.
    pub rare: bool,
}

/// How long the logs are, in seconds; none if a log cannot be made longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lengths {
    /// `None` for published figures.
    pub baseline_s: Option<f64>,
    /// `None` for a play in virtual time, which is as long as the baseline requires.
    pub link_s: Option<f64>,
}

impl Lengths {
    /// By how much the logs grow if each is made at least that long.
    fn longer(self, seconds: f64) -> [f64; 2] {
        let by = |now: Option<f64>| now.map_or(1.0, |now| (seconds / now).max(1.0));
        let baseline = by(self.baseline_s);
        [baseline, if self.link_s.is_some() { by(self.link_s) } else { baseline }]
    }

    fn shortest(self) -> Option<f64> {
        [self.baseline_s, self.link_s].into_iter().flatten().reduce(f64::min)
    }
}

/// Decides figures at a level of confidence; remarks say which rare ones are left out.
pub fn decide(
    candidates: Vec<Candidate<'_>>,
    confidence: f64,
    lengths: Lengths,
) -> (Vec<Row>, Option<String>) {
    let inside = Normal::standard().inverse_cdf(confidence);
    // Whether the baseline, made `longer` times as long, is long enough for a figure.
    let suffices =
        |c: &Candidate<'_>, longer: f64| (c.errors[0])(inside, longer) <= PLANNED * c.tolerance;
    let (compared, left): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|c| !c.rare || suffices(c, 1.0));
    let each = (1.0 - confidence) / (2 * compared.len().max(1)) as f64;
    let outside = Normal::standard().inverse_cdf(1.0 - each);
    let remark = (!left.is_empty()).then(|| {
        let named = left.iter().map(|c| {
            let name = format!("{}: {}", c.group.title(), c.figure);
            let alone = Lengths { link_s: None, ..lengths };
            search(alone, |by| suffices(c, by[0]))
                .map_or(name.clone(), |s| format!("{name} ({})", length(s)))
        });
        let named: Vec<String> = named.collect();
        format!(
            "not compared, for the baseline is too short for figures as rare as these (in brackets \
             the length that is enough): {}",
            named.join("; ")
        )
    });
    (compared.into_iter().map(|c| c.row(inside, outside, lengths)).collect(), remark)
}

impl Candidate<'_> {
    /// Decided; `inside` and `outside` are standard errors.
    fn row(self, inside: f64, outside: f64, lengths: Lengths) -> Row {
        let [baseline, link] = self.values;
        let (off, tolerance) = ((link - baseline).abs(), self.tolerance);
        let error =
            |z: f64, by: [f64; 2]| (self.errors[0])(z, by[0]).hypot((self.errors[1])(z, by[1]));
        let now = error(inside, [1.0; 2]);
        let verdict = if off + now <= tolerance {
            Verdict::Pass
        } else if off - error(outside, [1.0; 2]) > tolerance {
            Verdict::Fail
        } else {
            Verdict::Undecided
        };
        let needed_s = (verdict == Verdict::Undecided)
            .then(|| {
                // A large error says little about the difference: then plan for an error that is a
                // small share of the tolerance, or of the excess over it. Otherwise plan for an
                // error as small as the distance to the tolerance.
                let planned = PLANNED * tolerance;
                let enough = if now > planned {
                    planned.max(PLANNED * (off - tolerance))
                } else {
                    (tolerance - off).abs().max(NEAR * tolerance)
                };
                let z = if off > tolerance { outside } else { inside };
                search(lengths, |by| enough > 0.0 && error(z, by) <= enough)
            })
            .flatten();
        let scale = self.scale;
        Row {
            group: self.group,
            figure: self.figure,
            unit: self.unit,
            baseline: baseline * scale,
            link: link * scale,
            tolerance: tolerance * scale,
            error: now * scale,
            because: self.because,
            verdict,
            needed_s,
        }
    }
}

/// The least length of the logs, in seconds, with which something is enough; none if it is so
/// already, or never.
fn search(lengths: Lengths, enough: impl Fn([f64; 2]) -> bool) -> Option<f64> {
    let mut low = lengths.shortest()?;
    if low <= 0.0 || enough(lengths.longer(low)) {
        return None;
    }
    let mut high = low;
    while !enough(lengths.longer(high)) {
        (low, high) = (high, 2.0 * high);
        if low > LONGEST_S {
            return None;
        }
    }
    // To a thousandth.
    for _ in 0..10 {
        let middle = (low + high) / 2.0;
        if enough(lengths.longer(middle)) { high = middle } else { low = middle }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Lengths = Lengths { baseline_s: Some(3_600.0), link_s: None };

    /// A figure with a tolerance of 10 and the error of the baseline alone: one standard
    /// error now, less with the square root of the length.
    fn candidate(off: f64, sigma: f64) -> Candidate<'static> {
        Candidate {
            group: Group::Quantiles,
            figure: "p50".into(),
            unit: "ms",
            scale: 1e-6,
            values: [100.0, 100.0 + off],
            tolerance: 10.0,
            because: String::new(),
            errors: [Box::new(move |z, by| z * sigma / by.sqrt()), Box::new(|_, _| 0.0)],
            rare: false,
        }
    }

    fn decided(off: f64, sigma: f64) -> Row {
        decide(vec![candidate(off, sigma)], 0.95, HOUR).0.remove(0)
    }

    #[test]
    fn a_figure_passes_only_if_its_whole_interval_is_inside_and_fails_only_if_it_is_outside() {
        // 1.645 standard errors on one side show a figure inside, 1.960 one of a single outside.
        for (off, sigma, verdict) in [
            (0.0, 6.0, Verdict::Pass),
            (0.0, 6.1, Verdict::Undecided),
            (-8.0, 1.2, Verdict::Pass),
            (-8.0, 1.3, Verdict::Undecided),
            (12.0, 1.1, Verdict::Undecided),
            (12.0, 1.0, Verdict::Fail),
            (500.0, 300.0, Verdict::Undecided),
            (0.0, f64::INFINITY, Verdict::Undecided),
            (f64::NAN, 1.0, Verdict::Undecided),
        ] {
            assert_eq!(decided(off, sigma).verdict, verdict, "{off} ± {sigma}");
        }
    }

    #[test]
    fn an_error_as_large_as_the_tolerance_never_passes() {
        for confidence in [0.8, 0.95, 0.999] {
            let z = Normal::standard().inverse_cdf(confidence);
            let row = decide(vec![candidate(1e-9, 10.0 / z)], confidence, HOUR).0.remove(0);
            assert_eq!(row.verdict, Verdict::Undecided, "{confidence}");
        }
    }

    #[test]
    fn a_failure_needs_more_evidence_among_more_figures() {
        let alone = decided(12.0, 1.0);
        let many = (0..30).map(|_| candidate(12.0, 1.0)).collect();
        let many = decide(many, 0.95, HOUR).0;
        assert_eq!((alone.verdict, many[0].verdict), (Verdict::Fail, Verdict::Undecided));
        // To pass it does not: all of them have to.
        let many = (0..30).map(|_| candidate(0.0, 6.0)).collect();
        assert!(decide(many, 0.95, HOUR).0.iter().all(|row| row.verdict == Verdict::Pass));
    }

    #[test]
    fn the_needed_length_is_that_at_which_the_error_is_a_third_of_the_tolerance() {
        // Three times the tolerance: nine times less is a third, by 81 times the length.
        let row = decided(0.0, 30.0 / 1.644_854);
        assert!((row.needed_s.unwrap() / 3_600.0 / 81.0 - 1.0).abs() < 2e-3, "{row:?}");
        assert_eq!(decided(0.0, 1.0).needed_s, None);
        // A small error is enough for a small distance to the tolerance, but not for none.
        let near = decided(8.0, 2.5 / 1.644_854).needed_s.unwrap() / 3_600.0;
        assert!((near / (2.5 / 2.0_f64).powi(2) - 1.0).abs() < 2e-3, "{near}");
        assert_eq!(decided(9.9, 0.9 / 1.644_854).needed_s, None);
        // A large difference needs a shorter log: the error has to be a third of 90, at 1.96
        // standard errors.
        let far = decided(100.0, 100.0).needed_s.unwrap() / 3_600.0;
        assert!((far / (196.0 / 30.0_f64).powi(2) - 1.0).abs() < 2e-3, "{far}");
    }

    #[test]
    fn needed_length_applies_to_each_log_and_keeps_longer_logs() {
        let of = |sigmas: [f64; 2], baseline_s, link_s| {
            let errors = sigmas
                .map(|sigma| Box::new(move |z: f64, by: f64| z * sigma / by.sqrt()) as Error<'_>);
            let lengths = Lengths { baseline_s, link_s };
            let row = decide(vec![Candidate { errors, ..candidate(0.0, 0.0) }], 0.95, lengths);
            row.0[0].needed_s
        };
        let near = |found: Option<f64>, expected: f64| {
            assert!((found.unwrap() / expected - 1.0).abs() < 2e-3, "{found:?} {expected}");
        };
        // The sum of both variances, in units of the squared normal quantile, has to be a ninth
        // of 10².
        let level = 1.644_854_f64.powi(2);
        let ninth = 100.0 / 9.0 / level;
        near(of([10.0, 10.0], Some(100.0), Some(100.0)), 100.0 * 200.0 / ninth);
        near(of([10.0, 10.0], Some(100.0), None), 100.0 * 200.0 / ninth);
        near(of([10.0, 1.0], Some(100.0), Some(10_000.0)), 100.0 * 100.0 / (ninth - 1.0));
        // Published figures cannot be made longer.
        near(of([1.0, 10.0], None, Some(100.0)), 100.0 * 100.0 / (ninth - 1.0));
        assert_eq!(of([10.0, 1.0], None, Some(100.0)), None);
        assert_eq!(of([10.0, 10.0], None, None), None);
    }

    #[test]
    fn rare_figure_unknown_to_baseline_is_named_not_compared() {
        let rare = |sigma| Candidate { rare: true, ..candidate(0.0, sigma) };
        let (rows, remark) = decide(vec![candidate(0.0, 1.0), rare(2.0)], 0.95, HOUR);
        assert_eq!((rows.len(), remark), (2, None));
        let (rows, remark) = decide(vec![candidate(0.0, 1.0), rare(20.0)], 0.95, HOUR);
        assert_eq!(rows.len(), 1);
        // (32.9 / 3.33)² hours.
        assert!(remark.unwrap().ends_with(": Round-trip quantiles: p50 (4.1 days)"));
    }

    #[test]
    fn lengths_are_rounded_up_to_two_digits() {
        for (seconds, expected) in [
            (0.5, "0.5 seconds"),
            (119.0, "120 seconds"),
            (121.0, "2.1 minutes"),
            (3_600.0 * 36.0, "36 hours"),
            (86_400.0 * 2.51, "2.6 days"),
            (86_400.0 * 9.97, "10 days"),
            (86_400.0 * 31.2, "32 days"),
        ] {
            assert_eq!(length(seconds), expected, "{seconds}");
        }
    }
}
