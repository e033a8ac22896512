// SPDX-License-Identifier: Apache-2.0
//! The group file: the boxes of the group and the owners of clients, in TOML.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use http::Uri;
use serde::Deserialize;
use thiserror::Error;

/// Maximum file size, bytes: a rule for each of some thousand clients.
const MAX_BYTES: u64 = 1 << 20;
/// Boxes behind one switch: its program has three bits for them.
pub const MOST_BOXES: usize = 8;
/// Characters of a name of a box or client.
const NAME: usize = 16;
/// Longest path of a socket, bytes.
const SOCKET: usize = 107;

#[derive(Debug, Error)]
pub enum GroupFileError {
    #[error("cannot read the group file {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error(
        "the group file {} is longer than {MAX_BYTES} bytes: is it another file?",
        path.display()
    )]
    Long { path: PathBuf },
    /// Invalid TOML, an unknown key, or a value of the wrong type; with the place.
    #[error("the group file {}: {message}", path.display())]
    Value { path: PathBuf, message: String },
    /// A value out of its range, or one that contradicts another.
    #[error("the group file {}: {key}: {why}", path.display())]
    Rule { path: PathBuf, key: String, why: String },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "box", default)]
    boxes: Vec<Entry>,
    #[serde(default)]
    owner: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    dataplane: String,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// Where the dataplane of a box is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Its socket on this machine.
    Unix(PathBuf),
    /// Its linkd, started with `--member`.
    Tls { host: String, port: u16, files: TlsFiles },
}

/// Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authority of that linkd's certificate.
    pub ca: PathBuf,
    /// Our certificate, with the role admin.
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tls { host, port, .. } => write!(f, "https://{host}:{port}"),
        }
    }
}

/// A box of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoxAddress {
    pub name: String,
    pub address: Address,
}

/// A group as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFile {
    /// 1 to 8, with different names. Their order gives them their numbers in the switch.
    pub boxes: Vec<BoxAddress>,
    /// Client to the place of its box in `boxes`.
    pub owners: BTreeMap<String, usize>,
}

impl GroupFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The first fault, with key, value, limit and remedy.
    pub fn read(path: &Path) -> Result<Self, GroupFileError> {
        let failed = |source| GroupFileError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        // A device file has no end, so the read is bounded.
        let file = fs::File::open(path).map_err(failed)?;
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(GroupFileError::Long { path: path.to_owned() });
        }
        Self::parse(&text, path)
    }

    /// Parses and checks the content of the file at `path`.
    ///
    /// # Errors
    /// As [`GroupFile::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, GroupFileError> {
        let Document { boxes: entries, owner } =
            toml::from_str(text).map_err(|error: toml::de::Error| GroupFileError::Value {
                path: path.to_owned(),
                message: error.to_string().trim_end().to_owned(),
            })?;
        let rule = |(key, why)| GroupFileError::Rule { path: path.to_owned(), key, why };
        if entries.is_empty() || entries.len() > MOST_BOXES {
            let why = format!(
                "{} boxes; a group has 1 to {MOST_BOXES}: give each a [[box]] with name and \
                 dataplane",
                entries.len()
            );
            return Err(rule(("box".to_owned(), why)));
        }
        let mut boxes: Vec<BoxAddress> = Vec::with_capacity(entries.len());
        for (place, entry) in entries.into_iter().enumerate() {
            let next = entry.checked(place).map_err(rule)?;
            let twice = |what, value: &str| {
                let why = format!("{value:?} is that of an earlier box: give each its own");
                Err(rule((format!("box[{place}].{what}"), why)))
            };
            if boxes.iter().any(|it| it.name == next.name) {
                return twice("name", &next.name);
            }
            if boxes.iter().any(|it| it.address.to_string() == next.address.to_string()) {
                return twice("dataplane", &next.address.to_string());
            }
            boxes.push(next);
        }
        let mut owners = BTreeMap::new();
        for (client, name) in owner {
            let key = || format!("owner.{}", shown(&client));
            if client.parse::<IpAddr>().is_err() && !is_name(&client) {
                let why = format!(
                    "this is no client: a client is an IP address or a name of 1 to {NAME} \
                     characters of A-Z, a-z, 0-9, '.', '_' and '-'"
                );
                return Err(rule((key(), why)));
            }
            let Some(place) = boxes.iter().position(|it| it.name == name) else {
                let known: BTreeSet<_> = boxes.iter().map(|it| &*it.name).collect();
                let known: Vec<_> = known.into_iter().collect();
                let why = format!(
                    "there is no box {:?}: the boxes are {}",
                    shown(&name),
                    known.join(", ")
                );
                return Err(rule((key(), why)));
            };
            // As statistics write an address.
            let client = client.parse::<IpAddr>().map_or(client, |address| address.to_string());
            owners.insert(client, place);
        }
        Ok(Self { boxes, owners })
    }
}

