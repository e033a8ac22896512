// SPDX-License-Identifier: Apache-2.0
//! Which poll-mode drivers are there, for messages that suggest the right name.
//!
//! DPDK has no call that lists its drivers. The plugin folder tells their file names; whether a
//! name is taken is decided by EAL itself (`Eal::recognises`). Control thread.

use std::ffi::CStr;
use std::fs;
use std::path::PathBuf;

/// Names of virtual devices whose plugin is called otherwise, as (plugin, driver).
const RENAMED: [(&str, &str); 4] = [
    ("net_bond", "net_bonding"),
    ("net_virtio", "net_virtio_user"),
    ("net_tap", "net_tun"),
    ("net_netvsc", "net_vdev_netvsc"),
];

/// Drivers of virtual devices; a device name is one of these and, optionally, a suffix.
pub(crate) const VIRTUAL: [&str; 15] = [
    "net_af_packet",
    "net_af_xdp",
    "net_bonding",
    "net_failsafe",
    "net_memif",
    "net_null",
    "net_pcap",
    "net_ring",
    "net_softnic",
    "net_tap",
    "net_tun",
    "net_vdev_netvsc",
    "net_vhost",
    "net_virtio_user",
    "net_xilinx",
];

/// The folder that EAL loads its drivers from; empty in a build that has none.
pub(crate) fn folder() -> PathBuf {
    // SAFETY: returns a pointer to a string literal.
    let path = unsafe { CStr::from_ptr(dpdk_sys::lke_plugin_dir()) };
    PathBuf::from(path.to_string_lossy().into_owned())
}

/// Names of the network drivers in EAL's plugin folder, sorted.
#[must_use]
pub fn known_drivers() -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    if let Ok(entries) = fs::read_dir(folder()) {
        for entry in entries.flatten() {
            let file = entry.file_name();
            let stem = file.to_str().and_then(|name| name.strip_prefix("librte_"));
            let Some(driver) = stem.and_then(|name| name.split(".so").next()) else {
                continue;
            };
            if driver.starts_with("net_") {
                names.push(driver.to_owned());
            }
        }
    }
    for (plugin, driver) in RENAMED {
        if names.iter().any(|name| name == plugin) {
            names.push(driver.to_owned());
        }
    }
    names.sort();
    names.dedup();
    names
}

/// The known driver whose name is nearest to `name`, if one is near.
#[must_use]
pub fn nearest_driver(name: &str) -> Option<String> {
    nearest(name, &known_drivers())
}

fn nearest(name: &str, known: &[String]) -> Option<String> {
    const NEAR: f64 = 0.5;
    let stem = |text: &str| {
        let text = text.trim_end_matches(|c: char| c.is_ascii_digit());
        text.strip_prefix("net_").or_else(|| text.strip_prefix("eth_")).unwrap_or(text).to_owned()
    };
    let wanted = stem(name);
    known
        .iter()
        .map(|driver| (strsim::normalized_damerau_levenshtein(&wanted, &stem(driver)), driver))
        .filter(|(score, _)| *score >= NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, driver)| driver.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_keyboard_finds_its_driver() {
        let known: Vec<String> = VIRTUAL.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(nearest("net_af_paket", &known).as_deref(), Some("net_af_packet"));
        assert_eq!(nearest("net_nul0", &known).as_deref(), Some("net_null"));
        assert_eq!(nearest("afpacket", &known).as_deref(), Some("net_af_packet"));
        assert_eq!(nearest("net_zzzzzzzz", &known), None);
    }
}
