// SPDX-License-Identifier: Apache-2.0
//! Bounds the bytes of answers that wait for their readers.
//!
//! A caller that does not read, or closes the flow-control window of HTTP/2, leaves its answers in
//! memory. Each message of an answer is charged to its caller when it is encoded, and discharged
//! when HTTP/2 has written its last byte or the stream is gone. The unix socket and the network
//! have separate budgets, so that network callers cannot use up those of local ones.

use crate::caller::Caller;
use http::HeaderMap;
use hyper::body::{Bytes, Frame};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::body::Body;

/// Per caller. A single message may be longer, such as the statistics of many thousand clients, if
/// the caller has no other one.
const EACH: usize = 32 << 20;
/// For all callers at the unix socket, and for all over the network.
const ALL: usize = 128 << 20;

/// The bytes that wait; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets {
    local: Budget,
    remote: Budget,
}

impl Budgets {
    /// The account of a caller's answers.
    pub fn account(&self, caller: &Caller) -> Account {
        let budget = if caller.is_local() { &self.local } else { &self.remote };
        Account { budget: budget.clone(), name: caller.name.as_str().into() }
    }
}

#[derive(Clone, Debug, Default)]
struct Budget(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    all: usize,
    by: HashMap<Arc<str>, usize>,
}

impl Budget {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller's part of a budget.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    budget: Budget,
    name: Arc<str>,
}

/// Bytes that are charged to an account until they are dropped.
struct Charged {
    bytes: Bytes,
    account: Account,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        let mut waiting = self.account.budget.waiting();
        waiting.all -= self.bytes.len();
        if let Some(own) = waiting.by.get_mut(&self.account.name) {
            *own -= self.bytes.len();
            if *own == 0 {
                waiting.by.remove(&self.account.name);
            }
        }
    }
}

impl Account {
    /// Whether so many bytes more may wait.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED.
    pub fn check(&self, bytes: usize) -> Result<(), Status> {
        let (own, all) = {
            let waiting = self.budget.waiting();
            (waiting.by.get(&self.name).copied().unwrap_or(0), waiting.all)
        };
        let (limit, whose) = match () {
            () if own > 0 && own + bytes > EACH => (EACH, "your answers"),
            () if all + bytes > ALL => (ALL, "the answers to all callers"),
            () => return Ok(()),
        };
        Err(Status::resource_exhausted(format!(
            "more than {} MiB of {whose} would wait to be read: read them first, or ask for fewer \
             at a time",
            limit >> 20
        )))
    }

    /// Charges bytes until the last view of them is dropped.
    pub fn charge(&self, bytes: Bytes) -> Bytes {
        let mut waiting = self.budget.waiting();
        waiting.all += bytes.len();
        *waiting.by.entry(self.name.clone()).or_default() += bytes.len();
        drop(waiting);
        Bytes::from_owner(Charged { bytes, account: self.clone() })
    }

    /// A body that charges its messages as they are encoded. It ends with the first one that
    /// exceeds the budget.
    pub fn meter(self, body: Body) -> Body {
        Body::new(Metered { body, account: self, is_over: false })
    }
}

struct Metered {
    body: Body,
    account: Account,
    is_over: bool,
}

impl hyper::body::Body for Metered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            last => return Poll::Ready(last),
        };
        let charged = match frame.into_data() {
            Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            Ok(bytes) => self.account.check(bytes.len()).map(|()| self.account.charge(bytes)),
        };
        Poll::Ready(Some(Ok(charged.map(Frame::data).unwrap_or_else(|status| {
            self.is_over = true;
            let mut trailers = HeaderMap::new();
            // Its message is text of ours, which fits into a header.
            let _ = status.add_header(&mut trailers);
            Frame::trailers(trailers)
        }))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, StreamBody};
    use tonic::Code;

    fn account(budgets: &Budgets, name: &str) -> Account {
        budgets.account(&Caller { name: name.into(), ..Caller::linkd() })
    }

    fn bytes(mebibytes: usize) -> Bytes {
        vec![0; mebibytes << 20].into()
    }

    #[test]
    fn answers_are_bounded_for_each_caller_and_for_all_until_they_are_read() {
        let budgets = Budgets::default();
        let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(|name| account(&budgets, name));
        // A single one may be long.
        a.check(40 << 20).unwrap();
        let long = a.charge(bytes(40));
        let status = a.check(1).unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().starts_with("more than 32 MiB of your answers"), "{status:?}");
        drop(long);
        let waiting: Vec<_> = [&a, &a, &b, &b, &c, &c, &d, &d]
            .map(|of| {
                of.check(16 << 20).unwrap();
                of.charge(bytes(16))
            })
            .into();
        let status = e.check(1).unwrap_err();
        assert!(status.message().contains("of the answers to all callers"), "{status:?}");
        // Another budget.
        let local = Caller { from: "unix".into(), ..Caller::linkd() };
        budgets.account(&local).check(40 << 20).unwrap();
        // All views of one have to be gone.
        let view = waiting[0].slice(5..6);
        drop(waiting);
        assert_eq!(budgets.remote.waiting().all, 16 << 20);
        drop(view);
        assert_eq!(budgets.remote.waiting().all, 0);
        assert!(budgets.remote.waiting().by.is_empty());
    }

    #[tokio::test]
    async fn stream_that_is_not_read_ends_with_the_reason() {
        let account = account(&Budgets::default(), "a");
        let frames = [20, 20, 20].map(|size| Ok::<_, Status>(Frame::data(bytes(size))));
        let body = Body::new(StreamBody::new(tokio_stream::iter(frames)));
        let mut body = account.meter(body);
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len(), 20 << 20);
        let last = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
        let status = Status::from_header_map(&last).unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(body.frame().await.is_none());
    }
}
