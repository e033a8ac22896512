// SPDX-License-Identifier: Apache-2.0
//! The tests, by what they are about.

pub mod debs;
pub mod notify;
pub mod system;