impl Entry {
    fn checked(self, place: usize) -> Result<BoxAddress, (String, String)> {
        let Self { name, dataplane, ca, cert, key } = self;
        let at = |what: &str| format!("box[{place}].{what}");
        if !is_name(&name) {
            let why = format!(
                "{:?}: a name has 1 to {NAME} characters of A-Z, a-z, 0-9, '.', '_' and '-'",
                shown(&name)
            );
            return Err((at("name"), why));
        }
        let files = [("ca", ca), ("cert", cert), ("key", key)];
        if let Some(path) = dataplane.strip_prefix("unix:") {
            if !path.starts_with('/') || path.len() > SOCKET {
                let why = format!(
                    "{:?}: write unix: and an absolute path of at most {SOCKET} bytes, such as \
                     unix:/run/linkemu/dataplane.sock",
                    shown(&dataplane)
                );
                return Err((at("dataplane"), why));
            }
            if let Some((what, _)) = files.iter().find(|(_, file)| file.is_some()) {
                let why = "a socket of this machine needs no certificates: remove it, or give a \
                           dataplane with https";
                return Err((at(what), why.to_owned()));
            }
            return Ok(BoxAddress { name, address: Address::Unix(path.into()) });
        }
        let wrong = || {
            let why = format!(
                "{:?}: write unix:PATH for a dataplane of this machine, or https://HOST:PORT for \
                 the linkd of another box",
                shown(&dataplane)
            );
            (at("dataplane"), why)
        };
        let uri: Uri = dataplane.parse().map_err(|_| wrong())?;
        let (Some("https"), Some(host), Some(port), "/") =
            (uri.scheme_str(), uri.host(), uri.port_u16().filter(|port| *port != 0), uri.path())
        else {
            return Err(wrong());
        };
        let missing = files.iter().find(|(_, file)| file.is_none());
        if let Some((what, _)) = missing {
            let why = "missing: https needs ca, cert and key, of a client certificate with the \
                       role admin (linkctl pki client --role admin)";
            return Err((at(what), why.to_owned()));
        }
        let [ca, cert, key] = files.map(|(_, file)| file.unwrap_or_default());
        let (host, files) = (host.to_owned(), TlsFiles { ca, cert, key });
        Ok(BoxAddress { name, address: Address::Tls { host, port, files } })
    }
}

/// Whether a text can be the name of a box or client.
fn is_name(text: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=NAME).contains(&text.len()) && text.chars().all(known)
}

/// The start of a value, for a message.
fn shown(value: &str) -> String {
    value.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<GroupFile, String> {
        GroupFile::parse(text, Path::new("group.toml")).map_err(|error| error.to_string())
    }

    const B1: &str = "[[box]]\nname = \"b1\"\ndataplane = \"unix:/run/linkemu/dataplane.sock\"\n";

    #[test]
    fn group_files_of_the_documentation_are_valid() {
        pages::files_parse("group", parse);
    }

    #[test]
    fn file_names_boxes_and_owners() {
        let text = format!(
            "{B1}[[box]]\nname = \"b2\"\ndataplane = \"https://[fd00::2]:8443\"\nca = \"ca.pem\"\n\
             cert = \"group.pem\"\nkey = \"group.key\"\n\
             [owner]\nship-1 = \"b2\"\n\"2001:DB8::1\" = \"b1\"\n"
        );
        let file = parse(&text).unwrap();
        let names: Vec<_> = file.boxes.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["b1", "b2"]);
        assert_eq!(file.boxes[1].address.to_string(), "https://[fd00::2]:8443");
        let owners: Vec<_> = file.owners.into_iter().collect();
        assert_eq!(owners, [("2001:db8::1".to_owned(), 0), ("ship-1".to_owned(), 1)]);
    }

    #[test]
    fn wrong_values_are_named_with_key_and_remedy() {
        let many: String = (0..9)
            .map(|n| format!("[[box]]\nname = \"b{n}\"\ndataplane = \"unix:/{n}\"\n"))
            .collect();
        let of = |name: &str, dataplane: &str, rest: &str| {
            format!("[[box]]\nname = \"{name}\"\ndataplane = \"{dataplane}\"\n{rest}")
        };
        for (text, words) in [
            ("", "box: 0 boxes; a group has 1 to 8"),
            (&many, "box: 9 boxes; a group has 1 to 8"),
            (&of("", "unix:/a", ""), "box[0].name: \"\": a name has 1 to 16"),
            (&of("a b", "unix:/a", ""), "box[0].name: \"a b\""),
            (&of(&"x".repeat(17), "unix:/a", ""), "box[0].name"),
            (&of("b1", "unix:a", ""), "write unix: and an absolute path"),
            (&of("b1", &format!("unix:/{}", "x".repeat(200)), ""), "at most 107 bytes"),
            (&of("b1", "http://box:1", ""), "write unix:PATH"),
            (&of("b1", "https://box", ""), "https://HOST:PORT"),
            (&of("b1", "https://box:0", ""), "https://HOST:PORT"),
            (&of("b1", "https://box:1/x", ""), "https://HOST:PORT"),
            (&of("b1", "https://box:1", "ca = \"a\"\n"), "box[0].cert: missing: https needs"),
            (&of("b1", "unix:/a", "key = \"a\"\n"), "box[0].key: a socket of this machine"),
            (&format!("{B1}{B1}"), "box[1].name: \"b1\" is that of an earlier box"),
            (&format!("{B1}{}", B1.replace("b1", "b2")), "box[1].dataplane"),
            (&format!("{B1}[owner]\nx = \"b9\"\n"), "owner.x: there is no box \"b9\": the boxes"),
            (&format!("{B1}[owner]\n\"x y\" = \"b1\"\n"), "owner.x y: this is no client"),
            (&format!("{B1}[owner]\nx = 1\n"), "invalid type"),
            (&of("b1", "unix:/a", "cpu = 1\n"), "unknown field `cpu`"),
            ("[boxes]\n", "unknown field `boxes`"),
            ("[[box]]\nname = \"b1\"\n", "missing field `dataplane`"),
            ("\u{0}", "the group file group.toml"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(words), "{error}\n---\n{words}");
        }
    }

    #[test]
    fn endless_and_missing_files_are_refused() {
        let endless = GroupFile::read(Path::new("/dev/zero")).unwrap_err();
        assert!(endless.to_string().contains("is longer than"), "{endless}");
        assert!(matches!(
            GroupFile::read(Path::new("/nonexistent")),
            Err(GroupFileError::Read { .. })
        ));
    }
}
