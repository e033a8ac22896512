// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::client::ClientKey;
use crate::units::Direction;

fn cross(rate: u64, frame: u32, arrivals: Arrivals, seed: u64) -> Cross {
    let key =
        StreamKey { seed, client: ClientKey::Default, direction: Direction::Forward, epoch: 0 };
    Cross::new(CrossPlan { rate, frame, arrivals }, key, Instant(1_000))
}

/// The first `n` arrivals, from the start on.
fn instants(mut cross: Cross, n: usize) -> Vec<u64> {
    let next = |_| {
        let at = cross.next().0 - 1_000;
        cross.advance();
        at
    };
    (0..n).map(next).collect()
}

#[test]
fn constant_arrivals_have_exact_instants() {
    let regular = instants(cross(30_000_000, 1_500, Arrivals::Constant, 1), 1_000);
    assert!(regular.iter().zip(1..).all(|(at, k): (_, u64)| *at == k * 400_000));
    // Of an interval that is no whole number, the fraction is carried.
    let uneven = instants(cross(7_000_000, 1_514, Arrivals::Constant, 1), 100_000);
    for (at, k) in uneven.into_iter().zip(1_u64..) {
        let exact = u128::from(k) * 1_514 * 8 * 1_000_000_000 / 7_000_000;
        assert!(u128::from(at).abs_diff(exact) <= 1, "{k}: {at} {exact}");
    }
}

#[test]
fn poisson_arrivals_have_exponential_intervals() {
    const N: usize = 200_000;
    let at = instants(cross(30_000_000, 1_500, Arrivals::Poisson, 1), N);
    let root = (N as f64).sqrt();
    // The standard deviation of an interval is its mean.
    let mean = at[N - 1] as f64 / N as f64;
    assert!((mean / 400_000.0 - 1.0).abs() < 5.0 / root, "{mean}");
    let intervals: Vec<_> = at.windows(2).map(|w| w[1] - w[0]).collect();
    for means in [0.1, 0.7, 1.0, 3.0, 6.0_f64] {
        let p = (-means).exp();
        let above = intervals.iter().filter(|n| **n as f64 > means * 400_000.0).count();
        let tolerance = 5.0 * (p * (1.0 - p)).sqrt() / root;
        assert!((above as f64 / N as f64 - p).abs() < tolerance, "{means}: {above}");
    }
    // Neighbours are independent: their correlation is within 5 standard errors of zero.
    let deviations: Vec<_> = intervals.iter().map(|n| *n as f64 / 400_000.0 - 1.0).collect();
    let correlation = deviations.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / N as f64;
    assert!(correlation.abs() < 5.0 / root, "{correlation}");
}

#[test]
fn on_off_arrivals_have_mean_rate() {
    // With a shape of 3 the variance is finite: least² × 3 / 4, with the least at 2/3 of the mean.
    let (on, off) = (5e6, 15e6);
    let arrivals =
        Arrivals::OnOff(OnOff { on: Nanos(5_000_000), off: Nanos(15_000_000), shape: 3.0 });
    let plan = cross(10_000_000, 1_000, arrivals, 1);
    assert_eq!(plan.plan.peak(), 40_000_000);
    assert_eq!(plan.plan.interval(), Nanos(200_000));
    const N: usize = 1_000_000;
    let end = instants(plan, N)[N - 1] as f64;
    let rate = N as f64 * 8_000.0 / (end / 1e9);
    // A renewal reward process: the time with arrivals in `end` has this variance.
    let variance = |mean: f64| (mean * 2.0 / 3.0).powi(2) * 0.75;
    let cycle: f64 = on + off;
    let spread = end * (off * off * variance(on) + on * on * variance(off)) / cycle.powi(3);
    let tolerance = 5.0 * spread.sqrt() / (end * on / cycle);
    assert!(tolerance < 0.02, "{tolerance}");
    assert!((rate / 1e7 - 1.0).abs() < tolerance, "{rate}");
}

#[test]
fn periods_have_durations_of_paretos_law() {
    let (on, off) = (Nanos(50_000_000), Nanos(30_000_000));
    let arrivals = Arrivals::OnOff(OnOff { on, off, shape: 1.5 });
    let plan = cross(50_000_000, 64, arrivals, 3);
    let gap = plan.plan.interval().0;
    let at = instants(plan, 4_000_000);
    // The periods without arrivals are all longer than an interval.
    let (mut bursts, mut pauses, mut begin) = (Vec::new(), Vec::new(), at[0]);
    for w in at.windows(2) {
        if w[1] - w[0] > 2 * gap {
            bursts.push(w[0] - begin);
            pauses.push(w[1] - w[0]);
            begin = w[1];
        }
    }
    let n = bursts.len() as f64;
    assert!(n > 400.0, "{n}");
    for (durations, mean) in [(&bursts, on), (&pauses, off)] {
        // The least is a third of the mean; (least / x)^1.5 are longer than x.
        for p in [0.9, 0.5, 0.1_f64] {
            let x = mean.0 as f64 / 3.0 * p.powf(-1.0 / 1.5);
            // A burst seems shorter by up to an interval, and a pause longer.
            let above = |slack: f64| durations.iter().filter(|d| **d as f64 + slack > x).count();
            let tolerance = 5.0 * (p * (1.0 - p) / n).sqrt();
            let [least, most] = [-2.0, 2.0].map(|slack| above(slack * gap as f64) as f64 / n);
            assert!(least < p + tolerance && most > p - tolerance, "{p}: {least} {most}");
        }
    }
}

#[test]
fn process_repeats_for_its_seed() {
    let on_off = OnOff { on: MIN_PERIOD, off: MIN_PERIOD, shape: MIN_SHAPE };
    for arrivals in [Arrivals::Poisson, Arrivals::OnOff(on_off)] {
        let some = |seed| instants(cross(50_000_000, 200, arrivals, seed), 1_000);
        assert_eq!(some(1), some(1));
        assert_ne!(some(1), some(2));
    }
}

#[test]
fn extreme_plans_neither_overflow_nor_stop() {
    let long = OnOff { on: Nanos(u64::MAX / 4), off: Nanos(u64::MAX / 4), shape: 10.0 };
    for arrivals in [Arrivals::Constant, Arrivals::Poisson, Arrivals::OnOff(long)] {
        for (rate, frame) in [(0, 0), (0, u32::MAX), (1, 10_224), (u64::MAX, 64)] {
            let plan = CrossPlan { rate, frame, arrivals };
            let _ = (plan.peak(), plan.interval(), instants(cross(rate, frame, arrivals, 1), 10));
        }
    }
}
