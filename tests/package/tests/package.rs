// SPDX-License-Identifier: Apache-2.0
//! The package suite: notifications to a service manager, units, packages, and Debian systems that
//! install, run, upgrade and remove them.
//!
//! A test that lacks a tool is skipped, and the last lines give the reason. In CI the tools of
//! `scripts/setup.sh package` must be present.

mod suite;

use std::process::ExitCode;

use package::machine::RELEASES;
use package::{debs, machine};
use smoke::binaries::{Binaries, Lack};
use smoke::suite::Timing::{Patient, RealTime};
use smoke::suite::{Form, Suite};

/// A test: its name, its needs, and the function.
type Test = (&'static str, fn() -> Result<(), Lack>, fn() -> anyhow::Result<()>);

/// Each test with its name, `file::test`.
macro_rules! tests {
    ($($needs:ident $file:ident::$test:ident),* $(,)?) => {
        &[$((
            concat!(stringify!($file), "::", stringify!($test)),
            $needs,
            suite::$file::$test,
        )),*]
    };
}

const TESTS: &[Test] = tests! {
    programs notify::dataplane_notifies_ready_and_stopping,
    tracing notify::stalled_worker_stops_watchdog_of_dataplane,
    programs notify::linkd_notifies_ready_and_stopping,
    tracing notify::stalled_runtime_stops_watchdog_of_linkd,
    programs notify::missing_manager_stops_no_daemon,
    packing debs::lintian_finds_no_error,
    packing debs::links_between_packed_pages_resolve,
    packing debs::same_programs_give_same_packages,
};

fn main() -> anyhow::Result<ExitCode> {
    let mut suite = Suite::new("package")?;
    for &(name, needs, test) in TESTS {
        suite.add(name, Form::Short, Patient, needs, test);
    }
    let image: &[(_, _, fn() -> _)] = &[
        (
            "image::same_packages_give_same_image",
            Patient,
            suite::image::same_packages_give_same_image,
        ),
        (
            "image::documented_commands_give_a_link",
            RealTime,
            suite::image::documented_commands_give_a_link,
        ),
    ];
    for &(name, timing, test) in image {
        suite.add(name, Form::Long, timing, suite::image::check, test);
    }
    // The long form tests the other releases.
    for (version, release) in RELEASES {
        let form = if release == machine::own() { Form::Short } else { Form::Long };
        let name = format!("system::debian_{version}_installs_runs_upgrades_and_purges");
        let needs = move || system(version, release);
        suite.add(name, form, RealTime, needs, move || suite::system::life(release));
    }
    let code = suite.run();
    suite::debs::forget();
    Ok(code)
}

fn programs() -> Result<(), Lack> {
    Binaries::find().map(drop)
}

/// Stopping threads of another process requires tracing it.
fn tracing() -> Result<(), Lack> {
    programs()?;
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "3" => Err(Lack::Permission("kernel.yama.ptrace_scope=3 forbids tracing".into())),
        _ => Ok(()),
    }
}

fn packing() -> Result<(), Lack> {
    debs::check().map(drop)
}

fn system(version: u32, release: &str) -> Result<(), Lack> {
    packing()?;
    // Programs need a C library that is at least as new as on the machine where they were built.
    let own = std::fs::read_to_string("/etc/debian_version").unwrap_or_default();
    if own.split('.').next().and_then(|v| v.trim().parse().ok()).is_some_and(|v: u32| v > version) {
        return Err(Lack::Permission(format!(
            "programs built on Debian {} do not run on {version}: build on the oldest one",
            own.trim()
        )));
    }
    machine::check(release)
}
