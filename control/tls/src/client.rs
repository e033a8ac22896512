// SPDX-License-Identifier: Apache-2.0
//! The client's end: trusted authorities, its own certificate, and explanations of errors.
//!
//! In TLS 1.3 the server judges our certificate after our side of the handshake is done; the
//! verdict comes with the first read. [`Watched`] keeps it, as HTTP/2 drops what an error was.

use crate::HTTP2;
use identity::{Certificate, CertificateError, PemError, read_certificates, read_key};
use rustls::crypto::ring;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::{AlertDescription as Alert, CertificateError as Bad, ClientConfig, RootCertStore};
use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error("the certificate in {}: {source}", path.display())]
    Certificate { path: PathBuf, source: CertificateError },
    #[error("the key in {} is not that of the certificate in {}: give the two that were made together", key.display(), cert.display())]
    Mismatch { cert: PathBuf, key: PathBuf },
    #[error("cannot use {} for TLS: {source}", path.display())]
    Refused { path: PathBuf, source: rustls::Error },
}

/// What messages call the options, each as in "give it as …".
#[derive(Clone, Debug)]
pub struct Names {
    /// Authorities of the server.
    pub ca: Cow<'static, str>,
    /// Name of the server.
    pub server: Cow<'static, str>,
    /// Our certificate and its key.
    pub own: Cow<'static, str>,
    /// A question that follows an answer without TLS.
    pub plain: Cow<'static, str>,
}

/// Error of a connection, shared by clones.
#[derive(Clone, Debug)]
pub struct Fault {
    names: Arc<Names>,
    words: Arc<Mutex<Option<String>>>,
}

impl Fault {
    #[must_use]
    pub fn new(names: Names) -> Self {
        Self { names: Arc::new(names), words: Arc::default() }
    }

    /// In words, if something did.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the explanation; none before another attempt to connect.
    pub fn set(&self, words: Option<String>) {
        *self.words.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    fn note(&self, error: &io::Error) {
        if let Some(words) = words(error, &self.names) {
            self.set(Some(words));
        }
    }
}

/// Trusts the authorities in `ca`, and presents the certificate and key of `own`, if given.
///
/// # Errors
/// If a file is no good, which needs no server to be seen.
pub fn connector(ca: &Path, own: Option<(&Path, &Path)>) -> Result<TlsConnector, ClientError> {
    let refused = |path: &Path| {
        let path = path.to_owned();
        move |source| ClientError::Refused { path, source }
    };
    let held = |path: &Path, der: &[u8]| {
        let held = Certificate::parse(der).and_then(|one| one.holds(SystemTime::now()));
        held.map_err(|source| ClientError::Certificate { path: path.to_owned(), source })
    };
    let mut authorities = RootCertStore::empty();
    for authority in read_certificates(ca)? {
        // rustls does not check it in trusted certificates.
        held(ca, &authority)?;
        authorities.add(authority).map_err(refused(ca))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused(ca))?
        .with_root_certificates(authorities);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = read_certificates(cert)?;
            if let Some(own) = chain.first() {
                held(cert, own)?;
            }
            let read = read_key(key)?;
            config.with_client_auth_cert(chain, read).map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => {
                    ClientError::Mismatch { cert: cert.to_owned(), key: key.to_owned() }
                }
                error => refused(cert)(error),
            })?
        }
    };
    config.alpn_protocols = vec![HTTP2.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Connects to a host, and checks that its certificate has a name.
///
/// # Errors
/// What the system or TLS says; the fault has it in words.
pub async fn connect(
    connector: TlsConnector,
    (host, port): (&str, u16),
    name: ServerName<'static>,
    fault: Fault,
) -> io::Result<Watched> {
    let connecting = async {
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        connector.connect(name, stream).await
    };
    match connecting.await {
        Ok(inner) => Ok(Watched { inner, fault }),
        Err(error) => {
            fault.note(&error);
            Err(error)
        }
    }
}

/// Explanation of a TLS error; `None` for other errors.
fn words(error: &io::Error, names: &Names) -> Option<String> {
    let tls = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let Names { ca, server, own, plain } = names;
    Some(match tls {
        rustls::Error::InvalidCertificate(bad) => match bad {
            Bad::ExpiredContext { time, not_after } => format!(
                "its certificate has expired at {}, and it is {}: make another (linkctl pki \
                 server), or is the clock here wrong?",
                instant(*not_after),
                instant(*time)
            ),
            Bad::NotValidYetContext { time, not_before } => format!(
                "its certificate holds from {} on, and it is {}: is the clock here wrong?",
                instant(*not_before),
                instant(*time)
            ),
            Bad::UnknownIssuer => format!(
                "its certificate is not signed by an authority of {ca}: give the ca.pem of its lab"
            ),
            Bad::BadSignature => format!(
                "its certificate is forged, or of another authority that has the name of the one \
                 in {ca}: give the ca.pem of its lab"
            ),
            Bad::NotValidForName => "its certificate is for another name".into(),
            Bad::NotValidForNameContext { presented, .. } => format!(
                "its certificate is for another name ({}): give that as {server}, or make a \
                 certificate with this one (linkctl pki server)",
                presented.iter().map(|name| bare(name)).collect::<Vec<_>>().join(", ")
            ),
            bad => format!("its certificate is no good: {bad}"),
        },
        rustls::Error::AlertReceived(alert) => match alert {
            Alert::CertificateExpired => {
                "it says that your certificate has expired (linkctl pki show)".into()
            }
            Alert::UnknownCA => format!(
                "it does not know the authority that signed your certificate: give one of its lab \
                 as {own}"
            ),
            Alert::CertificateRequired => {
                format!("it asks for a certificate, and got none: give one of its lab as {own}")
            }
            Alert::DecryptError => format!(
                "your certificate is of another authority, of the same name as the one it knows: \
                 give one of its lab as {own}"
            ),
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateRevoked => {
                format!("it does not take your certificate ({alert:?}): is it one of a client?")
            }
            alert => format!("it ended the TLS handshake ({alert:?})"),
        },
        rustls::Error::InvalidMessage(_) => {
            format!("what answers there does not speak TLS: {plain}")
        }
        other => other.to_string(),
    })
}

fn instant(time: UnixTime) -> impl std::fmt::Display {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + std::time::Duration::from_secs(time.as_secs()))
}

/// A name without what rustls writes around it, as in `DnsName("linkemu.lab")`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

/// A connection that keeps what went wrong on it.
#[derive(Debug)]
pub struct Watched {
    inner: TlsStream<TcpStream>,
    fault: Fault,
}

impl Watched {
    fn noted<T>(&self, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &poll {
            self.fault.note(error);
        }
        poll
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_read(cx, buffer);
        self.noted(poll)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.noted(poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_flush(cx);
        self.noted(poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.noted(poll)
    }
}
