// SPDX-License-Identifier: Apache-2.0
//! The slots of named clients.
//!
//! A named client keeps its slot and its accounts while the dataplane runs, also when later plans
//! do not name it. The slots of all names so far are reserved, so that automatic clients cannot
//! take them. A change that needs more slots than there are is refused.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use emu::client::ClientName;
use emu::plan::Plan;
use profile::Violations;
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use thiserror::Error;

/// Why clients cannot be as a plan says.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ClientsError {
    #[error(
        "beams and a limit of automatic clients need all clients on one of the {workers} workers, \
         and the others hold {held} packets, which later ones would overtake: try again when the \
         link is idle, or use another link (`linkctl link add`), which is on one worker"
    )]
    Held { workers: usize, held: u64 },
    #[error(
        "no room for {names} named clients (those that were named before count) beside \
         {automatic} that were made for addresses: --max-clients is {max}; start \
         linkd-dataplane anew with more, or name fewer"
    )]
    Room { names: usize, automatic: usize, max: u32 },
}

/// All names of clients in plans so far.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeSet<String>);

impl Names {
    /// Whether a plan names a client that is not known.
    pub fn are_new(&self, plan: &pb::Plan) -> bool {
        names(plan).any(|name| !self.0.contains(name))
    }

    /// Whether a client has been named so.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Reserves slots for all names so far, and for those of a pending plan.
    ///
    /// # Errors
    /// If there are too few.
    pub fn reserve(
        &self,
        plan: &pb::Plan,
        compiled: &mut Plan,
        automatic: usize,
        max: u32,
    ) -> Result<(), ClientsError> {
        let names = self.0.len() + names(plan).filter(|name| !self.0.contains(*name)).count();
        if names + automatic > max as usize && self.are_new(plan) {
            return Err(ClientsError::Room { names, automatic, max });
        }
        if names > 0 {
            Arc::make_mut(&mut compiled.rules).reserved = u32::try_from(names).unwrap_or(u32::MAX);
        }
        Ok(())
    }

    /// Names in a plan that are not known.
    pub fn new_in(&self, plan: &pb::Plan) -> Vec<String> {
        names(plan).filter(|name| !self.0.contains(*name)).map(str::to_owned).collect()
    }

    /// Adds names.
    pub fn learn(&mut self, names: impl IntoIterator<Item = String>) {
        self.0.extend(names);
    }
}

/// Sets the names of the port pairs for matches by pair.
///
/// # Errors
/// A match with a pair that does not exist.
pub(crate) fn set_pairs(
    plan: &pb::Plan,
    compiled: &mut Plan,
    pairs: &[ClientName],
) -> Result<(), Violations> {
    if compiled.rules.is_empty() {
        return Ok(());
    }
    Arc::make_mut(&mut compiled.rules).set_pairs(pairs).map_err(|unknown| {
        let name = unknown.name.to_string();
        let clients = plan.clients.iter().flat_map(|clients| &clients.clients).enumerate();
        let place = clients.into_iter().find_map(|(client, of)| {
            let place = of.matches.iter().position(|rule| rule.port_pair == name)?;
            Some(format!("client[{client}].match[{place}].port_pair"))
        });
        let mut found = Violations::default();
        found.push(place.unwrap_or_default(), unknown.to_string());
        found
    })
}

fn names(plan: &pb::Plan) -> impl Iterator<Item = &str> {
    plan.clients.iter().flat_map(|c| &c.clients).map(|client| client.name.as_str())
}

/// Number of automatic clients.
pub(crate) fn automatic(stats: &model::Stats) -> usize {
    stats.clients.iter().filter(|c| c.client.parse::<IpAddr>().is_ok()).count()
}
