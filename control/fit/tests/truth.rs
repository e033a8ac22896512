// SPDX-License-Identifier: Apache-2.0
//! Synthetic truth: links of known parameters are played for a week at five probes a
//! second by the emulation core, fitted, and the true parameters lie within the stated
//! 95 % intervals about as often as stated.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::common::{INTERVAL_NS, WEEK, baseline, options};
use fit::fitted::{Direction, Fitted, Options, fit};
use fit::interval::Interval;
use fit::read::Input;
use fit::verify::{play, regular};
use profile::Profile;
use proto::linkemu::v1 as pb;

const GEO: &str = r#"
name = "geo"
[forward]
rate = "unlimited"
queue.limit = "1 MB"
delay.base = "275 ms"

[[forward.outages]]
interval = "3 h 3 min"
duration = "320 ms"
law = "exponential"

[[forward.outages]]
interval = "23 min 36 s"
duration = "100 ms"
law = "fixed"

[return]
rate = "unlimited"
queue.limit = "1 MB"
delay.base = "300 ms"
delay.slot = "43.017 ms"

[[return.outages]]
interval = "3 h 3 min"
duration = "320 ms"
law = "exponential"

[[return.outages]]
interval = "23 min 36 s"
duration = "100 ms"
law = "fixed"

[[return.delay.excursions]]
interval = "8 s"
duration = "150 ms"
location = "0 ms"
scale = "30 ms"
shape = -0.2
max = "5 s"

[[return.delay.excursions]]
interval = "5 min"
duration = "500 ms"
location = "0 ms"
scale = "40 ms"
shape = 0.25
max = "5 s"
"#;

const MOBILE: &str = r#"
name = "mobile"
[forward]
rate = "unlimited"
queue.limit = "1 MB"
delay.base = "20 ms"

[[forward.outages]]
interval = "10 min"
duration = "500 ms"
law = "exponential"

[[forward.outages]]
interval = "2 h"
duration = "8 s"
law = "exponential"

[[forward.outages]]
interval = "15 min"
duration = "100 ms"
law = "fixed"

[return]
rate = "unlimited"
queue.limit = "1 MB"
delay.base = "15 ms"
delay.slot = "10.007 ms"

[[return.outages]]
interval = "10 min"
duration = "500 ms"
law = "exponential"

[[return.outages]]
interval = "2 h"
duration = "8 s"
law = "exponential"

[[return.outages]]
interval = "15 min"
duration = "100 ms"
law = "fixed"

[[return.delay.excursions]]
interval = "1 min"
duration = "1500 ms"
location = "0 ms"
scale = "60 ms"
shape = 0.2
max = "5 s"
"#;

const RAIN: &str = r#"
name = "rain"
[forward]
rate = "unlimited"
queue.limit = "1 MB"
delay.base = "30 ms"
fade = { interval = "8 h", duration = "40 min", factor = 20.0 }

[[forward.outages]]
interval = "1 h"
duration = "1 s"
law = "exponential"

[return]
rate = "unlimited"
queue.limit = "1 MB"
delay.base = "30 ms"
delay.body.correlation = "2 s"
delay.body.quantiles = [
    "0 ms", "0.4 ms", "0.7 ms", "1 ms", "1.3 ms", "1.6 ms", "2 ms", "2.5 ms", "3.2 ms", "4.2 ms", "6 ms",
]

[[return.delay.excursions]]
interval = "2 min"
duration = "2 s"
location = "0 ms"
scale = "80 ms"
shape = 0.1
max = "5 s"
"#;

fn fitted(truth: &Profile, seed: u64) -> Fitted {
    let series = play(truth, seed, regular(INTERVAL_NS, WEEK)).unwrap();
    let forward_alone = truth.as_proto().return_pipe.as_ref().unwrap().outages.is_empty();
    let losses_in = if forward_alone { Direction::Forward } else { Direction::Both };
    let options = Options { losses_in, ..options() };
    fit(&Input::Log(baseline(series)), &options).unwrap()
}

