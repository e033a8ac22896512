// SPDX-License-Identifier: Apache-2.0
//! The container image, made of the packages and run as docs/containers.md says.

use std::fs;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use package::debs::{on_path, repository};
use smoke::binaries::Lack;
use smoke::directory::Directory;
use smoke::process::{Outcome, run, words};

use super::debs::share;

/// Packages come from the mirror.
const MADE_WITHIN: Duration = Duration::from_secs(300);
const RUN_WITHIN: Duration = Duration::from_secs(120);

/// Whether images can be made and run here.
pub fn check() -> Result<(), Lack> {
    package::debs::check()?;
    match ["mmdebstrap", "umoci", "runc", "jq"].into_iter().find(|tool| !on_path(tool)) {
        None => Ok(()),
        Some(tool) => Err(Lack::Part(format!("there is no `{tool}`: run scripts/setup.sh image"))),
    }
}

fn make(out: &Directory) -> anyhow::Result<()> {
    let mut command = words(&["sh"]);
    command.arg(repository().join("scripts/image.sh")).arg(share()?.join("1")).arg(out.root());
    run(command, MADE_WITHIN)?.success()?;
    Ok(())
}

/// The commands of the page, block by block.
fn documented() -> Vec<String> {
    let blocks = pages::blocks().into_iter();
    let ours = blocks.filter(|block| block.kind() == Ok(pages::Kind::Test("image".into())));
    ours.map(|block| block.text).collect()
}

/// Runs commands in `out`; with `-e` among the options the first failure ends them.
fn shell(options: &str, commands: &str, out: &Directory) -> anyhow::Result<Outcome> {
    let mut command = words(&["sh", options, commands]);
    command.current_dir(out.root());
    Ok(run(command, RUN_WITHIN)?)
}

pub fn documented_commands_give_a_link() -> anyhow::Result<()> {
    let image = Directory::new()?;
    make(&image)?;
    let blocks = documented();
    let [start, end] = blocks.as_slice() else { bail!("{} blocks of commands", blocks.len()) };
    let started = shell("-euc", start, &image).and_then(|outcome| Ok(outcome.success()?));
    let ended = shell("-euc", end, &image).and_then(|outcome| Ok(outcome.success()?));
    if ended.is_err() {
        // What there is, is removed.
        shell("-uc", end, &image)?;
    }
    let log = fs::read_to_string(image.path("box.log")).unwrap_or_default();
    let said = started.with_context(|| format!("the box said: {log}"))?;
    ended?;
    ensure!(said.contains("5 received, 0% packet loss"), "{said}");
    let least = said.split("rtt min/avg/max/mdev = ").nth(1).and_then(|r| r.split('/').next());
    let least: f64 = least.context("no round-trip times")?.parse()?;
    ensure!(least > 580.0, "a round trip of {least} ms");
    ensure!(said.contains("conservation: exact"), "{said}");
    ensure!(said.contains("PASS"), "{said}");
    Ok(())
}

pub fn same_packages_give_same_image() -> anyhow::Result<()> {
    let [first, second] = [Directory::new()?, Directory::new()?];
    for out in [&first, &second] {
        make(out)?;
    }
    let [a, b] = [&first, &second].map(|out| fs::read(out.path("linkemu.tar")));
    ensure!(a? == b?, "the image is another file each time");
    Ok(())
}
