// SPDX-License-Identifier: Apache-2.0
//! Which poll-mode drivers are there, for messages that suggest the right name.
//!
//! DPDK has no call that lists its drivers; they are those that are linked. Whether a name is
//! taken is decided by EAL itself (`Eal::recognises`). Control thread.

/// Names of virtual devices whose library is called otherwise, as (library, driver).
const RENAMED: [(&str, &str); 2] = [("net_virtio", "net_virtio_user"), ("net_tap", "net_tun")];

/// Drivers of virtual devices; a device name is one of these and, optionally, a suffix.
pub(crate) const VIRTUAL: [&str; 7] = [
    "net_af_packet",
    "net_af_xdp",
    "net_null",
    "net_ring",
    "net_tap",
    "net_tun",
    "net_virtio_user",
];

/// Names of the network drivers, sorted.
#[must_use]
pub fn known_drivers() -> Vec<&'static str> {
    let linked = || dpdk_sys::DRIVERS.split(' ');
    let renamed = RENAMED.iter().filter(|(library, _)| linked().any(|name| name == *library));
    let mut names: Vec<&str> = linked().chain(renamed.map(|(_, driver)| *driver)).collect();
    names.sort_unstable();
    names
}

/// The known driver whose name is nearest to `name`, if one is near.
#[must_use]
pub fn nearest_driver(name: &str) -> Option<String> {
    nearest(name, &known_drivers()).map(str::to_owned)
}

fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
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
        .map(|(_, driver)| *driver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_keyboard_finds_its_driver() {
        for (slip, meant) in [
            ("net_af_paket", Some("net_af_packet")),
            ("net_nul0", Some("net_null")),
            ("afpacket", Some("net_af_packet")),
            ("net_zzzzzzzz", None),
        ] {
            assert_eq!(nearest(slip, &VIRTUAL), meant);
        }
    }

    #[test]
    fn every_virtual_driver_is_linked() {
        let known = known_drivers();
        for name in VIRTUAL {
            assert!(known.contains(&name), "{name} is not among {known:?}");
        }
    }
}
