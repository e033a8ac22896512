// SPDX-License-Identifier: Apache-2.0
//! A machine with real NICs for the dataplane: a QEMU guest with emulated PCI NICs behind an
//! emulated IOMMU, and hosts in network namespaces at the other ends of their cables.
//!
//! All of it is user space. The guest is emulated in software, as KVM is missing on many
//! machines, so nothing here measures microseconds; where figures have to be exact the guest's
//! time is virtual ([`guest::Clock`]). What the guest is made of is unpacked by
//! `scripts/setup.sh hw` ([`parts`]) and packed into an initramfs at each run ([`image`]).
//!
//! The suite is in `tests/`.
// Counts and sizes here are far below 2^52.
#![allow(clippy::cast_precision_loss)]

pub mod guest;
pub mod image;
pub mod inside;
pub mod lab;
pub mod nic;
pub mod parts;
pub mod qmp;
pub mod shell;
