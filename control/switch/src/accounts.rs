// SPDX-License-Identifier: Apache-2.0
//! Counters of the switch, accumulated over its restarts.
//!
//! A cell's value is the switch's counter plus the sum before its last reset. A reset happened if
//! the switch got its program again, or if a counter decreased. Frames counted between the last
//! read and a reset are lost. Invariant: the reported values of one dataplane instance only grow.

use crate::bins::{Bounds, EARLY};
use crate::cells::Cells;
use crate::config::Config;
use crate::model::{
    BYPASS, Counts, DEFAULT, Egress, Fates, Histogram, MAX_CLIENTS, Mirrored, Point, PortDrops,
    Stalls,
};
use crate::names::{self, BINS, DROP_CELLS, FATE_CELLS};
use emu::units::{ByDirection, Direction};
use p4runtime::{Change, Count, Error, Session};
use std::collections::{BTreeMap, BTreeSet};

/// A counter cell.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// Sum before the last reset.
    base: Count,
    /// Last value read.
    last: Count,
}

impl Cell {
    fn restart(&mut self) {
        self.base = self.base.plus(self.last);
        self.last = Count::default();
    }

    /// Updates the cell. Returns true if it has grown.
    fn read(&mut self, now: Count) -> bool {
        if now.packets < self.last.packets || now.bytes < self.last.bytes {
            self.restart();
        }
        now != std::mem::replace(&mut self.last, now)
    }

    fn value(&self) -> Count {
        self.base.plus(self.last)
    }
}

type FateCells = [Cell; FATE_CELLS as usize];
type BinCells = [Cell; BINS as usize];

/// Cells of one client and direction.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    fates: FateCells,
    transit: BinCells,
}

#[derive(Clone, Debug, Default)]
pub struct Accounts {
    clients: BTreeMap<u16, [Account; 2]>,
    ports: BTreeMap<u16, [Cell; DROP_CELLS as usize]>,
    lateness: [BinCells; 2],
    egress: BTreeMap<u16, Leaving>,
    /// Copies for all ports where frames of a direction leave.
    floods: [Cell; 2],
    copies: Option<Copies>,
    /// Stalls by their bound; `None` before the switch reported any, or if it does not.
    stalls: Option<BTreeMap<u64, Cell>>,
}

/// Cells of the port for copies.
#[derive(Clone, Copy, Debug)]
struct Copies {
    port: u16,
    /// By point and direction.
    made: [[Cell; 2]; 2],
    sent: Cell,
}

/// Cells of a port that frames leave at.
#[derive(Clone, Copy, Debug, Default)]
struct Leaving {
    given: Cell,
    sent: Cell,
    /// Direction of the frames that leave to hosts; `None` to a box.
    hosts: Option<Direction>,
}

/// Index of `delivered` in [`names::FATES`].
const DELIVERED: usize = 2;

impl Accounts {
    pub fn new(config: &Config, cells: Cells) -> Self {
        let mut accounts = Self::default();
        let fixed = |owner| [0, BYPASS, DEFAULT].map(|number| cells.cell(owner, number));
        accounts.know(cells.boxes().flat_map(fixed));
        let sides = [&config.host_ports.wan, &config.host_ports.client];
        let boxes = config.boxes.iter().flat_map(|ports| [&ports.wan, &ports.client]);
        for port in sides.into_iter().flatten().chain(boxes) {
            accounts.ports.entry(*port).or_default();
            accounts.egress.entry(*port).or_default();
        }
        let copies = |port| Copies { port, made: Default::default(), sent: Cell::default() };
        accounts.copies = config.mirror_port.map(copies);
        for direction in Direction::BOTH {
            for port in config.host_ports.outgoing()[direction] {
                accounts.egress.entry(*port).or_default().hosts = Some(direction);
            }
        }
        accounts
    }

    pub fn know(&mut self, cells: impl IntoIterator<Item = u16>) {
        for cell in cells.into_iter().filter(|cell| *cell < MAX_CLIENTS) {
            self.clients.entry(cell).or_default();
        }
    }

    /// Takes a later reading of a copy. Clients that are known since then remain.
    pub fn replace(&mut self, read: Self) {
        let before = std::mem::replace(self, read);
        self.know(before.clients.into_keys());
    }

