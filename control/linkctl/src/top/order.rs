// SPDX-License-Identifier: Apache-2.0
//! Order of the rows, and the direction that their figures are of.

use crate::top::rates::{Flow, Row, Wait};
use std::cmp::Ordering;
use std::net::IpAddr;

/// Sort criterion of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Client,
    Forward,
    Return,
    Queue,
    Delay,
    Drops,
}

impl Sort {
    const ALL: [Self; 6] =
        [Self::Client, Self::Forward, Self::Return, Self::Queue, Self::Delay, Self::Drops];

    pub fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Forward => "forward",
            Self::Return => "return",
            Self::Queue => "queue",
            Self::Delay => "delay",
            Self::Drops => "drops",
        }
    }
}

/// The directions that queue, delay and drops are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Queues and drops added; the longer delay.
    #[default]
    Both,
    Forward,
    /// From the client.
    Return,
}

impl Way {
    pub fn of(self, row: &Row) -> Flow {
        match self {
            Self::Both => row.both(),
            Self::Forward => row.forward,
            Self::Return => row.back,
        }
    }

    pub fn next(self) -> Self {
        match self {
            Self::Both => Self::Forward,
            Self::Forward => Self::Return,
            Self::Return => Self::Both,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Forward => "forward",
            Self::Return => "return",
        }
    }
}

/// Sort key of a row: the figure, descending; then addresses in numerical order; then names.
#[derive(Debug, PartialEq)]
pub struct Key {
    figure: f64,
    address: Option<IpAddr>,
    name: String,
}

impl Key {
    pub fn of(row: &Row, sort: Sort, way: Way) -> Self {
        let flow = way.of(row);
        let figure = match sort {
            Sort::Client => 0.0,
            Sort::Forward => row.forward.rate_bps.unwrap_or(-1.0),
            Sort::Return => row.back.rate_bps.unwrap_or(-1.0),
            Sort::Queue => flow.queue_bytes as f64,
            Sort::Delay => match flow.wait {
                Wait::Unknown => -1.0,
                Wait::Seconds(s) => s,
                Wait::Forever => f64::INFINITY,
            },
            Sort::Drops => flow.dropping().unwrap_or(-1.0),
        };
        Self { figure, address: row.client.parse().ok(), name: row.client.clone() }
    }
}

impl Eq for Key {}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        // Addresses before names.
        let class = |key: &Self| key.address.is_none();
        (other.figure.total_cmp(&self.figure))
            .then_with(|| class(self).cmp(&class(other)))
            .then_with(|| self.address.cmp(&other.address))
            .then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
