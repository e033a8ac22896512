// SPDX-License-Identifier: Apache-2.0
//! From estimates to a profile: which direction gets what, in the schema's units, with
//! the provenance of every figure.

use profile::{
    BODY_CORRELATION_NS, OUTAGE_DURATION_NS, OUTAGE_INTERVAL_NS, Profile, Violations,
    format_duration,
};
use proto::linkemu::v1 as pb;

use crate::baseline::{Baseline, OneWay, Source, Summary};
use crate::delay::estimate::{self as delays, DelayError, Delays};
use crate::delay::law::Body;
use crate::delay::{body, published};
use crate::digits::four_digits;
use crate::emulator::UNKNOWN;
use crate::goodness::Goodness;
use crate::loss::{FadeEstimate, Interval, LossOptions, Losses, MOST_RUNS, Runs};
use crate::loss::{estimate as estimate_losses, estimate_fade};
use crate::read::Input;
use crate::seconds;

/// The schema's limits, in seconds.
const LEAST_INTERVAL: f64 = seconds(*OUTAGE_INTERVAL_NS.start());
const LONGEST_INTERVAL: f64 = seconds(*OUTAGE_INTERVAL_NS.end());
const LONGEST_EPISODE: f64 = seconds(*OUTAGE_DURATION_NS.end());
const LEAST_CORRELATION: f64 = seconds(*BODY_CORRELATION_NS.start());
const LONGEST_CORRELATION: f64 = seconds(*BODY_CORRELATION_NS.end());

/// Directions that a share of what was measured goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Towards the client.
    Forward,
    /// From the client.
    Return,
    /// Half to each.
    Both,
}

/// What a round trip does not tell, stated by the user.
#[derive(Clone, Debug)]
pub struct Options {
    /// The profile's name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Rate, queue and framing, as [`capacity`] leaves them.
    pub forward: pb::Pipe,
    /// And from the client.
    pub back: pb::Pipe,
    /// The direction that losses are in.
    pub losses_in: Direction,
    /// The direction that the body and the excursions of the delay are in; not both.
    pub delay_in: Direction,
    /// Constant delay towards the client, in ns; where not stated, by the one-way delays, and
    /// without those half of the base.
    pub forward_ns: Option<u64>,
    /// How long an isolated loss lasts, in seconds.
    pub isolated_s: Option<f64>,
    /// How long routine and rare episodes of delay last where only a curve was published, in
    /// seconds; half of the probing interval where not stated, as for isolated losses.
    pub routine_s: Option<f64>,
    /// And rare ones.
    pub rare_s: Option<f64>,
}

/// A pipe that is not limited, with a queue that then never fills.
#[must_use]
pub fn unlimited() -> pb::Pipe {
    pb::Pipe {
        queue: Some(pb::Queue { limit_bytes: 1 << 20, ..Default::default() }),
        delay: Some(pb::Delay::default()),
        ..pb::Pipe::default()
    }
}

/// What of a pipe no ping tells: rate, queue, framing. What pings do tell is left out.
#[must_use]
pub fn capacity(pipe: &pb::Pipe) -> pb::Pipe {
    // Each field is named, so that a new one is decided upon.
    let pb::Pipe {
        rate_bps,
        rate_trace,
        overhead_bytes,
        min_frame_bytes,
        link_layer,
        queue,
        packet_loss: _,
        gilbert_elliott: _,
        four_state_loss: _,
        duplicate: _,
        corrupt: _,
        reorder: _,
        drop_run: _,
        outages: _,
        fade: _,
        delay: _,
    } = pipe.clone();
    let framed = pb::Pipe { overhead_bytes, min_frame_bytes, link_layer, ..unlimited() };
    pb::Pipe { rate_bps, rate_trace, queue, ..framed }
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// The delays cannot be told.
    #[error(transparent)]
    Delay(#[from] DelayError),
    /// The study has no curve of round trips.
    #[error("the summary has no [delay]: give its curve of round trips, at least two points")]
    NoDelay,
    /// The stated constant delay is longer than the whole round trip.
    #[error(
        "a forward delay of {stated} is more than the least round trip of {base}: state less than \
         that"
    )]
    Split {
        /// As stated.
        stated: String,
        /// As measured.
        base: String,
    },
    /// The stated duration of isolated losses does not fit.
    #[error(
        "isolated losses of {stated} are longer than the probing interval of {interval}: they would \
         be seen as runs; state at most the interval"
    )]
    Isolated {
        /// As stated.
        stated: String,
        /// As measured.
        interval: String,
    },
    /// What was estimated is no profile.
    #[error("what was estimated is outside of what a profile can say:\n{0}")]
    Schema(Violations),
}

