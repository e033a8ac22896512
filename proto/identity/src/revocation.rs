// SPDX-License-Identifier: Apache-2.0
//! The entries of a certificate revocation list (RFC 5280, section 5), to extend it by a new list.

use crate::certificate::CertificateError;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    pub serial: Vec<u8>,
    /// Time of revocation, seconds since 1970, UTC.
    pub at: i64,
}

/// Certificates revoked by a list in DER.
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
