// SPDX-License-Identifier: Apache-2.0
//! Opens the device of a port: checks that give a remedy where EAL gives only an error code, the
//! reservation of the device, the probe, and the search for its packet sockets. Control thread.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

use crate::device::{Bus, Device};
use crate::eal::Eal;
use crate::error::{Error, reason};
use crate::sockets::PacketSockets;
use crate::spec::{PacketRing, PortSpec};
use interface::Interface;

pub(crate) fn find_iface(port: &str, iface: &str) -> Result<Interface, Error> {
    Interface::find(iface).ok_or_else(|| Error::NoInterface {
        port: port.to_owned(),
        iface: iface.to_owned(),
        existing: Interface::existing(),
    })
}

/// Reserves the device, lets EAL open it, and finds its packet sockets.
pub(crate) fn probe(
    eal: &Eal,
    port: &str,
    spec: &PortSpec,
    iface: Option<&Interface>,
    mtu: Option<u32>,
) -> Result<Device, Error> {
    let arguments = spec.device(port, mtu);
    let text = |text: &str| {
        CString::new(text).map_err(|_| Error::invalid("device", text, "it contains a zero byte"))
    };
    let (probe_text, name) = (text(&arguments)?, text(&spec.device_name(port))?);
    let keys = [namespaced(spec, spec.key(port)), spec.device_name(port)];
    let bus = if spec.pci_address().is_some() { Bus::Pci } else { Bus::Virtual };

    let inner = eal.inner();
    let mut taken = inner.control();
    if taken.values().any(|name| name == port) {
        return Err(Error::SameName { name: port.to_owned() });
    }
    if let Some(first) = keys.iter().find_map(|key| taken.get(key)) {
        let (first, second) = (first.clone(), port.to_owned());
        return Err(Error::SameDevice { first, second, device: spec.key(port) });
    }
    let before = PacketSockets::open_inodes();
    // EAL opens the PCI devices of its allow list at start.
    let mut id = port_by_name(&name);
    if id.is_none() {
        let alone = i32::from(spec.has_one_socket());
        // SAFETY: EAL is initialised, the text is valid for the call, the control lock is held. The
        // driver opens its sockets on this thread.
        let ret = unsafe {
            dpdk_sys::lke_packet_sockets_alone(alone);
            let ret = dpdk_sys::rte_dev_probe(probe_text.as_ptr());
            dpdk_sys::lke_packet_sockets_alone(0);
            ret
        };
        id = port_by_name(&name);
        if ret < 0 || id.is_none() {
            return Err(Error::Probe {
                port: port.to_owned(),
                device: arguments,
                reason: if ret < 0 { reason(ret) } else { "it made no Ethernet port".to_owned() },
                hint: probe_hint(bus, spec.packet_ring(mtu)),
            });
        }
    }
    let sockets = match iface {
        Some(iface) if spec.driver() == Some("net_af_packet") => {
            PacketSockets::opened_since(&before, iface.index())
        }
        _ => PacketSockets::default(),
    };
    for key in &keys {
        taken.insert(key.clone(), port.to_owned());
    }
    drop(taken);

    let device = Device {
        eal: inner,
        id: id.unwrap_or(u16::MAX),
        port: port.to_owned(),
        name,
        bus,
        keys,
        sockets,
        longest: AtomicU32::new(u32::MAX),
        ring_frames: spec.packet_ring(mtu).map_or(0, |ring| ring.frame_count),
        rx_frames: 0,
        early: Mutex::default(),
        rx_queues: 0,
        started: false,
        restore_promiscuous: false,
        is_loopback: spec.driver() == Some("net_ring"),
        pools: Vec::new(),
    };
    device.sockets.ignore_outgoing().map_err(|source| Error::Io {
        action: format!("port `{port}`: cannot filter what this machine sends itself"),
        source,
    })?;
    Ok(device)
}

/// The most likely remedy after the driver refused.
fn probe_hint(bus: Bus, ring: Option<PacketRing>) -> String {
    const STDERR: &str = "see what the driver wrote on standard error";
    if bus == Bus::Pci {
        return format!("name the device when EAL starts (EalOptions::with_ports), and {STDERR}");
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0;
    match ring.map(|ring| ring.locked_bytes()) {
        Some(bytes) if known && bytes > limit.rlim_cur => format!(
            "its rings lock {} KiB of memory per queue and this process may lock {} KiB (unless \
             it has CAP_IPC_LOCK): raise the limit (`ulimit -l`, LimitMEMLOCK=) or give a smaller \
             `framecnt`",
            bytes >> 10,
            limit.rlim_cur >> 10
        ),
        _ => format!("check its arguments, and {STDERR}"),
    }
}

/// Interfaces with the same name may exist in several network namespaces.
fn namespaced(spec: &PortSpec, key: String) -> String {
    match (spec.iface(), fs::read_link("/proc/thread-self/ns/net")) {
        (Some(_), Ok(namespace)) => format!("{key} in {}", namespace.display()),
        _ => key,
    }
}

fn port_by_name(name: &CStr) -> Option<u16> {
    let mut id = 0;
    // SAFETY: `name` is a valid string, `id` writable.
    let ret = unsafe { dpdk_sys::rte_eth_dev_get_port_by_name(name.as_ptr(), &raw mut id) };
    (ret == 0).then_some(id)
}

/// Detects common problems of a PCI device before EAL reports only that there is no such port.
pub(crate) fn check_pci(port: &str, address: &str) -> Result<(), Error> {
    /// Kernel drivers that DPDK works through, or that pass the device to user space.
    const FIT: [&str; 6] =
        ["vfio-pci", "igb_uio", "uio_pci_generic", "mlx5_core", "mlx4_core", "mana"];
    let path = Path::new("/sys/bus/pci/devices").join(address);
    let error = |reason: String, remedy: String| {
        Err(Error::Pci { port: port.to_owned(), address: address.to_owned(), reason, remedy })
    };
    if !path.exists() {
        return error("there is no such device".to_owned(), "`lspci -D` lists them".to_owned());
    }
    let remedy = || format!("`dpdk-devbind.py --bind vfio-pci {address}` gives it to DPDK");
    match fs::read_link(path.join("driver")) {
        Ok(link) => {
            let driver = link.file_name().map(|name| name.to_string_lossy().into_owned());
            let driver = driver.unwrap_or_default();
            if FIT.contains(&driver.as_str()) {
                return Ok(());
            }
            error(format!("it is bound to the kernel driver {driver}"), remedy())
        }
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
            error("it is bound to no driver".to_owned(), remedy())
        }
        Err(_) => Ok(()),
    }
}
