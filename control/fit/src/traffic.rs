// SPDX-License-Identifier: Apache-2.0
//! Calibration from TCP traffic: bulk flows tell what pings leave open.

pub mod flow;
mod path;
pub mod tcp;
