// SPDX-License-Identifier: Apache-2.0
//! `linkctl pki`: makes an authority for a lab and X.509 certificates for servers and clients,
//! revokes and shows them. Needs no linkd.
//!
//! Keys are ECDSA on P-256, which everything that speaks TLS 1.3 knows.

mod authority;
mod failed;
mod files;
mod revoke;
mod show;

use crate::context::Context;
use crate::failure::Failure;
use authority::{params, signed};
use clap::{Args, Subcommand};
use failed::failed;
use files::{Made, write};
use identity::Role;
use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType};
use rustls::pki_types::DnsName;
use std::net::IpAddr;
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Examples:
  linkctl pki ca --name \"lab\" -d ca
  linkctl pki server --ca ca --host linkemu.lab --ip 10.0.0.1
  linkctl pki client --ca ca --name ci-7 --role operator --days 365
  linkctl pki show ca/ci-7.pem
  linkctl pki revoke --ca ca ca/ci-7.pem       for linkd --tls-client-crl ca/ca.crl

Roles: viewer reads, operator changes the link, admin can also revoke leases.
Keep ca.key off the network: it signs certificates for any name and role.";

/// Limit of a name in RFC 5280.
const NAME_CHARS: usize = 64;
/// The files of an authority.
const CA: &str = "ca";

#[derive(Debug, Subcommand)]
pub enum Pki {
    /// Create an authority, which signs all other certificates
    Ca {
        /// Name of the authority, for people
        #[arg(long, value_name = "NAME", value_parser = parse_title)]
        name: String,
        /// Validity in days
        #[arg(long, value_name = "N", default_value = "3650", value_parser = clap::value_parser!(u16).range(1..))]
        days: u16,
        #[command(flatten)]
        to: To,
    },
    /// Create a certificate for linkd
    #[command(group(clap::ArgGroup::new("names").required(true).multiple(true).args(["host", "ip"])))]
    Server {
        /// Directory of the authority
        #[arg(long = "ca", id = "ca", value_name = "DIR")]
        authority: PathBuf,
        /// Host name that callers give as --server; may be given again
        #[arg(long, value_name = "HOST", value_parser = parse_host)]
        host: Vec<String>,
        /// Address that callers give as --server; may be given again
        #[arg(long, value_name = "ADDRESS")]
        ip: Vec<IpAddr>,
        /// Validity in days
        #[arg(long, value_name = "N", default_value = "365", value_parser = clap::value_parser!(u16).range(1..))]
        days: u16,
        #[command(flatten)]
        to: To,
    },
    /// Create a certificate for a user or a CI job
    Client {
        /// Directory of the authority
        #[arg(long = "ca", id = "ca", value_name = "DIR")]
        authority: PathBuf,
        /// Name of the user or job, for the audit log
        #[arg(long, value_name = "NAME", value_parser = parse_name)]
        name: String,
        /// Role: viewer, operator or admin
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// Validity in days
        #[arg(long, value_name = "N", default_value = "365", value_parser = clap::value_parser!(u16).range(1..))]
        days: u16,
        #[command(flatten)]
        to: To,
    },
    /// Revoke certificates: add them to the list of the authority, ca.crl, or create the list
    Revoke {
        /// Directory of the authority
        #[arg(long = "ca", id = "ca", value_name = "DIR")]
        authority: PathBuf,
        /// Certificates of this authority, in PEM; without any, the list is only signed again
        files: Vec<PathBuf>,
    },
    /// Show the content of certificates
    Show {
        /// Certificates in PEM
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct To {
    /// Output directory; default: that of the authority, or the current one for a new authority
    #[arg(short, long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Replace existing files
    #[arg(long)]
    pub force: bool,
}

pub fn run(context: &Context, what: &Pki) -> Result<(), Failure> {
    match what {
        Pki::Ca { name, days, to } => {
            let mut params = params(name, *days)?;
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            let key = KeyPair::generate().map_err(failed)?;
            let made = params.self_signed(&key).map_err(failed)?;
            let directory = to.directory.clone().unwrap_or_else(|| ".".into());
            let files = write(&directory, CA, &made.pem(), &key.serialize_pem(), to.force)?;
            show::made(context, &files, |Made { certificate, key }| {
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
            let files = signed(authority, params, first, to.directory.as_deref(), to.force)?;
            show::made(context, &files, |Made { certificate, key }| {
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
            let files = signed(authority, params, name, to.directory.as_deref(), to.force)?;
            show::made(context, &files, |Made { certificate, key }| {
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
        Pki::Revoke { authority, files } => revoke::revoke(context, authority, files),
        Pki::Show { file } => show::show(context, file),
    }
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
