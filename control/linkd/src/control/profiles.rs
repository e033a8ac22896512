// SPDX-License-Identifier: Apache-2.0
//! The catalog of profiles.

use super::{Control, unwritten};
use crate::caller::Caller;
use crate::{given, refusal, state};
use profile::{Catalog, Profile, Violations};
use proto::linkemu::v1 as pb;
use std::sync::{PoisonError, RwLockReadGuard};
use tonic::Status;

impl Control {
    /// The profiles that can be set by name, without those that are not read yet.
    pub fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        self.0.catalog.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the stored profiles that are not in the catalog yet.
    pub async fn read_all(&self) {
        loop {
            let Some(name) = self.0.unread.lock().await.keys().next().cloned() else { return };
            self.read(&name).await;
        }
    }

    /// Reads a stored profile if it is not in the catalog yet.
    async fn read(&self, name: &str) {
        // One reader at a time, so that no file is read twice.
        let mut unread = self.0.unread.lock().await;
        let Some(path) = unread.get(name).cloned() else { return };
        let this = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let profile = state::read_profile(&path)?;
            let mut catalog = this.0.catalog.write().unwrap_or_else(PoisonError::into_inner);
            let put = catalog.put(profile, false);
            put.map(drop).map_err(|error| format!("a stored profile is left out: {error}"))
        });
        match reading.await {
            Ok(Ok(())) => {}
            Ok(Err(damage)) => self.tell(pb::EventKind::StateDamaged, "", name, damage),
            Err(error) => tracing::error!(%error, name, "a stored profile cannot be read"),
        }
        unread.remove(name);
    }

    /// A profile by its name.
    pub async fn named(&self, name: &str) -> Result<Profile, Status> {
        self.read(name).await;
        let catalog = self.catalog();
        let found = catalog.get(name).cloned();
        found.ok_or_else(|| refusal::no_profile(name, catalog.nearest(name)))
    }

    pub(super) async fn requested(
        &self,
        profile: Option<pb::profile_update::Profile>,
    ) -> Result<pb::Profile, Status> {
        use pb::profile_update::Profile as Requested;
        match profile {
            None => {
                Err(refusal::field("profile", "missing: give a name, a whole profile, or `toml`"))
            }
            Some(Requested::Name(name)) => Ok(self.named(&name).await?.into_proto()),
            Some(Requested::Inline(message)) => self.unnamed(message).await,
            Some(Requested::Toml(text)) => {
                let read = given::text(text).await?;
                let profile = read.map_err(|found| refusal::invalid("the profile", &found))?;
                self.unnamed(profile.into_proto()).await
            }
        }
    }

    /// A profile of the request. Another profile under a known name would be taken for the known
    /// one.
    async fn unnamed(&self, profile: pb::Profile) -> Result<pb::Profile, Status> {
        let name = &profile.name;
        self.read(name).await;
        match self.catalog().get(name).map(Profile::as_proto) {
            // `linkctl show` omits the provenance, which does not affect the link.
            Some(known) if pb::Profile { provenance: None, ..known.clone() } == profile => {
                Ok(known.clone())
            }
            Some(known) if *known != profile => {
                let mut found = Violations::default();
                found.push(
                    "name",
                    format!(
                        "{name:?} is the name of another profile that linkd has: give this one a \
                         name of its own"
                    ),
                );
                Err(refusal::invalid("the profile", &found))
            }
            _ => Ok(profile),
        }
    }

    /// Stores a profile; true if another one had its name.
    pub async fn put_profile(
        &self,
        caller: &Caller,
        profile: Profile,
        replace: bool,
    ) -> Result<bool, Status> {
        self.read_all().await;
        let changing = self.changing().await;
        let mut catalog = self.catalog().clone();
        let replaced = catalog.put(profile.clone(), replace).map_err(refusal::not_stored)?;
        if replaced {
            changing.leases.check_profile(caller, profile.name())?;
        }
        let stored = profile.clone();
        let put = self.0.saver.on_disk(move |directory| directory.put_profile(&stored));
        put.await.map_err(unwritten)?;
        *self.0.catalog.write().unwrap_or_else(PoisonError::into_inner) = catalog;
        let message = if replaced { "in place of another one" } else { "stored" };
        self.tell(pb::EventKind::ProfileStored, &caller.name, profile.name(), message);
        Ok(replaced)
    }

    pub async fn delete_profile(&self, caller: &Caller, name: &str) -> Result<(), Status> {
        self.read_all().await;
        let changing = self.changing().await;
        self.named(name).await?;
        changing.leases.check_profile(caller, name)?;
        let mut catalog = self.catalog().clone();
        catalog.remove(name).map_err(refusal::not_stored)?;
        let deleted = name.to_owned();
        let delete = self.0.saver.on_disk(move |directory| directory.delete_profile(&deleted));
        delete.await.map_err(unwritten)?;
        *self.0.catalog.write().unwrap_or_else(PoisonError::into_inner) = catalog;
        self.tell(pb::EventKind::ProfileDeleted, &caller.name, name, "deleted");
        Ok(())
    }
}
