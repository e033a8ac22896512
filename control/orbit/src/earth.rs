// SPDX-License-Identifier: Apache-2.0
//! Positions on and above the Earth.
//!
//! SGP4 gives positions in TEME (true equator, mean equinox). A rotation by Greenwich mean sidereal
//! time (IAU 1982) turns TEME into the pseudo Earth-fixed frame (D. Vallado, P. Crawford, R. Hujsak,
//! T. Kelso, "Revisiting Spacetrack Report #3", AIAA 2006-6753, appendix C). Two corrections are
//! omitted: polar motion (below 20 m on the ground) and UT1-UTC, which UTC keeps below 0.9 s (below
//! 420 m on the ground). Element sets are less accurate: 1 km at their epoch, and 1 to 3 km more per
//! day in a low orbit. Ground positions are geodetic on WGS 84.

use map_3d::{Ellipsoid, ecef2aer, eci2ecef, geodetic2ecef};
use sgp4::chrono::DateTime;
use sgp4::{iau_epoch_to_sidereal_time, julian_years_since_j2000};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// In m/s.
pub const SPEED_OF_LIGHT: f64 = 299_792_458.0;
const LATITUDE: RangeInclusive<f64> = -90.0..=90.0;
/// East of Greenwich; west is negative, or above 180.
const LONGITUDE: RangeInclusive<f64> = -180.0..=360.0;
/// From below the Dead Sea to above any aircraft.
const ALTITUDE: RangeInclusive<f64> = -1_000.0..=30_000.0;

/// An instant with the orientation of the Earth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Instant {
    pub unix_ns: i64,
    /// Greenwich mean sidereal time, in radians.
    sidereal: f64,
}

impl Instant {
    #[must_use]
    pub fn new(unix_ns: i64) -> Self {
        let utc = DateTime::from_timestamp_nanos(unix_ns).naive_utc();
        Self { unix_ns, sidereal: iau_epoch_to_sidereal_time(julian_years_since_j2000(&utc)) }
    }

    /// From TEME, in km, to the Earth-fixed frame, in m.
    pub(crate) fn earth_fixed(&self, teme: [f64; 3]) -> [f64; 3] {
        let [x, y, z] = teme.map(|km| 1e3 * km);
        let (x, y, z) = eci2ecef(self.sidereal, x, y, z);
        [x, y, z]
    }
}

/// A position on the ground.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Site {
    pub latitude_deg: f64,
    pub longitude_deg: f64,
    /// Above the ellipsoid.
    pub altitude_m: f64,
}

/// A satellite as a site sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Above the horizon, without refraction.
    pub elevation_deg: f64,
    pub range_m: f64,
}

/// A text that is no position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiteError {
    #[error(
        "{given:?} is no position: write LAT,LON or LAT,LON,ALT in degrees and metres, such as \
         51.5,-0.1,30"
    )]
    Form { given: String },
    #[error("the {what} {given} is outside of {least} to {most} {unit}: {remedy}")]
    Range {
        what: &'static str,
        given: String,
        least: String,
        most: String,
        unit: &'static str,
        remedy: &'static str,
    },
}

impl Site {
    /// The site with degrees and metres.
    ///
    /// # Errors
    /// If a value is out of range.
    pub fn new(latitude_deg: f64, longitude_deg: f64, altitude_m: f64) -> Result<Self, SiteError> {
        let order = "write the latitude first, then the longitude";
        for (what, value, range, unit, remedy) in [
            ("latitude", latitude_deg, LATITUDE, "degrees", order),
            ("longitude", longitude_deg, LONGITUDE, "degrees", order),
            ("altitude", altitude_m, ALTITUDE, "m", "write metres above the ellipsoid"),
        ] {
            if !range.contains(&value) {
                let [given, least, most] =
                    [value, *range.start(), *range.end()].map(|n| n.to_string());
                return Err(SiteError::Range { what, given, least, most, unit, remedy });
            }
        }
        Ok(Self { latitude_deg, longitude_deg, altitude_m })
    }

    pub(crate) fn earth_fixed(&self) -> [f64; 3] {
        let (latitude, longitude) =
            (self.latitude_deg.to_radians(), self.longitude_deg.to_radians());
        let (x, y, z) = geodetic2ecef(latitude, longitude, self.altitude_m, Ellipsoid::WGS84);
        [x, y, z]
    }

    /// Looks at a position of the Earth-fixed frame.
    pub(crate) fn look(&self, at: [f64; 3]) -> Look {
        let [x, y, z] = at;
        let (latitude, longitude) =
            (self.latitude_deg.to_radians(), self.longitude_deg.to_radians());
        let (_, elevation, range_m) =
            ecef2aer(x, y, z, latitude, longitude, self.altitude_m, Ellipsoid::WGS84);
        Look { elevation_deg: elevation.to_degrees(), range_m }
    }
}

impl FromStr for Site {
    type Err = SiteError;

    fn from_str(text: &str) -> Result<Self, SiteError> {
        let form = || SiteError::Form { given: text.chars().take(60).collect() };
        let numbers: Result<Vec<f64>, _> =
            text.split(',').map(|field| field.trim().parse::<f64>()).collect();
        match *numbers.map_err(|_| form())?.as_slice() {
            [latitude, longitude] => Self::new(latitude, longitude, 0.0),
            [latitude, longitude, altitude] => Self::new(latitude, longitude, altitude),
            _ => Err(form()),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.latitude_deg, self.longitude_deg)?;
        match self.altitude_m {
            0.0 => Ok(()),
            altitude => write!(f, ",{altitude}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn sidereal_time_matches_published_example() {
        // Vallado, "Fundamentals of Astrodynamics and Applications", example 3-5: 20 August 1992,
        // 12:14 UT1, GMST 152.578 787 810 degrees.
        let instant = Instant::new(714_312_840_000_000_000);
        assert!((instant.sidereal.to_degrees() - 152.578_787_810).abs() < 1e-6, "{instant:?}");
    }

    #[test]
    fn teme_to_earth_fixed_is_within_published_omissions() {
        // The example of AIAA 2006-6753, appendix C: 6 April 2004, 07:51:28.386009 UTC. The
        // difference is the UT1-UTC of -0.44 s of that day and the polar motion.
        let instant = Instant::new(1_081_237_888_386_009_000);
        let fixed = instant.earth_fixed([5_094.180_162_10, 6_127.644_659_50, 6_380.344_532_70]);
        let published = [-1_033_479.383_0, 7_901_295.275_4, 6_380_356.595_8];
        let squares = fixed.iter().zip(published).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
        assert!(squares.sqrt() < 300.0, "{}", squares.sqrt());
    }

    #[test]
    fn site_outside_range_is_refused_with_its_limit() {
        for (text, part) in [
            ("", "is no position"),
            ("51.5", "LAT,LON"),
            ("51.5;3", "LAT,LON"),
            ("1,2,3,4", "LAT,LON"),
            ("91,0", "latitude 91 is outside of -90 to 90"),
            ("0,361", "longitude 361 is outside of -180 to 360"),
            ("nan,0", "latitude NaN"),
            ("0,inf", "longitude inf"),
            ("0,0,100000", "altitude 100000 is outside of -1000 to 30000 m"),
        ] {
            let error = text.parse::<Site>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let site: Site = " -33.9, 18.4 ,25".parse().unwrap();
        assert_eq!(site.to_string(), "-33.9,18.4,25");
    }
}
