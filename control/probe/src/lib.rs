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
//! the wall clock does not affect them; that clock stops while the machine is suspended.
//! A probe is stamped right before the system call that sends it, a reply by the kernel
//! when it arrives ([`clock`]): a round trip is exact to a few microseconds, and it does
//! not matter when this process is scheduled to read it. The reflector's dwell, from the
//! arrival of the request to the reply, is part of the round trip, as with ping.
//!
//! ```
//! use probe::{Extent, Plan, Reflector, Stop};
//! use std::time::Duration;
//!
//! // At the far end of the link.
//! let reflector = Reflector::bind("127.0.0.1:0".parse()?)?;
//! let (address, far) = (reflector.address(), Stop::new()?);
//! let stop = far.clone();
//! let reflecting = std::thread::spawn(move || reflector.run(&stop, None, |_| ()));
//! // At the near end.
//! let plan = Plan {
//!     interval: Duration::from_millis(5),
//!     extent: Extent::Count(10),
//!     ..Plan::new(address.into())
//! };
//! let folder = tempfile::tempdir()?;
//! let log = folder.path().join("link.csv");
//! let report = probe::send(&plan, &log, false, &Stop::new()?, |_| ())?;
//! assert_eq!(report.counts.sent + report.counts.skipped, 10);
//! far.request();
//! assert!(reflecting.join().is_ok_and(|counts| counts.is_ok()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod clock;
mod error;
pub mod log;
pub mod packet;
pub mod plan;
pub mod prober;
pub mod reflect;
pub mod report;
pub mod schedule;
pub mod send;
mod socket;
pub mod stop;
pub mod target;

pub use error::Error;
pub use log::LogError;
pub use packet::{HEADER, LARGEST};
pub use plan::{Extent, Plan, PlanError, Spacing};
pub use reflect::{Reflected, Reflector};
pub use report::{Counts, Report, Rtt};
pub use send::send;
pub use stop::Stop;
pub use target::{PORT, ResolveError, Target, TargetError};
