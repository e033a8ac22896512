// SPDX-License-Identifier: Apache-2.0
//! `[switch]` of the box file: the P4 switch between the hosts and the box.
//!
//! The dataplane never communicates with the switch. It only receives and sends shims, and passes
//! the configuration to linkd, which controls the switch.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use http::Uri;
use serde::Deserialize;
use thiserror::Error;

pub(crate) const KEYS: &[&str] = &[
    "address",
    "device",
    "target",
    "election",
    "box_wan",
    "box_client",
    "boxes",
    "wan",
    "client",
    "mirror",
    "stages",
    "program",
    "format",
    "ca",
    "cert",
    "key",
    "server_name",
];
/// Highest port number: the program has nine bits for it, and in bmv2 all ones mean that a frame is
/// dropped.
const MAX_PORT: u64 = 510;
/// The program has three bits for a box.
const MAX_BOXES: u64 = 8;
/// Default address of P4Runtime, on this machine; of `linkd-p4switch`, its socket.
const ADDRESS: &str = "http://127.0.0.1:9559";
const SWX_ADDRESS: &str = "unix:/run/linkemu/p4switch.sock";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    Bmv2,
    /// DPDK's software switch, in `linkd-p4switch`.
    Swx,
    Tofino,
}

/// What the P4Runtime server of a Tofino takes as its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Stratum's `BfPipelineConfig`.
    Stratum,
    /// The packed form of `bf_switchd` and PI.
    BfSwitchd,
}

/// Stages that the switch can run instead of the dataplane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Assign frames to clients.
    Classification,
    Loss,
    /// ECN-mark packets selected by the AQM.
    Marking,
}

/// `[switch]` as in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwitchFile {
    /// Of the P4Runtime service: `unix:` and a path, or a URL.
    pub address: Option<String>,
    pub device: Option<u64>,
    pub target: Option<Target>,
    /// linkd's election id.
    pub election: Option<u64>,
    /// Port to the box's `wan` port.
    pub box_wan: Option<u64>,
    /// Port to the box's `client` port.
    pub box_client: Option<u64>,
    /// Boxes behind the switch, this one included.
    pub boxes: Option<u64>,
    /// Ports to hosts on the server side.
    pub wan: Option<Vec<u64>>,
    /// Ports to hosts on the client side.
    pub client: Option<Vec<u64>>,
    /// Port for copies of frames.
    pub mirror: Option<u64>,
    pub stages: Option<Vec<Stage>>,
    pub program: Option<PathBuf>,
    /// For a Tofino.
    pub format: Option<Format>,
    /// Authorities that sign the switch's certificate, in PEM; for `https`.
    pub ca: Option<PathBuf>,
    /// linkd's certificate, in PEM, if the switch asks for one.
    pub cert: Option<PathBuf>,
    /// Its key, in PEM.
    pub key: Option<PathBuf>,
    /// The name in the switch's certificate, if it is not the host of `address`.
    pub server_name: Option<String>,
}

/// A switch with all defaults applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Of the P4Runtime service: `unix:` and a path, or a URL.
    pub address: String,
    pub device: u64,
    pub target: Target,
    /// linkd's election id.
    pub election: NonZeroU64,
    /// Ports to the box's `wan` and `client` ports.
    pub to_box: [u32; 2],
    /// Boxes behind the switch, 1 to 8.
    pub boxes: u32,
    /// Ports to hosts on the server side.
    pub wan: Vec<u32>,
    /// Ports to hosts on the client side.
    pub client: Vec<u32>,
    /// Port for copies of frames, if there is one.
    pub mirror: Option<u32>,
    pub stages: Vec<Stage>,
    /// Directory of another program; empty for linkemu's own.
    pub program: String,
    /// `None`: a file of the directory as it is, or else Stratum's.
    pub format: Option<Format>,
    /// For an address with `https`.
    pub tls: Option<SwitchTls>,
}

