// SPDX-License-Identifier: Apache-2.0
//! An authority of a directory, and certificates that it signs.

use super::failed::{at, failed};
use super::files::{Made, write};
use crate::failure::Failure;
use identity::{Certificate, read_certificates, read_key};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData,
};
use std::path::Path;
use std::time::SystemTime;
use time::{Duration, OffsetDateTime};

/// Start of the validity before the time of signing, as clocks differ.
const BACK: Duration = Duration::hours(1);
const DAY: Duration = Duration::days(1);

/// Parameters that all certificates have.
pub fn params(name: &str, days: u16) -> Result<CertificateParams, Failure> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::from(SystemTime::now());
    params.not_before = now.checked_sub(BACK).ok_or_else(|| failed("the clock is wrong"))?;
    params.not_after =
        now.checked_add(DAY * i32::from(days)).ok_or_else(|| failed("the clock is wrong"))?;
    Ok(params)
}

/// Certificate and key that sign others.
pub struct Authority {
    pub known: Certificate,
    pub issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads `ca.pem` and `ca.key`, and checks that they belong together.
    pub fn read(directory: &Path) -> Result<Self, Failure> {
        let (cert, key) = (directory.join("ca.pem"), directory.join("ca.key"));
        let missing = |error: identity::PemError| {
            failed(error).hint("make an authority first: linkctl pki ca --name NAME -d DIR")
        };
        let found = read_certificates(&cert).map_err(missing)?;
        let private = read_key(&key).map_err(missing)?;
        let Some(found) = found.first() else { return Err(failed("no certificate")) };
        let known = Certificate::parse(found).map_err(|error| at(&cert, &error))?;
        if !known.authority {
            return Err(at(&cert, &"that is no authority's certificate"));
        }
        known.holds(SystemTime::now()).map_err(|error| at(&cert, &error))?;
        let private = KeyPair::try_from(&private).map_err(|error| at(&key, &error))?;
        if private.subject_public_key_info() != known.public_key {
            let other = format!("it is not the key of the certificate in {}", cert.display());
            return Err(at(&key, &other));
        }
        let issuer = Issuer::from_ca_cert_der(found, private).map_err(failed)?;
        Ok(Self { known, issuer })
    }
}

/// Signs with the authority of a directory, and writes certificate and key.
pub fn signed(
    authority: &Path,
    mut params: CertificateParams,
    name: &str,
    directory: Option<&Path>,
    force: bool,
) -> Result<Made, Failure> {
    let Authority { known, issuer } = Authority::read(authority)?;
    if params.not_after.unix_timestamp() > known.not_after {
        let (_, until) = known.validity();
        let why = format!(
            "it holds until {until}, less long than what it is to sign: give fewer --days, or \
             make an authority anew"
        );
        return Err(at(&authority.join("ca.pem"), &why));
    }
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(failed)?;
    let made = params.signed_by(&key, &issuer).map_err(failed)?;
    write(directory.unwrap_or(authority), name, &made.pem(), &key.serialize_pem(), force)
}
