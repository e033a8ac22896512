// SPDX-License-Identifier: Apache-2.0
//! The emulation core: the fate of each frame of each client, and its time.
//!
//! Pure: every method takes the time as an argument and the seed comes with the
//! [`plan::Plan`]. There is no clock, no I/O, no thread and no ambient randomness
//! in here, so an hour of link time runs in seconds and the same arrivals always
//! give the same fates.
//!
//! A frame goes through
//!
//! ```text
//! classify → MTU → queue + AQM → shaper → [beam] → channel (outages, loss) → delay → release
//! ```
//!
//! and each stage has the module of its name. A [`pipe::Pipe`] is one client's
//! path in one direction and holds its frames in one [`store::Fifo`] from arrival
//! to release; [`engine::Engine`] owns the clients of one worker, and the
//! [`wheel::Wheel`] has the next deadline of each pipe.
//!
//! Units: time in nanoseconds ([`units::Instant`], [`units::Nanos`]), rates in
//! bit/s, sizes in bytes of Ethernet frame without FCS.

pub mod access;
pub mod aqm;
pub mod beam;
pub mod channel;
pub mod check;
mod checksum;
pub mod classify;
pub mod client;
pub mod corrupt;
pub mod cross;
pub mod delay;
pub mod drop_run;
pub mod duplicate;
pub mod ecn;
pub mod engine;
pub mod envelope;
pub mod episode;
pub mod frame;
pub mod framing;
pub mod held;
pub mod histogram;
pub mod links;
pub mod loss;
pub mod matches;
mod memory;
pub mod mtu;
pub mod observe;
pub mod pipe;
pub mod place;
pub mod plan;
pub mod protocol;
pub mod reorder;
pub mod rng;
pub mod rules;
pub mod shaper;
pub mod si;
pub mod stats;
pub mod store;
pub mod tag;
pub mod units;
pub mod wheel;
