// SPDX-License-Identifier: Apache-2.0
//! Several port pairs. A frame leaves on the pair that it came in by (docs/adr/0067).
//!
//! [`PairedIo`] has one [`PacketIo`] for each pair. A received frame gets the number of its pair,
//! for rules that match it, and a tag of one word with this number, which the core carries unread
//! and [`transmit`](PacketIo::transmit) reads. Before the word a tag may have the number of a
//! capture.
//!
//! A pair that takes no frames does not hold up others: only its own frames are refused, and the
//! core offers those of other clients ([`PacketIo::is_full`]). Behind a refused frame, those of the
//! same client and direction wait, whatever their pair, as a client has one queue.

use std::time::Duration;

use emu::engine::Departure;
use emu::frame::{Buffer, Frame, Label};
use emu::matches::MAX_PAIRS;
use emu::place::Place;
use emu::tag::{PAIR_TAG, Tagged};
use emu::units::{ByDirection, Direction, Instant};

use crate::clock::Clock;
use crate::io::{Arrivals, EgressCounters, PacketIo, Reception, WRAPPED, wrap_burst};

const WORD: usize = PAIR_TAG as usize;

/// The words, by the pair's number: the number as the first byte.
static WORDS: [[u8; WORD]; MAX_PAIRS] = {
    let mut words = [[0; WORD]; MAX_PAIRS];
    let mut pair = 0;
    while pair < MAX_PAIRS {
        words[pair][0] = pair as u8;
        pair += 1;
    }
    words
};

fn label(pair: u8) -> Label<'static> {
    let tag = WORDS.get(usize::from(pair)).map_or(&[][..], |word| word);
    Label { tag, tags_answer: true, pair, ..Label::NONE }
}

/// A buffer with the number of the pair that it came in by.
#[derive(Debug)]
pub struct Paired<B> {
    buffer: B,
    pair: u8,
}

impl<B: Buffer> Buffer for Paired<B> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.bytes_mut()
    }

    #[inline]
    fn prefetch(&self) {
        self.buffer.prefetch();
    }

    #[inline]
    fn label(&self) -> Label<'_> {
        label(self.pair)
    }
}

/// A worker's share of all port pairs.
#[derive(Debug)]
pub struct PairedIo<I: PacketIo> {
    pairs: Vec<I>,
    burst: Vec<Option<Paired<I::Buffer>>>,
    /// Pairs that have refused a frame since the last flush, one bit each.
    refused: ByDirection<u32>,
}

impl<I: PacketIo> PairedIo<I> {
    /// The pairs by their numbers, one to [`MAX_PAIRS`]; further ones are never polled. The first
    /// one's [`PacketIo::wait`] also wakes on frames of all others.
    #[must_use]
    pub fn new(mut pairs: Vec<I>) -> Self {
        pairs.truncate(MAX_PAIRS);
        Self { pairs, burst: Vec::with_capacity(WRAPPED), refused: ByDirection([0; 2]) }
    }

    #[must_use]
    pub fn pairs(&self) -> &[I] {
        &self.pairs
    }
}

/// Gives received frames the number of their pair.
struct Numbered<'a, A, B> {
    arrivals: &'a mut A,
    pair: u8,
    burst: &'a mut Vec<Option<Paired<B>>>,
}

impl<A: Arrivals<Paired<B>>, B: Buffer> Arrivals<B> for Numbered<'_, A, B> {
    fn place(&self, of: Reception, frame: &[u8], _pair: u8, workers: usize) -> Place {
        self.arrivals.place(of, frame, self.pair, workers)
    }

    fn placed(&self, of: Reception, worker: u16, epoch: u16) -> Option<Place> {
        self.arrivals.placed(of, worker, epoch)
    }

    fn frame(&mut self, of: Reception, frame: &[u8], _label: Label<'_>) {
        self.arrivals.frame(of, frame, label(self.pair));
    }

    fn burst(&mut self, of: Reception, burst: &mut [Option<B>]) {
        let Self { arrivals, pair, burst: paired } = self;
        let wrap = |buffer| Paired { buffer, pair: *pair };
        wrap_burst(burst, paired, (wrap, |paired| paired.buffer), |part| arrivals.burst(of, part));
    }
}

impl<I: PacketIo> PacketIo for PairedIo<I> {
    const TAG: usize = WORD;
    type Buffer = Paired<I::Buffer>;

    fn discard(&mut self) {
        self.pairs.iter_mut().for_each(PacketIo::discard);
    }

    fn receive(
        &mut self,
        clock: &mut impl Clock,
        arrivals: &mut impl Arrivals<Self::Buffer>,
        most: usize,
    ) -> usize {
        let Self { pairs, burst, .. } = self;
        let mut n = 0;
        for (pair, io) in (0..).zip(pairs) {
            n += io.receive(clock, &mut Numbered { arrivals, pair, burst }, most);
        }
        n
    }

    fn transmit(&mut self, departure: Departure<'_, Self::Buffer>) -> bool {
        let Departure { client, direction, due, frame, tagged } = departure;
        // Every frame has a word.
        let pair = tagged.tag().last_chunk::<WORD>().map_or(0, |word| usize::from(word[0]));
        let Some(io) = self.pairs.get_mut(pair) else { return true };
        let bit = 1 << pair;
        if self.refused[direction] & bit != 0 {
            return false;
        }
        let leave = |frame| Departure { client, direction, due, frame, tagged: Tagged::default() };
        let taken = match frame {
            Frame::Bytes(bytes) => io.transmit(leave(Frame::Bytes(bytes))),
            Frame::Buffer(place) => {
                let mut buffer = place.take().map(|paired| paired.buffer);
                let taken = io.transmit(leave(Frame::Buffer(&mut buffer)));
                *place = buffer.map(|buffer| Paired { buffer, pair: pair as u8 });
                taken
            }
        };
        if !taken {
            self.refused[direction] |= bit;
        }
        taken
    }

    fn is_full(&self, direction: Direction) -> bool {
        self.refused[direction].count_ones() as usize == self.pairs.len()
    }

    fn flush(&mut self, now: Instant) {
        self.refused = ByDirection([0; 2]);
        for io in &mut self.pairs {
            io.flush(now);
        }
    }

    fn egress(&self, pair: usize, direction: Direction) -> EgressCounters {
        self.pairs.get(pair).map_or_else(EgressCounters::default, |io| io.egress(0, direction))
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        self.pairs.first_mut().is_some_and(|first| first.wait(timeout))
    }
}
