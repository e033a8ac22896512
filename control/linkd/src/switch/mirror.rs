// SPDX-License-Identifier: Apache-2.0
//! Copies of clients' frames at the switch's port for them.
//!
//! A request names clients. The switch has their numbers, which change with the dataplane and the box, so
//! both are compared at each look. A client that moved has a number at each box that still has frames of
//! it, and its frames from there are copied as well.

use super::{Current, Switches, locked, none_there, status_of, ways};
use ::switch::{Mirror, Point, Switch};
use proto::linkemu::v1 as pb;
use std::collections::{BTreeMap, BTreeSet};

/// The requested copies, and the clients of the last look.
#[derive(Debug, Default)]
pub(super) struct Mirrored {
    pub asked: pb::Mirror,
    /// Numbers of the existing clients at all boxes that have frames of them.
    numbers: BTreeMap<String, Vec<u16>>,
    /// Clients that have rules, with frames or without.
    named: BTreeSet<String>,
    /// Clients have matches, so that the switch has no rules.
    have_matches: bool,
}

impl Mirrored {
    pub fn forget_numbers(&mut self) {
        self.numbers.clear();
    }

    pub fn meet(&mut self, said: &pb::Clients, stats: &pb::Stats) {
        let numbers = |client: &pb::ClientStats| {
            let all = client.other_numbers.iter().chain([&client.number]);
            let all = all.filter_map(|number| u16::try_from(*number).ok());
            (client.client.clone(), all.filter(|number| *number > 0).collect())
        };
        self.numbers = stats.clients.iter().map(numbers).collect();
        self.named = said.clients.iter().map(|client| client.name.clone()).collect();
        self.have_matches = super::clients::have_matches(said);
    }

    /// The first requested client that does not exist.
    fn unknown<'a>(&self, asked: &'a pb::Mirror) -> Option<&'a String> {
        let known = |name: &String| {
            self.named.contains(name) || self.numbers.get(name).is_some_and(|all| !all.is_empty())
        };
        asked.clients.iter().find(|name| !known(name))
    }

    /// Entries of the switch for the requested copies.
    fn entries(&self) -> BTreeSet<Mirror> {
        let pb::Mirror { clients, all, .. } = &self.asked;
        let points: &[Point] = match self.asked.at() {
            pb::MirrorPoint::Unspecified => &Point::BOTH,
            pb::MirrorPoint::Box => &[Point::Box],
            pb::MirrorPoint::Hosts => &[Point::Hosts],
        };
        let ways = ways(self.asked.direction());
        let numbers = clients.iter().filter_map(|name| self.numbers.get(name)).flatten();
        let of: Vec<_> = if *all { vec![None] } else { numbers.copied().map(Some).collect() };
        let places = of.into_iter().flat_map(|client| {
            ways.iter().flat_map(move |way| points.iter().map(move |at| (client, *way, *at)))
        });
        places.collect()
    }
}

impl Switches {
    /// Has the switch copy other frames, or none.
    ///
    /// # Errors
    /// In words, if there is no such client or the switch does not do it; nothing has changed.
    pub async fn set_mirror(&self, asked: pb::Mirror) -> Result<(), tonic::Status> {
        let current = self.current().ok_or_else(none_there)?;
        let session = current.session.as_ref().map_err(tonic::Status::unavailable)?;
        let _one_at_a_time = current.moving.lock().await;
        let (entries, before) = {
            let mirror = &mut locked(&current.mirror);
            if let Some(name) = mirror.unknown(&asked) {
                return Err(tonic::Status::not_found(format!(
                    "there is no client {:?}: name one with rules, or one that has had a frame (linkctl \
                     clients list)",
                    crate::refusal::clip(name)
                )));
            }
            current.tells_clients_at_box(&asked, mirror.have_matches)?;
            let before = std::mem::replace(&mut mirror.asked, asked);
            (mirror.entries(), before)
        };
        let set = session.set_mirrors(entries).await;
        if set.is_err() {
            locked(&current.mirror).asked = before;
        }
        set.map_err(|error| status_of(&error))
    }
}

impl Current {
    /// Refuses clients at the box if the switch has no rules of clients.
    fn tells_clients_at_box(
        &self,
        asked: &pb::Mirror,
        have_matches: bool,
    ) -> Result<(), tonic::Status> {
        if asked.clients.is_empty() || asked.all || asked.at() == pb::MirrorPoint::Hosts {
            return Ok(());
        }
        let why = match (self.declared.classifies, have_matches) {
            (false, _) => {
                "\"classification\" is not among the `stages` of [switch] in the box file"
            }
            (true, true) => "clients have matches, which the switch's tables cannot express",
            (true, false) => return Ok(()),
        };
        Err(tonic::Status::failed_precondition(format!(
            "the box tells the clients of frames on their way to it, and not the switch, since {why}: copy \
             on the way to hosts, or the frames of all clients"
        )))
    }

    /// Gives the switch the current numbers of the clients whose frames it copies. After an error the next
    /// look repeats it.
    pub(super) async fn renumber_copies(&self, session: &Switch) {
        let _one_at_a_time = self.moving.lock().await;
        let due = locked(&self.mirror).entries();
        let stand: BTreeSet<_> = session.status().mirrors.into_iter().collect();
        if stand != due
            && let Err(error) = session.set_mirrors(due).await
        {
            tracing::warn!(%error, "the copies of the switch");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu::units::Direction;

    fn asked(clients: &[&str], at: pb::MirrorPoint) -> pb::Mirror {
        let clients = clients.iter().map(|&name| name.into()).collect();
        pb::Mirror { clients, at: at as i32, ..Default::default() }
    }

    #[test]
    fn copies_follow_the_numbers_of_their_clients() {
        let rule = |name: &str| pb::Client { name: name.into(), ..Default::default() };
        let stats = |number, other_numbers| pb::Stats {
            clients: vec![pb::ClientStats {
                client: "alice".into(),
                number,
                other_numbers,
                ..Default::default()
            }],
            ..Default::default()
        };
        let said = pb::Clients { clients: vec![rule("alice"), rule("bob")], ..Default::default() };
        let mut mirror = Mirrored {
            asked: asked(&["alice", "bob"], pb::MirrorPoint::Hosts),
            ..Mirrored::default()
        };
        mirror.meet(&said, &stats(3, vec![]));
        assert_eq!(mirror.unknown(&mirror.asked), None);
        assert_eq!(
            mirror.unknown(&asked(&["alice", "carol"], pb::MirrorPoint::Hosts)).unwrap(),
            "carol"
        );
        let of = |number| Direction::BOTH.map(|way| (Some(number), way, Point::Hosts));
        assert_eq!(mirror.entries(), of(3).into());
        // At another box; the first one still has frames.
        mirror.meet(&said, &stats(2_051, vec![3]));
        assert_eq!(mirror.entries(), of(3).into_iter().chain(of(2_051)).collect());
        mirror.forget_numbers();
        assert_eq!(mirror.entries(), BTreeSet::new());
        mirror.asked = pb::Mirror { all: true, direction: 1, ..Default::default() };
        let all = Point::BOTH.map(|at| (None, Direction::Forward, at));
        assert_eq!(mirror.entries(), all.into());
    }
}
