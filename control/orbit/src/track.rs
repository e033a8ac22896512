// SPDX-License-Identifier: Apache-2.0
//! The path of a ground station over time: which satellite and gateway, how far, how long.
//!
//! The path is a bent pipe: ground station, satellite, gateway. A satellite is visible if the ground
//! station and at least one gateway see it above their masks; of several gateways, the one with the
//! shortest path to the satellite is used. A satellite is selected at the start, at each
//! reconfiguration, and as soon as the current satellite or its gateway is no longer visible. The
//! instant of a rise or set is found by bisection.
//!
//! The delay is the length of the path over the speed of light plus the processing time. It is
//! taken between positions at one instant: the movement during the flight of a packet (below
//! 20 m in 3 ms) and the refraction and delay of the atmosphere (below 100 ns) are omitted.

use crate::earth::{Instant, Look, SPEED_OF_LIGHT, Site};
use crate::elements::Satellite;
use crate::horizon::hidden_for_s;
use std::collections::BTreeSet;

const S: u64 = 1_000_000_000;
/// Resolution of a rise or a set, which are whole multiples of it after a whole step.
const FINE_NS: u64 = 1_000_000;
/// Samples of a track.
pub const SAMPLES: u64 = 200_000;
/// Steps of the search for a set, per revolution.
const LOOKAHEAD: u32 = 500;

/// Parameters of a track.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub ground: Site,
    /// At least one.
    pub gateways: Vec<Site>,
    pub start_ns: i64,
    pub duration_ns: u64,
    /// Between two samples.
    pub step_ns: u64,
    /// Least elevation at the ground station.
    pub mask_deg: f64,
    /// Least elevation at a gateway.
    pub gateway_mask_deg: f64,
    pub selection: Selection,
    pub reconfigure: Option<Reconfigure>,
    /// Added to the delay.
    pub processing_ns: u64,
}

/// Periodic selection of a satellite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconfigure {
    pub period_ns: u64,
    /// Of a boundary after the start of a UTC day, and each period before and after.
    pub phase_ns: u64,
}

/// Which of several visible satellites is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The one with the highest elevation at the ground station.
    Highest,
    /// The one that stays visible for the longest time, of those that are equal the highest.
    Longest,
}

/// What happens from the start to the end of a query. The intervals adjoin.
#[derive(Clone, Debug, PartialEq)]
pub struct Track {
    pub intervals: Vec<Interval>,
}

/// Time with one satellite and gateway, or with none.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// After the start, as `to_ns`.
    pub from_ns: u64,
    pub to_ns: u64,
    pub link: Option<Link>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Index of the satellite.
    pub satellite: usize,
    /// Index of the gateway.
    pub gateway: usize,
    /// At least one; ascending by time, from the start of the interval to its end.
    pub samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// After the start.
    pub at_ns: u64,
    pub elevation_deg: f64,
    pub gateway_elevation_deg: f64,
    /// From the ground station to the satellite.
    pub range_m: f64,
    /// From the satellite to the gateway.
    pub gateway_range_m: f64,
    /// One way, with processing.
    pub delay_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrackError {
    #[error(
        "{samples} samples are more than {SAMPLES}: shorten the duration, or use a longer step or \
         time between reconfigurations"
    )]
    Samples { samples: u64 },
    #[error("no gateway: give its position")]
    NoGateway,
}

/// A satellite and a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    satellite: usize,
    gateway: usize,
}

impl Track {
    /// Follows the satellites from the start of a query to its end.
    ///
    /// # Errors
    /// If that needs too many samples.
    pub fn follow(query: &Query, satellites: &[Satellite]) -> Result<Self, TrackError> {
        if query.gateways.is_empty() {
            return Err(TrackError::NoGateway);
        }
        let instants = query.instants()?;
        let mut sky = Sky::new(query, satellites);
        let mut current = sky.select(0);
        let mut intervals = vec![sky.begin(0, current)];
        let (mut before, mut samples) = (0, 0_u64);
        for (at, is_boundary) in instants {
            loop {
                let next = match current {
                    Some(choice) if sky.sample(choice, at).is_none() => {
                        let set = sky.change(choice, before, at, true);
                        (set, sky.select(set))
                    }
                    Some(_) if is_boundary => (at, sky.select(at)),
                    Some(_) => break,
                    None => match sky.select(at) {
                        Some(choice) => (sky.change(choice, before, at, false), Some(choice)),
                        None => break,
                    },
                };
                samples += 1;
                if samples > SAMPLES {
                    return Err(TrackError::Samples { samples });
                }
                if next.1 != current {
                    if let Some(last) = intervals.last_mut() {
                        sky.end(last, next.0);
                    }
                    current = next.1;
                    intervals.push(sky.begin(next.0, current));
                }
                before = next.0;
                if before >= at {
                    break;
                }
            }
            if let Some(last) = intervals.last_mut() {
                sky.end(last, at);
            }
            before = at;
        }
        intervals.retain(|interval| interval.to_ns > interval.from_ns);
        Ok(Self { intervals })
    }

