// SPDX-License-Identifier: Apache-2.0
//! The server's end: its certificate, and the accepted client certificates.

use crate::HTTP2;
use identity::{Certificate, CertificateError, PemError, read_certificates, read_crls, read_key};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientCertVerifierBuilder, NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::{RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Where the certificates stand, in PEM.
#[derive(Clone, Debug)]
pub struct Files {
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
pub enum FilesError {
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

/// Valid contents of [`Files`].
#[derive(Debug)]
pub struct Keys {
    files: Files,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    callers: ClientCertVerifierBuilder,
    /// Names and addresses of hosts in our certificate.
    pub hosts: Vec<String>,
    pub verifier: Arc<dyn ClientCertVerifier>,
}

impl Keys {
    /// Reads the files, and checks that all certificates are valid now.
    ///
    /// # Errors
    /// [`FilesError`].
    pub fn read(files: &Files) -> Result<Self, FilesError> {
        let Files { cert, key, .. } = files;
        let callers = authorities(files)?;
        let chain = read_certificates(cert)?;
        let mut hosts = Vec::new();
        for (at, certificate) in chain.iter().enumerate() {
            let held = held(cert, certificate, SystemTime::now())?;
            if at == 0 {
                hosts = held.hosts;
            }
        }
        let verifier = verifier(files, callers.clone())?;
        let key = read_key(key)?;
        Ok(Self { files: files.clone(), chain, key, callers, hosts, verifier })
    }

    /// For callers with a certificate. Sessions are not resumed: each connection presents its
    /// certificate, so that an expired one, or one of a removed authority, cannot return with a
    /// ticket.
    ///
    /// # Errors
    /// If key and certificate do not fit.
    pub fn config(&self) -> Result<ServerConfig, FilesError> {
        self.with(self.verifier.clone(), &[HTTP2])
    }

    /// As [`Keys::config`], but a certificate is optional.
    ///
    /// # Errors
    /// If key and certificate do not fit.
    pub fn optional(&self, protocols: &[&[u8]]) -> Result<ServerConfig, FilesError> {
        let callers = self.callers.clone().allow_unauthenticated();
        self.with(verifier(&self.files, callers)?, protocols)
    }

    fn with(
        &self,
        verifier: Arc<dyn ClientCertVerifier>,
        protocols: &[&[u8]],
    ) -> Result<ServerConfig, FilesError> {
        let Files { cert, key, .. } = &self.files;
        let refused = |source| FilesError::Refused { path: cert.clone(), source };
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(refused)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|source| match source {
                rustls::Error::InconsistentKeys(_) => {
                    FilesError::Mismatch { cert: cert.clone(), key: key.clone() }
                }
                source => refused(source),
            })?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

fn verifier(
    files: &Files,
    callers: ClientCertVerifierBuilder,
) -> Result<Arc<dyn ClientCertVerifier>, FilesError> {
    let Files { client_ca, client_crl, .. } = files;
    callers.build().map_err(|error| {
        let is_list = matches!(error, VerifierBuilderError::InvalidCrl(_));
        let path = if is_list { client_crl.first() } else { None }.unwrap_or(client_ca);
        FilesError::Verifier { path: path.clone(), why: error.to_string() }
    })
}

/// Checks callers by the authorities and the revocation lists. Of each chain all but the
/// authority has to be in no list; a list that is past its next update counts.
fn authorities(files: &Files) -> Result<ClientCertVerifierBuilder, FilesError> {
    let Files { client_ca, client_crl, .. } = files;
    let mut authorities = RootCertStore::empty();
    for authority in read_certificates(client_ca)? {
        // rustls checks neither in trusted certificates.
        if !held(client_ca, &authority, SystemTime::now())?.authority {
            return Err(FilesError::NoAuthority(client_ca.clone()));
        }
        let refused = |source| FilesError::Refused { path: client_ca.clone(), source };
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
fn held(path: &Path, der: &[u8], now: SystemTime) -> Result<Certificate, FilesError> {
    let wrong = |source| FilesError::Certificate { path: path.into(), source };
    let certificate = Certificate::parse(der).map_err(wrong)?;
    certificate.holds(now).map_err(wrong)?;
    Ok(certificate)
}

/// Why a handshake failed or a client's certificate is no longer valid, in words.
#[must_use]
pub fn reason(error: &rustls::Error) -> String {
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
        ) => format!("the caller does not take this server's certificate ({alert:?})"),
        Tls::InvalidMessage(what) => format!("that is not TLS ({what:?})"),
        tls => tls.to_string(),
    }
}
