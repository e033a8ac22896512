// SPDX-License-Identifier: Apache-2.0
//! The identity in a certificate, and PEM files with certificates and keys.
//!
//! The holder's name is the common name of the subject. The role is a URI among the subject's
//! alternative names, `linkemu:role:operator` (docs/adr/0022). This crate verifies no signature:
//! the TLS handshake decides whether a certificate is trusted.

mod certificate;
mod pem;
mod revocation;
mod role;

pub use certificate::{Certificate, CertificateError, Identity, IdentityError};
pub use pem::{PemError, read_certificates, read_crls, read_key};
pub use revocation::{Revoked, revoked};
pub use role::{ROLE_URI, Role, UnknownRole};
