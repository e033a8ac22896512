// SPDX-License-Identifier: Apache-2.0
//! A step of apply: what it changes, how it is undone, and how both look as commands.
//!
//! A step says what it found before. It is done once or many times with one result, and a tool
//! is not believed: after it, the kernel is asked whether it is so.

use crate::appliance::host::{Host, words};
use boxfile::Address;
use profile::counted;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;

/// The driver that hands a device over.
pub const VFIO: &str = "vfio-pci";

/// Tool that binds a device to a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// driverctl: by `driver_override`, which it also clears again.
    Driverctl,
    Devbind,
}

impl Tool {
    /// The better one of those that there are.
    pub fn of(host: &Host) -> Self {
        let devbind = host.tool("driverctl").is_none() && host.tool("dpdk-devbind.py").is_some();
        if devbind { Self::Devbind } else { Self::Driverctl }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    Hugepages {
        /// On this node, or anywhere.
        node: Option<u32>,
        /// Size of a page in KiB.
        kib: u64,
        /// Old count of reserved pages.
        before: u64,
        /// Target count of reserved pages.
        count: u64,
    },
    /// Loads a module of the kernel that was not loaded.
    Module {
        /// Name of the module for modprobe.
        name: String,
    },
    /// Binds a device to vfio-pci.
    Bind {
        address: String,
        /// The driver that it had.
        before: Option<String>,
        /// `driver_override` that it had.
        forced: Option<String>,
    },
    /// Sets an interface up that was down.
    Up { iface: String },
}

impl Step {
    /// The object that the step changes: there is at most one step per target.
    pub fn target(&self) -> String {
        match self {
            Self::Hugepages { .. } => format!("/{}", self.pages().display()),
            Self::Module { name } => format!("module {name}"),
            Self::Bind { address, .. } => address.clone(),
            Self::Up { iface } => iface.clone(),
        }
    }

    pub fn what(&self) -> String {
        match self {
            Self::Hugepages { node, kib, before, count } => {
                let on = node.map_or_else(String::new, |node| format!(" on NUMA node {node}"));
                let pages = counted(count, "hugepage", "hugepages");
                format!("{pages} of {} MiB{on}, before {before}", kib >> 10)
            }
            Self::Module { name } => format!("module {name}, which was not loaded"),
            Self::Bind { address, before, .. } => {
                let before = before.as_deref().unwrap_or("none");
                format!("{address} to {VFIO}, before {before}")
            }
            Self::Up { iface } => format!("{iface} up, before down"),
        }
    }

    /// As one could type it.
    pub fn command(&self, tool: Tool) -> String {
        match self {
            Self::Hugepages { count, .. } => format!("echo {count} > {}", self.target()),
            Self::Module { name } => format!("modprobe {name}"),
            Self::Bind { address, .. } => match tool {
                // Not saved: it would outlive a boot that forgets all the rest.
                Tool::Driverctl => format!("driverctl --nosave set-override {address} {VFIO}"),
                Tool::Devbind => format!("dpdk-devbind.py --bind={VFIO} {address}"),
            },
            Self::Up { iface } => format!("ip link set {iface} up"),
        }
    }

    pub fn undo_command(&self, tool: Tool) -> String {
        match self {
            Self::Hugepages { before, .. } => format!("echo {before} > {}", self.target()),
            Self::Module { name } => format!("modprobe -r {name}"),
            Self::Bind { address, before, forced } => match (tool, forced, before) {
                (Tool::Driverctl, Some(driver), _) => {
                    format!("driverctl --nosave set-override {address} {driver}")
                }
                (Tool::Driverctl, None, Some(_)) => {
                    format!("driverctl --nosave unset-override {address}")
                }
                (Tool::Driverctl, None, None) => {
                    format!("driverctl --nosave --noprobe unset-override {address}")
                }
                (Tool::Devbind, _, Some(driver)) => {
                    format!("dpdk-devbind.py --bind={driver} {address}")
                }
                (Tool::Devbind, _, None) => format!("dpdk-devbind.py --unbind {address}"),
            },
            Self::Up { iface } => format!("ip link set {iface} down"),
        }
    }

    pub fn is_done(&self, host: &Host) -> bool {
        match self {
            Self::Hugepages { count, .. } => self.reserved(host).is_some_and(|n| n >= *count),
            Self::Module { name } => is_loaded(host, name),
            Self::Bind { address, .. } => driver(host, address).as_deref() == Some(VFIO),
            Self::Up { iface } => is_up(host, iface),
        }
    }

