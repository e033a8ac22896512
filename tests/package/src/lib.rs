// SPDX-License-Identifier: Apache-2.0
//! Test bed of the packages: packages built for it, booted Debian systems, and the service
//! manager's side of a daemon's notifications.
//!
//! `scripts/setup.sh package` installs the required tools. [`smoke::binaries::Lack`] reports
//! missing ones.

pub mod debs;
pub mod machine;
pub mod manager;
