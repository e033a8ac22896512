// SPDX-License-Identifier: Apache-2.0
//! What the view shows and what keys do to it. No clock, no terminal.

use crate::top::history::History;
use crate::top::rates::{Flow, Link, Row, between, rows};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::IpAddr;
use view::Snapshot;

/// What the rows are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Addresses in their order.
    #[default]
    Client,
    /// The fastest first.
    Forward,
    /// The fastest first.
    Return,
    /// The longest first.
    Queue,
    /// The longest first.
    Delay,
    /// The most first.
    Drops,
}

impl Sort {
    const ALL: [Self; 6] =
        [Self::Client, Self::Forward, Self::Return, Self::Queue, Self::Delay, Self::Drops];

    fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Forward => "forward",
            Self::Return => "return",
            Self::Queue => "queue",
            Self::Delay => "delay",
            Self::Drops => "drops",
        }
    }
}

/// The directions that queue, delay and drops are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Queues and drops added; the longer delay.
    #[default]
    Both,
    /// Towards the client.
    Forward,
    /// From the client.
    Return,
}

impl Way {
    /// What of a row is meant.
    pub fn of(self, row: &Row) -> Flow {
        match self {
            Self::Both => row.both(),
            Self::Forward => row.forward,
            Self::Return => row.back,
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Both => Self::Forward,
            Self::Forward => Self::Return,
            Self::Return => Self::Both,
        }
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Forward => "forward",
            Self::Return => "return",
        }
    }
}

/// What the head shows of the emulator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The instant of the snapshot.
    pub time_ns: u64,
    /// In force.
    pub generation: u64,
    /// The link was set although it can lose packets.
    pub lossy: bool,
    /// Lateness since the last mark.
    pub late_p99_ns: u64,
    /// Of the packet store.
    pub memory_bytes: u64,
    /// Of the packet store.
    pub capacity_bytes: u64,
    /// Lost by the emulator itself.
    pub emulator_drops: u64,
    /// Since the last mark.
    pub stall_max_ns: u64,
    /// Ports without a carrier.
    pub down: Vec<String>,
}

impl From<&Snapshot> for Health {
    fn from(snapshot: &Snapshot) -> Self {
        let down = snapshot.ports.iter().filter(|port| port.link == Some(view::Link::Down));
        Self {
            time_ns: snapshot.time_ns,
            generation: snapshot.generation,
            lossy: snapshot.lossy,
            late_p99_ns: snapshot.lateness_ns.p99,
            memory_bytes: snapshot.memory.used_bytes,
            capacity_bytes: snapshot.memory.capacity_bytes,
            emulator_drops: snapshot.emulator_drops,
            stall_max_ns: snapshot.stall_max_ns,
            down: down.map(|port| port.name.clone()).collect(),
        }
    }
}

/// Certificate, lease and scenario of the link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Failed criteria; `None` if there is no certificate.
    pub failed: Option<Vec<String>>,
    /// Holder of the active lease.
    pub holder: Option<String>,
    /// Name and position of the running scenario.
    pub scenario: Option<String>,
}

/// What happens to the view.
#[derive(Debug)]
pub enum Event {
    /// Certificate, lease and scenario were read.
    Use(Use),
    /// The link in force was read.
    Link(Link),
    /// A snapshot came.
    Stats(Box<Snapshot>),
    /// linkd or its dataplane went away: why.
    Away(String),
}

/// The view.
#[derive(Debug, Default)]
pub struct Model {
    /// In force.
    pub link: Link,
    /// As last read.
    pub used: Use,
    /// Of the snapshot that is shown; `None` before the first.
    pub health: Option<Health>,
    /// Of the snapshot that is shown, sorted.
    pub rows: Vec<Row>,
    /// Why there is no news.
    pub away: Option<String>,
    /// What they are sorted by.
    pub sort: Sort,
    /// What queue, delay and drops are of.
    pub way: Way,
    /// The picture stands still.
    pub paused: bool,
    /// The keys are shown.
    pub help: bool,
    /// The first row on the screen.
    pub top: usize,
    chosen: Option<String>,
    last: Option<Snapshot>,
    histories: HashMap<String, History>,
    /// Rows on the screen when it was last drawn.
    page: usize,
}

