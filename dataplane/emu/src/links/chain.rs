// SPDX-License-Identifier: Apache-2.0
//! Links in sequence: frames of several access links also pass one shared link.
//!
//! On the client side are the access links: a return frame passes its access link and then the
//! shared link, a forward frame the shared link first. In the shared link a frame belongs to the
//! client that its access link's [`Via`] names. Frames that bypass do not pass the shared link.
//!
//! A frame that leaves the first link arrives at the second one at the instant at which it was due,
//! in the order of these instants, whenever the worker gets to it: so its fate depends on arrivals
//! alone. For this, one direction is passed on before the next link of that direction is
//! advanced, and a change is preceded by all that is due before it. If a turn has more to pass on than
//! [`MOST`] frames for a link, the rest is late, as its lateness shows.

use crate::classify::{Class, classify};
use crate::client::{ClientKey, ClientName};
use crate::engine::{Departure, Egress};
use crate::frame::{Buffer, Frame, Hint, Label};
use crate::tag::Tag;
use crate::units::{Direction, Instant};

use super::Links;

/// Frames that a link passes on at a time.
const PASSED: usize = 1024;
/// Frames that a link passes on in a turn; a release without a frame counts as one.
const MOST: usize = 16 * PASSED;
/// Bytes in front of a frame's tag, in the shared link, that name its access link.
pub const ACCESS_TAG: u32 = 4;

/// The shared link that the frames of an access link also pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Via {
    /// Its number.
    pub link: usize,
    /// The client there.
    pub client: ClientName,
}

/// A shared link and its access links, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) shared: usize,
    pub(super) members: Vec<usize>,
}

/// A frame between two links.
#[derive(Debug)]
struct Passing<B> {
    due: Instant,
    /// The link that it leaves, and its client there.
    from: usize,
    client: ClientKey,
    tag: Tag,
    frame: Bytes<B>,
}

#[derive(Debug)]
enum Bytes<B> {
    /// In the stage.
    Copied(std::ops::Range<usize>),
    Kept(B),
}

/// Frames between two links.
#[derive(Debug)]
pub(super) struct Stage<B> {
    frames: Vec<Passing<B>>,
    bytes: Vec<u8>,
}

impl<B> Stage<B> {
    pub(super) fn with_room() -> Self {
        Self { frames: Vec::with_capacity(PASSED), bytes: Vec::with_capacity(PASSED * 256) }
    }
}

/// Without room.
impl<B> Default for Stage<B> {
    fn default() -> Self {
        Self { frames: Vec::new(), bytes: Vec::new() }
    }
}

/// Takes frames that leave a link for another one. Those that bypass leave for good.
struct Passer<'a, B, E> {
    stage: &'a mut Stage<B>,
    from: usize,
    egress: &'a mut E,
}

impl<B: Buffer, E: Egress<B>> Egress<B> for Passer<'_, B, E> {
    fn offer(&mut self, departure: Departure<'_, B>) -> bool {
        if *departure.client == ClientKey::Bypass {
            return self.egress.offer(departure);
        }
        let Departure { client, due, frame, tagged, .. } = departure;
        let tag = Tag::new(tagged.tag());
        let frame = match frame {
            Frame::Bytes(bytes) => {
                let begin = self.stage.bytes.len();
                self.stage.bytes.extend_from_slice(bytes);
                Bytes::Copied(begin..self.stage.bytes.len())
            }
            Frame::Buffer(buffer) => match buffer.take() {
                Some(buffer) => Bytes::Kept(buffer),
                None => return true,
            },
        };
        self.stage.frames.push(Passing { due, from: self.from, client: *client, tag, frame });
        true
    }

    /// Only frames that bypass can be refused: the others must not wait for them.
    fn is_full(&self, _direction: Direction) -> bool {
        false
    }

    fn now(&mut self, turn: Instant) -> Instant {
        self.egress.now(turn)
    }
}

/// The tag of a frame in the shared link: one word with the number of its access link and the other
/// fields of its label, then its own tag.
fn marked(link: usize, label: Label<'_>) -> Tag {
    let [low, high] = (link as u16).to_le_bytes();
    let mut tag = Tag::new(label.tag);
    tag.prepend([low, high, label.pair, u8::from(label.tags_answer)]);
    tag
}

/// The label of a frame in the shared link, with its tag.
fn in_shared<'a>(via: Via, tag: &'a Tag) -> Label<'a> {
    let hint = Hint::Key(ClientKey::Named(via.client));
    Label { hint, tag, tags_answer: true, ..Label::NONE }
}

impl<B: Buffer> Links<B> {
    /// The shared link that the frames of a link also pass.
    #[inline]
    pub(super) fn via(&self, link: usize) -> Option<Via> {
        self.vias.get(link).copied().flatten()
    }

