// SPDX-License-Identifier: Apache-2.0
//! One connection, of either kind, and who is at its other end.

use crate::caller::{Caller, Role, UNIX, Unknown};
use crate::session::Session;
use crate::shares::{Holder, Share};
use crate::slots::Slot;
use crate::tls::{self, HTTP2, Keys};
use identity::{Certificate, Identity};
use nix::unistd::{Uid, User};
use rustls::pki_types::CertificateDer;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_rustls::server::TlsStream;
use tonic::Code;
use tonic::transport::server::Connected;

/// Between one check of the certificate of a connection and the next: the wall clock can be set.
const CHECK: Duration = Duration::from_secs(60);
/// From the end of a certificate to the end of its connection, so that streams can report the
/// reason.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection that holds its room.
pub(crate) struct Connection {
    io: Io,
    peer: Peer,
    greeting: Option<Greeting>,
    /// Resolves when the peer's certificate is no longer valid, or the slot is another one's.
    end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    is_over: bool,
    /// Limits the time of a write that does not proceed, where there is such a limit.
    stall: Option<Stall>,
    room: Room,
}

/// What a connection takes of the limits, until it is dropped.
#[derive(Debug)]
enum Room {
    Unix { _share: Share },
    Tcp(Arc<Slot>),
}

/// Time limit of a write.
#[derive(Debug)]
struct Stall {
    limit: Duration,
    /// Runs while the peer takes no bytes.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    /// The result of a write, or a timeout if writes have been pending for too long.
    fn check<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.timer = None;
            return written;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.limit)));
        match timer.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// What a peer must send in time to keep its connection: the preface of HTTP/2 and the header of
/// its first frame (RFC 9113, section 3.4).
#[derive(Debug)]
struct Greeting {
    /// Bytes that are yet to come.
    left: usize,
    deadline: Pin<Box<Sleep>>,
}

const GREETING_BYTES: usize = 24 + 9;

#[derive(Debug)]
enum Io {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// The peer of a connection, attached to its requests.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<Known>);

#[derive(Debug)]
enum Known {
    /// Every user who may open the socket may do everything.
    Unix { name: String },
    /// There are too many connections: every request is refused.
    Refused { name: String, from: String, why: String },
    /// A certificate that the handshake has believed.
    Certified {
        certificate: Result<Certificate, String>,
        /// The certificate and those that lead to its authority.
        chain: Vec<CertificateDer<'static>>,
        from: String,
        /// Why the certificate is no longer valid, as a sentence.
        ended: watch::Sender<Option<String>>,
    },
    /// A browser without a certificate, before its session is known.
    Anonymous { from: String },
    /// A browser session.
    Session { session: Arc<Session>, from: String },
}

impl Connection {
    /// A connection over the unix socket. The HTTP/2 preface must arrive before `deadline`.
    pub fn unix(io: UnixStream, share: Share, deadline: Instant) -> Self {
        let peer = Known::Unix { name: user(&io) };
        Self::new(Io::Unix(io), peer, Room::Unix { _share: share }, deadline)
    }

    /// A connection over the unix socket that only reports, before `deadline`, why it is refused.
    pub fn refusal(io: UnixStream, why: String, share: Share, deadline: Instant) -> Self {
        let peer = Known::Refused { name: user(&io), from: UNIX.into(), why };
        Self::new(Io::Unix(io), peer, Room::Unix { _share: share }, deadline).refusing()
    }

    fn new(io: Io, peer: Known, room: Room, deadline: Instant) -> Self {
        let deadline = Box::pin(sleep_until(deadline));
        let greeting = Some(Greeting { left: GREETING_BYTES, deadline });
        let end: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = match &room {
            Room::Unix { .. } => None,
            Room::Tcp(slot) => Some(Box::pin(slot.closed())),
        };
        let peer = Peer(Arc::new(peer));
        Self { io, peer, greeting, end, is_over: false, stall: None, room }
    }

