// SPDX-License-Identifier: Apache-2.0
//! Copies of packets as a pcapng file: the chunks of `linkemu.v1.Captures` are put in order of time
//! ([`Order`]) and written ([`Writer`]).

mod file;
mod order;

pub use file::{CaptureError, Counts, Writer};
pub use order::{Order, Packet};
