// SPDX-License-Identifier: Apache-2.0
//! Safe ownership of DPDK's environment, ports, queues and packet buffers.
//!
//! The types state DPDK's rules:
//!
//! - [`Eal`] exists once per process; every other object keeps it alive.
//! - [`Port`] is attached and cannot be polled. [`Port::start`] consumes it and yields a
//!   [`StartedPort`] (the control thread's handle) and one [`RxQueue`] and [`TxQueue`] per queue.
//! - A queue handle is `Send` but neither `Sync` nor `Clone`: it is moved to the one thread that
//!   polls it. The device stops when its last handle is dropped, so none outlives it.
//! - [`Mbuf`] owns one packet buffer and returns it to its pool when dropped. If a [`Mempool`]
//!   still has buffers in use when its last handle is dropped, it and EAL are leaked.
//!
//! The datapath (`RxQueue::burst`, `TxQueue::burst`, `Mbuf`, `MbufBurst`) does not allocate, lock
//! or log. Everything else belongs to the control thread. Linux only.
//!
//! Reference: the DPDK programmer's guide, chapters EAL, mempool, mbuf and poll-mode driver; API
//! of 22.11 to 25.11.
#![allow(unsafe_code, reason = "the safe wrapper over the foreign-function interface")]

mod burst;
mod clock;
mod device;
mod driver;
mod eal;
mod error;
mod hugepages;
mod info;
mod instance;
mod mbuf;
mod mempool;
mod offloads;
mod port;
mod probe;
mod queue;
mod sockets;
mod spec;
mod started;
mod thread;
mod waiter;

pub use burst::MbufBurst;
pub use clock::{Calibration, Correction, Drift, TscClock};
pub use driver::{known_drivers, nearest_driver};
pub use eal::{Eal, EalOptions, LogLevel, Memory};
pub use error::Error;
pub use hugepages::{Hugepages, hugepages_reserved};
pub use info::{Counters, Link, PortInfo};
pub use interface::{Interface, Used};
pub use mbuf::{Loan, Mbuf};
pub use mempool::Mempool;
pub use offloads::OffloadsOff;
pub use port::{Port, PortConfig};
pub use queue::{RX_BURST, RxQueue, TxQueue, pause};
pub use spec::{NamedPort, PortSpec, ensure_distinct};
pub use started::StartedPort;
pub use thread::{ThreadGuard, numa_node, thread_time, with_memory_on};
pub use waiter::{Waiter, minimise_timer_slack};
