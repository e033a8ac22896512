// SPDX-License-Identifier: Apache-2.0
//! Arrival: the client of a frame, and the way into its pipe.

use std::cell::Cell;

use crate::classify::{Class, ETHERNET, classify, plain_v4, resolved_client};
use crate::client::ClientKey;
use crate::frame::{Buffer, Frame, Hint, Label};
use crate::memory::prefetch_lines;
use crate::mtu::Answer;
use crate::stats::DropReason;
use crate::tag::Tag;
use crate::units::{Direction, Instant};

use super::{ARRIVAL_LINES, BURST, BYPASS, DEFAULT, Engine, SERVICE_LINES, UNKNOWN, pipe_id};

impl<B: Buffer> Engine<B> {
    /// The client of a frame that belongs to `key` unless a rule decides otherwise.
    #[inline]
    pub(super) fn owner(
        &self,
        key: ClientKey,
        direction: Direction,
        frame: &[u8],
        pair: u8,
    ) -> ClientKey {
        if self.is_ruled { self.rules.owner(key, frame, direction, pair) } else { key }
    }

    /// The client of a frame, and the one that decides which worker gets it: of a reply that
    /// resolves an address, that address's.
    pub(crate) fn whose(&self, direction: Direction, frame: &[u8], pair: u8) -> (Hint, ClientKey) {
        match classify(frame, direction) {
            Class::Runt | Class::Malformed => (Hint::None, ClientKey::Default),
            Class::Client(ClientKey::Bypass) => {
                let of = resolved_client(frame, direction)
                    .map(|key| self.owner(key, direction, frame, pair));
                (Hint::Key(ClientKey::Bypass), of.unwrap_or(ClientKey::Bypass))
            }
            Class::Client(key) => {
                let key = self.owner(key, direction, frame, pair);
                (Hint::Key(key), key)
            }
        }
    }

    /// The pipe of a frame of a known client; else [`UNKNOWN`].
    #[inline]
    fn route(&self, direction: Direction, frame: &[u8], label: Label<'_>) -> u32 {
        match label.hint {
            Hint::None => self.route_by_headers(direction, frame, label.pair),
            Hint::Client { index, epoch } => {
                self.route_by_hint(direction, frame, label.pair, (index, epoch))
            }
            Hint::Key(key) => self.route_by_key(direction, frame, key),
            Hint::Reject => UNKNOWN,
        }
    }

    /// The pipe of the client that the hint names, if it is current.
    #[inline(never)]
    fn route_by_hint(
        &self,
        direction: Direction,
        frame: &[u8],
        pair: u8,
        (index, epoch): (u32, u16),
    ) -> u32 {
        if self.is_frame(frame) && self.believes(epoch) && (index as usize) < self.clients() {
            pipe_id(index, direction)
        } else {
            self.route_by_headers(direction, frame, pair)
        }
    }

    /// Whether frames name clients of this engine in an epoch.
    #[inline]
    pub(crate) fn believes(&self, epoch: u16) -> bool {
        epoch == self.epoch && epoch != 0
    }

    /// The pipe of a client that exists, for a frame that can be carried.
    #[inline(never)]
    fn route_by_key(&self, direction: Direction, frame: &[u8], key: ClientKey) -> u32 {
        if !self.is_frame(frame) {
            return UNKNOWN;
        }
        self.index.get(key).map_or(UNKNOWN, |client| pipe_id(client, direction))
    }

    /// Whether a frame is neither too short nor too long.
    #[inline]
    fn is_frame(&self, frame: &[u8]) -> bool {
        (ETHERNET..=self.limits.frame as usize).contains(&frame.len())
    }

    /// The address of a frame that can be carried, if the client follows from the address alone and the
    /// short way finds it.
    #[inline]
    fn plain_address(&self, direction: Direction, frame: &[u8]) -> Option<u32> {
        if !self.by_address || frame.len() > self.limits.frame as usize {
            return None;
        }
        plain_v4(frame, direction)
    }

