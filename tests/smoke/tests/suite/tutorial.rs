// SPDX-License-Identifier: Apache-2.0
//! Runs the commands of docs/tutorial.md verbatim, in new mount, network and process namespaces, so
//! that the kernel removes everything at the end.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use pages::Kind;
use smoke::binaries::Binaries;
use smoke::cpus::Cpus;
use smoke::directory::Directory;
use smoke::process::{Outcome, run_in_session, words};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The commands take half a minute on an idle machine.
const LIMIT: Duration = Duration::from_secs(240);
/// Separates the outputs of two blocks.
const MARK: &str = "== block";
/// Its page has a bed of its own.
pub const TUTORIAL: &str = "docs/tutorial.md";
/// The script that starts and stops the bed, relative to the directory of [`in_namespaces`].
pub const BED: &str = "hw-configs/veth-dev/box.sh";

/// The blocks of commands that run, in order.
fn blocks() -> Vec<String> {
    pages::blocks()
        .into_iter()
        .filter(|block| block.page == TUTORIAL && block.kind() == Ok(Kind::Run { exit: 0 }))
        .map(|block| block.text)
        .collect()
}

/// Runs a script by `sh` with `options` in new namespaces, in a directory that has `hw-configs`.
pub fn in_namespaces(
    options: &str,
    script: &str,
    programs: Option<PathBuf>,
) -> anyhow::Result<Outcome> {
    let directory = Directory::new()?;
    symlink(fs::canonicalize(ROOT)?.join("hw-configs"), directory.path("hw-configs"))?;
    let found = Binaries::find().map_err(|lack| anyhow::anyhow!("{lack}"))?;
    let programs = match programs {
        Some(programs) => programs,
        None => fs::canonicalize(found.linkctl.parent().context("programs are in a directory")?)?,
    };
    let setup = "mount -t tmpfs tmpfs /run && mkdir /run/netns && mount -t sysfs sysfs /sys";
    let path = std::env::var("PATH")?;
    let mut command = words(&["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]);
    command
        .args(["--mount-proc", "sh", options, &format!("{setup} || exit; {script}")])
        .current_dir(directory.root())
        .env("PATH", format!("{}:{path}", programs.display()))
        .env_remove("LINKEMU_BIN")
        .env_remove("LINKEMU_SOCKET");
    Ok(run_in_session(command, LIMIT)?)
}

/// The round-trip times in the output of ping, in milliseconds.
fn round_trips(output: &str) -> Vec<f64> {
    let times = output.split("time=").skip(1);
    times.filter_map(|rest| rest.split_whitespace().next()?.parse().ok()).collect()
}

pub fn commands_run_as_documented(_: &Cpus) -> anyhow::Result<()> {
    let blocks = blocks();
    ensure!(blocks.len() > 10, "only {} blocks are run", blocks.len());
    let script: String = blocks.iter().map(|block| format!("echo '{MARK}'\n{block}")).collect();
    let after = format!("echo '{MARK}'; ls /run/netns; ps -e -o comm=");
    let outcome = in_namespaces("-euc", &format!("exec 2>&1\n{script}{after}"), None)?;
    let output = &outcome.stdout;
    ensure!(outcome.status.success(), "{}:\n{output}{}", outcome.status, outcome.stderr);
    let parts: Vec<&str> = output.split(MARK).skip(1).collect();
    let of = |command: &str| -> anyhow::Result<&str> {
        let block = blocks.iter().position(|block| block.contains(command));
        block.map(|i| parts[i]).with_context(|| format!("no block has {command}"))
    };

    let satellite = round_trips(of("set profile viasat2\n")?);
    ensure!(satellite.len() >= 5, "{output}");
    ensure!(satellite.iter().all(|ms| (550.0..3000.0).contains(ms)), "{satellite:?}");
    let changed = round_trips(of("set delay --rtt 50ms")?);
    ensure!(changed.iter().any(|ms| (50.0..100.0).contains(ms)), "{changed:?}");
    let accounts = of("linkctl stats\n")?;
    ensure!(accounts.contains("emulator drops"), "{accounts}");
    let capture = of("linkctl capture")?;
    ensure!(capture.contains("run.pcapng"), "{capture}");
    let mistakes = of("set rate fast")?;
    for remedy in ["viasat2", "150 % is above 100 %", "144 Mbit/s"] {
        ensure!(mistakes.contains(remedy), "{remedy}: {mistakes}");
    }
    let left = parts.last().context("the end")?;
    ensure!(!left.contains("lke-") && !left.contains("linkd"), "left behind: {left}");
    Ok(())
}

pub fn failed_start_is_rolled_back(_: &Cpus) -> anyhow::Result<()> {
    let programs = Directory::new()?;
    let found = Binaries::find().map_err(|lack| anyhow::anyhow!("{lack}"))?;
    symlink(fs::canonicalize(found.linkd)?, programs.path("linkd"))?;
    symlink(fs::canonicalize(found.linkctl)?, programs.path("linkctl"))?;
    symlink("/bin/false", programs.path("linkd-dataplane"))?;
    let script = format!("! {BED} start; ls /run /run/netns /sys/class/net; {BED} stop");
    let outcome = in_namespaces("-euc", &script, Some(programs.root().to_owned()))?;
    let (output, errors) = (&outcome.stdout, &outcome.stderr);
    ensure!(outcome.status.success(), "{output}{errors}");
    ensure!(errors.contains("linkd-dataplane has not started"), "{errors}");
    ensure!(!output.contains("lke-") && !output.contains("linkemu-veth-dev"), "{output}");
    ensure!(output.contains("There is no box to stop"), "{output}");
    Ok(())
}
