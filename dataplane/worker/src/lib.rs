// SPDX-License-Identifier: Apache-2.0
//! The run loop: packets from ports through an [`emu::engine::Engine`] and back.
//!
//! A [`run::Worker`] owns an engine, its share of the ports behind the
//! [`io::PacketIo`] trait, and a [`clock::Clock`]; it runs on one thread and shares
//! nothing with others but the queue of [`command::Command`]s and, where there are several
//! workers, the rings between them.
//!
//! | `PacketIo` | for |
//! |---|---|
//! | [`dpdk_io::DpdkIo`] | real ports |
//! | [`hairpin::HairpinIo`] | a real port with two VLANs |
//! | [`sim::SimIo`] | recorded arrivals in virtual time |
//! | [`distribute::Distributed`] | several workers, around any other |
//! | [`paired::PairedIo`] | several port pairs, around one of any other for each |
//! | [`shim::ShimIo`] | ports that lead to a P4 switch, around any other |
//! | [`chaos::ChaosIo`] | faults around any other |

pub mod capture;
pub mod chaos;
pub mod clock;
pub mod command;
pub mod distribute;
pub mod dpdk_io;
pub mod edge;
pub mod hairpin;
pub mod io;
pub mod paired;
mod rest;
pub mod run;
pub mod shim;
pub mod sim;
