// SPDX-License-Identifier: Apache-2.0
//! The links of a dataplane, and the rules that assign frames to them.
//!
//! A link is a [`Dataplane`] with its scenario. One worker has an engine for it, under the link's
//! number, and all of its clients; the clients of `main` are spread over all workers, unless they
//! share something. `main` has the memory for packets that no other link reserves. Links are added and
//! removed, and rules set, one at a time. Runs on the control thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use clients::Fault;
use emu::client::{ClientName, NameError};
use emu::links::{Board, MAIN, MAX_LINKS, Via};
use emu::rules::RulesError;
use emu::store::SEGMENT;
use owner::{Link, Owned};
use profile::Violations;
use proto::linkemu::v1 as model;
use proto::{MAIN_LINK, link_id, link_name};
use tokio::sync::Mutex;

use crate::dataplane::{Dataplane, LinksError};
use crate::sharing::{Role, SharedLink, SharingError};

/// Clients of a link that does not say how many.
const CLIENTS: u32 = 16;
/// Contradictions that are reported.
const FAULTS: usize = 20;
/// Part of the box's memory for a link that does not say how much.
const SHARE: u64 = 8;
/// The least memory of a link.
const LEAST: u64 = 1 << 20;
/// How long a link that is removed has to send the packets that it holds.
const DRAIN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

pub type Entry = Owned<Dataplane>;

/// The shared link that an access link also passes.
struct Passed {
    link: Dataplane,
    shared: Arc<SharedLink>,
    /// The access link, and its weight there.
    access: ClientName,
    weight: u16,
}

impl Passed {
    /// Makes the access link a client of the shared one, or changes nothing.
    async fn join(&self) -> Result<Via, LinksError> {
        let most = (self.link.name(), self.link.room().clients);
        let client = self.shared.join(self.access, self.weight, most)?;
        if let Err(error) = self.link.share().await {
            self.shared.leave(self.access);
            return Err(error.into());
        }
        Ok(Via { link: self.link.number(), client })
    }

    /// Ends that, or changes nothing.
    async fn leave(&self) -> Result<(), LinksError> {
        self.shared.leave(self.access);
        if let Err(error) = self.link.share().await {
            let most = (self.link.name(), self.link.room().clients);
            self.shared.join(self.access, self.weight, most)?;
            return Err(error.into());
        }
        Ok(())
    }
}

/// The links of a dataplane. Clones share them.
#[derive(Clone)]
pub struct Links(Arc<Shared>);

struct Shared {
    main: Entry,
    others: RwLock<BTreeMap<String, Entry>>,
    rules: Mutex<Rules>,
}

#[derive(Clone, Debug, Default)]
struct Rules {
    rules: Vec<model::LinkRule>,
    generation: u64,
    effective_utc: Option<prost_types::Timestamp>,
}

impl Rules {
    fn proto(&self) -> model::LinkRules {
        let Self { rules, generation, effective_utc } = self.clone();
        model::LinkRules { rules, effective_utc, generation }
    }

    fn of(&self, name: &str) -> u32 {
        let of = |rule: &&model::LinkRule| link_id(&rule.link) == name;
        u32::try_from(self.rules.iter().filter(of).count()).unwrap_or(u32::MAX)
    }
}

impl Links {
    /// The one link `main`.
    #[must_use]
    pub fn new(main: Dataplane) -> Self {
        let (others, rules) = (RwLock::default(), Mutex::default());
        Self(Arc::new(Shared { main: Owned::new(main), others, rules }))
    }

    #[must_use]
    pub fn main(&self) -> &Entry {
        &self.0.main
    }

    /// All links, `main` first.
    #[must_use]
    pub fn all(&self) -> Vec<Entry> {
        let others = self.0.others.read().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(&self.0.main).chain(others.values()).cloned().collect()
    }

