// SPDX-License-Identifier: Apache-2.0
//! Delay estimates as the delays of both pipes.

use super::notes::{
    LEAST_CORRELATION, LEAST_INTERVAL, LIKELIHOOD, LONGEST_CORRELATION, LONGEST_EPISODE,
    LONGEST_INTERVAL, MOMENTS, Notes, PREDICTED, STATED, nanos, rounded, within,
};
use super::options::{Direction, Options};
use super::{FitError, Measured};
use crate::delay::body;
use crate::delay::estimate::Delays;
use crate::delay::largest::Probing;
use crate::delay::law::{Body, Excursions};
use crate::interval::Interval;
use crate::mmpp::BusyTimes;
use profile::{BODY_CORRELATION_NS, FADE_FACTOR, OUTAGE_DURATION_NS, format_duration};
use proto::linkemu::v1 as pb;

/// Splits the base between the directions and gives one of them what varies.
pub(super) fn split(
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
    let stated = [&mut *forward, &mut *back].map(|pipe| pipe.access.take());
    let (place, varying) = match options.delay_in {
        Direction::Forward => ("forward", &mut *forward),
        Direction::Return | Direction::Both => ("return", &mut *back),
    };
    let [on_forward, on_return] = stated;
    let (access, other) = match options.delay_in {
        Direction::Forward => (on_forward, on_return),
        Direction::Return | Direction::Both => (on_return, on_forward),
    };
    let stated_access = access.is_some();
    let mut delay = pb::Delay::default();
    match &delays.law.body {
        Body::Slot { period, .. } => {
            delay.slot_ns = rounded(*period);
            if let Some(slot) = delays.slot {
                let name = if stated_access { "access.superframe" } else { "delay.slot" };
                notes.time(format!("{place}: {name}"), slot, MOMENTS);
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
            regime: regime(&at, e.regime.as_ref(), law, notes),
        });
    }
    for (probing, largest) in &delays.largest {
        let span = if probing.span == Probing::DAY {
            "a day".into()
        } else {
            format_duration(rounded(probing.span))
        };
        notes.time(format!("largest round trip of {span}"), *largest, PREDICTED);
    }
    notes.test(delays.goodness.as_ref());
    notes.unidentified.extend(delays.unidentified.iter().cloned());
    if delay.slot_ns > 0 || delay.body.is_some() || !delay.excursions.is_empty() {
        notes.unidentified.push(format!(
            "delay: a round trip does not tell which way it varies; all of that is in the {place} \
             direction, as stated or by default"
        ));
    }
    varying.access = access.and_then(|access| superframe(access, &mut delay));
    if other.is_some() || stated_access && varying.access.is_none() {
        notes.unidentified.push(
            "access: a direction in which the round trips show no slots has no superframes; the \
             stated capacity on demand is left out there"
                .into(),
        );
    }
    varying.delay = Some(delay);
    for (pipe, base_ns) in [(forward, forward_ns), (back, base - forward_ns)] {
        if let Some(delay) = &mut pipe.delay {
            delay.base_ns = base_ns;
        }
    }
    Ok(())
}

/// The stated capacity on demand of the direction that varies. Its superframes are the slots of the pings:
/// without slots there is none.
fn superframe(mut access: pb::Access, delay: &mut pb::Delay) -> Option<pb::Access> {
    access.superframe_ns = std::mem::take(&mut delay.slot_ns);
    (access.superframe_ns > 0).then_some(access)
}

/// The regime of a class, with its estimates.
fn regime(
    at: &str,
    found: Option<&BusyTimes>,
    law: &Excursions,
    notes: &mut Notes,
) -> Option<pb::Fade> {
    let (found, regime) = found.zip(law.regime)?;
    notes.time(format!("{at}.regime.interval"), found.interval, LIKELIHOOD);
    notes.time(format!("{at}.regime.duration"), found.duration, LIKELIHOOD);
    // Of episodes that begin; spans between them pass faster by a little more.
    let of_spans = regime.factor / found.factor.value;
    let mut factor = found.factor.map(|f| f * of_spans);
    let most = (law.interval / LEAST_INTERVAL).max(1.0).min(*FADE_FACTOR.end());
    if factor.value > most {
        notes.unidentified.push(format!(
            "{at}.regime.factor: {:.0} was estimated; a profile can say {most:.0} at most",
            factor.value
        ));
        factor.value = most;
    }
    notes.number(format!("{at}.regime.factor"), factor, LIKELIHOOD);
    Some(pb::Fade {
        interval_ns: rounded(regime.interval.clamp(LEAST_INTERVAL, LONGEST_INTERVAL)),
        duration_ns: rounded(regime.duration.clamp(LEAST_INTERVAL, LONGEST_INTERVAL)),
        factor: ((factor.value * 1e3).floor() / 1e3).max(1.0),
    })
}