/// Files for TLS with the switch, with whole paths. linkd reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchTls {
    pub ca: String,
    /// linkd's certificate and its key.
    pub own: Option<(String, String)>,
    /// Empty: the host of the address.
    pub server_name: String,
}

/// Without `stages`. The others are opt-in: the switch draws their random numbers, so that the same
/// seed does not give the same fates (docs/adr/0033).
const DEFAULT_STAGES: [Stage; 1] = [Stage::Classification];

#[derive(Debug, Error)]
pub enum SwitchError {
    /// A required key is missing.
    #[error("[switch] in the box's file has no `{key}`: give {what}")]
    Missing { key: &'static str, what: &'static str },
    /// A side has no hosts.
    #[error("switch.{0} in the box's file is empty: give the switch's ports with hosts there")]
    NoHosts(&'static str),
    /// The port number is out of range.
    #[error("switch.{key} in the box's file has port {port}: it has to be 0 to {MAX_PORT}")]
    Port { key: &'static str, port: u64 },
    /// A port is used twice.
    #[error(
        "port {port} of the switch is in switch.{first} and in switch.{second} of the box's file: \
         each port leads to one place"
    )]
    Twice { port: u32, first: &'static str, second: &'static str },
    #[error(
        "switch.address in the box's file is `{0}`: it has to be like `{SWX_ADDRESS}`, with a whole path, \
         or like `{ADDRESS}`, with http or https, a host and a port"
    )]
    Address(String),
    #[error(
        "switch.boxes in the box's file is {0}: 1 to {MAX_BOXES} boxes can be behind a switch, this one \
         included"
    )]
    Boxes(u64),
    #[error("switch.election in the box's file is 0: it has to be 1 or more")]
    Election,
    #[error(
        "switch.program in the box's file is `{}`: linkd reads it, from another directory; give \
         the whole path, from /", .0.display()
    )]
    Program(PathBuf),
    #[error(
        "switch.program in the box's file is the file `{}`: give its directory, which linkd reads \
         the program and `linkemu.p4info.bin` from", .0.display()
    )]
    ProgramFile(PathBuf),
    #[error(
        "switch.address in the box's file is `{0}`, and there is no `ca`: give the authority that \
         signs the switch's certificate, such as \"/etc/linkemu/ca.pem\" (linkctl pki ca)"
    )]
    NoAuthority(String),
    #[error(
        "switch.format in the box's file is for target = \"tofino\": leave `format` out, or write \
         that target"
    )]
    Format,
    /// A key for TLS without TLS.
    #[error(
        "switch.{key} in the box's file is for TLS, and switch.address is `{address}`: write \
         https, or leave `{key}` out"
    )]
    NoTls { key: &'static str, address: String },
    #[error("[switch] in the box's file has `{has}` without `{lacks}`: give both, or neither")]
    Half { has: &'static str, lacks: &'static str },
    #[error(
        "switch.{key} in the box's file is `{}`: linkd reads it, from another directory; give the \
         whole path, from /", path.display()
    )]
    Relative { key: &'static str, path: PathBuf },
    #[error(
        "switch.server_name in the box's file is `{0}`: it has to be a name, such as p4.lab, or an \
         address, as in the switch's certificate"
    )]
    ServerName(String),
}

