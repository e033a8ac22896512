// SPDX-License-Identifier: Apache-2.0
//! Tables and keys of the box file, and its parser.
//!
//! Sizes have units. An unknown key is an error that names the nearest known key. A missing key has
//! the same effect as a missing command line option.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Deserializer, de};
use thiserror::Error;

use crate::hugepages::Hugepages;
use crate::port::{self, Port, Side};
use crate::problem::Problem;
use crate::switch::{self, SwitchFile};

/// Maximum file size, bytes.
const MAX_BYTES: u64 = 64 << 10;
const KEYS: [(&str, &[&str]); 6] = [
    ("ports", &["wan", "client"]),
    ("workers", &["cores", "count", "idle", "numa_node"]),
    (
        "memory",
        &["packets", "buffers", "copy_break", "max_frame", "max_clients", "client_idle", "huge"],
    ),
    ("hugepages", &["size", "count"]),
    ("clock", &["ptp"]),
    ("switch", switch::KEYS),
];

/// A box as described by its file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BoxFile {
    pub ports: Ports,
    pub workers: Workers,
    pub memory: Memory,
    pub hugepages: Option<Hugepages>,
    pub clock: Clock,
    pub switch: Option<SwitchFile>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ports {
    pub wan: Option<Side>,
    pub client: Option<Side>,
}