    /// The client with such an address.
    #[inline]
    fn client_at(&self, address: u32) -> Option<u32> {
        if self.is_ruled
            && let Some(target) = self.rules.target_v4(address)
        {
            return match self.targets.get(target as usize).map(Cell::get) {
                Some(client) if client != UNKNOWN => Some(client),
                _ => self.client_of(target),
            };
        }
        self.index.get_v4(address)
    }

    /// The client of a number in the rules, which is kept for the next frame.
    #[inline(never)]
    fn client_of(&self, target: u32) -> Option<u32> {
        let name = *self.rules.targets().get(target as usize)?;
        let client = self.index.get_named(name)?;
        // The names may be more than the clients that there is room for.
        if let Some(place) = self.targets.get(target as usize) {
            place.set(client);
        }
        Some(client)
    }

    /// Begins to look for the clients of new rules. Allocates nothing.
    pub(super) fn forget_targets(&mut self) {
        let count = self.rules.targets().len().min(self.targets.capacity());
        self.targets.clear();
        self.targets.resize(count, Cell::new(UNKNOWN));
    }

    #[inline]
    fn route_by_headers(&self, direction: Direction, frame: &[u8], pair: u8) -> u32 {
        match classify(frame, direction) {
            Class::Client(key) if frame.len() <= self.limits.frame as usize => {
                let key = self.owner(key, direction, frame, pair);
                self.index.get(key).map_or(UNKNOWN, |client| pipe_id(client, direction))
            }
            _ => UNKNOWN,
        }
    }

    /// The pipe of any frame; creates the client if it does not exist and there is room.
    #[cold]
    fn pipe_of(
        &mut self,
        direction: Direction,
        frame: &[u8],
        label: Label<'_>,
    ) -> Result<u32, DropReason> {
        if label.hint == Hint::Reject {
            return Err(DropReason::Rejected);
        }
        let client = match classify(frame, direction) {
            Class::Runt => return Err(DropReason::Runt),
            _ if frame.len() > self.limits.frame as usize => return Err(DropReason::Oversize),
            Class::Malformed => {
                self.malformed[direction] += 1;
                DEFAULT
            }
            Class::Client(key) => {
                let key = match label.hint {
                    Hint::Key(key) => key,
                    _ => self.owner(key, direction, frame, label.pair),
                };
                match self.index.get(key) {
                    Some(id) => id,
                    None => self.place(key, direction),
                }
            }
        };
        Ok(pipe_id(client, direction))
    }

    /// A frame of which nothing is known arrived at `at` on the ingress port of `direction`, and
    /// is copied.
    #[inline]
    pub fn arrive(&mut self, at: Instant, direction: Direction, frame: &[u8]) {
        self.arrive_labelled(at, direction, frame, Label::NONE);
    }

    /// As [`Engine::arrive`], for a frame of which something is known.
    #[inline]
    pub fn arrive_labelled(
        &mut self,
        at: Instant,
        direction: Direction,
        frame: &[u8],
        label: Label<'_>,
    ) {
        self.arrive_frame(at, direction, Frame::Bytes(frame), label);
    }

    /// As [`Engine::arrive_labelled`], also for a frame that may be kept. The tag is not in the
    /// buffer.
    #[inline]
    pub(crate) fn arrive_frame(
        &mut self,
        at: Instant,
        direction: Direction,
        frame: Frame<'_, B>,
        label: Label<'_>,
    ) {
        self.now = self.now.max(at);
        let id = self.route(direction, frame.bytes(), label);
        let copied = frame.bytes().len() <= self.limits.copy_break as usize;
        match &frame {
            Frame::Buffer(_) if !copied => self.take_in(id, direction, frame, label),
            _ => self.take_in(id, direction, Frame::Bytes(frame.bytes()), label),
        }
    }

