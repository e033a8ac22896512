// SPDX-License-Identifier: Apache-2.0
//! Element sets of satellites: TLE with or without a name line, and OMM as JSON or CSV.
//!
//! The crate `sgp4` parses and propagates them. Before it does, this module splits a file into
//! element sets, checks what the crate takes for granted (characters, a digit as the checksum,
//! finite numbers of possible orbits), and adds the place in the file to its errors.
//!
//! Propagation uses the constants of WGS 72 and the AFSPC mode, as the element sets in circulation
//! are fitted with them (AIAA 2006-6753).

use crate::earth::Instant;
use sgp4::{Constants, Elements, MinutesSinceEpoch};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Maximum size of a file.
pub const FILE_BYTES: usize = 32 << 20;
/// Revolutions per day: from beyond the Moon to the surface of the Earth.
const MEAN_MOTION: RangeInclusive<f64> = 0.03..=17.0;
/// No satellite completes a revolution below this height.
const LEAST_RADIUS_KM: f64 = 6_378.135 + 80.0;
/// Gravitational parameter of the Earth in km³/s².
const MU: f64 = 398_600.8;
const DAY_S: f64 = 86_400.0;
/// Characters of a name that are kept.
const NAME_CHARS: usize = 40;
/// A TLE's name has at most 24 characters, so that a longer line is none.
const NAME_LINE: usize = 24;
/// Characters of a line of elements.
const LINE: usize = 69;

/// A satellite at an epoch.
#[derive(Clone, Debug)]
pub struct Satellite {
    pub name: String,
    pub norad_id: u64,
    /// Of its elements.
    pub epoch_ns: i64,
    /// Of one revolution.
    pub(crate) period_s: f64,
    pub(crate) perigee_km: f64,
    pub(crate) apogee_km: f64,
    constants: Constants,
}

/// Why a file has no usable element sets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElementsError {
    #[error("{file} has more than {} MiB: select the satellites that you need", FILE_BYTES >> 20)]
    Bytes { file: String },
    #[error("{file} holds no element sets: write TLE, or OMM as JSON or CSV")]
    Empty { file: String },
    #[error("{file} is OMM as {form}, which is not supported: fetch TLE, or OMM as JSON or CSV")]
    Unsupported { file: String, form: &'static str },
    #[error("{file}:{place}: {problem}")]
    Wrong {
        file: String,
        /// A line, lines, or an element set.
        place: String,
        /// The fault and the remedy.
        problem: String,
    },
}

/// Reads all element sets of a file.
///
/// # Errors
/// If one cannot be parsed, or describes no orbit.
pub fn read(file: &str, bytes: &[u8]) -> Result<Vec<Satellite>, ElementsError> {
    if bytes.len() > FILE_BYTES {
        return Err(ElementsError::Bytes { file: file.to_owned() });
    }
    let wrong = |(place, problem)| ElementsError::Wrong { file: file.to_owned(), place, problem };
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches('\u{feff}').trim();
    let head = text.lines().next().unwrap_or_default();
    let unsupported = |form| Err(ElementsError::Unsupported { file: file.to_owned(), form });
    let satellites = match head.chars().next() {
        None => return Err(ElementsError::Empty { file: file.to_owned() }),
        Some('[' | '{') => omm(json(text)),
        _ if ["<?xml", "<ndm", "<omm"].iter().any(|tag| head.starts_with(tag)) => {
            return unsupported("XML");
        }
        _ if head.starts_with("CCSDS_OMM_VERS") => return unsupported("KVN"),
        _ if head.contains("NORAD_CAT_ID") && head.contains(',') => omm(csv(text)),
        _ => tle(text),
    };
    let satellites = satellites.map_err(wrong)?;
    match satellites.is_empty() {
        true => Err(ElementsError::Empty { file: file.to_owned() }),
        false => Ok(satellites),
    }
}

/// Place and problem.
type Fault = (String, String);

const AGAIN: &str = "fetch or generate the element set again";

fn tle(text: &str) -> Result<Vec<Satellite>, Fault> {
    let mut satellites = Vec::new();
    let (mut name, mut first) = (None::<(usize, &str)>, None::<(usize, &str)>);
    for (number, line) in text.lines().map(str::trim_end).enumerate() {
        let number = number + 1;
        let at = |problem: &str| (number.to_string(), problem.to_owned());
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let is = |digit| line.starts_with(digit) && line.len() > NAME_LINE;
        if is("1 ") {
            if first.replace((number, line)).is_some() {
                return Err(at("a line 1 follows a line 1: write line 2 after each"));
            }
        } else if is("2 ") {
            let Some(one) = first.take() else {
                return Err(at("a line 2 without its line 1: write both, one after the other"));
            };
            let name = name.take().map(|(_, name)| name);
            satellites.push(pair(name, one, (number, line))?);
        } else if first.is_some() {
            return Err(at("line 2 of an element set is missing here: it begins with \"2 \""));
        } else if line.len() > LINE {
            return Err(at("neither a name nor a line of elements: write TLE, or OMM as JSON"));
        } else if let Some((before, _)) = name.replace((number, line)) {
            let problem = "a name without elements: write the lines 1 and 2 after it";
            return Err((before.to_string(), problem.to_owned()));
        }
    }
    match first.map(|(line, _)| (line, "the file ends before line 2")).or(name.map(|(line, _)| {
        (line, "not a line of elements: write the lines 1 and 2 of a TLE after a name")
    })) {
        Some((line, problem)) => Err((line.to_string(), problem.to_owned())),
        None => Ok(satellites),
    }
}

