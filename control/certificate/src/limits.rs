// SPDX-License-Identifier: Apache-2.0
//! Limits of the criteria, and the reason for each.

use proto::linkemu::v1::{GetCertificateRequest, Tolerance};

/// Default limits, where they do not follow from the link. A run without packets shows nothing.
pub const PACKETS_SENT: u64 = 1;
pub const EMULATOR_DROPS: u64 = 0;
/// Memory is allocated in segments: above this limit it was practically full.
pub const MEMORY_PERCENT: u32 = 99;

/// The limits of one run.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub packets: u64,
    pub emulator_drops: u64,
    pub lateness_p99_ns: u64,
    lateness_reason: String,
    pub stall_ns: u64,
    stall_reason: String,
    pub memory_percent: u32,
    pub changes: Option<u64>,
}

impl Chosen {
    /// `tolerance` is that of the strictest link of the run. An older dataplane reports none.
    pub fn new(limits: &GetCertificateRequest, tolerance: Option<&Tolerance>) -> Self {
        let strict = profile::strict_tolerance;
        let derived = match tolerance {
            _ if limits.strict => strict("the strict limit, as requested"),
            Some(tolerance) => tolerance.clone(),
            None => strict("the strict limit: the dataplane does not tell what the link tolerates"),
        };
        let given = |limit: Option<u64>, ns, reason| match limit {
            Some(ns) => (ns, "as requested".to_owned()),
            None => (ns, reason),
        };
        let (lateness_p99_ns, lateness_reason) =
            given(limits.lateness_p99_ns, derived.lateness_ns, derived.lateness_reason);
        let (stall_ns, stall_reason) =
            given(limits.stall_ns, derived.stall_ns, derived.stall_reason);
        Self {
            packets: limits.packets.unwrap_or(PACKETS_SENT),
            emulator_drops: limits.emulator_drops.unwrap_or(EMULATOR_DROPS),
            lateness_p99_ns,
            lateness_reason,
            stall_ns,
            stall_reason,
            memory_percent: limits.memory_percent.unwrap_or(MEMORY_PERCENT),
            changes: limits.changes,
        }
    }

    /// Why a criterion has its limit.
    pub fn reason(&self, criterion: &str) -> &str {
        match criterion {
            "packets" => "a run without packets shows nothing",
            "emulator_drops" => "the link loses packets by its profile, the emulator none",
            "lateness_p99" | "switch_excess_p99" => &self.lateness_reason,
            "lateness_max" | "stall" | "switch_excess_max" | "switch_stall" => &self.stall_reason,
            "memory" => "a worker without memory drops packets",
            "conservation" => "every packet is counted once",
            "port_faults" => "a port with a fault loses packets without a count",
            "unplaced" => "clients without a slot share one link",
            "switch_gaps" | "boxes" => "counts of a part of the run may be missing",
            "switch_to_box" | "switch_from_box" | "switch_to_hosts" | "switch_drops" => {
                "the link loses packets by its profile, the switch none"
            }
            "switch_entries" => "a changed entry sends packets another way",
            "switch_early" => "no packet is earlier than the link allows",
            "changes" => "as requested",
            _ => "",
        }
    }
}
