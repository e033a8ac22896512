// SPDX-License-Identifier: Apache-2.0
//! Hours with more excursions: one half of a log with regimes is fitted and predicts the other.

use std::sync::Mutex;

use crate::common::{INTERVAL_NS, WEEK, baseline, options};
use fit::baseline::Series;
use fit::fitted::{Fitted, fit};
use fit::read::Input;
use fit::verify::{play, regular};
use profile::Profile;

/// Periods of LASTS, EVERY so often, with fifteen times the rare episodes.
const LINK: &str = r#"
name = "regimes"
[forward]
rate = "unlimited"
queue.limit = "1 MB"
delay.base = "275 ms"

[return]
rate = "unlimited"
queue.limit = "1 MB"
delay.base = "300 ms"
delay.slot = "43.017 ms"

[[return.delay.excursions]]
interval = "8 s"
duration = "150 ms"
location = "0 ms"
scale = "30 ms"
shape = -0.2
max = "5 s"

[[return.delay.excursions]]
interval = "20 min"
duration = "800 ms"
location = "0 ms"
scale = "60 ms"
shape = 0.15
max = "5 s"
regime = { interval = "EVERY", duration = "LASTS", factor = 15.0 }
"#;

const SECONDS: f64 = 1e9;

/// Quantiles that the first half predicts, and what was found of a seed.
struct Half {
    /// By how much p99, p99.9 and p99.99 of the second half are off, as a share.
    off: [f64; 3],
    /// Whether its largest round trip is in the stated interval.
    inside: bool,
    /// Whether interval, duration and factor of the true regime are in their intervals; `None`
    /// if no regime was found in the rare class.
    regime: Option<[bool; 3]>,
    /// Whether a regime was found in the routine class, which has none.
    routine: bool,
}

/// Periods in minutes: from one to the next, and how long one lasts.
type Regime = [u32; 2];

fn halves([every, lasts]: Regime, seed: u64, weeks: u64) -> Half {
    let minutes = |n: u32| format!("{n} min");
    let text = LINK.replace("EVERY", &minutes(every)).replace("LASTS", &minutes(lasts));
    let truth = &Profile::from_toml(&text).unwrap();
    let all = play(truth, seed, regular(INTERVAL_NS, 2 * weeks * WEEK)).unwrap();
    let half = all.len() / 2;
    let mut first = Series::default();
    all.slice(0..half).for_each(|probe| first.push(probe));
    let Fitted { delays, .. } = fit(&Input::Log(baseline(first)), &options()).unwrap();
    let mut second: Vec<u64> = all.slice(half..all.len()).filter_map(|p| p.rtt_ns).collect();
    second.sort_unstable();
    let at = |p: f64| second[((second.len() - 1) as f64 * (1.0 - p)).round() as usize] as f64;
    let off = [0.01, 1e-3, 1e-4].map(|p| delays.law.quantile(p) * SECONDS / at(p) - 1.0);
    let (probing, largest) = delays.largest[delays.largest.len() - 1];
    assert!((probing.span / (weeks * 7 * 86_400) as f64 - 1.0).abs() < 1e-3);
    let inside = largest.covers(at(0.0) / SECONDS);
    let rare = delays.excursions.last().and_then(|e| e.regime);
    let [every, lasts] = [every, lasts].map(|n| 60.0 * f64::from(n));
    // Episodes of 0.8 s each 20 min, or each 80 s.
    let factor = 1_200.8 / 80.8;
    let regime =
        rare.map(|r| [r.interval.covers(every), r.duration.covers(lasts), r.factor.covers(factor)]);
    println!(
        "seed {seed}: off {off:.3?}; largest {:.0} ms, predicted {:.0} to {:.0}; regime {rare:?}",
        at(0.0) / 1e6,
        largest.low * 1e3,
        largest.high * 1e3
    );
    let routine = delays.excursions.first().is_some_and(|e| e.regime.is_some());
    Half { off, inside, regime, routine }
}

fn predicted(regime: Regime, seeds: u64, weeks: u64) -> Vec<Half> {
    let next = Mutex::new(1..=seeds);
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(seed) = next.lock().unwrap().next() else { return };
                    let half = halves(regime, seed, weeks);
                    found.lock().unwrap().push(half);
                }
            });
        }
    });
    found.into_inner().unwrap()
}

#[test]
fn week_with_bad_quarter_hours_predicts_the_next_week() {
    let Half { off, inside, regime, routine } = halves([180, 15], 1, 1);
    assert!(off.iter().all(|off| off.abs() < 0.05));
    assert!(inside && regime.is_some() && !routine);
}

#[test]
#[ignore = "long form: make soak PART=unit"]
fn four_weeks_with_bad_hours_predict_the_next_four() {
    let all = predicted([720, 60], 20, 4);
    let count = |f: fn(&Half) -> bool| all.iter().filter(|half| f(half)).count();
    let inside = count(|half| half.inside);
    let exact = count(|half| half.off.iter().all(|off| off.abs() < 0.05));
    let routine = count(|half| half.routine);
    let covered: usize = all.iter().flat_map(|h| h.regime).flatten().filter(|c| *c).count();
    let found = count(|half| half.regime.is_some());
    println!("largest inside {inside}; within 5 % {exact}; regime {found}, {covered} covered");
    assert!(inside >= 17 && exact >= 19 && found == 20 && routine == 0);
    // Of 60, 57 on average.
    assert!(covered >= 50, "{covered}");
}