    /// Starts a new base: the switch counts from zero again.
    pub fn restart(&mut self) {
        let clients = self.clients.values_mut().flatten();
        let cells = clients.flat_map(|client| client.fates.iter_mut().chain(&mut client.transit));
        let ports = self.ports.values_mut().flatten();
        let all = cells.chain(ports).chain(self.lateness.iter_mut().flatten());
        let leaving = self.egress.values_mut().flat_map(|port| [&mut port.given, &mut port.sent]);
        let all = all.chain(leaving).chain(&mut self.floods);
        let copies = self.copies.iter_mut();
        let copies =
            copies.flat_map(|of| of.made.as_flattened_mut().iter_mut().chain([&mut of.sent]));
        let all = all.chain(copies).chain(self.stalls.iter_mut().flat_map(BTreeMap::values_mut));
        all.for_each(Cell::restart);
    }

    /// Reads all counters. Transit times are read only where frames were delivered since the last
    /// read.
    ///
    /// # Errors
    /// If the switch does not answer; then only some have been read.
    pub async fn read(&mut self, session: &Session) -> Result<(), Error> {
        let all = self.places();
        let info = session.info();
        let mut fates = Vec::new();
        for counter in names::all_fates(info) {
            let more = read(session, &counter.name, names::fates, FATE_CELLS, &all).await?;
            fates.resize(more.len(), Count::default());
            for (sum, more) in fates.iter_mut().zip(more) {
                *sum = sum.plus(more);
            }
        }
        let mut grown = Vec::new();
        for ((client, direction), counts) in all.iter().zip(fates.chunks(FATE_CELLS as usize)) {
            let Some(account) = self.account(*client, *direction) else {
                continue;
            };
            let mut delivered = false;
            for (n, (cell, count)) in account.fates.iter_mut().zip(counts).enumerate() {
                delivered |= cell.read(*count) && n == DELIVERED;
            }
            if delivered {
                grown.push((*client, *direction));
            }
        }
        let bins = read(session, names::TRANSIT, names::transit, BINS, &grown).await?;
        for ((client, direction), counts) in grown.iter().zip(bins.chunks(BINS as usize)) {
            if let Some(account) = self.account(*client, *direction) {
                update(&mut account.transit, counts);
            }
        }
        self.read_ports(session).await?;
        self.read_egress(session).await?;
        self.read_copies(session).await?;
        self.read_stalls(session).await?;
        let both = Direction::BOTH.map(|direction| (0, direction));
        let first = |_, direction| names::lateness(direction);
        let late = read(session, names::LATENESS, first, BINS, &both).await?;
        for (cells, counts) in self.lateness.iter_mut().zip(late.chunks(BINS as usize)) {
            update(cells, counts);
        }
        Ok(())
    }

    /// Frames of unconfigured ports are counted under their own port.
    async fn read_ports(&mut self, session: &Session) -> Result<(), Error> {
        let drops = session.all_counts(names::PORT_DROPS).await?;
        let drops: BTreeMap<u64, Count> = drops.into_iter().collect();
        for cell in drops.keys() {
            if let Ok(port) = u16::try_from(cell / DROP_CELLS) {
                self.ports.entry(port).or_default();
            }
        }
        for (port, cells) in &mut self.ports {
            for (index, cell) in (names::port_drops(*port)..).zip(cells) {
                cell.read(drops.get(&index).copied().unwrap_or_default());
            }
        }
        Ok(())
    }

    /// What was given is read first: frames that are not sent were lost, or are on their way.
    async fn read_egress(&mut self, session: &Session) -> Result<(), Error> {
        let given = self.given_cells().collect::<Vec<_>>();
        let given = counts(session, names::GIVEN, &given).await?;
        let sent = counts(session, names::SENT, &self.egress_cells().collect::<Vec<_>>()).await?;
        let (given, copies) = given.split_at(self.egress.len().min(given.len()));
        for (port, (given, sent)) in self.egress.values_mut().zip(given.iter().zip(sent)) {
            port.given.read(*given);
            port.sent.read(sent);
        }
        update(&mut self.floods, copies);
        Ok(())
    }

    /// What was copied is read first, as in [`Self::read_egress`].
    async fn read_copies(&mut self, session: &Session) -> Result<(), Error> {
        let cells = self.copied_cells().collect::<Vec<_>>();
        let Some(copies) = &mut self.copies else { return Ok(()) };
        let made = counts(session, names::MIRRORED, &cells).await?;
        let sent = counts(session, names::SENT, &[copies.port.into()]).await?;
        update(copies.made.as_flattened_mut(), &made);
        update(std::slice::from_mut(&mut copies.sent), &sent);
        Ok(())
    }

