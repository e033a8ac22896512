// SPDX-License-Identifier: Apache-2.0
//! Facts about a port: its description, its counters and its link state. Control thread.

/// What is known of an attached port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The name that the user gave.
    pub name: String,
    /// DPDK's number of the port.
    pub id: u16,
    /// The device's name in DPDK.
    pub device: String,
    pub driver: String,
    /// The kernel interface underneath, if there is one.
    pub iface: Option<String>,
    pub mac: [u8; 6],
    /// The MTU, in bytes of layer 3.
    pub mtu: u16,
    /// The largest frame that the port takes in whole, in bytes without frame check sequence.
    pub max_frame: u32,
    /// Data room that the mempool's buffers need at least.
    pub min_data_room: u32,
    pub max_rx_queues: u16,
    pub max_tx_queues: u16,
    /// The link's speed in Mb/s, where known: of a NIC, or of the interface under
    /// `net_af_packet`. A NIC whose link is not up yet has the fastest that it can.
    pub link_mbps: Option<u32>,
    /// The NUMA node, where known.
    pub numa_node: Option<u32>,
    /// Packet sockets found, for wake-ups and kernel drops.
    pub packet_sockets: usize,
}

/// A port's counters since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub rx_packets: u64,
    /// Bytes received, without frame check sequence.
    pub rx_bytes: u64,
    /// Packets that came and were dropped before we could take them: by the device for want of
    /// descriptors, or by the kernel for want of room in a packet socket's ring.
    pub rx_missed: u64,
    pub rx_errors: u64,
    /// Packets not received since the mempool was empty, where the driver counts them.
    pub rx_no_mbuf: u64,
    pub tx_packets: u64,
    /// Bytes sent, without frame check sequence.
    pub tx_bytes: u64,
    /// Packets that the driver took and could not send.
    pub tx_errors: u64,
}

/// The state of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub up: bool,
    /// Speed in Mb/s, where known: of a NIC, or of the interface under `net_af_packet`.
    pub mbps: Option<u32>,
    /// Both directions at once.
    pub full_duplex: bool,
}
