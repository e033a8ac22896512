// SPDX-License-Identifier: Apache-2.0
//! Ports that lead to a P4 switch, which puts a shim before each frame (docs/p4.md).
//!
//! [`ShimIo`] takes the shims off what arrives and puts them before what leaves. Between the two
//! a shim is the tag of its frame: the core carries it and does not read it. The client that
//! the shim names goes to the core as a [`Hint`]. Fields for the switch are written into
//! the tag when the frame leaves its queue ([`write()`]) and when its AQM marks it
//! ([`mark`](::shim::mark)), by the worker's [`Edge`](crate::edge::Edge).
//!
//! The switch marks a packet only if it sees it ([`sees_packet`](::shim::sees_packet)).

use std::time::Duration;

use ::shim::{Bytes, Numbers, SHIM, Shim};
use emu::engine::Departure;
use emu::frame::{Buffer, Frame, Hint, Label};
use emu::observe::{Scheduled, Subject};
use emu::place::Place;
use emu::tag::Tagged;
use emu::units::{Direction, Instant};

use crate::clock::Clock;
use crate::io::{Arrivals, EgressCounters, PacketIo, Reception, WRAPPED, wrap_burst};

const BYTES: usize = SHIM as usize;

/// A buffer with a shim before its frame, or a buffer without a valid shim, which is rejected.
#[derive(Debug)]
pub struct Shimmed<B> {
    buffer: B,
    hint: Hint,
}

impl<B: Buffer> Shimmed<B> {
    /// Reads the shim of a buffer that arrived for `direction`.
    #[must_use]
    pub fn new(mut buffer: B, direction: Direction, numbers: Numbers) -> Self {
        let hint = hint(buffer.bytes(), direction, numbers);
        if hint != Hint::Reject
            && let Some(shim) = buffer.bytes_mut().first_chunk_mut()
        {
            ::shim::open(shim);
        }
        Self { buffer, hint }
    }
}

impl<B: Buffer> Buffer for Shimmed<B> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        let whole = self.buffer.bytes();
        if self.hint == Hint::Reject { whole } else { whole.get(BYTES..).unwrap_or_default() }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        let whole = self.buffer.bytes_mut();
        if self.hint == Hint::Reject { whole } else { whole.get_mut(BYTES..).unwrap_or_default() }
    }

    fn prefetch(&self) {
        self.buffer.prefetch();
    }

    #[inline]
    fn label(&self) -> Label<'_> {
        let tag = if self.hint == Hint::Reject { 0 } else { BYTES };
        let tag = self.buffer.bytes().get(..tag).unwrap_or_default();
        Label { hint: self.hint, tag, ..Label::NONE }
    }
}

/// The client of this worker in a frame's shim; [`Hint::Reject`] if it has no shim of its direction.
fn hint(frame: &[u8], direction: Direction, numbers: Numbers) -> Hint {
    match Shim::read(frame) {
        Some((shim, _)) if shim.direction == direction => match numbers.index(shim.client) {
            Some(index) => Hint::Client { index, epoch: shim.epoch },
            None => Hint::None,
        },
        _ => Hint::Reject,
    }
}

/// Completes the shim in the tag of a frame that will leave.
pub(crate) fn write(numbers: Numbers, scheduled: &Scheduled, subject: &Subject, tag: &mut [u8]) {
    if let Some(shim) = tag.last_chunk_mut::<BYTES>() {
        let number = numbers.number(subject.index);
        let planned = numbers.tick.between(scheduled.arrived, scheduled.due);
        ::shim::close(shim, number, scheduled.loss, planned);
    }
}

/// Ports with a switch behind them.
#[derive(Debug)]
pub struct ShimIo<I: PacketIo> {
    inner: I,
    numbers: Numbers,
    burst: Vec<Option<Shimmed<I::Buffer>>>,
}

impl<I: PacketIo> ShimIo<I> {
    /// A switch that numbers the clients of this worker so is behind the ports `inner`.
    #[must_use]
    pub fn new(inner: I, numbers: Numbers) -> Self {
        Self { inner, numbers, burst: Vec::with_capacity(WRAPPED) }
    }