    /// Whether undo has something to do.
    pub fn is_changed(&self, host: &Host) -> bool {
        match self {
            // More than was asked for has another owner.
            Self::Hugepages { before, count, .. } => {
                self.reserved(host).is_some_and(|n| (before + 1..=*count).contains(&n))
            }
            Self::Module { name } => is_loaded(host, name),
            Self::Bind { address, before, .. } => {
                let there = host.machine.has(format!("bus/pci/devices/{address}"));
                there && driver(host, address) != *before
            }
            Self::Up { iface } => is_up(host, iface),
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// In words, if it is not so afterwards.
    pub fn carry_out(&self, host: &Host, tool: Tool) -> Result<(), String> {
        match self {
            Self::Hugepages { count, .. } => self.reserve(host, *count)?,
            _ => drop(host.run(&words(&self.command(tool)))?),
        }
        if self.is_done(host) {
            return Ok(());
        }
        Err(match self {
            Self::Hugepages { count, kib, .. } => format!(
                "the kernel gave {} of {count} hugepages: its memory is in pieces; reserve them at \
                 boot with hugepagesz={}M hugepages={count} on its command line",
                self.reserved(host).unwrap_or(0),
                kib >> 10,
            ),
            Self::Bind { address, .. } => format!(
                "`{}` went well, and {address} has {}: see `dmesg | tail`",
                self.command(tool),
                driver(host, address).as_deref().unwrap_or("no driver"),
            ),
            _ => {
                format!("`{}` went well and had no effect: see `dmesg | tail`", self.command(tool))
            }
        })
    }

    /// Undoes it, if it is done in part or whole.
    ///
    /// # Errors
    /// In words, if it is not as before afterwards.
    pub fn undo(&self, host: &Host, tool: Tool) -> Result<(), String> {
        if !self.is_changed(host) {
            return Ok(());
        }
        match self {
            Self::Hugepages { before, .. } => self.reserve(host, *before)?,
            // Others may use it meanwhile; loaded, it does nothing.
            Self::Module { .. } => {
                let _ = host.run(&words(&self.undo_command(tool)));
                return Ok(());
            }
            _ => drop(host.run(&words(&self.undo_command(tool)))?),
        }
        if self.is_changed(host) {
            let command = self.undo_command(tool);
            return Err(format!("`{command}` went well and had no effect: see `dmesg | tail`"));
        }
        Ok(())
    }

    /// The file of the kernel with the number of hugepages, below `/`.
    fn pages(&self) -> PathBuf {
        let Self::Hugepages { node, kib, .. } = self else { return PathBuf::new() };
        pages(*node, *kib)
    }

    fn reserved(&self, host: &Host) -> Option<u64> {
        fs::read_to_string(host.at(&self.pages())).ok()?.trim().parse().ok()
    }

    fn reserve(&self, host: &Host, count: u64) -> Result<(), String> {
        let path = host.at(&self.pages());
        fs::write(&path, format!("{count}\n"))
            .map_err(|e| format!("cannot write {count} to {}: {e}", path.display()))
    }
}

/// The file of the kernel with the number of hugepages of `kib`, below `/`.
pub fn pages(node: Option<u32>, kib: u64) -> PathBuf {
    let of = match node {
        Some(node) => format!("sys/devices/system/node/node{node}/hugepages"),
        None => "sys/kernel/mm/hugepages".to_owned(),
    };
    PathBuf::from(format!("{of}/hugepages-{kib}kB/nr_hugepages"))
}

/// The driver of a device.
pub fn driver(host: &Host, address: &str) -> Option<String> {
    // The record is read from a file.
    address.parse::<Address>().ok()?;
    host.machine.link(format!("bus/pci/devices/{address}/driver"))
}

/// Whether a module is loaded, or part of the kernel.
pub fn is_loaded(host: &Host, name: &str) -> bool {
    host.machine.has(format!("module/{}", name.replace('-', "_")))
}

/// Whether an interface is set up.
pub fn is_up(host: &Host, iface: &str) -> bool {
    let flags = host.machine.sys(format!("class/net/{iface}/flags")).unwrap_or_default();
    u32::from_str_radix(flags.trim_start_matches("0x"), 16).is_ok_and(|flags| flags & 1 == 1)
}