/// Every parameter of the truth, with its estimate; `None` if another law was chosen.
fn parameters(truth: &pb::Profile, fitted: &Fitted) -> Option<Vec<(String, f64, Interval)>> {
    let s = |ns: u64| ns as f64 / 1e9;
    let (forward, back) = (truth.forward_pipe.as_ref()?, truth.return_pipe.as_ref()?);
    let (losses, delays) = (fitted.losses.as_ref()?, &fitted.delays);
    let fixed = |o: &&pb::Outage| o.law() == pb::DurationLaw::Fixed;
    let classes: Vec<&pb::Outage> = forward.outages.iter().filter(|o| !fixed(o)).collect();
    let isolated = forward.outages.iter().find(fixed);
    let delay = back.delay.as_ref()?;
    if losses.classes.len() != classes.len()
        || losses.isolated.is_some() != isolated.is_some()
        || delays.excursions.len() != delay.excursions.len()
        || delays.slot.is_some() != (delay.slot_ns > 0)
        || fitted.fade.is_some() != forward.fade.is_some()
    {
        return None;
    }
    let base = s(forward.delay.as_ref()?.base_ns + delay.base_ns);
    let mut all = vec![("base".to_owned(), base, delays.base)];
    if let Some(slot) = delays.slot {
        all.push(("slot".into(), s(delay.slot_ns), slot));
    }
    if let (Some(body), Some(correlation)) = (&delay.body, delays.correlation) {
        all.push(("correlation".into(), s(body.correlation_ns), correlation));
    }
    for (i, (o, e)) in classes.iter().zip(&losses.classes).enumerate() {
        // With fades, the interval's own interval lacks the fades' share of its error.
        if fitted.fade.is_none() {
            all.push((format!("outage {i} interval"), s(o.interval_ns), e.interval));
        }
        all.push((format!("outage {i} duration"), s(o.duration_ns), e.duration));
    }
    if let (Some(o), Some(e)) = (isolated, losses.isolated) {
        all.push(("isolated interval".into(), s(o.interval_ns), e.interval));
    }
    if let (Some(f), Some(e)) = (&forward.fade, &fitted.fade) {
        all.push(("fade interval".into(), s(f.interval_ns), e.interval));
        all.push(("fade duration".into(), s(f.duration_ns), e.duration));
        all.push(("fade factor".into(), f.factor, e.factor));
    }
    for (i, (x, e)) in delay.excursions.iter().zip(&delays.excursions).enumerate() {
        all.push((format!("excursion {i} interval"), s(x.interval_ns), e.interval));
        all.push((format!("excursion {i} duration"), s(x.duration_ns), e.duration));
        all.push((format!("excursion {i} scale"), s(x.scale_ns), e.scale));
        all.push((format!("excursion {i} shape"), x.shape, e.shape));
    }
    Some(all)
}

/// Fits so many weeks of each truth.
fn coverage(plays: u64) {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let (mut inside, mut asked, mut weeks, mut recognised) = (0, 0, 0, 0);
    for text in [GEO, MOBILE, RAIN] {
        let truth = Profile::from_toml(text).unwrap();
        let seeds = Mutex::new(1..=plays);
        let counts: Mutex<BTreeMap<String, (u32, u32, f64)>> = Mutex::new(BTreeMap::new());
        let other = Mutex::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let Some(seed) = seeds.lock().unwrap().next() else { return };
                        let fitted = fitted(&truth, seed);
                        let Some(all) = parameters(truth.as_proto(), &fitted) else {
                            *other.lock().unwrap() += 1;
                            let l = fitted.losses.as_ref().unwrap();
                            println!(
                                "{} {seed}: {}, fade {}, {} excursions, slot {:?}",
                                truth.name(),
                                l.name,
                                fitted.fade.is_some(),
                                fitted.delays.excursions.len(),
                                fitted.delays.slot.map(|s| s.value)
                            );
                            continue;
                        };
                        let mut counts = counts.lock().unwrap();
                        for (name, truth, estimate) in all {
                            let c = counts.entry(name).or_default();
                            c.0 += u32::from(estimate.covers(truth));
                            c.1 += 1;
                            c.2 += estimate.value / truth;
                        }
                    }
                });
            }
        });
        let other = other.into_inner().unwrap();
        println!("{}: {} of {plays} recognised as of this law", truth.name(), plays - other);
        for (name, (covered, n, ratio)) in counts.into_inner().unwrap() {
            let mean = ratio / f64::from(n);
            println!("  {name:24} {covered:2} of {n} inside; mean estimate {mean:.3} of the truth");
            inside += covered;
            asked += n;
        }
        (weeks, recognised) = (weeks + plays, recognised + plays - other);
    }
    let rate = f64::from(inside) / f64::from(asked);
    println!(
        "inside: {inside} of {asked}, {:.1} %; law recognised {recognised} of {weeks}",
        rate * 100.0
    );
    // A criterion such as BIC takes a neighbouring law now and then.
    assert!(recognised * 10 >= weeks * 9, "{recognised} of {weeks}");
    // The parameters of a week hang together: a week's worth of them counts as about three.
    let effective = 3.0 * recognised as f64;
    let tolerance = 3.0 * (0.95 * 0.05 / effective).sqrt();
    assert!((rate - 0.95).abs() < tolerance, "{rate:.3}, tolerance {tolerance:.3}");
}

#[test]
fn true_parameters_of_a_week_lie_within_the_stated_intervals() {
    coverage(1);
}

#[test]
#[ignore = "long form: make soak PART=unit"]
fn true_parameters_of_twenty_weeks_lie_within_the_stated_intervals() {
    coverage(20);
}
