// SPDX-License-Identifier: Apache-2.0
//! Writes a calibration into the provenance of the profile.

use profile::{Profile, format_duration};
use proto::linkemu::v1 as pb;

use super::super::observation::Observation;
use super::parameter::{Parameter, isolated};
use super::search::Found;
use super::sensitivity::Sensitivity;
use super::{CalibrateError, Calibrated, Compared, Estimated};
use crate::goodness::Goodness;
use crate::interval::Interval;
use crate::numeric::Z_95;

/// Errors of a terminal's parameters, as multiples of those by the Jacobian: requests and superframes are
/// steps, and so are the figures. From downloads of known terminals: without it, intervals of 95 %
/// covered 15 to 20 of 20, with it 19 or 20.
const ACCESS_ERRORS: f64 = 2.0;
const METHOD: &str = "simulated moments";
/// Whether pings left a prior for isolated losses with this remark (`crate::loss`).
fn is_open(remark: &str) -> bool {
    remark.starts_with("isolated losses: ") && remark.contains("is a stated prior")
}

const MODEL: &str = "figures of flows were compared with a model of TCP in virtual time, which guides \
                     the search and is no result: confirm the profile with real hosts";

/// Assembles the profile, its provenance, and the figures.
///
/// # Errors
/// If the provenance is more than a profile can say.
pub fn assemble(
    calibrated: Profile,
    observations: &[Observation],
    parameters: &[(Parameter, f64)],
    found: Found,
    sensitivities: Vec<Sensitivity>,
) -> Result<Calibrated, CalibrateError> {
    let estimates: Vec<Estimated> =
        parameters.iter().enumerate().map(|(i, (p, _))| estimate(*p, i, &found)).collect();
    let figures = compared(observations, &found);
    let degrees = figures.len() as f64 - found.determined;
    let goodness =
        Goodness::chi_squared("figures of flows: simulated moments", found.distance, degrees)
            .filter(|_| degrees > 0.5);
    let mut proto = calibrated.into_proto();
    let outages = isolated_text(&proto);
    let provenance = proto.provenance.get_or_insert_default();
    if provenance.source.is_empty() {
        let name = observations.iter().flat_map(|o| &o.origins).map(|o| o.name.as_str()).next();
        name.unwrap_or("flows").clone_into(&mut provenance.source);
    }
    for e in &estimates {
        enter(provenance, e, &outages);
    }
    if estimates.iter().any(|e| e.parameter == Parameter::IsolatedDuration) {
        provenance.unidentified.retain(|line| !is_open(line));
    }
    provenance.unidentified.push(MODEL.to_owned());
    provenance.remarks.extend(remarks(observations, &figures));
    provenance.goodness.extend(goodness.as_ref().map(|g| pb::Goodness {
        test: g.test.clone(),
        statistic: (g.statistic * 1e3).round() / 1e3,
        degrees_of_freedom: (g.degrees_of_freedom * 10.0).round() / 10.0,
        p_value: (g.p_value * 1e6).round() / 1e6,
    }));
    provenance.sensitivities = sensitivities
        .iter()
        .map(|s| pb::Sensitivity {
            prior: s.prior.clone(),
            value: s.value.clone(),
            figure: s.figure.clone(),
            change: s.change.clone(),
            per: s.per.clone(),
        })
        .collect();
    let profile = Profile::try_from(proto)?;
    Ok(Calibrated { profile, estimates, figures, goodness, sensitivities })
}

fn estimate(parameter: Parameter, i: usize, found: &Found) -> Estimated {
    let widened = if parameter.is_of_access() { ACCESS_ERRORS } else { 1.0 };
    let error = widened * found.covariance[(i, i)].max(0.0).sqrt();
    let x = found.at[i];
    let on_scale = Interval { value: x, low: x - Z_95 * error, high: x + Z_95 * error };
    let from_prior = (error / found.priors[i].spread).powi(2).min(1.0);
    Estimated { parameter, interval: on_scale.map(|x| parameter.value(x)), from_prior }
}

fn compared(observations: &[Observation], found: &Found) -> Vec<Compared> {
    let figures = observations.iter().flat_map(|o| o.figures.iter().map(move |f| (o, f)));
    let values = found.figures.iter().zip(&found.variances);
    let compare = |((o, f), (modelled, variance)): ((&Observation, _), (&f64, &f64))| {
        let f: &super::super::observation::Figure = f;
        Compared {
            name: format!("{}: {}", o.algorithm(), f.name()),
            unit: f.quantity.unit(),
            observed: f.value,
            modelled: *modelled,
            error: variance.sqrt(),
        }
    };
    figures.zip(values).map(compare).collect()
}

/// Paths of the isolated losses in the estimates that pings made.
fn isolated_text(profile: &pb::Profile) -> Vec<(String, String)> {
    isolated(profile)
        .map(|o| (format_duration(o.interval_ns), format_duration(o.duration_ns)))
        .collect()
}

/// Enters an estimate. It replaces the one from pings, if there is one.
fn enter(provenance: &mut pb::Provenance, e: &Estimated, outages: &[(String, String)]) {
    let text = |x: f64| e.parameter.text(x);
    let estimate = |parameter: &str| pb::Estimate {
        parameter: parameter.to_owned(),
        value: text(e.interval.value),
        low: text(e.interval.low),
        high: text(e.interval.high),
        method: METHOD.to_owned(),
    };
    if e.parameter != Parameter::IsolatedDuration {
        provenance.estimates.push(estimate(e.parameter.path()));
        return;
    }
    let stated = provenance.estimates.iter().position(|old| {
        old.parameter.ends_with("].duration")
            && old.parameter.contains("outages[")
            && old.method == "stated"
    });
    let Some(place) = stated else {
        provenance.estimates.push(estimate(e.parameter.path()));
        return;
    };
    let path = provenance.estimates[place].parameter.clone();
    provenance.estimates[place] = estimate(&path);
    // Their number goes with their duration.
    let interval = path.replace(".duration", ".interval");
    if let Some(old) = provenance.estimates.iter_mut().find(|old| old.parameter == interval)
        && let Some((value, _)) = outages.first()
    {
        old.value.clone_from(value);
        (old.low, old.high) = (String::new(), String::new());
        old.method = format!("share of time by pings, duration by {METHOD}");
    }
}

fn remarks(observations: &[Observation], figures: &[Compared]) -> Vec<String> {
    let origin = |o: &Observation| {
        let names =
            o.origins.iter().map(|g| format!("{} ({}, SHA-256 {})", g.name, g.format, g.sha256));
        let mut names: Vec<String> = names.take(4).collect();
        let more = o.origins.len().saturating_sub(names.len());
        names.extend((more > 0).then(|| format!("{more} more")));
        format!("{} flows of {}: {}", o.count, o.algorithm(), names.join(", "))
    };
    let figure = |f: &Compared| {
        format!(
            "{}: observed {:.4} {unit}, modelled {:.4} {unit}, ± {:.3}",
            f.name,
            f.observed,
            f.modelled,
            f.error,
            unit = f.unit
        )
    };
    observations.iter().map(origin).chain(figures.iter().map(figure)).collect()
}
