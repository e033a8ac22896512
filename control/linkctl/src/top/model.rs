// SPDX-License-Identifier: Apache-2.0
//! State of the view, and its keys. No clock, no terminal.

use crate::top::history::History;
use crate::top::order::{Key, Sort, Way};
use crate::top::rates::{Link, Row, between, rows};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use proto::linkemu::v1 as pb;
use std::collections::HashMap;

/// State of the emulator in the head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The instant of the snapshot.
    pub time_ns: u64,
    pub generation: u64,
    /// The link was set although it can lose packets.
    pub lossy: bool,
    /// Lateness since the last mark.
    pub late_p99_ns: u64,
    pub memory_bytes: u64,
    pub capacity_bytes: u64,
    /// Lost by the emulator itself.
    pub emulator_drops: u64,
    /// Since the last mark.
    pub stall_max_ns: u64,
    /// Ports without a carrier.
    pub down: Vec<String>,
}

impl From<&pb::Stats> for Health {
    fn from(stats: &pb::Stats) -> Self {
        let down = stats.ports.iter().filter(|port| port.link() == pb::LinkState::Down);
        Self {
            time_ns: stats.time_ns,
            generation: stats.generation,
            lossy: stats.lossy,
            late_p99_ns: stats.lateness().p99_ns,
            memory_bytes: stats.memory().used_bytes,
            capacity_bytes: stats.memory().capacity_bytes,
            emulator_drops: stats.emulator_drops,
            stall_max_ns: stats.stall_max_ns,
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
    /// The scenario that runs, or the last one; `None`: none has run.
    pub scenario: Option<Scenario>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Its name with its position, or how it ended.
    pub text: String,
    pub is_active: bool,
}

impl Scenario {
    pub fn of(state: &pb::ScenarioState) -> Option<Self> {
        use pb::ScenarioPhase::{Finished, None as Never, Paused, Running, Stopped, Waiting};
        let (phase, name) = (state.phase(), &state.name);
        let how = match phase {
            Never | pb::ScenarioPhase::Unspecified => return None,
            Running => "",
            Waiting => " waiting for an event",
            Paused => " paused",
            Finished => " finished",
            Stopped => " stopped",
        };
        let is_active = matches!(phase, Running | Waiting | Paused);
        let of = state.steps.map_or_else(String::new, |steps| format!(" of {steps}"));
        let step = format!(", step {}{of}", state.steps_done);
        let text = format!("{name}{how}{}", if is_active { &step } else { "" });
        Some(Self { text, is_active })
    }
}

#[derive(Debug)]
pub enum Event {
    /// Certificate, lease and scenario were read.
    Use(Use),
    /// The current link was read.
    Link(Link),
    Stats(Box<pb::Stats>),
    /// linkd or its dataplane went away: why.
    Away(String),
}

#[derive(Debug, Default)]
pub struct Model {
    pub link: Link,
    /// As last read; `None` before the first time.
    pub used: Option<Use>,
    /// From the displayed snapshot; `None` before the first.
    pub health: Option<Health>,
    /// From the displayed snapshot, sorted.
    pub rows: Vec<Row>,
    /// Why there is no news.
    pub away: Option<String>,
    pub sort: Sort,
    /// Direction of queue, delay and drops.
    pub way: Way,
    pub paused: bool,
    pub help: bool,
    /// The first row on the screen.
    pub top: usize,
    chosen: Option<String>,
    last: Option<pb::Stats>,
    histories: HashMap<String, History>,
    /// Rows on the screen when it was last drawn.
    page: usize,
}

impl Model {
    pub fn take(&mut self, event: Event) {
        match event {
            Event::Link(link) => self.link = link,
            Event::Use(used) => self.used = Some(used),
            Event::Away(why) => self.away = Some(why),
            Event::Stats(snapshot) => self.snapshot(*snapshot),
        }
    }

    fn snapshot(&mut self, snapshot: pb::Stats) {
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
            // Another dataplane has another clock.
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

    /// Keeps the chosen client chosen when the order changes.
    fn keep(&mut self) {
        if let Some(place) = self.place().filter(|_| self.chosen.is_some()) {
            self.choose(place);
        }
    }
}

#[cfg(test)]
pub mod tests;
