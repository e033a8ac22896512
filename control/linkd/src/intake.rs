// SPDX-License-Identifier: Apache-2.0
//! Reads the bodies of requests within a budget of bytes, for each caller and for all.
//!
//! Room is taken before bytes are kept, and is given back when the request is answered. What is not
//! read yet is bounded by the flow control of HTTP/2 ([`CONNECTION_WINDOW`]). The unix socket and the
//! network have separate budgets, so that network callers cannot use up those of local ones.

use crate::caller::Caller;
use crate::shares::{Holder, Limit, Over, Share, Shares};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use std::time::Duration;
use tokio::time::timeout;
use tonic::Status;

/// Bytes that a peer may send before they are read, on a stream and on a connection of HTTP/2.
pub(crate) const STREAM_WINDOW: u32 = 64 << 10;
pub(crate) const CONNECTION_WINDOW: u32 = 256 << 10;
const DEADLINE: Duration = Duration::from_secs(20);
const MIB: usize = 1 << 20;
/// What a call takes beside its body, so that calls are bounded as well: 255 of a caller.
const CALL: usize = 64 << 10;
/// Bytes of requests in work. One address may be a proxy's, and has the limit of all.
const LIMIT: Limit = Limit { caller: 16 * MIB, address: 64 * MIB, all: 64 * MIB };

/// The budgets; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    local: Shares,
    remote: Shares,
    /// For the whole body of a request.
    deadline: Duration,
}

/// A body that was read, and its part of the budget.
#[derive(Debug)]
pub(crate) struct Received {
    pub bytes: Bytes,
    /// To be dropped when the request is answered.
    pub share: Share,
}

impl Default for Intake {
    fn default() -> Self {
        let [local, remote] = [(); 2].map(|()| Shares::new(LIMIT));
        Self { local, remote, deadline: DEADLINE }
    }
}

impl Intake {
    /// Reads a body of at most `limit` bytes.
    ///
    /// # Errors
    /// OUT_OF_RANGE if it is longer, RESOURCE_EXHAUSTED beyond the budget, DEADLINE_EXCEEDED,
    /// CANCELLED.
    pub async fn read<B>(
        &self,
        caller: &Caller,
        body: &mut B,
        limit: usize,
    ) -> Result<Received, Status>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let budget = if caller.is_local() { &self.local } else { &self.remote };
        let share = budget.take(Holder::from(caller), CALL).map_err(over)?;
        match timeout(self.deadline, fill(share, body, limit)).await {
            Ok(read) => read,
            Err(_) => Err(Status::deadline_exceeded(format!(
                "the body of the request was not complete within {:?}",
                self.deadline
            ))),
        }
    }
}

async fn fill<B>(mut share: Share, body: &mut B, limit: usize) -> Result<Received, Status>
where
    B: Body<Data = Bytes> + Unpin,
{
    // Copied: a frame of a few bytes keeps the buffer that it was read into.
    let (mut bytes, mut room) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|_| Status::cancelled("the request ended before it was whole"))?;
        let Ok(data) = frame.into_data() else { continue };
        let length = bytes.len() + data.len();
        if length > limit {
            return Err(Status::out_of_range(format!(
                "the request is longer than the {limit} bytes that one may have"
            )));
        }
        if length > room {
            let more = (2 * room).clamp(length, limit);
            share.grow(more - room).map_err(over)?;
            bytes.reserve_exact(more - bytes.len());
            room = more;
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Received { bytes: bytes.into(), share })
}

fn over(over: Over) -> Status {
    let (bytes, whose) = match over {
        Over::Caller(bytes) => (bytes, "your requests"),
        Over::Address(bytes) => (bytes, "the requests from your address"),
        Over::All(bytes) => (bytes, "the requests of all callers"),
    };
    Status::resource_exhausted(format!(
        "more than {} MiB of {whose} would wait for their answers: send fewer at a time",
        bytes / MIB
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Role;
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;
    use std::convert::Infallible;
    use tokio_stream::StreamExt;
    use tonic::Code;

    fn caller(name: &str, role: Role) -> Caller {
        Caller { name: name.into(), role, from: "192.0.2.1:5".into(), ..Caller::linkd() }
    }

    /// The code of the refusal of a body.
    async fn refused(intake: &Intake, who: &Caller, mebibytes: usize) -> Status {
        let mut body = Full::new(Bytes::from(vec![0; mebibytes * MIB]));
        intake.read(who, &mut body, 100 * MIB).await.unwrap_err()
    }

    async fn read(intake: &Intake, who: &Caller, mebibytes: usize) -> Received {
        let mut body = Full::new(Bytes::from(vec![0; mebibytes * MIB]));
        intake.read(who, &mut body, 100 * MIB).await.unwrap()
    }

    #[tokio::test]
    async fn bodies_are_bounded_for_each_caller_and_for_all_until_they_are_answered() {
        let intake = Intake::default();
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| caller(name, Role::Viewer));
        let first = read(&intake, &a, 15).await;
        let status = refused(&intake, &a, 1).await;
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().starts_with("more than 16 MiB of your requests"), "{status:?}");
        let _others = [read(&intake, &b, 15).await, read(&intake, &c, 15).await];
        // The last quarter is for operators.
        assert_eq!(refused(&intake, &d, 4).await.code(), Code::ResourceExhausted);
        let operator = read(&intake, &caller("o", Role::Operator), 15).await;
        // Another budget.
        let local = Caller { from: crate::caller::UNIX.into(), ..a.clone() };
        read(&intake, &local, 15).await;
        drop((first, operator));
        read(&intake, &a, 15).await;
    }

    #[tokio::test]
    async fn body_in_small_frames_takes_as_much_as_its_bytes() {
        let intake = Intake::default();
        let frames = (0..MIB).map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x"))));
        let mut body = StreamBody::new(tokio_stream::iter(frames));
        let who = caller("a", Role::Viewer);
        let received = intake.read(&who, &mut body, MIB).await.unwrap();
        assert_eq!(received.bytes.len(), MIB);
        let mut rest = Full::new(Bytes::from(vec![0; 14 * MIB]));
        intake.read(&who, &mut rest, 14 * MIB).await.unwrap();
    }

    #[tokio::test]
    async fn unfinished_body_ends_at_its_deadline_and_gives_its_room_back() {
        let intake = Intake { deadline: Duration::from_millis(20), ..Intake::default() };
        let who = caller("a", Role::Viewer);
        let first = Ok::<_, Infallible>(Frame::data(Bytes::from(vec![0; 15 * MIB])));
        let frames = tokio_stream::once(first).chain(tokio_stream::pending());
        let mut body = StreamBody::new(frames);
        let status = intake.read(&who, &mut body, 15 * MIB).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        read(&intake, &who, 15).await;
    }

    #[tokio::test]
    async fn body_that_is_too_long_is_refused_with_the_limit() {
        let intake = Intake::default();
        let mut body = Full::new(Bytes::from_static(b"1234"));
        let who = caller("a", Role::Viewer);
        let status = intake.read(&who, &mut body, 3).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange);
        assert!(status.message().contains("the 3 bytes"), "{status:?}");
    }
}
