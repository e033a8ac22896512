// SPDX-License-Identifier: Apache-2.0
//! The tests of the hw suite.

pub mod netem;
pub mod nic;
