// SPDX-License-Identifier: Apache-2.0
//! The hw suite: the programs on DPDK's drivers for real NICs, which QEMU emulates, behind an
//! IOMMU; and beside the kernel's own emulator, netem.
//!
//! A guest that is emulated in software takes seconds to boot and has no constant speed. So the
//! tests of a NIC share a boot, and none asserts a time that is not many times what the
//! emulation adds. What `scripts/setup.sh hw` unpacks is needed; without it all is skipped, and
//! the last lines say so.
#![allow(clippy::cast_precision_loss)]

mod suite;

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hw::lab::Lab;
use hw::nic::Nic;
use hw::parts::Parts;
use libtest_mimic::{Completion, Failed, Trial};
use smoke::binaries::{Binaries, Lack, check_machine, in_ci};
use smoke::suite::told;

/// A test in a lab.
type Test = fn(&mut Lab, Nic) -> anyhow::Result<()>;
/// A test that makes its own guest; those that take long are run only when asked for.
type Alone = fn(&Parts) -> anyhow::Result<()>;

#[rustfmt::skip]
const ON_EACH_NIC: &[(&str, Test)] = &[
    ("dpdk_s_own_driver_has_both_ports", suite::nic::dpdk_s_own_driver_has_both_ports),
    ("linkctl_box_has_taken_what_was_free_and_takes_nothing_else", suite::nic::linkctl_box_has_taken_what_was_free_and_takes_nothing_else),
    ("a_transparent_link_carries_a_download_and_counts_all_of_it", suite::nic::a_transparent_link_carries_a_download_and_counts_all_of_it),
    ("a_satellite_link_has_its_round_trip_and_its_rate", suite::nic::a_satellite_link_has_its_round_trip_and_its_rate),
    ("a_profile_changes_in_mid_run_and_no_packet_goes_astray", suite::nic::a_profile_changes_in_mid_run_and_no_packet_goes_astray),
    ("jumbo_frames_and_vlan_tags_pass", suite::nic::jumbo_frames_and_vlan_tags_pass),
    ("a_cable_that_is_pulled_and_plugged_in_again_carries_on", suite::nic::a_cable_that_is_pulled_and_plugged_in_again_carries_on),
    ("the_dataplane_ends_with_its_accounts_and_linkctl_box_gives_the_nics_back", suite::nic::the_dataplane_ends_with_its_accounts_and_linkctl_box_gives_the_nics_back),
];

#[rustfmt::skip]
const ALONE: &[(&str, Alone, bool)] = &[
    ("netem::linkemu_beside_netem_in_virtual_time", suite::netem::linkemu_beside_netem_in_virtual_time, false),
    ("netem::hybla_opens_its_window_sooner_than_cubic", suite::netem::hybla_opens_its_window_sooner_than_cubic, false),
];

/// The lab of the NIC whose tests run: made by the first of them, ended before another.
static LAB: Mutex<Option<(Nic, Result<Lab, String>)>> = Mutex::new(None);

fn main() -> anyhow::Result<ExitCode> {
    // Those of a NIC share a guest.
    let arguments = smoke::suite::arguments()?;
    let begin = Instant::now();
    let found = check_machine().and_then(|()| Binaries::find()).and_then(|_| Parts::find());
    let (parts, skipped) = match found {
        // In CI what setup.sh unpacks is not to be missing.
        Err(Lack::Part(reason)) if in_ci() => {
            eprintln!("{reason}");
            return Ok(ExitCode::FAILURE);
        }
        Err(Lack::Part(reason) | Lack::Permission(reason)) => (None, Some(reason)),
        Ok(parts) => (Some(parts), None),
    };
    let mut trials = Vec::new();
    for nic in Nic::ALL {
        for &(name, test) in ON_EACH_NIC {
            let (parts, skipped) = (parts.clone(), skipped.clone());
            trials.push(Trial::ignorable_test(format!("{}::{name}", nic.name()), move || {
                let Some(parts) = parts else { return Ok(left_out(skipped)) };
                in_lab(&parts, nic, test)
            }));
        }
    }
    for &(name, test, always) in ALONE {
        let (parts, skipped) = (parts.clone(), skipped.clone());
        let trial = Trial::ignorable_test(name, move || {
            let Some(parts) = parts else { return Ok(left_out(skipped)) };
            end_lab();
            told(test(&parts))
        });
        trials.push(trial.with_ignored_flag(!always));
    }
    let count = trials.len();
    let conclusion = libtest_mimic::run(&arguments, trials);
    end_lab();
    match skipped {
        Some(reason) => eprintln!("SKIPPED: hw, all {count} tests: {reason}"),
        None => eprintln!(
            "hw: {} of {count} tests ran in {:.0} s; kernel {}; not run: {} (those against netem and \
             of Hybla are run by `make hw HW_ARGS=--ignored`)",
            conclusion.num_passed + conclusion.num_failed,
            begin.elapsed().as_secs_f64(),
            parts.as_ref().map_or("", Parts::kernel),
            conclusion.num_ignored + conclusion.num_filtered_out,
        ),
    }
    Ok(conclusion.exit_code())
}

fn left_out(reason: Option<String>) -> Completion {
    Completion::ignored_with(reason.unwrap_or_default())
}

fn in_lab(parts: &Parts, nic: Nic, test: Test) -> Result<Completion, Failed> {
    let mut shared = LAB.lock().unwrap_or_else(PoisonError::into_inner);
    if shared.as_ref().is_none_or(|(of, _)| *of != nic) {
        *shared = None;
        let lab = Lab::new(parts, nic).map_err(|e| format!("{e:#}"));
        if let Ok(lab) = &lab {
            eprintln!("{}: the guest was up in {:.1} s", nic.name(), lab.booted().as_secs_f64());
        }
        *shared = Some((nic, lab));
    }
    match shared.as_mut() {
        Some((_, Ok(lab))) => told(test(lab, nic).map_err(|e| {
            let report = lab.report();
            e.context(report)
        })),
        Some((_, Err(error))) => Err(error.clone().into()),
        None => Err("there is no lab".into()),
    }
}

fn end_lab() {
    *LAB.lock().unwrap_or_else(PoisonError::into_inner) = None;
}
