// SPDX-License-Identifier: Apache-2.0
//! Known distances and delays.

use crate::sky::{Circle, EARTH_KM, GEO_KM, S, follow, query};
use orbit::{Sample, Track};

fn samples(track: &Track) -> Vec<Sample> {
    track.samples().map(|(_, sample)| *sample).collect()
}

/// Slant range at an elevation from a sphere.
fn slant_km(elevation_deg: f64, height_km: f64) -> f64 {
    let sine = EARTH_KM * elevation_deg.to_radians().sin();
    (sine.powi(2) + height_km.powi(2) + 2.0 * EARTH_KM * height_km).sqrt() - sine
}

#[test]
fn geostationary_satellite_overhead_has_twice_its_height() {
    let track = follow(&query(60), &[Circle::equatorial(GEO_KM, 0.0)]);
    assert_eq!((track.intervals.len(), track.unserved_ns()), (1, 0));
    for sample in samples(&track) {
        // 2 · 35,786 km at the speed of light.
        assert!((sample.delay_ns as f64 / 1e6 - 238.74).abs() < 0.03, "{sample:?}");
        assert!(sample.elevation_deg > 89.7, "{sample:?}");
    }
}

#[test]
fn geostationary_satellite_at_horizon_is_41_679_km_away() {
    let mut query = query(10);
    (query.mask_deg, query.gateway_mask_deg) = (0.0, 0.0);
    let longitude = (EARTH_KM / (EARTH_KM + GEO_KM)).acos().to_degrees() - 0.1;
    let track = follow(&query, &[Circle::equatorial(GEO_KM, longitude)]);
    let samples = samples(&track);
    assert!(!samples.is_empty());
    for sample in samples {
        assert!(sample.elevation_deg.abs() < 0.3, "{sample:?}");
        assert!((sample.range_m / 1e3 - 41_679.0).abs() < 30.0, "{sample:?}");
    }
}

#[test]
fn medium_orbit_overhead_is_at_its_height() {
    let track = follow(&query(10), &[Circle::equatorial(8_062.0, 0.0)]);
    let least = samples(&track).iter().map(|sample| sample.range_m).fold(f64::MAX, f64::min);
    assert!((least / 1e3 - 8_062.0).abs() < 3.0, "{least}");
    let delays = samples(&track).into_iter().map(|sample| sample.delay_ns).min().unwrap();
    assert!((delays as f64 / 1e6 - 53.78).abs() < 0.02, "{delays}");
}

#[test]
fn low_orbit_rises_and_sets_at_the_mask_with_the_spherical_range() {
    // It passes within the first hour and a half.
    let track = follow(&query(95), &[Circle::equatorial(550.0, -60.0)]);
    let link = track.intervals.iter().find_map(|interval| interval.link.as_ref()).unwrap();
    // An oblate Earth pulls more at the equator: at the same period the orbit is lower.
    let height = link.samples.iter().map(|sample| sample.range_m).fold(f64::MAX, f64::min) / 1e3;
    assert!((height - 550.0).abs() < 5.0, "{height}");
    for sample in [link.samples.first(), link.samples.last()].into_iter().flatten() {
        assert!((sample.elevation_deg - 25.0).abs() < 0.001, "{sample:?}");
        assert!((sample.range_m / 1e3 - slant_km(25.0, height)).abs() < 0.5, "{sample:?}");
    }
    for sample in &link.samples {
        let expected = slant_km(sample.elevation_deg, height);
        assert!((sample.range_m / 1e3 - expected).abs() < 0.5, "{sample:?} {expected}");
    }
    let length_s = (link.samples.last().unwrap().at_ns - link.samples[0].at_ns) as f64 / 1e9;
    // Twice the central angle of 8.45 degrees, at 0.0586 degrees per second relative to the
    // ground.
    assert!((length_s - 275.0).abs() < 30.0, "{length_s}");
}

#[test]
fn station_pass_stays_within_its_heights_and_horizon() {
    let mut query = query(24 * 60);
    query.ground = "51.5,-0.1,30".parse().unwrap();
    query.gateways = vec![query.ground];
    (query.mask_deg, query.gateway_mask_deg, query.step_ns) = (0.0, 0.0, 10 * S);
    let station = Circle { height_km: 420.0, inclination: 51.64, node: 30.0, anomaly: 0.0 };
    let track = follow(&query, &[station]);
    let passes: Vec<_> = track.intervals.iter().filter(|it| it.link.is_some()).collect();
    assert!((4..=9).contains(&passes.len()), "{}", passes.len());
    for sample in samples(&track) {
        assert!((395e3..2_420e3).contains(&sample.range_m), "{sample:?}");
    }
    for pass in passes {
        assert!(pass.to_ns - pass.from_ns < 11 * 60 * S, "{pass:?}");
    }
}

#[test]
fn processing_and_distant_gateway_lengthen_the_delay() {
    let circles = [Circle::equatorial(GEO_KM, 0.0)];
    let mut query = query(1);
    let overhead = samples(&follow(&query, &circles))[0];
    query.processing_ns = 5_000_000;
    assert_eq!(samples(&follow(&query, &circles))[0].delay_ns, overhead.delay_ns + 5_000_000);
    query.processing_ns = 0;
    // The nearest of those that see the satellite.
    query.gateways = ["0,-120", "0,40", "10,20", "0,30"].map(|site| site.parse().unwrap()).into();
    let track = follow(&query, &circles);
    let link = track.intervals[0].link.as_ref().unwrap();
    assert_eq!(link.gateway, 2);
    let sample = link.samples[0];
    assert!(sample.gateway_range_m > sample.range_m && sample.delay_ns > overhead.delay_ns);
    let expected = (sample.range_m + sample.gateway_range_m) / 0.299_792_458;
    assert!((sample.delay_ns as f64 - expected).abs() <= 1.0, "{sample:?}");
}