    /// A switch that does not report stalls has none from before either.
    async fn read_stalls(&mut self, session: &Session) -> Result<(), Error> {
        let Some(Stalls(read)) = session.stalls().await? else {
            self.stalls = None;
            return Ok(());
        };
        let cells = self.stalls.get_or_insert_default();
        for bound in read.keys() {
            cells.entry(*bound).or_default();
        }
        for (bound, cell) in cells {
            let packets = read.get(bound).copied().unwrap_or(0);
            cell.read(Count { packets, bytes: 0 });
        }
        Ok(())
    }

    fn egress_cells(&self) -> impl Iterator<Item = u64> {
        self.egress.keys().copied().map(u64::from)
    }

    /// Cells of [`names::SENT`] that are read.
    fn sent_cells(&self) -> impl Iterator<Item = u64> {
        self.egress_cells().chain(self.copies.map(|copies| copies.port.into()))
    }

    /// Cells of [`names::GIVEN`] that are read: those of ports, then those of both floods.
    fn given_cells(&self) -> impl Iterator<Item = u64> {
        self.egress_cells().chain(Direction::BOTH.map(names::flood))
    }

    /// Cells of [`names::MIRRORED`] that are read.
    fn copied_cells(&self) -> impl Iterator<Item = u64> {
        let at = |point| Direction::BOTH.map(|direction| names::mirrored(point, direction));
        self.copies.iter().flat_map(move |_| Point::BOTH.into_iter().flat_map(at))
    }

    fn mirrored(&self) -> Mirrored {
        let Some(Copies { made, sent, .. }) = &self.copies else { return Mirrored::default() };
        let [at_box, at_hosts] = made.map(|cells| ByDirection(cells.map(|cell| cell.value())));
        Mirrored { at_box, at_hosts, sent: sent.value() }
    }

    fn leaving(&self, port: &Leaving) -> Egress {
        let copies = port.hosts.and_then(|direction| self.floods.get(direction as usize));
        let copies = copies.map_or_else(Count::default, Cell::value);
        Egress {
            given: port.given.value().plus(copies),
            sent: port.sent.value(),
            to_hosts: port.hosts.is_some(),
        }
    }

    fn places(&self) -> Vec<(u16, Direction)> {
        let numbers = self.clients.keys().copied();
        numbers.flat_map(|number| Direction::BOTH.map(|direction| (number, direction))).collect()
    }

    fn account(&mut self, client: u16, direction: Direction) -> Option<&mut Account> {
        self.clients.get_mut(&client)?.get_mut(direction as usize)
    }

    pub fn counts(&self, instance: u64, tick: u64, ready: bool) -> Counts {
        let by_direction =
            |accounts: &[Account; 2]| ByDirection(accounts.map(|account| fates(&account.fates)));
        let clients = self.clients.iter().map(|(number, both)| (*number, by_direction(both)));
        let ports = self.ports.iter().map(|(port, cells)| (*port, drops(cells)));
        let egress = self.egress.iter().map(|(port, cells)| (*port, self.leaving(cells)));
        let transit = |direction: Direction| {
            let accounts = self.clients.values().filter_map(|both| both.get(direction as usize));
            histogram(&Bounds::transit(tick), accounts.map(|account| &account.transit))
        };
        let lateness = |cells: &BinCells| histogram(&Bounds::lateness(tick), [cells]);
        let early = self.lateness.iter().filter_map(|cells| cells.get(EARLY as usize));
        Counts {
            ready,
            instance,
            clients: clients.collect(),
            ports: ports.collect(),
            egress: egress.collect(),
            mirrored: self.mirrored(),
            transit: ByDirection(Direction::BOTH.map(transit)),
            lateness: ByDirection(self.lateness.each_ref().map(lateness)),
            early: early.map(|cell| cell.value().packets).sum(),
            stalls: self.stalls.as_ref().map(|cells| {
                Stalls(cells.iter().map(|(bound, cell)| (*bound, cell.value().packets)).collect())
            }),
            foreign: 0,
        }
    }
}