    /// The link with a name, with or without "links/".
    ///
    /// # Errors
    /// [`LinksError::Unknown`].
    pub fn get(&self, name: &str) -> Result<Entry, LinksError> {
        let name = link_id(name);
        if name == MAIN_LINK {
            return Ok(self.0.main.clone());
        }
        let others = self.0.others.read().unwrap_or_else(PoisonError::into_inner);
        others.get(name).cloned().ok_or_else(|| {
            let mut known: Vec<_> = std::iter::once(MAIN_LINK)
                .chain(others.keys().map(String::as_str))
                .take(20)
                .collect();
            if others.len() >= known.len() {
                known.push("…");
            }
            LinksError::Unknown { name: name.to_owned(), known: known.join(", ") }
        })
    }

    /// All links and the rules.
    ///
    /// # Errors
    /// If a worker has stalled.
    pub async fn list(&self) -> Result<(Vec<model::NamedLink>, model::LinkRules), LinksError> {
        let rules = self.0.rules.lock().await.clone();
        let mut links = Vec::new();
        for entry in self.all() {
            links.push(described(&entry.link, &rules).await?);
        }
        Ok((links, rules.proto()))
    }

    /// Adds a link that passes everything at once.
    ///
    /// # Errors
    /// If the name is not valid or taken, or memory or clients do not suffice; then nothing has
    /// changed.
    pub async fn add(&self, wanted: &model::NamedLink) -> Result<model::NamedLink, LinksError> {
        let rules = self.0.rules.lock().await;
        let main = &self.0.main.link;
        let name = link_id(&wanted.name).to_owned();
        check_name(&name)?;
        if name == MAIN_LINK || self.get(&name).is_ok() {
            return Err(LinksError::Exists(name));
        }
        if main.fixed().description.switch.is_some() {
            return Err(LinksError::Switch);
        }
        let taken: BTreeSet<_> = self.all().iter().map(|it| it.link.number()).collect();
        let number =
            (0..MAX_LINKS).find(|number| !taken.contains(number)).ok_or(LinksError::Full)?;
        let workers = main.workers() as u64;
        let total = main.fixed().room.capacity * workers;
        let asked = if wanted.memory_bytes == 0 { total / SHARE } else { wanted.memory_bytes };
        let bytes = asked / u64::from(SEGMENT) * u64::from(SEGMENT);
        if bytes < LEAST {
            return Err(LinksError::Small(asked, LEAST));
        }
        let most = main.fixed().room.clients;
        let clients = if wanted.clients == 0 { CLIENTS.min(most) } else { wanted.clients };
        if clients > most {
            return Err(LinksError::Clients(clients, most));
        }
        let role = Role::of(wanted)?;
        let passed = self.passed(&name, &role)?;
        let home = passed.as_ref().and_then(|passed| passed.link.home());
        let home = main.lend(&name, bytes, home).await?;
        let added = async {
            let via = match &passed {
                Some(passed) => Some(passed.join().await?),
                None => None,
            };
            main.add_beside(name.clone(), number, home, (bytes, clients), (role, via)).await
        };
        let link = match added.await {
            Ok(link) => link,
            Err(error) => {
                if let Some(passed) = &passed {
                    passed.shared.leave(passed.access);
                }
                main.take_back_memory(home, bytes).await?;
                return Err(error);
            }
        };
        let described = described(&link, &rules).await;
        let mut others = self.0.others.write().unwrap_or_else(PoisonError::into_inner);
        others.insert(name, Owned::new(link));
        described
    }

    /// The shared link that a link also passes.
    fn passed(&self, name: &str, role: &Role) -> Result<Option<Passed>, LinksError> {
        let Role::Access { via, weight } = role else { return Ok(None) };
        let link = self.get(via)?.link;
        let shared = link.role().shared().cloned().ok_or(SharingError::NotShared(via.clone()))?;
        if *weight != 1 && !shared.is_weighted() {
            return Err(SharingError::NoWeight.into());
        }
        Ok(Some(Passed { link, shared, access: client_name(name)?, weight: *weight }))
    }

