// SPDX-License-Identifier: Apache-2.0
//! What a run gave, for people.

pub mod plot;
pub mod table;
