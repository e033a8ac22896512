// SPDX-License-Identifier: Apache-2.0
//! A UDP ping and its reflector, which measure a link's baseline.
//!
//! The sender writes one line per probe: when it was sent, and after how long it came
//! back, if at all. The decisions are in a core without clock and socket
//! ([`prober`]); around it one blocking thread waits with `ppoll`, which is more
//! precise than a runtime's timer wheel of 1 ms ([`send`]). Memory does not grow with
//! the run: only the probes under way are held, at most timeout / interval.
//!
//! Clocks. The schedule and the round trips are of `CLOCK_MONOTONIC`, so a step of
//! the wall clock moves neither; that clock stands still while the machine is suspended.
//! A probe is stamped right before the system call that sends it, a reply by the kernel
//! when it arrives ([`clock`]): a round trip is exact to a few microseconds, and it does
//! not matter when this process is scheduled to read it. The reflector's dwell, from the
//! arrival of the request to the reply, is part of the round trip, as with ping.

pub mod clock;
mod error;
pub mod log;
pub mod packet;
pub mod plan;
pub mod prober;
pub mod reflect;
pub mod report;
mod resume;
pub mod schedule;
pub mod send;
mod socket;
pub mod stop;

pub use error::Error;
pub use log::LogError;
pub use packet::{HEADER, LARGEST};
pub use plan::{Extent, PORT, Plan, PlanError, Spacing, Target};
pub use reflect::{Reflected, Reflector};
pub use report::{Counts, Report, Rtt};
pub use send::send;

pub use stop::Stop;
