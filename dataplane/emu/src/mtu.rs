// SPDX-License-Identifier: Apache-2.0
//! Link MTU: IP packets above it are not carried, and their sender can be told.
//!
//! A packet that is longer than the MTU is dropped when it arrives, before duplication and the
//! queue, as [`DropReason::Mtu`](crate::stats::DropReason::Mtu). Its length is that of the IP header's
//! fields, so padding and VLAN tags do not count; a packet with a damaged header counts with all
//! bytes behind its link-layer header. The limit for IPv6 is at least [`V6_MIN`]: a link with a
//! smaller one has to fragment below IPv6 (RFC 8200, section 5). Nothing is ever fragmented here:
//! an IPv4 packet without DF is dropped without an answer, where a router would fragment it.
//!
//! The answer is the message of a router in front of the link:
//!
//! - IPv4: destination unreachable, fragmentation needed and DF set (RFC 792), with the MTU (RFC
//!   1191, section 4), and as much of the packet as fits into 576 bytes (RFC 1812, 4.3.2.3).
//! - IPv6: packet too big (RFC 4443, 3.2), with as much of the packet as fits into 1280 bytes.
//!
//! It goes back to the sender: MAC addresses are swapped and VLAN tags kept. Its source is a
//! configured address, or else the destination of the packet: the sender has a route to that
//! address, so reverse-path filters let the answer pass.
//!
//! There is no answer to (RFC 1122, 3.2.2; RFC 1812, 4.3.2.7; RFC 4443, 2.4):
//!
//! - a frame from or to a group MAC address;
//! - a packet if its source or destination is not the address of one host;
//! - a packet with a damaged header, also with a wrong IPv4 header checksum;
//! - a fragment other than the first one;
//! - an ICMP error, and in IPv6 a redirect, also behind extension headers;
//! - packets above the rate limit, a token bucket per pipe as RFC 4443, 2.4 (f) recommends.
//!
//! Differs from RFC 4443 in that IPv6 multicast and later fragments are not answered, though packet
//! too big is an exception to these rules: there is no unicast MAC address to answer from, and the
//! first fragment is answered.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Deref;

use crate::checksum;
use crate::classify::{Class, ETHERNET, IPV4, IPV6, MAX_TAGS, VLAN_TAG, be16, classify, payload};
use crate::protocol::{FRAGMENT, ICMP, ICMPV6, MAX_EXTENSIONS, extension_length};
use crate::store::MAX_FRAME;
use crate::units::{Direction, Instant};

/// Minimum MTU of IPv6 (RFC 8200, section 5), and the longest ICMPv6 error.
const V6_MIN: u16 = 1280;
/// The longest ICMP error of IPv4 (RFC 1812, 4.3.2.3).
const V4_ERROR: usize = 576;
const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;
/// An ICMP error before the quoted packet.
const ICMP_HEADER: usize = 8;
/// The longest answer as a frame.
const LONGEST: usize = ETHERNET + MAX_TAGS * VLAN_TAG + V6_MIN as usize;
/// Linux's default for packets that it sends.
const HOPS: u8 = 64;
/// Precedence of network control (RFC 1812, 4.3.2.5).
const NETWORK_CONTROL: u8 = 0xc0;
const DF: u8 = 0x40;
const FRAGMENT_OFFSET: u16 = 0x1fff;
/// Destination unreachable, source quench, redirect, time exceeded, parameter problem.
const ICMP_ERRORS: [u8; 5] = [3, 4, 5, 11, 12];
const REDIRECT_V6: u8 = 137;
/// Largest number of answers in a burst, as `icmp_msgs_burst` of Linux.
const BURST: u32 = 50;
/// Credit for an answer, in units of nanoseconds times rate in 1/s: no rounding is needed.
const TOKEN: u64 = 1_000_000_000;

/// The MTU of one pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtuPlan {
    /// Length of the longest IP packet in bytes.
    pub limit: u16,
    /// How senders of longer packets are told; none: they are not.
    pub answers: Option<AnswerPlan>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerPlan {
    /// Source of the answer; none: the destination of the packet.
    pub v4: Option<Ipv4Addr>,
    pub v6: Option<Ipv6Addr>,
    /// Answers per second, at most, after a burst of up to [`BURST`].
    pub rate: u32,
}

/// The MTU of one pipe, and its rate limit of answers.
#[derive(Clone, Debug)]
pub struct Mtu {
    plan: MtuPlan,
    /// [`TOKEN`] for each answer that may be sent now.
    credit: u64,
    /// Instant of `credit`.
    at: Instant,
}

