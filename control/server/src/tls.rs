// SPDX-License-Identifier: Apache-2.0
//! The certificates that linkd serves TCP with, and whom it believes.
//!
//! TLS 1.3 only, and only with a certificate of the caller that an authority of
//! `client_ca` signed. No session is resumed: each connection shows its certificate
//! anew, so that an expired one, or one whose authority was taken away, does not come
//! back by a ticket.

use identity::{Certificate, CertificateError, PemError, read_certificates, read_key};
use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

/// HTTP/2, all that gRPC speaks.
const PROTOCOL: &[u8] = b"h2";

/// Where the certificates stand, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Ours, and what leads from it to the authority.
    pub cert: PathBuf,
    /// Its key; nobody but its owner and group may read it.
    pub key: PathBuf,
    /// The authorities whose certificates callers may have.
    pub client_ca: PathBuf,
}

/// Why there can be no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// A certificate that does not hold.
    #[error("the certificate in {}: {source}", path.display())]
    Certificate {
        /// Where it stands.
        path: PathBuf,
        /// What is wrong with it.
        source: CertificateError,
    },
    /// A certificate and the key of another.
    #[error("the key in {} is not that of the certificate in {}: give the two that were made together", key.display(), cert.display())]
    Mismatch {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// No authority.
    #[error("the certificate in {} is not that of an authority: give the one that signs the callers' certificates (linkctl cert ca)", .0.display())]
    NoAuthority(PathBuf),
    /// rustls does not take it.
    #[error("cannot serve TLS with {}: {source}", path.display())]
    Refused {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// No authority can be used.
    #[error("cannot check callers with {}: {why}", path.display())]
    Verifier {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// What is in force, from the files as they were read last.
#[derive(Debug)]
pub(crate) struct Keys {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
}

impl Keys {
    /// Reads the files.
    pub fn read(files: TlsFiles) -> Result<Self, TlsError> {
        let config = RwLock::new(Arc::new(config(&files)?));
        Ok(Self { files, config })
    }

    /// For the next handshake.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again; what is in force stays if they are no good.
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = Arc::new(config(&self.files)?);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }
}

fn config(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let TlsFiles { cert, key, client_ca } = files;
    let refused = |path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::Refused { path, source }
    };
    let now = SystemTime::now();
    let provider = Arc::new(ring::default_provider());
    let mut authorities = RootCertStore::empty();
    for authority in read_certificates(client_ca)? {
        // rustls looks at neither in what it is told to trust.
        if !held(client_ca, &authority, now)?.authority {
            return Err(TlsError::NoAuthority(client_ca.clone()));
        }
        authorities.add(authority).map_err(refused(client_ca))?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider.clone())
            .build()
            .map_err(|error| TlsError::Verifier {
                path: client_ca.clone(),
                why: error.to_string(),
            })?;
    let chain = read_certificates(cert)?;
    for certificate in &chain {
        held(cert, certificate, now)?;
    }
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused(cert))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, read_key(key)?)
        .map_err(|source| match source {
            rustls::Error::InconsistentKeys(_) => {
                TlsError::Mismatch { cert: cert.clone(), key: key.clone() }
            }
            source => refused(cert)(source),
        })?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// A certificate that holds at this instant.
fn held(path: &Path, der: &[u8], now: SystemTime) -> Result<Certificate, TlsError> {
    let wrong = |source| TlsError::Certificate { path: path.into(), source };
    let certificate = Certificate::parse(der).map_err(wrong)?;
    certificate.holds(now).map_err(wrong)?;
    Ok(certificate)
}
