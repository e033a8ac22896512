// SPDX-License-Identifier: Apache-2.0
//! The controller of the dataplane: one caller at a time, while its stream is open.
//!
//! Leases, the audit log and events are in linkd. A second linkd on the same dataplane would bypass
//! those of the first, so its changes are refused while the first one is connected. Each controller
//! has a fencing token: after its stream has ended, its requests are refused, even if it does not
//! know that yet.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use proto::TOKEN_METADATA;
use proto::dataplane::v1 as pb;
use tokio_stream::Stream;
use tonic::{Request, Status};

/// Characters of a controller's name.
const NAME: usize = 128;

/// The controller, if there is one. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Controllers(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The token of the newest controller.
    last: u64,
    /// Token and name of the controller.
    holder: Option<(u64, String)>,
}

/// A controller's stream: yields its token once, then stays open. Dropping it frees the place.
#[derive(Debug)]
pub struct Held {
    controllers: Controllers,
    token: u64,
    told: bool,
}

impl Controllers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the caller of this name the controller.
    ///
    /// # Errors
    /// FAILED_PRECONDITION, naming the other controller, if there is one.
    pub fn take(&self, name: &str) -> Result<Held, Status> {
        let mut state = self.state();
        if let Some((_, holder)) = &state.holder {
            return Err(taken(holder));
        }
        state.last += 1;
        let (token, name) = (state.last, name.chars().take(NAME).collect());
        tracing::info!(name, token, "controls this dataplane");
        state.holder = Some((token, name));
        Ok(Held { controllers: self.clone(), token, told: false })
    }

    /// Whether a request may change something: it carries the controller's token, or no token
    /// while there is no controller.
    ///
    /// # Errors
    /// FAILED_PRECONDITION, with the controller's name.
    pub fn check<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let token = request.metadata().get(TOKEN_METADATA);
        let token =
            token.map(|token| token.to_str().ok().and_then(|token| token.parse::<u64>().ok()));
        match (&self.state().holder, token) {
            (None, None) => Ok(()),
            (Some((holder, _)), Some(Some(token))) if *holder == token => Ok(()),
            (Some((_, name)), _) => Err(taken(name)),
            (None, Some(_)) => Err(Status::failed_precondition(
                "the caller does not control this dataplane, or no more: take control first",
            )),
        }
    }
}

fn taken(holder: &str) -> Status {
    Status::failed_precondition(format!(
        "{holder} controls this dataplane: make the change there, or end it first"
    ))
}

impl Stream for Held {
    type Item = Result<pb::ControlResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.told {
            // It ends with the connection, which drops it.
            return Poll::Pending;
        }
        self.told = true;
        Poll::Ready(Some(Ok(pb::ControlResponse { token: self.token })))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.controllers.state();
        if let Some((_, name)) = state.holder.take_if(|(token, _)| *token == self.token) {
            tracing::info!(name, "controls this dataplane no more");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(token: Option<&str>) -> Request<()> {
        let mut request = Request::new(());
        if let Some(token) = token {
            request.metadata_mut().insert(TOKEN_METADATA, token.parse().unwrap());
        }
        request
    }

    #[test]
    fn one_controls_at_a_time_and_the_other_is_told_who() {
        let controllers = Controllers::default();
        controllers.check(&with(None)).unwrap();
        let first = controllers.take("linkd, process 7").unwrap();
        controllers.check(&with(Some("1"))).unwrap();
        for stranger in [None, Some("0"), Some("2"), Some("x")] {
            let refused = controllers.check(&with(stranger)).unwrap_err();
            assert!(refused.message().contains("linkd, process 7"), "{refused:?}");
        }
        assert!(controllers.take("other").unwrap_err().message().contains("process 7"));
        drop(first);
        // Its token is worth nothing, also before there is another one.
        assert!(controllers.check(&with(Some("1"))).is_err());
        let second = controllers.take("other").unwrap();
        assert!(controllers.check(&with(Some("1"))).is_err());
        controllers.check(&with(Some("2"))).unwrap();
        drop(second);
        controllers.check(&with(None)).unwrap();
    }
}
