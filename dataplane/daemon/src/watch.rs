// SPDX-License-Identifier: Apache-2.0
//! Watches the ports while packets pass: link, MTU, address, whether the interface still exists,
//! and whether it has sent what it was given. Runs on the control thread.
//!
//! The kernel reports each change of an interface (rtnetlink(7), RTNLGRP_LINK), with a count of
//! carrier losses, so that a link that was lost and restored between two readings is seen too.
//! For a port without a kernel interface, the driver is asked for the link every [`LOOK`].
//!
//! The sender on a packet socket is not told when the interface drops a frame that it accepted.
//! Therefore the interface's own counter of sent frames is compared with the driver's: a frame
//! that the interface has not counted within [`SETTLE`] is unconfirmed. Frames that this machine
//! itself sends on the interface can hide an equal number of lost ones.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dpdk::StartedPort;
use nix::errno::Errno;
use profile::counted;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::{Handle, MulticastGroup};
use tokio_stream::{Stream, StreamExt};

/// Time between two readings of the ports.
const LOOK: Duration = Duration::from_millis(200);
/// Longest time from the driver's count of a frame to the interface's: its wait in the queue,
/// and the two seconds in which some drivers update their counters.
const SETTLE: Duration = Duration::from_secs(3);
/// After this time without a lost frame, the next one is reported as a new fault.
const QUIET: Duration = Duration::from_secs(10);
/// Descriptions of changes that are kept until linkd reads them.
const REMEMBERED: usize = 8;
/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

/// The state of a port, apart from its driver's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// In bytes of layer 3; none without a kernel interface.
    pub mtu: Option<u32>,
    /// The kernel interface has been removed.
    pub gone: bool,
    /// Changes by which packets may have been lost.
    pub faults: u64,
    pub changes: u64,
    /// Descriptions of the last changes, at most [`REMEMBERED`], the latest last.
    pub last: VecDeque<String>,
    /// Frames that the driver counts as sent and the interface does not.
    pub unconfirmed: u64,
}

impl Seen {
    fn change(&mut self, port: &str, message: String) {
        tracing::warn!(port, "{message}");
        self.changes += 1;
        if self.last.len() == REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(message);
    }

    fn fault(&mut self, port: &str, message: String) {
        self.faults += 1;
        self.change(port, message);
    }
}

/// The state of all ports, in their order. Clones share it.
#[derive(Clone, Debug)]
pub struct Watch(Arc<Mutex<Vec<Seen>>>);

impl Watch {
    /// For so many ports.
    #[must_use]
    pub fn new(ports: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![Seen::default(); ports])))
    }

    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the ports while it is polled. Returns the name of a port with an interface that was
    /// removed and did not return within `patience`.
    pub async fn keep(&self, ports: &[StartedPort], patience: Duration) -> String {
        let mut watched: Vec<_> = ports.iter().map(Watched::new).collect();
        let mut netlink: Option<Netlink> = None;
        // A failure to open is logged once, until it has been open again.
        let mut blind = false;
        let mut looks = tokio::time::interval(LOOK);
        loop {
            let told = async {
                match &mut netlink {
                    Some(netlink) => netlink.next().await,
                    None => std::future::pending().await,
                }
            };
            let told = tokio::select! {
                told = told => Some(told),
                _ = looks.tick() => None,
            };
            match told {
                // The socket failed, or a message did not fit. The next reading opens another,
                // and asks for the state.
                Some(None) => netlink = None,
                Some(Some(told)) => {
                    let mut seen = self.lock();
                    for (port, seen) in watched.iter_mut().zip(seen.iter_mut()) {
                        port.told(&told, seen);
                    }
                }
                None => {
                    if netlink.is_none() {
                        netlink = Netlink::open()
                            .inspect_err(|error| {
                                if !blind {
                                    tracing::warn!(%error, "changes of interfaces are not seen");
                                }
                            })
                            .ok();
                        blind = netlink.is_none();
                    }
                    for (at, port) in watched.iter_mut().enumerate() {
                        let found = match (&netlink, port.index) {
                            (Some(netlink), Some(index)) => netlink.ask(index).await,
                            _ => None,
                        };
                        let mut seen = self.lock();
                        let Some(seen) = seen.get_mut(at) else { continue };
                        if let Some(found) = found {
                            port.told(&found, seen);
                        }
                        port.look(seen, Instant::now());
                        if port.gone.is_some_and(|since| since.elapsed() >= patience) {
                            return port.port.name().to_owned();
                        }
                    }
                }
            }
        }
    }
}

