// SPDX-License-Identifier: Apache-2.0
//! The certificates of linkd for TCP, and the accepted client certificates.
//!
//! TLS 1.3 only, and only with a client certificate that an authority of `client_ca` has signed and
//! that no list of `client_crl` revokes. Sessions are not resumed: each connection presents its
//! certificate, so that an expired one, or one of a removed authority, cannot return with a ticket.
//! Open connections are checked again after each reload ([`Keys::verify`]).

use identity::{Certificate, CertificateError, PemError, read_certificates, read_crls, read_key};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientCertVerifierBuilder, NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::{RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// HTTP/2, the only protocol of gRPC.
pub(crate) const HTTP2: &[u8] = b"h2";
/// The protocols of browsers.
const WEB: [&[u8]; 2] = [HTTP2, b"http/1.1"];

/// Where the certificates stand, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Ours, and what leads from it to the authority.
    pub cert: PathBuf,
    /// Its key. Only its owner and group may read it.
    pub key: PathBuf,
    /// The authorities that sign client certificates.
    pub client_ca: PathBuf,
    /// Files with certificate revocation lists. Without any, no certificate is revoked; with
    /// some, each authority needs a list.
    pub client_crl: Vec<PathBuf>,
}

/// Why there can be no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error(transparent)]
    Pem(#[from] PemError),
    /// A certificate that does not hold.
    #[error("the certificate in {}: {source}", path.display())]
    Certificate { path: PathBuf, source: CertificateError },
    /// A certificate and the key of another.
    #[error("the key in {} is not that of the certificate in {}: give the two that were made together", key.display(), cert.display())]
    Mismatch { cert: PathBuf, key: PathBuf },
    #[error("the certificate in {} is not that of an authority: give the one that signs the callers' certificates (linkctl pki ca)", .0.display())]
    NoAuthority(PathBuf),
    /// rustls does not take it.
    #[error("cannot serve TLS with {}: {source}", path.display())]
    Refused { path: PathBuf, source: rustls::Error },
    /// No authority can be used.
    #[error("cannot check callers with {}: {why}", path.display())]
    Verifier { path: PathBuf, why: String },
}

/// The current keys, from the last valid read of the files.
#[derive(Debug)]
pub(crate) struct Keys {
    files: TlsFiles,
    current: RwLock<Current>,
    reloads: watch::Sender<()>,
}

#[derive(Clone, Debug)]
struct Current {
    config: Arc<ServerConfig>,
    /// For browsers: a certificate is optional.
    web: Arc<ServerConfig>,
    /// Names and addresses in our certificate.
    hosts: Arc<[String]>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Keys {
    pub fn read(files: TlsFiles) -> Result<Self, TlsError> {
        let current = RwLock::new(Current::read(&files)?);
        Ok(Self { files, current, reloads: watch::Sender::new(()) })
    }

    fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For the next handshake.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.current().config
    }

    /// For the next handshake with a browser.
    pub fn web_config(&self) -> Arc<ServerConfig> {
        self.current().web
    }

    /// The names and addresses of hosts in our certificate.
    pub fn hosts(&self) -> Arc<[String]> {
        self.current().hosts
    }

    /// Whether the chain of a caller, its own certificate first, holds at an instant.
    pub fn verify(
        &self,
        chain: &[CertificateDer<'_>],
        now: SystemTime,
    ) -> Result<(), rustls::Error> {
        let [own, others @ ..] = chain else { return Err(rustls::Error::NoCertificatesPresented) };
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        self.current().verifier.verify_client_cert(own, others, now).map(drop)
    }

    /// Reads the files again. If they are not valid, the current keys stay.
    pub fn reload(&self) -> Result<(), TlsError> {
        let current = Current::read(&self.files)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
        self.reloads.send_replace(());
        Ok(())
    }

    pub fn reloads(&self) -> watch::Receiver<()> {
        self.reloads.subscribe()
    }
}

impl Current {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let TlsFiles { cert, key, client_ca, client_crl } = files;
        let callers = verifier(files)?;
        let chain = read_certificates(cert)?;
        let mut hosts = Vec::new();
        for (at, certificate) in chain.iter().enumerate() {
            let held = held(cert, certificate, SystemTime::now())?;
            if at == 0 {
                hosts = held.hosts;
            }
        }
        let build = |verifier: ClientCertVerifierBuilder| {
            verifier.build().map_err(|error| {
                let is_list = matches!(error, VerifierBuilderError::InvalidCrl(_));
                let path = if is_list { client_crl.first() } else { None }.unwrap_or(client_ca);
                TlsError::Verifier { path: path.clone(), why: error.to_string() }
            })
        };
        let verifier = build(callers.clone())?;
        let key = read_key(key)?;
        let web = build(callers.allow_unauthenticated())?;
        let web = config(files, web, chain.clone(), key.clone_key(), &WEB)?;
        let config = config(files, verifier.clone(), chain, key, &[HTTP2])?;
        let (config, web) = (Arc::new(config), Arc::new(web));
        Ok(Self { config, web, hosts: hosts.into(), verifier })
    }
}

