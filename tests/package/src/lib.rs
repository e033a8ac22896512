// SPDX-License-Identifier: Apache-2.0
//! The packages' test bed: packages that are packed for it, Debian systems that are booted, and
//! the service manager's side of a daemon's notifications.
//!
//! `scripts/setup.sh package` installs what it takes. What is missing is said by
//! [`smoke::binaries::Lack`].

pub mod debs;
pub mod machine;
pub mod manager;
