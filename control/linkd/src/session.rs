// SPDX-License-Identifier: Apache-2.0
//! A session of a browser. It has the name and the role of the caller who asked for its link, or a lower
//! role, and ends after a limited time, at logout, when the certificate of that caller ends, or with
//! linkd.

use crate::caller::{Caller, Role, Unknown};
use crate::tls::{self, Keys};
use rustls::pki_types::CertificateDer;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Code;

/// Between one check of the certificate behind a session and the next: the wall clock can be set.
const CHECK: Duration = Duration::from_secs(60);

/// A session of a browser.
#[derive(Debug)]
pub(crate) struct Session {
    number: u64,
    pub name: String,
    role: Role,
    /// Certificate of the caller who asked for the link, and those that lead to its authority.
    chain: Vec<CertificateDer<'static>>,
    pub since: Instant,
    lifetime: Duration,
    expires: SystemTime,
    /// Why it has ended, as a sentence.
    ended: watch::Sender<Option<String>>,
}

impl Session {
    /// A session that begins now.
    pub fn new(
        number: u64,
        name: String,
        role: Role,
        chain: Vec<CertificateDer<'static>>,
        lifetime: Duration,
    ) -> Self {
        let (since, expires) = (Instant::now(), SystemTime::now() + lifetime);
        let ended = watch::Sender::new(None);
        Self { number, name, role, chain, since, lifetime, expires, ended }
    }

    /// The caller of its requests.
    pub fn caller(&self, from: String) -> Result<Caller, Unknown> {
        let (name, role) = (self.name.clone(), self.role);
        match self.ended.borrow().clone() {
            Some(why) => Err(Unknown { name, from, code: Code::Unauthenticated, why }),
            None => Ok(Caller { name, role, from, session: Some(self.number), ..Caller::linkd() }),
        }
    }

    pub fn ended(&self) -> watch::Receiver<Option<String>> {
        self.ended.subscribe()
    }

    pub fn expires(&self) -> SystemTime {
        self.expires
    }

    pub fn end(&self, why: impl Into<String>) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            ended.get_or_insert_with(|| why.into());
            first
        });
    }

    /// Waits for its end.
    pub async fn watch(&self, keys: Option<&Keys>) {
        let mut ended = self.ended();
        let mut reloads = keys.map(Keys::reloads);
        let end = self.since + self.lifetime;
        loop {
            if let (Some(keys), [_, ..]) = (keys, &*self.chain)
                && let Err(error) = keys.verify(&self.chain, SystemTime::now())
            {
                let why = tls::reason(&error);
                self.end(format!(
                    "the certificate behind your session does not hold any more: {why}"
                ));
                return;
            }
            let reloaded = async {
                if let Some(reloads) = &mut reloads
                    && reloads.changed().await.is_ok()
                {
                    return;
                }
                std::future::pending().await
            };
            tokio::select! {
                _ = ended.wait_for(Option::is_some) => return,
                () = sleep_until(end) => {
                    self.end("your session has expired: log in again (linkctl web)");
                    return;
                }
                () = sleep(CHECK) => {}
                () = reloaded => {}
            }
        }
    }
}
