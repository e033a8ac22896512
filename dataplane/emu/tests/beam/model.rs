// SPDX-License-Identifier: Apache-2.0
//! What beams do, written down a second time as plainly as can be: one event after the
//! other, all clients looked at for each.

use std::collections::VecDeque;

/// Bit/s: none is not limited, zero is down.
pub type Rate = Option<u64>;

/// A server of one frame at a time.
#[derive(Clone, Debug, Default)]
struct Line {
    rate: Rate,
    /// Since when `work` is counted, and the work to the end of the frame in service, in
    /// bits × 10⁹.
    since: u64,
    work: Option<u128>,
}

impl Line {
    fn finish(&self) -> Option<u64> {
        let work = self.work?;
        match self.rate {
            None => Some(self.since),
            Some(0) => None,
            Some(rate) => Some(self.since + work.div_ceil(rate.into()) as u64),
        }
    }

    fn start(&mut self, at: u64, bytes: u64) {
        if self.work.is_none() || self.rate.is_none() {
            (self.since, self.work) = (at, Some(0));
        }
        self.work = self.work.map(|w| w + u128::from(bytes) * 8 * 1_000_000_000);
    }

    fn change(&mut self, at: u64, rate: Rate) {
        if let (Some(work), Some(r)) = (self.work, self.rate) {
            let done = u128::from(at.saturating_sub(self.since)) * u128::from(r);
            self.work = Some(work.saturating_sub(done));
        }
        (self.since, self.rate) = (at, rate);
    }
}

/// A client's frames, each with its number and length.
#[derive(Clone, Debug, Default)]
struct Client {
    name: u8,
    shaper: Line,
    /// The first is in service.
    before: VecDeque<(u32, u32)>,
    waiting: VecDeque<(u32, u32)>,
    /// Which beam, and the weight.
    share: Option<(usize, u64)>,
    /// Whether it is in its beam's round or in service there.
    active: bool,
    /// From when what waits wants to join.
    joins: u64,
    deficit: u64,
    queued: u64,
}

#[derive(Clone, Debug, Default)]
struct Beam {
    line: Line,
    lightest: u64,
    round: VecDeque<usize>,
    serving: Option<usize>,
}

/// What is in force.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Of every client.
    pub rate: Rate,
    /// Of each beam.
    pub beams: Vec<Rate>,
    /// Of each client by its name: beam and weight.
    pub shares: Vec<Option<(usize, u64)>>,
    /// The least weight in each beam.
    pub lightest: Vec<u64>,
}

impl Terms {
    /// A client's share of a beam that limits it.
    fn share(&self, name: u8) -> Option<(usize, u64)> {
        self.shares[usize::from(name)].filter(|(b, _)| self.beams[*b].is_some())
    }
}

/// All clients in one direction.
#[derive(Clone, Debug)]
pub struct Model {
    terms: Terms,
    limit: u64,
    longest: u64,
    clients: Vec<Client>,
    beams: Vec<Beam>,
    /// Of the last event.
    now: u64,
    /// Whose frame, its number, and when it left for the delay line.
    pub left: Vec<(u8, u32, u64)>,
}

impl Model {
    pub fn new(terms: Terms, limit: u64, longest: u64) -> Self {
        let client = |name| {
            let shaper = Line { rate: terms.rate, ..Line::default() };
            Client { name, shaper, share: terms.share(name), ..Client::default() }
        };
        let mut m = Self {
            beams: vec![Beam::default(); terms.beams.len()],
            clients: (0..).take(terms.shares.len()).map(client).collect(),
            terms,
            limit,
            longest,
            now: 0,
            left: Vec::new(),
        };
        m.set_rates(0);
        m
    }

    fn set_rates(&mut self, at: u64) {
        for (i, beam) in self.beams.iter_mut().enumerate() {
            beam.line.change(at, self.terms.beams[i]);
            beam.lightest = self.terms.lightest[i];
        }
        for client in &mut self.clients {
            client.shaper.change(at, self.terms.rate);
        }
    }

    /// The first event: when, then what comes to the clients before what leaves beams.
    fn next(&self) -> Option<(u64, u8, usize)> {
        let comes = self.clients.iter().enumerate().filter_map(|(i, c)| {
            let joins =
                (!c.active && !c.waiting.is_empty() && c.share.is_some()).then_some(c.joins);
            Some((joins.or(c.shaper.finish())?, 0, i))
        });
        let leaves = self.beams.iter().enumerate().filter_map(|(i, b)| {
            let idle = b.serving.is_none() && !b.round.is_empty();
            // What is free takes the next frame when all that comes then has come.
            if idle {
                Some((self.now, 1, i))
            } else {
                b.serving.and(Some((b.line.finish()?, 2, i)))
            }
        });
        comes.chain(leaves).min()
    }

