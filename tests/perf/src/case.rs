// SPDX-License-Identifier: Apache-2.0
//! The cases: frame sizes, delay, clients and profile.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock};

use compile::compile;
use emu::access::{AccessPlan, RateRequests};
use emu::beam::{BeamPlan, BeamsPlan, Share};
use emu::framing::Framing;
use emu::plan::{PipePlan, Plan};
use emu::rules::{Rule, Rules};
use emu::shaper::RatePlan;
use emu::units::{BitRate, ByDirection, Direction, NANOS_PER_SEC, Nanos};
use profile::Catalog;
use proto::dataplane::v1 as pb;

use crate::error::Error;
use crate::generator::clients;
use crate::pace::WIRE_OVERHEAD;
use crate::sizes::Sizes;

/// The load of every case, in bit/s on the wire.
pub const LINE_RATE: u64 = 10_000_000_000;
/// The seed of every plan.
const SEED: u64 = 20;
/// The direction that is always loaded.
pub const LOADED: Direction = Direction::Forward;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// No stage does anything; no delay.
    Transparent,
    /// A delay, without a limit of the rate.
    DelayOnly,
    /// `viasat2-pings` at the rate of the load, which the clients share, so that queue, random drop,
    /// shaper, channel and delay line all work and the queue drops nothing.
    Full,
    /// As [`Profile::Full`], with capacity on demand: a client asks for what it needs in each superframe
    /// of 1 ms, and has it 4 ms later.
    Access,
    /// As [`Profile::Access`], with all clients on one carrier, which suffices, and superframes of 1.344 ms.
    Carrier,
    /// `viasat2-pings` as it is, with a shorter delay at most; each client loaded to 90 % of its rate.
    Viasat2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    pub sizes: Sizes,
    pub profile: Profile,
    pub delay: Nanos,
    /// How many clients share the load.
    pub clients: u32,
    /// Whether both directions are loaded, each to the full rate, by one core.
    pub both: bool,
    /// How many links the clients are on, the same number on each; by a rule for each client.
    pub links: u32,
    /// Whether each client has a name, by a rule of its address.
    pub ruled: bool,
    /// Whether all frames are captured.
    pub captured: bool,
}

impl Case {
    /// A case; a profile that states its own delay or number of clients keeps it.
    #[must_use]
    pub fn new(sizes: Sizes, profile: Profile, delay_ms: u64, clients: u32) -> Self {
        let case = Self {
            sizes,
            profile,
            delay: Nanos::from_millis(delay_ms),
            clients,
            both: false,
            links: 1,
            ruled: false,
            captured: false,
        };
        match profile {
            Profile::Transparent => Self { delay: Nanos::ZERO, ..case },
            Profile::DelayOnly | Profile::Full | Profile::Access | Profile::Carrier => case,
            Profile::Viasat2 => {
                let plan = viasat2().ok();
                let pipe = plan.as_ref().map(|p| &p.pipes[LOADED]);
                let rate = pipe.map_or(1, |p| match p.rate.max() {
                    BitRate::PerSec(rate) => rate.get(),
                    _ => 1,
                });
                let clients = (case.frame_bps() / (0.9 * rate as f64)).ceil() as u32;
                Self { delay: pipe.map_or(case.delay, |p| p.delay.base), clients, ..case }
            }
        }
    }

    /// Frames that arrive in a second, in a direction.
    #[must_use]
    pub fn pps(&self) -> f64 {
        LINE_RATE as f64 / (8.0 * self.sizes.mean(|n| f64::from(n + WIRE_OVERHEAD)))
    }

    /// Bits of frames without FCS that arrive in a second, in a direction.
    #[must_use]
    pub fn frame_bps(&self) -> f64 {
        self.pps() * 8.0 * self.sizes.mean(f64::from)
    }

    /// Frames that the delay holds.
    #[must_use]
    pub fn held(&self) -> f64 {
        let one = self.pps() * self.delay.0 as f64 / NANOS_PER_SEC as f64;
        if self.both { 2.0 * one } else { one }
    }

    /// The rate by which a frame moves the time: with both directions, two pass at a time.
    #[must_use]
    pub fn paced_bps(&self) -> u64 {
        if self.both { 2 * LINE_RATE } else { LINE_RATE }
    }

    /// The rate of each client's link in [`Profile::Full`]: that of the wire for one client.
    /// Several share it, and at least a quarter more than the load: the client of each frame
    /// comes next is random, so that a queue without room would grow and grow.
    #[must_use]
    pub fn share(&self) -> u64 {
        if self.clients <= 1 {
            return LINE_RATE;
        }
        let all = (1.25 * self.frame_bps()).max(LINE_RATE as f64);
        (all / f64::from(self.clients)) as u64
    }

