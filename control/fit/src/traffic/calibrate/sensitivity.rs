// SPDX-License-Identifier: Apache-2.0
//! Dependence of figures on priors: values that were neither measured nor estimated.
//!
//! Each prior is changed by a tenth either way, at the estimates, with the same seeds. A change is
//! told if it is larger than two of its errors by the jackknife over flows.

use profile::{Profile, Rate, format_duration, format_probability, format_size};
use proto::linkemu::v1 as pb;

use super::super::flow::Setup;
use super::CalibrateError;
use super::parameter::{Parameter, random_drop};
use super::search::Found;
use super::simulate::{Bench, Sample};

/// Factor by which a prior is changed either way.
const FACTOR: f64 = 1.25;
/// Sensitivities are told for this factor.
const TOLD: f64 = 1.1;
/// Errors from which a change is told.
const ERRORS: f64 = 2.0;
/// How long a wait for a slot is held where it is drawn, in slots.
const HELD: f64 = 2.0;

/// How much a figure changes with a prior.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensitivity {
    pub prior: String,
    pub value: String,
    pub figure: String,
    /// Change of the figure, with its unit.
    pub change: String,
    /// Change of the prior.
    pub per: String,
}

/// Something that was stated.
struct Stated {
    name: &'static str,
    value: String,
    /// Changes it by a factor.
    change: fn(&mut pb::Profile, &mut Setup, f64),
    /// What the two ends of the change are; else a factor.
    alternative: Option<&'static str>,
}

fn times(x: &mut u64, factor: f64) {
    *x = (*x as f64 * factor).round() as u64;
}

fn stated(profile: &pb::Profile, setup: &Setup) -> Vec<Stated> {
    let mut all = Vec::new();
    let mut add = |name, value: String, change| {
        all.push(Stated { name, value, change, alternative: None });
    };
    add("hosts: receive window", format_size(setup.receive_window), |_, setup, factor| {
        times(&mut setup.receive_window, factor);
    });
    add(
        "hosts: time per acknowledgement",
        format_duration(setup.per_ack_ns),
        |_, setup, factor| {
            times(&mut setup.per_ack_ns, factor);
        },
    );
    let (Some(forward), Some(back)) = (&profile.forward_pipe, &profile.return_pipe) else {
        return all;
    };
    if let Some(queue) = &forward.queue {
        add("forward: queue.limit", format_size(queue.limit_bytes), |p, _, factor| {
            if let Some(queue) = p.forward_pipe.as_mut().and_then(|p| p.queue.as_mut()) {
                times(&mut queue.limit_bytes, factor);
            }
        });
        if let Some(aqm) = &queue.random_drop {
            let name = "forward: queue.random_drop.threshold";
            add(name, format_size(aqm.threshold_bytes), |p, _, factor| {
                let queue = p.forward_pipe.as_mut().and_then(|p| p.queue.as_mut());
                if let Some(queue) = queue
                    && let Some(aqm) = &mut queue.random_drop
                {
                    let most = queue.limit_bytes;
                    times(&mut aqm.threshold_bytes, factor);
                    aqm.threshold_bytes = aqm.threshold_bytes.min(most);
                }
            });
            let name = "forward: queue.random_drop.probability_at_threshold";
            let p = aqm.probability_at_threshold;
            if p > 0.0 {
                add(name, format_probability(p), |p, _, factor| {
                    if let Some(aqm) = p.forward_pipe.as_mut().and_then(random_drop) {
                        let most = aqm.probability_at_limit;
                        aqm.probability_at_threshold =
                            (aqm.probability_at_threshold * factor).min(most);
                    }
                });
            }
        }
    }
    if let Some(rate) = back.rate_bps.filter(|rate| *rate > 0) {
        add("return: rate", Rate::from_bps(Some(rate)).to_string(), |p, _, factor| {
            if let Some(rate) = p.return_pipe.as_mut().and_then(|p| p.rate_bps.as_mut()) {
                times(rate, factor);
            }
        });
    }
    if let Some(delay) = &back.delay {
        if !delay.excursions.is_empty() {
            let value = "as estimated".to_owned();
            add("return: delay.excursions, durations and intervals", value, |p, _, factor| {
                let delay = p.return_pipe.as_mut().and_then(|p| p.delay.as_mut());
                for e in delay.into_iter().flat_map(|d| &mut d.excursions) {
                    times(&mut e.duration_ns, factor);
                    times(&mut e.interval_ns, factor);
                }
            });
        }
        if delay.slot_ns > 0 && delay.body.is_none() {
            all.push(Stated {
                name: "return: delay.slot",
                value: format!("{} on a fixed grid", format_duration(delay.slot_ns)),
                change: draw_slot,
                alternative: Some("if the wait were drawn anew about every two slots"),
            });
        }
    }
    all
}

