// SPDX-License-Identifier: Apache-2.0
//! The parameters that flows tell of, and their weak priors.
//!
//! The search sees each on a scale without bounds: logarithms, and log-odds of shares.

use profile::{
    CAPACITY_CORRELATION_NS, OUTAGE_DURATION_NS, OUTAGE_INTERVAL_NS, Profile, Violations,
    format_duration, format_probability, format_size,
};
use proto::linkemu::v1 as pb;

use super::super::observation::Quantity;
use crate::digits::four_digits;
use crate::numeric::logistic;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// Duration of isolated losses in both directions, in s. Their share of time stays, which pings
    /// told, and so their interval is in proportion.
    IsolatedDuration,
    /// Probability of random drop at the limit of the queue towards the client.
    DropAtLimit,
    /// Length of that queue from which on few packets are dropped, in bytes.
    EarlyThreshold,
    /// Probability of these drops.
    EarlyDrop,
    /// Mean share of the rate towards the client.
    CapacityMean,
    /// Standard deviation of that share.
    CapacitySpread,
    /// Time for which a share is kept, in s.
    CapacityCorrelation,
    /// Payload of a burst of the return link, in bytes: the constant share is a number of these.
    AccessBurst,
    /// From a request to its grant, in s: the delays of the request and of the plan, in proportion.
    AccessDelay,
    /// From the first packet of an idle terminal to its first request, in s.
    AccessLogOn,
    /// Least time between two requests, in s: so old is a grant when the next one replaces it.
    AccessInterval,
    /// Multiple of the rate of arrivals that is requested.
    AccessGain,
    /// Time constant with which the requested rate falls, in s.
    AccessDecay,
}

/// A normal distribution on the scale of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior {
    pub mean: f64,
    pub spread: f64,
}

/// Least duration at which a search starts, in s.
const LEAST_ISOLATED_S: f64 = 1e-4;
/// Limits of the schema: a delay of requests in ns, and a gain.
const LONGEST_ACCESS_NS: f64 = 60e9;
const MOST_GAIN: f64 = 1000.0;
/// The largest spread of a share, as a factor of that of a share that is zero or one.
const WIDEST: f64 = 0.7;

impl Parameter {
    const ALL: [Self; 13] = [
        Self::IsolatedDuration,
        Self::DropAtLimit,
        Self::EarlyThreshold,
        Self::EarlyDrop,
        Self::CapacityMean,
        Self::CapacitySpread,
        Self::CapacityCorrelation,
        Self::AccessBurst,
        Self::AccessDelay,
        Self::AccessLogOn,
        Self::AccessInterval,
        Self::AccessGain,
        Self::AccessDecay,
    ];

    /// Whether it is a parameter of capacity on demand on the return link. It is estimated from the start of flows.
    #[must_use]
    pub fn is_of_access(self) -> bool {
        matches!(
            self,
            Self::AccessBurst
                | Self::AccessDelay
                | Self::AccessLogOn
                | Self::AccessInterval
                | Self::AccessGain
                | Self::AccessDecay
        )
    }

    fn is_share(self) -> bool {
        matches!(self, Self::DropAtLimit | Self::CapacityMean)
    }

    /// From the scale of the search.
    #[must_use]
    pub fn value(self, x: f64) -> f64 {
        if self.is_share() { logistic(x) } else { x.exp() }
    }

    /// To the scale of the search.
    #[must_use]
    pub fn scale(self, value: f64) -> f64 {
        if self.is_share() { (value / (1.0 - value)).ln() } else { value.ln() }
    }

    /// About a factor of ten either way for a duration or a probability, three for the variation of
    /// capacity, and two for the parameters of a terminal.
    #[must_use]
    pub fn prior(self, start: f64) -> Prior {
        let spread = match self {
            Self::IsolatedDuration | Self::EarlyDrop => 2.3,
            Self::DropAtLimit | Self::CapacityMean | Self::CapacitySpread => 1.2,
            Self::CapacityCorrelation | Self::EarlyThreshold => 1.2,
            Self::AccessBurst | Self::AccessDelay | Self::AccessLogOn | Self::AccessInterval => 0.7,
            Self::AccessDecay => 1.2,
            Self::AccessGain => 0.35,
        };
        Prior { mean: self.scale(start), spread }
    }

