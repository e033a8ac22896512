// SPDX-License-Identifier: Apache-2.0
//! Rates that vary, and periodic reconfiguration.

use std::num::NonZeroU64;

use emu::access::{AccessPlan, Contention, LogOn, OthersPlan, RateRequests};
use emu::episode::boundary::BoundaryPlan;
use emu::held::{Clock, Grid, HeldPlan, Hold, Values};
use emu::shaper::{Opportunities, RatePlan, RateTrace, VaryingPlan};
use emu::units::{BitRate, Nanos, Probability};
use proto::linkemu::v1 as model;
use statrs::distribution::{Beta, ContinuousCDF};

use crate::law;

const DAY: Nanos = Nanos::from_secs(24 * 3600);

/// Probabilities of a table of quantiles: every 2⁻⁸.
const GAPS: u32 = 256;

pub(super) fn rate(p: &model::Pipe) -> RatePlan {
    if let Some(t) = &p.rate_trace {
        if let Some(it) = &t.opportunities {
            // The checks exclude larger numbers.
            let runs = profile::opportunity_runs(&it.runs);
            let runs = runs.map(|(steps, count)| (steps as u32, count as u32));
            let step = Nanos(t.step_ns);
            return RatePlan::Opportunities(Opportunities::new(step, it.size_bytes, runs));
        }
        if t.begin_ns > 0 {
            return rates_from(t);
        }
        return RatePlan::Trace(RateTrace::new(Nanos(t.step_ns), &t.rates_bps));
    }
    let shares = [
        p.capacity.as_ref().map(share),
        p.capacity.as_ref().and_then(daily),
        p.reconfiguration.as_ref().and_then(|r| periodic(r, &shares_of(r))),
    ];
    match p.rate_bps.map(NonZeroU64::new) {
        Some(Some(peak)) if let Some(it) = &p.access => RatePlan::Access(access(it, peak)),
        Some(Some(peak)) if shares.iter().any(Option::is_some) => {
            RatePlan::Varying(VaryingPlan { peak, shares })
        }
        Some(rate) => rate.map_or(BitRate::Down, BitRate::PerSec).into(),
        None => BitRate::Unlimited.into(),
    }
}

fn access(a: &model::Access, peak: NonZeroU64) -> AccessPlan {
    let rate = a.rate_requests.as_ref().and_then(|it| {
        let max = NonZeroU64::new(it.max_bps)?;
        let gain = (it.gain * f64::from(1 << 16)).round() as u32;
        let [timeout, drain, decay] = [it.timeout_ns, it.drain_ns, it.decay_ns].map(Nanos);
        Some(RateRequests { max, timeout, gain, drain, decay })
    });
    let log_on = a.log_on.as_ref();
    let contention = a.contention.as_ref();
    let others = a.others.as_ref().and_then(|it| {
        let rate = NonZeroU64::new(it.rate_bps)?;
        let [on, off] = [it.on_ns, it.off_ns].map(Nanos);
        Some(OthersPlan { terminals: it.terminals, rate, on, off })
    });
    AccessPlan {
        peak,
        superframe: Nanos(a.superframe_ns),
        burst: a.burst_bytes,
        packs: !a.padding,
        constant: a.constant,
        free: a.free,
        rate,
        volume: NonZeroU64::new(a.volume_bytes),
        interval: Nanos(a.request_interval_ns),
        request_delay: Nanos(a.request_delay_ns),
        plan_delay: Nanos(a.plan_delay_ns),
        log_on: log_on.map(|it| LogOn { after: Nanos(it.after_ns), delay: Nanos(it.delay_ns) }),
        contention: contention.map(|it| Contention {
            success: Probability::new((-it.load).exp()),
            backoff: it.backoff,
        }),
        others,
    }
}

/// The share of the rate as a process: the quantiles of a beta distribution.
fn share(c: &model::Capacity) -> HeldPlan {
    // Moments of the beta distribution: a = mean × n and b = (1 − mean) × n, where
    // n = mean × (1 − mean) / spread² − 1.
    let n = c.mean * (1.0 - c.mean) / (c.spread * c.spread) - 1.0;
    let quantiles = match Beta::new(c.mean * n, (1.0 - c.mean) * n) {
        // The ends of the table are quantiles too: the ends of the distribution, zero and one,
        // would make the first and the last gap too wide.
        Ok(beta) => (0..=GAPS)
            .map(|i| f64::from(i).clamp(0.25, f64::from(GAPS) - 0.25) / f64::from(GAPS))
            .map(|p| Probability::new(beta.inverse_cdf(p)).raw())
            .collect(),
        // Without a spread.
        Err(_) => [Probability::new(c.mean).raw()].into(),
    };
    HeldPlan {
        hold: Hold::Exponential(Nanos(c.correlation_ns)),
        values: Values::Quantiles(quantiles),
    }
}

