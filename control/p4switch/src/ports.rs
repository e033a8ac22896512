// SPDX-License-Identifier: Apache-2.0
//! The ports of the switch, and the queues between them and the pipeline.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use dpdk::{Mbuf, MbufBurst, Mempool, RxQueue, TxQueue};
use p4runtime::Count;
use rand_chacha::ChaCha8Rng;
use rand_core::Rng;
use swx::Wire;
use tokio::sync::mpsc;

use crate::groups::{Groups, Reported};
use crate::header::{Decided, EXTRACTED, LENGTH, Learn, Received};

/// How often a port is asked to take frames before they are dropped. A port may refuse a frame
/// forever.
const TRIES: u32 = 100;

/// Queues of a port.
#[derive(Debug)]
pub struct PortQueues {
    pub rx: RxQueue,
    pub tx: TxQueue,
}

/// Frames since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub received: u64,
    pub sent: u64,
    /// Frames in several segments, and frames without room for the header or the padding.
    pub unreadable: u64,
    /// Frames to ports or groups that do not exist.
    pub nowhere: u64,
    /// Frames that are longer than their port takes, that it did not take in time, or those of a group
    /// without a buffer.
    pub not_sent: u64,
    /// Copies for a mirror that were not sent. The frames themselves were not affected.
    pub copies_lost: u64,
}

#[derive(Debug)]
struct Port {
    queues: PortQueues,
    staged: MbufBurst,
    staged_bytes: u64,
    /// Copies for a mirror are staged.
    copies: bool,
    /// Frames that the port has taken, since the program was loaded.
    sent: Count,
}

/// All ports, and what they need.
#[derive(Debug)]
pub struct Ports {
    ports: BTreeMap<u16, Port>,
    pub groups: Groups,
    pub counts: Counts,
    reported: Reported,
    learned: mpsc::Sender<Learn>,
    random: ChaCha8Rng,
    pool: Mempool,
    start: Instant,
    now: Instant,
}

impl Ports {
    /// `pool` has the buffers for copies; unknown hosts go to `learned`.
    #[must_use]
    pub fn new(
        ports: impl IntoIterator<Item = (u16, PortQueues)>,
        pool: Mempool,
        random: ChaCha8Rng,
        learned: mpsc::Sender<Learn>,
    ) -> Self {
        let port = |(number, queues)| {
            let (staged, staged_bytes, copies, sent) = Default::default();
            (number, Port { queues, staged, staged_bytes, copies, sent })
        };
        let now = Instant::now();
        Self {
            ports: ports.into_iter().map(port).collect(),
            groups: Groups::new(),
            counts: Counts::default(),
            reported: Reported::default(),
            learned,
            random,
            pool,
            start: now,
            now,
        }
    }

    /// Receives a burst from each port. The time is read once the burst is here: one from before would make
    /// frames from the box early if the thread was held up in between.
    pub fn poll(&mut self, into: &mut VecDeque<Mbuf>) {
        let mut burst = MbufBurst::new();
        for (&number, port) in &mut self.ports {
            port.queues.rx.burst(&mut burst);
            self.now = Instant::now();
            let micros = self.now.duration_since(self.start).as_micros() as u64;
            for mbuf in burst.drain() {
                self.counts.received += 1;
                let received = Received {
                    port: number,
                    length: 0,
                    now: micros,
                    order: into.len() as u16,
                    draws: self.random.next_u64(),
                };
                match prepared(mbuf, received) {
                    Some(mbuf) => into.push_back(mbuf),
                    None => self.counts.unreadable += 1,
                }
            }
        }
    }

    /// Sends the staged frames.
    pub fn flush(&mut self) {
        for port in self.ports.values_mut().filter(|port| !port.staged.is_empty()) {
            flush(port, &mut self.counts);
        }
    }

    /// Executes the pipeline's decision about a frame.
    pub fn send(&mut self, mut packet: Mbuf) {
        let Some((decided, frame)) = decided(&packet) else {
            self.counts.unreadable += 1;
            return;
        };
        if !packet.keep(LENGTH..LENGTH + frame) {
            self.counts.unreadable += 1;
            return;
        }
        if let Some(learn) = decided.learn
            && self.reported.is_due(learn, self.now)
        {
            // A server that is behind gets the host again.
            let _ = self.learned.try_send(learn);
        }
        let mirrored = match decided.to_mirror {
            0 => Vec::new(),
            group => self.mirrored(group, &packet),
        };
        match decided.to_group {
            0 => self.stage(decided.to_port, packet, false),
            group => self.copies(group, &packet),
        }
        for (port, copy) in mirrored {
            self.stage(port, copy, true);
        }
    }