    /// The plan.
    ///
    /// # Errors
    /// If the built-in profile is not what it was.
    pub fn plan(&self) -> Result<Plan, Error> {
        let mut plan = Plan { seed: SEED, ..Plan::transparent() };
        match self.profile {
            Profile::Transparent => {}
            Profile::DelayOnly => {
                let delay = PipePlan::transparent().delay;
                plan.pipes[LOADED].delay = emu::delay::DelayPlan { base: self.delay, ..delay };
            }
            Profile::Full => {
                plan = viasat2()?;
                let pipe = &mut plan.pipes[LOADED];
                pipe.rate = BitRate::bps(self.share()).into();
                pipe.delay.base = self.delay;
            }
            Profile::Access | Profile::Carrier => {
                plan = viasat2()?;
                let pipe = &mut plan.pipes[LOADED];
                let mut access = on_demand(2 * self.share());
                if self.profile == Profile::Carrier {
                    access.superframe = CARRIER_SUPERFRAME;
                    plan.beams = Arc::new(carrier(2 * self.share() * u64::from(self.clients)));
                }
                pipe.rate = RatePlan::Access(access);
                pipe.delay.base = self.delay;
            }
            Profile::Viasat2 => {
                plan = viasat2()?;
                plan.pipes[LOADED].delay.base = self.delay;
            }
        }
        if self.both {
            plan.pipes[Direction::Return] = plan.pipes[LOADED].clone();
        }
        if self.ruled {
            plan.rules = Arc::new(self.rules()?);
        }
        Ok(plan)
    }

    fn rules(&self) -> Result<Rules, Error> {
        let mut rules = Rules::default();
        rules.reserved = self.clients;
        for (n, address) in clients(self).enumerate() {
            rules.insert(Rule::Prefix(address.into(), 32), format!("client{n}").parse()?)?;
        }
        Ok(rules)
    }
}

/// Capacity of up to `peak` bit/s on demand. What was asked for exceeds the load, so that no queue grows.
fn on_demand(peak: u64) -> AccessPlan {
    let peak = NonZeroU64::new(peak).unwrap_or(NonZeroU64::MIN);
    let millis = Nanos::from_millis;
    let [timeout, drain, decay] = [100, 10, 1_000].map(millis);
    let rate = RateRequests { max: peak, timeout, gain: 5 << 14, drain, decay };
    AccessPlan {
        peak,
        superframe: millis(1),
        burst: 1_000,
        packs: true,
        constant: 0,
        free: 0,
        rate: Some(rate),
        volume: NonZeroU64::new(1 << 30),
        interval: Nanos::ZERO,
        request_delay: millis(2),
        plan_delay: millis(2),
        log_on: None,
        contention: None,
        others: None,
    }
}

/// All terminals send at once: 20,000 frames of 64 bytes, which the guard counts, are one superframe.
const CARRIER_SUPERFRAME: Nanos = Nanos(1_344_000);

/// A beam of so many bit/s that all clients share.
fn carrier(bps: u64) -> BeamsPlan {
    let mut rate = ByDirection([BitRate::Unlimited; 2]);
    rate[LOADED] = BitRate::bps(bps);
    let beam = BeamPlan { name: String::new(), rate, framing: Framing::default() };
    let automatic = Some(Share { beam: 0, weight: 1 });
    BeamsPlan { beams: vec![beam], automatic, ..BeamsPlan::default() }
}

/// The plan is compiled once: the list of all cases needs it for each of them.
fn viasat2() -> Result<Plan, Error> {
    static PLAN: OnceLock<Plan> = OnceLock::new();
    if let Some(plan) = PLAN.get() {
        return Ok(plan.clone());
    }
    let catalog = Catalog::built_in();
    let profile = catalog.get("viasat2-pings").ok_or(Error::Profile { name: "viasat2-pings" })?;
    let plan = compile(&pb::Plan {
        profile: Some(profile.as_proto().clone()),
        seed: SEED,
        ..pb::Plan::default()
    })?;
    Ok(PLAN.get_or_init(|| plan).clone())
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transparent => "transparent",
            Self::DelayOnly => "delay-only",
            Self::Full => "full",
            Self::Access => "access",
            Self::Carrier => "carrier",
            Self::Viasat2 => "viasat2",
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delay = self.delay.0 / 1_000_000;
        write!(f, "{}-{}-{delay}ms-{}", self.sizes, self.profile, self.clients)?;
        if self.both {
            f.write_str("-both")?;
        }
        if self.links > 1 {
            write!(f, "-{}links", self.links)?;
        }
        let extras = [(self.ruled, "-ruled"), (self.captured, "-captured")];
        extras.iter().filter(|(is, _)| *is).try_for_each(|(_, name)| f.write_str(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rate_of_the_smallest_frames_for_300_ms_is_4_46_million() {
        let case = Case::new(Sizes::Fixed(64), Profile::Full, 300, 1);
        assert_eq!(case.held().round(), 4_464_286.0);
        assert_eq!(case.to_string(), "64B-full-300ms-1");
        let both = Case { both: true, ..case };
        assert_eq!(both.held().round(), 8_928_571.0);
        assert_eq!(both.to_string(), "64B-full-300ms-1-both");
    }

    #[test]
    fn viasat2_has_the_clients_that_the_load_needs() {
        let case = Case::new(Sizes::Fixed(1518), Profile::Viasat2, 300, 1);
        // 9.844 Gbit/s of frames over 0.9 × 144 Mbit/s.
        assert_eq!((case.clients, case.delay), (76, Nanos::from_millis(275)));
    }

    #[test]
    fn every_profile_compiles_and_full_carries_the_load() {
        for profile in [Profile::Transparent, Profile::DelayOnly, Profile::Full, Profile::Viasat2] {
            let case = Case::new(Sizes::Imix, profile, 100, 100);
            let plan = case.plan().unwrap();
            if let BitRate::PerSec(rate) = plan.pipes[LOADED].rate.max() {
                let share = case.frame_bps() / f64::from(case.clients);
                assert!(rate.get() as f64 > 1.1 * share, "{case}: {rate} < {share}");
            }
        }
    }
}