/// A profile and how it came about.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The profile, provenance included.
    pub profile: Profile,
    /// Its losses.
    pub losses: Option<Losses>,
    /// Its fades.
    pub fade: Option<FadeEstimate>,
    /// Its delays.
    pub delays: Delays,
}

/// A measured baseline, whatever is known of it.
struct Measured<'a> {
    source: &'a Source,
    samples: u64,
    lost: u64,
    interval_ns: u64,
    one_way: Option<OneWay>,
    /// What the log does not tell of its own making.
    unidentified: Option<&'a str>,
    remarks: Vec<String>,
}

/// Fits a profile.
///
/// # Errors
/// If the baseline does not tell enough, or contradicts what is stated.
pub fn fit(input: &Input, options: &Options) -> Result<Fitted, FitError> {
    match input {
        Input::Log(baseline) => fit_log(baseline, options),
        Input::Summary(summary) => fit_summary(summary, options),
    }
}

fn fit_log(baseline: &Baseline, options: &Options) -> Result<Fitted, FitError> {
    check_isolated(options, baseline.interval_ns)?;
    let runs = Runs::of_series(&baseline.series, baseline.interval_ns, baseline.spacing);
    let fade = estimate_fade(&runs);
    // Both directions would have fades of their own.
    let one_way = options.losses_in == Direction::Both && fade.is_some();
    let losses_in = if one_way { Direction::Forward } else { options.losses_in };
    let mut losses = estimate_losses(&runs, loss_options(options, losses_in));
    if one_way {
        losses.unidentified.push(
            "fades: those of two directions would be independent, so all losses are forward".into(),
        );
    }
    if runs.begins_s.len() > MOST_RUNS {
        losses.unidentified.push(format!(
            "fades: not looked for among {} runs of lost probes, at most {MOST_RUNS} are",
            runs.begins_s.len()
        ));
    }
    let delays = delays::estimate(baseline)?;
    let measured = Measured {
        source: &baseline.source,
        samples: baseline.series.len() as u64,
        lost: baseline.series.lost() as u64,
        interval_ns: baseline.interval_ns,
        one_way: baseline.one_way,
        unidentified: baseline.emulator.is_none().then_some(UNKNOWN),
        remarks: baseline.remarks.iter().chain(&baseline.emulator).cloned().collect(),
    };
    let mut options = options.clone();
    options.losses_in = losses_in;
    assemble(&measured, &options, Some(losses), fade, delays)
}

fn fit_summary(summary: &Summary, options: &Options) -> Result<Fitted, FitError> {
    check_isolated(options, summary.interval_ns)?;
    if summary.exceedance.is_empty() {
        return Err(FitError::NoDelay);
    }
    let losses = summary.losses.as_ref().map(|counts| {
        let runs = Runs::of_counts(counts, summary.loss_samples, summary.interval_ns);
        estimate_losses(&runs, loss_options(options, options.losses_in))
    });
    let half = summary.interval_ns as f64 / 2e9;
    let durations = [options.routine_s, options.rare_s].map(|stated| stated.unwrap_or(half));
    let delays = published::estimate(summary, durations)?;
    let measured = Measured {
        source: &summary.source,
        samples: summary.loss_samples.max(summary.delay_samples),
        lost: summary.losses.as_ref().map_or(0, |l| l.lost),
        interval_ns: summary.interval_ns,
        one_way: None,
        unidentified: None,
        remarks: Vec::new(),
    };
    assemble(&measured, options, losses, None, delays)
}

fn loss_options(options: &Options, losses_in: Direction) -> LossOptions {
    let directions = if losses_in == Direction::Both { 2 } else { 1 };
    LossOptions { isolated_s: options.isolated_s, directions }
}

