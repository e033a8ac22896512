// SPDX-License-Identifier: Apache-2.0
//! What an engine is made with.

use thiserror::Error;

use crate::units::Nanos;

/// The limits of an engine, fixed for its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Size of the packet store in bytes.
    pub memory: usize,
    /// Most clients, named and made for addresses.
    pub clients: u32,
    /// Longest frame that the ports can send, FCS excluded.
    pub frame: u32,
    /// Frames longer than this stay in the buffer that they came in.
    pub copy_break: u32,
    /// Most buffers that are kept at a time; further frames are copied, however long.
    pub buffers: u32,
    /// A client that was made for an address expires when nothing has come for it in either
    /// direction for so long, and it holds nothing; zero: never. None expires where clients are
    /// offloaded, since they are known elsewhere by their index.
    pub idle: Nanos,
    /// Clients with a lower index than this have their losses and marks done behind the egress,
    /// as far as the plan leaves them to others; zero: none has.
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

/// Why there is no engine.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The histogram's bounds, which are fixed and valid.
    #[error("{0}")]
    Histogram(#[from] hdrhistogram::CreationError),
    /// The system has no room for the packet store.
    #[error("no room for a packet store of {0} bytes: {1}; give less memory")]
    Memory(usize, std::io::Error),
}
