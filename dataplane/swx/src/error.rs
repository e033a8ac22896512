// SPDX-License-Identifier: Apache-2.0
//! Reasons why a pipeline cannot be built or changed.

/// An error of this crate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The specification has a fault in this line, from 1.
    #[error("line {line} of the specification: {reason}")]
    Spec { line: u32, reason: String },
    /// The specification is well-formed and SWX does not accept it.
    #[error("SWX does not accept the specification: {0}")]
    Refused(String),
    /// There is no table, action or register array with this name.
    #[error("the pipeline has no {kind} `{name}`")]
    Missing { kind: &'static str, name: String },
    /// An entry does not fit its table.
    #[error("table `{table}`: {reason}")]
    Entry { table: String, reason: String },
    /// SWX returned this error number.
    #[error("SWX: {action}: {reason}")]
    Call { action: String, reason: String },
}

/// Fails if a call returned an error number, with or without its sign.
pub(crate) fn check(ret: i32, action: impl FnOnce() -> String) -> Result<(), Error> {
    if ret == 0 {
        return Ok(());
    }
    let reason = std::io::Error::from_raw_os_error(ret.abs()).to_string();
    Err(Error::Call { action: action(), reason })
}
