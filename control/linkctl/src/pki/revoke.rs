// SPDX-License-Identifier: Apache-2.0
//! `linkctl pki revoke`: the revocation list of an authority.

use super::authority::Authority;
use super::failed::{at, failed};
use super::files;
use super::show::parsed;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use identity::{Revoked, read_crls};
use profile::counted;
use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use time::OffsetDateTime;

#[derive(Serialize)]
struct RevokedView<'a> {
    list: &'a Path,
    revoked: usize,
}

pub fn revoke(context: &Context, directory: &Path, files: &[PathBuf]) -> Result<(), Failure> {
    let Authority { known, issuer } = Authority::read(directory)?;
    let list = directory.join("ca.crl");
    let mut revoked = match list.exists() {
        false => Vec::new(),
        true => {
            let lists = read_crls(&list).map_err(failed)?;
            let entries = lists.iter().map(|der| identity::revoked(der));
            entries.collect::<Result<Vec<_>, _>>().map_err(|error| at(&list, &error))?.concat()
        }
    };
    let now = OffsetDateTime::from(SystemTime::now());
    for file in files {
        for found in parsed(file)? {
            if found.authority || known.names.first() != Some(&found.issuer) {
                let issuer = &found.issuer;
                let why =
                    format!("{issuer:?} signed it: only the authority that did can revoke it");
                return Err(at(file, &why));
            }
            if !revoked.iter().any(|known| known.serial == found.raw_serial) {
                revoked.push(Revoked { serial: found.raw_serial, at: now.unix_timestamp() });
            }
        }
    }
    let entry = |revoked: &Revoked| {
        Ok(RevokedCertParams {
            serial_number: revoked.serial.clone().into(),
            revocation_time: OffsetDateTime::from_unix_timestamp(revoked.at).map_err(failed)?,
            reason_code: None,
            invalidity_date: None,
        })
    };
    let params = CertificateRevocationListParams {
        this_update: now,
        next_update: OffsetDateTime::from_unix_timestamp(known.not_after).map_err(failed)?,
        // Numbers of successive lists must increase (RFC 5280, section 5.2.3).
        crl_number: now.unix_timestamp().unsigned_abs().into(),
        issuing_distribution_point: None,
        revoked_certs: revoked.iter().map(entry).collect::<Result<_, Failure>>()?,
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let made = params.signed_by(&issuer).map_err(failed)?;
    files::replace(&list, &made.pem().map_err(failed)?)?;
    match context.output {
        Output::Json => output::json(&RevokedView { list: &list, revoked: revoked.len() }),
        Output::Text => output::text(&format!(
            "{0} revokes {1}; copy it to linkd's machine, give it there as \
             --tls-client-crl, and have linkd read it: systemctl reload linkd",
            list.display(),
            counted(revoked.len(), "certificate", "certificates")
        )),
    }
}
