// SPDX-License-Identifier: Apache-2.0
//! The description of a box: its ports, its workers' cores, its memory, the switch that it is
//! behind, in TOML.
//!
//! Sizes have units. A key that is not known is refused, with the nearest one that is;
//! one that is not there is as if the option of the command line was not given.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, de};
use thiserror::Error;

use crate::arguments::{Huge, Idle};
use crate::switch::{self, SwitchFile};

/// A longer file is none.
const MAX_BYTES: u64 = 64 << 10;
/// The tables and their keys.
const KEYS: [(&str, &[&str]); 4] = [
    ("ports", &["wan", "client"]),
    ("workers", &["cores", "count", "idle"]),
    ("memory", &["packets", "buffers", "copy_break", "max_frame", "max_clients", "huge"]),
    ("switch", switch::KEYS),
];

/// A box, as far as its file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BoxFile {
    /// `[ports]`.
    pub ports: Ports,
    /// `[workers]`.
    pub workers: Workers,
    /// `[memory]`.
    pub memory: Memory,
    /// `[switch]`.
    pub switch: Option<SwitchFile>,
}

/// `[ports]`: what `--port` takes after the name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ports {
    /// Faces the servers.
    pub wan: Option<String>,
    /// Faces the clients.
    pub client: Option<String>,
}

/// `[workers]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workers {
    /// One for each worker.
    pub cores: Option<Vec<usize>>,
    /// How many.
    pub count: Option<u16>,
    /// What they do when idle.
    pub idle: Option<Idle>,
}

/// `[memory]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// Of the packet store, bytes.
    #[serde(deserialize_with = "size")]
    pub packets: Option<u64>,
    /// For long frames that stay in their buffers, bytes.
    #[serde(deserialize_with = "size")]
    pub buffers: Option<u64>,
    /// Frames longer than this stay in their buffers, bytes.
    #[serde(deserialize_with = "size")]
    pub copy_break: Option<u64>,
    /// The longest frame, bytes.
    #[serde(deserialize_with = "size")]
    pub max_frame: Option<u64>,
    /// Clients that a worker makes at most.
    pub max_clients: Option<u32>,
    /// Whether DPDK's buffers are in hugepages.
    pub huge: Option<Huge>,
}

/// Why a file is no box's.
#[derive(Debug, Error)]
pub enum BoxFileError {
    /// It cannot be read.
    #[error("cannot read the box's file {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It is too long.
    #[error(
        "the box's file {} is longer than {MAX_BYTES} bytes: is it another file?",
        path.display()
    )]
    Long {
        /// Which.
        path: PathBuf,
    },
    /// It has a key that is not known.
    #[error("the box's file {}: there is no key `{key}`: {hint}", path.display())]
    Key {
        /// Which.
        path: PathBuf,
        /// The key with its table.
        key: String,
        /// What is known.
        hint: String,
    },
    /// It is not TOML, or a value is not of its kind.
    #[error("the box's file {}: {message}", path.display())]
    Value {
        /// Which.
        path: PathBuf,
        /// What and where, in the parser's words.
        message: String,
    },
}

impl BoxFile {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn read(path: &Path) -> Result<Self, BoxFileError> {
        let failed = |source| BoxFileError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        // A device has no length and no end.
        let file = fs::File::open(path).map_err(failed)?;
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(BoxFileError::Long { path: path.to_owned() });
        }
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, BoxFileError> {
        let failed = |e: toml::de::Error| BoxFileError::Value {
            path: path.to_owned(),
            message: e.to_string().trim_end().to_owned(),
        };
        let document: toml::Table = toml::from_str(text).map_err(failed)?;
        let unknown = |key: String, word: &str, known: &[&str]| {
            let hint = match profile::nearest(word, known.iter().copied()) {
                Some(near) => format!("the nearest is `{near}`"),
                None => format!("there are {}", known.join(", ")),
            };
            Err(BoxFileError::Key { path: path.to_owned(), key, hint })
        };
        for (name, value) in &document {
            let Some((_, keys)) = KEYS.iter().find(|(table, _)| table == name) else {
                return unknown(name.clone(), name, &KEYS.map(|(table, _)| table));
            };
            let stranger =
                value.as_table().and_then(|t| t.keys().find(|k| !keys.contains(&k.as_str())));
            if let Some(key) = stranger {
                return unknown(format!("{name}.{key}"), key, keys);
            }
        }
        toml::from_str(text).map_err(failed)
    }
}

