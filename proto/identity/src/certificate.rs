// SPDX-License-Identifier: Apache-2.0
//! The content of a certificate. Times are seconds since 1970, UTC. All texts are untrusted: the
//! creator of the certificate chose them.

use crate::role::{ROLE_URI, Role};
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use x509_parser::x509::X509Name;

/// Maximum length of a common name, from RFC 5280 (`ub-common-name`).
const NAME_CHARS: usize = 64;

/// The fields of an X.509 certificate that linkemu uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Common names of the subject.
    pub names: Vec<String>,
    /// Common name of the issuer, or its whole distinguished name if it has none.
    pub issuer: String,
    /// Names and addresses of hosts.
    pub hosts: Vec<String>,
    /// Roles, as written in the certificate.
    pub roles: Vec<String>,
    /// True if it may issue certificates.
    pub authority: bool,
    /// True if the holder may be a TLS client: it has the extended key usage clientAuth and, if it
    /// has a key usage, digitalSignature (RFC 5280, sections 4.2.1.12 and 4.2.1.3).
    pub client: bool,
    /// Serial number in hexadecimal.
    pub serial: String,
    /// Serial number as in the certificate: big-endian.
    pub raw_serial: Vec<u8>,
    /// Public key, as `SubjectPublicKeyInfo` in DER.
    pub public_key: Vec<u8>,
    /// First second of validity.
    pub not_before: i64,
    pub not_after: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    #[error("it cannot be read as X.509: {0}")]
    Unreadable(String),
    /// Not yet valid, or expired.
    #[error("{0}")]
    Time(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Common name: 1 to 64 characters, no control characters.
    pub name: String,
    pub role: Role,
}

/// Reason why a certificate does not identify a holder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("the certificate has {0} common names in its subject, not one")]
    Names(usize),
    /// The name cannot be displayed safely.
    #[error(
        "the certificate's common name is empty, longer than {NAME_CHARS} characters, or has control characters"
    )]
    BadName,
    #[error(
        "the certificate of {0:?} is not one of a client: it needs the extended key usage clientAuth and, if its key usage is limited, digitalSignature (linkctl pki client)"
    )]
    Purpose(String),
    #[error(
        "the certificate of {0:?} gives no role: its subject alternative names need one of URI:{ROLE_URI}viewer, URI:{ROLE_URI}operator and URI:{ROLE_URI}admin (linkctl pki client --role)"
    )]
    NoRole(String),
    #[error("the certificate of {0:?} gives {1} roles: it has to give one")]
    Roles(String, usize),
    #[error("the certificate of {0:?} gives a role that is not viewer, operator or admin")]
    UnknownRole(String),
}

impl Certificate {
    /// Parses a certificate in DER.
    ///
    /// # Errors
    /// [`CertificateError::Unreadable`].
    pub fn parse(der: &[u8]) -> Result<Self, CertificateError> {
        let bad = |error: &dyn std::fmt::Display| CertificateError::Unreadable(error.to_string());
        let (rest, found) = X509Certificate::from_der(der).map_err(|error| bad(&error))?;
        if !rest.is_empty() {
            return Err(CertificateError::Unreadable("something follows it".into()));
        }
        let (mut hosts, mut roles) = (Vec::new(), Vec::new());
        let names = found.subject_alternative_name().map_err(|error| bad(&error))?;
        for name in names.iter().flat_map(|extension| &extension.value.general_names) {
            match name {
                GeneralName::DNSName(name) => hosts.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => hosts.extend(address(bytes)),
                GeneralName::URI(uri) => {
                    roles.extend(uri.strip_prefix(ROLE_URI).map(ToOwned::to_owned));
                }
                _ => {}
            }
        }
        let constraints = found.basic_constraints().map_err(|error| bad(&error))?;
        let purposes = found.extended_key_usage().map_err(|error| bad(&error))?;
        let usage = found.key_usage().map_err(|error| bad(&error))?;
        Ok(Self {
            names: common_names(found.subject()),
            issuer: common_names(found.issuer())
                .into_iter()
                .next()
                .unwrap_or_else(|| found.issuer().to_string()),
            hosts,
            roles,
            authority: constraints.is_some_and(|extension| extension.value.ca),
            client: purposes.is_some_and(|extension| extension.value.client_auth)
                && usage.is_none_or(|extension| extension.value.digital_signature()),
            serial: found.raw_serial_as_string(),
            raw_serial: found.raw_serial().to_vec(),
            public_key: found.public_key().raw.to_vec(),
            not_before: found.validity().not_before.timestamp(),
            not_after: found.validity().not_after.timestamp(),
        })
    }

    /// The holder of the certificate.
    ///
    /// # Errors
    /// [`IdentityError`] unless it is a client certificate with one name and one role.
    pub fn identity(&self) -> Result<Identity, IdentityError> {
        let [name] = &*self.names else { return Err(IdentityError::Names(self.names.len())) };
        let length = name.chars().count();
        if !(1..=NAME_CHARS).contains(&length) || name.chars().any(char::is_control) {
            return Err(IdentityError::BadName);
        }
        let name = name.clone();
        if !self.client {
            return Err(IdentityError::Purpose(name));
        }
        match &*self.roles {
            [] => Err(IdentityError::NoRole(name)),
            [role] => match role.parse() {
                Ok(role) => Ok(Identity { name, role }),
                Err(_) => Err(IdentityError::UnknownRole(name)),
            },
            roles => Err(IdentityError::Roles(name, roles.len())),
        }
    }

