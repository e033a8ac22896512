// SPDX-License-Identifier: Apache-2.0
//! The links of one worker: an engine for each, and the board that assigns frames to them.
//!
//! Links share the packet store and the ports, and nothing else: the fate of a frame depends on
//! its own link alone. The engine at work has the store, and each engine has its own account of
//! it ([`Engine::set_memory`]).
//!
//! Link 0 is `main` and always exists. While it is the only one, it costs one comparison.

mod chain;

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::classify::{Class, classify, plain_v4, resolved_client};
use crate::client::{ClientKey, ClientName};
use crate::engine::{Egress, Engine};
use crate::frame::{Buffer, Frame, Hint, Label};
use crate::matches::UnknownPair;
use crate::place::{Place, worker_of};
use crate::rules::{Rule, Rules, RulesError};
use crate::tag::Tag;
use crate::units::{Direction, Instant};

pub use chain::{ACCESS_TAG, Via};
use chain::{Group, Stage};

/// The number of the link that always exists.
pub const MAIN: usize = 0;
/// Most links of a box.
pub const MAX_LINKS: usize = 1024;
/// Maximum number of frames per look-up of links.
const BURST: usize = 64;

/// Which link a frame belongs to; by default each one to [`MAIN`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Board {
    /// Their targets are names of links.
    rules: Rules,
    numbers: HashMap<ClientName, usize, FixedState>,
    /// The same by the numbers of names in the rules ([`Rules::targets`]).
    targets: Vec<usize>,
    /// By link: the worker that has all of its clients. Without one they are spread over all
    /// workers.
    homes: Vec<Option<u16>>,
}

impl Board {
    /// Adds a rule for a link with a name and a number.
    ///
    /// # Errors
    /// As [`Rules::insert`].
    pub fn insert(&mut self, rule: Rule, name: ClientName, link: usize) -> Result<(), RulesError> {
        self.rules.insert(rule, name)?;
        self.numbers.insert(name, link);
        self.targets.resize(self.rules.targets().len(), MAIN);
        if let Some(target) = self.rules.target(name) {
            self.targets[target as usize] = link;
        }
        Ok(())
    }

    /// Sets the worker that has all clients of a link.
    pub fn set_home(&mut self, link: usize, worker: usize) {
        if self.homes.len() <= link {
            self.homes.resize(link + 1, None);
        }
        self.homes[link] = u16::try_from(worker).ok();
    }

    /// The worker that has all clients of a link; none if they are spread over all workers.
    #[inline]
    #[must_use]
    pub fn home(&self, link: usize) -> Option<u16> {
        self.homes.get(link).copied().flatten()
    }

    /// As [`Rules::conflicts`]; the targets are names of links.
    #[must_use]
    pub fn conflicts(&self, most: usize) -> Vec<RulesError> {
        self.rules.conflicts(most)
    }

    /// As [`Rules::set_pairs`].
    ///
    /// # Errors
    /// A name that no pair has.
    pub fn set_pairs(&mut self, names: &[ClientName]) -> Result<(), UnknownPair> {
        self.rules.set_pairs(names)
    }

    /// Number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The number of the link of a frame that came in by a port pair. A frame that resolves an
    /// address is that address's.
    #[must_use]
    pub fn link(&self, direction: Direction, frame: &[u8], pair: u8) -> usize {
        if self.rules.by_address()
            && let Some(address) = plain_v4(frame, direction)
        {
            let target = self.rules.target_v4(address);
            return target
                .and_then(|target| self.targets.get(target as usize))
                .map_or(MAIN, |link| *link);
        }
        let key = match classify(frame, direction) {
            Class::Runt => return MAIN,
            Class::Malformed => ClientKey::Default,
            Class::Client(ClientKey::Bypass) => {
                resolved_client(frame, direction).unwrap_or(ClientKey::Default)
            }
            Class::Client(key) => key,
        };
        match self.rules.owner(key, frame, direction, pair) {
            ClientKey::Named(name) => self.number(Some(name)),
            _ => MAIN,
        }
    }

    /// The number of the link that a rule names.
    #[inline]
    fn number(&self, name: Option<ClientName>) -> usize {
        name.and_then(|name| self.numbers.get(&name).copied()).unwrap_or(MAIN)
    }
}

