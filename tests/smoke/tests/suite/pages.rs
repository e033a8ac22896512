// SPDX-License-Identifier: Apache-2.0
//! Runs the commands of the documentation verbatim, page by page in order, each page in its own
//! namespaces with the box and the hosts of `hw-configs/veth-dev`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::thread;

use anyhow::{bail, ensure};
use pages::{Block, Kind};
use smoke::cpus::Cpus;

use super::tutorial::{BED, TUTORIAL, in_namespaces};

/// Programs of the reader's own, which succeed here.
const STUBS: [&str; 1] = ["pytest"];
/// Precedes the number of a block, and its exit status.
const MARK: &str = "== block";

/// The blocks of each page that has commands for the common bed.
fn pages_with_commands() -> BTreeMap<String, Vec<Block>> {
    let mut found: BTreeMap<String, Vec<Block>> = BTreeMap::new();
    for block in pages::blocks().into_iter().filter(|block| block.page != TUTORIAL) {
        found.entry(block.page.clone()).or_default().push(block);
    }
    found.retain(|_, blocks| blocks.iter().any(|b| matches!(b.kind(), Ok(Kind::Run { .. }))));
    found
}

/// A script with the files and commands of a page. Each block is a subshell that ends at the first
/// failure, and the script ends after a block whose status is not the stated one.
fn script(blocks: &[Block]) -> anyhow::Result<String> {
    let mut text = "exec 2>&1\nmkdir stubs\n".to_owned();
    for stub in STUBS {
        writeln!(text, "printf '#!/bin/sh\\n' >stubs/{stub}\nchmod +x stubs/{stub}")?;
    }
    writeln!(
        text,
        "PATH=$PWD/stubs:$PATH\n{BED} start >start.log || {{ cat start.log; exit 1; }}"
    )?;
    writeln!(text, "trap '{BED} stop' EXIT")?;
    for block in blocks {
        match block.kind().map_err(anyhow::Error::msg)? {
            Kind::File { name: Some(name), .. } => {
                writeln!(text, "cat >{name} <<'END OF FILE'\n{}END OF FILE", block.text)?;
            }
            Kind::Run { exit } => writeln!(
                text,
                "echo '{MARK}' {}\n(set -eux\n{})\nstatus=$?\n[ $status = {exit} ] || {{ \
                 echo '{}:' \"exit status $status, expected {exit}\"; exit 1; }}",
                block.line,
                block.text,
                block.place(),
            )?,
            _ => {}
        }
    }
    Ok(text)
}

/// Runs the commands of a page.
fn check(page: &str, blocks: &[Block]) -> anyhow::Result<()> {
    let outcome = in_namespaces("-uc", &script(blocks)?, None)?;
    let output = &outcome.stdout;
    ensure!(outcome.status.success(), "{page}: {}:\n{output}{}", outcome.status, outcome.stderr);
    let run = blocks.iter().filter(|block| matches!(block.kind(), Ok(Kind::Run { .. }))).count();
    let marks = output.matches(MARK).count();
    ensure!(marks == run, "{page}: {marks} of {run} blocks have run:\n{output}");
    Ok(())
}

pub fn commands_run_as_documented(_: &Cpus) -> anyhow::Result<()> {
    let pages = pages_with_commands();
    ensure!(pages.len() >= 4, "only {} pages have commands that run", pages.len());
    let failures: Vec<String> = thread::scope(|scope| {
        let check = |(page, blocks)| scope.spawn(move || check(page, blocks));
        let running: Vec<_> =
            pages.iter().map(|(page, blocks)| check((page.as_str(), blocks.as_slice()))).collect();
        running
            .into_iter()
            .filter_map(|thread| match thread.join() {
                Ok(result) => result.err().map(|error| format!("{error:#}")),
                Err(_) => Some("the test of a page panicked".to_owned()),
            })
            .collect()
    });
    if !failures.is_empty() {
        bail!("{}", failures.join("\n\n"));
    }
    Ok(())
}
