// SPDX-License-Identifier: Apache-2.0
//! When a satellite is next worth a look.
//!
//! A satellite above the mask is within a central angle of the site, which depends on its apogee
//! alone: `acos(R/r cos ε) - ε` for an elevation `ε`, a radius `r` and a site at `R` from the
//! centre. It approaches the site no faster than its angular speed at perigee plus the rotation of
//! the Earth. So a satellite that is far away cannot be visible for some time, and a constellation
//! of thousands costs one propagation each per quarter of an orbit.

use crate::elements::Satellite;

/// Rotation of the Earth in rad/s.
const EARTH_RATE: f64 = 7.292_115e-5;
/// Gravitational parameter of the Earth in m³/s².
const MU: f64 = 3.986_008e14;
/// For geodetic against geocentric zenith (0.2 degrees), and orbits that change with time.
const MARGIN: f64 = 0.02;

/// Time in s during which a satellite, now at `position`, stays below `mask_deg` at `site`.
pub fn hidden_for_s(
    satellite: &Satellite,
    position: [f64; 3],
    site: [f64; 3],
    mask_deg: f64,
) -> f64 {
    let norm = |v: [f64; 3]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
    let dot = position.iter().zip(site).map(|(a, b)| a * b).sum::<f64>();
    let (radius, ground) = (norm(position), norm(site));
    let angle = (dot / (radius * ground)).clamp(-1.0, 1.0).acos();
    let apogee = (1e3 * satellite.apogee_km).max(radius) * (1.0 + MARGIN);
    let mask = mask_deg.to_radians();
    let visible = (ground / apogee * mask.cos()).clamp(-1.0, 1.0).acos() - mask + MARGIN;
    let perigee = (1e3 * satellite.perigee_km).min(radius) * (1.0 - MARGIN);
    let eccentricity = (apogee - perigee) / (apogee + perigee);
    // The speed at perigee by the vis-viva equation.
    let rate = (MU * (1.0 + eccentricity) / perigee.powi(3)).sqrt() + EARTH_RATE;
    ((angle - visible) / rate).max(0.0)
}
