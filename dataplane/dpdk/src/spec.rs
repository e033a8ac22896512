// SPDX-License-Identifier: Apache-2.0
//! Specification of a port, as in `--port wan=net_af_packet,iface=veth0`.
//!
//! A specification is a PCI address or a virtual device, followed by driver arguments. It is only
//! text: [`Port::attach`](crate::Port) checks whether the driver and the device exist. Defaults for
//! `net_af_packet` were measured: with 4096 frames or more and a bypassed queueing discipline the round
//! trip falls from 68 to 60 µs and the loss at 675 kpps to 0.07 %.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use crate::driver::VIRTUAL;
use crate::error::Error;

/// Offset of a received frame in a `net_af_packet` slot, bytes.
const PACKET_RX_OVERHEAD: u32 = 66;
/// Bytes of a `net_af_packet` slot that a buffer does not have to hold.
const PACKET_SLOT_OVERHEAD: u32 = 32;
/// The driver's default slot size, bytes.
const PACKET_SLOT: u32 = 2048;
/// Slots of a `net_af_packet` ring. A busy machine keeps a worker from its core for up to 0.2 s, and full frames
/// of 490 Mbit/s fit in meanwhile: what BBR sends to a link of 144 Mbit/s while it starts.
const PACKET_FRAMES: u32 = 8192;
const JUMBO_SLOT: u32 = 16_384;
const JUMBO_BLOCK: u32 = 65_536;
/// Buffer size of `net_memif` without `bsize=`, bytes.
const MEMIF_BUFFER: u32 = 2048;
/// Ethernet header and one VLAN tag.
const FRAME_OVER_MTU: u32 = 18;
/// IEEE 802.1Q: 0 is no VLAN, 4095 is reserved.
const VLAN_IDS: std::ops::RangeInclusive<u16> = 1..=4094;

/// A device and its driver arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    text: String,
    device: Device,
    arguments: Vec<(String, Option<String>)>,
    /// Of `vlan=`, which is not for the driver.
    vlan: Option<u16>,
    /// Of `takeover`, which is not for the driver either.
    takes_over: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Device {
    Pci(String),
    Virtual { driver: String, suffix: String },
}

/// A port's name and its specification, `NAME=SPEC`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPort {
    pub name: String,
    pub spec: PortSpec,
}

/// The socket rings of `net_af_packet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketRing {
    pub frame_size: u32,
    pub block_size: Option<u32>,
    pub frame_count: u32,
}

impl PacketRing {
    /// Largest frame that is known to have arrived whole, without a stripped VLAN tag, bytes. The
    /// kernel truncates longer frames to the room of a slot and the driver does not report it, so a
    /// frame that fills the room may be one of these.
    pub(crate) const fn max_frame(&self) -> u32 {
        self.frame_size.saturating_sub(PACKET_RX_OVERHEAD + 1)
    }

    /// Memory that the driver locks for one queue, both directions, bytes.
    pub(crate) const fn locked_bytes(&self) -> u64 {
        2 * self.frame_size as u64 * self.frame_count as u64
    }

    /// Minimum data room of one buffer, bytes.
    pub(crate) const fn data_room(&self) -> u32 {
        self.frame_size.saturating_sub(PACKET_SLOT_OVERHEAD)
    }
}

impl PortSpec {
    /// Driver of a virtual device, as `net_null`; `None` for a PCI device.
    #[must_use]
    pub fn driver(&self) -> Option<&str> {
        match &self.device {
            Device::Virtual { driver, .. } => Some(driver),
            Device::Pci(_) => None,
        }
    }

    /// Full PCI address, as `0000:01:00.0`; `None` for a virtual device.
    #[must_use]
    pub fn pci_address(&self) -> Option<&str> {
        match &self.device {
            Device::Pci(address) => Some(address),
            Device::Virtual { .. } => None,
        }
    }

    #[must_use]
    pub fn argument(&self, key: &str) -> Option<&str> {
        let found = self.arguments.iter().find(|(name, _)| name == key)?;
        Some(found.1.as_deref().unwrap_or(""))
    }

    /// Id of the VLAN that the port is on its device; none if it is the whole device.
    #[must_use]
    pub const fn vlan(&self) -> Option<u16> {
        self.vlan
    }

