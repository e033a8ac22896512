// SPDX-License-Identifier: Apache-2.0
//! Who a certificate says its holder is, and the files that certificates and keys
//! stand in.
//!
//! The holder's name is the common name of the subject; the role is a URI among the
//! subject's alternative names, `linkemu:role:operator` (docs/adr/0022). Whether a
//! certificate is to be believed is decided elsewhere, by the TLS handshake: nothing
//! here looks at a signature.

mod certificate;
mod pem;
mod revocation;
mod role;

pub use certificate::{Certificate, CertificateError, Identity, IdentityError};
pub use pem::{PemError, read_certificates, read_crls, read_key};
pub use revocation::{Revoked, revoked};
pub use role::{ROLE_URI, Role, UnknownRole};