    /// `copy`: it is one for a mirror.
    fn stage(&mut self, number: u16, mbuf: Mbuf, copy: bool) {
        let Some(port) = self.ports.get_mut(&number) else {
            *self.counts.lost(copy, false) += 1;
            return;
        };
        if !port.queues.tx.takes(&mbuf) {
            *self.counts.lost(copy, true) += 1;
            return;
        }
        port.copies = copy;
        if port.staged.is_full() {
            flush(port, &mut self.counts);
        }
        port.staged_bytes += mbuf.len() as u64;
        // The burst has room now.
        let _ = port.staged.push(mbuf);
    }

    /// Frames that a port has taken since the last [`Self::clear_sent`].
    #[must_use]
    pub fn sent(&self, number: u32) -> Count {
        let port = u16::try_from(number).ok().and_then(|number| self.ports.get(&number));
        port.map_or_else(Count::default, |port| port.sent)
    }

    /// Sets a port's count of frames taken. Other ports have none.
    pub fn set_sent(&mut self, number: u32, count: Count) {
        if let Some(port) =
            u16::try_from(number).ok().and_then(|number| self.ports.get_mut(&number))
        {
            port.sent = count;
        }
    }

    pub fn clear_sent(&mut self) {
        self.ports.values_mut().for_each(|port| port.sent = Count::default());
    }

    /// Copies for a mirror, with their ports.
    fn mirrored(&mut self, group: u16, mbuf: &Mbuf) -> Vec<(u16, Mbuf)> {
        let ports = self.groups.get(&group).map_or(&[][..], Vec::as_slice);
        let copy = |port: &u16| Some((*port, self.pool.alloc(mbuf.contiguous()?)?));
        let copies: Vec<_> = ports.iter().filter_map(copy).collect();
        self.counts.copies_lost += (ports.len().max(1) - copies.len()) as u64;
        copies
    }

    fn copies(&mut self, group: u16, mbuf: &Mbuf) {
        let ports = self.groups.get(&group).cloned().unwrap_or_default();
        if ports.is_empty() {
            self.counts.nowhere += 1;
        }
        for port in ports {
            match mbuf.contiguous().and_then(|frame| self.pool.alloc(frame)) {
                Some(copy) => self.stage(port, copy, false),
                None => self.counts.not_sent += 1,
            }
        }
    }
}

/// Frames on their way into the pipeline and out of it.
#[derive(Debug, Default)]
pub struct Queues {
    pub input: VecDeque<Mbuf>,
    /// With their order of arrival.
    pub output: Vec<(u16, Mbuf)>,
}

impl Wire for Queues {
    fn receive(&mut self) -> Option<Mbuf> {
        self.input.pop_front()
    }

    fn send(&mut self, packet: Mbuf) {
        let order = decided(&packet).map_or(0, |(decided, _)| decided.order);
        self.output.push((order, packet));
    }
}

impl Counts {
    /// Where a frame counts that was not sent to a port that exists, or to another one.
    fn lost(&mut self, copy: bool, exists: bool) -> &mut u64 {
        match (copy, exists) {
            (true, _) => &mut self.copies_lost,
            (false, true) => &mut self.not_sent,
            (false, false) => &mut self.nowhere,
        }
    }
}

/// Sends the staged frames of a port; those that it does not take are dropped. No frame waits for a port
/// that takes copies.
fn flush(port: &mut Port, counts: &mut Counts) {
    let tries = if port.copies { 1 } else { TRIES };
    let mut taken = 0;
    for _ in 0..tries {
        taken += port.queues.tx.burst(&mut port.staged) as u64;
        if port.staged.is_empty() {
            break;
        }
        dpdk::pause();
    }
    let left: usize = (0..port.staged.len()).map(|at| port.staged[at].len()).sum();
    let bytes = port.staged_bytes.saturating_sub(left as u64);
    port.sent = port.sent.plus(Count { packets: taken, bytes });
    counts.sent += taken;
    *counts.lost(port.copies, true) += port.staged.len() as u64;
    port.staged.clear();
    port.staged_bytes = 0;
}

/// A received frame with the header before it and the padding after it.
fn prepared(mut mbuf: Mbuf, received: Received) -> Option<Mbuf> {
    if !mbuf.restore_vlan() {
        return None;
    }
    let length = mbuf.contiguous()?.len();
    let received = Received { length: u16::try_from(length).ok()?, ..received };
    if let Some(padding) = EXTRACTED.checked_sub(length).filter(|padding| *padding > 0) {
        mbuf.append(u16::try_from(padding).ok()?)?.fill(0);
    }
    let header = mbuf.prepend(LENGTH as u16)?;
    received.write(header.first_chunk_mut()?);
    Some(mbuf)
}

/// The pipeline's decision and the length of the frame without padding.
fn decided(packet: &Mbuf) -> Option<(Decided, usize)> {
    let bytes = packet.contiguous()?;
    let decided = Decided::read(bytes.first_chunk()?);
    let padding = EXTRACTED.saturating_sub(decided.length.into());
    Some((decided, bytes.len().checked_sub(LENGTH + padding)?))
}
