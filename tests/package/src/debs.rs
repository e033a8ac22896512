// SPDX-License-Identifier: Apache-2.0
//! The packages under test, packed by `scripts/deb.sh` from the programs under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use smoke::binaries::{Binaries, Lack};
use smoke::process::run;

/// Packing takes seconds; stripping large programs on a busy machine, more.
const PACKED_WITHIN: Duration = Duration::from_secs(240);

/// The repository.
#[must_use]
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    here.canonicalize().unwrap_or(here)
}

/// Whether packages can be packed here.
///
/// # Errors
/// What is missing.
pub fn check() -> Result<Binaries, Lack> {
    for (tool, package) in [("dh", "debhelper"), ("lintian", "lintian"), ("objcopy", "binutils")] {
        if !on_path(tool) {
            return Err(Lack::Part(format!(
                "there is no `{tool}`: apt-get install {package}, or run scripts/setup.sh package"
            )));
        }
    }
    Binaries::find()
}

/// Whether there is such a tool.
#[must_use]
pub fn on_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|d| d.join(tool).is_file())
}

/// Packs the programs in `programs` as `version`, into `out`.
///
/// # Errors
/// If that fails.
pub fn pack(programs: &Path, version: &str, out: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(repository().join("scripts/deb.sh"));
    command.arg(out).arg(version).env("LINKEMU_BIN", programs).env("LINKEMU_DEB_LEVEL", "0");
    run(command, PACKED_WITHIN)?.success().map(drop).context("packing")
}

/// A directory with the programs under test, of which the dataplane is another file than
/// `programs` has, as a later version would be.
///
/// # Errors
/// If the system refuses it.
pub fn later(programs: &Binaries, directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)?;
    let Binaries { dataplane, linkd, linkctl } = programs;
    for (from, name) in [(linkd, "linkd"), (linkctl, "linkctl")] {
        std::fs::copy(from, directory.join(name))?;
    }
    let note = directory.join("note");
    std::fs::write(&note, "later\n")?;
    let mut command = Command::new("objcopy");
    command.arg("--add-section").arg(format!(".linkemu.later={}", note.display()));
    command.arg(dataplane).arg(directory.join("linkd-dataplane"));
    run(command, PACKED_WITHIN)?.success().map(drop).context("objcopy")
}
