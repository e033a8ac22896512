// SPDX-License-Identifier: Apache-2.0
//! A void test needs evidence: an emulator that is late by its own fault must fail.

use std::time::Duration;

use anyhow::bail;
use smoke::cpus::Cpus;
use smoke::suite::Timing::RealTime;
use smoke::suite::{Judged, judged};

use super::{SEED, emulator, on_bed, punctual};

const STILL: Duration = Duration::from_millis(300);
const STALL: Duration = Duration::from_millis(50);

/// A stopped process waits in no run queue. If the machine is busy, this test is void as well,
/// which is correct.
pub fn stopped_emulator_on_idle_machine_fails(cpus: &Cpus) -> anyhow::Result<()> {
    let stopped = || {
        on_bed(cpus, emulator(1), |bed| {
            let linkctl = bed.linkctl()?;
            linkctl.set_profile("geo-600", SEED)?;
            linkctl.mark()?;
            bed.pause_dataplane(STILL)?;
            punctual(&linkctl.stats()?, STALL)
        })
    };
    match judged(cpus, RealTime, stopped) {
        Judged::Failed(error) if format!("{error:#}").contains("stalled") => Ok(()),
        Judged::Failed(error) => Err(error),
        Judged::Passed(()) => bail!("the emulator does not report that it was stopped"),
        Judged::Void(reason) => bail!("judged void: {reason}"),
    }
}
