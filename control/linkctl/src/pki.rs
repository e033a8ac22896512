// SPDX-License-Identifier: Apache-2.0
//! `linkctl pki`: makes an authority for a lab and X.509 certificates for servers and clients,
//! revokes and shows them. Needs no linkd.
//!
//! Keys are ECDSA on P-256, which everything that speaks TLS 1.3 knows.

mod files;

use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use clap::{Args, Subcommand};
use files::{Made, write};
use identity::{Certificate, Revoked, Role, read_certificates, read_crls, read_key};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    PublicKeyData, RevokedCertParams, SanType,
};
use rustls::pki_types::DnsName;
use serde::Serialize;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use time::{Duration, OffsetDateTime};

/// For the command.
pub const EXAMPLES: &str = "\
Examples:
  linkctl pki ca --name \"lab\" -d ca
  linkctl pki server --ca ca --host linkemu.lab --ip 10.0.0.1
  linkctl pki client --ca ca --name ci-7 --role operator --days 365
  linkctl pki show ca/ci-7.pem
  linkctl pki revoke --ca ca ca/ci-7.pem       for linkd --tls-client-crl ca/ca.crl

Roles: viewer looks, operator changes the link, admin may take a lease from its holder.
Keep ca.key off the network: who has it can be anybody.";

/// A certificate holds from so long before it is made, as clocks differ.
const BACK: Duration = Duration::hours(1);
const DAY: Duration = Duration::days(1);
/// What RFC 5280 bounds a name to.
const NAME_CHARS: usize = 64;
/// The files of an authority.
const CA: &str = "ca";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Pki {
    /// Make an authority, which signs all others
    Ca {
        /// Its name, for people
        #[arg(long, value_name = "NAME", value_parser = parse_title)]
        name: String,
        /// For how long it holds
        #[arg(long, value_name = "N", default_value = "3650", value_parser = clap::value_parser!(u16).range(1..))]
        days: u16,
        #[command(flatten)]
        to: To,
    },
    /// Make a certificate for linkd
    #[command(group(clap::ArgGroup::new("names").required(true).multiple(true).args(["host", "ip"])))]
    Server {
        /// Directory of the authority
        #[arg(long = "ca", id = "ca", value_name = "DIR")]
        authority: PathBuf,
        /// A name that callers give as --server; may be given again
        #[arg(long, value_name = "HOST", value_parser = parse_host)]
        host: Vec<String>,
        /// An address that callers give as --server; may be given again
        #[arg(long, value_name = "ADDRESS")]
        ip: Vec<IpAddr>,
        /// For how long it holds
        #[arg(long, value_name = "N", default_value = "365", value_parser = clap::value_parser!(u16).range(1..))]
        days: u16,
        #[command(flatten)]
        to: To,
    },
    /// Make a certificate for a user or a CI job
    Client {
        /// Directory of the authority
        #[arg(long = "ca", id = "ca", value_name = "DIR")]
        authority: PathBuf,
        /// Who it is; the audit log has it
        #[arg(long, value_name = "NAME", value_parser = parse_name)]
        name: String,
        /// What they may: viewer, operator or admin
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// For how long it holds
        #[arg(long, value_name = "N", default_value = "365", value_parser = clap::value_parser!(u16).range(1..))]
        days: u16,
        #[command(flatten)]
        to: To,
    },
    /// Revoke certificates: adds them to the authority's list, ca.crl, which is made if there is none
    Revoke {
        /// Directory of the authority
        #[arg(long = "ca", id = "ca", value_name = "DIR")]
        authority: PathBuf,
        /// Certificates in PEM, which the authority signed; without any, the list is only signed
        /// anew.
        files: Vec<PathBuf>,
    },
    /// Show what is in a certificate
    Show {
        /// Certificates in PEM.
        file: PathBuf,
    },
}

/// Where to write.
#[derive(Debug, Args)]
pub struct To {
    /// Write into this directory; without it, that of the authority, or this one for an authority
    #[arg(short, long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Replace files that are there
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Serialize)]
struct View<'a> {
    name: Option<&'a str>,
    role: Option<&'static str>,
    kind: &'static str,
    hosts: &'a [String],
    issuer: &'a str,
    serial: &'a str,
    not_before: String,
    not_after: String,
    valid: bool,
    remarks: Vec<String>,
}