impl Ports {
    /// Configured ports with their names, such as `wan` or `wan.a`.
    #[must_use]
    pub fn named(&self) -> Vec<(String, &Port)> {
        let sides = crate::PORT_NAMES.into_iter().zip([&self.wan, &self.client]);
        let mut named = Vec::new();
        for (name, side) in sides {
            match side {
                None => {}
                Some(Side::Only(port)) => named.push((name.to_owned(), port)),
                Some(Side::Pairs(ports)) => named.extend(
                    ports.iter().map(|(pair, port)| (crate::port_name(name, Some(pair)), port)),
                ),
            }
        }
        named
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workers {
    pub cores: Option<Vec<usize>>,
    pub count: Option<u16>,
    pub idle: Option<Idle>,
    /// NUMA node of cores, ports and hugepages.
    pub numa_node: Option<u32>,
}

impl Workers {
    #[must_use]
    pub fn number(&self) -> usize {
        let cores = self.cores.as_ref().map(Vec::len);
        cores.or(self.count.map(usize::from)).unwrap_or(1)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// Memory of the packet store, bytes.
    #[serde(deserialize_with = "size")]
    pub packets: Option<u64>,
    /// Memory for long frames that stay in their buffers, bytes.
    #[serde(deserialize_with = "size")]
    pub buffers: Option<u64>,
    /// Frames longer than this stay in their buffers, bytes.
    #[serde(deserialize_with = "size")]
    pub copy_break: Option<u64>,
    /// Longest frame, bytes.
    #[serde(deserialize_with = "size")]
    pub max_frame: Option<u64>,
    /// Maximum number of clients per worker.
    pub max_clients: Option<u32>,
    /// Idle time after which an automatic client expires, nanoseconds; zero: never.
    #[serde(deserialize_with = "duration")]
    pub client_idle: Option<u64>,
    /// Use of hugepages for DPDK's buffers.
    pub huge: Option<Huge>,
}

impl Memory {
    /// Default of `packets`, bytes.
    pub const PACKETS: u64 = 3 << 30;
    /// Default of `max_clients`.
    pub const MAX_CLIENTS: u32 = 16;
    /// Default of `client_idle`, nanoseconds: ten minutes.
    pub const CLIENT_IDLE: u64 = 600_000_000_000;
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clock {
    /// PTP hardware clock to which the system clock is synchronised.
    pub ptp: Option<PathBuf>,
}

/// Behaviour of an idle worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// Poll on.
    #[default]
    Busy,
    /// Sleep when idle.
    Adaptive,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Huge {
    /// Where enough are reserved.
    #[default]
    Auto,
    /// Always; fails if there are too few.
    On,
    /// Never.
    Off,
}

#[derive(Debug, Error)]
pub enum BoxFileError {
    #[error("cannot read the box's file {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error(
        "the box's file {} is longer than {MAX_BYTES} bytes: is it another file?",
        path.display()
    )]
    Long { path: PathBuf },
    #[error("the box's file {}: there is no key `{key}`: {hint}", path.display())]
    Key { path: PathBuf, key: String, hint: String },
    /// Invalid TOML, or a value of the wrong type.
    #[error("the box's file {}: {message}", path.display())]
    Value {
        path: PathBuf,
        /// Message of the parser, with the place.
        message: String,
    },
    #[error("{0}")]
    Problem(#[from] Problem),
}

impl BoxFile {
    /// Reads and parses a file. Consistency is checked by [`BoxFile::problems`].
    ///
    /// # Errors
    /// The first fault and its place.
    pub fn read(path: &Path) -> Result<Self, BoxFileError> {
        let failed = |source| BoxFileError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        // A device file has no end, so the read is bounded.
        let file = fs::File::open(path).map_err(failed)?;
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(BoxFileError::Long { path: path.to_owned() });
        }
        Self::parse(&text, path)
    }

    /// Parses the content of the file at `path`.
    ///
    /// # Errors
    /// As [`BoxFile::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, BoxFileError> {
        let failed = |e: toml::de::Error| BoxFileError::Value {
            path: path.to_owned(),
            message: e.to_string().trim_end().to_owned(),
        };
        let document: toml::Table = toml::from_str(text).map_err(failed)?;
        if let Some((key, hint)) = stranger(&document) {
            return Err(BoxFileError::Key { path: path.to_owned(), key, hint });
        }
        toml::from_str(text).map_err(failed)
    }
}

/// The first unknown key, and the known ones.
fn stranger(document: &toml::Table) -> Option<(String, String)> {
    let unknown = |key: String, word: &str, known: &[&str]| {
        let hint = match profile::nearest(word, known.iter().copied()) {
            Some(near) => format!("the nearest is `{near}`"),
            None => format!("there are {}", known.join(", ")),
        };
        Some((key, hint))
    };
    let of = |table: &toml::Table, name: &str, known: &[&str]| {
        let key = table.keys().find(|key| !known.contains(&key.as_str()))?;
        unknown(format!("{name}.{key}"), key, known)
    };
    for (name, value) in document {
        let Some((_, keys)) = KEYS.iter().find(|(table, _)| table == name) else {
            return unknown(name.clone(), name, &KEYS.map(|(table, _)| table));
        };
        let Some(table) = value.as_table() else { continue };
        let found = of(table, name, keys);
        if found.is_some() {
            return found;
        }
        for (port, value) in table.iter().filter(|_| name == "ports") {
            let found = stranger_of_port(&of, &format!("ports.{port}"), value).or_else(|| {
                let pairs = value.as_table().filter(|table| !port::is_port(table))?;
                let path = |pair| format!("ports.{port}.{pair}");
                pairs.iter().find_map(|(pair, value)| stranger_of_port(&of, &path(pair), value))
            });
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

/// An unknown key of a port that is a table.
fn stranger_of_port(
    of: &impl Fn(&toml::Table, &str, &[&str]) -> Option<(String, String)>,
    path: &str,
    value: &toml::Value,
) -> Option<(String, String)> {
    let table = value.as_table().filter(|table| port::is_port(table))?;
    let select = table.get("select").and_then(toml::Value::as_table);
    of(table, path, port::KEYS)
        .or_else(|| of(select?, &format!("{path}.select"), port::SELECT_KEYS))
}

fn size<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(value)?;
    profile::parse_size(&text).map(Some).map_err(de::Error::custom)
}

fn duration<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(value)?;
    profile::parse_duration(&text).map(Some).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{Driver, PortTable, Select};

    fn parse(text: &str) -> Result<BoxFile, String> {
        BoxFile::parse(text, Path::new("box.toml")).map_err(|e| e.to_string())
    }

    #[test]
    fn given_keys_are_read_and_missing_ones_stay_unset() {
        let text = "[ports]\nwan = \"net_null\"\n[workers]\ncores = [2, 3]\nidle = \"adaptive\"\n\
                    [memory]\npackets = \"2 GiB\"\nmax_frame = \"1518 B\"\nhuge = \"off\"";
        let file = parse(text).unwrap();
        assert_eq!(
            file.ports,
            Ports { wan: Some(Side::Only(Port::Spec("net_null".into()))), client: None }
        );
        assert_eq!(file.workers.cores, Some(vec![2, 3]));
        assert_eq!((file.workers.count, file.workers.idle), (None, Some(Idle::Adaptive)));
        assert_eq!((file.memory.packets, file.memory.max_frame), (Some(2 << 30), Some(1518)));
        assert_eq!((file.memory.buffers, file.memory.huge), (None, Some(Huge::Off)));
        assert_eq!((file.hugepages, file.clock.ptp, file.switch), (None, None, None));
        assert_eq!(parse("").unwrap(), BoxFile::default());
    }

    #[test]
    fn side_has_one_port_or_one_for_each_pair() {
        let text = "[ports]\nwan.b = \"net_null\"\nwan.a.pci = \"01:00.0\"\n\
                    [ports.client]\na.select.id = \"8086:1572\"\n\"x.1\" = \"net_ring\"";
        let file = parse(text).unwrap();
        let ports = file.ports.named();
        let names: Vec<_> = ports.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["wan.a", "wan.b", "client.a", "client.x.1"]);
        assert_eq!(ports[1].1, &Port::Spec("net_null".into()));
        assert!(matches!(ports[2].1, Port::Table(PortTable { select: Some(_), .. })));
        for (text, words) in [
            ("[ports]\nwan.a.pcie = \"1:0.0\"", "no key `ports.wan.a.pcie`: the nearest is `pci`"),
            ("[ports.wan]\na = \"x\"\npci = \"1:0.0\"", "no key `ports.wan.a`"),
            ("[ports.wan.a.select]\nidd = 1", "no key `ports.wan.a.select.idd`"),
            ("[ports.wan]\na = 1", "expected a string as --port takes it"),
            ("[ports]\nwan = 1", "or with a port for each pair"),
            ("[ports.wan.a]\nb = \"net_null\"", "unknown field `b`, expected one of `pci`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn port_is_a_text_or_a_table() {
        let text = "[ports]\nclient = \"01:00.1\"\n[ports.wan]\nselect = { id = \"8086:157B\", \
                    nth = 2 }\ndriver = \"vfio-pci\"\nqueues = 4\narguments = \"a=1\"\n\
                    [workers]\nnuma_node = 1\n[hugepages]\nsize = \"1 GiB\"\ncount = 3\n\
                    [clock]\nptp = \"/dev/ptp0\"";
        let file = parse(text).unwrap();
        let id = "8086:157b".parse().ok();
        let select = Some(Select { id, nth: Some(2), mac: None });
        let wan = PortTable {
            select,
            driver: Some(Driver::Vfio),
            queues: Some(4),
            arguments: Some("a=1".into()),
            ..PortTable::default()
        };
        assert_eq!(file.ports.wan, Some(Side::Only(Port::Table(wan))));
        assert_eq!(file.hugepages.as_ref().map(Hugepages::bytes), Some(3 << 30));
        assert_eq!((file.workers.numa_node, file.workers.number()), (Some(1), 1));
        assert_eq!(file.clock.ptp, Some("/dev/ptp0".into()));
        let names: Vec<_> = file.ports.named().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["wan", "client"]);
    }

    #[test]
    fn every_switch_key_is_known() {
        let text = "[switch]\naddress = \"x\"\ndevice = 1\ntarget = \"bmv2\"\nelection = 1\n\
                    box_wan = 0\nbox_client = 1\nboxes = 2\nmirror = 4\nwan = [2]\nclient = [3]\nstages = []\n\
                    program = \"/p\"\nformat = \"stratum\"\nca = \"/a\"\ncert = \"/b\"\nkey = \"/c\"\n\
                    server_name = \"d\"";
        assert_eq!(text.lines().count(), switch::KEYS.len() + 1);
        let file = parse(text).unwrap().switch.unwrap();
        assert_eq!((file.wan, file.program), (Some(vec![2]), Some(PathBuf::from("/p"))));
    }

    #[test]
    fn unknown_key_error_names_the_nearest() {
        for (text, words) in [
            ("[worker]\ncount = 1", "no key `worker`: the nearest is `workers`"),
            ("[workers]\ncore = [1]", "no key `workers.core`: the nearest is `cores`"),
            ("[switch]\nadress = 1", "no key `switch.adress`: the nearest is `address`"),
            ("[ports]\nxyzzy = 1", "no key `ports.xyzzy`: there are wan, client"),
            ("[ports.wan]\npcie = 1", "no key `ports.wan.pcie`: the nearest is `pci`"),
            ("[ports.wan.select]\nidd = 1", "no key `ports.wan.select.idd`: the nearest is `id`"),
            ("[hugepages]\nsizes = 1", "no key `hugepages.sizes`: the nearest is `size`"),
            ("[clock]\nptp0 = 1", "no key `clock.ptp0`: the nearest is `ptp`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn value_of_the_wrong_type_is_refused_with_its_place() {
        for (text, words) in [
            ("[memory]\npackets = 2", "expected a string"),
            ("[memory]\npackets = \"2\"", "has no unit"),
            ("[memory]\npackets = \"2 gib\"", "not a unit"),
            ("[workers]\ncores = [-1]", "invalid value"),
            ("[workers]\ncount = 70000", "invalid value"),
            ("[workers]\nidle = \"lazy\"", "unknown variant `lazy`"),
            ("[workers]\nnuma_node = -1", "invalid value"),
            ("ports = 1", "invalid type"),
            ("[ports]\nwan = 1", "expected a string as --port takes it, or a table"),
            ("[ports.wan]\npci = \"eth0\"", "`eth0` is not a PCI address: write it as `lspci -D`"),
            ("[ports.wan]\ndriver = \"ixgbe\"", "expected `vfio-pci` or `kernel`"),
            ("[ports.wan.select]\nid = \"x710\"", "`x710` is not a device's number: write"),
            ("[ports.wan.select]\nmac = \"1:2\"", "`1:2` is not a MAC address: write it as"),
            ("[hugepages]\nsize = \"4 MiB\"\ncount = 1", "no hugepages of 4 MiB: write 2 MiB or"),
            ("[hugepages]\nsize = \"2 MiB\"", "missing field `count`"),
            ("[ports", "unclosed table"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words) && error.contains("line "), "{text}: {error}");
        }
    }

    #[test]
    fn invalid_file_is_refused() {
        assert!(BoxFile::read(Path::new("/nonexistent")).is_err());
        assert!(BoxFile::read(Path::new("/")).is_err());
        let error = BoxFile::read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.contains("longer than 65536 bytes"), "{error}");
    }
}
