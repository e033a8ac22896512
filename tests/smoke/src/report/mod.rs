// SPDX-License-Identifier: Apache-2.0
//! What a demonstration run found: as JSON, as a table, as plots.

pub mod plot;
pub mod progress;
pub mod reference;
pub mod summary;
pub mod table;