    /// Removes a link and its rules.
    ///
    /// # Errors
    /// If there is none, or it is in use.
    pub async fn remove(&self, name: &str) -> Result<(), LinksError> {
        let mut rules = self.0.rules.lock().await;
        let Entry { link: dataplane, scenarios, .. } = self.get(name)?;
        if dataplane.number() == MAIN {
            return Err(LinksError::Main);
        }
        let name = dataplane.name().to_owned();
        if scenarios.status().state.is_some_and(|state| state.runs()) {
            return Err(LinksError::Runs(name));
        }
        if let Some(by) = dataplane.role().shared().map(|it| it.names()).filter(|by| !by.is_empty())
        {
            return Err(SharingError::Passed { name, by }.into());
        }
        self.check_free(&name, None).await?;
        let passed = self.passed(&name, dataplane.role())?;
        // Before its traffic gets to another link.
        drained(&dataplane, passed.as_ref()).await?;
        let before = rules.clone();
        if rules.of(&name) > 0 {
            let mut others = rules.rules.clone();
            others.retain(|rule| link_id(&rule.link) != name);
            self.enforce(&mut rules, others).await?;
        }
        // What came before the rules changed.
        let emptied = async {
            drained(&dataplane, passed.as_ref()).await?;
            match &passed {
                Some(passed) => passed.leave().await,
                None => Ok(()),
            }
        };
        let emptied: Result<(), LinksError> = emptied.await;
        if let Err(error) = emptied {
            if rules.generation != before.generation {
                self.enforce(&mut rules, before.rules).await?;
            }
            return Err(error);
        }
        dataplane.remove().await?;
        self.0.others.write().unwrap_or_else(PoisonError::into_inner).remove(&name);
        let home = dataplane.home().unwrap_or_default();
        Ok(self.0.main.link.take_back_memory(home, dataplane.room().capacity).await?)
    }

    /// Replaces the rules of a link. Returns those of all links.
    ///
    /// # Errors
    /// If one is not valid or another link has it, or other rules are current.
    pub async fn set_rules(
        &self,
        link: &Dataplane,
        mut wanted: Vec<model::LinkRule>,
        expected: Option<u64>,
    ) -> Result<model::LinkRules, LinksError> {
        let mut rules = self.0.rules.lock().await;
        let name = link.name();
        let current = rules.generation;
        if let Some(expected) = expected.filter(|expected| *expected != current) {
            return Err(LinksError::Stale { expected, current });
        }
        wanted.iter_mut().for_each(|rule| rule.link = link_name(name));
        let others = rules.rules.iter().filter(|rule| link_id(&rule.link) != name).cloned();
        wanted.extend(others);
        self.enforce(&mut rules, wanted).await?;
        Ok(rules.proto())
    }

    async fn enforce(
        &self,
        rules: &mut Rules,
        wanted: Vec<model::LinkRule>,
    ) -> Result<(), LinksError> {
        let board = self.board(&wanted)?;
        let effective_utc = self.0.main.link.set_board(board).await?;
        let generation = rules.generation + 1;
        *rules = Rules { rules: wanted, generation, effective_utc: Some(effective_utc) };
        Ok(())
    }

