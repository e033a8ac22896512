// SPDX-License-Identifier: Apache-2.0
//! Key and X.509 certificate of the server. The server makes them at its start, and clients trust
//! exactly this certificate.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{CertifiedKey, generate_simple_self_signed};

/// Name in the X.509 certificate.
pub const SERVER_NAME: &str = "quicflow.test";
/// Application protocol in the handshake.
pub const PROTOCOL: &[u8] = b"quicflow";

/// A key and its X.509 certificate, both in DER.
pub struct Secret {
    pub x509: Vec<u8>,
    pub key: Vec<u8>,
}

impl Secret {
    /// Makes a key, and writes the X.509 certificate to a file for the clients.
    pub fn create(x509_file: &Path) -> Result<Self> {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed([SERVER_NAME.to_owned()]).context("make a key")?;
        let secret = Self { x509: cert.der().to_vec(), key: signing_key.serialize_der() };
        // Written under another name first, so that a client never reads a part of it.
        let partial = x509_file.with_extension("partial");
        fs::write(&partial, &secret.x509)
            .with_context(|| format!("write {}", partial.display()))?;
        fs::rename(&partial, x509_file)
            .with_context(|| format!("write {}", x509_file.display()))?;
        Ok(secret)
    }
}
