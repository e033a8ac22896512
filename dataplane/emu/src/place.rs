// SPDX-License-Identifier: Apache-2.0
//! Where a frame belongs: the worker, the link and the client. The worker that receives a frame
//! decides it, by the rules of that time, and passes the decision on with the frame.

use std::net::IpAddr;

use crate::client::ClientKey;
use crate::frame::Hint;

/// Where a frame belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub worker: u16,
    pub link: u16,
    /// What is known about its client.
    pub hint: Hint,
}

/// The number of the worker that has a client, below `workers`, if the clients of a link are
/// distributed over all workers. The first worker has the fixed clients.
#[inline]
#[must_use]
pub fn worker_of(key: ClientKey, workers: usize) -> usize {
    let fold = |bits: u128| (bits >> 64) as u64 ^ (bits as u64).rotate_left(32);
    let bits = match key {
        ClientKey::Ip(IpAddr::V4(a)) => u64::from(a.to_bits()),
        ClientKey::Ip(IpAddr::V6(a)) => fold(a.to_bits()),
        ClientKey::Named(name) => fold(name.bits()),
        ClientKey::Bypass | ClientKey::Default | ClientKey::Expired => return 0,
    };
    // A multiplication spreads neighbours, one with its upper half folded in also keys that differ
    // in their upper bits alone.
    let product = u128::from(bits ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    let hash = (product >> 64) as u64 ^ product as u64;
    ((u128::from(hash) * workers as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(n: u32) -> ClientKey {
        ClientKey::Ip(IpAddr::V4((0x0a00_0000 + n).into()))
    }

    fn v6(n: u32) -> ClientKey {
        ClientKey::Ip(IpAddr::V6((0x2001_0db8 << 96 | u128::from(n) << 64 | 1).into()))
    }

    fn named(n: u32) -> ClientKey {
        ClientKey::Named(format!("client{n}").parse().unwrap())
    }

    #[test]
    fn neighbours_are_spread_evenly() {
        for workers in 1..=8 {
            for key in [v4, v6, named] {
                let mut clients = vec![0_u32; workers];
                for n in 0..10_000 {
                    clients[worker_of(key(n), workers)] += 1;
                }
                // Six deviations of a binomial count.
                let mean = 10_000.0 / workers as f64;
                let bound = 6.0 * (mean * (1.0 - 1.0 / workers as f64)).sqrt();
                for n in &clients {
                    assert!((f64::from(*n) - mean).abs() <= bound, "{workers}: {clients:?}");
                }
            }
        }
    }

    #[test]
    fn fixed_clients_are_the_first_workers() {
        for key in [ClientKey::Bypass, ClientKey::Default, ClientKey::Expired] {
            assert_eq!(worker_of(key, 8), 0);
        }
    }
}
