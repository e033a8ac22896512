// SPDX-License-Identifier: Apache-2.0
//! The limit of open files of this process, RLIMIT_NOFILE (getrlimit(2)).
//!
//! Parts of the async runtime panic if they cannot open a file, so a program checks the limit before it starts
//! one.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Files that a program may need to have open at once: sockets, connections, rings, and files of its state.
pub const LEAST: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilesError {
    #[error(
        "this process may open {limit} files, and needs {LEAST}: raise the limit (`ulimit -n 1024`, or \
         LimitNOFILE=1024 of its service)"
    )]
    Low { limit: u64 },
    #[error("cannot read the limit of open files: {0}")]
    Unknown(#[from] Errno),
}

/// Checks that this process may open [`LEAST`] files. Raises the soft limit as far as the hard one allows, up
/// to that many; children inherit it.
///
/// # Errors
/// If it may not.
pub fn ensure() -> Result<(), FilesError> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let raised = raised(soft, hard)?;
    if raised > soft {
        setrlimit(Resource::RLIMIT_NOFILE, raised, hard)?;
    }
    Ok(())
}

/// The soft limit that a process needs.
fn raised(soft: u64, hard: u64) -> Result<u64, FilesError> {
    if hard < LEAST { Err(FilesError::Low { limit: hard }) } else { Ok(soft.max(LEAST)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limit_is_raised_as_far_as_needed_and_no_further() {
        assert_eq!(raised(1024, 524_288), Ok(1024));
        assert_eq!(raised(20, 1024), Ok(LEAST));
        assert_eq!(raised(u64::MAX, u64::MAX), Ok(u64::MAX));
    }

    #[test]
    fn low_hard_limit_is_refused_with_limit_and_remedy() {
        let refused = raised(20, 20).unwrap_err().to_string();
        for part in ["may open 20 files", "needs 256", "ulimit -n 1024", "LimitNOFILE"] {
            assert!(refused.contains(part), "{refused}");
        }
    }
}