    /// As [`Engine::arrive_frame`], for a frame that another link passed on: `at` may be before the
    /// engine's time, if nothing of that direction has been advanced beyond it.
    pub(crate) fn arrive_handed_on(
        &mut self,
        at: Instant,
        direction: Direction,
        frame: Frame<'_, B>,
        label: Label<'_>,
    ) {
        let later = self.now;
        // All frames from before a change have met it.
        self.now = self.changes.back().map_or(at, |change| change.at);
        self.arrive_frame(at, direction, frame, label);
        self.now = self.now.max(later);
    }

    /// A burst of frames arrived at `at` on the ingress port of `direction`. Buffers that the
    /// link keeps are taken out.
    pub fn arrive_burst(&mut self, at: Instant, direction: Direction, burst: &mut [Option<B>]) {
        self.arrive_burst_hinted(at, direction, burst, Hint::None);
    }

    /// As [`Engine::arrive_burst`]; `hint`, if any, goes before those of the frames' labels.
    pub(crate) fn arrive_burst_hinted(
        &mut self,
        at: Instant,
        direction: Direction,
        burst: &mut [Option<B>],
        hint: Hint,
    ) {
        self.now = self.now.max(at);
        for part in burst.chunks_mut(BURST) {
            // First the pipes, then the tails of their queues: each step prefetches for
            // the next one.
            let mut runs = [(UNKNOWN, 0); BURST + 1];
            let count = self.find_runs(direction, part, hint, &mut runs);
            let runs = &runs[..=count];
            let changes = self.oldest != self.version;
            for (id, _) in &runs[..count] {
                if let Some(slot) = self.slots.get(*id as usize)
                    && (slot.pipe.prefetch_tail(&self.shared.store) || changes)
                {
                    prefetch_lines::<_, ARRIVAL_LINES, SERVICE_LINES>(&self.slots, *id as usize);
                }
            }
            if changes {
                self.prefetch_changes(runs[..count].iter().map(|(id, _)| *id));
            }
            for pair in runs.windows(2) {
                let [(id, begin), (_, end)] = *pair else { continue };
                let run = &mut part[begin as usize..end as usize];
                if !self.take_in_run(id, run) {
                    for buffer in run {
                        self.take_in_buffer(id, direction, buffer, hint);
                    }
                }
            }
        }
    }

    /// Divides up to [`BURST`] frames into runs of consecutive ones of a pipe: writes the pipe of each run,
    /// or [`UNKNOWN`], and the number of frames before it; and behind the last run that of all frames.
    /// Returns the number of runs.
    #[inline(never)]
    fn find_runs(
        &self,
        direction: Direction,
        burst: &[Option<B>],
        hint: Hint,
        runs: &mut [(u32, u32); BURST + 1],
    ) -> usize {
        let has_hint = hint != Hint::None;
        let mut count = 0;
        // The address of the last frame, if it is all that is needed to know a client.
        let mut address = None;
        let mut last = None;
        for (begin, buffer) in (0..).zip(burst) {
            let mut own = None;
            let id = match buffer {
                Some(b) => {
                    let label = || if has_hint { b.label().hinted(hint) } else { b.label() };
                    if label().hint == Hint::None {
                        own = self.plain_address(direction, b.bytes());
                    }
                    if own.is_some() && own == address {
                        // Of the pipe of the last one.
                        continue;
                    }
                    match own.and_then(|address| self.client_at(address)) {
                        Some(client) => pipe_id(client, direction),
                        None => self.route(direction, b.bytes(), label()),
                    }
                }
                None => UNKNOWN,
            };
            address = own;
            if last != Some(id) {
                last = Some(id);
                self.prefetch_slot::<ARRIVAL_LINES>(id);
                runs[count] = (id, begin);
                count += 1;
            }
        }
        runs[count].1 = burst.len() as u32;
        count
    }

