// SPDX-License-Identifier: Apache-2.0
//! The certificates of linkd for TCP, and the accepted client certificates.
//!
//! Open connections are checked again after each reload ([`Keys::verify`]).

use ::tls::server;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

pub(crate) use ::tls::HTTP2;
pub(crate) use ::tls::server::reason;
pub use ::tls::server::{Files as TlsFiles, FilesError as TlsError};

/// The protocols of browsers.
const WEB: [&[u8]; 2] = [HTTP2, b"http/1.1"];

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
        let keys = server::Keys::read(files)?;
        let (config, web) = (Arc::new(keys.config()?), Arc::new(keys.optional(&WEB)?));
        Ok(Self { config, web, hosts: keys.hosts.into(), verifier: keys.verifier })
    }
}