    /// Checks that the certificate is valid at `now`.
    ///
    /// # Errors
    /// [`CertificateError::Time`], with the limit.
    pub fn holds(&self, now: SystemTime) -> Result<(), CertificateError> {
        let seconds = seconds(now);
        if seconds < self.not_before {
            let from = instant(self.not_before);
            return Err(CertificateError::Time(format!(
                "it holds from {from} on, and it is {}: is the clock right?",
                instant(seconds)
            )));
        }
        if seconds > self.not_after {
            let until = instant(self.not_after);
            return Err(CertificateError::Time(format!(
                "it expired at {until}: make another, or is the clock wrong?"
            )));
        }
        Ok(())
    }

    /// Time from `now` until the certificate expires; zero if it is not valid.
    pub fn left(&self, now: SystemTime) -> Duration {
        // The last second of validity is included.
        let end = u64::try_from(self.not_after).unwrap_or_default().saturating_add(1);
        let end = UNIX_EPOCH.checked_add(Duration::from_secs(end));
        end.map_or(Duration::MAX, |end| end.duration_since(now).unwrap_or_default())
    }

    /// First and last second of validity, as text.
    pub fn validity(&self) -> (String, String) {
        (instant(self.not_before), instant(self.not_after))
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn instant(seconds: i64) -> String {
    // The largest time in RFC 3339; X.509 times end with the year 9999.
    let seconds = u64::try_from(seconds).unwrap_or_default().min(253_402_300_799);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}

/// All common names. One that is not text counts as an empty name.
fn common_names(name: &X509Name<'_>) -> Vec<String> {
    name.iter_common_name().map(|name| name.as_str().unwrap_or_default().to_owned()).collect()
}

fn address(bytes: &[u8]) -> Option<String> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let address = four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
    address.ok().map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
    use rcgen::KeyUsagePurpose::{DigitalSignature, KeyEncipherment};
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    fn made(name: Option<&str>, uris: &[&str]) -> Certificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(name) = name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        let uri = |uri: &&str| SanType::URI((*uri).try_into().unwrap());
        params.subject_alt_names = uris.iter().map(uri).collect();
        params.extended_key_usages = vec![ClientAuth];
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        Certificate::parse(made.der()).unwrap()
    }

    #[test]
    fn certificate_needs_one_name_and_one_role() {
        let found = made(Some("ci-7"), &["spiffe://lab/x", "linkemu:role:operator"]).identity();
        assert_eq!(found, Ok(Identity { name: "ci-7".into(), role: Role::Operator }));
        let long = "x".repeat(65);
        let name = || "bob".to_owned();
        for (name, uris, expected) in [
            (None, &["linkemu:role:admin"][..], IdentityError::Names(0)),
            (Some("a\nb"), &["linkemu:role:admin"], IdentityError::BadName),
            (Some(""), &["linkemu:role:admin"], IdentityError::BadName),
            (Some(&long), &["linkemu:role:admin"], IdentityError::BadName),
            (Some("bob"), &[], IdentityError::NoRole(name())),
            (Some("bob"), &["LINKEMU:ROLE:admin"], IdentityError::NoRole(name())),
            (Some("bob"), &["linkemu:role:root"], IdentityError::UnknownRole(name())),
            (Some("bob"), &["linkemu:role:Admin"], IdentityError::UnknownRole(name())),
            (
                Some("bob"),
                &["linkemu:role:viewer", "linkemu:role:admin"],
                IdentityError::Roles(name(), 2),
            ),
        ] {
            assert_eq!(made(name, uris).identity(), Err(expected));
        }
    }

    #[test]
    fn certificate_needs_client_purposes_to_identify_a_client() {
        for (purposes, usages, is_client) in [
            (&[ClientAuth][..], &[][..], true),
            (&[ServerAuth, ClientAuth], &[DigitalSignature], true),
            (&[ClientAuth], &[KeyEncipherment], false),
            (&[ServerAuth], &[DigitalSignature], false),
            (&[Any], &[DigitalSignature], false),
            (&[], &[], false),
        ] {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, "bob");
            let uri = "linkemu:role:admin".try_into().unwrap();
            params.subject_alt_names = vec![SanType::URI(uri)];
            params.extended_key_usages = purposes.to_vec();
            params.key_usages = usages.to_vec();
            let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let found = Certificate::parse(made.der()).unwrap().identity();
            let refused = Err(IdentityError::Purpose("bob".into()));
            let expected = if is_client {
                Ok(Identity { name: "bob".into(), role: Role::Admin })
            } else {
                refused
            };
            assert_eq!(found, expected, "{purposes:?}, {usages:?}");
        }
    }

    #[test]
    fn damaged_certificate_is_refused_without_panic() {
        let mut params = CertificateParams::new(vec!["a.lab".into(), "10.0.0.1".into()]).unwrap();
        params.subject_alt_names.push(SanType::URI("linkemu:role:viewer".try_into().unwrap()));
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let der = made.der().to_vec();
        assert_eq!(Certificate::parse(&der).unwrap().hosts, ["a.lab", "10.0.0.1"]);
        for length in 0..der.len() {
            assert!(Certificate::parse(&der[..length]).is_err(), "{length}");
        }
        for at in 0..der.len() {
            for bit in 0..8 {
                let mut changed = der.clone();
                changed[at] ^= 1 << bit;
                if let Ok(found) = Certificate::parse(&changed) {
                    let _ = (found.identity(), found.holds(SystemTime::now()), found.validity());
                }
            }
        }
        let longer = [&*der, &[0]].concat();
        assert!(Certificate::parse(&longer).is_err());
    }
}