impl Mtu {
    /// None without a plan. An existing one keeps its credit.
    #[must_use]
    pub fn new(plan: Option<MtuPlan>, at: Instant, before: Option<Self>) -> Option<Self> {
        let plan = plan?;
        let full = Self { plan, credit: full(plan.answers), at };
        Some(before.map_or(full.clone(), |before| Self {
            credit: before.credit_at(at).min(full.credit),
            ..full
        }))
    }

    /// A frame of up to this many bytes holds no packet above the MTU, whatever is in it.
    #[must_use]
    pub fn unchecked(plan: Option<MtuPlan>) -> u16 {
        const _: () = assert!(MAX_FRAME < u16::MAX as u32);
        plan.map_or(u16::MAX, |plan| plan.limit.saturating_add(ETHERNET as u16))
    }

    /// Whether the packet in a frame is above the MTU.
    #[must_use]
    pub fn is_exceeded(&self, frame: &[u8]) -> bool {
        let packet = Packet::of(frame);
        packet.len > usize::from(self.limit(packet.is_v6))
    }

    fn limit(&self, is_v6: bool) -> u16 {
        if is_v6 { self.plan.limit.max(V6_MIN) } else { self.plan.limit }
    }

    /// Writes the answer to a frame that is above the MTU at `now`, if there is one, of up to
    /// `longest` bytes.
    pub fn answer(&mut self, now: Instant, frame: &[u8], longest: u32, answer: &mut Answer) {
        answer.len = 0;
        let Some(plan) = self.plan.answers else { return };
        let Packet { head, whole: Some(packet), is_v6, .. } = Packet::of(frame) else { return };
        (self.credit, self.at) = (self.credit_at(now), self.at.max(now));
        let Some(left) = self.credit.checked_sub(TOKEN) else { return };
        let limit = self.limit(is_v6);
        let is_written = answer.turn_back(head)
            && if is_v6 {
                answer.packet_too_big(plan.v6, limit, packet)
            } else {
                answer.fragmentation_needed(plan.v4, limit, packet)
            };
        if is_written && answer.len <= longest as usize {
            self.credit = left;
        } else {
            answer.len = 0;
        }
    }

    fn credit_at(&self, now: Instant) -> u64 {
        let rate = self.plan.answers.map_or(0, |plan| u64::from(plan.rate));
        let earned = now.since(self.at).0.saturating_mul(rate);
        self.credit.saturating_add(earned).min(full(self.plan.answers))
    }
}

/// Credit of a full bucket.
fn full(answers: Option<AnswerPlan>) -> u64 {
    answers.map_or(0, |plan| u64::from(plan.rate.min(BURST)) * TOKEN)
}

/// The packet in a frame.
struct Packet<'a> {
    /// The link-layer header.
    head: &'a [u8],
    /// Length in bytes: of the header's fields, or if it is damaged of all behind the head. Zero
    /// without IP.
    len: usize,
    is_v6: bool,
    /// The packet without padding, if its header is not damaged.
    whole: Option<&'a [u8]>,
}

impl<'a> Packet<'a> {
    fn of(frame: &'a [u8]) -> Self {
        let (ethertype, at) = payload(frame);
        let (head, behind) = frame.split_at_checked(at).unwrap_or((frame, &[]));
        // The class does not depend on the direction.
        let is_damaged = classify(frame, Direction::Forward) == Class::Malformed;
        let is_v6 = ethertype == Some(IPV6);
        let len = match ethertype {
            _ if is_damaged => behind.len(),
            Some(IPV4) => be16(behind, 2).map_or(0, usize::from),
            Some(IPV6) => V6_HEADER + be16(behind, 4).map_or(0, usize::from),
            _ => 0,
        };
        let whole = behind.get(..len).filter(|_| !is_damaged && len > 0);
        Self { head, len, is_v6, whole }
    }
}