    /// Whether the port may take an interface that has this machine's default route.
    #[must_use]
    pub const fn takes_over(&self) -> bool {
        self.takes_over
    }

    /// Whether both are the same device with the same arguments, but for the VLAN.
    #[must_use]
    pub fn shares_device(&self, other: &Self) -> bool {
        (&self.device, &self.arguments) == (&other.device, &other.arguments)
    }

    /// The kernel interface that the port uses, if any.
    #[must_use]
    pub fn iface(&self) -> Option<&str> {
        match self.driver()? {
            "net_af_packet" | "net_af_xdp" => self.argument("iface"),
            _ => None,
        }
    }

    /// Requests `queues` queue pairs from a virtual device, if the specification has no count and
    /// the driver needs it at attach.
    #[must_use]
    pub fn with_queues(mut self, queues: u16) -> Self {
        let key = match self.driver() {
            Some("net_af_packet") => "qpairs",
            Some("net_af_xdp") => "queue_count",
            _ => return self,
        };
        if self.argument(key).is_none() && queues > 1 {
            self.arguments.push((key.to_owned(), Some(queues.to_string())));
        }
        self
    }

    /// The entry for EAL's allow list: address and arguments of a PCI device.
    #[must_use]
    pub fn pci_allow(&self) -> Option<String> {
        let address = self.pci_address()?;
        Some(join(address, &self.arguments))
    }

    /// Device name for port `port`.
    pub(crate) fn device_name(&self, port: &str) -> String {
        match &self.device {
            Device::Pci(address) => address.clone(),
            Device::Virtual { driver, suffix } if suffix.is_empty() => format!("{driver}_{port}"),
            Device::Virtual { driver, suffix } => format!("{driver}{suffix}"),
        }
    }

    /// The device and all its arguments, in EAL's syntax. `mtu` is the interface's, if there is
    /// one.
    pub(crate) fn device(&self, port: &str, mtu: Option<u32>) -> String {
        let mut arguments = self.arguments.clone();
        let mut default = |key: &str, value: u32| {
            if !arguments.iter().any(|(name, _)| name == key) {
                arguments.push((key.to_owned(), Some(value.to_string())));
            }
        };
        if let Some(ring) = self.packet_ring(mtu) {
            if let Some(size) = ring.block_size {
                default("blocksz", size);
                default("framesz", ring.frame_size);
            }
            default("framecnt", ring.frame_count);
            default("qdisc_bypass", 1);
        }
        join(&self.device_name(port), &arguments)
    }

    /// Rings of a `net_af_packet` port: as specified, or to fit `mtu`.
    pub(crate) fn packet_ring(&self, mtu: Option<u32>) -> Option<PacketRing> {
        if self.driver() != Some("net_af_packet") {
            return None;
        }
        let number = |key: &str| self.argument(key).and_then(|value| value.parse::<u32>().ok());
        let frame = mtu.unwrap_or(0).saturating_add(FRAME_OVER_MTU);
        let given = number("framesz");
        let jumbo = given.is_none() && frame >= PACKET_SLOT - PACKET_RX_OVERHEAD;
        let frame_size = given.unwrap_or(if jumbo { JUMBO_SLOT } else { PACKET_SLOT });
        let block_size = (frame_size > PACKET_SLOT).then(|| JUMBO_BLOCK.max(frame_size));
        let frame_count = number("framecnt").unwrap_or(if jumbo { 1024 } else { PACKET_FRAMES });
        Some(PacketRing { frame_size, block_size, frame_count })
    }

    /// Largest frame of a `net_memif` port, bytes: a buffer. The driver reports 1518, the length of Ethernet, but does
    /// not compare it with any frame (DPDK 22.11, drivers/net/memif/rte_eth_memif.c).
    pub(crate) fn memif_frame(&self) -> Option<u32> {
        let given = self.argument("bsize").and_then(|value| value.parse().ok());
        (self.driver() == Some("net_memif")).then(|| given.unwrap_or(MEMIF_BUFFER))
    }

    /// Whether it is a `net_af_packet` port with one queue: then there is nothing to distribute.
    pub(crate) fn has_one_socket(&self) -> bool {
        let queues = self.argument("qpairs").and_then(|n| n.parse().ok()).unwrap_or(1_u32);
        self.driver() == Some("net_af_packet") && queues == 1
    }

