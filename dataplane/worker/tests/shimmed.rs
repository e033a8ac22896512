// SPDX-License-Identifier: Apache-2.0
//! An engine behind ports that lead to a switch, without a worker around it.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::time::Duration;

use emu::client::ClientKey;
use emu::engine::{Departure, Engine, Limits};
use emu::frame::{Frame, Hint, Label};
use emu::place::Place;
use emu::plan::Plan;
use emu::units::{Direction, Instant};
use shim::{Numbers, Tick};
use worker::clock::{Clock, VirtualClock};
use worker::edge::{Edge, Tail};
use worker::io::{Arrivals, EgressCounters, PacketIo, Reception};
use worker::shim::{ShimIo, Shimmed};

/// Frames that left: direction, client, due time, and bytes with the shim.
pub type Left = Vec<(Direction, ClientKey, Instant, Vec<u8>)>;

/// Frames on the wires: arriving ones with and without buffers, and those that left.
#[derive(Clone, Debug, Default)]
struct Wires {
    burst: Rc<RefCell<Vec<Option<Vec<u8>>>>>,
    bare: Rc<RefCell<Option<Vec<u8>>>>,
    at: Cell<(Instant, usize)>,
    left: Rc<RefCell<Left>>,
    takes: Rc<Cell<usize>>,
}

#[derive(Debug, Default)]
struct Port(Rc<Wires>);

impl PacketIo for Port {
    type Buffer = Vec<u8>;

    fn receive(
        &mut self,
        _: &mut impl Clock,
        arrivals: &mut impl Arrivals<Vec<u8>>,
        _: usize,
    ) -> usize {
        let (at, way) = self.0.at.get();
        let of = Reception::new(at, Direction::BOTH[way]);
        arrivals.burst(of, &mut self.0.burst.borrow_mut());
        if let Some(frame) = self.0.bare.take() {
            arrivals.frame(of, &frame, Label::NONE);
        }
        0
    }

    fn transmit(&mut self, d: Departure<'_, Vec<u8>>) -> bool {
        let Some(left) = self.0.takes.get().checked_sub(1) else { return false };
        self.0.takes.set(left);
        self.0.left.borrow_mut().push((d.direction, *d.client, d.due, d.bytes().to_vec()));
        if let Frame::Buffer(buffer) = d.frame {
            buffer.take();
        }
        true
    }

    fn flush(&mut self, _now: Instant) {}

    fn egress(&self, _pair: usize, _direction: Direction) -> EgressCounters {
        EgressCounters::default()
    }

    fn wait(&mut self, _timeout: Duration) -> bool {
        false
    }
}

/// What arrives goes to an engine.
struct Taken<'a>(&'a mut Engine<Shimmed<Vec<u8>>>);

impl Arrivals<Shimmed<Vec<u8>>> for Taken<'_> {
    fn place(&self, _: Reception, _: &[u8], _pair: u8, _workers: usize) -> Place {
        Place { worker: 0, link: 0, hint: Hint::None }
    }

    fn placed(&self, _: Reception, _worker: u16, _epoch: u16) -> Option<Place> {
        None
    }

    fn frame(&mut self, of: Reception, frame: &[u8], label: Label<'_>) {
        self.0.arrive_labelled(of.at, of.direction, frame, label);
    }

    fn burst(&mut self, of: Reception, burst: &mut [Option<Shimmed<Vec<u8>>>]) {
        self.0.arrive_burst(of.at, of.direction, burst);
    }
}

#[derive(Debug)]
pub struct Bed {
    engine: Engine<Shimmed<Vec<u8>>>,
    io: ShimIo<Port>,
    wires: Rc<Wires>,
}

impl Bed {
    pub fn new(limits: Limits, plan: Plan, tick: Tick) -> Self {
        let numbers = Numbers::of_first(tick, 1);
        let limits = Limits { offloaded: numbers.clients(), ..limits };
        let mut engine = Engine::new(limits, plan, Instant::ZERO).unwrap();
        engine.set_observer(Edge::observer(Tail::Shim(numbers), None));
        let wires = Rc::<Wires>::default();
        Self { engine, io: ShimIo::new(Port(wires.clone()), numbers), wires }
    }

    fn receive(&mut self, at: Instant, direction: Direction) {
        self.wires.at.set((at, direction as usize));
        self.io.receive(&mut VirtualClock::default(), &mut Taken(&mut self.engine), usize::MAX);
    }

    /// A frame without its own buffer arrives.
    pub fn arrive(&mut self, at: Instant, direction: Direction, frame: &[u8]) {
        self.wires.bare.replace(Some(frame.to_vec()));
        self.receive(at, direction);
    }

    pub fn arrive_burst(&mut self, at: Instant, direction: Direction, burst: &[Vec<u8>]) {
        self.wires.burst.borrow_mut().extend(burst.iter().cloned().map(Some));
        self.receive(at, direction);
        self.wires.burst.borrow_mut().clear();
    }

    /// Offers up to `budget` frames to a port that takes `takes`.
    pub fn release(&mut self, now: Instant, budget: usize, takes: usize) -> Left {
        self.wires.takes.set(takes);
        let io = &mut self.io;
        self.engine.release(now, budget, &mut |d: Departure<'_, Shimmed<Vec<u8>>>| io.transmit(d));
        self.wires.left.take()
    }
}

impl Deref for Bed {
    type Target = Engine<Shimmed<Vec<u8>>>;

    fn deref(&self) -> &Self::Target {
        &self.engine
    }
}

impl DerefMut for Bed {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.engine
    }
}
