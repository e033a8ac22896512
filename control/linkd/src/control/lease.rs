// SPDX-License-Identifier: Apache-2.0
//! The lease of a link, its end, and the scenario that runs under it.

use super::update::{Update, make};
use super::{Changing, Control, Visitor, is_away, unwritten};
use crate::caller::{Caller, Role};
use crate::leases::{Held, Leases, checked, from_now, new_token, taken};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tonic::{Code, Status};

/// Between one look at the clocks and the next, while a lease runs.
const LOOK: Duration = Duration::from_secs(1);
/// For a renewal that waits for a change of the link to end.
const NEXT: Duration = Duration::from_millis(10);
/// Before a link that cannot return is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// A renewal that has arrived, until it is dropped.
struct Renewing<'a> {
    control: &'a Control,
    token: &'a str,
}

impl<'a> Renewing<'a> {
    fn begin(control: &'a Control, token: &'a str) -> Self {
        control.renewing().push(token.to_owned());
        Self { control, token }
    }
}

impl Drop for Renewing<'_> {
    fn drop(&mut self) {
        let mut renewing = self.control.renewing();
        if let Some(place) = renewing.iter().position(|token| token == self.token) {
            renewing.swap_remove(place);
        }
    }
}

impl Control {
    /// Ends the lease when its time is over, and corrects its wall-clock end after that clock was set.
    pub async fn watch_lease(&self) {
        let mut changes = self.lease_changes();
        loop {
            changes.mark_unchanged();
            let mut changing = self.changing().await;
            let now = self.now();
            if changing.leases.correct(now) {
                self.keep_lease(&changing.leases);
            }
            match changing.leases.left(now) {
                None => {
                    drop(changing);
                    let _ = changes.changed().await;
                }
                // It has arrived, and is next.
                Some(Duration::ZERO) if self.is_renewing(&changing.leases) => {
                    drop(changing);
                    tokio::time::sleep(NEXT).await;
                }
                Some(Duration::ZERO) => {
                    let kind = pb::EventKind::LeaseExpired;
                    if let Err(error) = self.end_lease(&mut changing, kind, "").await {
                        drop(changing);
                        let why = error.message();
                        tracing::warn!(why, "a lease is over and the link cannot return yet");
                        tokio::time::sleep(RETRY).await;
                    }
                }
                Some(left) => {
                    drop(changing);
                    // The runtime's clock stops while the machine is suspended.
                    let _ = tokio::time::timeout(left.min(LOOK), changes.changed()).await;
                }
            }
        }
    }

    /// Ends the active lease and applies its return profile, if it names one. Returns the generation
    /// of that change. The lease stays if the dataplane does not answer, and a lease that is released
    /// also if its end cannot be recorded: it would come back with a restart of linkd.
    pub async fn end_lease(
        &self,
        changing: &mut Changing,
        kind: pb::EventKind,
        who: &str,
    ) -> Result<Option<u64>, Status> {
        let Some(held) = &changing.leases.0 else { return Ok(None) };
        let holder = held.lease.holder.clone();
        let name = held.lease.return_profile.clone();
        // Otherwise a step could follow the return of the link.
        self.settle_scenario(&Leases(None)).await;
        let (mut generation, mut message) = (None, "the link stays as it is".to_owned());
        if !name.is_empty() {
            let returned = match self.named(&name).await {
                Ok(profile) => {
                    let profile = Some(profile.into_proto());
                    let change = dp::Change { profile, restart: true, ..Default::default() };
                    match Update::new(self.clone(), "the end of a lease", change) {
                        Ok(update) => {
                            let (linkd, held) = (Caller::linkd(), &mut [&mut *changing]);
                            Box::pin(make(&linkd, None, &[update], held)).await
                        }
                        Err(status) => Err(status),
                    }
                }
                Err(status) => Err(status),
            };
            match &returned {
                Err(status) if is_away(status) => {
                    return Err(status.clone());
                }
                Err(status) => {
                    message = format!("the link cannot return to {name}: {}", status.message());
                }
                Ok(answer) => {
                    let applied = answer.links.first().and_then(|link| link.applied);
                    generation = applied.map(|applied| applied.generation);
                    message = format!("the link returns to {name}");
                }
            }
        }
        let ended = changing.leases.0.take();
        self.keep_lease(&changing.leases);
        if let Err(error) = self.0.saver.end_lease().await {
            tracing::error!(%error, "the end of a lease is not on the disk");
            if kind == pb::EventKind::LeaseReleased {
                changing.leases.0 = ended;
                self.keep_lease(&changing.leases);
                return Err(unwritten(error));
            }
        }
        self.tell(kind, who, &holder, message);
        Ok(generation)
    }

    /// The active lease.
    pub async fn lease(&self) -> Option<pb::Lease> {
        self.changing().await.leases.0.as_ref().map(|held| held.lease.clone())
    }

