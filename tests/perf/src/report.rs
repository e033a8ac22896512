// SPDX-License-Identifier: Apache-2.0
//! The report of a run for people.

pub mod plot;
pub mod table;
