// SPDX-License-Identifier: Apache-2.0
//! Rules of the provenance of a fitted profile. It does not affect the link: the rules bound its
//! size and exclude control characters, which a terminal would execute.

use super::{FAULTS, text};
use crate::Violations;
use crate::limits::{
    PROVENANCE_BYTES, PROVENANCE_ESTIMATES_ITEMS, PROVENANCE_GOODNESS_ITEMS,
    PROVENANCE_SENSITIVITIES_ITEMS,
};
use proto::linkemu::v1 as pb;
use units::shown;

const SHA256_DIGITS: usize = 64;

pub(super) fn check(found: &mut Violations, path: &str, provenance: &pb::Provenance) {
    let at = |field: &str| format!("{path}.{field}");
    let bytes = bytes(provenance);
    if bytes > PROVENANCE_BYTES {
        let message =
            format!("{bytes} bytes of text are more than {PROVENANCE_BYTES}: shorten the lists");
        found.push(path, message);
    }
    let source = "name the measurement, such as its file";
    required(found, at("source"), &provenance.source, source);
    let sha256 = &provenance.sha256;
    let is_sha256 = sha256.len() == SHA256_DIGITS && sha256.bytes().all(|b| b.is_ascii_hexdigit());
    if !sha256.is_empty() && !is_sha256 && text(sha256).is_none() {
        let given = shown(sha256);
        let message =
            format!("{given:?} is not {SHA256_DIGITS} hexadecimal digits: write those, or nothing");
        found.push(at("sha256"), message);
    }
    let (samples, lost) = (provenance.samples, provenance.lost);
    if lost > samples {
        let message = format!("{lost} are more than the samples, {samples}: correct either");
        found.push(at("lost"), message);
    }
    let enough = found.len() + FAULTS;
    let estimates = provenance.estimates.iter().take(*PROVENANCE_ESTIMATES_ITEMS.end());
    for (i, it) in estimates.enumerate() {
        if found.len() >= enough {
            break;
        }
        let at = |field: &str| at(&format!("estimates[{i}].{field}"));
        let parameter = "name the parameter, such as \"outages[0].duration\"";
        required(found, at("parameter"), &it.parameter, parameter);
        required(found, at("value"), &it.value, "write it with its unit, such as \"320 ms\"");
    }
    let enough = found.len() + FAULTS;
    let goodness = provenance.goodness.iter().take(*PROVENANCE_GOODNESS_ITEMS.end());
    for (i, it) in goodness.enumerate() {
        if found.len() >= enough {
            break;
        }
        let at = |field: &str| at(&format!("goodness[{i}].{field}"));
        required(found, at("test"), &it.test, "say what was compared");
        if !it.statistic.is_finite() {
            let message = format!("{} is not a finite number: write one", it.statistic);
            found.push(at("statistic"), message);
        }
        let degrees = it.degrees_of_freedom;
        if !degrees.is_finite() || degrees < 0.0 {
            let message = format!("{degrees} is not a finite number from zero up: write one");
            found.push(at("degrees_of_freedom"), message);
        }
    }
    let enough = found.len() + FAULTS;
    let sensitivities = provenance.sensitivities.iter().take(*PROVENANCE_SENSITIVITIES_ITEMS.end());
    for (i, it) in sensitivities.enumerate() {
        if found.len() >= enough {
            break;
        }
        let at = |field: &str| at(&format!("sensitivities[{i}].{field}"));
        required(found, at("prior"), &it.prior, "name the prior");
        required(found, at("figure"), &it.figure, "name the figure that depends on it");
        required(found, at("change"), &it.change, "write the change of the figure with its unit");
    }
}

fn required(found: &mut Violations, path: String, value: &str, remedy: &str) {
    if value.is_empty() {
        found.push(path, format!("missing: {remedy}"));
    }
}

fn bytes(provenance: &pb::Provenance) -> usize {
    let pb::Provenance { source, format, sha256, .. } = provenance;
    let estimates = provenance
        .estimates
        .iter()
        .flat_map(|it| [&it.parameter, &it.value, &it.low, &it.high, &it.method]);
    let sensitivities = provenance
        .sensitivities
        .iter()
        .flat_map(|it| [&it.prior, &it.value, &it.figure, &it.change, &it.per]);
    [source, format, sha256]
        .into_iter()
        .chain(sensitivities)
        .chain(&provenance.unidentified)
        .chain(&provenance.remarks)
        .chain(estimates)
        .chain(provenance.goodness.iter().map(|it| &it.test))
        .map(String::len)
        .sum()
}
