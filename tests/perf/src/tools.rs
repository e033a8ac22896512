// SPDX-License-Identifier: Apache-2.0
//! What counts of instructions depend on besides the code.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::instructions::{CallgrindError, valgrind};

/// Features of the processor that callgrind's emulated one takes over (VEX, `CPUID_avx2`). Libraries
/// choose their code by them: of the C library `memcpy`, of `chacha20` the vectors.
const FEATURES: [&str; 4] = ["avx2", "f16c", "rdrand", "rdseed"];

/// The tools of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tools {
    /// Of this program and of the measured one.
    pub rustc: String,
    pub valgrind: String,
    /// The system with DPDK and the C library.
    pub system: String,
    /// Features of the emulated processor.
    pub cpu: String,
}

impl Tools {
    /// Those of this machine.
    ///
    /// # Errors
    /// If there is no valgrind.
    pub fn here() -> Result<Self, CallgrindError> {
        let valgrind = valgrind().arg("--version").output();
        let valgrind = valgrind.map_err(|_| CallgrindError::Missing)?;
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let name = release.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Ok(Self {
            rustc: env!("PERF_RUSTC").to_owned(),
            valgrind: String::from_utf8_lossy(&valgrind.stdout).trim().to_owned(),
            system: name.unwrap_or("unknown").trim_matches('"').to_owned(),
            cpu: features(&cpuinfo),
        })
    }

    /// What differs from `other`, as a clause for each tool; empty if nothing does.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let pairs = |t: &Self| [&t.rustc, &t.valgrind, &t.system, &t.cpu].map(Clone::clone);
        let both = pairs(self).into_iter().zip(pairs(other));
        both.filter(|(a, b)| a != b).map(|(a, b)| format!("`{a}` here, `{b}` there")).collect()
    }
}

fn features(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|l| l.starts_with("flags")).unwrap_or_default();
    let has = |feature: &&str| line.split_whitespace().any(|word| word == *feature);
    FEATURES.into_iter().filter(has).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_features_that_are_passed_on_count() {
        assert_eq!(features("flags\t\t: fpu avx2 avx512f f16c rdrandx\n"), "avx2 f16c");
        assert_eq!(features(""), "");
    }
}
