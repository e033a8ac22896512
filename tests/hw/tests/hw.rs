// SPDX-License-Identifier: Apache-2.0
//! The hw suite: the programs on DPDK's drivers for real NICs, emulated by QEMU behind an IOMMU,
//! and a comparison with the kernel's emulator, netem.
//!
//! A guest under software emulation takes seconds to boot and has no constant speed. So the tests
//! of a NIC share a boot, and no test asserts a time that is comparable to the overhead of the
//! emulation. The short form has one NIC, the long form the others and netem. The suite needs the
//! files that `scripts/setup.sh hw` unpacks. Without them, all tests are skipped.
#![allow(clippy::cast_precision_loss)]

mod suite;

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use hw::lab::Lab;
use hw::nic::Nic;
use hw::parts::Parts;
use smoke::binaries::{Binaries, Lack, check_machine};
use smoke::cpus::Cpus;
use smoke::suite::Timing::RealTime;
use smoke::suite::{Form, Judged, Suite, Void, judged, reported};

type Test = fn(&mut Lab, Nic) -> anyhow::Result<()>;
/// A test that boots its own guest.
type Alone = fn(&Parts) -> anyhow::Result<()>;

/// NIC of the short form. The others have the same tests in the long form.
const SHORT: Nic = Nic::Igb;

macro_rules! tests {
    ($file:ident: $($test:ident),* $(,)?) => {
        &[$((stringify!($test), suite::$file::$test)),*]
    };
}

const ON_EACH_NIC: &[(&str, Test)] = tests! {
    nic:
    dpdk_driver_has_both_ports,
    linkctl_box_takes_free_interfaces_only,
    transparent_link_carries_and_counts_download,
    satellite_link_has_round_trip_and_rate,
    profile_change_in_mid_run_loses_no_packet,
    jumbo_frames_and_vlan_tags_pass,
    link_resumes_after_cable_is_replugged,
    dataplane_prints_counters_and_linkctl_box_returns_nics,
};

const ALONE: &[(&str, Alone)] = tests! {
    netem:
    linkemu_compares_with_netem_in_virtual_time,
    hybla_opens_window_sooner_than_cubic,
};

/// A guest that has booted, or the reason why it has not.
enum Boot {
    Up(Box<Lab>),
    Void(String),
    Failed(String),
}

/// The guest of the current NIC, made by the first test and ended before the next NIC. The flag
/// tells if the last test in it passed.
static LAB: Mutex<Option<(Nic, Boot, bool)>> = Mutex::new(None);

fn main() -> anyhow::Result<ExitCode> {
    let mut suite = Suite::new("hw")?;
    let cpus = suite.cpus().clone();
    for nic in Nic::ALL {
        let form = if nic == SHORT { Form::Short } else { Form::Long };
        for &(name, test) in ON_EACH_NIC {
            let (name, cpus) = (format!("{}::{name}", nic.name()), cpus.clone());
            suite.add(name, form, RealTime, lacks, move || in_lab(&cpus, nic, test));
        }
    }
    for &(name, test) in ALONE {
        let name = format!("netem::{name}");
        suite.add(name, Form::Long, RealTime, lacks, move || {
            end_lab();
            test(&parts()?)
        });
    }
    let code = suite.run();
    end_lab();
    Ok(code)
}

fn lacks() -> Result<(), Lack> {
    check_machine()?;
    Binaries::find()?;
    Parts::find().map(drop)
}

fn parts() -> anyhow::Result<Parts> {
    Parts::find().map_err(|lack| anyhow::anyhow!("{lack:?}"))
}

fn in_lab(cpus: &Cpus, nic: Nic, test: Test) -> anyhow::Result<()> {
    let mut shared = LAB.lock().unwrap_or_else(PoisonError::into_inner);
    // A guest is in an unknown state after a failed test.
    let is_usable =
        |guest: &(Nic, Boot, bool)| guest.0 == nic && (guest.2 || !matches!(guest.1, Boot::Up(_)));
    if !shared.as_ref().is_some_and(is_usable) {
        *shared = None;
        *shared = Some((nic, boot(cpus, nic)?, true));
    }
    match shared.as_mut() {
        Some((_, Boot::Up(lab), passed)) => {
            *passed = false;
            test(lab, nic).map_err(|error| reported(&error, lab.report()))?;
            *passed = true;
            Ok(())
        }
        Some((_, Boot::Void(reason), _)) => Err(Void(reason.clone()).into()),
        Some((_, Boot::Failed(error), _)) => anyhow::bail!("{error}"),
        None => anyhow::bail!("there is no lab"),
    }
}

/// Boots a guest. Retries once if it did not boot on a starved machine.
fn boot(cpus: &Cpus, nic: Nic) -> anyhow::Result<Boot> {
    let parts = parts()?;
    let mut again = true;
    loop {
        match judged(cpus, RealTime, || Lab::new(&parts, nic)) {
            Judged::Passed(lab) => {
                let seconds = lab.booted().as_secs_f64();
                println!("    {}: kernel {} up in {seconds:.1} s", nic.name(), parts.kernel());
                return Ok(Boot::Up(Box::new(lab)));
            }
            Judged::Failed(error) => return Ok(Boot::Failed(format!("{error:#}"))),
            Judged::Void(reason) if again => println!("    VOID, repeated once: {reason}"),
            Judged::Void(reason) => return Ok(Boot::Void(reason)),
        }
        again = false;
    }
}

fn end_lab() {
    *LAB.lock().unwrap_or_else(PoisonError::into_inner) = None;
}
