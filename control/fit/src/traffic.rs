// SPDX-License-Identifier: Apache-2.0
//! Calibration from TCP traffic: bulk flows determine parameters that pings cannot.
//!
//! [`read::read`] reads observations, [`calibrate::calibrate`] estimates parameters of a profile from
//! them, and [`flow::play`] plays single flows of a model of TCP ([`tcp`]) over a profile.

mod acknowledgements;
pub mod calibrate;
pub mod flow;
mod iperf;
pub mod observation;
mod path;
mod pcap;
pub mod read;
mod summary;
pub mod tcp;