/// A message of the kernel about an interface.
#[derive(Clone, Debug)]
enum Told {
    Is(Box<Interface>),
    Gone(u32),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Interface {
    index: u32,
    mtu: u32,
    address: Vec<u8>,
    /// Administratively up, with a carrier.
    up: bool,
    losses: u32,
    sent: u64,
    /// Frames that the interface counts as dropped or failed on transmission.
    dropped: u64,
}

impl From<&LinkMessage> for Interface {
    fn from(message: &LinkMessage) -> Self {
        let header = &message.header;
        let up = header.flags.contains(LinkFlags::Up | LinkFlags::Running);
        let mut interface = Self { index: header.index, up, ..Self::default() };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
                LinkAttribute::Address(address) => interface.address.clone_from(address),
                LinkAttribute::CarrierDownCount(losses) => interface.losses = *losses,
                LinkAttribute::Stats64(stats) => {
                    interface.sent = stats.tx_packets;
                    interface.dropped = stats.tx_dropped.saturating_add(stats.tx_errors);
                }
                _ => {}
            }
        }
        interface
    }
}

/// A netlink socket that receives the kernel's messages about interfaces.
struct Netlink {
    handle: Handle,
    messages: Pin<Box<dyn Stream<Item = RouteNetlinkMessage> + Send>>,
}

impl Netlink {
    fn open() -> std::io::Result<Self> {
        let (connection, handle, messages) =
            rtnetlink::new_multicast_connection(&[MulticastGroup::Link])?;
        tokio::spawn(connection);
        let messages = messages.filter_map(|(message, _)| match message.payload {
            NetlinkPayload::InnerMessage(message) => Some(message),
            _ => None,
        });
        Ok(Self { handle, messages: Box::pin(messages) })
    }

    async fn next(&mut self) -> Option<Told> {
        loop {
            match self.messages.next().await? {
                RouteNetlinkMessage::NewLink(link) => {
                    return Some(Told::Is(Box::new(Interface::from(&link))));
                }
                RouteNetlinkMessage::DelLink(link) => return Some(Told::Gone(link.header.index)),
                _ => {}
            }
        }
    }

    /// Asks for the state of the interface; none if the kernel does not answer.
    async fn ask(&self, index: u32) -> Option<Told> {
        let mut links = Box::pin(self.handle.link().get().match_index(index).execute());
        match links.next().await? {
            Ok(link) => Some(Told::Is(Box::new(Interface::from(&link)))),
            Err(rtnetlink::Error::NetlinkError(error))
                if error.raw_code() == -(Errno::ENODEV as i32) =>
            {
                Some(Told::Gone(index))
            }
            Err(_) => None,
        }
    }
}

/// A port with its state at the last reading.
struct Watched<'a> {
    port: &'a StartedPort,
    /// Index of its kernel interface, if it has one.
    index: Option<u32>,
    before: Option<Interface>,
    /// Link state as read from the driver, for a port without a kernel interface.
    up: Option<bool>,
    gone: Option<Instant>,
    confirmed: Confirmed,
}

impl<'a> Watched<'a> {
    fn new(port: &'a StartedPort) -> Self {
        let index = port.info().iface.as_deref().and_then(dpdk::Interface::find);
        Self {
            port,
            index: index.map(|interface| interface.index()),
            before: None,
            up: None,
            gone: None,
            confirmed: Confirmed::default(),
        }
    }

    fn told(&mut self, told: &Told, seen: &mut Seen) {
        let name = self.port.name();
        match told {
            Told::Gone(index) => {
                if Some(*index) == self.index && !seen.gone {
                    seen.gone = true;
                    self.gone = Some(Instant::now());
                    seen.fault(name, "its interface has been removed".to_owned());
                }
            }
            Told::Is(now) => {
                if Some(now.index) != self.index {
                    return;
                }
                if let Some(before) = self.before.replace((**now).clone()) {
                    compare(name, &before, now, seen);
                }
                seen.mtu = Some(now.mtu);
                self.port.limit_frames(now.mtu.saturating_add(ETHERNET));
            }
        }
    }

    fn look(&mut self, seen: &mut Seen, at: Instant) {
        let name = self.port.name();
        match &self.before {
            Some(interface) => {
                let Ok(counters) = self.port.counters() else { return };
                let lost =
                    self.confirmed.look(at, counters.tx_packets, interface.sent, interface.dropped);
                if lost > seen.unconfirmed {
                    let more = lost - seen.unconfirmed;
                    seen.unconfirmed = lost;
                    if self.confirmed.is_news(at) {
                        seen.fault(
                            name,
                            format!(
                                "its interface has not sent {} that it was given",
                                counted(more, "frame", "frames")
                            ),
                        );
                    }
                }
            }
            None => {
                let Ok(link) = self.port.link() else { return };
                match self.up.replace(link.up) {
                    Some(true) if !link.up => seen.fault(name, "its link was lost".to_owned()),
                    Some(false) if link.up => seen.change(name, "its link is back".to_owned()),
                    _ => {}
                }
            }
        }
    }
}

