// SPDX-License-Identifier: Apache-2.0
//! Results of a demonstration: as JSON, as a table, as plots.

pub mod plot;
pub mod progress;
pub mod reference;
pub mod summary;
pub mod table;
