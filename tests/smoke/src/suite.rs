// SPDX-License-Identifier: Apache-2.0
//! What the suites' programs have in common: one test after another, and what a failure is and
//! what a test that was left out.

use libtest_mimic::{Arguments, Completion, Failed};

use crate::binaries::{Lack, in_ci};
use crate::estate;

/// The arguments of a suite whose tests share the machine, and have it to themselves; what they
/// made is removed also when a signal ends it.
///
/// # Errors
/// If no signal can be waited for.
pub fn arguments() -> anyhow::Result<Arguments> {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    estate::watch_signals()?;
    Ok(arguments)
}

/// A test's end, in libtest's words.
///
/// # Errors
/// If it failed.
pub fn told(done: anyhow::Result<()>) -> Result<Completion, Failed> {
    match done {
        Ok(()) => Ok(Completion::Completed),
        Err(error) => Err(format!("{error:#}").into()),
    }
}

/// The end of a test for which something is lacking.
///
/// # Errors
/// In CI, where a part that the set-up installs is not to be missing.
pub fn lacking(lack: Lack) -> Result<Completion, Failed> {
    match lack {
        Lack::Part(reason) if in_ci() => Err(reason.into()),
        Lack::Part(reason) | Lack::Permission(reason) => Ok(Completion::ignored_with(reason)),
    }
}
