// SPDX-License-Identifier: Apache-2.0
//! A model of TCP in virtual time: sender and receiver of one bulk flow.
//!
//! The model guides the search of parameters. It is not a TCP stack, and none of its figures is a
//! result: those come from real hosts (docs/adr/0052). It covers what decides on throughput and
//! round trips of a long flow: SACK (RFC 2018, 6675), loss detection by transmission order (RACK,
//! RFC 8985, without its reordering window: links here keep the order), proportional rate reduction
//! (RFC 6937), the retransmission timer (RFC 6298 with Linux's limits), delayed acknowledgements,
//! CUBIC with HyStart, and BBR v1. It leaves out tail loss probes, F-RTO and undo, ECN, the
//! handshake's options, and the costs of hosts.
//!
//! Units: time in ns, data in segments of [`MSS`] bytes.

mod bbr;
mod control;
mod cubic;
mod ranges;
mod receiver;
mod sender;

pub use bbr::Bbr;
pub use control::Control;
pub use cubic::Cubic;
pub use receiver::{Ack, DELAY_NS, Receiver};
pub use sender::{INITIAL_WINDOW, Sender};

/// Bytes of data in a segment: 1500 without IPv4, TCP and timestamps.
pub const MSS: u64 = 1448;