#[derive(Serialize)]
struct MadeView<'a> {
    certificate: &'a Path,
    key: &'a Path,
    #[serde(flatten)]
    view: View<'a>,
}

#[derive(Serialize)]
struct RevokedView<'a> {
    list: &'a Path,
    revoked: usize,
}

#[derive(Serialize)]
struct ShowView<'a> {
    certificates: Vec<View<'a>>,
}

/// Does it.
pub fn run(context: &Context, what: &Pki) -> Result<(), Failure> {
    match what {
        Pki::Ca { name, days, to } => {
            let mut params = params(name, *days)?;
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            let key = KeyPair::generate().map_err(failed)?;
            let made = params.self_signed(&key).map_err(failed)?;
            let directory = to.directory.clone().unwrap_or_else(|| ".".into());
            let made = write(&directory, CA, &made.pem(), &key.serialize_pem(), to.force)?;
            tell(context, &made, |Made { certificate, key }| {
                let (certificate, key) = (certificate.display(), key.display());
                let directory = directory.display();
                format!(
                    "made the authority {name:?}: {certificate} and {key}\n\
                     keep {key} here; {certificate} may go anywhere. Next:\n  \
                     linkctl pki server --ca {directory} --host HOST --ip ADDRESS\n  \
                     linkctl pki client --ca {directory} --name NAME --role operator"
                )
            })
        }
        Pki::Server { authority, host, ip, days, to } => {
            let mut names: Vec<String> = host.clone();
            names.extend(ip.iter().map(ToString::to_string));
            let Some(first) = names.first() else { return Ok(()) };
            let mut params = params(first, *days)?;
            for name in host {
                let name = name.as_str().try_into().map_err(failed)?;
                params.subject_alt_names.push(SanType::DnsName(name));
            }
            params.subject_alt_names.extend(ip.iter().map(|ip| SanType::IpAddress(*ip)));
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            let made = signed(authority, params, first, to)?;
            tell(context, &made, |Made { certificate, key }| {
                let (certificate, key) = (certificate.display(), key.display());
                let ca = authority.join("ca.pem");
                let ca = ca.display();
                let names = names.join(", ");
                format!(
                    "made a certificate for {names}: {certificate} and {key}\n\
                     copy both and {ca} to linkd's machine, the key for linkd's user alone; then\n  \
                     linkd --listen 0.0.0.0:8443 --tls-cert {certificate} --tls-key {key} \
                     --tls-client-ca {ca}"
                )
            })
        }
        Pki::Client { authority, name, role, days, to } => {
            let mut params = params(name, *days)?;
            let uri = role.uri().as_str().try_into().map_err(failed)?;
            params.subject_alt_names.push(SanType::URI(uri));
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            let made = signed(authority, params, name, to)?;
            tell(context, &made, |Made { certificate, key }| {
                let (certificate, key) = (certificate.display(), key.display());
                let ca = authority.join("ca.pem");
                let ca = ca.display();
                format!(
                    "made a certificate for {name}, who is {role}: {certificate} and {key}\n\
                     give both and {ca} to {name}; then\n  linkctl --server HOST:8443 --ca {ca} \
                     --cert {certificate} --key {key} show"
                )
            })
        }
        Pki::Revoke { authority, files } => revoke(context, authority, files),
        Pki::Show { file } => show(context, file),
    }
}

fn revoke(context: &Context, directory: &Path, files: &[PathBuf]) -> Result<(), Failure> {
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
        // It has to grow from list to list.
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
            "{0} revokes {1} certificates; copy it to linkd's machine, give it there as \
             --tls-client-crl, and have linkd read it: systemctl reload linkd",
            list.display(),
            revoked.len()
        )),
    }
}

/// What all certificates have in common.
fn params(name: &str, days: u16) -> Result<CertificateParams, Failure> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::from(SystemTime::now());
    params.not_before = now.checked_sub(BACK).ok_or_else(|| failed("the clock is wrong"))?;
    params.not_after =
        now.checked_add(DAY * i32::from(days)).ok_or_else(|| failed("the clock is wrong"))?;
    Ok(params)
}

