// SPDX-License-Identifier: Apache-2.0
//! Which built-in profiles the box of a file has room for, by the figures with which the dataplane
//! takes and refuses plans ([`emu::envelope`]).

use crate::envelope::compile;
use ::doctor::finding::Finding;
use ::envelope::FRAME;
use boxfile::{BoxFile, Memory};
use emu::envelope::excesses;
use emu::plan::Room;
use emu::tag::PAIR_TAG;
use profile::Catalog;
use shim::SHIM;

const CHECK: &str = "envelope";
/// Assumed speed of the ports, which a file does not name.
const PORT_BPS: u64 = 10_000_000_000;

/// The dataplane's room for a plan.
fn room(file: &BoxFile) -> Room {
    let workers = u32::try_from(file.workers.number()).unwrap_or(u32::MAX).max(1);
    let frame = file.memory.max_frame.and_then(|bytes| u32::try_from(bytes).ok());
    // An invalid file is reported elsewhere.
    let ports = file.ports.named();
    let pairs = boxfile::pairs(ports.iter().map(|(name, _)| name.as_str()));
    let pairs = pairs.map_or(1, |pairs| pairs.len().max(1) as u64);
    let tag = match &file.switch {
        Some(_) => SHIM,
        None if pairs > 1 => PAIR_TAG,
        None => 0,
    };
    Room {
        clients: file.memory.max_clients.unwrap_or(Memory::MAX_CLIENTS),
        port_bps: PORT_BPS.saturating_mul(pairs),
        frame: frame.unwrap_or(FRAME),
        capacity: file.memory.packets.unwrap_or(Memory::PACKETS) / u64::from(workers),
        workers,
        tag,
        unanswered: file.switch.is_some(),
    }
}

/// A finding for each built-in profile.
pub fn check(file: &BoxFile) -> Vec<Finding> {
    let room = room(file);
    let catalog = Catalog::built_in();
    let finding = |profile: &profile::Profile| {
        let name = profile.name();
        let found = match compile(profile) {
            Ok(plan) => excesses(&plan, room),
            // Not reached: the tests compile every built-in profile.
            Err(failure) => vec![failure.message().to_owned()],
        };
        if found.is_empty() {
            return Finding::ok(CHECK, format!("{name} fits, with {} clients", room.clients));
        }
        Finding::warning(
            CHECK,
            format!("{name} does not fit, with ports of 10 Gbit/s: {}", found.join("; ")),
            "`set profile` refuses it, unless packets may be lost (--lossy)",
            "write more as memory.packets, or fewer as memory.max_clients",
        )
    };
    catalog.iter().map(|entry| finding(&entry.profile)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::doctor::finding::Level;

    #[test]
    fn every_box_of_hw_configs_holds_the_links_of_the_manual() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hw-configs");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path().join("box.toml");
            let findings = check(&BoxFile::read(&path).unwrap());
            assert!(findings.len() >= 3, "{findings:?}");
            for name in ["viasat2", "transparent"] {
                let finding = findings.iter().find(|f| f.found.starts_with(name)).unwrap();
                assert_eq!(finding.level(), Level::Ok, "{}: {finding:?}", path.display());
            }
        }
    }

    #[test]
    fn box_with_too_little_memory_gets_a_remedy() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hw-configs/veth-dev/box.toml");
        let mut file = BoxFile::read(std::path::Path::new(path)).unwrap();
        file.memory.packets = Some(256 << 20);
        let findings = check(&file);
        let viasat2 =
            findings.iter().find(|f| f.found.starts_with("viasat2 does not fit, with ports of"));
        let viasat2 = viasat2.unwrap();
        assert_eq!(viasat2.level(), Level::Warning);
        assert!(viasat2.remedy.contains("memory.packets"), "{viasat2:?}");
    }
}
