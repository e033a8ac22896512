// SPDX-License-Identifier: Apache-2.0
//! The command line of `linkd-p4switch`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, ValueEnum};
use dpdk::PortSpec;
use tls::server::Files;

use crate::worker;

const EXAMPLES: &str = "\
Examples:
  A switch with the box on ports 0 and 1, and hosts on ports 2 and 3:
    linkd-p4switch --port 0=net_af_packet,iface=box0 --port 1=net_af_packet,iface=box1 \\
                   --port 2=net_af_packet,iface=wan0 --port 3=net_af_packet,iface=sat0

  Hosts on two 10 GbE ports bound to vfio-pci, and the worker on core 2:
    linkd-p4switch --port 0=net_af_packet,iface=box0 --port 1=net_af_packet,iface=box1 \\
                   --port 2=0000:01:00.0 --port 3=0000:01:00.1 --core 2

  For a linkd on another machine, with TLS:
    linkd-p4switch --listen 0.0.0.0:9559 --tls-cert /etc/linkemu/p4.lab.pem \\
                   --tls-key /etc/linkemu/p4.lab.key --tls-client-ca /etc/linkemu/ca.pem --port ...

The switch starts without a program and drops all frames. linkd loads it, if the box file has
`[switch] target = \"swx\"`.

Exit codes: 0 ended by a signal; 1 could not start or the worker failed; 2 usage.";

/// A P4 switch for linkemu: DPDK's software switch with a P4Runtime server.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXAMPLES)]
pub struct Arguments {
    /// A port; may be given again. NUMBER is that of the program and of P4Runtime, 0 to 510.
    ///
    /// SPEC is as in linkd-dataplane: a DPDK virtual device with its arguments
    /// (net_af_packet,iface=IF; net_af_xdp,iface=IF) or a PCI address.
    #[arg(long = "port", value_name = "NUMBER=SPEC", required_unless_present = "manual")]
    pub ports: Vec<NumberedPort>,

    /// Serve P4Runtime on this unix socket, for the user and group of the process (mode 0660).
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/linkemu/p4switch.sock",
        conflicts_with = "listen"
    )]
    pub socket: PathBuf,

    /// Serve P4Runtime at this address, such as 127.0.0.1:9559, instead of the socket. Every user of this
    /// machine controls the switch at a loopback address without TLS. An address that is not loopback needs
    /// `--tls-cert`, `--tls-key` and `--tls-client-ca`.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,

    /// Certificate of the switch, in PEM; enables TLS 1.3. SIGHUP reads the three files again.
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_key", "tls_client_ca"])]
    pub tls_cert: Option<PathBuf>,

    /// Private key of the certificate, in PEM; only its owner and group may be able to read it.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Certificates of the authorities that sign controllers' certificates, in PEM. A controller
    /// without such a certificate is refused.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,

    /// Serve without encryption at an address that is not loopback: everybody who reaches it
    /// controls the switch.
    #[arg(long, requires = "listen", conflicts_with = "tls_cert")]
    pub listen_insecure: bool,

    /// Device id in P4Runtime.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub device: u64,

    /// Idle worker: `busy` polls, `adaptive` sleeps until a packet arrives.
    #[arg(long, value_enum, default_value_t = Idle::Busy)]
    pub idle: Idle,

    /// Core of the worker; default: any core that the process may use.
    #[arg(long, value_name = "N")]
    pub core: Option<usize>,

    /// Log to standard error: error, warn, info, debug, trace, or filters of `tracing`.
    #[arg(long, value_name = "FILTER", env = "LINKEMU_LOG", default_value = "info")]
    pub log: String,

    /// Write the man page and the completion scripts into this directory, and end.
    #[arg(long, value_name = "DIR", hide = true, exclusive = true)]
    pub manual: Option<PathBuf>,
}

