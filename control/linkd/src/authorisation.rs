// SPDX-License-Identifier: Apache-2.0
//! Authorisation in front of all services: identifies the caller, checks the role that the call
//! needs, and writes the audit log.
//!
//! A request proceeds with its [`Caller`] in its extensions. It is read completely first, within a
//! budget ([`Intake`]), and a long one waits for its turn ([`Turns`]). Those to the dataplane pass as a
//! stream, and the log has their method alone.

use crate::audit::{Audit, AuditError, Line};
use crate::budget::{Account, Budgets};
use crate::caller::{Caller, Role, Unknown};
use crate::connection::Peer;
use crate::intake::{Intake, Received};
use crate::methods::Method;
use crate::refusal::{clip, denied};
use crate::shares::Share;
use crate::turns::{Turn, Turns};
use crate::{methods, refusal, shape, summary};
use http::response::Parts;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use prost_reflect::FieldDescriptor;
use proto::LINK_METADATA;
use serde_json::Value;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::SystemTime;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

/// Length of the prefix of a message in a body.
const PREFIX: usize = 5;
/// Largest request of a viewer to a method with a field that decides the role.
const QUESTION_BYTES: usize = 1 << 10;
/// Most bytes of a stream of requests, as of reflection.
const STREAM_BYTES: usize = 64 << 10;

#[derive(Clone, Debug)]
pub(crate) struct Authorisation {
    audit: Audit,
    /// Largest request.
    limit: usize,
    budgets: Budgets,
    intake: Intake,
    turns: Turns,
}

/// A gate before a service.
#[derive(Clone, Debug)]
pub(crate) struct Authorised<S> {
    gate: Authorisation,
    inner: S,
}

/// A request that was read.
struct Taken {
    request: Request<Body>,
    /// `None` for a stream.
    method: Option<&'static Method>,
    /// Its bytes, until it is answered.
    share: Option<Share>,
    turn: Turn,
    /// The name of each link with a summary of its change, for the audit log. Empty for calls that viewers
    /// may make.
    about: Vec<(String, Value)>,
    /// The field that needs the highest role, of those that are set.
    field: Option<(&'static str, Role)>,
}

/// An audited call that was allowed.
struct Asked {
    audit: Audit,
    caller: Caller,
    method: String,
    /// The name of each link with a summary of its change. The audit log has a line for each.
    about: Vec<(String, Value)>,
}

impl Authorisation {
    /// Refuses requests that are longer than `limit` bytes.
    pub fn new(audit: Audit, limit: usize) -> Self {
        let (budgets, intake, turns) = Default::default();
        Self { audit, limit, budgets, intake, turns }
    }
}

impl<S> Layer<S> for Authorisation {
    type Service = Authorised<S>;

    fn layer(&self, inner: S) -> Authorised<S> {
        Authorised { gate: self.clone(), inner }
    }
}

impl<S> Service<Request<Body>> for Authorised<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let gate = self.gate.clone();
        let unready = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, unready);
        Box::pin(async move { gate.pass(inner, request).await })
    }
}

impl Authorisation {
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Reads the bodies of requests.
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// The order of long requests.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    /// The account of a caller's answers.
    pub fn account(&self, caller: &Caller) -> Account {
        self.budgets.account(caller)
    }

    /// The caller of a request, if it may use the method; otherwise the refusal, which is audited.
    pub fn admit<B>(&self, request: &Request<B>) -> Result<Caller, Box<Response<Body>>> {
        let method = method_of(request);
        let shown = clip(method);
        let caller = match caller(request) {
            Ok(caller) => caller,
            Err(Unknown { name, from, code, why }) => {
                let (who, method) = (&*clip(&name), &*shown);
                let line = Line { event: "refused", who, from: &from, method, ..Line::default() };
                return Err(Box::new(self.refuse(line, Status::new(code, clip(&why)))));
            }
        };
        let line = || Line::of("refused", &caller, &shown);
        let needed = methods::role_of(method);
        if caller.role < needed {
            return Err(Box::new(self.refuse(line(), denied(&caller, &shown, needed))));
        }
        // It named the link before requests did: the call would be about another one.
        if !methods::passes(method) && request.headers().contains_key(LINK_METADATA) {
            let why = "the metadata is not read: name the link in the request, as `link` or `name`";
            return Err(Box::new(self.refuse(line(), refusal::field(LINK_METADATA, why))));
        }
        Ok(caller)
    }