    /// Its path in a profile.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::IsolatedDuration => "forward and return: isolated losses, duration",
            Self::DropAtLimit => "forward: queue.random_drop.probability_at_limit",
            Self::EarlyThreshold => "forward: queue.random_drop.early_threshold",
            Self::EarlyDrop => "forward: queue.random_drop.early_probability",
            Self::CapacityMean => "forward: capacity.mean",
            Self::CapacitySpread => "forward: capacity.spread",
            Self::CapacityCorrelation => "forward: capacity.correlation",
            Self::AccessBurst => "return: access.burst",
            Self::AccessDelay => "return: access.request_delay and plan_delay",
            Self::AccessLogOn => "return: access.log_on.delay",
            Self::AccessInterval => "return: access.request_interval",
            Self::AccessGain => "return: access.rate_requests.gain",
            Self::AccessDecay => "return: access.rate_requests.decay",
        }
    }

    /// A value with its unit.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        match self {
            Self::IsolatedDuration
            | Self::CapacityCorrelation
            | Self::AccessDelay
            | Self::AccessLogOn
            | Self::AccessInterval
            | Self::AccessDecay => {
                let ns = (value * 1e9).clamp(1.0, 1e18) as u64;
                format_duration(four_digits(ns))
            }
            Self::EarlyThreshold | Self::AccessBurst => {
                format_size(four_digits(value.round().max(1.0) as u64))
            }
            Self::AccessGain => format!("{value:.3}"),
            Self::EarlyDrop => format_probability((value.clamp(0.0, 1.0) * 1e8).round() / 1e8),
            Self::DropAtLimit | Self::CapacityMean | Self::CapacitySpread => {
                format_probability((value.clamp(0.0, 1.0) * 1e4).round() / 1e4)
            }
        }
    }

    /// The value at which the search starts; none if the profile has no such parameter.
    fn start(self, profile: &pb::Profile) -> Option<f64> {
        let forward = profile.forward_pipe.as_ref()?;
        let capacity = forward.capacity.as_ref();
        let access = profile.return_pipe.as_ref().and_then(|p| p.access.as_ref());
        let s = |ns: u64| (ns > 0).then_some(ns as f64 / 1e9);
        let aqm = || forward.queue.as_ref()?.random_drop.as_ref();
        match self {
            // Half of the interval of pings is the longest one; so a decade below is the middle.
            Self::IsolatedDuration => {
                let longest = isolated(profile).map(|outage| outage.duration_ns).max()?;
                Some((longest as f64 / 1e9 / 30.0).max(LEAST_ISOLATED_S))
            }
            Self::DropAtLimit => Some(aqm()?.probability_at_limit.clamp(0.01, 0.9)),
            Self::EarlyThreshold => match aqm()? {
                aqm if aqm.early_threshold_bytes > 0 => Some(aqm.early_threshold_bytes as f64),
                aqm => Some((aqm.threshold_bytes as f64 / 4.0).max(1.0)),
            },
            Self::EarlyDrop => Some(match aqm()?.early_probability {
                0.0 => 1e-5,
                stated => stated,
            }),
            Self::CapacityMean | Self::CapacitySpread | Self::CapacityCorrelation
                if forward.rate_bps.is_none_or(|rate| rate == 0) =>
            {
                None
            }
            Self::CapacityMean => Some(capacity.map_or(0.9, |c| c.mean.clamp(0.05, 0.99))),
            Self::CapacitySpread => Some(capacity.map_or(0.08, |c| c.spread.max(0.01))),
            Self::CapacityCorrelation => {
                Some(capacity.map_or(60.0, |c| c.correlation_ns as f64 / 1e9))
            }
            Self::AccessBurst => access.filter(|a| a.constant > 0).map(|a| a.burst_bytes.into()),
            Self::AccessDelay => s(access?.request_delay_ns + access?.plan_delay_ns),
            Self::AccessLogOn => s(access?.log_on?.delay_ns),
            Self::AccessInterval => s(access?.request_interval_ns),
            Self::AccessGain => Some(access?.rate_requests?.gain).filter(|gain| *gain > 0.0),
            Self::AccessDecay => s(access?.rate_requests?.decay_ns),
        }
    }
}

