// SPDX-License-Identifier: Apache-2.0
//! Browser sessions, and the one-time links that start them.
//!
//! A link has a random token, a session a random id, of 256 bits each. Only their SHA-256 is kept, so
//! that a copy of the memory opens no session, and a look-up compares hashes of secrets rather than
//! secrets.

use crate::caller::{Caller, Role};
use crate::connection::Peer;
use crate::limits::Limits;
use crate::session::Session;
use crate::tls::Keys;
use data_encoding::HEXLOWER;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use tonic::Status;

/// Unused links of one caller; a further one replaces the oldest.
const LINKS_EACH: usize = 4;
/// Sessions of one caller; a further one ends the oldest.
const SESSIONS_EACH: usize = 8;
/// Links, and sessions, of all callers.
const ALL: usize = 128;

/// Hash of a token or an id.
type Key = [u8; 32];

/// A link that has not been used.
#[derive(Debug)]
struct Link {
    name: String,
    role: Role,
    chain: Vec<CertificateDer<'static>>,
    since: Instant,
}

/// A link that was created.
pub(super) struct Created {
    pub token: String,
    pub expires: SystemTime,
}

/// All links and sessions; clones share them.
#[derive(Clone, Debug)]
pub(super) struct Sessions {
    table: Arc<Mutex<Table>>,
    keys: Option<Arc<Keys>>,
    /// Lifetime of a link.
    link: Duration,
    /// Lifetime of a session.
    pub lifetime: Duration,
}

#[derive(Debug, Default)]
struct Table {
    links: HashMap<Key, Link>,
    sessions: HashMap<Key, Arc<Session>>,
    /// Number of the last session.
    last: u64,
}