    /// Ends it at its deadline, whatever it says.
    fn refusing(mut self) -> Self {
        if let Some(greeting) = &mut self.greeting {
            greeting.left = usize::MAX;
        }
        self
    }

    /// A connection over TLS, after the handshake with `keys`. The HTTP/2 preface must arrive
    /// before `deadline`.
    pub fn tls(
        io: TlsStream<TcpStream>,
        from: String,
        keys: Arc<Keys>,
        slot: Arc<Slot>,
        deadline: Instant,
    ) -> Self {
        let chain = io.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
        let certificate = match &*chain {
            [first, ..] => Certificate::parse(first).map_err(|error| error.to_string()),
            [] => Err("it showed no certificate".to_owned()),
        };
        let ended = watch::Sender::new(None);
        let peer = Known::Certified { certificate, chain, from, ended };
        let closed = slot.closed();
        let mut connection = Self::new(Io::Tls(Box::new(io)), peer, Room::Tcp(slot), deadline);
        let watch = connection.peer.clone().watch(keys);
        connection.end = Some(Box::pin(async move {
            tokio::select! {
                () = watch => {}
                () = closed => {}
            }
        }));
        connection
    }

    /// Counts it as one of its caller. If there are too many, its requests are refused.
    pub fn identified(mut self) -> Self {
        if let Err((name, from, why)) = self.identify() {
            self.peer = Peer(Arc::new(Known::Refused { name, from, why }));
            return self.refusing();
        }
        self
    }

    /// # Errors
    /// Who it is, from where, and the reason.
    fn identify(&self) -> Result<(), (String, String, String)> {
        let Room::Tcp(slot) = &self.room else { return Ok(()) };
        let (name, holder) = match self.peer.caller(SystemTime::now()) {
            Ok(caller) => (caller.name.clone(), Holder::from(&caller)),
            // Its requests are refused with the reason.
            Err(Unknown { name, .. }) => (name, Holder::peer(self.peer.from())),
        };
        let identified = slot.identify(holder);
        identified.map_err(|over| (name, self.peer.from().to_owned(), over.told("connections")))
    }

    /// A connection of a browser over TLS; a certificate is optional. With HTTP/2 the preface must
    /// arrive before `deadline`; hyper limits the time for the head of a request of HTTP/1.1.
    pub fn web_tls(
        io: TlsStream<TcpStream>,
        from: String,
        keys: Arc<Keys>,
        slot: Arc<Slot>,
        deadline: Instant,
    ) -> Self {
        let (is_http2, has_certificate) =
            (is_http2(&io), io.get_ref().1.peer_certificates().is_some());
        let mut connection = if has_certificate {
            Self::tls(io, from, keys, slot, deadline)
        } else {
            Self::new(Io::Tls(Box::new(io)), Known::Anonymous { from }, Room::Tcp(slot), deadline)
        };
        if !is_http2 {
            connection.greeting = None;
        }
        connection
    }

    /// A connection of a browser without TLS, which is HTTP/1.1.
    pub fn web_tcp(io: TcpStream, from: String, slot: Arc<Slot>) -> Self {
        let peer = Known::Anonymous { from };
        let connection = Self::new(Io::Tcp(io), peer, Room::Tcp(slot), Instant::now());
        Self { greeting: None, ..connection }
    }

    /// Closes it when the peer leaves bytes unread for so long.
    #[must_use]
    pub fn with_unread(self, limit: Duration) -> Self {
        Self { stall: Some(Stall { limit, timer: None }), ..self }
    }

    pub fn is_http2(&self) -> bool {
        matches!(&self.io, Io::Tls(io) if is_http2(io))
    }

    /// Our address of it.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match &self.io {
            Io::Unix(_) => None,
            Io::Tcp(io) => io.local_addr().ok(),
            Io::Tls(io) => io.get_ref().0.local_addr().ok(),
        }
    }

    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether it has to end, or wakes the task when it has. Reading and
    /// writing both ask: a peer that takes nothing keeps HTTP/2 from reading.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(context).is_ready()
        {
            (self.end, self.is_over) = (None, true);
        }
        self.is_over
    }

    fn unless_stalled<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        match &mut self.stall {
            Some(stall) => stall.check(written, cx),
            None => written,
        }
    }
}