/// The links of one worker.
#[derive(Debug)]
pub struct Links<B: Buffer> {
    /// By number.
    engines: Vec<Option<Box<Engine<B>>>>,
    /// Links that exist.
    count: usize,
    /// The one that has the packet store.
    at_work: usize,
    /// When each link has to be visited next, at the latest.
    due: Vec<Instant>,
    /// The first link that the next release visits.
    first: usize,
    board: Arc<Board>,
    /// The board for frames that arrived before this instant.
    before: (Instant, Arc<Board>),
    /// The link that [`Links::keep_up`] continues with.
    kept_up: usize,
    /// Clients of all links, about.
    clients: usize,
    /// By number: the shared link that frames of an access link also pass.
    vias: Vec<Option<Via>>,
    groups: Vec<Group>,
    stage: Stage<B>,
    /// Bytes at the end of each tag that are the ports'.
    tail: usize,
}

impl<B: Buffer> Links<B> {
    /// The one link `main`.
    #[must_use]
    pub fn new(main: Engine<B>) -> Self {
        let board = Arc::<Board>::default();
        let clients = main.clients();
        let mut engines = Vec::with_capacity(MAX_LINKS);
        engines.push(Some(Box::new(main)));
        let mut due = Vec::with_capacity(MAX_LINKS);
        due.push(Instant::ZERO);
        Self {
            engines,
            count: 1,
            at_work: MAIN,
            due,
            first: 0,
            before: (Instant::ZERO, Arc::clone(&board)),
            board,
            kept_up: MAIN,
            clients,
            vias: Vec::with_capacity(MAX_LINKS),
            groups: Vec::with_capacity(MAX_LINKS),
            stage: Stage::with_room(),
            tail: 0,
        }
    }

    /// For ports that give each frame a tag of so many bytes.
    #[must_use]
    pub fn with_tail(self, tail: usize) -> Self {
        Self { tail, ..self }
    }

    /// Number of links.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Clients of all links, about.
    #[must_use]
    pub fn clients(&self) -> usize {
        match self.engines.first() {
            Some(Some(main)) if self.count == 1 => main.clients(),
            _ => self.clients,
        }
    }

    /// Generation of the plan of a link.
    #[must_use]
    pub fn generation(&self, number: usize) -> Option<u64> {
        Some(self.engines.get(number)?.as_ref()?.generation())
    }

    /// The engine of a link, with the packet store.
    #[inline]
    pub fn link(&mut self, number: usize) -> Option<&mut Engine<B>> {
        if number != self.at_work {
            self.hand_store_to(number)?;
        }
        // Whatever happens to it, it is visited in the next release.
        *self.due.get_mut(number)? = Instant::ZERO;
        self.engines.get_mut(number)?.as_deref_mut()
    }

    fn hand_store_to(&mut self, number: usize) -> Option<()> {
        let [from, to] = self.engines.get_disjoint_mut([self.at_work, number]).ok()?;
        from.as_mut()?.hand_store_to(to.as_mut()?);
        self.at_work = number;
        Some(())
    }

    /// Adds a link under a number that is free, with an engine of [`Engine::sharing`]. With `via`
    /// its frames also pass a shared link.
    ///
    /// # Errors
    /// Returns the engine if the number is not free, or [`MAX_LINKS`] or more, or if the shared link
    /// does not exist, is `main`, or passes another one itself.
    pub fn add(
        &mut self,
        number: usize,
        engine: Box<Engine<B>>,
        via: Option<Via>,
    ) -> Result<(), Box<Engine<B>>> {
        if number >= MAX_LINKS || self.exists(number) {
            return Err(engine);
        }
        if let Some(Via { link, .. }) = via {
            if link == MAIN || !self.exists(link) || self.via(link).is_some() {
                return Err(engine);
            }
            match self.groups.iter_mut().find(|group| group.shared == link) {
                Some(group) => group.members.push(number),
                None => self.groups.push(Group { shared: link, members: vec![number] }),
            }
        }
        while self.engines.len() <= number {
            self.engines.push(None);
            self.due.push(Instant::MAX);
        }
        self.vias.resize(self.engines.len(), None);
        self.vias[number] = via;
        self.clients += engine.clients();
        self.engines[number] = Some(engine);
        self.due[number] = Instant::ZERO;
        self.count += 1;
        Ok(())
    }