impl Arguments {
    /// The files for TLS, if it is wanted.
    #[must_use]
    pub fn tls(&self) -> Option<Files> {
        let (cert, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        Some(Files { cert, key, client_ca: self.tls_client_ca.clone()?, client_crl: Vec::new() })
    }

    /// Refuses an open address without encryption.
    ///
    /// # Errors
    /// What to do, in words.
    pub fn check_listen(&self) -> Result<(), String> {
        let Some(listen) = self.listen else { return Ok(()) };
        let open = !listen.ip().to_canonical().is_loopback();
        if open && self.tls_cert.is_none() && !self.listen_insecure {
            return Err(format!(
                "--listen {listen} is not loopback, and everybody who reaches it could control the \
                 switch: give --tls-cert, --tls-key and --tls-client-ca (linkctl pki), or \
                 --listen-insecure in a network of its own"
            ));
        }
        Ok(())
    }
}

/// `--idle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Idle {
    Busy,
    Adaptive,
}

impl From<Idle> for worker::Idle {
    fn from(idle: Idle) -> Self {
        match idle {
            Idle::Busy => Self::Busy,
            Idle::Adaptive => Self::Adaptive,
        }
    }
}

/// A port with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedPort {
    pub number: u16,
    pub spec: PortSpec,
}

impl NumberedPort {
    /// Highest number: P4's `bit<9>`, without bmv2's drop port.
    pub const HIGHEST: u16 = 510;
}

impl FromStr for NumberedPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rule = || format!("{text:?} is not NUMBER=SPEC, with a number up to {}", Self::HIGHEST);
        let (number, spec) = text.split_once('=').ok_or_else(rule)?;
        let number = number.parse().ok().filter(|number| *number <= Self::HIGHEST);
        let spec = spec.parse().map_err(|e: dpdk::Error| e.to_string())?;
        Ok(Self { number: number.ok_or_else(rule)?, spec })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_numbers() {
        let port: NumberedPort = "510=net_af_packet,iface=eth0".parse().unwrap();
        assert_eq!((port.number, port.spec.iface()), (510, Some("eth0")));
        for wrong in ["net_null0", "511=net_null0", "x=net_null0", "1=", "-1=net_null0"] {
            assert!(wrong.parse::<NumberedPort>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn open_address_needs_tls_or_a_word() {
        let with = |words: &str| {
            let line = format!("linkd-p4switch --port 0=net_null0 {words}");
            Arguments::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())
        };
        let tls = "--tls-cert a.pem --tls-key a.key --tls-client-ca ca.pem";
        for good in [
            String::new(),
            "--listen [::1]:1".into(),
            "--listen [::ffff:127.0.0.1]:1".into(),
            "--listen 0.0.0.0:1 --listen-insecure".into(),
            format!("--listen [::]:1 {tls}"),
        ] {
            assert_eq!(with(&good).unwrap().check_listen(), Ok(()), "{good}");
        }
        for open in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[::ffff:10.0.0.1]:1"] {
            let error = with(&format!("--listen {open}")).unwrap().check_listen().unwrap_err();
            assert!(error.contains("is not loopback") && error.contains("--tls-cert"), "{error}");
        }
        assert!(with(&format!("--listen [::1]:1 {tls}")).unwrap().tls().is_some());
        assert!(
            with("--socket /tmp/p4.sock --listen [::1]:1").unwrap_err().contains("cannot be used")
        );
        for partly in [
            "--tls-cert a",
            "--tls-key a",
            "--tls-client-ca a",
            "--tls-cert a --tls-key b",
            "--listen-insecure",
            "--tls-cert a.pem --tls-key a.key --tls-client-ca ca.pem",
        ] {
            assert!(with(partly).unwrap_err().contains("required"), "{partly}");
        }
        assert!(
            with(&format!("--listen [::]:1 {tls} --listen-insecure"))
                .unwrap_err()
                .contains("cannot be used")
        );
    }

    #[test]
    fn every_command_of_the_documentation_parses() {
        pages::commands_parse("linkd-p4switch", 2, |words| Arguments::try_parse_from(words));
    }

    #[test]
    fn the_command_line_is_consistent() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }
}
