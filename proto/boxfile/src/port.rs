// SPDX-License-Identifier: Apache-2.0
//! A port of the box file: a `--port` specification, or a table that selects a device and its
//! driver.

use std::fmt;
use std::str::FromStr;

use serde::de::IntoDeserializer;
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, de};

use crate::pci::Address;

/// Vendor id of Mellanox: its DPDK driver works on top of the kernel driver.
const MELLANOX: &str = "15b3";
/// Kernel drivers on top of which DPDK's driver works.
const BESIDE: [&str; 4] = ["mlx4_core", "mlx5_core", "mana", "gve"];

/// True if DPDK works on top of this kernel driver.
#[must_use]
pub fn beside_kernel(driver: &str) -> bool {
    BESIDE.contains(&driver)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// A specification as for `--port NAME=`.
    Spec(String),
    Table(PortTable),
}

/// `wan` or `client` under `[ports]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// The port of the only pair.
    Only(Port),
    /// The ports of several pairs, by the names of the pairs.
    Pairs(Vec<(String, Port)>),
}

/// `[ports.wan]`, `[ports.client]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PortTable {
    #[serde(deserialize_with = "address")]
    pub pci: Option<Address>,
    /// Selects the device by its properties.
    pub select: Option<Select>,
    /// A kernel interface, used through a packet socket.
    pub kernel: Option<String>,
    /// Driver. Default: as the device's DPDK driver requires.
    pub driver: Option<Driver>,
    /// Number of queue pairs for workers, if the device does not report it or has fewer.
    pub queues: Option<u16>,
    /// DPDK driver arguments, as `key=value,…`.
    pub arguments: Option<String>,
    /// Id of the VLAN on the device, for a hairpin pair.
    pub vlan: Option<u16>,
}

/// Keys of [`PortTable`] and [`Select`].
pub(crate) const KEYS: &[&str] =
    &["pci", "select", "kernel", "driver", "queues", "arguments", "vlan"];
pub(crate) const SELECT_KEYS: &[&str] = &["id", "nth", "mac"];

/// Whether a table is that of one port: all others have the ports of several pairs. A pair whose name
/// begins like a key of a port is taken for a misspelt key.
pub(crate) fn is_port(table: &toml::Table) -> bool {
    let is_like = |name: &str, key: &str| key.starts_with(name) || name.starts_with(key);
    let is_key =
        |name: &String| KEYS.iter().any(|key| name == key || name.len() > 2 && is_like(name, key));
    table.is_empty() || table.keys().any(is_key)
}

/// Selects a device by its properties.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Select {
    pub id: Option<NicId>,
    /// Index among these devices by address, from 1. Default: 1.
    pub nth: Option<u16>,
    /// MAC address of its kernel interface.
    #[serde(deserialize_with = "mac")]
    pub mac: Option<String>,
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.id, &self.mac) {
            (_, Some(mac)) => write!(f, "mac = \"{mac}\""),
            (Some(id), None) => {
                write!(f, "id = \"{}\", nth = {}", id.as_str(), self.nth.unwrap_or(1))
            }
            (None, None) => f.write_str("nothing"),
        }
    }
}

/// Vendor and device id, as `8086:1572`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicId(String);

impl NicId {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if its DPDK driver works on top of the kernel driver.
    #[must_use]
    pub fn beside_kernel(&self) -> bool {
        self.0.starts_with(MELLANOX)
    }
}

impl FromStr for NicId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let hex = |part: &str| part.len() == 4 && part.bytes().all(|b| b.is_ascii_hexdigit());
        match text.split_once(':') {
            Some((vendor, device)) if hex(vendor) && hex(device) => {
                Ok(Self(text.to_ascii_lowercase()))
            }
            _ => Err(()),
        }
    }
}

impl<'de> Deserialize<'de> for NicId {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        let text = String::deserialize(value)?;
        text.parse().map_err(|()| {
            de::Error::custom(format!(
                "`{text}` is not a device's number: write vendor and device as `lspci -n` does, \
                 such as \"8086:1572\""
            ))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Driver {
    /// vfio-pci: the kernel passes the device to user space.
    #[serde(rename = "vfio-pci")]
    Vfio,
    /// The kernel driver; DPDK works on top of it.
    #[serde(rename = "kernel")]
    Kernel,
}

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Port;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string as --port takes it, or a table with pci, select or kernel")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Port, E> {
                Ok(Port::Spec(text.to_owned()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Port, A::Error> {
                PortTable::deserialize(MapAccessDeserializer::new(map)).map(Port::Table)
            }
        }
        value.deserialize_any(Visitor)
    }
}

impl<'de> Deserialize<'de> for Side {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Side;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a string as --port takes it, or a table with pci, select or kernel, or with a \
                     port for each pair",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Side, E> {
                Ok(Side::Only(Port::Spec(text.to_owned())))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Side, A::Error> {
                let first: Option<String> = map.next_key()?;
                let Some(pair) = first.as_ref().filter(|key| !KEYS.contains(&key.as_str())) else {
                    let table =
                        PortTable::deserialize(MapAccessDeserializer::new(Whole { first, map }));
                    return table.map(|table| Side::Only(Port::Table(table)));
                };
                let mut pairs = vec![(pair.clone(), map.next_value()?)];
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Side::Pairs(pairs))
            }
        }
        value.deserialize_any(Visitor)
    }
}

/// A map of which the first key has been read.
struct Whole<A> {
    first: Option<String>,
    map: A,
}

impl<'de, A: de::MapAccess<'de>> de::MapAccess<'de> for Whole<A> {
    type Error = A::Error;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        match self.first.take() {
            Some(first) => seed.deserialize(first.into_deserializer()).map(Some),
            None => self.map.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: de::DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

fn address<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Address>, D::Error> {
    let text = String::deserialize(value)?;
    let wrong = |()| {
        de::Error::custom(format!(
            "`{text}` is not a PCI address: write it as `lspci -D` does, such as \"0000:01:00.0\""
        ))
    };
    text.parse().map(Some).map_err(wrong)
}

fn mac<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(value)?;
    let byte = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    if text.split(':').count() == 6 && text.split(':').all(byte) {
        return Ok(Some(text.to_ascii_lowercase()));
    }
    Err(de::Error::custom(format!(
        "`{text}` is not a MAC address: write it as `ip link` does, such as \"3c:fd:fe:00:00:01\""
    )))
}