fn config(
    files: &TlsFiles,
    verifier: Arc<dyn ClientCertVerifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    protocols: &[&[u8]],
) -> Result<ServerConfig, TlsError> {
    let refused = |source| TlsError::Refused { path: files.cert.clone(), source };
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|source| match source {
            rustls::Error::InconsistentKeys(_) => {
                TlsError::Mismatch { cert: files.cert.clone(), key: files.key.clone() }
            }
            source => refused(source),
        })?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Checks callers by the authorities and the revocation lists. Of each chain all but the
/// authority has to be in no list; a list that is past its next update counts.
fn verifier(files: &TlsFiles) -> Result<ClientCertVerifierBuilder, TlsError> {
    let TlsFiles { client_ca, client_crl, .. } = files;
    let mut authorities = RootCertStore::empty();
    for authority in read_certificates(client_ca)? {
        // rustls checks neither in trusted certificates.
        if !held(client_ca, &authority, SystemTime::now())?.authority {
            return Err(TlsError::NoAuthority(client_ca.clone()));
        }
        let refused = |source| TlsError::Refused { path: client_ca.clone(), source };
        authorities.add(authority).map_err(refused)?;
    }
    let provider = Arc::new(ring::default_provider());
    let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
    for path in client_crl {
        verifier = verifier.with_crls(read_crls(path)?);
    }
    Ok(verifier)
}

/// A certificate that holds at this instant.
fn held(path: &Path, der: &[u8], now: SystemTime) -> Result<Certificate, TlsError> {
    let wrong = |source| TlsError::Certificate { path: path.into(), source };
    let certificate = Certificate::parse(der).map_err(wrong)?;
    certificate.holds(now).map_err(wrong)?;
    Ok(certificate)
}

/// Why a handshake failed or a certificate is no longer valid, in words.
pub(crate) fn reason(error: &rustls::Error) -> String {
    use rustls::{AlertDescription as Alert, CertificateError as Bad, Error as Tls};
    match error {
        Tls::NoCertificatesPresented => "no certificate".into(),
        Tls::InvalidCertificate(bad) => match bad {
            Bad::Expired | Bad::ExpiredContext { .. } => "the certificate has expired".into(),
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "the certificate does not hold yet".into()
            }
            Bad::Revoked => "the certificate is revoked".into(),
            Bad::UnknownRevocationStatus => {
                "no list of --tls-client-crl is of the authority of the certificate".into()
            }
            Bad::UnknownIssuer => {
                "the certificate is self-signed, or of an authority that is not in --tls-client-ca"
                    .into()
            }
            Bad::BadSignature => {
                "the certificate is forged, or of another authority that has the name of one in \
                 --tls-client-ca"
                    .into()
            }
            Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. } => {
                "the certificate is not one of a client".into()
            }
            bad => format!("the certificate is no good: {bad}"),
        },
        Tls::AlertReceived(
            alert @ (Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::DecryptError
            | Alert::UnsupportedCertificate),
        ) => format!("the caller does not take linkd's certificate ({alert:?})"),
        Tls::InvalidMessage(what) => format!("that is not TLS ({what:?})"),
        tls => tls.to_string(),
    }
}