    /// Removes a link that holds no frame, and is not [`MAIN`]. The shared link that its frames
    /// pass holds none of its client; a shared link has no access links.
    pub fn remove(&mut self, number: usize) -> Option<Box<Engine<B>>> {
        if number == MAIN || self.is_shared(number) {
            return None;
        }
        let via = self.via(number);
        if let Some(via) = via
            && !self.link(via.link)?.holds_none_of(ClientKey::Named(via.client))
        {
            return None;
        }
        if !self.link(number)?.retire() {
            return None;
        }
        if via.is_some() {
            self.groups.iter_mut().for_each(|group| group.members.retain(|n| *n != number));
            self.groups.retain(|group| !group.members.is_empty());
            self.vias[number] = None;
        }
        self.hand_store_to(MAIN)?;
        self.due[number] = Instant::MAX;
        self.count -= 1;
        if self.kept_up == number {
            self.kept_up = MAIN;
        }
        self.engines[number].take()
    }

    /// Assigns frames that arrive from `at` on by this board. Returns the board before the last
    /// one.
    pub fn set_board(&mut self, at: Instant, board: Arc<Board>) -> Arc<Board> {
        let last = std::mem::replace(&mut self.board, board);
        std::mem::replace(&mut self.before, (at, last)).1
    }

    #[inline]
    fn board(&self, at: Instant) -> &Board {
        if at < self.before.0 { &self.before.1 } else { &self.board }
    }

    /// Where a frame that arrived at `at` by a port pair belongs, on one of `workers`.
    #[inline]
    #[must_use]
    pub fn place(
        &self,
        at: Instant,
        direction: Direction,
        (frame, pair): (&[u8], u8),
        workers: usize,
    ) -> Place {
        let board = self.board(at);
        let link = if board.is_empty() { MAIN } else { board.link(direction, frame, pair) };
        let number = link as u16;
        if let Some(worker) = board.home(link) {
            return Place { worker, link: number, hint: Hint::None };
        }
        let engine = [link, MAIN].into_iter().find_map(|n| self.engines.get(n)?.as_deref());
        let (hint, of) =
            engine.map_or((Hint::None, ClientKey::Default), |it| it.whose(direction, frame, pair));
        Place { worker: worker_of(of, workers) as u16, link: number, hint }
    }

    /// Where a frame that arrived at `at` belongs if it names a client of a worker in an epoch; none
    /// if it must be classified.
    #[inline]
    #[must_use]
    pub fn placed(&self, at: Instant, worker: u16, epoch: u16) -> Option<Place> {
        let board = self.board(at);
        let main = self.engines.first().and_then(Option::as_deref);
        let believed = board.is_empty()
            && board.home(MAIN).is_none()
            && main.is_some_and(|main| main.believes(epoch));
        believed.then_some(Place { worker, link: MAIN as u16, hint: Hint::None })
    }

    /// The engine of a link; that of `main` if a rule names one that has been removed.
    #[inline]
    fn link_or_main(&mut self, number: usize) -> Option<&mut Engine<B>> {
        let number = if self.exists(number) { number } else { MAIN };
        self.link(number)
    }

    /// As [`Engine::arrive_burst`], for frames that were placed when they arrived.
    pub fn arrive_burst_placed(
        &mut self,
        at: Instant,
        direction: Direction,
        place: Place,
        burst: &mut [Option<B>],
    ) {
        self.arrive_burst_of(at, direction, place.link.into(), burst, place.hint);
    }

    /// A burst of frames of one link arrives.
    fn arrive_burst_of(
        &mut self,
        at: Instant,
        direction: Direction,
        link: usize,
        burst: &mut [Option<B>],
        hint: Hint,
    ) {
        if direction == Direction::Forward && self.via(link).is_some() {
            for buffer in burst {
                let Some(label) = buffer.as_ref().map(B::label) else { continue };
                let tag = Tag::new(label.tag);
                let label = Label { tag: &tag, ..label };
                self.arrive_frame(at, direction, link, Frame::Buffer(buffer), label);
            }
        } else if let Some(engine) = self.link_or_main(link) {
            engine.arrive_burst_hinted(at, direction, burst, hint);
        }
    }

