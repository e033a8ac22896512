// SPDX-License-Identifier: Apache-2.0
//! Failures of X.509 certificates and keys.

use crate::failure::Failure;
use std::path::Path;

pub fn failed(why: impl std::fmt::Display) -> Failure {
    Failure::failed("certificate", why.to_string())
}

pub fn at(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    failed(format!("{}: {why}", path.display()))
}