    /// Changes of satellite or gateway without a gap.
    #[must_use]
    pub fn handovers(&self) -> usize {
        let linked = self.intervals.windows(2);
        linked.filter(|pair| pair.iter().all(|interval| interval.link.is_some())).count()
    }

    /// Time without a satellite.
    #[must_use]
    pub fn unserved_ns(&self) -> u64 {
        let gaps = self.intervals.iter().filter(|interval| interval.link.is_none());
        gaps.map(|gap| gap.to_ns - gap.from_ns).sum()
    }

    /// All samples, ascending by time.
    pub fn samples(&self) -> impl Iterator<Item = (&Link, &Sample)> {
        let links = self.intervals.iter().filter_map(|interval| interval.link.as_ref());
        links.flat_map(|link| link.samples.iter().map(move |sample| (link, sample)))
    }
}

impl Query {
    /// When to take samples, and whether a selection takes place then; the start is omitted.
    fn instants(&self) -> Result<Vec<(u64, bool)>, TrackError> {
        let step = self.step_ns.max(1);
        let period = self.reconfigure.map_or(u64::MAX, |it| it.period_ns.max(1));
        let samples = (self.duration_ns / step).saturating_add(self.duration_ns / period);
        if samples > SAMPLES {
            return Err(TrackError::Samples { samples });
        }
        let grid = (1..=self.duration_ns / step).map(|n| n * step).chain([self.duration_ns]);
        let boundaries: BTreeSet<u64> = self.reconfigure.map_or_else(BTreeSet::new, |it| {
            let day = i64::try_from(86_400 * S).unwrap_or(i64::MAX);
            let of_day = self.start_ns.rem_euclid(day).unsigned_abs();
            // From the start to the first boundary after it.
            let period = i128::from(it.period_ns.max(1));
            let first = (i128::from(it.phase_ns) - i128::from(of_day)).rem_euclid(period);
            let first = u64::try_from(first).unwrap_or(0);
            (0..)
                .map(|n| first.saturating_add(it.period_ns.max(1).saturating_mul(n)))
                .take_while(|at| *at < self.duration_ns)
                .filter(|at| *at > 0)
                .collect()
        });
        let all: BTreeSet<u64> = grid.chain(boundaries.iter().copied()).collect();
        Ok(all.into_iter().map(|at| (at, boundaries.contains(&at))).collect())
    }
}

/// The satellites above a ground station.
struct Sky<'a> {
    query: &'a Query,
    satellites: &'a [Satellite],
    ground: [f64; 3],
    /// Each satellite is below the mask until then.
    hidden_until_ns: Vec<u64>,
}

impl<'a> Sky<'a> {
    fn new(query: &'a Query, satellites: &'a [Satellite]) -> Self {
        let ground = query.ground.earth_fixed();
        Self { query, satellites, ground, hidden_until_ns: vec![0; satellites.len()] }
    }

    fn instant(&self, at_ns: u64) -> Instant {
        Instant::new(self.query.start_ns.saturating_add_unsigned(at_ns))
    }

    fn ground_look(&self, position: [f64; 3]) -> Option<Look> {
        let look = self.query.ground.look(position);
        (look.elevation_deg >= self.query.mask_deg).then_some(look)
    }

    fn gateway_look(&self, gateway: usize, position: [f64; 3]) -> Option<Look> {
        let look = self.query.gateways.get(gateway)?.look(position);
        (look.elevation_deg >= self.query.gateway_mask_deg).then_some(look)
    }