    /// Reads a request, unless it is a stream, and waits for its turn.
    async fn take(
        &self,
        caller: &Caller,
        method: &str,
        request: Request<Body>,
    ) -> Result<Taken, Status> {
        let known = methods::find(method).filter(|it| it.is_public() && !it.is_client_streaming());
        let Some(known) = known else {
            let about = vec![(link(request.headers()), Value::Null)];
            let request = match methods::passes(method) {
                true => request,
                false => request.map(|body| Body::new(Limited::new(body, STREAM_BYTES))),
            };
            let (share, turn, field) = Default::default();
            return Ok(Taken { request, method: None, share, turn, about, field });
        };
        let is_viewers = known.role == Role::Viewer;
        let is_question = is_viewers && !known.fields.is_empty();
        let limit = if is_question { QUESTION_BYTES } else { self.limit };
        let (head, mut body) = request.into_parts();
        let Received { bytes, share } = self.intake.read(caller, &mut body, limit + PREFIX).await?;
        let turn = self.turns.turn(caller, method, bytes.len()).await?;
        let body = bytes.clone();
        let examine = move || {
            shape::check(known, body.get(PREFIX..).unwrap_or_default())?;
            if is_viewers && !is_question {
                return Ok((Vec::new(), None));
            }
            let message = summary::message(known.descriptor.input(), &body);
            let message = message.as_ref();
            // An unreadable field counts as set.
            let is_set =
                |field: &FieldDescriptor| message.is_none_or(|message| message.has_field(field));
            let set = known.fields.iter().filter(|(field, _)| is_set(field));
            let field = set.max_by_key(|(_, role)| *role);
            let field = field.map(|(field, role)| (field.name(), *role));
            let unread = || vec![(String::new(), Value::Null)];
            let about = message.map_or_else(unread, summary::by_link);
            Ok::<_, Status>((about, field))
        };
        let (about, field) = turn.run(examine).await??;
        let request = Request::from_parts(head, Body::new(Full::new(bytes)));
        let (method, share) = (Some(known), Some(share));
        Ok(Taken { request, method, share, turn, about, field })
    }

    async fn pass<S>(self, mut inner: S, request: Request<Body>) -> Result<Response<Body>, S::Error>
    where
        S: Service<Request<Body>, Response = Response<Body>>,
        S::Future: Send + 'static,
        S::Error: Send + 'static,
    {
        let caller = match self.admit(&request) {
            Ok(caller) => caller,
            Err(refusal) => return Ok(*refusal),
        };
        let method = method_of(&request).to_owned();
        let shown = clip(&method);
        let line = |event| Line::of(event, &caller, &shown);
        let mut needed = methods::role_of(&method);
        let taken = match self.take(&caller, &method, request).await {
            Ok(taken) => taken,
            Err(status) => return Ok(self.refuse(line("refused"), status)),
        };
        let Taken { mut request, method: known, share, turn, about, field } = taken;
        let what = match field {
            Some((field, role)) if role > needed => {
                needed = role;
                format!("{shown} with {field}")
            }
            _ => shown.clone(),
        };
        if caller.role < needed {
            let status = denied(&caller, &what, needed);
            return Ok(self.refuse_all(&caller, &shown, &about, status));
        }
        let account = self.budgets.account(&caller);
        let unary = known.filter(|method| !method.descriptor.is_server_streaming());
        let is_unaudited = methods::find(&method).is_some_and(|method| method.is_unaudited);
        if needed == Role::Viewer || is_unaudited {
            request.extensions_mut().insert(caller);
            let response = match turn.call(Box::pin(inner.call(request))).await {
                Ok(response) => response?,
                Err(failed) => return Ok(failed.into_http()),
            };
            let is_whole = unary.is_some() && !has_status(&response);
            let (head, body) = response.into_parts();
            if !is_whole {
                return Ok(Response::from_parts(head, account.meter(body)));
            }
            let answer = Answer::encode(head, body).await;
            let answer = answer.and_then(|answer| {
                account.check(answer.bytes.len())?;
                Ok(answer.charged(&account))
            });
            return Ok(answer.unwrap_or_else(Status::into_http));
        }
        // Before the call has an effect, because each effect must be in the log.
        if let Err(status) = account.check(1) {
            return Ok(self.refuse_all(&caller, &shown, &about, status));
        }
        let caller = Caller { call: self.audit.number(), ..caller };
        request.extensions_mut().insert(caller.clone());
        let asked = Asked { audit: self.audit.clone(), caller, method: shown, about };
        if let Err(error) = asked.write(Line { event: "asked", ..Line::default() }, &[]) {
            return Ok(unaudited(&error).into_http());
        }
        let call = Box::pin(inner.call(request));
        // To its end, even if the caller leaves or its deadline passes: the log has the outcome.
        let done = tokio::spawn(async move {
            let _share = share;
            let response = match turn.call(call).await {
                Ok(response) => response?,
                Err(failed) => failed.into_http(),
            };
            Ok(asked.answered(response, unary, &account).await)
        });
        done.await.unwrap_or_else(|_| {
            Ok(Status::internal("linkd failed: please report this").into_http())
        })
    }