    /// All that happens up to and including `t`.
    pub fn run(&mut self, t: u64) {
        while let Some((at, what, i)) = self.next().filter(|(at, ..)| *at <= t) {
            self.now = at;
            match what {
                0 => self.comes(i, at),
                1 => {
                    let client = self.beams[i].round.pop_front().unwrap();
                    let c = &mut self.clients[client];
                    c.deficit += self.longest * c.share.unwrap().1;
                    self.offer(i, client, at);
                }
                _ => {
                    let client = self.beams[i].serving.take().unwrap();
                    self.leave(client, at);
                    self.offer(i, client, at);
                }
            }
            // Idle, unless somebody takes over at this very event or the next.
            for b in &mut self.beams {
                if b.serving.is_none() && b.round.is_empty() {
                    b.line.work = None;
                }
            }
        }
        self.now = self.now.max(t);
    }

    fn comes(&mut self, i: usize, at: u64) {
        let c = &mut self.clients[i];
        while c.shaper.finish().is_some_and(|f| f <= at) {
            let frame = c.before.pop_front().unwrap();
            c.waiting.push_back(frame);
            match c.before.front() {
                Some((_, len)) => c.shaper.start(at, u64::from(*len)),
                None => c.shaper.work = None,
            }
        }
        match c.share {
            Some((beam, _)) if !c.active => {
                c.active = true;
                self.beams[beam].round.push_back(i);
            }
            Some(_) => {}
            None => {
                while !self.clients[i].waiting.is_empty() {
                    self.leave(i, at);
                }
            }
        }
    }

    fn leave(&mut self, i: usize, at: u64) {
        let c = &mut self.clients[i];
        let (number, len) = c.waiting.pop_front().unwrap();
        c.queued -= u64::from(len);
        self.left.push((c.name, number, at));
    }

    /// A client's next frame goes into service, if it may.
    fn offer(&mut self, beam: usize, i: usize, at: u64) {
        let (c, b) = (&mut self.clients[i], &mut self.beams[beam]);
        match c.waiting.front() {
            Some((_, len)) if c.deficit >= u64::from(*len) * b.lightest => {
                c.deficit -= u64::from(*len) * b.lightest;
                b.line.start(at, u64::from(*len));
                b.serving = Some(i);
            }
            Some(_) => b.round.push_back(i),
            None => (c.active, c.deficit) = (false, 0),
        }
    }

    /// A frame arrives after all else of this instant; whether it is admitted.
    pub fn arrive(&mut self, at: u64, name: u8, number: u32, len: u32) -> bool {
        self.run(at);
        let c = &mut self.clients[usize::from(name)];
        let has_queue = c.share.is_some() || c.shaper.rate.is_some();
        let queued = if has_queue { c.queued } else { 0 };
        if queued + u64::from(len) > self.limit {
            return false;
        }
        c.queued += u64::from(len);
        c.before.push_back((number, len));
        if c.shaper.work.is_none() {
            c.shaper.start(at, u64::from(len));
        }
        true
    }

    /// Other terms from `at` on, after all else of this instant.
    pub fn change(&mut self, at: u64, terms: Terms) {
        self.run(at);
        let limits = |t: &Terms| t.beams.iter().map(Option::is_some).collect::<Vec<_>>();
        let regroups = terms.shares != self.terms.shares
            || terms.lightest != self.terms.lightest
            || limits(&terms) != limits(&self.terms);
        self.terms = terms;
        if regroups {
            self.regroup(at);
        }
        self.set_rates(at);
    }

    fn regroup(&mut self, at: u64) {
        self.beams.resize_with(self.terms.beams.len(), Beam::default);
        for i in 0..self.clients.len() {
            let c = &mut self.clients[i];
            let share = self.terms.share(c.name);
            let stays = c.share.map(|s| s.0) == share.map(|s| s.0);
            (c.share, c.deficit, c.joins) = (share, 0, at);
            if !stays {
                c.active = false;
                for b in &mut self.beams {
                    b.round.retain(|j| *j != i);
                    if b.serving == Some(i) {
                        b.serving = None;
                        b.line.work = None;
                    }
                }
            }
            while self.clients[i].share.is_none() && !self.clients[i].waiting.is_empty() {
                self.leave(i, at);
            }
        }
    }
}