fn daily(c: &model::Capacity) -> Option<HeldPlan> {
    let spans = u64::try_from(c.daily.len()).ok().filter(|n| *n > 0)?;
    let grid =
        Grid { period: Nanos(DAY.0 / spans), phase: Nanos::ZERO, clock: Clock::Utc(Nanos::ZERO) };
    let values = c.daily.iter().map(|f| Probability::new(*f).raw()).collect();
    Some(HeldPlan { hold: Hold::Period(grid), values: Values::Listed(values) })
}

fn grid(r: &model::Reconfiguration) -> Grid {
    let clock = match r.clock() {
        model::PeriodClock::Start => Clock::Start,
        // The dataplane sets the UTC of its clock (`Plan::align`).
        _ => Clock::Utc(Nanos::ZERO),
    };
    Grid { period: Nanos(r.period_ns), phase: Nanos(r.phase_ns), clock }
}

fn shares_of(r: &model::Reconfiguration) -> Vec<u64> {
    r.shares.iter().map(|s| Probability::new(*s).raw()).collect()
}

/// A process that takes one of the values in each period; none without values.
fn periodic(r: &model::Reconfiguration, values: &[u64]) -> Option<HeldPlan> {
    if values.is_empty() {
        return None;
    }
    let values = match r.values() {
        model::ValueOrder::Listed => Values::Listed(values.into()),
        _ => Values::Quantiles(values.into()),
    };
    Some(HeldPlan { hold: Hold::Period(grid(r)), values })
}

/// The rates of a trace that begins at an instant, as shares of the highest one.
fn rates_from(t: &model::RateTrace) -> RatePlan {
    let Some(peak) = t.rates_bps.iter().copied().max().and_then(NonZeroU64::new) else {
        return BitRate::Down.into();
    };
    // The rate is the peak times the share, rounded down.
    let one = u128::from(Probability::ONE.raw());
    let share = |rate: &u64| (u128::from(*rate) * one).div_ceil(u128::from(peak.get())) as u64;
    let shares: Vec<u64> = t.rates_bps.iter().map(share).collect();
    RatePlan::Varying(VaryingPlan {
        peak,
        shares: [steps(t.step_ns, t.begin_ns, &shares), None, None],
    })
}

/// Values in turn, each for a step, from this time of UTC on, or from the start of the processes on;
/// none without values.
fn steps(step_ns: u64, begin_ns: u64, values: &[u64]) -> Option<HeldPlan> {
    let (step, count) = (NonZeroU64::new(step_ns)?, NonZeroU64::new(values.len() as u64)?);
    if begin_ns == 0 {
        return Some(HeldPlan::steps(Nanos(step_ns), values.iter().copied()));
    }
    let phase = Nanos(begin_ns % step);
    let grid = Grid { period: Nanos(step_ns), phase, clock: Clock::Utc(Nanos::ZERO) };
    // Listed values go by the number of the period since 1970: the first one is put at that of
    // `begin`.
    let first = begin_ns / step + u64::from(phase.0 > 0);
    let mut listed = values.to_vec();
    listed.rotate_right((first % count) as usize);
    Some(HeldPlan { hold: Hold::Period(grid), values: Values::Listed(listed.into()) })
}

/// The extra delay of each step of a trace.
pub(super) fn delay_trace(t: &model::PathTrace) -> Option<HeldPlan> {
    steps(t.step_ns, t.begin_ns, &t.delays_ns)
}

/// The probability of loss in each step of a trace.
pub(super) fn loss_trace(t: &model::PathTrace) -> Option<HeldPlan> {
    let losses: Vec<u64> = t.losses.iter().map(|p| Probability::new(*p).raw()).collect();
    steps(t.step_ns, t.begin_ns, &losses)
}

/// The extra delay of each period.
pub(super) fn level(r: &model::Reconfiguration) -> Option<HeldPlan> {
    periodic(r, &r.delays_ns)
}

