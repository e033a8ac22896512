// SPDX-License-Identifier: Apache-2.0
//! Whether this machine has its processors for the suite alone: only then does a floor of
//! throughput say something of the programs.

use std::fs;
use std::time::Instant;

use anyhow::ensure;

/// Processors that others may keep busy, of all together: the kernel's own work for the hosts
/// is among it.
const OTHERS: f64 = 0.4;
/// Of /proc/stat and /proc/PID/stat; Linux shows all programs hundredths of a second.
const TICKS_PER_S: f64 = 100.0;

/// A span of time in which it is watched.
#[derive(Debug)]
pub struct Quiet {
    busy: f64,
    own: f64,
    begin: Instant,
}

impl Quiet {
    /// Begins.
    pub fn begin() -> Self {
        Self { busy: busy_s(), own: own_s(), begin: Instant::now() }
    }

    /// Asserts the floor; or, where others had the processors, that anything came at all.
    ///
    /// # Errors
    /// If it was not reached.
    pub fn floor(self, mbps: f64, floor: f64) -> anyhow::Result<()> {
        let others = (busy_s() - self.busy) - (own_s() - self.own);
        let others = others / self.begin.elapsed().as_secs_f64();
        if others > OTHERS {
            eprintln!("SKIPPED: a floor of {floor} Mb/s: others keep {others:.1} processors busy");
            ensure!(mbps > 1.0, "{mbps} Mb/s");
            return Ok(());
        }
        ensure!(mbps >= floor, "{mbps} Mb/s, less than {floor}, on a quiet machine");
        Ok(())
    }
}

/// What all processors have worked.
fn busy_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = stat.lines().next().unwrap_or_default();
    let numbers: Vec<f64> = all.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let idle: f64 = numbers.iter().skip(3).take(2).sum();
    (numbers.iter().take(8).sum::<f64>() - idle) / TICKS_PER_S
}

/// What this process and its children have worked, also those that have ended.
fn own_s() -> f64 {
    let own = std::process::id().to_string();
    let mut ticks = 0.0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name in brackets may contain anything; the state follows it.
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let parent = fields.get(1).copied().unwrap_or_default();
        let number = |at: usize| fields.get(at).and_then(|f| f.parse().ok()).unwrap_or(0.0);
        if name == own {
            ticks += (11..15).map(number).sum::<f64>();
        } else if parent == own {
            ticks += number(11) + number(12);
        }
    }
    ticks / TICKS_PER_S
}
