// SPDX-License-Identifier: Apache-2.0
//! Addresses of the two hosts of a link, by its place among nested links.
//!
//! The outermost link has 10.0.0.1 (far) and 10.0.0.2 (near). A link inside it gets a part of
//! 10.0.0.0/8, a link inside that one a part of this part. So each host has one route to all links
//! inside its link, and a default route to those outside.
//!
//! | depth | place | link | all links inside |
//! |---|---|---|---|
//! | 0 | `0` | 10.0.0.0/30, fd00::/64 | 10.0.0.0/8, fd00::/16 |
//! | 1 | `0.k` | 10.k.0.0/30, fd00:k::/64 | 10.k.0.0/16, fd00:k::/32 |
//! | 2 | `0.k.j` | 10.k.j.0/30, fd00:k:j::/64 | 10.k.j.0/24, fd00:k:j::/48 |
//! | 3 | `0.k.j.i` | 10.k.j.4i/30, fd00:k:j:i::/64 | none |

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Prefix lengths of a link.
pub const LINK_V4: u8 = 30;
pub const LINK_V6: u8 = 64;
/// Largest number of links inside a link: by depth of the inner link.
const MOST: [u8; 3] = [255, 255, 63];

/// The numbers of a link and of those around it, the outermost one first, which has no number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place(Vec<u8>);

impl Place {
    /// The places directly inside this one; none at the largest depth.
    pub fn inside(&self) -> impl Iterator<Item = Self> + use<'_> {
        let most = MOST.get(self.0.len()).copied().unwrap_or(0);
        (1..=most).map(|number| Self(self.0.iter().copied().chain([number]).collect()))
    }

    /// The place around this one.
    pub fn outside(&self) -> Option<Self> {
        let (_, around) = self.0.split_last()?;
        Some(Self(around.to_vec()))
    }

    /// The last number; 0 of the outermost place.
    pub fn number(&self) -> u8 {
        self.0.last().copied().unwrap_or(0)
    }

    pub fn far(&self) -> (Ipv4Addr, Ipv6Addr) {
        self.host(1)
    }

    pub fn near(&self) -> (Ipv4Addr, Ipv6Addr) {
        self.host(2)
    }

    /// All addresses of this link and of those inside it: two networks and their lengths.
    pub fn all(&self) -> ((Ipv4Addr, u8), (Ipv6Addr, u8)) {
        let (v4, v6) = self.host(0);
        let (short, long) = match self.0.len() {
            0 => (8, 16),
            1 => (16, 32),
            2 => (24, 48),
            _ => (LINK_V4, LINK_V6),
        };
        ((v4, short), (v6, long))
    }

    fn host(&self, host: u8) -> (Ipv4Addr, Ipv6Addr) {
        let number = |depth: usize| self.0.get(depth).copied().unwrap_or(0);
        let v4 = Ipv4Addr::new(10, number(0), number(1), 4 * number(2) + host);
        let [k, j, i] = [0, 1, 2].map(|depth| u16::from(number(depth)));
        (v4, Ipv6Addr::new(0xfd00, k, j, i, 0, 0, 0, u16::from(host)))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0")?;
        self.0.iter().try_for_each(|number| write!(f, ".{number}"))
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no place of a link, such as 0 or 0.1");
        let mut numbers = text.split('.').map(str::parse::<u8>);
        if numbers.next() != Some(Ok(0)) {
            return Err(wrong());
        }
        let numbers: Vec<u8> = numbers.collect::<Result<_, _>>().map_err(|_| wrong())?;
        let fits = |(n, most): (&u8, u8)| (1..=most).contains(n);
        if numbers.len() > MOST.len() || !numbers.iter().zip(MOST).all(fits) {
            return Err(wrong());
        }
        Ok(Self(numbers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_links_have_parts_of_the_outer_network() {
        let outer = Place::default();
        assert_eq!(outer.far().0, Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(outer.near().1, "fd00::2".parse::<Ipv6Addr>().unwrap());
        let inner: Place = "0.3.255.63".parse().unwrap();
        assert_eq!(inner.near().0, Ipv4Addr::new(10, 3, 255, 254));
        assert_eq!(inner.far().1, "fd00:3:ff:3f::1".parse::<Ipv6Addr>().unwrap());
        assert_eq!(inner.inside().next(), None);
        assert_eq!(inner.outside().unwrap().to_string(), "0.3.255");
        assert_eq!(inner.outside().unwrap().all().0, (Ipv4Addr::new(10, 3, 255, 0), 24));
        assert_eq!(outer.inside().count(), 255);
    }

    #[test]
    fn place_with_wrong_numbers_is_refused() {
        for text in ["", "1", "0.0", "0.256", "0.1.1.64", "0.1.1.1.1", "0.x", "0."] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
