// SPDX-License-Identifier: Apache-2.0
//! TLS towards linkd: trusted authorities, our certificate, and explanations of errors.
//!
//! TLS 1.3 only, as linkd serves it. In it the server judges our certificate after our
//! side of the handshake is done; the verdict comes with the first read. [`Watched`]
//! keeps it, as HTTP/2 drops what an error was.

use crate::failure::Failure;
use identity::{Certificate, read_certificates, read_key};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription as Alert, CertificateError as Bad, ClientConfig, RootCertStore};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::SystemTime;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// A name or an address, which its certificate must have.
    pub name: ServerName<'static>,
    pub port: u16,
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write HOST:PORT, such as linkemu.lab:8443 or [fd00::1]:8443".to_owned();
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let name = ServerName::try_from(inner.unwrap_or(host).to_owned()).map_err(|_| wrong())?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        match (&name, inner) {
            (ServerName::IpAddress(address), inner)
                if std::net::IpAddr::from(*address).is_ipv6() == inner.is_some() =>
            {
                Ok(Self { name, port })
            }
            (ServerName::DnsName(_), None) => Ok(Self { name, port }),
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, port } = self;
        let name = name.to_str();
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

/// Error of a connection, shared by clones.
#[derive(Clone, Debug, Default)]
pub struct Fault(Arc<Mutex<Option<String>>>);

impl Fault {
    /// In words, if something did.
    pub fn words(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, error: &io::Error) {
        if let Some(words) = words(error) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(words);
        }
    }
}

/// Shows a certificate to who has one of an authority.
///
/// # Errors
/// If a file is no good, which needs no server to be seen.
pub fn connector(ca: &Path, cert: &Path, key: &Path) -> Result<TlsConnector, Failure> {
    let failed = |why: String| Failure::failed("certificate", why);
    let read = |path| read_certificates(path).map_err(|error| failed(error.to_string()));
    let refused = |path: &Path| {
        let path = path.display().to_string();
        move |error: rustls::Error| match error {
            rustls::Error::InconsistentKeys(_) => failed(format!(
                "the key in {} is not that of the certificate in {}: give the two that were made \
                 together",
                key.display(),
                cert.display()
            )),
            error => failed(format!("cannot use {path} for TLS: {error}")),
        }
    };
    let mut authorities = RootCertStore::empty();
    for authority in read(ca)? {
        authorities.add(authority).map_err(refused(ca))?;
    }
    let chain = read(cert)?;
    if let Some(own) = chain.first() {
        let held = Certificate::parse(own).and_then(|own| own.holds(SystemTime::now()));
        held.map_err(|error| failed(format!("the certificate in {}: {error}", cert.display())))?;
    }
    let key = read_key(key).map_err(|error| failed(error.to_string()))?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused(cert))?
        .with_root_certificates(authorities)
        .with_client_auth_cert(chain, key)
        .map_err(refused(cert))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Connects.
///
/// # Errors
/// What the system or TLS says; the fault has it in words.
pub async fn connect(connector: TlsConnector, server: Server, fault: Fault) -> io::Result<Watched> {
    let connecting = async {
        let Server { name, port } = server;
        let stream = TcpStream::connect((&*name.to_str(), port)).await?;
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
fn words(error: &io::Error) -> Option<String> {
    let tls = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match tls {
        rustls::Error::InvalidCertificate(bad) => match bad {
            Bad::Expired | Bad::ExpiredContext { .. } => {
                "its certificate has expired, or the clock here is wrong".into()
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "its certificate does not hold yet, or the clock here is wrong".into()
            }
            Bad::UnknownIssuer => {
                "its certificate is not signed by an authority of --ca: give the ca.pem of its lab"
                    .into()
            }
            Bad::BadSignature => "its certificate is forged, or of another authority that has the \
                                  name of the one in --ca: give the ca.pem of its lab"
                .into(),
            Bad::NotValidForName => "its certificate is for another name".into(),
            Bad::NotValidForNameContext { presented, .. } => format!(
                "its certificate is for another name ({}): give that as --server, or make a \
                 certificate with this one (linkctl pki server)",
                presented.iter().map(|name| bare(name)).collect::<Vec<_>>().join(", ")
            ),
            bad => format!("its certificate is no good: {bad}"),
        },
        rustls::Error::AlertReceived(alert) => match alert {
            Alert::CertificateExpired => {
                "it says that your certificate has expired (linkctl pki show)".into()
            }
            Alert::UnknownCA => "it does not know the authority that signed your certificate: \
                                 give one of its lab as --cert and --key"
                .into(),
            Alert::CertificateRequired => "it asks for a certificate, and got none".into(),
            Alert::DecryptError => "your certificate is of another authority, of the same name as \
                                    the one it knows: give one of its lab as --cert and --key"
                .into(),
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateRevoked => {
                format!("it does not take your certificate ({alert:?}): is it one of a client?")
            }
            alert => format!("it ended the TLS handshake ({alert:?})"),
        },
        rustls::Error::InvalidMessage(_) => {
            "what answers there does not speak TLS: is that the port of linkd --listen?".into()
        }
        other => other.to_string(),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_and_a_port() {
        for text in ["linkemu.lab:8443", "10.0.0.1:1", "[fd00::1]:65535", "localhost:8443"] {
            assert_eq!(text.parse::<Server>().map(|server| server.to_string()), Ok(text.into()));
        }
        for text in [
            "",
            ":",
            "host",
            "host:",
            "host:0",
            ":8443",
            "host:65536",
            "fd00::1:8443",
            "[host]:1",
            "[10.0.0.1]:1",
            "a b:1",
            "https://host:1",
            "host:+1x",
        ] {
            assert!(text.parse::<Server>().is_err(), "{text}");
        }
    }
}
