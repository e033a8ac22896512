// SPDX-License-Identifier: Apache-2.0
//! The satellites of a file that are of use at the time of the scenario.

use crate::failure::Failure;
use ::orbit::elements::{self, ElementsError, FILE_BYTES, Satellite};
use jiff::Timestamp;
use profile::format_duration;
use std::fs::File;
use std::io::Read;
use std::path::Path;

const S: u64 = 1_000_000_000;
/// From then on, the error in a low orbit exceeds that of the other approximations.
const STALE_NS: u64 = 3 * 86_400 * S;
/// Characters of a file's name in the source.
const SHOWN: usize = 200;

/// Which satellites, and when.
pub struct Request<'a> {
    pub path: &'a Path,
    /// Parts of names; none: all satellites.
    pub names: &'a [String],
    /// Without it, the latest epoch of the element sets, in whole seconds.
    pub start_ns: Option<i64>,
    pub duration_ns: u64,
    /// Largest distance of an epoch from the scenario.
    pub max_age_ns: u64,
}

/// The satellites of a file, at the start of the scenario.
pub struct Sky {
    pub satellites: Vec<Satellite>,
    pub start_ns: i64,
    /// The file, its epochs and the model.
    pub source: String,
    /// Satellites that are left out, and the age of the others.
    pub remarks: Vec<String>,
}

impl Sky {
    /// # Errors
    /// If the file cannot be read, or no satellite is left.
    pub fn read(request: &Request<'_>) -> Result<Self, Failure> {
        let file = plain(&request.path.display().to_string());
        let mut bytes = Vec::new();
        let most = FILE_BYTES as u64 + 1;
        File::open(request.path)
            .and_then(|it| it.take(most).read_to_end(&mut bytes))
            .map_err(|error| Failure::failed("io", format!("cannot read {file}: {error}")))?;
        let all = elements::read(&file, &bytes);
        let mut all =
            all.map_err(|error: ElementsError| Failure::failed("elements", error.to_string()))?;
        let wanted = request.names;
        all.retain(|it| wanted.is_empty() || wanted.iter().any(|text| it.name.contains(text)));
        let epochs = || all.iter().map(|satellite| satellite.epoch_ns);
        let (Some(first), Some(last)) = (epochs().min(), epochs().max()) else {
            let message = format!("no satellite of {file} has {} in its name", wanted.join(" or "));
            return Err(Failure::failed("elements", message)
                .hint("upper and lower case differ; without --satellite all are used"));
        };
        let second = i64::try_from(S).unwrap_or(i64::MAX);
        let start_ns = request.start_ns.unwrap_or(last - last.rem_euclid(second));
        let end_ns = start_ns.checked_add_unsigned(request.duration_ns).ok_or_else(|| {
            Failure::usage(format!("--start {} is too late: write an earlier one", shown(start_ns)))
        })?;
        let age = |it: &Satellite| it.epoch_ns.abs_diff(start_ns).max(it.epoch_ns.abs_diff(end_ns));
        let mut satellites = elements::nearest(all, start_ns);
        let mut remarks = Vec::new();
        let mut leave_out = |why: &str, left_out: Vec<Satellite>, rest: usize| {
            if let Some(one) = left_out.first() {
                let (n, all) = (left_out.len(), left_out.len() + rest);
                remarks.push(format!("{n} of {all} satellites {why}, such as {}", one.name));
            }
        };
        let max_age = format_duration(request.max_age_ns);
        let (near, far) =
            satellites.into_iter().partition::<Vec<_>, _>(|it| age(it) <= request.max_age_ns);
        satellites = near;
        if satellites.is_empty() {
            let message = format!(
                "the element sets of {file} are from {} to {}, and the scenario is from {} to {}: \
                 more than {max_age} apart",
                shown(first),
                shown(last),
                shown(start_ns),
                shown(end_ns)
            );
            return Err(Failure::failed("elements", message)
                .hint("give a --start near the element sets, or fetch those of that time")
                .hint("--max-age allows more, at a loss of 1 to 3 km per day in low orbits"));
        }
        let why = format!("are left out, with elements more than {max_age} from the scenario");
        leave_out(&why, far, satellites.len());
        let (flying, decayed) =
            satellites.into_iter().partition::<Vec<_>, _>(|it| it.is_in_orbit(start_ns));
        satellites = flying;
        if satellites.is_empty() {
            let message = format!("all satellites of {file} have decayed by {}", shown(start_ns));
            return Err(Failure::failed("elements", message)
                .hint("give a --start near the element sets, or fetch newer ones"));
        }
        leave_out("are left out, decayed by the start", decayed, satellites.len());
        let oldest = satellites.iter().map(age).max().unwrap_or(0);
        if oldest > STALE_NS {
            let days = oldest / (86_400 * S);
            remarks.push(format!(
                "element sets are up to {days} days from the scenario: positions in low orbits \
                 deviate by 1 to 3 km per day"
            ));
        }
        let file: String = file.chars().take(SHOWN).collect();
        let source = format!(
            "{file} (satellites: {}; epochs {} to {}), propagated with SGP4",
            satellites.len(),
            shown(first),
            shown(last)
        );
        Ok(Self { satellites, start_ns, source, remarks })
    }
}

/// A text without control characters.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '_' } else { c }).collect()
}

/// An instant as text.
pub fn shown(unix_ns: i64) -> String {
    Timestamp::from_nanosecond(unix_ns.into()).map_or(String::new(), |instant| instant.to_string())
}
