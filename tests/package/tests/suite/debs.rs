// SPDX-License-Identifier: Apache-2.0
//! The packages as files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use package::debs::{later, pack};
use smoke::binaries::{Binaries, Lack};
use smoke::directory::Directory;
use smoke::process::{run, words};

const LOOKED_WITHIN: Duration = Duration::from_secs(240);

/// The directory of the programs under test.
pub fn programs() -> anyhow::Result<PathBuf> {
    let programs = Binaries::find()
        .map_err(|(Lack::Part(reason) | Lack::Permission(reason))| anyhow::anyhow!("{reason}"))?;
    let directory = programs.linkd.parent().context("the programs are in no directory")?;
    Ok(directory.canonicalize()?)
}

fn packages(directory: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut packages = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "deb") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            packages.insert(name, fs::read(&path)?);
        }
    }
    Ok(packages)
}

static SHARE: Mutex<Option<Directory>> = Mutex::new(None);

/// The packages under test, in `1`, and those of a later version, in `2`. They are built once.
pub fn share() -> anyhow::Result<PathBuf> {
    let mut kept = SHARE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(share) = &*kept {
        return Ok(share.root().to_owned());
    }
    let programs = programs()?;
    let share = Directory::new()?;
    pack(&programs, "0.1.0", &share.path("1"))?;
    later(&share.path("1"), "0.1.1", &share.path("2"))?;
    Ok(kept.insert(share).root().to_owned())
}

/// Removes them, because a static is never dropped.
pub fn forget() {
    drop(SHARE.lock().unwrap_or_else(PoisonError::into_inner).take());
}

pub fn lintian_finds_no_error() -> anyhow::Result<()> {
    let directory = share()?.join("1");
    let names: Vec<_> = packages(&directory)?.into_keys().collect();
    ensure!(names == ["linkctl_0.1.0_amd64.deb", "linkemu_0.1.0_amd64.deb"], "{names:?}");
    let mut command = words(&["lintian", "--fail-on", "error,warning", "--allow-root", "--no-cfg"]);
    command.arg(directory.join("linkemu_0.1.0_amd64.changes"));
    run(command, LOOKED_WITHIN)?.success()?;
    Ok(())
}

pub fn links_between_packed_pages_resolve() -> anyhow::Result<()> {
    let unpacked = Directory::new()?;
    for name in packages(&share()?.join("1"))?.keys() {
        let mut command = words(&["dpkg-deb", "--extract"]);
        command.arg(share()?.join("1").join(name)).arg(unpacked.root());
        run(command, LOOKED_WITHIN)?.success()?;
    }
    let docs = unpacked.path("usr/share/doc/linkemu");
    let mut links = 0;
    for page in fs::read_dir(&docs)?.chain(fs::read_dir(docs.join("adr"))?) {
        let page = page?.path();
        if page.extension().is_none_or(|end| end != "md") {
            continue;
        }
        let text = fs::read_to_string(&page)?;
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            if !link.is_empty() && !link.contains("://") {
                let to = page.parent().context("a page is in a directory")?.join(link);
                ensure!(to.exists(), "{} links to {link}", page.display());
                links += 1;
            }
        }
    }
    ensure!(links > 50, "{links} links");
    for page in ["profile", "scenario", "clients", "box"] {
        let page = unpacked.path(&format!("usr/share/man/man5/linkemu-{page}.5.gz"));
        ensure!(page.is_file(), "there is no {}", page.display());
    }
    let client = unpacked.path("usr/share/linkemu/python/linkemu-0.1.0.tar.gz");
    let mut command = words(&["tar", "-tzf"]);
    command.arg(client);
    let files = run(command, LOOKED_WITHIN)?.success()?;
    for file in ["pyproject.toml", "src/linkemu/__init__.py", "proto/linkemu/v1/linkemu.proto"] {
        ensure!(files.contains(&format!("linkemu-0.1.0/{file}\n")), "{file}: {files}");
    }
    Ok(())
}

pub fn same_programs_give_same_packages() -> anyhow::Result<()> {
    let programs = programs()?;
    let again = Directory::new()?;
    pack(&programs, "0.1.0", again.root())?;
    let [first, second] = [packages(&share()?.join("1"))?, packages(again.root())?];
    ensure!(first.len() == 2, "{:?}", first.keys());
    for (name, bytes) in &first {
        ensure!(second.get(name) == Some(bytes), "{name} is another file each time");
    }
    Ok(())
}