impl Model {
    /// Takes in what happened.
    pub fn take(&mut self, event: Event) {
        match event {
            Event::Link(link) => self.link = link,
            Event::Use(used) => self.used = used,
            Event::Away(why) => self.away = Some(why),
            Event::Stats(snapshot) => self.snapshot(*snapshot),
        }
    }

    fn snapshot(&mut self, snapshot: Snapshot) {
        self.away = None;
        let rows = rows(self.last.as_ref(), &snapshot, &self.link);
        match self.last.as_ref().map(|last| (last.time_ns, between(last, &snapshot))) {
            Some((from_ns, Some(_))) => {
                for row in &rows {
                    let history = self.histories.entry(row.client.clone()).or_default();
                    history.add(from_ns, snapshot.time_ns, row);
                }
                if self.histories.len() > rows.len() {
                    let there: std::collections::HashSet<&str> =
                        rows.iter().map(|row| row.client.as_str()).collect();
                    self.histories.retain(|client, _| there.contains(client.as_str()));
                }
            }
            // Another dataplane, with a clock of its own.
            _ => self.histories.clear(),
        }
        if !self.paused || self.health.is_none() {
            self.health = Some(Health::from(&snapshot));
            self.rows = rows;
            self.order();
        }
        self.last = Some(snapshot);
    }

    fn order(&mut self) {
        let (sort, way) = (self.sort, self.way);
        self.rows.sort_by_cached_key(|row| Key::of(row, sort, way));
    }

    /// The place of the chosen client: the first, if there is no such.
    pub fn place(&self) -> Option<usize> {
        let chosen = self.chosen.as_deref();
        let found = self.rows.iter().position(|row| Some(row.client.as_str()) == chosen);
        found.or((!self.rows.is_empty()).then_some(0))
    }

    /// The chosen client, with its minute.
    pub fn chosen(&self) -> Option<(&Row, Option<&History>)> {
        let row = &self.rows[self.place()?];
        Some((row, self.histories.get(&row.client)))
    }

    /// Scrolls so that the chosen client is among `page` rows on the screen.
    pub fn fit(&mut self, page: usize) {
        self.page = page;
        let place = self.place().unwrap_or(0);
        self.top = self.top.min(self.rows.len().saturating_sub(page));
        if place < self.top {
            self.top = place;
        } else if page > 0 && place >= self.top + page {
            self.top = place + 1 - page;
        }
    }

    fn choose(&mut self, place: usize) {
        let place = place.min(self.rows.len().saturating_sub(1));
        self.chosen = self.rows.get(place).map(|row| row.client.clone());
    }

    /// Does what a key says; true to end.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if key.code == KeyCode::Char('q') || (control && key.code == KeyCode::Char('c')) {
            return true;
        }
        if self.help {
            // Any other key puts the help away.
            self.help = false;
            return false;
        }
        let (place, page) = (self.place().unwrap_or(0), self.page.max(1));
        match key.code {
            KeyCode::Esc => return true,
            KeyCode::Up | KeyCode::Char('k') => self.choose(place.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(place + 1),
            KeyCode::PageUp => self.choose(place.saturating_sub(page)),
            KeyCode::PageDown => self.choose(place.saturating_add(page)),
            KeyCode::Home | KeyCode::Char('g') => self.choose(0),
            KeyCode::End | KeyCode::Char('G') => self.choose(usize::MAX),
            KeyCode::Char('s') => {
                self.keep();
                self.sort = self.sort.next();
                self.order();
            }
            KeyCode::Char('d') => {
                self.keep();
                self.way = self.way.next();
                self.order();
            }
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('?' | 'h') => self.help = true,
            _ => {}
        }
        false
    }

    /// Chooses by name what is chosen by its place, for it is to stay so.
    fn keep(&mut self) {
        if let Some(place) = self.place().filter(|_| self.chosen.is_some()) {
            self.choose(place);
        }
    }
}

/// Orders rows: by a figure, the largest first, then addresses in their order.
#[derive(Debug, PartialEq)]
struct Key {
    figure: f64,
    address: Option<IpAddr>,
    name: String,
}

