// SPDX-License-Identifier: Apache-2.0
//! Losses of a known law are found again.

use emu::channel::Channel;
use emu::client::ClientKey;
use emu::episode::{DurationLaw, EpisodePlan};
use emu::plan::PipePlan;
use emu::rng::StreamKey;
use emu::units::{Direction, Instant, Nanos};
use fit::baseline::{LossCounts, Probe, Series, Spacing};
use fit::loss::{LossOptions, Runs, estimate};

const OPTIONS: LossOptions = LossOptions { isolated_s: None, directions: 2 };

fn seconds(s: f64) -> Nanos {
    Nanos((s * 1e9) as u64)
}

/// Probes through one channel in each direction, the second 300 ms after the first.
fn probes(plans: &[EpisodePlan], directions: usize, seed: u64, interval: Nanos, n: u64) -> Series {
    let mut channels: Vec<Channel> = [Direction::Forward, Direction::Return][..directions]
        .iter()
        .map(|direction| {
            let key =
                StreamKey { seed, client: ClientKey::Default, direction: *direction, epoch: 0 };
            let plan = PipePlan { outages: plans.to_vec(), ..PipePlan::transparent() };
            Channel::new(&plan.channel(true), key, Instant::ZERO, Instant::ZERO)
        })
        .collect();
    let mut series = Series::default();
    for i in 0..n {
        let sent = Instant((i + 1) * interval.0);
        let mut out = false;
        for (hop, channel) in channels.iter_mut().enumerate() {
            out |= channel.is_out(sent + Nanos::from_millis(300 * hop as u64));
        }
        series.push(Probe { sent_ns: sent.0, rtt_ns: (!out).then_some(600_000_000) });
    }
    series
}

fn exponential(interval: f64, duration: f64) -> EpisodePlan {
    EpisodePlan {
        interval: seconds(interval),
        duration: seconds(duration),
        law: DurationLaw::Exponential,
    }
}

fn fixed(interval: f64, duration: f64) -> EpisodePlan {
    EpisodePlan { law: DurationLaw::Fixed, ..exponential(interval, duration) }
}

#[test]
fn an_outage_lasts_as_long_whatever_the_probing_interval() {
    for law in [exponential(15.0, 0.5), fixed(15.0, 0.5)] {
        let durations = [1.0 / 67.0, 0.2].map(|interval| {
            let n = (86_400.0 / interval) as u64;
            let series = probes(&[law], 1, 5, seconds(interval), n);
            let runs = Runs::of_series(&series, seconds(interval).0, Spacing::Constant);
            let losses = estimate(&runs, LossOptions { directions: 1, ..OPTIONS });
            let class = losses.classes.first().unwrap();
            println!("{:?} probed every {interval:.3} s: {} {class:?}", law.law, losses.name);
            assert_eq!(class.peaked, law.law == DurationLaw::Fixed);
            assert!((class.interval.value / 15.0 - 1.0).abs() < 0.1, "{class:?}");
            assert!((class.duration.value / 0.5 - 1.0).abs() < 0.2, "{class:?}");
            class.duration.value
        });
        assert!((durations[0] / durations[1] - 1.0).abs() < 0.2, "{durations:?}");
    }
}

#[test]
fn sat20_counts_give_their_law() {
    let counts = LossCounts { lost: 604, single: 465, runs: 44, longest: 11 };
    let runs = Runs::of_counts(&counts, 3_024_000, 200_000_000);
    let losses = estimate(&runs, OPTIONS);
    println!("{losses:#?}");
    assert_eq!(losses.name, "one class of outages and isolated losses");
    // SAT20: continuation 0.537 inside bursts is a mean of 0.32 s.
    assert!((losses.classes[0].duration.value - 0.32).abs() < 0.01);
    assert!(losses.goodness.as_ref().is_none_or(|g| g.p_value > 0.05));
}