impl Sessions {
    /// Certificates behind sessions are checked by `keys`.
    pub fn new(keys: Option<Arc<Keys>>, limits: &Limits) -> Self {
        let Limits { web_link: link, web_session: lifetime, .. } = *limits;
        Self { table: Arc::default(), keys, link, lifetime }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a link that starts a session of `caller` with `role`.
    pub fn create(&self, caller: &Caller, peer: &Peer, role: Role) -> Result<Created, Status> {
        let now = Instant::now();
        let link =
            Link { name: caller.name.clone(), role, chain: peer.chain().to_vec(), since: now };
        let token = secret()?;
        let links = &mut self.table().links;
        links.retain(|_, link| now.duration_since(link.since) < self.link);
        make_room(links, LINKS_EACH, |link| (link.name == caller.name).then_some(link.since));
        if links.len() >= ALL {
            return Err(full("login links"));
        }
        links.insert(key(&token), link);
        Ok(Created { token, expires: SystemTime::now() + self.link })
    }

    /// Uses a link: its session, and the secret id of it.
    ///
    /// # Errors
    /// UNAUTHENTICATED if there is no such link, RESOURCE_EXHAUSTED.
    pub fn start(&self, token: &str) -> Result<(String, Arc<Session>), Status> {
        let now = Instant::now();
        let id = secret()?;
        let mut table = self.table();
        let link = table.links.remove(&key(token));
        let link =
            link.filter(|link| now.duration_since(link.since) < self.link).ok_or_else(|| {
                Status::unauthenticated(
                    "the link was used before, or has expired, or linkd has restarted since: print \
                 another one (linkctl web)",
                )
            })?;
        let Link { name, role, chain, .. } = link;
        let ended = make_room(&mut table.sessions, SESSIONS_EACH, |session| {
            (session.name == name).then_some(session.since)
        });
        if let Some(ended) = ended {
            ended.end(format!(
                "you started more than {SESSIONS_EACH} sessions, and this is the oldest"
            ));
        }
        if table.sessions.len() >= ALL {
            return Err(full("sessions"));
        }
        table.last += 1;
        let session = Arc::new(Session::new(table.last, name, role, chain, self.lifetime));
        let key = key(&id);
        table.sessions.insert(key, session.clone());
        drop(table);
        let (this, watched) = (self.clone(), session.clone());
        tokio::spawn(async move {
            watched.watch(this.keys.as_deref()).await;
            this.table().sessions.remove(&key);
        });
        Ok((id, session))
    }

    /// The session with an id, unless it has ended.
    pub fn find(&self, id: &str) -> Option<Arc<Session>> {
        let session = self.table().sessions.get(&key(id)).cloned();
        session.filter(|session| session.ended().borrow().is_none())
    }

    /// Ends a session.
    pub fn end(&self, id: &str, why: &str) -> Option<Arc<Session>> {
        let session = self.table().sessions.remove(&key(id))?;
        session.end(why);
        Some(session)
    }
}

/// Removes the oldest of `limit` entries that `since` gives a time for.
fn make_room<T>(
    entries: &mut HashMap<Key, T>,
    limit: usize,
    since: impl Fn(&T) -> Option<Instant>,
) -> Option<T> {
    let own = || entries.iter().filter_map(|(key, entry)| Some((since(entry)?, *key)));
    let oldest = (own().count() >= limit).then(|| own().min()).flatten();
    oldest.and_then(|(_, key)| entries.remove(&key))
}

fn full(what: &str) -> Status {
    Status::resource_exhausted(format!("there are {ALL} {what}, the most: try again later"))
}

fn key(secret: &str) -> Key {
    Sha256::digest(secret.as_bytes()).into()
}

/// 256 random bits in hexadecimal.
fn secret() -> Result<String, Status> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Status::internal(format!("cannot draw a random token: {error}")))?;
    Ok(HEXLOWER.encode(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn create(sessions: &Sessions, name: &str) -> String {
        let caller = Caller { name: name.into(), ..Caller::linkd() };
        sessions.create(&caller, &Peer::local(name), Role::Viewer).unwrap().token
    }

    fn start(sessions: &Sessions, name: &str) -> (String, Arc<Session>) {
        sessions.start(&create(sessions, name)).unwrap()
    }

    #[tokio::test]
    async fn link_starts_one_session_and_none_after_its_time() {
        let sessions = Sessions::new(None, &Limits::default());
        let token = create(&sessions, "ann");
        assert_eq!(token.len(), 64);
        let (id, session) = sessions.start(&token).unwrap();
        assert_ne!(id, token);
        assert_eq!(sessions.start(&token).unwrap_err().code(), Code::Unauthenticated);
        assert_eq!(session.caller("web".into()).unwrap().role, Role::Viewer);
        assert!(sessions.find(&id).is_some() && sessions.find("").is_none());
        let limits = Limits { web_link: Duration::ZERO, ..Limits::default() };
        let sessions = Sessions::new(None, &limits);
        let late = create(&sessions, "ann");
        assert_eq!(sessions.start(&late).unwrap_err().code(), Code::Unauthenticated);
    }

    #[tokio::test]
    async fn session_ends_after_its_lifetime_and_at_logout() {
        let sessions = Sessions::new(None, &Limits::default());
        let (id, session) = start(&sessions, "ann");
        sessions.end(&id, "you logged out").unwrap();
        assert_eq!(session.caller(String::new()).unwrap_err().why, "you logged out");
        assert!(sessions.find(&id).is_none());
        let limits = Limits { web_session: Duration::from_millis(20), ..Limits::default() };
        let sessions = Sessions::new(None, &limits);
        let (id, session) = start(&sessions, "ann");
        session.ended().wait_for(Option::is_some).await.unwrap();
        assert!(sessions.find(&id).is_none());
        while !sessions.table().sessions.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn links_and_sessions_are_bounded_for_each_caller_and_for_all() {
        let sessions = Sessions::new(None, &Limits::default());
        let links: Vec<_> = (0..=LINKS_EACH).map(|_| create(&sessions, "ann")).collect();
        assert!(sessions.start(&links[0]).is_err());
        let (first, _) = sessions.start(&links[1]).unwrap();
        for _ in 0..SESSIONS_EACH {
            start(&sessions, "ann");
        }
        assert!(sessions.find(&first).is_none());
        for n in 0..ALL - SESSIONS_EACH {
            start(&sessions, &n.to_string());
        }
        let status = sessions.start(&create(&sessions, "bob")).unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
    }
}
