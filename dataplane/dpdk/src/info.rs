// SPDX-License-Identifier: Apache-2.0
//! Facts about a port: its description, its counters and its link state. Control thread.

/// Description of an attached port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The user's name for the port.
    pub name: String,
    /// DPDK's number of the port.
    pub id: u16,
    pub device: String,
    pub driver: String,
    /// The underlying kernel interface, if any.
    pub iface: Option<String>,
    pub mac: [u8; 6],
    /// The MTU, in bytes of layer 3.
    pub mtu: u16,
    /// Largest frame that the port can receive whole, bytes without frame check sequence.
    pub max_frame: u32,
    /// Minimum data room of the mempool's buffers, bytes.
    pub min_data_room: u32,
    pub max_rx_queues: u16,
    pub max_tx_queues: u16,
    /// Link speed in Mb/s, if known: of a NIC, or of the interface under `net_af_packet`. For a NIC
    /// with a link that is not up yet, its highest speed.
    pub link_mbps: Option<u32>,
    pub numa_node: Option<u32>,
    /// Packet sockets found, for wake-ups and kernel drops.
    pub packet_sockets: usize,
}

/// Counters since the workers were ready ([`RxQueue::discard`](crate::RxQueue::discard)), or since the
/// port was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub rx_packets: u64,
    /// Bytes received, without frame check sequence.
    pub rx_bytes: u64,
    /// Packets dropped before this process received them: by the device because descriptors ran
    /// out, or by the kernel because the ring of a packet socket was full.
    pub rx_missed: u64,
    pub rx_errors: u64,
    /// Packets not received because the mempool was empty, if the driver counts them.
    pub rx_no_mbuf: u64,
    /// Packets that came before the workers were ready: discarded or lost, and counted only here.
    pub rx_early: u64,
    pub tx_packets: u64,
    /// Bytes sent, without frame check sequence.
    pub tx_bytes: u64,
    /// Packets that the driver accepted and could not send.
    pub tx_errors: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub up: bool,
    /// Speed in Mb/s, if known: of a NIC, or of the interface under `net_af_packet`.
    pub mbps: Option<u32>,
    pub full_duplex: bool,
}
