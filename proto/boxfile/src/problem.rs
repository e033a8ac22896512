// SPDX-License-Identifier: Apache-2.0
//! Inconsistencies within a box file.

use std::path::PathBuf;

use profile::format_size;
use thiserror::Error;

use crate::find::FindError;
use crate::hugepages::Hugepages;
use crate::pairs::PairsError;
use crate::switch::SwitchError;

#[derive(Debug, Error)]
pub enum Problem {
    #[error("{0}")]
    Port(#[from] FindError),
    #[error("{0}")]
    Switch(#[from] SwitchError),
    /// A number is out of range.
    #[error("{key} in the box's file is {value}: it has to be {low} to {high}")]
    Range { key: String, value: u64, low: u64, high: u64 },
    /// The number of workers differs from the number of cores.
    #[error(
        "{workers} workers on {} cores {cores:?}: give each worker a core of its own under \
         [workers] of the box's file", cores.len()
    )]
    Count { workers: usize, cores: Vec<usize> },
    /// Two workers share a core.
    #[error(
        "core {0} is given to two workers under [workers] of the box's file: give each its own"
    )]
    Shared(usize),
    /// Zero or several selectors for one device.
    #[error("ports.{name} in the box's file has {}: give one of {}", list(.has), list(.of))]
    Ways { name: String, has: Vec<&'static str>, of: Vec<&'static str> },
    #[error("[ports] in the box's file: {0}")]
    Pairs(#[from] PairsError),
    /// Two ports use the same device.
    #[error(
        "ports.{first} and ports.{second} in the box's file are both {device}: give each its own \
         device, or as a hairpin pair its own vlan"
    )]
    Same { first: String, second: String, device: String },
    #[error(
        "ports.{name}.kernel in the box's file is `{iface}`: an interface's name has 1 to 15 \
         characters, none of them a blank, a colon or a slash; `ip -br link` lists them"
    )]
    Interface { name: String, iface: String },
    /// `nth` without `id`.
    #[error("ports.{name}.select in the box's file has `nth` without `id`: give the id as well")]
    Nth { name: String },
    #[error(
        "ports.{name}.arguments in the box's file is `{text}`: it has to be key=value,… without \
         blanks"
    )]
    Arguments { name: String, text: String },
    /// A kernel interface is used through a socket and cannot have vfio-pci.
    #[error(
        "ports.{name} in the box's file is the kernel's `{iface}` and has the driver vfio-pci, which \
         takes it from the kernel: name the device by pci or select, or leave the driver out"
    )]
    Socket { name: String, iface: String },
    /// The DPDK driver needs vfio-pci.
    #[error(
        "ports.{name} in the box's file is a {id} with the driver \"kernel\": DPDK's driver for it \
         has it to itself; write driver = \"vfio-pci\""
    )]
    NeedsVfio { name: String, id: String },
    /// The DPDK driver needs the kernel driver.
    #[error(
        "ports.{name} in the box's file is a {id} with the driver \"vfio-pci\": DPDK's driver for it \
         (mlx5) works through the kernel's; write driver = \"kernel\""
    )]
    NeedsKernel { name: String, id: String },
    #[error(
        "ports.{name} in the box's file has {queues} queues for {workers} workers, each of which \
         sends from its own: give fewer cores under [workers]"
    )]
    Queues { name: String, queues: u16, workers: usize },
    /// Hugepages are reserved but not used.
    #[error(
        "[hugepages] in the box's file reserves {}, and memory.huge = \"off\" uses none: take one \
         of the two away", format_size(*.0)
    )]
    Unused(u64),
    #[error(
        "[hugepages] in the box's file are {} of {}, {}: memory.buffers and DPDK's own needs are \
         {}; write count = {needed}", pages.count, pages.size.name(), format_size(pages.bytes()),
        format_size(*.bytes)
    )]
    TooFew { pages: Hugepages, bytes: u64, needed: u64 },
    /// Not the path of a PTP clock.
    #[error(
        "clock.ptp in the box's file is `{}`: a PTP clock is a device such as /dev/ptp0; `ethtool \
         -T IF` tells its number", .0.display()
    )]
    Ptp(PathBuf),
    /// More than one worker behind a switch.
    #[error(
        "{0} workers behind a switch: its client numbers are those of one worker; give one of \
         `cores` under [workers] in the box's file"
    )]
    Behind(usize),
    /// More than one pair behind a switch.
    #[error(
        "{0} port pairs behind a switch: it is connected to one pair; leave [switch] or the other \
         pairs out of the box's file"
    )]
    PairsBehind(usize),
}

fn list(words: &[&str]) -> String {
    match words {
        [] => "none of them".to_owned(),
        words => words.join(", "),
    }
}
