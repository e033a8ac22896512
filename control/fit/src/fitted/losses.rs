// SPDX-License-Identifier: Apache-2.0
//! Loss estimates as the outages and the fade of a pipe.

use super::notes::{
    LEAST_INTERVAL, LIKELIHOOD, LONGEST_EPISODE, LONGEST_INTERVAL, Notes, STATED, rounded, within,
};
use super::options::Direction;
use crate::interval::Interval;
use crate::loss::{FadeEstimate, Losses};
use profile::format_duration;
use proto::linkemu::v1 as pb;

/// The outage classes of one pipe, and its fade.
pub(super) fn outages(
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
        Some(f) => f.clear_interval(interval, interval.value * f.mean_multiplier()),
    };
    let place = losses_in.place();
    let mut add = |interval: Interval, duration: Interval, fixed: bool, stated: bool| {
        let mut interval = clear(interval);
        let mut duration = duration;
        let at = format!("{place}: outages[{}]", classes.len());
        // Outages below the least interval of a profile keep their share of time.
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
        add(isolated.interval, isolated.duration, true, true);
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