    pub fn inner(&self) -> &I {
        &self.inner
    }

    pub fn into_inner(self) -> I {
        self.inner
    }
}

/// Takes the shims off received frames.
struct Bare<'a, A, B> {
    arrivals: &'a mut A,
    numbers: Numbers,
    burst: &'a mut Vec<Option<Shimmed<B>>>,
}

impl<A: Arrivals<Shimmed<B>>, B: Buffer> Arrivals<B> for Bare<'_, A, B> {
    fn place(&self, of: Reception, frame: &[u8], pair: u8, workers: usize) -> Place {
        let Some((shim, inner)) = Shim::read(frame).filter(|(it, _)| it.direction == of.direction)
        else {
            return self.arrivals.place(of, frame, pair, workers);
        };
        let named = self.numbers.place(shim.client);
        let named = named.and_then(|(worker, _)| self.arrivals.placed(of, worker, shim.epoch));
        named.unwrap_or_else(|| self.arrivals.place(of, inner, pair, workers))
    }

    fn placed(&self, of: Reception, worker: u16, epoch: u16) -> Option<Place> {
        self.arrivals.placed(of, worker, epoch)
    }

    fn frame(&mut self, of: Reception, frame: &[u8], _label: Label<'_>) {
        let hint = hint(frame, of.direction, self.numbers);
        match frame.split_first_chunk::<BYTES>() {
            Some((shim, inner)) if hint != Hint::Reject => {
                let mut tag: Bytes = *shim;
                ::shim::open(&mut tag);
                self.arrivals.frame(of, inner, Label { hint, tag: &tag, ..Label::NONE });
            }
            _ => self.arrivals.frame(of, frame, Label { hint, ..Label::NONE }),
        }
    }

    fn burst(&mut self, of: Reception, burst: &mut [Option<B>]) {
        let Self { arrivals, numbers, burst: shimmed } = self;
        let wrap = |buffer| Shimmed::new(buffer, of.direction, *numbers);
        wrap_burst(burst, shimmed, (wrap, |shimmed| shimmed.buffer), |part| {
            arrivals.burst(of, part);
        });
    }
}

impl<I: PacketIo> PacketIo for ShimIo<I> {
    const TAG: usize = BYTES;
    type Buffer = Shimmed<I::Buffer>;

    fn discard(&mut self) {
        self.inner.discard();
    }

    fn receive(
        &mut self,
        clock: &mut impl Clock,
        arrivals: &mut impl Arrivals<Self::Buffer>,
        most: usize,
    ) -> usize {
        let Self { inner, numbers, burst } = self;
        inner.receive(clock, &mut Bare { arrivals, numbers: *numbers, burst }, most)
    }

    fn transmit(&mut self, departure: Departure<'_, Self::Buffer>) -> bool {
        let Departure { client, direction, due, frame, tagged } = departure;
        // A capture's number may be before the shim.
        let before = tagged.tag().len().saturating_sub(BYTES);
        let shim = &tagged.tag()[before..];
        let leave = |frame| Departure { client, direction, due, frame, tagged: Tagged::default() };
        match frame {
            Frame::Bytes(_) => self.inner.transmit(leave(Frame::Bytes(&tagged.whole()[before..]))),
            Frame::Buffer(place) => {
                let Some(Shimmed { mut buffer, hint }) = place.take() else { return true };
                if let Some(bytes) = buffer.bytes_mut().get_mut(..shim.len()) {
                    bytes.copy_from_slice(shim);
                }
                let mut whole = Some(buffer);
                let taken = self.inner.transmit(leave(Frame::Buffer(&mut whole)));
                *place = whole.map(|buffer| Shimmed { buffer, hint });
                taken
            }
        }
    }

    fn flush(&mut self, now: Instant) {
        self.inner.flush(now);
    }

    fn egress(&self, pair: usize, direction: Direction) -> EgressCounters {
        self.inner.egress(pair, direction)
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        self.inner.wait(timeout)
    }
}
