// SPDX-License-Identifier: Apache-2.0
//! Idempotency keys: a request that is sent again gets the answer that it had.

use std::collections::VecDeque;
use std::sync::Arc;

use proto::dataplane::v1::Plan;
use tonic::Status;

/// Longest key or fingerprint.
const KEY_BYTES: usize = 128;
/// Bytes of plans that are kept for repeated requests.
const PLAN_BYTES: usize = 16 << 20;

/// The key and the fingerprint of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Empty: the request has none and is never known.
    pub key: String,
    /// Hash of the content of the request.
    pub fingerprint: String,
}

impl Request {
    /// Checks the length of key and fingerprint.
    ///
    /// # Errors
    /// INVALID_ARGUMENT.
    pub fn check(&self) -> Result<(), Status> {
        match self.key.len().max(self.fingerprint.len()) {
            longest if longest > KEY_BYTES => Err(Status::invalid_argument(format!(
                "a key or fingerprint of {longest} bytes is longer than {KEY_BYTES}: give a shorter \
                 one"
            ))),
            _ => Ok(()),
        }
    }
}

/// The key belongs to a request with another content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key belongs to another request: give each request its own key")]
pub struct Reused;

impl From<Reused> for Status {
    fn from(reused: Reused) -> Self {
        Self::already_exists(reused.to_string())
    }
}

/// Answers by key; the oldest are forgotten.
#[derive(Debug)]
pub struct Keys<T> {
    kept: VecDeque<(Request, T)>,
    capacity: usize,
}

impl<T> Keys<T> {
    /// Keeps `capacity` answers.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { kept: VecDeque::new(), capacity }
    }

    /// The answer that a request had.
    ///
    /// # Errors
    /// [`Reused`].
    pub fn find(&self, request: &Request) -> Result<Option<&T>, Reused> {
        match self.get(&request.key) {
            Some((known, _)) if known.fingerprint != request.fingerprint => Err(Reused),
            found => Ok(found.map(|(_, answer)| answer)),
        }
    }

    /// The request with a key, and its answer.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<(&Request, &T)> {
        let mut kept = self.kept.iter().rev().filter(|(request, _)| !request.key.is_empty());
        kept.find(|(request, _)| request.key == key).map(|(request, answer)| (request, answer))
    }

    /// Keeps an answer, unless the request has no key.
    pub fn keep(&mut self, request: Request, answer: T) {
        if request.key.is_empty() {
            return;
        }
        if self.kept.len() == self.capacity {
            self.kept.pop_front();
        }
        self.kept.push_back((request, answer));
    }

    /// The same, and keeps the plans of the newest answers alone, up to 16 MiB.
    pub fn keep_with_plan(
        &mut self,
        request: Request,
        answer: T,
        plan: impl Fn(&mut T) -> &mut Option<Arc<Plan>>,
    ) {
        self.keep(request, answer);
        let mut bytes = 0;
        for plan in self.kept.iter_mut().rev().map(|(_, answer)| plan(answer)) {
            bytes += plan.as_deref().map_or(0, prost::Message::encoded_len);
            if bytes > PLAN_BYTES {
                *plan = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_keys_and_fingerprints_are_refused_with_the_limit() {
        let of = |key: usize, fingerprint: usize| {
            Request { key: "k".repeat(key), fingerprint: "f".repeat(fingerprint) }.check()
        };
        assert!(of(KEY_BYTES, KEY_BYTES).is_ok());
        for refused in [of(KEY_BYTES + 1, 1), of(1, KEY_BYTES + 1)] {
            let message = refused.unwrap_err().message().to_owned();
            assert!(message.contains("129 bytes is longer than 128"), "{message}");
        }
    }

    fn request(key: &str, fingerprint: &str) -> Request {
        Request { key: key.into(), fingerprint: fingerprint.into() }
    }

    #[test]
    fn key_finds_its_answer_until_it_is_the_oldest() {
        let mut keys = Keys::new(2);
        keys.keep(request("", "x"), 0);
        keys.keep(request("a", "x"), 1);
        assert_eq!(keys.find(&request("a", "x")), Ok(Some(&1)));
        assert_eq!(keys.find(&request("a", "y")), Err(Reused));
        assert_eq!(keys.find(&request("", "x")), Ok(None));
        keys.keep(request("b", "x"), 2);
        keys.keep(request("c", "x"), 3);
        assert_eq!(keys.find(&request("a", "x")), Ok(None));
        assert_eq!(keys.find(&request("c", "x")), Ok(Some(&3)));
    }
}
