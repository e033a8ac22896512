// SPDX-License-Identifier: Apache-2.0
//! Writes the desired entries to the switch: after a connection, and when they change.

use super::{End, Task, epoch};
use crate::config::Config;
use crate::desired::Desired;
use crate::model::{News, Phase};
use crate::names;
use crate::standing::Standing;
use emu::units::Direction;
use p4runtime::session::DigestConfig;
use p4runtime::{Error as P4Error, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Batching of host digests: maximum wait for more, maximum list length, and the time before an
/// unacknowledged digest is repeated.
const DIGEST: DigestConfig =
    DigestConfig { wait: Duration::from_millis(10), list: 64, repeat: Duration::from_secs(1) };

impl Task {
    /// Restores the switch from any state and reports it ready.
    pub(super) async fn ready(&mut self, session: &Session) -> Result<(), End> {
        self.shared.set_phase(Phase::Restoring, String::new());
        let returned = Instant::now();
        let pushed = self.restore(session).await?;
        let took = returned.elapsed();
        self.shared.set_restored(took);
        // The event below covers waiting callers.
        let _slow = self.publish();
        self.reported = Some(Phase::Ready);
        (self.report)(News::Ready { took, pushed, entries: self.standing.entries() });
        Ok(())
    }

    async fn restore(&mut self, session: &Session) -> Result<bool, End> {
        self.take_owners();
        let mut found = None;
        if session.cookie().await? == Some(self.cookie) {
            found = match Standing::read(session).await {
                Ok(found) => Some(found),
                // Our program with invalid entries: load it again.
                Err(P4Error::Entry(_) | P4Error::NoProgram { .. }) => None,
                Err(other) => return Err(other.into()),
            };
        }
        let pushed = found.is_none();
        if let Some(found) = found {
            self.adopt(&found);
            self.standing = found;
        } else {
            let program = &self.config.program;
            session.push(&program.device, &program.p4info, self.cookie).await?;
            self.accounts.restart();
            self.standing = Standing::default();
            // The clock of the switch restarted, so older timestamps are invalid.
            self.desired.epoch = epoch(self.desired.epoch);
            // The old entries are gone, and no caller will set the clients to keep.
            self.desired.clients.get_or_insert_default();
        }
        self.write_all(session).await?;
        if pushed {
            self.uncleared = false;
        }
        self.clear(session).await?;
        Ok(pushed)
    }

    /// Writes all that differs, in the order in which no frame passes unimpaired.
    pub(super) async fn write_all(&mut self, session: &Session) -> Result<(), End> {
        self.write_groups(session).await?;
        self.write(session, &names::FIRST).await?;
        self.write_clients(session).await?;
        self.write(session, &names::LAST).await
    }

    /// Adopts the entries that may stay.
    fn adopt(&mut self, found: &Standing) {
        let now = Instant::now();
        let ours = (self.desired.epoch, self.desired.instance, self.desired.rules);
        let (ports, buckets) = (found.table(names::PORTS), found.table(names::BUCKETS));
        let epoch =
            Desired::epoch_of(ports, found.table(names::NOTES), self.desired.cells, &self.config);
        if !self.knows_owners {
            self.desired.adopt_owners(ports, buckets);
        }
        match epoch {
            // The epoch is ours, or that of a previous linkd and this one has none yet.
            Some(found @ (epoch, instance, rules)) if ours.1 == 0 || found == ours => {
                if ours.1 == 0 && instance != 0 {
                    self.desired.clients = None;
                }
                let Desired { epoch: e, instance: i, rules: r, .. } = &mut self.desired;
                (*e, *i, *r) = (epoch, instance, rules);
            }
            // Numbers of another epoch: their entries are deleted before the new epoch is written.
            _ => self.desired.epoch = self::epoch(self.desired.epoch),
        }
        for entry in found.table(names::LOSS).values() {
            self.desired.slots.adopt(entry, now);
        }
        for entry in found.table(names::HOSTS).values() {
            self.desired.hosts.adopt(entry, &self.config.host_ports, now);
        }
    }

    async fn write_groups(&mut self, session: &Session) -> Result<(), P4Error> {
        let mut groups = BTreeMap::new();
        for direction in Direction::BOTH {
            let ports = self.config.host_ports.outgoing()[direction];
            let ports: BTreeSet<u32> = ports.iter().map(|port| u32::from(*port)).collect();
            if !ports.is_empty() {
                groups.insert(names::group(direction), ports);
            }
        }
        groups.extend(mirrors(&self.config));
        self.standing.write_groups(session, groups, DIGEST).await
    }

    /// Writes these tables, in this order.
    pub(super) async fn write(
        &mut self,
        session: &Session,
        tables: &[&'static str],
    ) -> Result<(), End> {
        for table in tables {
            if let Some(desired) = self.desired.entries(table, &self.config) {
                self.standing.write(session, table, &desired).await?;
            }
        }
        if self.standing.wrong().contains(&names::PORTS) {
            // Without its ports the switch forwards nothing correctly.
            let what = self.standing.refusals();
            return Err(End::Lost(P4Error::Strange { what }));
        }
        Ok(())
    }

    /// Writes all client tables, or empties them all: if one rule were missing, a wider rule of
    /// another client would match instead.
    pub(super) async fn write_clients(&mut self, session: &Session) -> Result<(), End> {
        self.desired.withheld = None;
        let Some(why) = self.try_clients(session).await? else { return Ok(()) };
        tracing::warn!("the switch knows no client: {why}");
        self.desired.withheld = Some(why);
        self.empty_clients(session).await
    }

    async fn try_clients(&mut self, session: &Session) -> Result<Option<String>, End> {
        for table in names::CLIENTS {
            let desired = self.desired.entries(table, &self.config);
            let (wanted, size) = (desired.map_or(0, |all| all.len() as u64), self.size(table));
            if wanted > size {
                return Ok(Some(format!(
                    "{table} holds {size} entries, and the rules of the clients need {wanted}: \
                     the box classifies until there are fewer"
                )));
            }
        }
        for table in names::CLIENTS {
            self.write(session, &[table]).await?;
            if self.standing.wrong().contains(&table) {
                let refusals = self.standing.refusals();
                return Ok(Some(format!("the box classifies, since {refusals}")));
            }
        }
        Ok(None)
    }

    /// Empties the client tables, in reverse order of lookup.
    pub(super) async fn empty_clients(&mut self, session: &Session) -> Result<(), End> {
        for table in names::CLIENTS.into_iter().rev() {
            self.standing.write(session, table, &BTreeMap::new()).await?;
        }
        if names::CLIENTS.iter().any(|table| self.standing.wrong().contains(table)) {
            // The remaining entries would still be used.
            let what = self.standing.refusals();
            return Err(End::Lost(P4Error::Strange { what }));
        }
        Ok(())
    }
}

/// Multicast groups by which copies are made. They are there before any entry that uses them.
fn mirrors(config: &Config) -> BTreeMap<u32, BTreeSet<u32>> {
    let Some(mirror) = config.mirror_port.map(u32::from) else { return BTreeMap::new() };
    if !config.target.has_group_or_port() {
        return [(names::MIRROR_GROUP, [mirror].into())].into();
    }
    let hosts = &config.host_ports;
    let to_boxes = config.boxes.iter().flat_map(|ports| [ports.wan, ports.client]);
    let single = hosts.wan.iter().chain(&hosts.client).copied().chain(to_boxes);
    let single =
        single.map(|port| (names::mirrored_group(port.into()), [port.into(), mirror].into()));
    let floods = Direction::BOTH.map(|direction| {
        let ports = hosts.outgoing()[direction].iter().copied().map(u32::from);
        (names::mirrored_group(names::flood(direction)), ports.chain([mirror]).collect())
    });
    single.chain(floods).collect()
}