    fn board(&self, rules: &[model::LinkRule]) -> Result<Board, LinksError> {
        let mut board = Board::default();
        let mut found = Violations::default();
        for (n, rule) in rules.iter().enumerate() {
            let path = format!("rule[{n}]");
            let (entry, name) =
                match (self.get(&rule.link), link_id(&rule.link).parse::<ClientName>()) {
                    (Ok(entry), Ok(name)) => (entry, name),
                    (Err(error), _) => {
                        found.push(format!("{path}.link"), error.to_string());
                        continue;
                    }
                    (_, Err(error)) => {
                        found.push(format!("{path}.link"), error.to_string());
                        continue;
                    }
                };
            if entry.link.role().shared().is_some() {
                let error = SharingError::Rule(entry.link.name().to_owned());
                found.push(format!("{path}.link"), error.to_string());
                continue;
            }
            if let Some(home) = entry.link.home() {
                board.set_home(entry.link.number(), home);
            }
            let client = model::Client {
                prefixes: rule.prefixes.clone(),
                vlans: rule.vlans.clone(),
                macs: rule.macs.clone(),
                matches: rule.matches.clone(),
                ..Default::default()
            };
            let mut any = false;
            for (key, place, rule) in clients::rules(&client) {
                any = true;
                let rule = match rule {
                    Ok(rule) => rule,
                    Err(Fault { key: field, message }) => {
                        let field = field.map(|field| format!(".{field}")).unwrap_or_default();
                        found.push(format!("{path}.{key}[{place}]{field}"), message);
                        continue;
                    }
                };
                if let Err(error) = board.insert(rule, name, entry.link.number()) {
                    let full = error == RulesError::Full;
                    found.push(format!("{path}.{key}[{place}]"), error.to_string());
                    if full {
                        return Err(LinksError::Rules(found));
                    }
                }
            }
            if !any {
                found.push(path, "matches nothing: give it a prefix, a vlan, a mac or a match");
            }
        }
        if found.is_empty()
            && let Err(unknown) = board.set_pairs(&self.0.main.link.fixed().pairs)
        {
            found.push("rule", unknown.to_string());
        }
        // Rules that contradict others are searched only if each one is valid.
        if found.is_empty() {
            for error in board.conflicts(FAULTS) {
                found.push("rule", error.to_string());
            }
        }
        found.into_result().map_err(LinksError::Rules)?;
        Ok(board)
    }
}

/// Checks the name of a new link: as of a client, and it begins with a letter or a digit, so that it
/// can also be the name of a directory.
fn check_name(name: &str) -> Result<(), LinksError> {
    let refused = |why: &str| LinksError::Name(format!("link {name:?}: {why}"));
    client_name(name)?;
    if !name.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return Err(refused("a link's name begins with a letter or digit: choose another one"));
    }
    Ok(())
}

/// The name of a link as that of a client.
fn client_name(name: &str) -> Result<ClientName, LinksError> {
    name.parse().map_err(|error: NameError| {
        LinksError::Name(format!("link {name:?}: {}", error.about("link")))
    })
}

/// Waits until a link and its client in a shared link hold no packet. First in, first out, that client
/// has the packets of all access links.
async fn drained(link: &Dataplane, passed: Option<&Passed>) -> Result<(), LinksError> {
    holds_none(link, None).await?;
    let Some(passed) = passed else { return Ok(()) };
    let client = passed.shared.client(passed.access).to_string();
    holds_none(&passed.link, Some(&client)).await?;
    // What came back from there.
    holds_none(link, None).await
}

/// Waits until a link holds no packet, or none of one client.
async fn holds_none(link: &Dataplane, client: Option<&str>) -> Result<(), LinksError> {
    let began = tokio::time::Instant::now();
    loop {
        let packets = link.held(client).await?;
        if packets == 0 {
            return Ok(());
        }
        if began.elapsed() > DRAIN {
            return Err(LinksError::Holds { name: link.name().to_owned(), packets });
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn described(link: &Dataplane, rules: &Rules) -> Result<model::NamedLink, LinksError> {
    let room = link.room();
    let current = link.plan().await?;
    let mut described = model::NamedLink {
        name: link_name(link.name()),
        memory_bytes: room.capacity * u64::from(room.workers.max(1)),
        clients: room.clients,
        profile: current.plan.profile.map(|profile| profile.name).unwrap_or_default(),
        generation: current.applied.generation,
        holder: String::new(),
        rules: rules.of(link.name()),
        ..Default::default()
    };
    link.role().describe(&mut described);
    Ok(described)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_name_is_a_client_name_that_begins_with_letter_or_digit() {
        for name in ["lab1", "1", "Lab_1.a-b"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for (name, why) in [
            ("", "link \"\": a link's name has 1 to 16 characters, not 0"),
            ("a/b", "'/' cannot be in a link's name"),
            (".", "begins with a letter or digit"),
            ("..", "begins with a letter or digit"),
            ("-x", "begins with a letter or digit"),
            ("_x", "begins with a letter or digit"),
        ] {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.contains(why), "{name}: {error}");
        }
    }
}