/// Longest duration of an isolated loss: one probe was lost, so at most the interval of the probes.
fn longest(profile: &pb::Profile) -> u64 {
    let interval = profile.provenance.as_ref().map_or(0, |p| p.interval_ns);
    if interval > 0 { interval } else { u64::MAX }
}

fn is_isolated(outage: &pb::Outage, longest: u64) -> bool {
    outage.law() == pb::DurationLaw::Fixed && outage.duration_ns <= longest
}

/// Classes of outages that are isolated losses.
pub(super) fn isolated(profile: &pb::Profile) -> impl Iterator<Item = &pb::Outage> {
    let longest = longest(profile);
    let pipes = profile.forward_pipe.iter().chain(&profile.return_pipe);
    pipes.flat_map(|p| &p.outages).filter(move |outage| is_isolated(outage, longest))
}

/// The parameters of a profile that can be estimated from figures of these kinds, with the values at which
/// the search starts. Capacity on demand needs a figure of the start of a flow. The other parameters need a
/// later figure, or a profile without capacity on demand.
pub fn of(profile: &Profile, figures: &[Quantity]) -> Vec<(Parameter, f64)> {
    let all = all(profile);
    let has_access = all.iter().any(|(p, _)| p.is_of_access());
    let of_start = figures.iter().any(Quantity::is_of_start);
    let of_later = !has_access || figures.iter().any(|q| !q.is_of_start());
    let told = |(p, _): &(Parameter, f64)| if p.is_of_access() { of_start } else { of_later };
    all.into_iter().filter(told).collect()
}

fn all(profile: &Profile) -> Vec<(Parameter, f64)> {
    let start = |p: Parameter| Some((p, p.start(profile.as_proto())?));
    Parameter::ALL.into_iter().filter_map(start).collect()
}

/// The profile with other values of some parameters, given on the scale of the search.
///
/// # Errors
/// If a value is outside of its range in a profile.
pub fn apply(
    profile: &Profile,
    parameters: &[(Parameter, f64)],
    at: &[f64],
) -> Result<Profile, Violations> {
    let mut proto = profile.as_proto().clone();
    for ((parameter, _), x) in parameters.iter().zip(at) {
        set(&mut proto, *parameter, parameter.value(*x));
    }
    limit_spread(&mut proto);
    Profile::try_from(proto)
}

/// Sets a parameter, within the range of the schema.
pub(super) fn set(profile: &mut pb::Profile, parameter: Parameter, value: f64) {
    let longest = longest(profile);
    let (Some(forward), Some(back)) = (&mut profile.forward_pipe, &mut profile.return_pipe) else {
        return;
    };
    let share = |x: f64| (x * 1e4).round() / 1e4;
    match parameter {
        Parameter::IsolatedDuration => {
            for outage in forward.outages.iter_mut().chain(&mut back.outages) {
                if is_isolated(outage, longest) {
                    lengthen(outage, value.min(longest as f64 / 1e9));
                }
            }
        }
        Parameter::DropAtLimit => {
            if let Some(aqm) = random_drop(forward) {
                aqm.probability_at_limit = share(value).max(aqm.probability_at_threshold);
            }
        }
        Parameter::EarlyThreshold => {
            if let Some(aqm) = random_drop(forward) {
                aqm.early_threshold_bytes = four_digits(value as u64).min(aqm.threshold_bytes);
            }
        }
        Parameter::EarlyDrop => {
            if let Some(aqm) = random_drop(forward) {
                aqm.early_probability = (value.min(1.0) * 1e8).round() / 1e8;
            }
        }
        Parameter::CapacityMean => {
            forward.capacity.get_or_insert_default().mean = share(value).clamp(0.01, 0.999);
        }
        Parameter::CapacitySpread => {
            forward.capacity.get_or_insert_default().spread = share(value);
        }
        Parameter::CapacityCorrelation => {
            let ns = (value * 1e9).clamp(
                *CAPACITY_CORRELATION_NS.start() as f64,
                *CAPACITY_CORRELATION_NS.end() as f64,
            );
            forward.capacity.get_or_insert_default().correlation_ns = four_digits(ns as u64);
        }
        Parameter::AccessBurst
        | Parameter::AccessDelay
        | Parameter::AccessLogOn
        | Parameter::AccessInterval
        | Parameter::AccessGain
        | Parameter::AccessDecay => {
            if let Some(access) = &mut back.access {
                set_access(access, parameter, value);
            }
        }
    }
}