/// An answer as a frame; empty if there is none.
#[derive(Debug)]
pub struct Answer {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Default for Answer {
    fn default() -> Self {
        Self { bytes: [0; LONGEST], len: 0 }
    }
}

impl Deref for Answer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Answer {
    fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(bytes);
            self.len = end;
        }
    }

    /// Writes a link-layer header with swapped addresses; false if one of them is a group's.
    fn turn_back(&mut self, head: &[u8]) -> bool {
        let Some((to, rest)) = head.split_first_chunk::<6>() else { return false };
        let Some((from, rest)) = rest.split_first_chunk::<6>() else { return false };
        self.put(from);
        self.put(to);
        self.put(rest);
        (to[0] | from[0]) & 1 == 0
    }

    /// Writes the answer to a whole IPv4 packet; false if there is none.
    fn fragmentation_needed(&mut self, own: Option<Ipv4Addr>, mtu: u16, packet: &[u8]) -> bool {
        let header = packet.get(..usize::from(packet[0] & 0xf) * 4).unwrap_or_default();
        let address = |at: usize| header.get(at..)?.first_chunk::<4>().map(|a| Ipv4Addr::from(*a));
        let (Some(source), Some(destination)) = (address(12), address(16)) else { return false };
        let fragment = be16(header, 6).unwrap_or(0);
        let protocol = header[9];
        let is_error = protocol == ICMP
            && packet.get(header.len()).is_none_or(|kind| ICMP_ERRORS.contains(kind));
        if header[6] & DF == 0
            || fragment & FRAGMENT_OFFSET != 0
            || is_error
            || !is_host_v4(source)
            || !is_host_v4(destination)
            || checksum::add(0, header) != 0xffff
        {
            return false;
        }
        let quoted = &packet[..packet.len().min(V4_ERROR - V4_HEADER - ICMP_HEADER)];
        // At most 576 bytes.
        let [long, short] = ((V4_HEADER + ICMP_HEADER + quoted.len()) as u16).to_be_bytes();
        let mut ip = [0; V4_HEADER];
        ip[..10].copy_from_slice(&[
            0x45,
            NETWORK_CONTROL,
            long,
            short,
            // Of a packet that is never fragmented, the id has no meaning (RFC 6864, 4.1).
            0,
            0,
            DF,
            0,
            HOPS,
            ICMP,
        ]);
        ip[12..16].copy_from_slice(&own.unwrap_or(destination).octets());
        ip[16..].copy_from_slice(&source.octets());
        let sum = !checksum::add(0, &ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let [long, short] = mtu.to_be_bytes();
        let mut icmp = [3, 4, 0, 0, 0, 0, long, short];
        let sum = !checksum::add(checksum::add(0, &icmp), quoted);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        for part in [&ip[..], &icmp, quoted] {
            self.put(part);
        }
        true
    }

    /// Writes the answer to a whole IPv6 packet; false if there is none.
    fn packet_too_big(&mut self, own: Option<Ipv6Addr>, mtu: u16, packet: &[u8]) -> bool {
        let address = |at: usize| packet.get(at..)?.first_chunk::<16>().map(|a| Ipv6Addr::from(*a));
        let (Some(source), Some(destination)) = (address(8), address(24)) else { return false };
        if !is_host_v6(source) || !is_host_v6(destination) || !takes_error_v6(packet) {
            return false;
        }
        let most = usize::from(V6_MIN) - V6_HEADER - ICMP_HEADER;
        let quoted = &packet[..packet.len().min(most)];
        // At most 1240 bytes.
        let [long, short] = ((ICMP_HEADER + quoted.len()) as u16).to_be_bytes();
        let mut ip = [0; V6_HEADER];
        ip[..8].copy_from_slice(&[0x60, 0, 0, 0, long, short, ICMPV6, HOPS]);
        ip[8..24].copy_from_slice(&own.unwrap_or(destination).octets());
        ip[24..].copy_from_slice(&source.octets());
        let [upper, lower] = mtu.to_be_bytes();
        let mut icmp = [2, 0, 0, 0, 0, 0, upper, lower];
        // The pseudo-header of RFC 8200, 8.1: addresses, length, next header.
        let sum = checksum::add(0, &ip[8..]);
        let sum = checksum::add(sum, &[long, short, 0, ICMPV6]);
        let sum = !checksum::add(checksum::add(sum, &icmp), quoted);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        for part in [&ip[..], &icmp, quoted] {
            self.put(part);
        }
        true
    }
}

/// Whether an address can be that of one host: not in 0.0.0.0/8, loopback, multicast, class E or
/// broadcast.
fn is_host_v4(a: Ipv4Addr) -> bool {
    let [first, ..] = a.octets();
    first != 0 && first < 224 && !a.is_loopback()
}

/// As [`is_host_v4`].
fn is_host_v6(a: Ipv6Addr) -> bool {
    !(a.is_multicast() || a.is_unspecified() || a.is_loopback())
}

/// Whether an error may be sent about a whole IPv6 packet, by its extension headers and its upper
/// layer (RFC 4443, 2.4 (e)). False for more than [`MAX_EXTENSIONS`].
fn takes_error_v6(packet: &[u8]) -> bool {
    let (mut kind, mut at) = (packet[6], V6_HEADER);
    for _ in 0..=MAX_EXTENSIONS {
        let header = packet.get(at..).unwrap_or_default();
        let [next, units] = header.first_chunk().copied().unwrap_or_default();
        if kind == ICMPV6 {
            return header.first().is_some_and(|t| *t >= 128 && *t != REDIRECT_V6);
        }
        if kind == FRAGMENT && be16(header, 2).is_none_or(|offset| offset >> 3 != 0) {
            return false;
        }
        let Some(length) = extension_length(kind, units) else { return true };
        (kind, at) = (next, at + length);
    }
    false
}

#[cfg(test)]
mod tests;
