// SPDX-License-Identifier: Apache-2.0
//! Judges a run from one reading of the statistics, and keeps the last verdicts.

use crate::caller::Caller;
use proto::linkemu::v1 as pb;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tonic::Status;

/// Certificates that are kept of a link, of 3 kB each.
const KEPT: usize = 100;

/// The last certificates of a link, the latest first.
#[derive(Debug, Default)]
pub(crate) struct Listed(Mutex<VecDeque<pb::ListedCertificate>>);

impl Listed {
    /// Evaluates the run of a snapshot, and keeps the certificate instead of an earlier one of the
    /// same run with the same limits: `linkctl top` reads one every second.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if the dataplane does not say since when its figures are.
    pub fn evaluate(
        &self,
        stats: &pb::Stats,
        limits: &pb::GetCertificateRequest,
        caller: &Caller,
        marked: bool,
    ) -> Result<pb::Certificate, Status> {
        let since = stats.span.as_ref().and_then(|span| span.since_utc);
        let until = stats.utc;
        let certificate = certificate::judge(stats, limits)
            .map_err(|error| Status::failed_precondition(error.to_string()))?;
        let kept = pb::Certificate { workers: Vec::new(), ..certificate.clone() };
        let (who, kept) = (caller.name.clone(), Some(kept));
        self.keep(pb::ListedCertificate { since, until, who, marked, certificate: kept });
        Ok(certificate)
    }

    fn keep(&self, next: pb::ListedCertificate) {
        let mut all = self.all();
        let is_next = |it: &pb::ListedCertificate| {
            !it.marked && it.since == next.since && limits_of(it) == limits_of(&next)
        };
        all.retain(|it| !is_next(it));
        all.truncate(KEPT - 1);
        all.push_front(next);
    }

    pub fn all(&self) -> MutexGuard<'_, VecDeque<pb::ListedCertificate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn limits_of(listed: &pb::ListedCertificate) -> Vec<(&str, u64)> {
    let criteria = listed.certificate.iter().flat_map(|it| &it.criteria);
    criteria.map(|criterion| (&*criterion.name, criterion.limit)).collect()
}
