// SPDX-License-Identifier: Apache-2.0
//! The caller of a request, and its permissions.

use proto::LEASE_METADATA;
use std::fmt;
use tonic::{Code, Request};

pub use identity::Role;

/// From where callers at the unix socket are.
pub(crate) const UNIX: &str = "unix";

#[derive(Clone, PartialEq, Eq)]
pub struct Caller {
    /// Name of the user or of the certificate.
    pub name: String,
    pub role: Role,
    /// From where: "unix", an address with its port, or "web" and an address with its port.
    pub from: String,
    /// Number of the browser session.
    pub session: Option<u64>,
    /// Tokens of leases that came with the request, separated by commas, as metadata
    /// [`proto::LEASE_METADATA`].
    pub lease: Option<String>,
    /// The number of the call in the audit log, if it has one.
    pub call: Option<u64>,
}

/// Why a peer is no caller.
#[derive(Debug)]
pub(crate) struct Unknown {
    /// The name that its certificate gives, as far as it does.
    pub name: String,
    /// From where.
    pub from: String,
    pub code: Code,
    /// In words.
    pub why: String,
}

impl fmt::Debug for Caller {
    /// Without the token, which is for its holder alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, role, from, session: _, lease: _, call: _ } = self;
        let mut caller = f.debug_struct("Caller");
        caller.field("name", name).field("role", role).field("from", from).finish_non_exhaustive()
    }
}

impl Caller {
    /// The caller of a request, as authorisation has identified it.
    pub fn of<T>(request: &Request<T>) -> Self {
        let lease = request.metadata().get(LEASE_METADATA).and_then(|token| token.to_str().ok());
        // An empty variable is no lease.
        let lease = lease.filter(|token| !token.is_empty()).map(str::to_owned);
        match request.extensions().get::<Self>() {
            Some(known) => Self { lease, ..known.clone() },
            None => {
                let unknown = || "unknown".to_owned();
                Self {
                    name: unknown(),
                    from: unknown(),
                    role: Role::Viewer,
                    lease,
                    ..Self::linkd()
                }
            }
        }
    }

    pub(crate) fn tokens(&self) -> impl Iterator<Item = &str> {
        self.lease.iter().flat_map(|tokens| tokens.split(',')).map(str::trim)
    }

    pub(crate) fn has_token(&self, token: &str) -> bool {
        self.tokens().any(|given| given == token)
    }

    /// Whether they are at the unix socket.
    pub(crate) fn is_local(&self) -> bool {
        self.from == UNIX
    }

    pub(crate) fn linkd() -> Self {
        Self {
            name: String::new(),
            role: Role::Admin,
            from: "linkd".into(),
            session: None,
            lease: None,
            call: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_lease(token: &str) -> Request<()> {
        let mut request = Request::new(());
        request.metadata_mut().insert(LEASE_METADATA, token.parse().unwrap());
        request.extensions_mut().insert(Caller { from: UNIX.into(), ..Caller::linkd() });
        request
    }

    #[test]
    fn caller_has_the_token_of_its_request_unless_it_is_empty() {
        assert_eq!(Caller::of(&with_lease("secret")).lease.as_deref(), Some("secret"));
        assert_eq!(Caller::of(&with_lease("")).lease, None);
    }

    #[test]
    fn request_without_a_caller_is_an_unknown_viewers() {
        let caller = Caller::of(&Request::new(()));
        assert_eq!(
            (&*caller.name, caller.role, &*caller.from),
            ("unknown", Role::Viewer, "unknown")
        );
        assert!(!caller.is_local());
        assert!(Caller::of(&with_lease("secret")).is_local());
    }

    #[test]
    fn debug_output_shows_the_name_but_not_the_token() {
        let caller = Caller { name: "job 7".into(), ..Caller::of(&with_lease("secret")) };
        let shown = format!("{caller:?}");
        assert!(shown.contains("job 7") && !shown.contains("secret"), "{shown}");
    }
}