    /// A frame of a link arrives, at the first link that it passes.
    #[inline]
    pub(super) fn arrive_frame(
        &mut self,
        at: Instant,
        direction: Direction,
        link: usize,
        frame: Frame<'_, B>,
        label: Label<'_>,
    ) {
        let bypass = Class::Client(ClientKey::Bypass);
        let via = self.via(link).filter(|_| direction == Direction::Forward);
        match via.filter(|_| classify(frame.bytes(), direction) != bypass) {
            Some(via) => {
                let tag = marked(link, label);
                if let Some(shared) = self.link(via.link) {
                    shared.arrive_frame(at, direction, frame, in_shared(via, &tag));
                }
            }
            None => {
                if let Some(engine) = self.link_or_main(link) {
                    engine.arrive_frame(at, direction, frame, label);
                }
            }
        }
    }

    /// Whether a link is an access link or a shared one.
    #[must_use]
    pub fn is_chained(&self, link: usize) -> bool {
        self.via(link).is_some() || self.is_shared(link)
    }

    /// Whether other links pass a link.
    pub(super) fn is_shared(&self, link: usize) -> bool {
        self.groups.iter().any(|group| group.shared == link)
    }

    /// As [`Links::release`], for access links and shared links alone.
    pub fn release_chains(
        &mut self,
        now: Instant,
        budget: usize,
        egress: &mut impl Egress<B>,
    ) -> usize {
        let mut sent = 0;
        for number in 0..self.groups.len() {
            // Nothing is done with it meanwhile.
            let group = std::mem::take(&mut self.groups[number]);
            let due = |link: &usize| self.due[*link] <= now;
            if group.members.iter().chain([&group.shared]).any(due) {
                sent += self.release_group(&group, now, budget - sent.min(budget), egress);
            }
            self.groups[number] = group;
        }
        sent
    }

    fn release_group(
        &mut self,
        group: &Group,
        now: Instant,
        budget: usize,
        egress: &mut impl Egress<B>,
    ) -> usize {
        let mut sent = 0;
        for link in &group.members {
            self.pass_on(*link, Direction::Return, now, egress);
        }
        self.deliver(Direction::Return);
        if let Some(shared) = self.link(group.shared) {
            sent += shared.release_some(now, Some(Direction::Return), budget, egress).frames;
        }
        self.pass_on(group.shared, Direction::Forward, now, egress);
        self.deliver(Direction::Forward);
        for link in &group.members {
            if let Some(engine) = self.link(*link) {
                let budget = budget - sent.min(budget);
                sent += engine.release_some(now, Some(Direction::Forward), budget, egress).frames;
            }
        }
        for link in group.members.iter().chain([&group.shared]) {
            let engine = self.engines.get(*link).and_then(Option::as_deref);
            let next = engine.and_then(|engine| engine.next_deadline());
            self.due[*link] = next.unwrap_or(Instant::MAX);
        }
        sent
    }

    /// Moves all frames of one direction that are due out of a link, into the stage, up to [`MOST`].
    fn pass_on(
        &mut self,
        link: usize,
        direction: Direction,
        now: Instant,
        egress: &mut impl Egress<B>,
    ) {
        let mut stage = std::mem::take(&mut self.stage);
        if let Some(engine) = self.link(link) {
            let mut passer = Passer { stage: &mut stage, from: link, egress };
            let mut left = MOST;
            while left > 0 {
                let budget = PASSED.min(left);
                let released = engine.release_some(now, Some(direction), budget, &mut passer);
                if !released.more {
                    break;
                }
                left -= released.frames.max(1);
            }
        }
        self.stage = stage;
    }

    /// Lets all frames in the stage arrive at their next link, in the order in which they were due.
    fn deliver(&mut self, direction: Direction) {
        let mut stage = std::mem::take(&mut self.stage);
        let Stage { frames, bytes } = &mut stage;
        // Frames of one client that are due at one instant keep their order.
        frames.sort_by_key(|frame| (frame.due, frame.from, frame.client));
        for Passing { due, from, tag, frame, .. } in frames.drain(..) {
            let mut kept;
            let frame = match frame {
                Bytes::Copied(range) => Frame::Bytes(&bytes[range]),
                Bytes::Kept(buffer) => {
                    kept = Some(buffer);
                    Frame::Buffer(&mut kept)
                }
            };
            let own = tag.len().saturating_sub(self.tail);
            let (before, tail) = tag.split_at(own);
            let (to, label, tag);
            match direction {
                Direction::Return => {
                    let Some(via) = self.via(from) else { continue };
                    tag = marked(from, Label { tag: tail, ..Label::NONE });
                    (to, label) = (via.link, in_shared(via, &tag));
                }
                Direction::Forward => {
                    // A capture's number is before the word.
                    let Some([low, high, pair, answers]) =
                        before.last_chunk::<{ ACCESS_TAG as usize }>()
                    else {
                        continue;
                    };
                    to = usize::from(u16::from_le_bytes([*low, *high]));
                    let (pair, tags_answer) = (*pair, *answers != 0);
                    label = Label { hint: Hint::None, tag: tail, tags_answer, pair };
                }
            }
            if let Some(engine) = self.link(to) {
                engine.arrive_handed_on(due, direction, frame, label);
            }
        }
        bytes.clear();
        self.stage = stage;
    }
}