fn size<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(value)?;
    profile::parse_size(&text).map(Some).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<BoxFile, String> {
        BoxFile::parse(text, Path::new("box.toml")).map_err(|e| e.to_string())
    }

    #[test]
    fn what_a_file_says_is_read_and_what_it_does_not_say_is_left_open() {
        let text = "[ports]\nwan = \"net_null\"\n[workers]\ncores = [2, 3]\nidle = \"adaptive\"\n\
                    [memory]\npackets = \"2 GiB\"\nmax_frame = \"1518 B\"\nhuge = \"off\"";
        let file = parse(text).unwrap();
        assert_eq!(file.ports, Ports { wan: Some("net_null".to_owned()), client: None });
        assert_eq!(file.workers.cores, Some(vec![2, 3]));
        assert_eq!((file.workers.count, file.workers.idle), (None, Some(Idle::Adaptive)));
        assert_eq!((file.memory.packets, file.memory.max_frame), (Some(2 << 30), Some(1518)));
        assert_eq!((file.memory.buffers, file.memory.huge), (None, Some(Huge::Off)));
        assert_eq!(parse("").unwrap(), BoxFile::default());
    }

    #[test]
    fn every_key_of_a_switch_is_known() {
        let text = "[switch]\naddress = \"x\"\ndevice = 1\ntarget = \"bmv2\"\nelection = 1\n\
                    box_wan = 0\nbox_client = 1\nwan = [2]\nclient = [3]\nstages = []\n\
                    program = \"/p\"";
        assert_eq!(text.lines().count(), switch::KEYS.len() + 1);
        let file = parse(text).unwrap().switch.unwrap();
        assert_eq!((file.wan, file.program), (Some(vec![2]), Some(PathBuf::from("/p"))));
        assert_eq!(parse("").unwrap().switch, None);
    }

    #[test]
    fn a_key_that_is_not_known_is_named_with_the_nearest() {
        for (text, words) in [
            ("[worker]\ncount = 1", "no key `worker`: the nearest is `workers`"),
            ("[workers]\ncore = [1]", "no key `workers.core`: the nearest is `cores`"),
            ("[switch]\nadress = 1", "no key `switch.adress`: the nearest is `address`"),
            ("[ports]\nxyzzy = 1", "no key `ports.xyzzy`: there are wan, client"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_value_that_is_not_of_its_kind_is_refused_with_its_place() {
        for (text, words) in [
            ("[memory]\npackets = 2", "expected a string"),
            ("[memory]\npackets = \"2\"", "has no unit"),
            ("[memory]\npackets = \"2 gib\"", "not a unit"),
            ("[workers]\ncores = [-1]", "invalid value"),
            ("[workers]\ncount = 70000", "invalid value"),
            ("[workers]\nidle = \"lazy\"", "unknown variant `lazy`"),
            ("ports = 1", "invalid type"),
            ("[ports", "unclosed table"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words) && error.contains("line "), "{text}: {error}");
        }
    }

    #[test]
    fn the_examples_are_read() {
        let examples = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../hw-configs"));
        let mut read = 0;
        for example in fs::read_dir(examples).unwrap() {
            let path = example.unwrap().path().join("box.toml");
            let file = BoxFile::read(&path).unwrap_or_else(|e| panic!("{e}"));
            for spec in [file.ports.wan, file.ports.client] {
                spec.unwrap().parse::<dpdk::PortSpec>().unwrap_or_else(|e| panic!("{e}"));
            }
            read += 1;
        }
        assert!(read > 0);
    }

    #[test]
    fn a_file_that_is_none_is_refused() {
        assert!(BoxFile::read(Path::new("/nonexistent")).is_err());
        assert!(BoxFile::read(Path::new("/")).is_err());
    }
}