fn pair(name: Option<&str>, one: (usize, &str), two: (usize, &str)) -> Result<Satellite, Fault> {
    for (number, line) in [one, two] {
        let at = |problem| (number.to_string(), problem);
        if let Some(c) = line.chars().find(|c| !c.is_ascii() || c.is_ascii_control()) {
            return Err(at(format!("the character {c:?} does not occur in elements: {AGAIN}")));
        }
        // The crate subtracts from it.
        if line.len() == LINE && !line.ends_with(|c: char| c.is_ascii_digit()) {
            return Err(at(format!("the line does not end with a checksum: {AGAIN}")));
        }
    }
    let place = || format!("{}-{}", one.0, two.0);
    let name = name.map(|name| name.strip_prefix("0 ").unwrap_or(name).trim().to_owned());
    let elements = Elements::from_tle(name, one.1.as_bytes(), two.1.as_bytes())
        .map_err(|error| (place(), format!("{error}: {AGAIN}")))?;
    satellite(elements).map_err(|problem| (place(), problem))
}

fn json(text: &str) -> Result<Vec<Elements>, Fault> {
    let parsed = match text.starts_with('{') {
        true => serde_json::from_str(text).map(|one| vec![one]),
        false => serde_json::from_str(text),
    };
    parsed.map_err(|error| {
        let problem = format!("{error}: write OMM as CelesTrak and Space-Track do");
        (error.line().to_string(), problem)
    })
}

fn csv(text: &str) -> Result<Vec<Elements>, Fault> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let rows = reader.deserialize().enumerate().map(|(i, row)| {
        row.map_err(|error: csv::Error| {
            let line = error.position().map_or(i as u64 + 2, csv::Position::line);
            (line.to_string(), format!("{error}: write OMM as CelesTrak and Space-Track do"))
        })
    });
    rows.collect()
}

fn omm(elements: Result<Vec<Elements>, Fault>) -> Result<Vec<Satellite>, Fault> {
    let numbered = elements?.into_iter().enumerate();
    let satellites = numbered.map(|(i, elements)| {
        satellite(elements).map_err(|problem| (format!("element set {}", i + 1), problem))
    });
    satellites.collect()
}

fn satellite(elements: Elements) -> Result<Satellite, String> {
    let name = elements.object_name.as_deref().map_or("", str::trim);
    let plain = name.chars().filter(|c| !c.is_control()).take(NAME_CHARS).collect::<String>();
    let name = if plain.is_empty() { elements.norad_id.to_string() } else { plain };
    let Elements { mean_motion, eccentricity, drag_term, .. } = elements;
    for (what, value, range) in [
        ("mean motion", mean_motion, MEAN_MOTION),
        ("eccentricity", eccentricity, 0.0..=0.999),
        ("inclination", elements.inclination, -360.0..=360.0),
        ("right ascension", elements.right_ascension, -360.0..=360.0),
        ("argument of perigee", elements.argument_of_perigee, -360.0..=360.0),
        ("mean anomaly", elements.mean_anomaly, -360.0..=360.0),
        ("drag term", drag_term, -10.0..=10.0),
    ] {
        if !range.contains(&value) {
            let (least, most) = (range.start(), range.end());
            return Err(format!(
                "{name}: the {what} {value} is outside of {least} to {most}: {AGAIN}"
            ));
        }
    }
    let epoch_ns = elements.datetime.and_utc().timestamp_nanos_opt();
    let epoch_ns = epoch_ns.ok_or_else(|| {
        format!("{name}: the epoch {} is outside of 1678 to 2262: {AGAIN}", elements.datetime)
    })?;
    let constants = Constants::from_elements_afspc_compatibility_mode(&elements)
        .map_err(|error| format!("{name}: {error}: {AGAIN}"))?;
    let period_s = DAY_S / mean_motion;
    let axis_km = (MU * (period_s / std::f64::consts::TAU).powi(2)).cbrt();
    let perigee_km = axis_km * (1.0 - eccentricity);
    let apogee_km = axis_km * (1.0 + eccentricity);
    let norad_id = elements.norad_id;
    Ok(Satellite { name, norad_id, epoch_ns, period_s, perigee_km, apogee_km, constants })
}

impl Satellite {
    /// Position in the Earth-fixed frame, in m; none if the satellite has decayed by then.
    pub(crate) fn position(&self, at: &Instant) -> Option<[f64; 3]> {
        let minutes = MinutesSinceEpoch((at.unix_ns as f64 - self.epoch_ns as f64) / 60e9);
        let position = self.constants.propagate_afspc_compatibility_mode(minutes).ok()?.position;
        let radius = position.iter().map(|km| km * km).sum::<f64>().sqrt();
        // Not so if it is no number.
        (radius >= LEAST_RADIUS_KM && radius.is_finite()).then(|| at.earth_fixed(position))
    }

    /// Whether the elements still give a position then.
    #[must_use]
    pub fn is_in_orbit(&self, unix_ns: i64) -> bool {
        self.position(&Instant::new(unix_ns)).is_some()
    }
}

/// Leaves one element set of each satellite: that with the epoch nearest to an instant.
#[must_use]
pub fn nearest(satellites: Vec<Satellite>, unix_ns: i64) -> Vec<Satellite> {
    let age = |satellite: &Satellite| satellite.epoch_ns.abs_diff(unix_ns);
    let mut places = BTreeMap::<(u64, String), usize>::new();
    let mut kept = Vec::<Satellite>::new();
    for satellite in satellites {
        let key = (satellite.norad_id, satellite.name.clone());
        match places.get(&key).and_then(|place| kept.get_mut(*place)) {
            Some(other) if age(&satellite) < age(other) => *other = satellite,
            Some(_) => {}
            None => {
                places.insert(key, kept.len());
                kept.push(satellite);
            }
        }
    }
    kept
}
