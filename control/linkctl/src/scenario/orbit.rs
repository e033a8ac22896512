// SPDX-License-Identifier: Apache-2.0
//! `linkctl scenario orbit`: a scenario of the path through satellites. Needs no linkd.

mod show;
mod sky;

use crate::argument;
use crate::context::{Context, Output};
use crate::destination::Destination;
use crate::failure::Failure;
use crate::output;
use crate::terminal::warn;
use ::fit::fitted::plain_name;
use ::orbit::{
    Query, Reconfigure, Script, ScriptError, Selection, Site, Track, TrackError, report,
};
use ::scenario::{LENGTH_NS, Scenario};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use profile::{format_duration, parse_duration};
use show::{Figures, View};
use sky::{Request, Sky, shown};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "\
Examples:
  linkctl scenario orbit --tle leo.tle --ground 50.7,4.6 --duration 30min -w leo.toml
  linkctl scenario orbit --tle leo.tle --ground 50.7,4.6,120 --gateway 48.9,2.4 --gateway 52.4,4.9 -w leo.toml
  linkctl scenario orbit --tle meo.json --ground -0.2,-78.5 --reconfigure never --select longest --start 2026-01-01T12:00Z
  linkctl scenario orbit --tle geo.tle --ground 37.4,-122 --elevation 10deg --duration 24h --step 1min
  linkctl scenario orbit --tle leo.tle --ground 50.7,4.6 --handover-outage 50ms --report leo.html -w leo.toml
  linkctl scenario run leo.toml

The path is ground station, satellite, gateway, at the speed of light; links between satellites are
not modelled. Without --gateway the gateway is at the ground station. The scenario replaces the delay
of the profile only. Without a usable satellite, and during the outage of a handover, all packets are
lost.";

const S: u64 = 1_000_000_000;
const STEP_NS: RangeInclusive<u64> = S / 100..=60 * S;
const PERIOD_NS: RangeInclusive<u64> = S / 10..=86_400 * S;

#[derive(Clone, Debug, Args)]
pub struct OrbitArgs {
    /// Element sets of the satellites: TLE, or OMM as JSON or CSV
    #[arg(long, value_name = "FILE")]
    tle: PathBuf,
    /// Use only satellites with this text in their name; may be given again
    #[arg(long = "satellite", value_name = "TEXT")]
    satellites: Vec<String>,
    /// Ground station: degrees north, degrees east, metres
    #[arg(long, value_name = "LAT,LON[,ALT]", allow_hyphen_values = true)]
    ground: Site,
    /// Gateway; may be given again: the nearest one to the satellite is used. Default: at the
    /// ground station
    #[arg(long = "gateway", value_name = "LAT,LON[,ALT]", allow_hyphen_values = true)]
    gateways: Vec<Site>,
    /// Simulated start, such as 2026-01-01T12:00Z; default: the latest epoch of the element sets
    #[arg(long, value_name = "UTC", value_parser = utc)]
    start: Option<i64>,
    /// Length of the scenario
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1h")]
    duration: u64,
    /// Time between two changes of the delay: 10 ms to 1 min
    #[arg(long, value_name = "TIME", value_parser = step, default_value = "1s")]
    step: u64,
    /// Minimum elevation of a satellite above the horizon
    #[arg(long, value_name = "ANGLE", value_parser = angle, default_value = "25deg")]
    elevation: f64,
    /// Minimum elevation at the gateways; default: as at the ground station
    #[arg(long, value_name = "ANGLE", value_parser = angle)]
    gateway_elevation: Option<f64>,
    /// Satellite that is selected if several are usable
    #[arg(long, value_enum, default_value = "highest")]
    select: Select,
    /// Interval of the selection; "never": only when the satellite is lost
    #[arg(long, value_name = "TIME|never", value_parser = Every::parse, default_value = "15s")]
    reconfigure: Every,
    /// Time of the first selection after 00:00 UTC
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "12s")]
    reconfigure_phase: u64,
    /// Outage at each handover, in which all packets are lost
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0ms")]
    handover_outage: u64,
    /// Delay that is added in each direction
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0ms")]
    processing: u64,
    /// Maximum error of the delay: a larger one makes a smaller file
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5us")]
    tolerance: u64,
    /// Ignore element sets with an epoch further from the scenario
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30d")]
    max_age: u64,
    /// Profile with everything but the delay: the name of a built-in one, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "transparent")]
    profile: String,
    /// Name of the scenario; default: that of the file
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Write an HTML page with plots of the delay and the elevation
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the scenario to this file; default: standard output
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Select {
    /// The one with the highest elevation
    Highest,
    /// The one that stays usable for the longest time
    Longest,
}

/// A period, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Every(Option<u64>);

impl Every {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self(None));
        }
        within(text, &PERIOD_NS).map(|ns| Self(Some(ns)))
    }
}

fn within(text: &str, range: &RangeInclusive<u64>) -> Result<u64, String> {
    let ns = parse_duration(text).map_err(|error| error.to_string())?;
    match range.contains(&ns) {
        true => Ok(ns),
        false => {
            let [ns, least, most] = [ns, *range.start(), *range.end()].map(format_duration);
            Err(format!("{ns} is outside of {least} to {most}"))
        }
    }
}

fn duration(text: &str) -> Result<u64, String> {
    within(text, &(S..=LENGTH_NS))
}

fn step(text: &str) -> Result<u64, String> {
    within(text, &STEP_NS)
}