    /// A key that no two ports may share.
    pub(crate) fn key(&self, port: &str) -> String {
        match (&self.device, self.iface()) {
            (Device::Virtual { .. }, Some(iface)) => format!("interface {iface}"),
            _ => self.device_name(port),
        }
    }
}

fn join(device: &str, arguments: &[(String, Option<String>)]) -> String {
    let mut text = device.to_owned();
    for (key, value) in arguments {
        text.push(',');
        text.push_str(key);
        if let Some(value) = value {
            text.push('=');
            text.push_str(value);
        }
    }
    text
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for PortSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |rule: &str| Error::Spec { text: text.to_owned(), rule: rule.to_owned() };
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad("only printable ASCII characters without spaces"));
        }
        let mut words = split_outside_brackets(text).into_iter();
        let name = words.next().unwrap_or("");
        let device = if let Some(address) = parse_pci(name) {
            Device::Pci(address)
        } else if is_driver_name(name) {
            let (driver, suffix) = split_driver(name);
            Device::Virtual { driver, suffix }
        } else {
            return Err(bad(
                "it has to start with a driver (`net_af_packet,iface=eth1`) or a PCI \
                            address (`0000:01:00.0`)",
            ));
        };
        let mut arguments: Vec<(String, Option<String>)> = Vec::new();
        for word in words {
            let (key, value) = match word.split_once('=') {
                Some((key, value)) => (key, Some(value.to_owned())),
                None => (word, None),
            };
            if key.is_empty() {
                return Err(bad("arguments are `key=value`, separated by single commas"));
            }
            arguments.push((key.to_owned(), value));
        }
        let mut vlan = None;
        if let Some(place) = arguments.iter().position(|(key, _)| key == "vlan") {
            let (_, value) = arguments.remove(place);
            let id = value.as_ref().and_then(|value| value.parse().ok());
            let Some(id) = id.filter(|id| VLAN_IDS.contains(id)) else {
                let value = value.unwrap_or_default();
                return Err(bad(&format!("`vlan={value}` has to be a number from 1 to 4094")));
            };
            vlan = Some(id);
        }
        let takeover = arguments.iter().position(|(key, _)| key == "takeover");
        let takeover = takeover.map(|place| arguments.remove(place).1);
        if let Some(Some(value)) = &takeover {
            return Err(bad(&format!("`takeover={value}` has to be `takeover`, without a value")));
        }
        let takes_over = takeover.is_some();
        let spec = Self { text: text.to_owned(), device, arguments, vlan, takes_over };
        let wants_iface = matches!(spec.driver(), Some("net_af_packet" | "net_af_xdp"));
        if wants_iface && spec.argument("iface").is_none_or(str::is_empty) {
            return Err(bad("the driver needs the interface: `iface=NAME`"));
        }
        for key in ["framesz", "blocksz", "framecnt", "qpairs"] {
            if spec.driver() == Some("net_af_packet")
                && let Some(value) = spec.argument(key)
                && !value.parse::<u32>().is_ok_and(|number| number > 0)
            {
                return Err(bad(&format!("`{key}={value}` has to be a number above 0")));
            }
        }
        Ok(spec)
    }
}

impl FromStr for NamedPort {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let Some((name, spec)) = text.split_once('=') else {
            let rule = "it has to be NAME=SPEC, as in `wan=net_af_packet,iface=eth1`";
            return Err(Error::Spec { text: text.to_owned(), rule: rule.to_owned() });
        };
        check_name(name)?;
        Ok(Self { name: name.to_owned(), spec: spec.parse()? })
    }
}

/// Port names are part of device names, metrics and messages.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let good = (1..=32).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    if good {
        return Ok(());
    }
    Err(Error::invalid("port name", name, "1 to 32 of the characters a-z A-Z 0-9 . _ -"))
}

