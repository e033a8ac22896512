// SPDX-License-Identifier: Apache-2.0
//! Which satellite is used, and when that changes.

use crate::sky::{Circle, EPOCH_NS, S, follow, query, satellites};
use orbit::{Query, Reconfigure, Selection, Track, TrackError};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn ring(count: usize, height_km: f64) -> Vec<Circle> {
    let place = |i| Circle::equatorial(height_km, 360.0 * i as f64 / count as f64);
    (0..count).map(place).collect()
}

fn starts(track: &Track) -> Vec<u64> {
    track.intervals.iter().skip(1).map(|interval| interval.from_ns).collect()
}

#[test]
fn handovers_take_place_at_the_seconds_of_the_reconfiguration() {
    let mut query = query(30);
    query.start_ns = EPOCH_NS + 5 * S as i64;
    query.step_ns = 2 * S;
    let track = follow(&query, &ring(40, 550.0));
    assert!(track.handovers() > 5, "{}", track.handovers());
    assert_eq!(track.unserved_ns(), 0);
    for at in starts(&track) {
        let second = (5 * S + at) % (60 * S);
        assert!([12, 27, 42, 57].map(|n| n * S).contains(&second), "{at}");
    }
}

#[test]
fn without_reconfiguration_a_satellite_is_kept_until_it_sets() {
    let mut query = query(30);
    query.reconfigure = None;
    let track = follow(&query, &ring(80, 550.0));
    let lengths: Vec<_> = track.intervals.iter().map(|it| it.to_ns - it.from_ns).collect();
    // From the zenith to the mask, and the first of them and the last one shorter.
    for length in lengths.iter().skip(1).rev().skip(1) {
        assert!((100 * S..190 * S).contains(length), "{lengths:?}");
    }
    query.selection = Selection::Longest;
    let longest = follow(&query, &ring(80, 550.0));
    assert!(longest.handovers() < track.handovers());
    // The one that has just risen.
    let risen = longest.intervals[2].link.as_ref().unwrap().samples[0];
    assert!(risen.elevation_deg < 45.0, "{risen:?}");
}

#[test]
fn loss_of_visibility_between_samples_is_found_to_the_millisecond() {
    let coarse = Query { step_ns: 60 * S, reconfigure: None, ..query(95) };
    let fine = Query { step_ns: S / 10, reconfigure: None, ..query(95) };
    let [coarse, fine] = [coarse, fine].map(|query| follow(&query, &ring(3, 550.0)));
    assert!(fine.unserved_ns() > 0);
    assert_eq!(coarse.intervals.len(), fine.intervals.len());
    for (a, b) in starts(&coarse).into_iter().zip(starts(&fine)) {
        assert!(a.abs_diff(b) <= 1_000_000 && a % 1_000_000 == 0, "{a} {b}");
    }
}

#[test]
fn satellite_without_a_gateway_is_not_used() {
    let circles = [Circle::equatorial(550.0, 1.0), Circle::equatorial(550.0, -3.0)];
    let mut query = query(1);
    let first = |track: &Track| track.intervals[0].link.as_ref().map(|link| link.satellite);
    assert_eq!(first(&follow(&query, &circles)), Some(0));
    query.gateways = vec!["0,-8".parse().unwrap()];
    assert_eq!(first(&follow(&query, &circles)), Some(1));
    query.gateways = vec!["0,-90".parse().unwrap()];
    assert_eq!(first(&follow(&query, &circles)), None);
    query.gateways.clear();
    let none = Track::follow(&query, &satellites(&circles)).unwrap_err();
    assert_eq!(none, TrackError::NoGateway);
}

#[test]
fn query_with_too_many_samples_is_refused_before_it_is_followed() {
    let day = Query { step_ns: S / 100, ..query(24 * 60) };
    let often = Reconfigure { period_ns: S / 1000, phase_ns: 0 };
    let often = Query { reconfigure: Some(often), ..query(24 * 60) };
    for query in [day, often] {
        let error = Track::follow(&query, &satellites(&ring(1, 550.0))).unwrap_err().to_string();
        assert!(error.contains("shorten the duration"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        cases: 12,
        ..ProptestConfig::default()
    })]

    /// The search skips satellites that cannot have risen: it must not miss one that has.
    #[test]
    fn selected_satellite_is_the_highest_of_all(
        orbits in prop::collection::vec((400.0..36_000.0, 0.0..100.0, 0.0..360.0, 0.0..360.0), 12),
        latitude in -80.0..80.0,
        mask in 0.0..40.0,
    ) {
        let circle = |(height_km, inclination, node, anomaly)| {
            Circle { height_km, inclination, node, anomaly }
        };
        let circles: Vec<_> = orbits.into_iter().map(circle).collect();
        let mut query = query(180);
        query.ground.latitude_deg = latitude;
        query.gateways = vec![query.ground];
        (query.mask_deg, query.gateway_mask_deg, query.step_ns) = (mask, mask, 60 * S);
        query.reconfigure = Some(Reconfigure { period_ns: 60 * S, phase_ns: 0 });
        let elevations = |track: &Track| -> Vec<f64> {
            let grid = (1..180).map(|n| n * 60 * S);
            grid.map(|at| {
                let now = track.samples().filter(|(_, sample)| sample.at_ns == at);
                now.map(|(_, sample)| sample.elevation_deg).fold(-1.0, f64::max)
            }).collect()
        };
        let all = elevations(&follow(&query, &circles));
        let mut best = vec![-1.0_f64; all.len()];
        for circle in circles {
            let one = elevations(&follow(&query, &[circle]));
            best.iter_mut().zip(one).for_each(|(best, one)| *best = best.max(one));
        }
        for (minute, (all, best)) in all.iter().zip(best).enumerate() {
            prop_assert!((all - best).abs() < 1e-9, "minute {}: {all} {best}", minute + 1);
        }
    }
}
