// SPDX-License-Identifier: Apache-2.0
//! The rules of what a fitted profile was made from. Nothing of it is computed
//! with: the rules keep it of a size that can be sent, and free of what a terminal
//! would obey.

use super::{items, range, text};
use crate::Violations;
use crate::limits::*;
use crate::units::{format_duration, shown};
use proto::linkemu::v1 as pb;

const SHA256_DIGITS: usize = 64;

pub(super) fn check(found: &mut Violations, path: &str, provenance: &pb::Provenance) {
    let at = |field: &str| format!("{path}.{field}");
    let bytes = bytes(provenance);
    if bytes > PROVENANCE_BYTES {
        let message =
            format!("{bytes} bytes of text are more than {PROVENANCE_BYTES}: shorten the lists");
        found.push(path, message);
    }
    required(found, &at("source"), &provenance.source, "name the measurement, such as its file");
    text(found, &at("format"), &provenance.format);
    let sha256 = &provenance.sha256;
    let is_sha256 = sha256.len() == SHA256_DIGITS && sha256.bytes().all(|b| b.is_ascii_hexdigit());
    if !sha256.is_empty() && !is_sha256 {
        let given = shown(sha256);
        let message =
            format!("{given:?} is not {SHA256_DIGITS} hexadecimal digits: write those, or nothing");
        found.push(at("sha256"), message);
    }
    let (samples, lost) = (provenance.samples, provenance.lost);
    range(found, at("samples"), samples, &SAMPLES, |samples| samples);
    if lost > samples {
        let message = format!("{lost} are more than the samples, {samples}: correct either");
        found.push(at("lost"), message);
    }
    range(found, at("interval"), provenance.interval_ns, &SPACING_NS, format_duration);
    entries(found, &at("unidentified"), &provenance.unidentified, |found, path, it| {
        text(found, path, it);
    });
    entries(found, &at("remarks"), &provenance.remarks, |found, path, it| text(found, path, it));
    entries(found, &at("estimates"), &provenance.estimates, estimate);
    entries(found, &at("goodness"), &provenance.goodness, goodness);
}

fn bytes(provenance: &pb::Provenance) -> usize {
    let pb::Provenance { source, format, sha256, .. } = provenance;
    let estimates = provenance
        .estimates
        .iter()
        .flat_map(|it| [&it.parameter, &it.value, &it.low, &it.high, &it.method]);
    [source, format, sha256]
        .into_iter()
        .chain(&provenance.unidentified)
        .chain(&provenance.remarks)
        .chain(estimates)
        .chain(provenance.goodness.iter().map(|it| &it.test))
        .map(String::len)
        .sum()
}

fn entries<T>(
    found: &mut Violations,
    path: &str,
    entries: &[T],
    check: impl Fn(&mut Violations, &str, &T),
) {
    if entries.len() > ENTRIES {
        let message = format!("{} entries are more than {ENTRIES}: merge some", entries.len());
        found.push(path, message);
    }
    items(found, path, entries.iter().take(ENTRIES), check);
}

fn required(found: &mut Violations, path: &str, value: &str, remedy: &str) {
    if value.is_empty() {
        found.push(path, format!("missing: {remedy}"));
    }
    text(found, path, value);
}

fn estimate(found: &mut Violations, path: &str, estimate: &pb::Estimate) {
    let at = |field: &str| format!("{path}.{field}");
    let parameter = "name the parameter, such as \"outages[0].duration\"";
    required(found, &at("parameter"), &estimate.parameter, parameter);
    required(found, &at("value"), &estimate.value, "write it with its unit, such as \"320 ms\"");
    text(found, &at("low"), &estimate.low);
    text(found, &at("high"), &estimate.high);
    text(found, &at("method"), &estimate.method);
}

fn goodness(found: &mut Violations, path: &str, goodness: &pb::Goodness) {
    let at = |field: &str| format!("{path}.{field}");
    required(found, &at("test"), &goodness.test, "say what was compared");
    if !goodness.statistic.is_finite() {
        let message = format!("{} is not a finite number: write one", goodness.statistic);
        found.push(at("statistic"), message);
    }
    let degrees = goodness.degrees_of_freedom;
    if !degrees.is_finite() || degrees < 0.0 {
        let message = format!("{degrees} is not a finite number from zero up: write one");
        found.push(at("degrees_of_freedom"), message);
    }
    range(found, at("p_value"), goodness.p_value, &(0.0..=1.0), |p| p);
}
