// SPDX-License-Identifier: Apache-2.0
//! Corruption: one bit of a packet is the wrong one.
//!
//! `corrupt` of `tc-netem` (`net/sched/sch_netem.c`): each packet with the same probability,
//! one random bit. Differs in that the bit is behind the Ethernet header and the VLAN tags,
//! so that the frame still goes where it would, and in that it is on the channel: a packet
//! that arrives, after the shaper. Checksums of IP, TCP and UDP are left as they were: to
//! be wrong is the point.

use crate::classify::payload;
use crate::rng::{Stage, Stream, StreamKey};
use crate::units::Probability;

/// The corruption of one pipe.
#[derive(Clone, Debug)]
pub struct Corrupt {
    probability: Probability,
    stream: Stream,
}

impl Corrupt {
    /// None if the probability is zero. An existing one continues with its stream.
    #[must_use]
    pub fn new(probability: Probability, key: StreamKey, before: Option<Self>) -> Option<Self> {
        if probability == Probability::ZERO {
            return None;
        }
        let stream =
            before.map_or_else(|| Stream::new(key, Stage::Corrupt, 0), |before| before.stream);
        Some(Self { probability, stream })
    }

    /// Where the next packet's wrong bit is, as a share of the packet in 2⁻³²; none if it is
    /// whole.
    #[inline]
    pub fn wrong_bit(&mut self) -> Option<u64> {
        // Both are drawn for every packet.
        let (chosen, place) = (self.stream.chance(self.probability), self.stream.raw());
        chosen.then_some(place)
    }
}

/// Flips the bit at `place` of the payload of `frame`; false if it has no payload.
pub fn flip(frame: &mut [u8], place: u64) -> bool {
    let (_, at) = payload(frame);
    let Some(packet) = frame.get_mut(at..) else { return false };
    let bit = (u128::from(place) * (packet.len() as u128 * 8)) >> 32;
    // Below eight times the packet's length.
    let (byte, bit) = ((bit / 8) as usize, bit % 8);
    let Some(byte) = packet.get_mut(byte) else { return false };
    *byte ^= 1 << bit;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::distribution::{ChiSquared, ContinuousCDF};

    #[test]
    fn one_bit_is_flipped_uniformly() {
        // 14 bytes of Ethernet, a tag, and 10 bytes that can be hit.
        let mut clean = vec![0_u8; 28];
        clean[12..18].copy_from_slice(&[0x81, 0, 0, 7, 8, 0]);
        let key = StreamKey {
            seed: 1,
            client: crate::client::ClientKey::Default,
            direction: crate::units::Direction::Forward,
            epoch: 0,
        };
        let mut corrupt = Corrupt::new(Probability::new(0.25), key, None).unwrap();
        let (n, mut hits) = (400_000, [0_u32; 80]);
        for _ in 0..n {
            let Some(place) = corrupt.wrong_bit() else { continue };
            let mut frame = clean.clone();
            assert!(flip(&mut frame, place));
            assert_eq!(frame[..18], clean[..18]);
            let wrong: Vec<usize> =
                (0..80).filter(|i| frame[18 + i / 8] >> (i % 8) & 1 == 1).collect();
            assert_eq!(wrong.len(), 1);
            hits[wrong[0]] += 1;
        }
        let all: u32 = hits.iter().sum();
        let sd = (f64::from(n) * 0.25 * 0.75).sqrt();
        assert!((f64::from(all) - f64::from(n) / 4.0).abs() < 5.0 * sd, "{all}");
        let expected = f64::from(all) / 80.0;
        let statistic = hits.iter().map(|h| (f64::from(*h) - expected).powi(2) / expected).sum();
        let p = ChiSquared::new(79.0).unwrap().sf(statistic);
        assert!(p > 0.05, "chi-square {statistic}: p = {p}");
    }

    #[test]
    fn frame_without_packet_is_not_marked() {
        for len in 0..15 {
            assert!(!flip(&mut vec![0; len], (1 << 32) - 1));
        }
        assert!(flip(&mut [0; 15], (1 << 32) - 1));
    }
}