    /// Writes a refusal into the audit log, and returns it.
    pub fn refuse(&self, line: Line<'_>, status: Status) -> Response<Body> {
        self.note_refusal(line, &status);
        status.into_http()
    }

    /// Writes the refusal of a request: one line, however many links it is about.
    fn refuse_all(
        &self,
        caller: &Caller,
        method: &str,
        about: &[(String, Value)],
        status: Status,
    ) -> Response<Body> {
        let (link, request) = match about {
            [(link, request)] => (&**link, request.clone()),
            several => ("", format!("of {} links", several.len()).into()),
        };
        self.refuse(Line { link, request, ..Line::of("refused", caller, method) }, status)
    }

    /// Audits that a call was refused.
    pub fn note_refusal(&self, line: Line<'_>, status: &Status) {
        let (code, message) = (&*name(status.code()), status.message());
        self.audit.call_refused(&Line { code, message, ..line });
    }
}

impl Asked {
    /// Writes a line for each link, with its generation if there is one.
    fn write(&self, line: Line<'_>, generations: &[u64]) -> Result<(), AuditError> {
        let Self { audit, caller, method, about } = self;
        for (place, (link, request)) in about.iter().enumerate() {
            let (call, generation) = (caller.call, generations.get(place).copied());
            let Line { event, code, message, .. } = line;
            let request = request.clone();
            audit.write(&Line {
                call,
                link,
                request,
                code,
                generation,
                message,
                ..Line::of(event, caller, method)
            })?;
        }
        Ok(())
    }

    /// Writes the outcome.
    async fn answered(
        self,
        response: Response<Body>,
        unary: Option<&'static Method>,
        account: &Account,
    ) -> Response<Body> {
        let mut status = Status::from_header_map(response.headers());
        let mut generations = Vec::new();
        let unary = unary.filter(|_| status.is_none());
        let (head, body) = response.into_parts();
        let response = match unary {
            None => Response::from_parts(head, account.clone().meter(body)),
            Some(method) => match Answer::encode(head, body).await {
                Err(failed) => {
                    status = Some(failed.clone());
                    failed.into_http()
                }
                Ok(answer) => {
                    let trailers = answer.trailers.as_ref();
                    status = trailers.and_then(Status::from_header_map);
                    let output = method.descriptor.output();
                    generations = summary::generations(output, &answer.bytes);
                    answer.charged(account)
                }
            },
        };
        let (code, message) =
            status.as_ref().map_or((Code::Ok, ""), |status| (status.code(), status.message()));
        let code = &*name(code);
        // A failure refuses the next change; this one is done.
        let line = Line { event: "answered", code, message, ..Line::default() };
        let _ = self.write(line, &generations);
        response
    }
}

