// SPDX-License-Identifier: Apache-2.0
//! Files of `[switch]` on this machine: those for TLS, and the program. linkd reads them, as another
//! user.

use crate::appliance::host::Host;
use ::doctor::finding::Finding;
use ::switch::{Format, Program, Target};
use boxfile::{BoxFile, Switch, SwitchTls};
use nix::unistd::User;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const CHECK: &str = "switch";
/// linkd's user.
const USER: &str = "linkemu";
/// Directories that linkd's service does not see (`ProtectHome=`, `PrivateTmp=`).
const HIDDEN: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];

/// One finding for TLS and one for the program, where the file has them.
pub fn check(host: &Host, file: &BoxFile) -> Vec<Finding> {
    // An invalid `[switch]` is reported elsewhere.
    let switch = file.switch.as_ref().and_then(|switch| Switch::new(switch).ok());
    let Some(switch) = switch else { return Vec::new() };
    let tls = switch.tls.as_ref().map(|tls| {
        wrong(host, tls).unwrap_or_else(|| {
            Finding::ok(CHECK, format!("the certificates for {} can be used", switch.address))
        })
    });
    let program = (!switch.program.is_empty()).then(|| program(host, &switch));
    tls.into_iter().chain(program).collect()
}

/// The program in the directory, in the form that the switch's server takes.
fn program(host: &Host, switch: &Switch) -> Finding {
    let target = match switch.target {
        boxfile::Target::Bmv2 => Target::Bmv2,
        boxfile::Target::Swx => Target::Swx,
        boxfile::Target::Tofino => Target::Tofino,
    };
    let format = switch.format.map(|format| match format {
        boxfile::Format::Stratum => Format::Stratum,
        boxfile::Format::BfSwitchd => Format::BfSwitchd,
    });
    let directory = host.at(Path::new(&switch.program));
    let read = Program::read(&directory, target, format);
    match read.and_then(|program| program.check(target)) {
        Ok(name) => Finding::ok(CHECK, format!("{} has the program {name}", switch.program)),
        Err(error) => {
            let why = "linkd loads the program into the switch";
            let remedy = format!("ls {}   # what the compiler wrote", switch.program);
            Finding::warning(CHECK, error.to_string(), why, remedy).bad_if(true)
        }
    }
}

fn wrong(host: &Host, SwitchTls { ca, own, .. }: &SwitchTls) -> Option<Finding> {
    let own = own.as_ref().map(|(cert, key)| (Path::new(cert), Path::new(key)));
    let ca = Path::new(ca);
    let here = own.map(|(cert, key)| (host.at(cert), host.at(key)));
    let here = here.as_ref().map(|(cert, key)| (cert.as_path(), key.as_path()));
    if let Err(error) = ::tls::client::connector(&host.at(ca), here) {
        let why = "without them linkd does not connect to the switch";
        let remedy = "linkctl pki ca, server, client   # and name the files in [switch]";
        return Some(Finding::warning(CHECK, error.to_string(), why, remedy).bad_if(true));
    }
    let files = [Some(ca), own.map(|(cert, _)| cert), own.map(|(_, key)| key)];
    files.into_iter().flatten().find_map(|path| unseen(host, path))
}

/// A file that this caller can read, but linkd's service cannot.
fn unseen(host: &Host, path: &Path) -> Option<Finding> {
    let shown = path.display();
    if let Some(hidden) = HIDDEN.into_iter().find(|hidden| path.starts_with(hidden)) {
        let found = format!("{shown} is in {hidden}");
        let why = "linkd's service does not see that directory";
        return Some(Finding::warning(CHECK, found, why, format!("mv {shown} /etc/linkemu/")));
    }
    let user = User::from_name(USER).ok().flatten()?;
    let file = std::fs::metadata(host.at(path)).ok()?;
    let readable = if file.uid() == user.uid.as_raw() {
        0o400
    } else if file.gid() == user.gid.as_raw() {
        0o040
    } else {
        0o004
    };
    (file.mode() & readable == 0).then(|| {
        let found = format!("{shown} has mode {:04o}", file.mode() & 0o7777);
        let why = format!("the user {USER}, who runs linkd, cannot read it");
        Finding::warning(CHECK, found, why, format!("chown {USER} {shown}"))
    })
}
