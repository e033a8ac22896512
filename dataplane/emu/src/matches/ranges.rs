// SPDX-License-Identifier: Apache-2.0
//! Port ranges as numbers.
//!
//! Distinct ranges are numbered and put into layers. Ranges of one layer do not overlap, so a port
//! is in at most one range per layer. The number of that range is a part of a hash key like any
//! other field. A layer costs a binary search for a frame. Plans that do not nest ranges have one
//! layer, and each level of nesting adds one; so a range costs one entry and one lookup. Expansion
//! into prefixes costs up to 30 entries, and a lookup for each prefix length in use (Srinivasan et
//! al. 1998). Layers of disjoint ranges as in SAX-PAC (Kogan et al. 2014).

use std::fmt;

use super::MatchError;

/// Maximum number of layers: of ranges that overlap at one port.
pub const MAX_LAYERS: usize = 16;

/// Ports from the first to the last one, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ports {
    pub first: u16,
    pub last: u16,
}

impl Ports {
    pub(super) fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            self.first.fmt(f)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    ports: Ports,
    /// From 1 on.
    number: u16,
}

/// The ranges of one side.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ranges {
    /// By their first ports.
    layers: Vec<Vec<Range>>,
    count: u16,
}

impl Ranges {
    /// The layer and the number of a range, which is added if it is not known.
    ///
    /// # Errors
    /// If there are too many layers or ranges.
    pub fn add(&mut self, ports: Ports) -> Result<(u8, u16), MatchError> {
        let mut free = None;
        for (n, layer) in self.layers.iter().enumerate() {
            match at(layer, ports.first) {
                Some(range) if range.ports == ports => return Ok((n as u8, range.number)),
                _ => {}
            }
            let next = layer.partition_point(|range| range.ports.last < ports.first);
            if layer.get(next).is_none_or(|range| !range.ports.overlaps(ports)) {
                free = free.or(Some((n, next)));
            }
        }
        let (n, next) = free.unwrap_or((self.layers.len(), 0));
        if n == MAX_LAYERS {
            return Err(MatchError::Layers(ports));
        }
        if n == self.layers.len() {
            self.layers.push(Vec::new());
        }
        self.count = self.count.checked_add(1).ok_or(MatchError::Full)?;
        self.layers[n].insert(next, Range { ports, number: self.count });
        Ok((n as u8, self.count))
    }

    /// The numbers of a port's ranges by layer; 0 is none.
    #[inline]
    pub fn numbers(&self, port: u16) -> [u16; MAX_LAYERS] {
        let mut numbers = [0; MAX_LAYERS];
        for (number, layer) in numbers.iter_mut().zip(&self.layers) {
            *number = at(layer, port).map_or(0, |range| range.number);
        }
        numbers
    }

    /// The number of the range of a layer that covers these ports.
    pub fn covering(&self, layer: u8, ports: Ports) -> Option<u16> {
        let range = at(self.layers.get(usize::from(layer))?, ports.first)?;
        range.ports.covers(ports).then_some(range.number)
    }
}

/// The range of a layer that contains a port.
#[inline]
fn at(layer: &[Range], port: u16) -> Option<&Range> {
    let after = layer.partition_point(|range| range.ports.first <= port);
    layer.get(after.checked_sub(1)?).filter(|range| port <= range.ports.last)
}
