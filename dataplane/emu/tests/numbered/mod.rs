// SPDX-License-Identifier: Apache-2.0
//! Frames that are known again by their number, and hosts that are known by their address.
#![allow(dead_code, reason = "not every program uses all of it")]

use std::net::Ipv4Addr;

use emu::engine::{Departure, Engine};
use emu::frame::Buffer;
use emu::units::{Direction, Instant};

/// A frame of `len` bytes that carries its number, of the host 10.0.0.1.
pub fn frame(len: u16, number: u32) -> Vec<u8> {
    let mut f = vec![number as u8; usize::from(len)];
    f[12..14].copy_from_slice(&[8, 0]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&(len - 14).to_be_bytes());
    for address in [26..30, 30..34] {
        f[address].copy_from_slice(&[10, 0, 0, 1]);
    }
    f[34..38].copy_from_slice(&number.to_be_bytes());
    f
}

/// An ARP reply of a host to another one.
pub fn arp_reply(host: Ipv4Addr) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, 2];
    [&[2; 12][..], &[8, 6], &head, &[2; 6], &host.octets(), &[4; 10]].concat()
}

/// Sends an ARP reply of each host from the client side at `at`, which makes it a client. Frames
/// that are due by then are discarded.
pub fn resolve<B: Buffer>(
    engine: &mut Engine<B>,
    at: Instant,
    hosts: impl IntoIterator<Item = Ipv4Addr>,
) {
    for host in hosts {
        engine.arrive(at, Direction::Return, &arp_reply(host));
        engine.release(at, usize::MAX, &mut |_: Departure<'_, B>| true);
    }
}
