// SPDX-License-Identifier: Apache-2.0
//! The cost of finding a frame's client: headers and rules, without the emulator.
//!
//! Small UDP frames of random clients, out of twice as many addresses as there are rules. Measuring
//! thread.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use emu::classify::{Class, classify};
use emu::client::ClientName;
use emu::matches::{Match, Ports};
use emu::protocol::UDP;
use emu::rules::{MAX_RULES, Rule, Rules};
use emu::units::Direction;
use serde::Serialize;

use crate::cpu;
use crate::error::Error;
use crate::spread::Spread;

/// Numbers of rules.
pub const RULES: [usize; 4] = [0, 10, 1_000, MAX_RULES];
/// Frames that are classified in turn: they fit into the second-level cache.
const FRAMES: usize = 2_048;
/// Multiplier and increment of the generator of draws (Knuth, MMIX).
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

/// What the rules are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Prefixes of one length.
    Prefixes,
    /// Matches of a host and a port range: one table.
    Ports,
    /// Matches with twelve combinations of fields and prefix lengths: twelve tables.
    Mixed,
}

impl Kind {
    /// Name for a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefixes => "prefixes, 1 table",
            Self::Ports => "matches, 1 table",
            Self::Mixed => "matches, 12 tables",
        }
    }

    fn rule(self, n: usize) -> Rule {
        let net = |index: usize, length: u8| {
            let bits = 10 << 24 | (index as u32) << (32 - u32::from(length));
            (IpAddr::V4(Ipv4Addr::from_bits(bits)), length)
        };
        let udp = Match {
            protocol: Some(UDP),
            port: Some(Ports { first: 4_000, last: 4_010 }),
            ..Match::default()
        };
        match self {
            Self::Prefixes => {
                let (address, length) = net(n, 32);
                Rule::Prefix(address, length)
            }
            Self::Ports => Rule::Match(Match { prefix: Some(net(n, 32)), ..udp }),
            Self::Mixed => {
                let (shape, index) = (n % 12, n / 12);
                let prefix = Some(net(index, [32, 28, 24, 20][shape % 4]));
                let remote_prefix = Some((IpAddr::from([192, 0, 2, 0]), 24));
                Rule::Match(match shape / 4 {
                    0 => Match { prefix, ..udp },
                    1 => Match { prefix, dscp: Some(46), ..Match::default() },
                    _ => Match { prefix, remote_prefix, dscp: Some(46), ..Match::default() },
                })
            }
        }
    }
}

/// The cost of one frame.
#[derive(Clone, Debug, Serialize)]
pub struct Lookup {
    pub kind: Kind,
    pub rules: usize,
    /// ns of processor time: headers, and rules if there are any.
    pub ns: Spread,
    /// Share of the frames that met a rule.
    pub met: f64,
}

/// Measures all kinds and numbers of rules.
///
/// # Errors
/// If rules are refused.
pub fn measure(repetitions: usize, frames: u64) -> Result<Vec<Lookup>, Error> {
    let mut lookups = Vec::new();
    for kind in [Kind::Prefixes, Kind::Ports, Kind::Mixed] {
        for count in RULES {
            // Without rules all kinds are the same.
            if count == 0 && kind != Kind::Prefixes {
                continue;
            }
            lookups.push(lookup(kind, count, repetitions, frames)?);
        }
    }
    Ok(lookups)
}

fn lookup(kind: Kind, count: usize, repetitions: usize, frames: u64) -> Result<Lookup, Error> {
    let sample = sample(2 * count as u64 + 1);
    let mut rules = Rules::default();
    let client: ClientName = "a".parse()?;
    for n in 0..count {
        rules.insert(kind.rule(n), client)?;
    }
    let is_ruled = !rules.is_empty();
    let one = |frame: &[u8; 60]| {
        let Class::Client(key) = classify(black_box(frame), Direction::Return) else { return None };
        let owner = if is_ruled { rules.owner(key, frame, Direction::Return, 0) } else { key };
        Some(owner != key)
    };
    let met = sample.iter().filter(|frame| one(frame) == Some(true)).count();
    let mut ns = Vec::new();
    for _ in 0..repetitions {
        let start = cpu::thread_ns();
        for frame in sample.iter().cycle().take(frames as usize) {
            black_box(one(frame));
        }
        ns.push((cpu::thread_ns() - start) as f64 / frames as f64);
    }
    let met = met as f64 / sample.len() as f64;
    Ok(Lookup { kind, rules: count, ns: Spread::of(&ns), met })
}

/// UDP frames from random clients; some have the DSCP and the ports of the rules.
fn sample(addresses: u64) -> Vec<[u8; 60]> {
    let mut state = 1_u64;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        (((state >> 32) * below) >> 32) as u32
    };
    let frame = |_| {
        let mut f = [0; 60];
        f[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        f[12..16].copy_from_slice(&[8, 0, 0x45, if draw(2) == 0 { 46 << 2 } else { 0 }]);
        f[16..18].copy_from_slice(&46_u16.to_be_bytes());
        f[22..24].copy_from_slice(&[64, UDP]);
        f[26..30].copy_from_slice(&(10 << 24 | draw(addresses)).to_be_bytes());
        f[30..34].copy_from_slice(&[192, 0, 2, 1]);
        f[34..36].copy_from_slice(&(4_000 + draw(16) as u16).to_be_bytes());
        f[36..38].copy_from_slice(&80_u16.to_be_bytes());
        f
    };
    (0..FRAMES).map(frame).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_meet_rules_only_if_there_are_any() {
        let lookups = measure(1, 1_000).unwrap();
        assert_eq!(lookups.len(), 10);
        for Lookup { kind, rules, met, ns } in lookups {
            assert!(ns.median > 0.0);
            match rules {
                0 => assert_eq!(met, 0.0),
                _ => assert!((0.2..=0.9).contains(&met), "{kind:?} {rules} {met}"),
            }
        }
    }
}