fn is_http2(io: &TlsStream<TcpStream>) -> bool {
    io.get_ref().1.alpn_protocol() == Some(HTTP2)
}

fn over() -> io::Error {
    let why = "the peer's certificate does not hold any more, or it made room for another peer";
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn invalid(why: &str) -> String {
    format!("your certificate does not hold any more: {why}")
}

/// The user at the other end.
fn user(io: &UnixStream) -> String {
    let Ok(peer) = io.peer_cred() else { return "unknown".to_owned() };
    let uid = Uid::from_raw(peer.uid());
    let user = User::from_uid(uid).ok().flatten();
    user.map_or_else(|| format!("uid {uid}"), |user| user.name)
}

impl Peer {
    /// Checks a certificate until it is no longer valid, and for a moment longer.
    async fn watch(self, keys: Arc<Keys>) {
        let Known::Certified { certificate, chain, ended, .. } = &*self.0 else { return };
        let mut reloads = keys.reloads();
        loop {
            let now = SystemTime::now();
            if let Err(error) = keys.verify(chain, now) {
                ended.send_replace(Some(invalid(&tls::reason(&error))));
                break;
            }
            let left = certificate.as_ref().map_or(CHECK, |certificate| certificate.left(now));
            let _ = timeout(left.min(CHECK), reloads.changed()).await;
        }
        tokio::time::sleep(FAREWELL).await;
    }

    /// Why the peer's certificate is no longer valid or its session has ended, as a sentence; none
    /// while it is, and for other peers.
    pub fn ended(&self) -> Option<watch::Receiver<Option<String>>> {
        match &*self.0 {
            Known::Certified { ended, .. } => Some(ended.subscribe()),
            Known::Session { session, .. } => Some(session.ended()),
            Known::Unix { .. } | Known::Refused { .. } | Known::Anonymous { .. } => None,
        }
    }

    /// The same peer's requests with the cookie of a session.
    pub fn with_session(&self, session: Arc<Session>) -> Self {
        Self(Arc::new(Known::Session { session, from: self.from().to_owned() }))
    }

    pub fn session(&self) -> Option<&Arc<Session>> {
        match &*self.0 {
            Known::Session { session, .. } => Some(session),
            _ => None,
        }
    }

    /// Its certificate and those that lead to its authority; empty without one.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        match &*self.0 {
            Known::Certified { chain, .. } => chain,
            _ => &[],
        }
    }

    /// From where it is, as [`Caller::from`].
    pub fn from(&self) -> &str {
        match &*self.0 {
            Known::Certified { from, .. }
            | Known::Anonymous { from }
            | Known::Session { from, .. }
            | Known::Refused { from, .. } => from,
            Known::Unix { .. } => UNIX,
        }
    }

    /// The caller of the requests on this connection at an instant.
    pub fn caller(&self, now: SystemTime) -> Result<Caller, Unknown> {
        match &*self.0 {
            Known::Unix { name } => {
                let (name, from) = (name.clone(), UNIX.into());
                Ok(Caller { name, role: Role::Admin, from, ..Caller::linkd() })
            }
            Known::Refused { name, from, why } => Err(Unknown {
                name: name.clone(),
                from: from.clone(),
                code: Code::ResourceExhausted,
                why: why.clone(),
            }),
            Known::Anonymous { from } => Err(Unknown {
                name: String::new(),
                from: from.clone(),
                code: Code::Unauthenticated,
                why: "you are not logged in: open the link that `linkctl web` prints".into(),
            }),
            Known::Session { session, from } => session.caller(from.clone()),
            Known::Certified { certificate, from, ended, .. } => {
                let from = from.clone();
                let denied = Code::PermissionDenied;
                let certificate = match certificate {
                    Ok(certificate) => certificate,
                    Err(why) => {
                        let why = format!("your certificate: {why}");
                        return Err(Unknown { name: String::new(), from, code: denied, why });
                    }
                };
                let name = || certificate.names.first().cloned().unwrap_or_default();
                let held = certificate.holds(now).map_err(|error| error.to_string());
                let held = held.map_err(|why| invalid(&why));
                if let Err(why) = ended.borrow().clone().map_or(held, Err) {
                    let code = Code::Unauthenticated;
                    return Err(Unknown { name: name(), from, code, why });
                }
                match certificate.identity() {
                    Ok(Identity { name, role }) => {
                        Ok(Caller { name, role, from, ..Caller::linkd() })
                    }
                    Err(error) => {
                        let why = error.to_string();
                        Err(Unknown { name: name(), from, code: denied, why })
                    }
                }
            }
        }
    }
}

