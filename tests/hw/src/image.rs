// SPDX-License-Identifier: Apache-2.0
//! The guest's initramfs: programs with their shared libraries, kernel modules, and files of a
//! test.
//!
//! Format: cpio "newc", see Documentation/driver-api/early-userspace/buffer-format.rst of the
//! kernel. Uncompressed: compression to half the size would take longer than unpacking saves.

use std::collections::BTreeMap;
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use anyhow::{Context, bail};
use cpio::newc::{self, ModeFileType};

use crate::parts::Parts;

/// Directory in which the guest's programs find libraries.
const LIBRARIES: &str = "lib/x86_64-linux-gnu";
const LOADER: &str = "lib64/ld-linux-x86-64.so.2";
/// Library directories of this machine's programs, ours included.
const OWN_LIBRARIES: [&str; 2] = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"];

#[derive(Debug)]
enum Entry {
    Directory,
    Link(String),
    Copy(PathBuf),
    Text { bytes: Vec<u8>, mode: u32 },
}

/// Contents of an initramfs, by path without the leading slash.
#[derive(Debug, Default)]
pub struct Image {
    entries: BTreeMap<String, Entry>,
}

impl Image {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory and its parents.
    pub fn directory(&mut self, path: &str) {
        let mut above = String::new();
        for part in path.split('/') {
            if !above.is_empty() {
                above.push('/');
            }
            above.push_str(part);
            self.entries.entry(above.clone()).or_insert(Entry::Directory);
        }
    }

    fn add(&mut self, path: &str, entry: Entry) {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.directory(above);
        }
        self.entries.insert(path.to_owned(), entry);
    }

    pub fn link(&mut self, path: &str, target: &str) {
        self.add(path, Entry::Link(target.to_owned()));
    }

    /// Adds a copy of a file, with its permissions.
    pub fn copy(&mut self, path: &str, from: &Path) {
        self.add(path, Entry::Copy(from.to_owned()));
    }

    /// Adds a file with this text.
    pub fn text(&mut self, path: &str, text: impl Into<Vec<u8>>, mode: u32) {
        self.add(path, Entry::Text { bytes: text.into(), mode });
    }

    /// Adds a program as `bin/NAME`, with its loader and libraries.
    pub fn program(&mut self, parts: &Parts, name: &str, program: &Path) -> anyhow::Result<()> {
        self.copy(&format!("bin/{name}"), program);
        self.needed(parts, program)
    }

    /// Adds the libraries of a program or library. Those of the guest's root precede those of this
    /// machine, so that there is one C library.
    pub fn needed(&mut self, parts: &Parts, program: &Path) -> anyhow::Result<()> {
        let own = OWN_LIBRARIES.iter().map(|d| (*d).to_owned());
        let places: Vec<String> =
            parts.libraries().iter().map(|d| d.display().to_string()).chain(own).collect();
        let listed = Command::new(parts.loader())
            .arg("--library-path")
            .arg(places.join(":"))
            .arg("--list")
            .arg(program)
            .output()
            .with_context(|| format!("list the libraries of {}", program.display()))?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        for line in listed.lines() {
            let Some((name, place)) = line.trim().split_once(" => ") else { continue };
            let place = place.split(" (").next().unwrap_or(place);
            if !place.starts_with('/') {
                bail!("{} needs {name}, which is not found: {place}", program.display());
            }
            if name.contains("ld-linux") {
                continue;
            }
            self.copy(&format!("{LIBRARIES}/{name}"), &fs::canonicalize(place)?);
        }
        self.copy(LOADER, &fs::canonicalize(parts.loader())?);
        Ok(())
    }

    /// Adds kernel modules with their dependencies, and the tables that modprobe reads.
    pub fn modules(&mut self, parts: &Parts, names: &[&str]) -> anyhow::Result<()> {
        let from = parts.modules();
        let to = format!("lib/modules/{}", parts.kernel());
        let table = fs::read_to_string(from.join("modules.dep"))
            .with_context(|| format!("read {}/modules.dep", from.display()))?;
        let lines: Vec<(&str, &str)> = table.lines().filter_map(|l| l.split_once(':')).collect();
        for name in names {
            let found = lines.iter().find(|(path, _)| module_name(path) == *name);
            let Some((path, needs)) = found else {
                bail!("the kernel {} has no module {name}", parts.kernel());
            };
            for path in std::iter::once(*path).chain(needs.split_whitespace()) {
                self.copy(&format!("{to}/{path}"), &from.join(path));
            }
        }
        for entry in fs::read_dir(&from)?.flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            if file.starts_with("modules.") {
                self.copy(&format!("{to}/{file}"), &entry.path());
            }
        }
        Ok(())
    }

    pub fn write(&self, to: impl Write) -> anyhow::Result<()> {
        let mut to = BufWriter::new(to);
        for (number, (path, entry)) in (1..).zip(&self.entries) {
            let (kind, mode, bytes) = match entry {
                Entry::Directory => (ModeFileType::Directory, 0o755, Vec::new()),
                Entry::Link(target) => (ModeFileType::Symlink, 0o777, target.clone().into_bytes()),
                Entry::Text { bytes, mode } => (ModeFileType::Regular, *mode, bytes.clone()),
                Entry::Copy(from) => {
                    let open = || format!("read {}", from.display());
                    let mode = fs::metadata(from).with_context(open)?.permissions().mode() & 0o777;
                    (ModeFileType::Regular, mode, fs::read(from).with_context(open)?)
                }
            };
            let size = u32::try_from(bytes.len()).context("a file of 4 GiB and more")?;
            let header =
                newc::Builder::new(path).ino(number).mode(mode).set_mode_file_type(kind).nlink(1);
            let mut file = header.write(&mut to, size);
            file.write_all(&bytes)?;
            file.finish()?;
        }
        newc::trailer(&mut to)?.flush()?;
        Ok(())
    }

    /// Appends it to an archive: the kernel unpacks them in order.
    pub fn append(&self, archive: &Path) -> anyhow::Result<()> {
        let mut file = fs::OpenOptions::new().append(true).open(archive)?;
        // Each archive begins at a multiple of four.
        let rest = file.metadata()?.len() % 4;
        if rest > 0 {
            io::copy(&mut io::repeat(0).take(4 - rest), &mut file)?;
        }
        self.write(file)
    }
}

fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('_', "-")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn archive_has_each_entry_once_and_directories_first() {
        let mut image = Image::new();
        image.text("etc/linkemu/box.toml", "[ports]\n", 0o644);
        image.link("bin/sh", "dash");
        image.text("etc/hosts", "", 0o644);
        let mut archive = Vec::new();
        image.write(&mut archive).unwrap();
        let (mut rest, mut names) = (&archive[..], Vec::new());
        loop {
            let reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            names.push(reader.entry().name().to_owned());
            rest = reader.finish().unwrap();
        }
        assert_eq!(
            names,
            ["bin", "bin/sh", "etc", "etc/hosts", "etc/linkemu", "etc/linkemu/box.toml"]
        );
    }

    #[test]
    fn module_name_is_file_name_with_dashes() {
        assert_eq!(module_name("kernel/drivers/net/virtio_net.ko.xz"), "virtio-net");
        assert_eq!(module_name("kernel/net/sched/sch_netem.ko"), "sch-netem");
    }
}
