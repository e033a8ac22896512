// SPDX-License-Identifier: Apache-2.0
//! Copies of packets as a pcapng file: [`Writer`] puts the chunks of `linkemu.v1.Captures` in order of
//! time and writes them.

mod file;
mod order;

pub use file::{CaptureError, Counts, Lost, Writer};
