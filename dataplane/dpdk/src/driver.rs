// SPDX-License-Identifier: Apache-2.0
//! Names of the linked poll-mode drivers, for messages that suggest the right name.
//!
//! DPDK has no call that lists its drivers; the linked ones are known. EAL decides whether a name
//! is valid (`Eal::recognises`). Control thread.

/// Virtual devices with a driver name other than their library name, as (library, driver).
const RENAMED: [(&str, &str); 2] = [("net_virtio", "net_virtio_user"), ("net_tap", "net_tun")];

/// Drivers of virtual devices. A device name is one of these plus an optional suffix.
pub(crate) const VIRTUAL: [&str; 7] = [
    "net_af_packet",
    "net_af_xdp",
    "net_null",
    "net_ring",
    "net_tap",
    "net_tun",
    "net_virtio_user",
];

/// Names of the linked network drivers, sorted.
#[must_use]
pub fn known_drivers() -> Vec<&'static str> {
    let linked = || dpdk_sys::DRIVERS.split(' ');
    let renamed = RENAMED.iter().filter(|(library, _)| linked().any(|name| name == *library));
    let mut names: Vec<&str> = linked().chain(renamed.map(|(_, driver)| *driver)).collect();
    names.sort_unstable();
    names
}

/// The known driver with the name nearest to `name`, if one is similar.
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
    fn mistyped_driver_finds_the_nearest() {
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
