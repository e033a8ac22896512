// SPDX-License-Identifier: Apache-2.0
//! Every directory of `hw-configs/` describes a consistent box and has the other files that a lab
//! needs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use boxfile::{BoxFile, Driver, Huge, PageSize, Port, named};
use std::fs;
use std::path::{Path, PathBuf};

fn boxes() -> Vec<PathBuf> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../hw-configs"));
    let mut boxes: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    boxes.sort();
    assert!(boxes.len() >= 6, "{boxes:?}");
    boxes
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn describe(folder: &Path) -> BoxFile {
    BoxFile::read(&folder.join("box.toml")).unwrap_or_else(|e| panic!("{e}"))
}

/// Cores of a list such as `2-5,8`.
fn cores(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<usize>().unwrap()..=last.parse().unwrap()
    };
    list.split(',').flat_map(range).collect()
}

#[test]
fn every_box_is_consistent_and_has_both_ports() {
    for folder in boxes() {
        let file = describe(&folder);
        let problems: Vec<_> = file.problems().iter().map(ToString::to_string).collect();
        assert!(problems.is_empty(), "{}: {problems:?}", folder.display());
        let ports = file.ports.named();
        let pairs = boxfile::pairs(ports.iter().map(|(name, _)| name.as_str())).unwrap();
        assert_eq!(ports.len(), 2 * pairs.len().max(1), "{}", folder.display());
        assert!(file.memory.packets.is_some(), "{}", folder.display());
    }
}

#[test]
fn every_box_has_notes_and_a_kernel_command_line() {
    for folder in boxes() {
        let notes = read(&folder.join("README.md"));
        assert!(notes.starts_with("<!-- SPDX-License-Identifier: Apache-2.0 -->\n# "), "{notes}");
        let lower = notes.to_lowercase();
        assert!(lower.contains("limits"), "{}: no word of limits", folder.display());
        let cmdline = read(&folder.join("kernel-cmdline"));
        assert!(cmdline.lines().count() <= 1, "{cmdline}");
        for entry in fs::read_dir(&folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let known = ["box.toml", "box.sh", "README.md", "kernel-cmdline", "modprobe.d", "udev"];
            assert!(known.contains(&&*name), "{}: {name}", folder.display());
        }
    }
}

#[test]
fn kernel_command_line_matches_the_box_file() {
    for folder in boxes() {
        let (file, cmdline) = (describe(&folder), read(&folder.join("kernel-cmdline")));
        let of = |key: &str| cmdline.split_whitespace().find_map(|word| word.strip_prefix(key));
        let shown = folder.display();
        for key in ["isolcpus=", "nohz_full=", "rcu_nocbs="] {
            let named = of(key).map(cores);
            // Workers that sleep when idle share their core.
            if named.is_some() || file.workers.idle != Some(boxfile::Idle::Adaptive) {
                assert_eq!(named, file.workers.cores, "{shown}: {key}");
            }
        }
        if let Some(pages) = file.hugepages.filter(|pages| pages.size == PageSize::Gib1) {
            assert_eq!(of("hugepagesz="), Some("1G"), "{shown}");
            assert_eq!(of("hugepages="), Some(&*pages.count.to_string()), "{shown}");
        }
        let vfio = file.ports.named().into_iter().any(|(_, port)| match port {
            Port::Spec(text) => matches!(named(text), Some(boxfile::Device::Pci(_))),
            Port::Table(table) => table.kernel.is_none() && table.driver != Some(Driver::Kernel),
        });
        assert_eq!(of("intel_iommu=") == Some("on"), vfio, "{shown}");
        assert!(file.memory.huge != Some(Huge::On) || !cmdline.is_empty(), "{shown}");
    }
}
