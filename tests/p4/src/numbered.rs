// SPDX-License-Identifier: Apache-2.0
//! Numbered frames between hosts, paced by the devices between them: never more at once than a
//! software switch holds.
//!
//! After a few frames follows a sentinel, which is not IP and passes without delay. When it has
//! arrived, the frames before it are in the box, and the next ones are sent. So a stalled machine
//! loses no frame. Frames have a destination MAC that no host has, so the hosts' stacks ignore
//! them.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use smoke::namespace::Namespace;
use smoke::raw::{Mac, RawSocket};
use smoke::testbed::{CLIENT_INTERFACE, SERVER, SERVER_INTERFACE, Testbed};
use smoke::wire::Wire;

use crate::frame::Frame;

/// Unicast address of no host.
const NOBODY: Mac = [2, 0, 0, 0, 0, 0x99];
/// EtherType: IEEE 802, local experimental 2.
const SENTINEL: u16 = 0x88b6;
/// Frames before a sentinel; the switch's queue holds 64.
const WINDOW: u32 = 24;
const LIMIT: Duration = Duration::from_secs(10);
/// Offsets of the sender's and the receiver's IPv4 address in a frame.
const SOURCE: usize = 26;
const DESTINATION: usize = 30;

/// Frames in one direction.
#[derive(Debug)]
pub struct Numbered {
    from: Wire,
    to: Wire,
    forward: bool,
    clients: Vec<Ipv4Addr>,
    pub sent: u64,
    pub came: u64,
    rounds: u32,
    /// For each number, whether the frame is lost.
    pub lost: Vec<bool>,
    /// Frames that arrived after a later one of the same client.
    pub overtaken: u64,
    /// The last number that arrived, by client.
    last: Vec<Option<usize>>,
}

impl Numbered {
    /// Frames to or from these clients, in turn.
    pub fn new(hosts: &Testbed, forward: bool, clients: usize) -> anyhow::Result<Self> {
        let clients = (0..clients).map(|client| hosts.client_address(client)).collect();
        Self::of(hosts, forward, clients)
    }

    /// The same for clients with these addresses, which are the hosts' or nobody's.
    pub fn of(hosts: &Testbed, forward: bool, clients: Vec<Ipv4Addr>) -> anyhow::Result<Self> {
        let open = |host: &Namespace, interface| Wire::open(host, interface);
        let server = open(hosts.server(), SERVER_INTERFACE)?;
        let client = open(hosts.client(), CLIENT_INTERFACE)?;
        let (from, to) = if forward { (server, client) } else { (client, server) };
        // No host sends ARP requests while frames are counted.
        let mac = |host: &Namespace, interface| {
            let mac = RawSocket::open(host, interface)?.mac;
            anyhow::Ok(mac.map(|byte| format!("{byte:02x}")).join(":"))
        };
        let known = |host: &Namespace, address: Ipv4Addr, mac: &str, interface| {
            let address = address.to_string();
            let command = ["ip", "neighbour", "replace", &address, "lladdr", mac];
            host.run(&[&command[..], &["dev", interface]].concat())
        };
        let servers = mac(hosts.server(), SERVER_INTERFACE)?;
        known(hosts.client(), SERVER, &servers, CLIENT_INTERFACE)?;
        let clients_mac = mac(hosts.client(), CLIENT_INTERFACE)?;
        let own = (0..usize::from(hosts.clients())).map(|client| hosts.client_address(client));
        for address in own {
            known(hosts.server(), address, &clients_mac, SERVER_INTERFACE)?;
        }
        let last = vec![None; clients.len()];
        Ok(Self {
            from,
            to,
            forward,
            clients,
            sent: 0,
            came: 0,
            rounds: 0,
            lost: Vec::new(),
            overtaken: 0,
            last,
        })
    }

    /// Sends a few more frames, and takes those that arrive meanwhile.
    pub fn window(&mut self) -> anyhow::Result<()> {
        for _ in 0..WINDOW {
            self.one()?;
        }
        self.sentinel()
    }

    pub fn one(&mut self) -> anyhow::Result<()> {
        let number = self.lost.len();
        let client = self.clients[number % self.clients.len()];
        // The address of the other end contains the number.
        let other = Ipv4Addr::from(u32::try_from(number)?);
        let (source, target) = if self.forward { (other, client) } else { (client, other) };
        let frame = Frame::v4(source, target).between([2, 0, 0, 0, 0, 0x98], NOBODY);
        self.from.send(&frame.bytes())?;
        self.sent += 1;
        self.lost.push(true);
        Ok(())
    }

    /// Waits until all frames sent before have reached the box, or have passed it if it held none,
    /// and takes those that arrived.
    pub fn sentinel(&mut self) -> anyhow::Result<()> {
        self.rounds += 1;
        let payload = [&self.rounds.to_be_bytes()[..], &[0; 42]].concat();
        let sentinel = Frame::other(SENTINEL, &payload).between([2, 0, 0, 0, 0, 0x98], NOBODY);
        let sentinel = sentinel.bytes();
        self.from.send(&sentinel)?;
        self.sent += 1;
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.to.receive()? {
                Some(frame) if frame == sentinel => {
                    self.came += 1;
                    return Ok(());
                }
                Some(frame) => self.take(&frame)?,
                None => {
                    let ready = Wire::wait(&[&self.to], deadline)?;
                    ensure!(ready || Instant::now() < deadline, "a sentinel did not come");
                }
            }
        }
    }

    pub fn taken(&mut self) -> anyhow::Result<()> {
        while let Some(frame) = self.to.receive()? {
            self.take(&frame)?;
        }
        Ok(())
    }

    fn take(&mut self, frame: &[u8]) -> anyhow::Result<()> {
        if !frame.starts_with(&NOBODY) {
            // Packets of the hosts themselves.
            return Ok(());
        }
        let at = if self.forward { SOURCE } else { DESTINATION };
        let number = frame.get(at..).and_then(|f| f.first_chunk()).map(|n| u32::from_be_bytes(*n));
        let number = number.map_or(usize::MAX, |number| number as usize);
        match self.lost.get_mut(number) {
            Some(lost) if *lost => *lost = false,
            _ => anyhow::bail!("a frame came twice, or was never sent: {frame:02x?}"),
        }
        let client = number % self.clients.len();
        let last = self.last[client].get_or_insert(number);
        self.overtaken += u64::from(*last > number);
        *last = number.max(*last);
        self.came += 1;
        Ok(())
    }

    /// Fates of a client's frames, in order: true if lost.
    #[must_use]
    pub fn lost_of(&self, client: usize) -> Vec<bool> {
        self.lost.iter().skip(client).step_by(self.clients.len()).copied().collect()
    }
}