    /// Saves the lease, and waits until it is on the disk.
    pub async fn save_lease(&self, leases: &Leases) -> Result<(), Status> {
        self.keep_lease(leases);
        self.0.saver.save().await.map_err(unwritten)
    }

    /// Saves the lease soon, and wakes who waits for its end.
    pub fn keep_lease(&self, leases: &Leases) {
        self.0.saver.update(|state| leases.to_state(state));
        self.0.lease_changed.send_replace(());
    }

    /// Reports when the lease is another one, or has another end.
    pub fn lease_changes(&self) -> watch::Receiver<()> {
        self.0.lease_changed.subscribe()
    }

    /// Keeps the scenario of another link that changes this one.
    pub fn visited_by(&self, visitor: Visitor) {
        *self.0.visitor.lock().unwrap_or_else(PoisonError::into_inner) = Some(visitor);
    }

    /// Stops the scenario of another link if its caller may not change this link any longer.
    async fn settle_visitor(&self, leases: &Leases) {
        let visitor = self.0.visitor.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(Visitor { dataplane, run, token }) = visitor else { return };
        let lease = Some(token).filter(|token| !token.is_empty());
        let Err(lost) = leases.check(&Caller { lease, ..Caller::linkd() }) else { return };
        let state = match dataplane.scenario("").await {
            Ok(found) => found.status.and_then(|status| status.state).unwrap_or_default(),
            Err(status) => {
                tracing::warn!(
                    why = status.message(),
                    "cannot ask for the scenario of another link"
                );
                return;
            }
        };
        if [0, state.run].contains(&run) && state.runs() {
            let reason = format!("it lost the link `{}`: {}", self.name(), lost.message());
            if let Err(status) = dataplane.stop_scenario(reason).await
                && status.code() != Code::FailedPrecondition
            {
                tracing::warn!(why = status.message(), "cannot stop the scenario yet");
                return;
            }
        }
        *self.0.visitor.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Stops the link's own scenario, and one of another link that changes this one, if the caller may
    /// not change the link any longer.
    pub async fn settle_scenario(&self, leases: &Leases) {
        self.settle_visitor(leases).await;
        let Some(run) = self.0.saver.state().scenario else { return };
        let lease = Some(run.token).filter(|token| !token.is_empty());
        let Err(lost) = leases.check(&Caller { lease, ..Caller::linkd() }) else { return };
        let reason = format!("it lost the link: {}", lost.message());
        match self.0.dataplane.stop_scenario(reason).await {
            Ok(_) => self.0.saver.update(|state| state.scenario = None),
            // It has ended.
            Err(status) if status.code() == Code::FailedPrecondition => {}
            Err(status) => tracing::warn!(why = status.message(), "cannot stop the scenario yet"),
        }
    }

    /// Reports that the scenario ended with its dataplane.
    pub(super) fn end_scenario(&self, message: &str) {
        let Some(run) = self.0.saver.state().scenario else { return };
        self.0.saver.update(|state| state.scenario = None);
        self.publish(pb::Event {
            kind: pb::EventKind::ScenarioStopped as i32,
            who: run.who,
            subject: run.name,
            message: message.to_owned(),
            scenario_run: run.run,
            ..Default::default()
        });
    }

    pub async fn acquire_lease(
        &self,
        caller: &Caller,
        request: pb::AcquireLeaseRequest,
    ) -> Result<pb::AcquireLeaseResponse, Status> {
        checked(&request)?;
        let pb::AcquireLeaseRequest {
            holder,
            purpose,
            ttl_ns,
            return_profile,
            steal,
            request_id,
            ..
        } = request;
        if !return_profile.is_empty() {
            self.named(&return_profile).await?;
        }
        if steal && caller.role < Role::Admin {
            return Err(Status::permission_denied(format!(
                "only an admin takes a lease from its holder, and {} is none: wait, or ask one",
                caller.name
            )));
        }
        let name = (!request_id.is_empty()).then(|| (caller.name.clone(), request_id));
        let mut changing = self.changing().await;
        let stolen = match &changing.leases.0 {
            Some(held) if name.is_some() && held.request == name => {
                let (lease, token) = (Some(held.lease.clone()), held.token.clone());
                return Ok(pb::AcquireLeaseResponse { lease, token });
            }
            Some(held) if !steal => return Err(Status::failed_precondition(taken(&held.lease))),
            held => held.as_ref().map(|held| held.lease.holder.clone()),
        };
        let token = new_token()?;
        let now = self.now();
        let (ends, expires) = from_now(ttl_ns, now);
        let lease = pb::Lease {
            holder,
            purpose,
            who: caller.name.clone(),
            acquired: Some(now.wall.into()),
            expires: Some(expires),
            ttl_ns,
            return_profile,
        };
        let (own, stalled) = (lease.clone(), now.stalled);
        let held = Held { lease: own, token: token.clone(), request: name, ends, stalled };
        let before = changing.leases.0.replace(held);
        if let Err(status) = self.save_lease(&changing.leases).await {
            // Without an answer, no caller has the token.
            changing.leases.0 = before;
            self.keep_lease(&changing.leases);
            return Err(status);
        }
        let message = format!("for {}", profile::format_duration(ttl_ns));
        let (kind, message) = match stolen {
            None => (pb::EventKind::LeaseAcquired, message),
            Some(from) => (pb::EventKind::LeaseStolen, format!("{message}, from {from}")),
        };
        self.tell(kind, &caller.name, &lease.holder, message);
        self.settle_scenario(&changing.leases).await;
        Ok(pb::AcquireLeaseResponse { lease: Some(lease), token })
    }

    fn renewing(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.renewing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a renewal of the lease waits, because a change of the link takes long.
    fn is_renewing(&self, leases: &Leases) -> bool {
        leases.0.as_ref().is_some_and(|held| self.renewing().contains(&held.token))
    }

    pub async fn renew_lease(&self, token: &str) -> Result<pb::Lease, Status> {
        let _renewing = Renewing::begin(self, token);
        let mut changing = self.changing().await;
        let held = changing.leases.with(token)?;
        let now = self.now();
        let (ends, expires) = from_now(held.lease.ttl_ns, now);
        (held.ends, held.stalled) = (ends, now.stalled);
        held.lease.expires = Some(expires);
        let lease = held.lease.clone();
        self.keep_lease(&changing.leases);
        Ok(lease)
    }

    pub async fn release_lease(
        &self,
        caller: &Caller,
        token: &str,
    ) -> Result<pb::ReleaseLeaseResponse, Status> {
        let mut changing = self.changing().await;
        changing.leases.with(token)?;
        let generation =
            self.end_lease(&mut changing, pb::EventKind::LeaseReleased, &caller.name).await?;
        Ok(pb::ReleaseLeaseResponse { generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Audit;
    use crate::dataplane::Dataplane;
    use crate::events::Events;
    use crate::stalls::Clocks;
    use crate::state::Saver;
    use crate::switch::Switches;
    use profile::Catalog;
    use proto::linkd::v1::State;
    use std::collections::BTreeMap;
    use tokio::task::yield_now;

    fn control() -> Control {
        let events = Events::new();
        let dataplane = Dataplane::new("none".into(), Switches::new(events.clone()));
        let (saver, audit) = (Saver::new(None, State::default()), Audit::default());
        let (catalog, unread) = (Catalog::built_in(), BTreeMap::new());
        Control::new(catalog, unread, dataplane, events, saver, audit, Clocks::default())
    }

    fn minute() -> pb::AcquireLeaseRequest {
        let (holder, ttl_ns) = ("ci 7".into(), 60_000_000_000);
        pb::AcquireLeaseRequest { holder, ttl_ns, ..Default::default() }
    }

    #[tokio::test]
    async fn acquisition_that_is_sent_again_gives_the_same_lease_to_the_same_caller() {
        let (control, linkd) = (control(), Caller::linkd());
        let unknown = pb::AcquireLeaseRequest { return_profile: "none".into(), ..minute() };
        let status = control.acquire_lease(&linkd, unknown).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound);
        let named = pb::AcquireLeaseRequest { request_id: "job 7".into(), ..minute() };
        let first = control.acquire_lease(&linkd, named.clone()).await.unwrap();
        assert_eq!(control.acquire_lease(&linkd, named.clone()).await.unwrap(), first);
        let other = Caller { name: "another".into(), ..Caller::linkd() };
        for (caller, request) in [(&other, named), (&linkd, minute())] {
            let status = control.acquire_lease(caller, request).await.unwrap_err();
            assert!(status.message().contains("leased to ci 7"), "{}", status.message());
        }
    }

    #[tokio::test]
    async fn lease_does_not_end_while_its_renewal_waits_for_a_change() {
        let control = control();
        let request = minute();
        let token = control.acquire_lease(&Caller::linkd(), request).await.unwrap().token;
        let mut changing = control.changing().await;
        changing.leases.0.as_mut().unwrap().ends = Duration::ZERO;
        let watched = control.clone();
        let watching = tokio::spawn(async move { watched.watch_lease().await });
        yield_now().await;
        let renewed = control.clone();
        let renewing = tokio::spawn(async move { renewed.renew_lease(&token).await });
        yield_now().await;
        drop(changing);
        renewing.await.unwrap().unwrap();
        assert!(control.changing().await.leases.left(control.now()) > Some(Duration::ZERO));
        assert!(control.renewing().is_empty());
        watching.abort();
    }
}
