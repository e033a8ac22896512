// SPDX-License-Identifier: Apache-2.0
//! Synthetic satellites on circular orbits, and a query for them.

use orbit::elements::{Satellite, read};
use orbit::{Query, Reconfigure, Selection, Site, Track};

pub const S: u64 = 1_000_000_000;
/// The epoch of all elements, and the start of the queries: 1 January 2026, 12:00 UTC.
pub const EPOCH_NS: i64 = 1_767_268_800_000_000_000;
/// Greenwich mean sidereal time then, in degrees: 280.460 618 + 360.985 647 366 d after J2000,
/// d = 9497.
pub const SIDEREAL_DEG: f64 = 281.155;
pub const EARTH_KM: f64 = 6_378.137;
pub const GEO_KM: f64 = 35_786.0;

/// A circular orbit.
#[derive(Clone, Copy, Debug)]
pub struct Circle {
    pub height_km: f64,
    pub inclination: f64,
    /// Of the ascending node at the epoch, east of Greenwich.
    pub node: f64,
    /// From the node to the satellite at the epoch.
    pub anomaly: f64,
}

impl Circle {
    pub fn equatorial(height_km: f64, longitude: f64) -> Self {
        Self { height_km, inclination: 0.0, node: longitude, anomaly: 0.0 }
    }

    pub fn tle(&self, name: &str, id: u32) -> String {
        let node = (self.node + SIDEREAL_DEG).rem_euclid(360.0);
        let anomaly = self.anomaly.rem_euclid(360.0);
        let axis = EARTH_KM + self.height_km;
        let motion = 86_400.0 / std::f64::consts::TAU * (398_600.8 / axis.powi(3)).sqrt();
        let one = format!("1 {id:05}U 26001A   26001.50000000  .00000000  00000-0  00000-0 0  999");
        let two = format!(
            "2 {id:05} {:8.4} {node:8.4} 0000001   0.0000 {anomaly:8.4} {motion:11.8}    0",
            self.inclination
        );
        format!("{name}\n{one}{}\n{two}{}\n", checksum(&one), checksum(&two))
    }
}

pub fn checksum(line: &str) -> u32 {
    line.chars().map(|c| if c == '-' { 1 } else { c.to_digit(10).unwrap_or(0) }).sum::<u32>() % 10
}

pub fn satellites(circles: &[Circle]) -> Vec<Satellite> {
    let tle = |(i, circle): (usize, &Circle)| circle.tle(&format!("SAT-{i}"), i as u32 + 1);
    let text: String = circles.iter().enumerate().map(tle).collect();
    read("sky.tle", text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// From the equator at Greenwich, back to it.
pub fn query(minutes: u64) -> Query {
    let ground: Site = "0,0".parse().unwrap();
    Query {
        ground,
        gateways: vec![ground],
        start_ns: EPOCH_NS,
        duration_ns: 60 * S * minutes,
        step_ns: S,
        mask_deg: 25.0,
        gateway_mask_deg: 25.0,
        selection: Selection::Highest,
        reconfigure: Some(Reconfigure { period_ns: 15 * S, phase_ns: 12 * S }),
        processing_ns: 0,
    }
}

pub fn follow(query: &Query, circles: &[Circle]) -> Track {
    let track = Track::follow(query, &satellites(circles)).unwrap();
    let mut end = 0;
    for interval in &track.intervals {
        assert_eq!(interval.from_ns, end, "a gap between intervals");
        assert!(interval.to_ns > interval.from_ns);
        let samples = interval.link.iter().flat_map(|link| &link.samples);
        let mut times: Vec<_> = samples.map(|sample| sample.at_ns).collect();
        assert!(times.is_sorted() && times.first().is_none_or(|first| *first == end), "{times:?}");
        times.dedup();
        end = interval.to_ns;
        assert!(times.last().is_none_or(|last| *last <= end));
    }
    assert_eq!(end, query.duration_ns);
    track
}
