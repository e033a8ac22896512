// SPDX-License-Identifier: Apache-2.0
//! Options of all commands: output format, connection to linkd, link, lease.

use crate::tls::Server;
use clap::Args;
use proto::{link_id, link_name};
use std::path::{Path, PathBuf};

/// The heading of these options in the help.
pub const GLOBAL: &str = "Global options";

/// The options that every command has.
#[derive(Clone, Debug, Args)]
pub struct Context {
    /// Format of results and errors
    #[arg(
        short = 'o',
        long = "output",
        global = true,
        default_value = "text",
        value_name = "text|json",
        help_heading = GLOBAL
    )]
    pub output: Output,

    #[command(flatten)]
    pub linkd: Place,

    /// Token of the lease of the link; for several links, their tokens separated by commas
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "LINKEMU_LEASE",
        hide_env_values = true,
        help_heading = GLOBAL
    )]
    pub lease: Option<String>,
}

impl Context {
    /// Token of the lease; `None` if the variable is empty.
    pub fn token(&self) -> Option<&str> {
        self.lease.as_deref().filter(|token| !token.is_empty())
    }
}

/// Where linkd is, who we are there, and which of its links it is about.
#[derive(Clone, Debug, Args)]
pub struct Place {
    /// Unix socket of linkd
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "LINKEMU_SOCKET",
        default_value = "/run/linkemu/linkd.sock",
        help_heading = GLOBAL
    )]
    pub socket: PathBuf,

    /// Address of linkd, for a connection with TLS instead of --socket
    #[arg(long, global = true, value_name = "HOST:PORT", env = "LINKEMU_SERVER", help_heading = GLOBAL)]
    pub server: Option<Server>,

    /// With --server: certificate of the authority that signed linkd's certificate
    #[arg(long, global = true, value_name = "FILE", env = "LINKEMU_CA", help_heading = GLOBAL)]
    pub ca: Option<PathBuf>,

    /// With --server: your certificate
    #[arg(long, global = true, value_name = "FILE", env = "LINKEMU_CERT", help_heading = GLOBAL)]
    pub cert: Option<PathBuf>,

    /// With --server: the key of your certificate
    #[arg(long, global = true, value_name = "FILE", env = "LINKEMU_KEY", help_heading = GLOBAL)]
    pub key: Option<PathBuf>,

    /// Link that the command applies to; default: main. `set` accepts several, separated by
    /// commas, and changes them at one instant
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "LINKEMU_LINK",
        value_delimiter = ',',
        help_heading = GLOBAL
    )]
    pub link: Vec<String>,
}

impl Place {
    /// The names of the links, without "links/"; none if they are not given, or empty.
    pub fn links(&self) -> Vec<&str> {
        self.link.iter().map(|link| link_id(link)).filter(|link| !link.is_empty()).collect()
    }

    /// The name of the one link; none if it is not given, or there are several.
    pub fn link(&self) -> Option<&str> {
        match *self.links() {
            [link] => Some(link),
            _ => None,
        }
    }

    /// The resource name of the one link; empty: `main`.
    pub fn link_name(&self) -> String {
        self.link().map(link_name).unwrap_or_default()
    }

    /// This machine's, at a socket.
    pub fn at(socket: &Path) -> Self {
        let (server, ca, cert, key) = Default::default();
        Self { socket: socket.into(), server, ca, cert, key, link: Vec::new() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    #[default]
    Text,
    /// For programs: stable keys in snake_case.
    Json,
}

impl std::str::FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("write text or json; a file to be written is named by -w".into()),
        }
    }
}