impl Key {
    fn of(row: &Row, sort: Sort, way: Way) -> Self {
        use crate::top::rates::Wait;
        let flow = way.of(row);
        let figure = match sort {
            Sort::Client => 0.0,
            Sort::Forward => row.forward.rate_bps.unwrap_or(-1.0),
            Sort::Return => row.back.rate_bps.unwrap_or(-1.0),
            Sort::Queue => flow.queue_bytes as f64,
            Sort::Delay => match flow.wait {
                Wait::Unknown => -1.0,
                Wait::Seconds(s) => s,
                Wait::Forever => f64::INFINITY,
            },
            Sort::Drops => flow.dropping().unwrap_or(-1.0),
        };
        Self { figure, address: row.client.parse().ok(), name: row.client.clone() }
    }
}

impl Eq for Key {}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        // Addresses before names.
        let class = |key: &Self| key.address.is_none();
        (other.figure.total_cmp(&self.figure))
            .then_with(|| class(self).cmp(&class(other)))
            .then_with(|| self.address.cmp(&other.address))
            .then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::top::history::Series;
    use crate::top::rates::tests::{client, link, snapshot};

    const S: u64 = 1_000_000_000;

    pub fn press(model: &mut Model, keys: &str) -> bool {
        keys.chars().any(|c| model.key(KeyEvent::from(KeyCode::Char(c))))
    }

    /// Two seconds of three clients and one that is not impaired.
    pub fn three() -> Model {
        let mut model = Model::default();
        model.take(Event::Link(link()));
        for n in [1, 2_u64] {
            let clients = vec![
                client("bypass", 0, 0, 0),
                client("10.0.0.10", 500_000 * n, 0, 0),
                client("10.0.0.9", 1_000_000 * n, 18_000_000, 2 * n),
                client("2001:db8::1", 2_000_000 * n, 9_000_000, 7 * n),
            ];
            model.take(Event::Stats(Box::new(snapshot(n * S, clients))));
        }
        model
    }

    fn names(model: &Model) -> Vec<&str> {
        model.rows.iter().map(|row| row.client.as_str()).collect()
    }

    #[test]
    fn addresses_are_sorted_as_numbers_and_names_come_last() {
        assert_eq!(names(&three()), ["10.0.0.9", "10.0.0.10", "2001:db8::1", "bypass"]);
    }

    #[test]
    fn figures_are_sorted_the_largest_first() {
        let mut model = three();
        for (sort, first) in [
            (Sort::Forward, ["2001:db8::1", "10.0.0.9", "10.0.0.10", "bypass"]),
            (Sort::Return, ["2001:db8::1", "10.0.0.9", "10.0.0.10", "bypass"]),
            (Sort::Queue, ["10.0.0.9", "2001:db8::1", "10.0.0.10", "bypass"]),
            (Sort::Delay, ["10.0.0.9", "2001:db8::1", "10.0.0.10", "bypass"]),
            (Sort::Drops, ["2001:db8::1", "10.0.0.9", "10.0.0.10", "bypass"]),
            (Sort::Client, ["10.0.0.9", "10.0.0.10", "2001:db8::1", "bypass"]),
        ] {
            press(&mut model, "s");
            assert_eq!(model.sort, sort);
            assert_eq!(names(&model), first, "{sort:?}");
        }
        // Of the return direction there are no queues: addresses decide.
        press(&mut model, "dd");
        model.sort = Sort::Queue;
        model.order();
        assert_eq!(names(&model)[0], "10.0.0.9");
        press(&mut model, "d");
        assert_eq!(model.way, Way::Both);
    }

    #[test]
    fn the_chosen_client_stays_chosen_wherever_it_goes() {
        let mut model = three();
        model.fit(10);
        assert_eq!(model.place(), Some(0));
        press(&mut model, "jj");
        assert_eq!(model.chosen().unwrap().0.client, "2001:db8::1");
        press(&mut model, "s");
        assert_eq!(model.place(), Some(0));
        assert_eq!(model.chosen().unwrap().0.client, "2001:db8::1");
        press(&mut model, "kkk");
        assert_eq!(model.place(), Some(0));
        press(&mut model, "Gj");
        assert_eq!(model.place(), Some(3));
        press(&mut model, "g");
        assert_eq!(model.place(), Some(0));
        // A client that is gone leaves the choice to the first.
        let one = vec![client("10.0.0.77", 0, 0, 0)];
        model.take(Event::Stats(Box::new(snapshot(3 * S, one))));
        assert_eq!(model.chosen().unwrap().0.client, "10.0.0.77");
        model.take(Event::Stats(Box::new(snapshot(4 * S, vec![]))));
        assert_eq!(model.place(), None);
        assert!(model.chosen().is_none());
        press(&mut model, "jkGgsd");
    }

    #[test]
    fn scrolling_keeps_the_chosen_client_on_the_screen() {
        let mut model = Model::default();
        let address = |n: u32| std::net::Ipv4Addr::from(0x0a00_0000 + n).to_string();
        let clients = (0..10_000).map(|n| client(&address(n), 0, 0, 0)).collect();
        model.take(Event::Stats(Box::new(snapshot(1, clients))));
        model.fit(14);
        assert_eq!(model.top, 0);
        let mut go = |code, place, top| {
            model.key(KeyEvent::from(code));
            model.fit(14);
            assert_eq!((model.place(), model.top), (Some(place), top));
        };
        go(KeyCode::PageDown, 14, 1);
        go(KeyCode::Up, 13, 1);
        go(KeyCode::End, 9_999, 9_986);
        go(KeyCode::PageUp, 9_985, 9_985);
        go(KeyCode::Home, 0, 0);
        // No screen at all, and one that is larger than what there is.
        model.fit(0);
        press(&mut model, "G");
        model.fit(20_000);
        assert_eq!(model.top, 0);
    }

    #[test]
    fn keys_end_it_and_help_is_put_away_first() {
        let mut model = three();
        assert!(model.key(KeyEvent::from(KeyCode::Esc)));
        assert!(press(&mut model, "q"));
        assert!(model.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!press(&mut model, "c"));
        assert!(!press(&mut model, "?"));
        assert!(model.help);
        assert!(!model.key(KeyEvent::from(KeyCode::Esc)));
        assert!(!model.help);
        press(&mut model, "?");
        assert!(press(&mut model, "q"));
    }

    #[test]
    fn a_picture_that_stands_still_goes_on_with_what_came_meanwhile() {
        let mut model = three();
        press(&mut model, "p");
        let more = || vec![client("10.0.0.9", 3_000_000, 0, 0)];
        model.take(Event::Stats(Box::new(snapshot(3 * S, more()))));
        assert_eq!((model.rows.len(), model.health.as_ref().unwrap().time_ns), (4, 2 * S));
        press(&mut model, "p");
        let clients = vec![client("10.0.0.9", 3_500_000, 0, 0)];
        model.take(Event::Stats(Box::new(snapshot(4 * S, clients))));
        assert_eq!(model.rows.len(), 1);
        assert_eq!(model.rows[0].forward.rate_bps, Some(4_000_000.0));
        let (_, history) = model.chosen().unwrap();
        let chart = history.unwrap().chart(Series::Forward, 4 * S, 120);
        // The pause is on the chart: 8 Mbit/s from 1 s to 3 s.
        assert_eq!(chart.iter().filter(|bps| **bps > 7_900_000).count(), 4);
    }

    #[test]
    fn what_went_away_is_said_until_news_come() {
        let mut model = three();
        model.take(Event::Away("cannot reach linkd".into()));
        assert_eq!(model.away.as_deref(), Some("cannot reach linkd"));
        assert_eq!(model.rows.len(), 4);
        // Another dataplane: its clock starts anew, and so do the charts.
        let clients = vec![client("10.0.0.9", 5, 0, 0)];
        model.take(Event::Stats(Box::new(snapshot(S, clients))));
        assert_eq!(model.away, None);
        assert_eq!(model.rows[0].forward.rate_bps, None);
        assert!(model.chosen().unwrap().1.is_none());
    }
}