fn check_isolated(options: &Options, interval_ns: u64) -> Result<(), FitError> {
    match options.isolated_s.map(nanos) {
        Some(stated) if stated > interval_ns || stated == 0 => Err(FitError::Isolated {
            stated: format_duration(stated),
            interval: format_duration(interval_ns),
        }),
        _ => Ok(()),
    }
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

fn rounded(seconds: f64) -> u64 {
    four_digits(nanos(seconds))
}

/// The profile's provenance as it grows.
#[derive(Default)]
struct Notes {
    estimates: Vec<pb::Estimate>,
    goodness: Vec<pb::Goodness>,
    unidentified: Vec<String>,
}

impl Notes {
    fn time(&mut self, parameter: String, estimate: Interval, method: &str) {
        let end = |x: f64| {
            if x.is_finite() && x < LONGEST_INTERVAL * 1e3 {
                format_duration(rounded(x))
            } else {
                "unbounded".into()
            }
        };
        self.estimates.push(pb::Estimate {
            parameter,
            value: end(estimate.value),
            low: end(estimate.low.max(0.0)),
            high: end(estimate.high),
            method: method.into(),
        });
    }

    fn number(&mut self, parameter: String, estimate: Interval, method: &str) {
        let end = |x: f64| if x.is_finite() { format!("{x:.3}") } else { "unbounded".into() };
        self.estimates.push(pb::Estimate {
            parameter,
            value: end(estimate.value),
            low: end(estimate.low),
            high: end(estimate.high),
            method: method.into(),
        });
    }

    fn test(&mut self, goodness: Option<&Goodness>) {
        self.goodness.extend(goodness.map(|g| pb::Goodness {
            test: g.test.clone(),
            statistic: (g.statistic * 1e3).round() / 1e3,
            degrees_of_freedom: g.degrees_of_freedom,
            p_value: (g.p_value * 1e6).round() / 1e6,
        }));
    }
}

const LIKELIHOOD: &str = "maximum likelihood";
const MOMENTS: &str = "generalized method of moments";
const STATED: &str = "stated";

fn assemble(
    measured: &Measured<'_>,
    options: &Options,
    losses: Option<Losses>,
    fade: Option<FadeEstimate>,
    delays: Delays,
) -> Result<Fitted, FitError> {
    let mut notes = Notes::default();
    let mut forward = options.forward.clone();
    let mut back = options.back.clone();
    let limited = |c: &pb::Pipe| c.rate_bps.is_some() || c.rate_trace.is_some();
    if !limited(&options.forward) || !limited(&options.back) {
        notes
            .unidentified
            .push("rates and queues: pings tell neither; what is not stated is not limited".into());
    }
    if let Some(losses) = &losses {
        let (outages, fade) = outages(losses, fade.as_ref(), options.losses_in, &mut notes);
        for (pipe, direction) in
            [(&mut forward, Direction::Forward), (&mut back, Direction::Return)]
        {
            if options.losses_in == direction || options.losses_in == Direction::Both {
                pipe.outages.clone_from(&outages);
                pipe.fade = fade;
            }
        }
    } else {
        notes.unidentified.push("losses: none were published; the profile has none".into());
    }
    split(measured, options, &delays, &mut forward, &mut back, &mut notes)?;
    notes.unidentified.extend(measured.unidentified.map(str::to_owned));
    let Source { name, format, sha256 } = measured.source;
    let provenance = pb::Provenance {
        source: name.clone(),
        format: format.name().into(),
        sha256: sha256.clone(),
        samples: measured.samples,
        lost: measured.lost,
        interval_ns: measured.interval_ns,
        estimates: notes.estimates,
        goodness: notes.goodness,
        unidentified: notes.unidentified,
        remarks: measured.remarks.clone(),
    };
    let profile = pb::Profile {
        name: options.name.clone(),
        description: options.description.clone(),
        source: name.clone(),
        forward_pipe: Some(forward),
        return_pipe: Some(back),
        provenance: Some(provenance),
        group: String::new(),
    };
    let profile = Profile::try_from(profile).map_err(FitError::Schema)?;
    Ok(Fitted { profile, losses, fade, delays })
}

/// The outage classes of one pipe, and its fade.
fn outages(
    losses: &Losses,
    fade: Option<&FadeEstimate>,
    losses_in: Direction,
    notes: &mut Notes,
) -> (Vec<pb::Outage>, Option<pb::Fade>) {
    let mut classes = Vec::new();
    // In clear times events are rarer than in the mean, and how many there are is no surer
    // than their rate in clear times.
    let clear = |interval: Interval| match fade {
        None => interval,
        Some(f) => {
            let value = interval.value * f.mean_multiplier();
            let wide = |end: f64, rate: f64| {
                (end / interval.value).ln().hypot((rate / f.clear_rate.value).ln()).exp()
            };
            Interval {
                value,
                low: value / wide(interval.low, f.clear_rate.high),
                high: value * wide(interval.high, f.clear_rate.low),
            }
        }
    };
    let place = match losses_in {
        Direction::Return => "return",
        Direction::Forward => "forward",
        Direction::Both => "forward and return",
    };
    let mut add = |interval: Interval, duration: Interval, fixed: bool, stated: bool| {
        let mut interval = clear(interval);
        let mut duration = duration;
        let at = format!("{place}: outages[{}]", classes.len());
        // What is more frequent than a profile can say keeps its share of time.
        let often = LEAST_INTERVAL / interval.value;
        if often > 1.0 {
            notes.unidentified.push(format!(
                "{at}: every {} is more often than a profile can say; interval and duration are \
                 {often:.1} times as long, for the same share of time",
                format_duration(rounded(interval.value))
            ));
            (interval, duration) = (interval.map(|i| i * often), duration.map(|d| d * often));
        }
        for (time, most) in [(&mut interval, LONGEST_INTERVAL), (&mut duration, LONGEST_EPISODE)] {
            within(&at, time, most, &mut notes.unidentified);
        }
        notes.time(format!("{at}.interval"), interval, LIKELIHOOD);
        let method = if stated { STATED } else { LIKELIHOOD };
        notes.time(format!("{at}.duration"), duration, method);
        let law = if fixed { pb::DurationLaw::Fixed } else { pb::DurationLaw::Exponential };
        classes.push(pb::Outage {
            interval_ns: rounded(interval.value),
            duration_ns: rounded(duration.value),
            law: law as i32,
        });
    };
    for class in &losses.classes {
        add(class.interval, class.duration, class.peaked, false);
    }
    if let Some(isolated) = losses.isolated {
        let stated = isolated.duration_s;
        add(isolated.interval, Interval { value: stated, low: stated, high: stated }, true, true);
    }
    notes.test(losses.goodness.as_ref());
    notes.unidentified.extend(losses.unidentified.iter().cloned());
    let fade = fade.filter(|_| !classes.is_empty()).map(|f| {
        notes.time(format!("{place}: fade.interval"), f.interval, LIKELIHOOD);
        notes.time(format!("{place}: fade.duration"), f.duration, LIKELIHOOD);
        notes.number(format!("{place}: fade.factor"), f.factor, LIKELIHOOD);
        pb::Fade {
            interval_ns: rounded(f.interval.value),
            duration_ns: rounded(f.duration.value),
            factor: (f.factor.value * 1e3).round() / 1e3,
        }
    });
    (classes, fade)
}

/// Cuts an estimate to what a profile can say, and tells it.
fn within(what: &str, time: &mut Interval, most: f64, told: &mut Vec<String>) {
    if time.value > most {
        told.push(format!(
            "{what}: {} was estimated; a profile can say {} at most",
            format_duration(rounded(time.value)),
            format_duration(nanos(most))
        ));
        time.value = most;
    }
}

/// Splits the base between the directions and gives one of them what varies.
fn split(
    measured: &Measured<'_>,
    options: &Options,
    delays: &Delays,
    forward: &mut pb::Pipe,
    back: &mut pb::Pipe,
    notes: &mut Notes,
) -> Result<(), FitError> {
    let base = rounded(delays.base.value);
    // The prober is at the client: there is the return direction, and back is forward.
    let constant = measured.one_way.map(|one_way| match options.delay_in {
        Direction::Forward => base.saturating_sub(one_way.there_ns),
        Direction::Return | Direction::Both => one_way.back_ns.min(base),
    });
    let forward_ns = options.forward_ns.or(constant).unwrap_or(base / 2);
    if forward_ns > base {
        return Err(FitError::Split {
            stated: format_duration(forward_ns),
            base: format_duration(base),
        });
    }
    if options.forward_ns.is_none() {
        notes.unidentified.push(match constant {
            Some(_) => "delay: split by the medians of the one-way delays, with the prober at the \
                        client; what varies is taken to be in one direction"
                .into(),
            None => {
                "delay: a round trip does not tell how it is split; each direction gets half of \
                     the base"
                    .into()
            }
        });
    }
    notes.time("base of the round trip".into(), delays.base, "least round trip");
    let (place, varying) = match options.delay_in {
        Direction::Forward => ("forward", &mut *forward),
        Direction::Return | Direction::Both => ("return", &mut *back),
    };
    let mut delay = pb::Delay::default();
    match &delays.law.body {
        Body::Slot { period, .. } => {
            delay.slot_ns = rounded(*period);
            if let Some(slot) = delays.slot {
                notes.time(format!("{place}: delay.slot"), slot, MOMENTS);
            }
        }
        Body::Held { quantiles, correlation } if quantiles.len() > 1 => {
            let stated = Interval { value: *correlation, low: *correlation, high: *correlation };
            let mut held = delays.correlation.unwrap_or(stated);
            let place = format!("{place}: delay.body.correlation");
            within(&place, &mut held, LONGEST_CORRELATION, &mut notes.unidentified);
            if held.value < LEAST_CORRELATION {
                notes.unidentified.push(format!(
                    "{place}: at least {} is what a profile can say",
                    format_duration(*BODY_CORRELATION_NS.start())
                ));
            }
            let time = held.value.max(LEAST_CORRELATION);
            let values = body::drawn(quantiles, time);
            delay.body = Some(pb::Body {
                correlation_ns: rounded(time),
                quantiles_ns: values.iter().map(|v| nanos(*v)).collect(),
            });
            if let Some(c) = delays.correlation {
                notes.time(place, c, "autocorrelation, jackknife");
            }
        }
        Body::Held { .. } => {}
    }
    for (i, (e, law)) in delays.excursions.iter().zip(&delays.law.excursions).enumerate() {
        let at = format!("{place}: delay.excursions[{i}]");
        notes.time(format!("{at}.interval"), e.interval, MOMENTS);
        let stated = e.duration.low == e.duration.high;
        notes.time(format!("{at}.duration"), e.duration, if stated { STATED } else { MOMENTS });
        notes.time(format!("{at}.scale"), e.scale, MOMENTS);
        notes.number(format!("{at}.shape"), e.shape, MOMENTS);
        let mut times = [(law.interval, LONGEST_INTERVAL), (law.duration, LONGEST_EPISODE)]
            .map(|(value, most)| (Interval { value, low: value, high: value }, most));
        for (time, most) in &mut times {
            within(&at, time, *most, &mut notes.unidentified);
        }
        let [interval, duration] = times.map(|(time, _)| time.value);
        delay.excursions.push(pb::Excursion {
            interval_ns: rounded(interval.max(LEAST_INTERVAL)),
            duration_ns: rounded(duration).max(*OUTAGE_DURATION_NS.start()),
            location_ns: rounded(law.location),
            scale_ns: rounded(law.scale),
            shape: (law.shape * 1e3).round() / 1e3,
            max_ns: rounded(law.max),
        });
    }
    notes.test(delays.goodness.as_ref());
    notes.unidentified.extend(delays.unidentified.iter().cloned());
    if delay.slot_ns > 0 || delay.body.is_some() || !delay.excursions.is_empty() {
        notes.unidentified.push(format!(
            "delay: a round trip does not tell which way it varies; all of that is in the {place} \
             direction, as stated or by default"
        ));
    }
    varying.delay = Some(delay);
    for (pipe, base_ns) in [(forward, forward_ns), (back, base - forward_ns)] {
        if let Some(delay) = &mut pipe.delay {
            delay.base_ns = base_ns;
        }
    }
    Ok(())
}
