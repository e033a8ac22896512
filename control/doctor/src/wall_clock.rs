// SPDX-License-Identifier: Apache-2.0
//! Whether the wall clock is synchronised, by adjtimex(2).

use crate::finding::Finding;
use std::io;

const CHECK: &str = "wall clock";

/// State of the clock from adjtimex(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sync {
    synchronised: bool,
    /// The greatest error, microseconds.
    error_us: i64,
}

pub fn check() -> Finding {
    judge(ask())
}

#[allow(unsafe_code, reason = "no safe wrapper of adjtimex is at hand")]
fn ask() -> io::Result<Sync> {
    // SAFETY: timex is a C struct of integers; zeros are valid, and ask for nothing to be set.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `timex` is valid for the duration of the call.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    let synchronised = state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0;
    Ok(Sync { synchronised, error_us: timex.maxerror })
}

fn judge(sync: io::Result<Sync>) -> Finding {
    let why = "instants of changes are given in UTC, and one-way delays compare two clocks";
    match sync {
        Ok(Sync { synchronised: true, error_us }) => {
            let ms = error_us as f64 / 1e3;
            Finding::ok(CHECK, format!("synchronised, to {ms:.1} ms or better"))
        }
        Ok(_) => Finding::warning(CHECK, "not synchronised", why, "timedatectl set-ntp true"),
        Err(error) => Finding::warning(
            CHECK,
            format!("not known: {error}"),
            why,
            "timedatectl timesync-status",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    #[test]
    fn unsynchronised_clock_is_reported() {
        let good = judge(Ok(Sync { synchronised: true, error_us: 1_500 }));
        assert_eq!(
            (good.level(), good.found.as_str()),
            (Level::Ok, "synchronised, to 1.5 ms or better")
        );
        let bad = judge(Ok(Sync { synchronised: false, error_us: 0 }));
        assert_eq!(
            (bad.level(), bad.remedy.as_str()),
            (Level::Warning, "timedatectl set-ntp true")
        );
        assert_eq!(judge(Err(io::Error::other("no"))).level(), Level::Warning);
    }

    #[test]
    fn the_kernel_answers() {
        let sync = ask().unwrap();
        assert!(sync.error_us >= 0);
    }
}