impl Switch {
    /// Validates `[switch]` and applies defaults.
    ///
    /// # Errors
    /// The first missing or invalid key.
    pub fn new(file: &SwitchFile) -> Result<Self, SwitchError> {
        let missing = |key, what| SwitchError::Missing { key, what };
        let target = file.target.ok_or(missing("target", "\"swx\", \"bmv2\" or \"tofino\""))?;
        let to_wan = "the switch's port that leads to the box's port `wan`";
        let to_client = "the switch's port that leads to the box's port `client`";
        let box_wan = file.box_wan.ok_or(missing("box_wan", to_wan))?;
        let box_client = file.box_client.ok_or(missing("box_client", to_client))?;
        let hosts = "the switch's ports with hosts on that side, such as [2, 3]";
        let wan = file.wan.as_deref().ok_or(missing("wan", hosts))?;
        let client = file.client.as_deref().ok_or(missing("client", hosts))?;
        let mut taken: Vec<(u32, &'static str)> = Vec::new();
        let mut take = |key: &'static str, ports: &[u64]| {
            if ports.is_empty() {
                return Err(SwitchError::NoHosts(key));
            }
            let mut checked = Vec::with_capacity(ports.len());
            for &number in ports {
                let port = u32::try_from(number).ok().filter(|_| number <= MAX_PORT);
                let port = port.ok_or(SwitchError::Port { key, port: number })?;
                if let Some((_, first)) = taken.iter().find(|(other, _)| *other == port) {
                    return Err(SwitchError::Twice { port, first, second: key });
                }
                taken.push((port, key));
                checked.push(port);
            }
            Ok(checked)
        };
        let box_wan = take("box_wan", &[box_wan])?;
        let box_client = take("box_client", &[box_client])?;
        let (wan, client) = (take("wan", wan)?, take("client", client)?);
        let mirror = match file.mirror {
            Some(port) => take("mirror", &[port])?.first().copied(),
            None => None,
        };
        let boxes = file.boxes.unwrap_or(1);
        if !(1..=MAX_BOXES).contains(&boxes) {
            return Err(SwitchError::Boxes(boxes));
        }
        let default = if target == Target::Swx { SWX_ADDRESS } else { ADDRESS };
        let address = file.address.as_deref().unwrap_or(default);
        if !is_address(address) {
            return Err(SwitchError::Address(address.to_owned()));
        }
        let program = match &file.program {
            Some(path) if !path.is_absolute() => return Err(SwitchError::Program(path.clone())),
            Some(path) if path.extension().is_some_and(|end| end == "bin" || end == "json") => {
                return Err(SwitchError::ProgramFile(path.clone()));
            }
            None if target == Target::Tofino => {
                let what = "the directory of the program for Tofino, which linkd does not bring";
                return Err(missing("program", what));
            }
            program => program.as_ref().map(|p| p.display().to_string()).unwrap_or_default(),
        };
        let tls = tls(file, address)?;
        if file.format.is_some() && target != Target::Tofino {
            return Err(SwitchError::Format);
        }
        Ok(Self {
            address: address.to_owned(),
            device: file.device.unwrap_or(1),
            target,
            election: NonZeroU64::new(file.election.unwrap_or(1)).ok_or(SwitchError::Election)?,
            to_box: [box_wan[0], box_client[0]],
            boxes: u32::try_from(boxes).map_err(|_| SwitchError::Boxes(boxes))?,
            wan,
            client,
            mirror,
            stages: file.stages.clone().unwrap_or_else(|| DEFAULT_STAGES.to_vec()),
            program,
            format: file.format,
            tls,
        })
    }
}

fn is_address(text: &str) -> bool {
    if let Some(path) = text.strip_prefix("unix:") {
        return Path::new(path).is_absolute();
    }
    text.parse::<Uri>().is_ok_and(|uri| {
        let host = uri.host().is_some_and(|host| !host.is_empty());
        matches!(uri.scheme_str(), Some("http" | "https")) && host && uri.port().is_some()
    })
}

fn is_https(address: &str) -> bool {
    address.parse::<Uri>().is_ok_and(|uri| uri.scheme_str() == Some("https"))
}

