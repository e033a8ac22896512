// SPDX-License-Identifier: Apache-2.0
//! Arrival: which client a frame belongs to, and the way into its pipe.

use super::*;

impl<B: Buffer> Engine<B> {
    /// Whose a frame is that belongs to `key` where no rule says otherwise.
    #[inline]
    pub(super) fn owner(&self, key: ClientKey, direction: Direction, frame: &[u8]) -> ClientKey {
        if self.is_ruled { self.rules.owner(key, frame, direction) } else { key }
    }

    /// The pipe of a frame of a known client; [`UNKNOWN`] if it takes more.
    #[inline]
    pub(super) fn route(&self, direction: Direction, frame: &[u8]) -> u32 {
        if self.limits.shim.is_some() {
            self.route_by_shim(direction, frame)
        } else {
            self.route_by_headers(direction, frame)
        }
    }

    #[inline]
    pub(super) fn route_by_headers(&self, direction: Direction, frame: &[u8]) -> u32 {
        match classify(frame, direction) {
            Class::Client(key) if frame.len() <= self.limits.frame as usize => {
                let key = self.owner(key, direction, frame);
                self.index.get(key).map_or(UNKNOWN, |client| pipe_id(client, direction))
            }
            _ => UNKNOWN,
        }
    }

    /// The pipe of any frame; a client that is not there yet is made, if there is room.
    #[cold]
    pub(super) fn pipe_of(
        &mut self,
        direction: Direction,
        mut frame: &[u8],
    ) -> Result<u32, DropReason> {
        if self.limits.shim.is_some() {
            (_, frame) = shim_of(direction, frame).ok_or(DropReason::Shim)?;
        }
        let client = match classify(frame, direction) {
            Class::Runt => return Err(DropReason::Runt),
            _ if frame.len() > self.limits.frame as usize => return Err(DropReason::Oversize),
            Class::Malformed => {
                self.malformed[direction] += 1;
                DEFAULT
            }
            Class::Client(key) => {
                let key = self.owner(key, direction, frame);
                match self.index.get(key) {
                    Some(id) => id,
                    None => self.place(key, direction),
                }
            }
        };
        Ok(pipe_id(client, direction))
    }

    /// A frame arrived at `at` on the ingress port of `direction`, and is copied.
    #[inline]
    pub fn arrive(&mut self, at: Instant, direction: Direction, frame: &[u8]) {
        self.now = self.now.max(at);
        let id = self.route(direction, frame);
        self.take_in(id, direction, Frame::Bytes(frame));
    }

    /// A burst of frames arrived at `at` on the ingress port of `direction`. Of the buffers
    /// those that the link keeps are taken out.
    pub fn arrive_burst(&mut self, at: Instant, direction: Direction, burst: &mut [Option<B>]) {
        self.now = self.now.max(at);
        for part in burst.chunks_mut(BURST) {
            // Whose they are, then where those keep their frames: each step hints at what
            // the next one reads. Of a train only the first frame needs that.
            let mut ids = [UNKNOWN; BURST];
            let mut last = UNKNOWN;
            for (id, buffer) in ids.iter_mut().zip(&*part) {
                let Some(b) = buffer else { continue };
                *id = self.route(direction, b.bytes());
                if *id != last {
                    last = *id;
                    prefetch_lines(&self.slots, last as usize, usize::MAX);
                }
            }
            last = UNKNOWN;
            for id in &ids[..part.len()] {
                if *id != last {
                    last = *id;
                    if let Some(slot) = self.slots.get(last as usize) {
                        slot.pipe.prefetch_tail(&self.store);
                    }
                }
            }
            for (id, buffer) in ids.into_iter().zip(part) {
                match buffer.as_ref().map(B::bytes) {
                    Some(frame) if frame.len() > self.limits.copy_break as usize => {
                        self.take_in(id, direction, Frame::Buffer(buffer));
                    }
                    Some(frame) => self.take_in(id, direction, Frame::Bytes(frame)),
                    None => {}
                }
            }
        }
    }

    #[inline]
    pub(super) fn take_in(&mut self, mut id: u32, direction: Direction, frame: Frame<'_, B>) {
        let bytes = frame.bytes();
        // Longer ones are rejected.
        let whole = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let len = whole.saturating_sub(self.store.prefix());
        if id == UNKNOWN {
            match self.pipe_of(direction, bytes) {
                Ok(known) => id = known,
                Err(reason) => {
                    // Without a shim all of it is the frame.
                    let (bytes, len) = match reason {
                        DropReason::Shim => (bytes, whole),
                        _ => (self.store.inner(bytes), len),
                    };
                    let bypass = pipe_id(BYPASS, direction);
                    self.catch_up(bypass);
                    let pipe = &mut self.slots[bypass as usize].pipe;
                    pipe.reject(&mut self.store, self.now, reason, bytes, len);
                    return;
                }
            }
        }
        if id == pipe_id(BYPASS, Direction::Return) {
            self.resolve(self.store.inner(bytes));
        }
        self.catch_up(id);
        let pipe = &mut self.slots[id as usize].pipe;
        if pipe.is_in_beam() {
            self.take_in_beam(id, frame, len);
        } else {
            pipe.arrive(&mut self.store, self.now, frame, len);
            self.reschedule(id);
        }
    }
}