/// A wait for a slot that is drawn, in place of a grid.
fn draw_slot(profile: &mut pb::Profile, _: &mut Setup, factor: f64) {
    let delay = profile.return_pipe.as_mut().and_then(|p| p.delay.as_mut());
    if let Some(delay) = delay.filter(|_| factor > 1.0) {
        let slot = std::mem::take(&mut delay.slot_ns);
        let correlation_ns = (slot as f64 * HELD) as u64;
        delay.body = Some(pb::Body { correlation_ns, quantiles_ns: vec![0, slot] });
    }
}

/// The priors to which a figure is sensitive.
///
/// # Errors
/// If a profile cannot be played.
pub fn of(
    bench: &Bench<'_>,
    calibrated: &Profile,
    parameters: &[(Parameter, f64)],
    found: &Found,
) -> Result<Vec<Sensitivity>, CalibrateError> {
    let flows = found.sample.0.iter().flatten().map(Vec::len).max().unwrap_or(0);
    let setup = bench.observations.first().map(|o| o.setup).unwrap_or_default();
    let mut told = Vec::new();
    for stated in stated(calibrated.as_proto(), &setup) {
        let moved = |factor: f64| -> Option<Result<Sample, CalibrateError>> {
            let mut proto = calibrated.as_proto().clone();
            (stated.change)(&mut proto, &mut Setup::default(), factor);
            // Beyond the schema there is nothing to compare with.
            let profile = Profile::try_from(proto).ok()?;
            let change = |mut setup: Setup| {
                (stated.change)(&mut pb::Profile::default(), &mut setup, factor);
                setup
            };
            Some(bench.simulate(&profile, flows, change).map_err(CalibrateError::Play))
        };
        let Some(high) = moved(FACTOR) else { continue };
        let low = match stated.alternative {
            Some(_) => Ok(found.sample.clone()),
            None => match moved(1.0 / FACTOR) {
                Some(low) => low,
                None => continue,
            },
        };
        told.extend(tell(bench, &stated, &high?, &low?));
    }
    told.extend(weak(parameters, found));
    Ok(told)
}

/// The figures that differ between two samples of the same seeds.
fn tell(bench: &Bench<'_>, stated: &Stated, high: &Sample, low: &Sample) -> Vec<Sensitivity> {
    let share = match stated.alternative {
        Some(_) => 1.0,
        None => TOLD.ln() / (2.0 * FACTOR.ln()),
    };
    let (high, high_without) = high.jackknife(bench.observations);
    let (low, low_without) = low.jackknife(bench.observations);
    let n = high_without.len() as f64;
    let mut told = Vec::new();
    for (i, (o, figure)) in bench.figures().enumerate() {
        let difference = high[i] - low[i];
        let parts = high_without.iter().zip(&low_without).map(|(h, l)| h[i] - l[i]);
        let parts: Vec<f64> = parts.collect();
        let mean = parts.iter().sum::<f64>() / n;
        let squares: f64 = parts.iter().map(|p| (p - mean).powi(2)).sum();
        let error = (squares * (n - 1.0) / n).sqrt();
        if difference.abs() <= ERRORS * error || difference == 0.0 {
            continue;
        }
        let unit = figure.quantity.unit();
        told.push(Sensitivity {
            prior: stated.name.to_owned(),
            value: stated.value.clone(),
            figure: format!("{}: {}", o.algorithm(), figure.name()),
            change: format!("{:+.3} ± {:.3} {unit}", difference * share, error * share),
            per: stated.alternative.map_or_else(|| "10 % more".to_owned(), str::to_owned),
        });
    }
    told
}

/// Parameters that come from their prior more than from the figures.
fn weak(parameters: &[(Parameter, f64)], found: &Found) -> Vec<Sensitivity> {
    let mut told = Vec::new();
    for (i, (parameter, start)) in parameters.iter().enumerate() {
        let share = found.covariance[(i, i)] / found.priors[i].spread.powi(2);
        if share > 0.5 {
            told.push(Sensitivity {
                prior: format!("{}: prior", parameter.path()),
                value: parameter.text(*start),
                figure: parameter.path().to_owned(),
                change: format!("{:.0} % of it", 100.0 * share.min(1.0)),
                per: "change of the logarithm or log-odds of the prior's middle".into(),
            });
        }
    }
    told
}
