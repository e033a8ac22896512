// SPDX-License-Identifier: Apache-2.0
//! The links that scenarios change beside their own.

use std::collections::BTreeMap;

use crate::dataplane::{Dataplane, LinksError};
use crate::links::Links;
use owner::{Link, MOST_LINKS};
use tonic::Status;

impl Links {
    /// The other links that a scenario on `own` changes, by name.
    ///
    /// # Errors
    /// If one does not exist, or a running scenario changes one of them or `own`.
    pub async fn for_scenario(
        &self,
        own: &Dataplane,
        names: &[String],
    ) -> Result<BTreeMap<String, Dataplane>, Status> {
        if names.len() >= MOST_LINKS {
            return Err(Status::invalid_argument(format!(
                "links: {} are more than {}: change fewer",
                names.len(),
                MOST_LINKS - 1
            )));
        }
        let mut named = BTreeMap::new();
        for name in names {
            let entry = self.get(name)?;
            let name = entry.link.name().to_owned();
            if entry.link.number() == own.number() {
                return Err(Status::invalid_argument(format!(
                    "links: `{name}` is the scenario's own link: write its change outside of `links`"
                )));
            }
            if entry.scenarios.status().state.is_some_and(|state| state.runs()) {
                return Err(LinksError::Runs(name).into());
            }
            self.check_free(&name, Some(own)).await?;
            named.insert(name, entry.link);
        }
        self.check_free(own.name(), Some(own)).await?;
        Ok(named)
    }

    /// Fails if a running scenario of a link other than `own` changes the link `name`.
    ///
    /// # Errors
    /// [`LinksError::Changed`].
    pub(crate) async fn check_free(
        &self,
        name: &str,
        own: Option<&Dataplane>,
    ) -> Result<(), LinksError> {
        for entry in self.all() {
            let same = own.is_some_and(|own| own.number() == entry.link.number());
            if !same && entry.scenarios.changes_link(name).await {
                let by = entry.link.name().to_owned();
                return Err(LinksError::Changed { name: name.to_owned(), by });
            }
        }
        Ok(())
    }
}