/// The outages at the boundaries.
pub(super) fn boundary(r: &model::Reconfiguration) -> Option<BoundaryPlan> {
    (r.outage_probability > 0.0 && r.outage_ns > 0).then(|| BoundaryPlan {
        grid: grid(r),
        probability: Probability::new(r.outage_probability),
        duration: Nanos(r.outage_ns),
        law: law(r.outage_law()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu::units::Instant;

    #[test]
    fn trace_that_begins_at_an_instant_has_its_steps_from_there() {
        for (begin_ns, step_ns) in [(7_000, 10), (7_003, 10), (69_999_999_990, 1_000)] {
            let plan = steps(step_ns, begin_ns, &[1, 2, 3, 4, 5, 6, 7]).unwrap();
            let Hold::Period(grid) = plan.hold else { panic!("{plan:?}") };
            for (k, value) in (0..20).map(|k| (k, k % 7 + 1)) {
                let at = |ns: u64| {
                    let (number, _) = grid.period_at(Instant(ns), Instant::ZERO);
                    plan.values.table()[(number % 7) as usize]
                };
                assert_eq!(at(begin_ns + k * step_ns), value, "{begin_ns}, step {k}");
                assert_eq!(at(begin_ns + (k + 1) * step_ns - 1), value, "{begin_ns}, step {k}");
            }
        }
    }

    #[test]
    fn rates_that_begin_at_an_instant_are_exact() {
        let rates_bps = vec![12_345_678, 0, 400_000_000_000, 1_000];
        let trace = model::RateTrace { step_ns: 10, begin_ns: 40, rates_bps, ..Default::default() };
        let RatePlan::Varying(plan) = rates_from(&trace) else { panic!("a trace") };
        let rate = |share: &u64| (u128::from(plan.peak.get()) * u128::from(*share)) >> 32;
        let table = plan.shares[0].as_ref().unwrap().values.table();
        let off: Vec<i128> = table
            .iter()
            .zip(&trace.rates_bps)
            .map(|(share, rate_bps)| rate(share) as i128 - i128::from(*rate_bps))
            .collect();
        // The resolution of a share is 2⁻³² of the peak.
        assert!(off.iter().all(|off| (0..=93).contains(off)), "{off:?}");
        let down = model::RateTrace { rates_bps: vec![0], ..trace };
        assert_eq!(rates_from(&down), BitRate::Down.into());
    }

    #[test]
    fn shares_have_mean_and_spread_of_capacity() {
        for (mean, spread) in [(0.85, 0.12), (0.5, 0.1), (0.3, 0.05), (0.9, 0.0)] {
            let capacity =
                model::Capacity { mean, spread, correlation_ns: 5_000, ..Default::default() };
            let plan = share(&capacity);
            assert_eq!(plan.hold, Hold::Exponential(Nanos(5_000)));
            let table = plan.values.table();
            // Moments of the piecewise linear quantile function.
            let share = |v: u64| v as f64 / Probability::ONE.raw() as f64;
            let gaps = table.windows(2).map(|w| (share(w[0]), share(w[1])));
            let n = (table.len() - 1).max(1) as f64;
            let (mut m, mut s) = (0.0, 0.0);
            for (a, b) in gaps {
                m += (a + b) / 2.0 / n;
                s += (a * a + a * b + b * b) / 3.0 / n;
            }
            if table.len() == 1 {
                (m, s) = (share(table[0]), share(table[0]).powi(2));
            }
            assert!((m - mean).abs() < 2e-3, "mean {m} of {mean}");
            let sd = (s - m * m).max(0.0).sqrt();
            assert!((sd - spread).abs() < 3e-3, "spread {sd} of {spread}");
        }
    }

    #[test]
    fn days_and_periods_are_compiled() {
        let reconfiguration = model::Reconfiguration {
            period_ns: 15_000_000_000,
            phase_ns: 12_000_000_000,
            clock: model::PeriodClock::Utc as i32,
            values: model::ValueOrder::Listed as i32,
            delays_ns: vec![0, 3_000_000],
            shares: vec![1.0, 0.5],
            outage_probability: 0.25,
            outage_ns: 80_000_000,
            outage_law: model::DurationLaw::Fixed as i32,
        };
        let capacity = model::Capacity {
            mean: 0.8,
            spread: 0.1,
            correlation_ns: 1_000_000_000,
            daily: vec![1.0, 0.75],
        };
        let pipe = model::Pipe {
            rate_bps: Some(8_000),
            capacity: Some(capacity),
            reconfiguration: Some(reconfiguration.clone()),
            ..Default::default()
        };
        let RatePlan::Varying(plan) = rate(&pipe) else { panic!("constant") };
        assert_eq!(plan.peak.get(), 8_000);
        let [_, day, period] = plan.shares.map(|s| s.expect("there"));
        let half_day = Nanos(DAY.0 / 2);
        assert_eq!((day.interval(), day.values.table()[1]), (half_day, 3 << 30));
        let (clock, phase) = (Clock::Utc(Nanos::ZERO), Nanos::from_secs(12));
        let grid = Grid { period: Nanos::from_secs(15), phase, clock };
        assert_eq!(period.hold, Hold::Period(grid));
        assert_eq!(period.values, Values::Listed([1 << 32, 1 << 31].into()));
        let level = level(&reconfiguration).expect("there are delays");
        assert_eq!(level.values, Values::Listed([0, 3_000_000].into()));
        let boundary = boundary(&reconfiguration).expect("there are outages");
        assert_eq!((boundary.grid, boundary.duration.0), (grid, 80_000_000));
        // Without a rate there is nothing to vary.
        let unlimited = model::Pipe { rate_bps: None, ..pipe.clone() };
        assert_eq!(rate(&unlimited), BitRate::Unlimited.into());
        let down = model::Pipe { rate_bps: Some(0), ..pipe };
        assert_eq!(rate(&down), BitRate::Down.into());
    }
}