    /// A frame of a burst arrives. If it is kept, its buffer is taken out.
    fn take_in_buffer(
        &mut self,
        id: u32,
        direction: Direction,
        buffer: &mut Option<B>,
        hint: Hint,
    ) {
        let Some(b) = buffer.as_ref() else { return };
        let label = b.label().hinted(hint);
        if b.bytes().len() <= self.limits.copy_break as usize {
            return self.take_in(id, direction, Frame::Bytes(b.bytes()), label);
        }
        // The buffer that holds the tag may be taken.
        let copy;
        let tag = if label.tag.is_empty() {
            &[][..]
        } else {
            copy = Tag::new(label.tag);
            &*copy
        };
        let Label { hint, tags_answer, pair, .. } = label;
        let label = Label { hint, tag, tags_answer, pair };
        self.take_in(id, direction, Frame::Buffer(buffer), label);
    }

    /// Frames of one pipe arrive one after the other, if it can take them as a run: it has no change to take.
    #[inline]
    fn take_in_run(&mut self, id: u32, run: &mut [Option<B>]) -> bool {
        let tagged = |buffer: &B| !buffer.label().tag.is_empty();
        let Self { slots, shared, ready, wheel, limits, now, version, observer, .. } = self;
        let Some(slot) = slots.get_mut(id as usize) else { return false };
        let is_late = slot.version != *version || slot.asked != *observer;
        if is_late
            || !slot.pipe.is_plain()
            || id == pipe_id(BYPASS, Direction::Return)
            || run.iter().flatten().any(tagged)
        {
            return false;
        }
        slot.pipe.arrive_run(shared, *now, run, limits.copy_break);
        slot.reschedule(wheel, ready, id);
        true
    }

    #[inline]
    fn take_in(
        &mut self,
        mut id: u32,
        direction: Direction,
        frame: Frame<'_, B>,
        label: Label<'_>,
    ) {
        let bytes = frame.bytes();
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if id == UNKNOWN {
            match self.pipe_of(direction, bytes, label) {
                Ok(known) => id = known,
                Err(reason) => {
                    let bypass = pipe_id(BYPASS, direction);
                    self.catch_up(bypass);
                    let pipe = &mut self.slots[bypass as usize].pipe;
                    pipe.reject(&mut self.shared, self.now, reason, (bytes, len), label.tag);
                    return;
                }
            }
        }
        if id == pipe_id(BYPASS, Direction::Return) {
            self.resolve(bytes, label.pair);
        }
        self.catch_up(id);
        let pipe = &mut self.slots[id as usize].pipe;
        if pipe.checks_mtu(len) && self.drop_above_mtu(id, direction, (bytes, len), label) {
            return;
        }
        let pipe = &mut self.slots[id as usize].pipe;
        if pipe.is_in_beam() {
            self.take_in_beam(id, frame, len, label.tag);
        } else {
            pipe.arrive(&mut self.shared, self.now, frame, len, label.tag);
            self.reschedule(id);
        }
    }

    /// Drops a frame if its packet is above the MTU of its pipe. The answer leaves at once, in the
    /// bypass of the other direction. Returns whether it was dropped.
    #[cold]
    #[inline(never)]
    fn drop_above_mtu(
        &mut self,
        id: u32,
        direction: Direction,
        frame: (&[u8], u32),
        label: Label<'_>,
    ) -> bool {
        let mut answer = Answer::default();
        let (now, longest) = (self.now, self.limits.frame);
        let pipe = &mut self.slots[id as usize].pipe;
        if !pipe.drop_above_mtu(&mut self.shared, now, frame, label, longest, &mut answer) {
            return false;
        }
        if !answer.is_empty() {
            let bypass = pipe_id(BYPASS, direction.opposite());
            self.catch_up(bypass);
            let pipe = &mut self.slots[bypass as usize].pipe;
            pipe.generate(&mut self.shared, now, &answer, label.tag);
            self.reschedule(bypass);
        }
        true
    }
}