/// Clears all cells that are not zero, and those of frames that leave at the ports of `accounts`. Client numbers of another dataplane belong to other clients.
///
/// # Errors
/// If the switch does not answer or does not allow writes to its counters.
pub async fn clear(session: &Session, accounts: &Accounts) -> Result<(), Error> {
    let mut clients = BTreeSet::new();
    let fates = names::all_fates(session.info());
    for counter in fates.iter().map(|counter| counter.name.as_str()).chain([names::PORT_DROPS]) {
        let counts = session.all_counts(counter).await?;
        if counter != names::PORT_DROPS {
            clients.extend(counts.iter().map(|(cell, _)| cell / FATE_CELLS));
        }
        zero(session, counter, counts.into_iter().map(|(cell, _)| cell)).await?;
    }
    let bins = clients.into_iter().flat_map(|client| client * BINS..(client + 1) * BINS);
    for (counter, cells) in
        [(names::TRANSIT, bins.collect()), (names::LATENESS, (0..2 * BINS).collect::<Vec<_>>())]
    {
        let counts = counts(session, counter, &cells).await?;
        let grown = cells.iter().zip(counts).filter(|(_, count)| *count != Count::default());
        zero(session, counter, grown.map(|(cell, _)| *cell)).await?;
    }
    // In this order, frames in between do not seem to be lost.
    zero(session, names::SENT, accounts.sent_cells()).await?;
    zero(session, names::GIVEN, accounts.given_cells()).await?;
    zero(session, names::MIRRORED, accounts.copied_cells()).await
}

async fn zero(
    session: &Session,
    counter: &str,
    cells: impl Iterator<Item = u64>,
) -> Result<(), Error> {
    let zero = |index| Change::Count { counter: counter.into(), index, count: Count::default() };
    session.write(&cells.map(zero).collect::<Vec<_>>()).await
}

/// Reads `cells` cells at each start.
async fn read(
    session: &Session,
    counter: &str,
    first: impl Fn(u16, Direction) -> u64,
    cells: u64,
    places: &[(u16, Direction)],
) -> Result<Vec<Count>, Error> {
    let of = |(number, direction): &(u16, Direction)| {
        let first = first(*number, *direction);
        first..first + cells
    };
    let indices: Vec<u64> = places.iter().flat_map(of).collect();
    counts(session, counter, &indices).await
}

/// Cells beyond the program's counter are zero and are not read.
async fn counts(session: &Session, counter: &str, cells: &[u64]) -> Result<Vec<Count>, Error> {
    let size = session.info().counter(counter)?.size;
    let there: Vec<u64> = cells.iter().copied().filter(|cell| *cell < size).collect();
    let mut found = session.counts(counter, &there).await?.into_iter();
    let of = |cell: &u64| if *cell < size { found.next() } else { None };
    Ok(cells.iter().map(of).map(Option::unwrap_or_default).collect())
}

fn update(cells: &mut [Cell], counts: &[Count]) {
    for (cell, count) in cells.iter_mut().zip(counts) {
        cell.read(*count);
    }
}

fn fates(cells: &FateCells) -> Fates {
    let [received, returned, delivered, lost, gated, marked, stale, unknown_loss] =
        cells.map(|cell| cell.value());
    Fates { received, returned, delivered, lost, gated, marked, stale, unknown_loss }
}

fn drops(cells: &[Cell; DROP_CELLS as usize]) -> PortDrops {
    let [unknown_port, no_shim, wrong_direction, cut, no_box, ..] = cells.map(|cell| cell.value());
    PortDrops { unknown_port, no_shim, wrong_direction, cut, no_box }
}

fn histogram<'a>(bounds: &Bounds, parts: impl IntoIterator<Item = &'a BinCells>) -> Histogram {
    let bins: Vec<_> = bounds.bins().collect();
    let mut counts = vec![0; bins.len()];
    for cells in parts {
        for (count, bin) in counts.iter_mut().zip(&bins) {
            *count += cells.get(*bin as usize).map_or(0, |cell| cell.value().packets);
        }
    }
    Histogram { bounds: bounds.ns(), counts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn count(packets: u64) -> Count {
        Count { packets, bytes: packets * 100 }
    }

    #[test]
    fn counter_reset_keeps_the_sum() {
        let mut cell = Cell::default();
        cell.read(count(5));
        cell.restart();
        assert_eq!(cell.value(), count(5));
        cell.read(count(2));
        assert_eq!(cell.value(), count(7));
        // The switch restarted without an event.
        cell.read(count(1));
        assert_eq!(cell.value(), count(8));
    }

    proptest! {
        #[test]
        fn account_never_decreases(looks: Vec<(u32, bool)>) {
            let (mut cell, mut before) = (Cell::default(), Count::default());
            for (packets, restart) in looks {
                if restart {
                    cell.restart();
                }
                cell.read(count(packets.into()));
                let value = cell.value();
                prop_assert!(value.packets >= before.packets && value.bytes >= before.bytes);
                before = value;
            }
        }
    }
}