/// Sets a parameter of capacity on demand, within the range of the schema.
fn set_access(access: &mut pb::Access, parameter: Parameter, value: f64) {
    let ns = |s: f64| four_digits((s * 1e9).clamp(1.0, LONGEST_ACCESS_NS) as u64);
    match parameter {
        Parameter::AccessBurst => {
            access.burst_bytes = value.round().clamp(1.0, f64::from(u16::MAX)) as u32;
        }
        Parameter::AccessDelay => {
            let before = access.request_delay_ns + access.plan_delay_ns;
            let share = access.request_delay_ns as f64 / before.max(1) as f64;
            access.request_delay_ns = ns(value * share);
            access.plan_delay_ns = ns(value * (1.0 - share));
        }
        Parameter::AccessInterval => access.request_interval_ns = ns(value),
        Parameter::AccessLogOn => {
            if let Some(log_on) = &mut access.log_on {
                log_on.delay_ns = ns(value);
            }
        }
        Parameter::AccessGain => {
            if let Some(rate) = &mut access.rate_requests {
                rate.gain = (value.min(MOST_GAIN) * 1e3).round() / 1e3;
            }
        }
        Parameter::AccessDecay => {
            if let Some(rate) = &mut access.rate_requests {
                rate.decay_ns = ns(value);
            }
        }
        _ => {}
    }
}

/// The random drop of a pipe, if it has one.
pub(super) fn random_drop(pipe: &mut pb::Pipe) -> Option<&mut pb::RandomDrop> {
    pipe.queue.as_mut()?.random_drop.as_mut()
}

/// Changes the duration of an outage, and its interval in proportion.
fn lengthen(outage: &mut pb::Outage, duration_s: f64) {
    let share = outage.interval_ns as f64 / outage.duration_ns.max(1) as f64;
    // The least duration and interval of a profile.
    let least = *OUTAGE_DURATION_NS.start() as f64;
    let least = least.max(*OUTAGE_INTERVAL_NS.start() as f64 / share);
    let duration = (duration_s * 1e9).max(least);
    let interval = (duration * share).min(*OUTAGE_INTERVAL_NS.end() as f64);
    outage.duration_ns = four_digits(duration.min(*OUTAGE_DURATION_NS.end() as f64) as u64);
    outage.interval_ns = four_digits(interval as u64);
}

/// A beta distribution has less than the spread of a share that is zero or one.
fn limit_spread(profile: &mut pb::Profile) {
    let capacity = profile.forward_pipe.as_mut().and_then(|p| p.capacity.as_mut());
    if let Some(c) = capacity {
        let widest = WIDEST * (c.mean * (1.0 - c.mean)).sqrt();
        c.spread = c.spread.min((widest * 1e4).floor() / 1e4).min(0.5);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_outages_within_one_interval_of_probes_are_isolated_losses() {
        let text = "name = \"lab\"\n[forward]\nrate = \"1 Mbit/s\"\nqueue.limit = \"1 MB\"\n\
                    delay.base = \"1 ms\"\n[[forward.outages]]\ninterval = \"1 h\"\nduration = \
                    \"900 ms\"\nlaw = \"fixed\"\n[[forward.outages]]\ninterval = \"100 s\"\nduration \
                    = \"100 ms\"\nlaw = \"fixed\"\n[return]\nrate = \"1 Mbit/s\"\nqueue.limit = \
                    \"1 MB\"\ndelay.base = \"1 ms\"\n[provenance]\nsource = \"a log\"\ninterval = \
                    \"200 ms\"";
        let profile = Profile::from_toml(text).unwrap();
        let parameters = [(Parameter::IsolatedDuration, 0.003)];
        let scale = |s: f64| Parameter::IsolatedDuration.scale(s);
        let outages = |s: f64| {
            let changed = apply(&profile, &parameters, &[scale(s)]).unwrap().into_proto();
            changed.forward_pipe.unwrap().outages.iter().map(|o| o.duration_ns).collect::<Vec<_>>()
        };
        assert_eq!(outages(0.001), [900_000_000, 1_000_000]);
        assert_eq!(outages(5.0), [900_000_000, 200_000_000]);
        assert_eq!(of(&profile, &[])[0], (Parameter::IsolatedDuration, 0.1 / 30.0));
    }
}
