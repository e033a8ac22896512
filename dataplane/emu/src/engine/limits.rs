// SPDX-License-Identifier: Apache-2.0
//! The limits of an engine.

use thiserror::Error;

use crate::units::Nanos;

/// The limits of an engine, fixed for its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Size of the packet store in bytes.
    pub memory: usize,
    /// Most clients, named and automatic.
    pub clients: u32,
    /// Longest frame that the ports can send, FCS excluded.
    pub frame: u32,
    /// Frames longer than this stay in the buffer that they came in.
    pub copy_break: u32,
    /// Most buffers that are kept at a time; further frames are copied, however long.
    pub buffers: u32,
    /// An automatic client expires when it has received nothing in either
    /// direction for this long and holds nothing; zero: never. None expires where clients are
    /// offloaded, since other systems identify them by their index.
    pub idle: Nanos,
    /// For clients with a lower index, losses and marks are done behind the egress,
    /// as far as the plan offloads them; zero: for none.
    pub offloaded: u32,
}

impl Limits {
    /// The limits of an engine that copies every frame.
    #[must_use]
    pub const fn copying(memory: usize, clients: u32, frame: u32) -> Self {
        Self {
            memory,
            clients,
            frame,
            copy_break: frame,
            buffers: 0,
            idle: Nanos::ZERO,
            offloaded: 0,
        }
    }
}

/// Why an engine cannot be created.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The histogram's bounds, which are fixed and valid.
    #[error("{0}")]
    Histogram(#[from] hdrhistogram::CreationError),
    /// The system has no room for the packet store.
    #[error("no room for a packet store of {0} bytes: {1}; give less memory")]
    Memory(usize, std::io::Error),
}
