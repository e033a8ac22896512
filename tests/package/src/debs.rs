// SPDX-License-Identifier: Apache-2.0
//! The packages under test, built by `scripts/deb.sh` from the programs under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use smoke::binaries::{Binaries, Lack};
use smoke::process::{run, words};

/// Packing takes seconds, or more to strip large programs on a busy machine.
const PACKED_WITHIN: Duration = Duration::from_secs(240);

#[must_use]
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    here.canonicalize().unwrap_or(here)
}

/// Whether packages can be packed here.
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

#[must_use]
pub fn on_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|d| d.join(tool).is_file())
}

/// Packs the programs in `programs` as `version`, into `out`.
pub fn pack(programs: &Path, version: &str, out: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(repository().join("scripts/deb.sh"));
    command.arg(out).arg(version).env("LINKEMU_BIN", programs).env("LINKEMU_DEB_LEVEL", "0");
    run(command, PACKED_WITHIN)?.success().map(drop).context("packing")
}

/// Makes packages of a later version from those in `packages`, into `out`. They differ in the
/// version and in the file of the dataplane. Packing again would take longer.
pub fn later(packages: &Path, version: &str, out: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(out)?;
    let note = out.join("note");
    std::fs::write(&note, "later\n")?;
    for package in ["linkctl", "linkemu"] {
        let tree = out.join(package);
        let mut unpack = words(&["dpkg-deb", "--raw-extract"]);
        unpack.arg(found(packages, package)?).arg(&tree);
        run(unpack, PACKED_WITHIN)?.success().context("dpkg-deb")?;
        let control = tree.join("DEBIAN/control");
        let fields = std::fs::read_to_string(&control)?;
        let was = fields.lines().find_map(|line| line.strip_prefix("Version: "));
        let was = was.context("a package without a version")?;
        let changed = |form: [&str; 2]| [form[0], version, form[1]].concat();
        let mut fields = fields.clone();
        // Its version, and the version of the package on which it depends.
        for form in [["Version: ", "\n"], ["(= ", ")"]] {
            fields = fields.replace(&[form[0], was, form[1]].concat(), &changed(form));
        }
        std::fs::write(&control, fields)?;
        let dataplane = tree.join("usr/sbin/linkd-dataplane");
        if dataplane.is_file() {
            let mut change = words(&["objcopy", "--add-section"]);
            change.arg(format!(".linkemu.later={}", note.display())).arg(&dataplane);
            run(change, PACKED_WITHIN)?.success().context("objcopy")?;
        }
        let mut pack = words(&["dpkg-deb", "-Znone", "--root-owner-group", "--build"]);
        pack.arg(&tree).arg(out);
        run(pack, PACKED_WITHIN)?.success().context("dpkg-deb")?;
        std::fs::remove_dir_all(&tree)?;
    }
    Ok(std::fs::remove_file(note)?)
}

fn found(directory: &Path, package: &str) -> anyhow::Result<PathBuf> {
    let prefix = format!("{package}_");
    let mut files = std::fs::read_dir(directory)?.filter_map(|e| Some(e.ok()?.path()));
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&prefix) && name.ends_with(".deb")
    };
    files.find(is_it).with_context(|| format!("no package {package} in {}", directory.display()))
}