/// Whether an answer is a status alone, in its headers.
fn has_status(response: &Response<Body>) -> bool {
    Status::from_header_map(response.headers()).is_some()
}

/// An answer that is no stream.
struct Answer {
    head: Parts,
    bytes: Bytes,
    trailers: Option<HeaderMap>,
}

impl Answer {
    /// Now, and not when its reader takes it: until then it would be there unencoded, which is
    /// longer and cannot be counted.
    async fn encode(head: Parts, body: Body) -> Result<Self, Status> {
        let whole = body.collect().await?;
        let trailers = whole.trailers().cloned();
        Ok(Self { head, bytes: whole.to_bytes(), trailers })
    }

    fn charged(self, account: &Account) -> Response<Body> {
        let Self { head, bytes, trailers } = self;
        let trailers = async { trailers.map(Ok::<_, Infallible>) };
        let body = Full::new(account.charge(bytes)).with_trailers(trailers);
        Response::from_parts(head, Body::new(body))
    }
}

/// The full name of the method that a request calls.
pub(crate) fn method_of<B>(request: &Request<B>) -> &str {
    request.uri().path().trim_start_matches('/')
}

fn caller<B>(request: &Request<B>) -> Result<Caller, Unknown> {
    match request.extensions().get::<Peer>() {
        Some(peer) => peer.caller(SystemTime::now()),
        None => Err(Unknown {
            name: String::new(),
            from: "unknown".into(),
            code: Code::PermissionDenied,
            why: "linkd does not know who calls".into(),
        }),
    }
}

/// The link that a call of the dataplane is about, as far as it can be shown.
fn link(headers: &HeaderMap) -> String {
    let name = headers.get(LINK_METADATA).and_then(|name| name.to_str().ok());
    name.map(clip).unwrap_or_default()
}

fn unaudited(error: &AuditError) -> Status {
    Status::failed_precondition(clip(&format!(
        "linkd takes no changes while it cannot write down who makes them: {error}; make room on \
         the disk, or correct the file's permissions, then try again"
    )))
}

/// As the gRPC documents write it.
pub(crate) fn name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn outcome_of_a_call_is_in_the_log_after_its_caller_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let gate = Authorisation::new(Audit::open(&path).unwrap(), 1 << 20);
        let (done, wait) = tokio::sync::oneshot::channel();
        let mut wait = Some(wait);
        let slow = tower::service_fn(move |request: Request<Body>| {
            let wait = wait.take();
            let call = request.extensions().get::<Caller>().unwrap().call;
            async move {
                wait.unwrap().await.unwrap();
                let status = Status::aborted(format!("call {}", call.unwrap()));
                Ok::<_, Infallible>(status.into_http())
            }
        });
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = "/linkemu.v1.Linkemu/UpdateLinks".parse().unwrap();
        request.extensions_mut().insert(Peer::local("bob"));
        let call = gate.pass(slow, request);
        assert!(tokio::time::timeout(Duration::from_millis(20), call).await.is_err());
        let lines = || -> Vec<Value> {
            let text = std::fs::read_to_string(&path).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let [_, asked] = &*lines() else { panic!("{:?}", lines()) };
        assert_eq!((&asked["event"], &asked["who"]), (&"asked".into(), &"bob".into()));
        done.send(()).unwrap();
        while lines().len() < 3 {
            tokio::task::yield_now().await;
        }
        let answered = &lines()[2];
        assert_eq!((&answered["event"], &answered["call"]), (&"answered".into(), &asked["call"]));
        assert_eq!(
            (&answered["code"], &answered["message"]),
            (&"ABORTED".into(), &"call 1".into())
        );
    }

    #[test]
    fn codes_are_written_as_grpc_does() {
        assert_eq!(name(Code::Ok), "OK");
        assert_eq!(name(Code::FailedPrecondition), "FAILED_PRECONDITION");
    }
}
