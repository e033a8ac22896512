// SPDX-License-Identifier: Apache-2.0
//! What a certificate revocation list has (RFC 5280, section 5), for another list to go on from.

use crate::certificate::CertificateError;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

/// A certificate that is revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// Its serial number, big-endian.
    pub serial: Vec<u8>,
    /// Since when, in seconds since 1970, UTC.
    pub at: i64,
}

/// The certificates that a list in DER revokes.
///
/// # Errors
/// [`CertificateError::Unreadable`].
pub fn revoked(list: &[u8]) -> Result<Vec<Revoked>, CertificateError> {
    let (_, list) = CertificateRevocationList::from_der(list)
        .map_err(|error| CertificateError::Unreadable(error.to_string()))?;
    let entries = list.iter_revoked_certificates().map(|entry| Revoked {
        serial: entry.raw_serial().to_vec(),
        at: entry.revocation_date.timestamp(),
    });
    Ok(entries.collect())
}