#[cfg(test)]
impl Peer {
    pub fn local(name: &str) -> Self {
        Self(Arc::new(Known::Unix { name: name.into() }))
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_over(cx) {
            return Poll::Ready(Err(over()));
        }
        let before = buffer.filled().len();
        let read = match &mut self.io {
            Io::Unix(io) => Pin::new(io).poll_read(cx, buffer),
            Io::Tcp(io) => Pin::new(io).poll_read(cx, buffer),
            Io::Tls(io) => Pin::new(io).poll_read(cx, buffer),
        };
        let Some(greeting) = &mut self.greeting else { return read };
        if greeting.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        greeting.left = greeting.left.saturating_sub(buffer.filled().len() - before);
        if greeting.left == 0 {
            self.greeting = None;
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_over(cx) {
            return Poll::Ready(Err(over()));
        }
        let written = match &mut self.io {
            Io::Unix(io) => Pin::new(io).poll_write(cx, bytes),
            Io::Tcp(io) => Pin::new(io).poll_write(cx, bytes),
            Io::Tls(io) => Pin::new(io).poll_write(cx, bytes),
        };
        self.unless_stalled(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_over(cx) {
            return Poll::Ready(Err(over()));
        }
        let written = match &mut self.io {
            Io::Unix(io) => Pin::new(io).poll_write_vectored(cx, pieces),
            Io::Tcp(io) => Pin::new(io).poll_write_vectored(cx, pieces),
            Io::Tls(io) => Pin::new(io).poll_write_vectored(cx, pieces),
        };
        self.unless_stalled(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Unix(io) => io.is_write_vectored(),
            Io::Tcp(io) => io.is_write_vectored(),
            Io::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_over(cx) {
            return Poll::Ready(Err(over()));
        }
        let flushed = match &mut self.io {
            Io::Unix(io) => Pin::new(io).poll_flush(cx),
            Io::Tcp(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        };
        self.unless_stalled(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Unix(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tcp(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, SanType};

    #[test]
    fn a_certificate_that_expires_while_its_connection_lasts_ends_what_it_may() {
        let mut params = CertificateParams::default();
        params.subject_alt_names.push(SanType::URI("linkemu:role:admin".try_into().unwrap()));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let now = SystemTime::now();
        let day = Duration::from_secs(86_400);
        params.not_before = (now - day).into();
        params.not_after = (now + day).into();
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let certificate = Ok(Certificate::parse(made.der()).unwrap());
        let from = "192.0.2.1:5".to_owned();
        let ended = watch::Sender::new(None);
        let peer = Peer(Arc::new(Known::Certified { certificate, chain: Vec::new(), from, ended }));
        assert_eq!(peer.caller(now).unwrap().role, Role::Admin);
        let unknown = peer.caller(now + 2 * day).unwrap_err();
        assert_eq!(unknown.code, Code::Unauthenticated);
        assert!(unknown.why.contains("expired at"), "{}", unknown.why);
        assert!(peer.caller(now - 2 * day).is_err());
    }
}