    /// The nearest gateway that sees a position.
    fn gateway(&self, position: [f64; 3]) -> Option<usize> {
        let visible = (0..self.query.gateways.len())
            .filter_map(|gateway| Some((gateway, self.gateway_look(gateway, position)?.range_m)));
        visible.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(gateway, _)| gateway)
    }

    /// The path of a choice at an instant; none if it is not visible.
    fn sample(&self, choice: Choice, at_ns: u64) -> Option<Sample> {
        let position = self.satellites.get(choice.satellite)?.position(&self.instant(at_ns))?;
        let ground = self.ground_look(position)?;
        let gateway = self.gateway_look(choice.gateway, position)?;
        let flight_s = (ground.range_m + gateway.range_m) / SPEED_OF_LIGHT;
        let flight_ns = (flight_s * 1e9).round() as u64;
        Some(Sample {
            at_ns,
            elevation_deg: ground.elevation_deg,
            gateway_elevation_deg: gateway.elevation_deg,
            range_m: ground.range_m,
            gateway_range_m: gateway.range_m,
            delay_ns: flight_ns.saturating_add(self.query.processing_ns),
        })
    }

    /// Selects a satellite; of equal ones the first. Instants must not descend.
    fn select(&mut self, at_ns: u64) -> Option<Choice> {
        let instant = self.instant(at_ns);
        let mut best: Option<(Choice, [f64; 2])> = None;
        for (index, satellite) in self.satellites.iter().enumerate() {
            if self.hidden_until_ns.get(index).is_some_and(|until| *until > at_ns) {
                continue;
            }
            let Some(position) = satellite.position(&instant) else { continue };
            let Some(look) = self.ground_look(position) else {
                let mask = self.query.mask_deg;
                let hidden_s = hidden_for_s(satellite, position, self.ground, mask);
                if let Some(until) = self.hidden_until_ns.get_mut(index) {
                    *until = at_ns.saturating_add((hidden_s * 1e9) as u64);
                }
                continue;
            };
            let Some(gateway) = self.gateway(position) else { continue };
            let rank = match self.query.selection {
                Selection::Highest => [look.elevation_deg, 0.0],
                Selection::Longest => [self.visible_for_s(index, at_ns), look.elevation_deg],
            };
            if best.as_ref().is_none_or(|(_, other)| rank > *other) {
                best = Some((Choice { satellite: index, gateway }, rank));
            }
        }
        best.map(|(choice, _)| choice)
    }

    /// Time until a satellite sets, in seconds, for at most one revolution.
    fn visible_for_s(&self, satellite: usize, at_ns: u64) -> f64 {
        let Some(it) = self.satellites.get(satellite) else { return 0.0 };
        let step_s = it.period_s / f64::from(LOOKAHEAD);
        let is_visible = |n: &u32| {
            let after_ns = (f64::from(*n) * step_s * 1e9) as u64;
            let position = it.position(&self.instant(at_ns.saturating_add(after_ns)));
            position.is_some_and(|it| self.ground_look(it).is_some() && self.gateway(it).is_some())
        };
        f64::from((1..=LOOKAHEAD).take_while(is_visible).last().unwrap_or(0)) * step_s
    }

    /// The first instant after `from`, and not after `to`, at which a choice is no longer
    /// (`sets`) or for the first time visible.
    fn change(&self, choice: Choice, from: u64, to: u64, sets: bool) -> u64 {
        let (mut before, mut after) = (from, to);
        while after - before > FINE_NS {
            let half = (after - before) / 2 / FINE_NS * FINE_NS;
            let middle = before + half.max(FINE_NS);
            match self.sample(choice, middle).is_some() == sets {
                true => before = middle,
                false => after = middle,
            }
        }
        after
    }

    fn begin(&self, at_ns: u64, choice: Option<Choice>) -> Interval {
        let link = choice.and_then(|choice| {
            let samples = vec![self.sample(choice, at_ns)?];
            Some(Link { satellite: choice.satellite, gateway: choice.gateway, samples })
        });
        Interval { from_ns: at_ns, to_ns: at_ns, link }
    }

    /// Extends an interval. At a set the last sample before it stays the last one.
    fn end(&self, interval: &mut Interval, at_ns: u64) {
        interval.to_ns = at_ns;
        let Some(link) = &mut interval.link else { return };
        let choice = Choice { satellite: link.satellite, gateway: link.gateway };
        if link.samples.last().is_some_and(|last| last.at_ns < at_ns) {
            // A millisecond before a set.
            let last = self.sample(choice, at_ns);
            let last = last.or_else(|| self.sample(choice, at_ns.saturating_sub(FINE_NS)));
            let start = link.samples.last().map_or(0, |last| last.at_ns);
            link.samples.extend(last.filter(|last| last.at_ns > start));
        }
    }
}