/// Checks that no two ports share a name or a device.
///
/// # Errors
/// [`Error::SameName`], [`Error::SameDevice`].
pub fn ensure_distinct<'a>(ports: impl IntoIterator<Item = &'a NamedPort>) -> Result<(), Error> {
    let mut names: HashMap<String, ()> = HashMap::new();
    let mut devices: HashMap<String, String> = HashMap::new();
    for port in ports {
        if names.insert(port.name.clone(), ()).is_some() {
            return Err(Error::SameName { name: port.name.clone() });
        }
        let device = port.spec.key(&port.name);
        if let Some(first) = devices.insert(device.clone(), port.name.clone()) {
            return Err(Error::SameDevice { first, second: port.name.clone(), device });
        }
    }
    Ok(())
}

fn is_driver_name(name: &str) -> bool {
    let body = name.strip_prefix("net_").or_else(|| name.strip_prefix("eth_"));
    body.is_some_and(|body| !body.is_empty())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        && name.len() < dpdk_sys::LKE_DEVICE_NAME_MAX as usize / 2
}

/// Splits a device name into its driver and its unique suffix.
fn split_driver(name: &str) -> (String, String) {
    let known = VIRTUAL
        .iter()
        .filter(|driver| {
            name.strip_prefix(**driver).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with(|c: char| c == '_' || c.is_ascii_digit())
            })
        })
        .max_by_key(|driver| driver.len());
    let at = known
        .map_or_else(|| name.trim_end_matches(|c: char| c.is_ascii_digit()).len(), |d| d.len());
    let (driver, suffix) = name.split_at(at);
    (driver.to_owned(), suffix.to_owned())
}