fn angle(text: &str) -> Result<f64, String> {
    let number = ["deg", "°"].iter().find_map(|unit| text.strip_suffix(unit)).unwrap_or(text);
    let degrees = number.trim().parse::<f64>();
    let degrees = degrees.ok().filter(|degrees| (0.0..90.0).contains(degrees));
    degrees.ok_or_else(|| "write 0 or more and less than 90 degrees, such as 25deg".to_owned())
}

/// An instant of UTC, or one with an offset.
fn utc(text: &str) -> Result<i64, String> {
    let utc = |civil: DateTime| TimeZone::UTC.to_timestamp(civil);
    let instant = text.parse::<Timestamp>().or_else(|_| text.parse::<DateTime>().and_then(utc));
    let instant = instant.map_err(|_| "write it as 2026-01-01T12:00:00Z".to_owned())?;
    i64::try_from(instant.as_nanosecond()).map_err(|_| "write a year from 1678 to 2261".to_owned())
}

pub fn run(context: &Context, args: &OrbitArgs) -> Result<(), Failure> {
    let inputs = [args.tle.as_path(), Path::new(&args.profile)];
    let destination = |option: &str, path: &Option<PathBuf>| {
        path.as_deref().map(|path| Destination::new(option, path, &inputs)).transpose()
    };
    let to = destination("--write", &args.write)?;
    let page = destination("--report", &args.report)?;
    if args.write.is_some() && args.write == args.report {
        return Err(Failure::usage("--write and --report name the same file: name another one"));
    }
    let profile = argument::profile(&args.profile)?;
    let sky = Sky::read(&Request {
        path: &args.tle,
        names: &args.satellites,
        start_ns: args.start,
        duration_ns: args.duration,
        max_age_ns: args.max_age,
    })?;
    let query = args.query(sky.start_ns);
    let track = Track::follow(&query, &sky.satellites).map_err(too_long)?;
    if track.samples().next().is_none() {
        return Err(args.nothing_visible());
    }
    let name = args.write.as_deref().unwrap_or(&args.tle);
    let name = args.name.clone().unwrap_or_else(|| plain_name(name));
    let script = Script {
        name: &name,
        description: &args.description(sky.start_ns),
        source: &sky.source,
        profile: &profile,
        gateways: query.gateways.len(),
        tolerance_ns: args.tolerance,
        step_ns: args.step,
        outage_ns: args.handover_outage,
    };
    let toml = script.write(&track, &sky.satellites).map_err(refused)?;
    // Checked already.
    let scenario = Scenario::from_toml(&toml)
        .map_err(|found| Failure::invalid("the track makes no valid scenario", found))?;
    warn(&sky.remarks);
    let figures = Figures::of(&track);
    if let Some(page) = page {
        let facts = [
            ("ground station", args.ground.to_string()),
            ("start", shown(sky.start_ns)),
            ("satellites", sky.source.clone()),
            ("summary", figures.text()),
        ];
        let html = report::html(&name, &facts, &track, &sky.satellites);
        page.write(&html.map_err(|error| Failure::failed("report", error.to_string()))?)?;
    }
    if let Some(to) = to {
        to.write(&toml)?;
    }
    if context.output == Output::Json {
        let files = [&args.write, &args.report].map(|path| path.as_deref());
        return output::json(&View::of(files, &scenario, &sky, &track, &figures));
    }
    match &args.write {
        None => output::text(toml.trim_end()),
        Some(path) => output::text(&format!(
            "{}: {} (steps: {}; {})\n{}",
            path.display(),
            scenario.name(),
            super::count(scenario.steps()),
            super::length(scenario.length_ns()),
            figures.text()
        )),
    }
}

impl OrbitArgs {
    fn query(&self, start_ns: i64) -> Query {
        let gateways = match self.gateways.is_empty() {
            true => vec![self.ground],
            false => self.gateways.clone(),
        };
        let phase_ns = self.reconfigure_phase;
        Query {
            ground: self.ground,
            gateways,
            start_ns,
            duration_ns: self.duration,
            step_ns: self.step,
            mask_deg: self.elevation,
            gateway_mask_deg: self.gateway_elevation.unwrap_or(self.elevation),
            selection: match self.select {
                Select::Highest => Selection::Highest,
                Select::Longest => Selection::Longest,
            },
            reconfigure: self.reconfigure.0.map(|period_ns| Reconfigure { period_ns, phase_ns }),
            processing_ns: self.processing,
        }
    }

    fn description(&self, start_ns: i64) -> String {
        let start = shown(start_ns);
        format!("Delay through satellites from {}, as of {start}.", self.ground)
    }

    fn nothing_visible(&self) -> Failure {
        let message = format!(
            "no satellite is {} degrees or more above the horizon of {} and of a gateway within {}",
            self.elevation,
            self.ground,
            format_duration(self.duration)
        );
        Failure::failed("orbit", message)
            .hint("a lower --elevation, a longer --duration, or a nearer --gateway may help")
    }
}

fn too_long(error: TrackError) -> Failure {
    Failure::failed("orbit", error.to_string()).hint("--duration, --step, --reconfigure")
}

fn refused(error: ScriptError) -> Failure {
    let hint = match error {
        ScriptError::Bytes { .. } => "--duration, --tolerance, --reconfigure",
        ScriptError::Steps { .. } => "--duration, --step",
        ScriptError::Delay { .. } => "--processing",
        ScriptError::Invalid(_) => "--name",
    };
    Failure::failed("orbit", error.to_string()).hint(hint)
}