    /// As [`Engine::arrive_labelled`]. A frame that was placed when it arrived keeps its place.
    #[inline]
    pub fn arrive(
        &mut self,
        at: Instant,
        direction: Direction,
        place: Option<Place>,
        frame: &[u8],
        mut label: Label<'_>,
    ) {
        let board = self.board(at);
        let number = match place {
            Some(place) => {
                label.hint = place.hint;
                place.link.into()
            }
            None if board.is_empty() => MAIN,
            None => board.link(direction, frame, label.pair),
        };
        self.arrive_frame(at, direction, number, Frame::Bytes(frame), label);
    }

    /// As [`Engine::arrive_burst`].
    pub fn arrive_burst(&mut self, at: Instant, direction: Direction, burst: &mut [Option<B>]) {
        if self.board(at).is_empty() {
            if let Some(main) = self.link(MAIN) {
                main.arrive_burst(at, direction, burst);
            }
            return;
        }
        for part in burst.chunks_mut(BURST) {
            let mut numbers = [MAIN; BURST];
            for (number, buffer) in numbers.iter_mut().zip(&*part) {
                let Some(buffer) = buffer else { continue };
                let pair = buffer.label().pair;
                *number = self.board(at).link(direction, buffer.bytes(), pair);
                if !self.exists(*number) {
                    *number = MAIN;
                }
            }
            let mut begin = 0;
            while begin < part.len() {
                let number = numbers[begin];
                let same = numbers[begin..part.len()].iter().take_while(|n| **n == number).count();
                let run = &mut part[begin..begin + same];
                self.arrive_burst_of(at, direction, number, run, Hint::None);
                begin += same;
            }
        }
    }

    /// Frames of clients of any link that there was no slot for.
    #[must_use]
    pub fn unplaced(&self) -> u64 {
        self.engines.iter().flatten().map(|engine| engine.unplaced()).sum()
    }

    /// As [`Engine::settle_all`], for each link.
    pub fn settle_all(&mut self) {
        for number in 0..self.engines.len() {
            if let Some(engine) = self.link(number) {
                engine.settle_all();
            }
        }
    }

    fn exists(&self, number: usize) -> bool {
        self.engines.get(number).is_some_and(Option::is_some)
    }

    /// As [`Engine::release`], for all links; the budget is one for all of them.
    pub fn release(&mut self, now: Instant, budget: usize, egress: &mut impl Egress<B>) -> usize {
        if self.count == 1 {
            return self.link(MAIN).map_or(0, |main| main.release(now, budget, egress));
        }
        let links = self.engines.len();
        let mut sent =
            if self.groups.is_empty() { 0 } else { self.release_chains(now, budget, egress) };
        let first = std::mem::take(&mut self.first);
        for number in (first..links).chain(0..first.min(links)) {
            if self.due[number] > now || self.is_chained(number) {
                continue;
            }
            if sent >= budget {
                // The others are first in the next turn.
                self.first = number;
                break;
            }
            let Some(engine) = self.link(number) else { continue };
            sent += engine.release(now, budget - sent, egress);
            let next = engine.next_deadline().unwrap_or(Instant::MAX);
            self.due[number] = next;
        }
        sent
    }

    /// As [`Engine::next_deadline`], over all links.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.count == 1 {
            return self.engines.first()?.as_ref()?.next_deadline();
        }
        self.due.iter().copied().min().filter(|due| *due < Instant::MAX)
    }

    /// Calls [`Engine::keep_up`] of one link: of the next one once all clients of a link had a turn.
    pub fn keep_up(&mut self, now: Instant) {
        let number = self.kept_up;
        if let Some(engine) = self.link(number) {
            engine.keep_up(now);
            if !engine.kept_all_up() || self.count == 1 {
                return;
            }
        }
        let next = (number + 1..self.engines.len()).find(|n| self.exists(*n));
        self.kept_up = next.unwrap_or(MAIN);
        if self.kept_up == MAIN {
            self.clients = self.engines.iter().flatten().map(|engine| engine.clients()).sum();
        }
    }
}