/// Files for TLS, if the address is one with `https`.
fn tls(file: &SwitchFile, address: &str) -> Result<Option<SwitchTls>, SwitchError> {
    let SwitchFile { ca, cert, key, server_name, .. } = file;
    let given = [
        ("ca", ca.is_some()),
        ("cert", cert.is_some()),
        ("key", key.is_some()),
        ("server_name", server_name.is_some()),
    ];
    if !is_https(address) {
        return match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => Err(SwitchError::NoTls { key, address: address.to_owned() }),
            None => Ok(None),
        };
    }
    let whole = |key: &'static str, path: &Path| {
        if !path.is_absolute() {
            return Err(SwitchError::Relative { key, path: path.to_owned() });
        }
        Ok(path.display().to_string())
    };
    let ca = ca.as_ref().ok_or_else(|| SwitchError::NoAuthority(address.to_owned()))?;
    let own = match (cert, key) {
        (Some(cert), Some(key)) => Some((whole("cert", cert)?, whole("key", key)?)),
        (None, None) => None,
        (Some(_), None) => return Err(SwitchError::Half { has: "cert", lacks: "key" }),
        (None, Some(_)) => return Err(SwitchError::Half { has: "key", lacks: "cert" }),
    };
    let server_name = server_name.clone().unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '_');
    if file.server_name.is_some() && (server_name.is_empty() || !server_name.chars().all(is_name)) {
        return Err(SwitchError::ServerName(server_name));
    }
    Ok(Some(SwitchTls { ca: whole("ca", ca)?, own, server_name }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "target = \"bmv2\"\nbox_wan = 0\nbox_client = 1\nwan = [2]\nclient = [3]";

    fn switch(text: &str) -> Result<Switch, String> {
        let file: SwitchFile = toml::from_str(text).map_err(|e| e.to_string())?;
        Switch::new(&file).map_err(|e| e.to_string())
    }

    #[test]
    fn required_switch_keys_suffice() {
        let expected = Switch {
            address: "http://127.0.0.1:9559".into(),
            device: 1,
            target: Target::Bmv2,
            election: NonZeroU64::MIN,
            to_box: [0, 1],
            boxes: 1,
            wan: vec![2],
            client: vec![3],
            mirror: None,
            stages: vec![Stage::Classification],
            program: String::new(),
            format: None,
            tls: None,
        };
        assert_eq!(switch(LEAST), Ok(expected));
        let swx = switch(&LEAST.replace("bmv2", "swx")).unwrap();
        assert_eq!(swx.address, "unix:/run/linkemu/p4switch.sock");
        for line in LEAST.lines() {
            let key = line.split(' ').next().unwrap();
            let error = switch(&LEAST.replace(line, "")).unwrap_err();
            assert!(error.contains(&format!("has no `{key}`: give ")), "{error}");
        }
    }

    #[test]
    fn given_switch_keys_are_applied() {
        let text = "target = \"tofino\"\naddress = \"http://[::1]:50051\"\ndevice = 0\n\
                    election = 7\nformat = \"bf_switchd\"\nbox_wan = 510\nbox_client = 64\nwan = [1, 2, 3]\n\
                    client = [4]\n\
                    stages = [\"loss\"]\nprogram = \"/usr/share/linkemu\"";
        let found = switch(text).unwrap();
        assert_eq!((found.target, found.device), (Target::Tofino, 0));
        assert_eq!(found.format, Some(Format::BfSwitchd));
        assert_eq!((found.to_box[0], found.wan), (510, vec![1, 2, 3]));
        assert_eq!(found.stages, [Stage::Loss]);
        assert_eq!((found.election.get(), &*found.program), (7, "/usr/share/linkemu"));
        assert_eq!(switch(&format!("{LEAST}\nstages = []")).unwrap().stages, []);
        assert_eq!(switch(&format!("{LEAST}\nboxes = 8")).unwrap().boxes, 8);
        assert_eq!(switch(&format!("{LEAST}\nmirror = 6")).unwrap().mirror, Some(6));
        let socket = format!("{LEAST}\naddress = \"unix:/tmp/p4.sock\"");
        assert_eq!(switch(&socket).unwrap().address, "unix:/tmp/p4.sock");
    }

    #[test]
    fn encrypted_switch_has_an_authority_and_may_have_a_certificate() {
        let least = format!("{LEAST}\naddress = \"https://p4.lab:9559\"\nca = \"/etc/ca.pem\"");
        let expected =
            SwitchTls { ca: "/etc/ca.pem".into(), own: None, server_name: String::new() };
        assert_eq!(switch(&least).unwrap().tls, Some(expected.clone()));
        let own = "cert = \"/etc/a.pem\"\nkey = \"/etc/a.key\"\nserver_name = \"::1\"";
        let own = switch(&format!("{least}\n{own}")).unwrap().tls;
        let (pair, server_name) = (("/etc/a.pem".into(), "/etc/a.key".into()), "::1".into());
        assert_eq!(own, Some(SwitchTls { own: Some(pair), server_name, ..expected }));
    }

    #[test]
    fn incomplete_tls_is_refused_with_the_remedy() {
        let https = "address = \"https://p4.lab:9559\"";
        let ca = format!("{https}\nca = \"/etc/ca.pem\"");
        for (text, words) in [
            (https.to_owned(), "there is no `ca`: give the authority"),
            ("ca = \"/a\"".into(), "switch.ca in the box's file is for TLS, and switch.address"),
            ("server_name = \"a\"".into(), "write https, or leave `server_name` out"),
            (format!("{ca}\nkey = \"/a\""), "has `key` without `cert`: give both, or neither"),
            (format!("{ca}\ncert = \"/a\""), "has `cert` without `key`: give both, or neither"),
            (format!("{https}\nca = \"ca.pem\""), "is `ca.pem`: linkd reads it, from another"),
            (format!("{ca}\nserver_name = \"a b\""), "is `a b`: it has to be a name"),
            (format!("{ca}\nserver_name = \"\""), "is ``: it has to be a name"),
        ] {
            let error = switch(&format!("{LEAST}\n{text}")).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn invalid_switch_is_refused_with_value_limit_and_remedy() {
        for (from, to, words) in [
            ("wan = [2]", "wan = []", "switch.wan in the box's file is empty: give"),
            ("wan = [2]", "wan = [2, 511]", "switch.wan in the box's file has port 511: it has to"),
            ("box_wan = 0", "box_wan = 4294967296", "has port 4294967296: it has to be 0 to 510"),
            ("client = [3]", "client = [3, 2]", "port 2 of the switch is in switch.wan and in swi"),
            ("box_client = 1", "box_client = 0", "is in switch.box_wan and in switch.box_client"),
            ("wan = [2]", "wan = [2, 2]", "is in switch.wan and in switch.wan"),
            ("wan = [2]", "wan = [2]\nmirror = 3", "is in switch.client and in switch.mirror"),
            (
                "wan = [2]",
                "wan = [2]\nmirror = 511",
                "switch.mirror in the box's file has port 511",
            ),
            ("wan = [2]", "wan = [2]\nboxes = 9", "switch.boxes in the box's file is 9: 1 to 8"),
            ("wan = [2]", "wan = [2]\nelection = 0", "switch.election in the box's file is 0: it"),
            ("wan = [2]", "wan = [2]\nprogram = \"a/b\"", "is `a/b`: linkd reads it"),
            ("wan = [2]", "wan = [2]\nprogram = \"/a/linkemu.bin\"", "give its directory"),
            ("\"bmv2\"", "\"tofino\"", "has no `program`"),
            ("wan = [2]", "wan = [2]\nformat = \"stratum\"", "switch.format in the box's file is"),
            ("wan = [2]", "wan = [2]\nformat = \"x\"", "unknown variant `x`, expected `stratum`"),
            (
                "\"bmv2\"",
                "\"bmv3\"",
                "unknown variant `bmv3`, expected one of `bmv2`, `swx`, `tofino`",
            ),
            ("wan = [2]", "wan = [-2]", "invalid value"),
            ("wan = [2]", "wan = [2]\nstages = [\"delay\"]", "unknown variant `delay`"),
        ] {
            let error = switch(&LEAST.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(words), "{to}: {error}");
        }
        let bad = ["", "127.0.0.1:9559", "ftp://a:1", "http://a", "http://:9", "http:// a:1"];
        for bad in bad.into_iter().chain(["unix:", "unix:p4.sock"]) {
            let error = switch(&format!("{LEAST}\naddress = \"{bad}\"")).unwrap_err();
            assert!(error.contains("it has to be like `unix:/run/linkemu/p4"), "{bad}: {error}");
        }
    }
}