/// What signs.
struct Authority {
    known: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads the one of a directory.
    fn read(directory: &Path) -> Result<Self, Failure> {
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

/// Signs with the authority of a directory, and writes what is made.
fn signed(
    authority: &Path,
    mut params: CertificateParams,
    name: &str,
    to: &To,
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
    let directory = to.directory.as_deref().unwrap_or(authority);
    write(directory, name, &made.pem(), &key.serialize_pem(), to.force)
}

fn tell(
    context: &Context,
    made: &Made,
    words: impl FnOnce(&Made) -> String,
) -> Result<(), Failure> {
    if context.output == Output::Text {
        return output::text(&words(made));
    }
    let found = parsed(&made.certificate)?;
    let [first, ..] = &*found else { return Err(failed("no certificate")) };
    let Made { certificate, key } = made;
    output::json(&MadeView { certificate, key, view: view(first) })
}

fn show(context: &Context, file: &Path) -> Result<(), Failure> {
    let found = parsed(file)?;
    if context.output == Output::Json {
        return output::json(&ShowView { certificates: found.iter().map(view).collect() });
    }
    let texts: Vec<String> = found.iter().map(|found| text(&view(found))).collect();
    output::text(&texts.join("\n"))
}

fn parsed(file: &Path) -> Result<Vec<Certificate>, Failure> {
    let found = read_certificates(file).map_err(failed)?;
    let parse = |der| Certificate::parse(der).map_err(|error| at(file, &error));
    found.iter().map(|der| parse(der)).collect()
}

fn view(found: &Certificate) -> View<'_> {
    let (not_before, not_after) = found.validity();
    let held = found.holds(SystemTime::now());
    let identity = found.identity();
    let mut remarks: Vec<String> =
        held.as_ref().err().map(ToString::to_string).into_iter().collect();
    let kind = match &identity {
        _ if found.authority => "authority",
        Ok(_) => "client",
        Err(_) if found.roles.is_empty() && !found.hosts.is_empty() => "server",
        Err(error) => {
            remarks.push(error.to_string());
            "other"
        }
    };
    View {
        name: found.names.first().map(String::as_str),
        role: identity.ok().map(|identity| identity.role.as_str()),
        kind,
        hosts: &found.hosts,
        issuer: &found.issuer,
        serial: &found.serial,
        not_before,
        not_after,
        valid: held.is_ok(),
        remarks,
    }
}

/// Texts are of whoever made the certificate: what could move a terminal is escaped.
fn text(view: &View<'_>) -> String {
    let clean = |text: &str| text.escape_debug().to_string();
    let mut lines = vec![
        format!("name    {}", clean(view.name.unwrap_or("none"))),
        format!("kind    {}", view.kind),
    ];
    lines.extend(view.role.map(|role| format!("role    {role}")));
    if !view.hosts.is_empty() {
        lines.push(format!("hosts   {}", clean(&view.hosts.join(", "))));
    }
    lines.push(format!("valid   {} to {}", view.not_before, view.not_after));
    lines.push(format!("issuer  {}", clean(view.issuer)));
    lines.push(format!("serial  {}", view.serial));
    lines.extend(view.remarks.iter().map(|remark| format!("remark  {remark}")));
    lines.push(String::new());
    lines.join("\n")
}

fn parse_title(text: &str) -> Result<String, String> {
    let length = text.chars().count();
    if !(1..=NAME_CHARS).contains(&length) || text.chars().any(char::is_control) {
        return Err(format!("write 1 to {NAME_CHARS} characters without control characters"));
    }
    Ok(text.to_owned())
}

/// A name that is one of files too.
fn parse_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if text == CA {
        return Err("that is the authority's own: choose another".into());
    }
    if !(1..=NAME_CHARS).contains(&text.len()) || !text.chars().all(fits) || text.starts_with('.') {
        return Err(format!(
            "write 1 to {NAME_CHARS} letters, digits, '-', '_', '.' and '@', not beginning with '.'"
        ));
    }
    Ok(text.to_owned())
}

fn parse_host(text: &str) -> Result<String, String> {
    DnsName::try_from(text).map_err(|_| "write a host's name, such as linkemu.lab".to_owned())?;
    parse_name(text)
}

fn failed(why: impl std::fmt::Display) -> Failure {
    Failure::failed("certificate", why.to_string())
}

fn at(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    failed(format!("{}: {why}", path.display()))
}
