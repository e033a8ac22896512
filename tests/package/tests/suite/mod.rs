// SPDX-License-Identifier: Apache-2.0
//! The tests, by subject.

pub mod debs;
pub mod image;
pub mod notify;
pub mod system;
