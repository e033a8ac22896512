// SPDX-License-Identifier: Apache-2.0
//! A study's curve has no time in it; the largest round trips of its days do.

use crate::common::{INTERVAL_NS, options};
use fit::baseline::{Format, Source, Summary};
use fit::delay::largest::Probing;
use fit::delay::law::{Body, Excursions, Law};
use fit::fitted::{Fitted, fit};
use fit::read::Input;

const DAY: Probing = Probing { interval: 0.2, span: Probing::DAY };
/// How long rare episodes last, in seconds.
const LASTS: f64 = 1.5;

fn class(interval: f64, duration: f64, scale: f64, shape: f64) -> Excursions {
    Excursions { interval, duration, location: 0.0, scale, shape, max: 20.0, regime: None }
}

/// Routine episodes as long as the prior, and rare ones.
fn law() -> Law {
    Law {
        base: 0.575,
        body: Body::Slot { period: 0.043, regular: false },
        excursions: vec![class(8.0, 0.1, 0.03, -0.2), class(600.0, LASTS, 0.05, 0.15)],
    }
}

/// A day's curve of the law, with no chance in it.
fn study(maxima: &[f64]) -> Fitted {
    let ns = |s: f64| (s * 1e9).round() as u64;
    let law = law();
    let body = (1..20).rev().map(|i| f64::from(i) / 20.0);
    let tail = (0..45).map(|i| 0.04 * 0.8_f64.powi(i));
    let exceedance = body.chain(tail).map(|p| (ns(law.quantile(p)), p)).collect();
    let summary = Summary {
        source: Source { name: "a study".into(), format: Format::Summary, sha256: String::new() },
        interval_ns: INTERVAL_NS,
        loss_samples: 0,
        losses: None,
        delay_samples: 432_000,
        exceedance,
        maxima_ns: maxima.iter().map(|s| ns(*s)).collect(),
        reading_error_ns: 1_000_000,
        reading_error_share: 0.01,
    };
    fit(&Input::Summary(summary), &options()).unwrap()
}

#[test]
fn largest_round_trips_of_days_determine_how_long_rare_episodes_last() {
    let maxima = [0.125, 0.375, 0.625, 0.875].map(|p| law().largest(p, DAY));
    let fitted = study(&maxima);
    let rare = fitted.delays.excursions.last().unwrap();
    println!("{:?}", rare.duration);
    assert!(rare.duration.covers(LASTS) && !rare.duration.covers(0.1), "{:?}", rare.duration);
    // Then a day's largest one is known about as well as the law knows it.
    let (_, largest) = fitted.delays.largest[0];
    let [low, high] = [0.025, 0.975].map(|p| law().largest(p, DAY));
    println!("{largest:?}; the law: {low} to {high}");
    assert!((largest.value / law().largest(0.5, DAY) - 1.0).abs() < 0.05);
    assert!(largest.low < low * 1.03 && high < largest.high * 1.03);
    assert!(largest.high < 2.0 * high);
}