/// Reports the changes of an interface.
fn compare(port: &str, before: &Interface, now: &Interface, seen: &mut Seen) {
    let losses = now.losses.wrapping_sub(before.losses);
    match (before.up, now.up) {
        (true, false) => seen.fault(port, "its link was lost".to_owned()),
        (false, true) => seen.change(port, "its link is back".to_owned()),
        (true, true) if losses > 0 => {
            seen.fault(
                port,
                format!("its link was lost {}, and is back", counted(losses, "time", "times")),
            );
        }
        _ => {}
    }
    if now.mtu != before.mtu {
        let message = format!("its MTU went from {} to {}", before.mtu, now.mtu);
        match now.mtu < before.mtu {
            true => seen.fault(port, message),
            false => seen.change(port, message),
        }
    }
    if now.address != before.address {
        seen.change(port, "its MAC address was changed".to_owned());
    }
}

/// Compares the driver's sent frames with the interface's counter.
#[derive(Debug, Default)]
struct Confirmed {
    /// At the first look: the driver's count, and the interface's of sent and dropped frames.
    start: Option<[u64; 3]>,
    /// The driver's count at past looks, the last one last.
    given: VecDeque<(Instant, u64)>,
    lost: u64,
    news: Option<Instant>,
}

impl Confirmed {
    /// How many frames the interface has not sent, up to a look at both counts.
    fn look(&mut self, at: Instant, given: u64, sent: u64, dropped: u64) -> u64 {
        let start = *self.start.get_or_insert([given, sent, dropped]);
        let [given, sent, dropped] =
            [given - start[0], sent.saturating_sub(start[1]), dropped.saturating_sub(start[2])];
        self.given.push_back((at, given));
        let mut settled = 0;
        while let Some((then, count)) = self.given.front().copied() {
            if at.duration_since(then) < SETTLE {
                break;
            }
            settled = count;
            // The last one that has settled stays, for the next look.
            if self.given.get(1).is_none_or(|(next, _)| at.duration_since(*next) < SETTLE) {
                break;
            }
            self.given.pop_front();
        }
        self.lost = self.lost.max(settled.saturating_sub(sent)).max(dropped);
        self.lost
    }

    /// Whether a new loss of frames must be reported.
    fn is_news(&mut self, at: Instant) -> bool {
        let last = self.news.replace(at);
        last.is_none_or(|last| at.duration_since(last) >= QUIET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface() -> Interface {
        Interface { index: 7, mtu: 1500, address: vec![2; 6], up: true, ..Interface::default() }
    }

    /// The report of a change.
    fn seen(change: impl FnOnce(&mut Interface)) -> Seen {
        let (before, mut now, mut seen) = (interface(), interface(), Seen::default());
        change(&mut now);
        compare("wan", &before, &now, &mut seen);
        seen
    }

    #[test]
    fn what_may_lose_packets_is_a_fault_and_what_mends_it_is_a_change() {
        assert_eq!(seen(|_| {}), Seen::default());
        let counts = |seen: &Seen| (seen.faults, seen.changes);
        let lost = seen(|now| (now.up, now.losses) = (false, 1));
        assert_eq!((counts(&lost), lost.last[0].as_str()), ((1, 1), "its link was lost"));
        let missed = seen(|now| now.losses = 2);
        assert_eq!(counts(&missed), (1, 1));
        assert!(missed.last[0].contains("lost 2 times"), "{:?}", missed.last);
        let smaller = seen(|now| now.mtu = 1280);
        assert_eq!(counts(&smaller), (1, 1));
        assert_eq!(smaller.last, ["its MTU went from 1500 to 1280"]);
        assert_eq!(counts(&seen(|now| now.mtu = 9000)), (0, 1));
        assert_eq!(counts(&seen(|now| now.address = vec![4; 6])), (0, 1));
        let mut back = Seen::default();
        let down = Interface { up: false, ..interface() };
        compare("wan", &down, &interface(), &mut back);
        assert_eq!(counts(&back), (0, 1));
    }

    #[test]
    fn a_frame_is_lost_when_the_interface_does_not_count_it_in_time() {
        let mut confirmed = Confirmed::default();
        let start = Instant::now();
        // In percent of the time that a frame has.
        let mut look = |percent, given, sent, dropped| {
            confirmed.look(start + SETTLE * percent / 100, given, sent, dropped)
        };
        // Earlier counts are ignored.
        assert_eq!(look(0, 100, 5000, 3), 0);
        // Frames may wait in the interface's queue,
        assert_eq!(look(20, 150, 5010, 3), 0);
        assert_eq!(look(110, 150, 5050, 3), 0);
        assert_eq!(look(130, 200, 5060, 3), 0);
        // but not for ever: of 100, 60 have left.
        assert_eq!(look(220, 200, 5060, 3), 0);
        assert_eq!(look(230, 250, 5060, 3), 40);
        // Frames that the machine sends by itself do not compensate lost ones.
        assert_eq!(look(240, 250, 9999, 3), 40);
        // Drops that the interface reports, immediately.
        assert_eq!(look(250, 250, 9999, 53), 50);
    }
}
