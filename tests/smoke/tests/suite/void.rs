// SPDX-License-Identifier: Apache-2.0
//! A void test needs evidence: an emulator that is late by itself has to fail.

use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use smoke::cpus::Cpus;
use smoke::suite::Timing::RealTime;
use smoke::suite::{Judged, judged};

use super::{SEED, emulator, on_bed, punctual};

const STILL: Duration = Duration::from_millis(300);
const STALL: Duration = Duration::from_millis(50);

/// A stopped process waits in no run queue. That this very test is void where the machine is busy
/// is right: then nothing can be told.
pub fn emulator_stopped_on_an_idle_machine_fails(cpus: &Cpus) -> anyhow::Result<()> {
    let stopped = || {
        on_bed(cpus, emulator(1), |bed| {
            let linkctl = bed.linkctl()?;
            linkctl.set_profile("geo-600", SEED)?;
            linkctl.mark()?;
            let dataplane = bed.dataplane_pid().context("the dataplane does not run")?;
            let dataplane = Pid::from_raw(dataplane.cast_signed());
            kill(dataplane, Signal::SIGSTOP)?;
            std::thread::sleep(STILL);
            kill(dataplane, Signal::SIGCONT)?;
            punctual(&linkctl.stats()?, STALL)
        })
    };
    match judged(cpus, RealTime, stopped) {
        Judged::Failed(error) if format!("{error:#}").contains("stood still") => Ok(()),
        Judged::Failed(error) => Err(error),
        Judged::Passed(()) => bail!("the emulator does not report that it was stopped"),
        Judged::Void(reason) => bail!("judged void: {reason}"),
    }
}
