// SPDX-License-Identifier: Apache-2.0
//! A machine with real NICs for the dataplane: a QEMU guest with emulated PCI NICs behind an
//! emulated IOMMU, and hosts in network namespaces at the other ends of their cables.
//!
//! All of it is user space. The guest is emulated in software, because many machines lack KVM, so
//! nothing here measures microseconds. Exact figures use virtual time ([`guest::Clock`]).
//! `scripts/setup.sh hw` unpacks the parts of the guest ([`parts`]), and each run packs them into
//! an initramfs ([`image`]).
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