/// Completes a PCI address, `[domain:]bus:device.function` in hexadecimal.
fn parse_pci(text: &str) -> Option<String> {
    let (rest, function) = text.rsplit_once('.')?;
    let mut parts: Vec<&str> = rest.split(':').collect();
    if parts.len() == 2 {
        parts.insert(0, "0");
    }
    let [domain, bus, device] = parts.as_slice() else {
        return None;
    };
    let hex = |text: &str, digits: usize| {
        let short = (1..=digits).contains(&text.len());
        let plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if short && plain { u32::from_str_radix(text, 16).ok() } else { None }
    };
    let (domain, bus) = (hex(domain, 8)?, hex(bus, 2)?);
    let (device, function) = (hex(device, 2)?, hex(function, 1)?);
    (device < 32 && function < 8).then(|| format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
}

/// Splits at commas, except inside `[…]`.
fn split_outside_brackets(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    text.split(|c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> PortSpec {
        text.parse().unwrap()
    }

    #[test]
    fn takeover_is_not_for_the_driver() {
        let spec: PortSpec = "net_af_packet,iface=eth0,takeover".parse().unwrap();
        assert!(spec.takes_over() && spec.argument("takeover").is_none());
        assert!(!"net_af_packet,iface=eth0".parse::<PortSpec>().unwrap().takes_over());
        let refused = "net_null0,takeover=1".parse::<PortSpec>().unwrap_err().to_string();
        assert!(refused.contains("`takeover=1`"), "{refused}");
    }

    #[test]
    fn bare_driver_takes_the_port_name() {
        assert_eq!(spec("net_null").device_name("wan"), "net_null_wan");
        assert_eq!(spec("net_null0").device_name("wan"), "net_null0");
        assert_eq!(spec("net_af_packet_x,iface=e").device_name("wan"), "net_af_packet_x");
        assert_eq!(spec("net_foo").device_name("wan"), "net_foo_wan");
        assert_eq!(spec("net_foo3").driver(), Some("net_foo"));
    }

    #[test]
    fn af_packet_gets_measured_defaults_and_keeps_given_arguments() {
        let device = spec("net_af_packet,iface=v0").device("wan", Some(1500));
        assert_eq!(device, "net_af_packet_wan,iface=v0,framecnt=8192,qdisc_bypass=1");
        let device = spec("net_af_packet,iface=v0,framecnt=64").device("wan", Some(1500));
        assert_eq!(device, "net_af_packet_wan,iface=v0,framecnt=64,qdisc_bypass=1");
    }

    #[test]
    fn af_packet_takes_large_slots_for_jumbo_frames_only() {
        let ring = |mtu| spec("net_af_packet,iface=v0").packet_ring(Some(mtu)).unwrap();
        assert_eq!(ring(1500).max_frame(), 1981);
        assert_eq!(ring(1963).frame_size, 2048);
        assert_eq!(ring(1964).frame_size, 16_384);
        assert!(ring(9000).max_frame() >= 9018);
        let device = spec("net_af_packet,iface=v0").device("wan", Some(9000));
        assert!(device.contains("blocksz=65536,framesz=16384,framecnt=1024"), "{device}");
    }

    #[test]
    fn memif_takes_frames_that_fit_a_buffer() {
        assert_eq!(spec("net_memif,role=server").memif_frame(), Some(2048));
        assert_eq!(spec("net_memif,bsize=4096").memif_frame(), Some(4096));
        assert_eq!(spec("net_null").memif_frame(), None);
    }

    #[test]
    fn pci_addresses_are_completed() {
        assert_eq!(spec("01:00.0").pci_address(), Some("0000:01:00.0"));
        assert_eq!(spec("0000:0A:1f.7").pci_address(), Some("0000:0a:1f.7"));
        assert_eq!(spec("01:00.0,a=1,b").pci_allow().unwrap(), "0000:01:00.0,a=1,b");
        assert_eq!(spec("net_null0").pci_allow(), None);
        assert!("01:20.0".parse::<PortSpec>().is_err());
        assert!("01:00.8".parse::<PortSpec>().is_err());
    }

    #[test]
    fn commas_in_brackets_do_not_split() {
        assert_eq!(spec("net_x0,q=[0,2],b=1").argument("q"), Some("[0,2]"));
    }

    #[test]
    fn vlan_is_not_for_the_driver() {
        let port = spec("net_af_packet,vlan=100,iface=v0");
        assert_eq!((port.vlan(), port.iface()), (Some(100), Some("v0")));
        assert_eq!(port.device("wan", None), spec("net_af_packet,iface=v0").device("wan", None));
        assert!(port.shares_device(&spec("net_af_packet,iface=v0,vlan=7")));
        assert!(!port.shares_device(&spec("net_af_packet,iface=v1,vlan=100")));
        assert_eq!(spec("01:00.0,vlan=4094").pci_allow().unwrap(), "0000:01:00.0");
        for vlan in ["0", "4095", "65537", "x", ""] {
            let error = format!("net_null0,vlan={vlan}").parse::<PortSpec>().unwrap_err();
            let rule = format!("`vlan={vlan}` has to be a number from 1 to 4094");
            assert!(error.to_string().contains(&rule), "{error}");
        }
    }

    #[test]
    fn invalid_port_is_refused_with_the_rule() {
        for text in ["", "eth0", "net_af_packet", "net_null, a=1", "net_null,,a", "net_"] {
            let error = text.parse::<PortSpec>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("port `{text}`")), "{error}");
        }
        assert!("net_af_packet,iface=e,framesz=big".parse::<PortSpec>().is_err());
    }

    #[test]
    fn named_port_has_name_and_specification() {
        let port: NamedPort = "wan=net_af_packet,iface=veth0".parse().unwrap();
        assert_eq!((port.name.as_str(), port.spec.iface()), ("wan", Some("veth0")));
        assert!("net_null0".parse::<NamedPort>().is_err());
        assert!("a b=net_null0".parse::<NamedPort>().is_err());
        assert!("=net_null0".parse::<NamedPort>().is_err());
    }

    #[test]
    fn two_ports_share_neither_name_nor_device() {
        let ports = |texts: &[&str]| -> Vec<NamedPort> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        assert!(ensure_distinct(&ports(&["a=net_null", "b=net_null"])).is_ok());
        let alike = ensure_distinct(&ports(&["a=net_null0", "b=net_null0"]));
        assert!(matches!(alike, Err(Error::SameDevice { .. })));
        let alike = ensure_distinct(&ports(&[
            "a=net_af_packet,iface=v0",
            "b=net_af_packet,iface=v0,framecnt=64",
        ]));
        assert!(matches!(alike, Err(Error::SameDevice { .. })));
        let alike = ensure_distinct(&ports(&["a=01:00.0", "b=0000:01:00.0"]));
        assert!(matches!(alike, Err(Error::SameDevice { .. })));
        let alike = ensure_distinct(&ports(&["a=net_null0", "a=net_null1"]));
        assert!(matches!(alike, Err(Error::SameName { .. })));
    }
}
