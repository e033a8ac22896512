// SPDX-License-Identifier: Apache-2.0
//! The command line of `linkd-dataplane`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use dpdk::NamedPort;

/// Names of the two ports.
pub const PORT_NAMES: [&str; 2] = ["wan", "client"];

const EXAMPLES: &str = "\
Examples:
  Two veth ends, on a machine shared with other work:
    linkd-dataplane --port wan=net_af_packet,iface=veth0 \\
                    --port client=net_af_packet,iface=veth1 --idle adaptive

  Two 10 GbE ports bound to vfio-pci, the worker on core 2:
    linkd-dataplane --port wan=0000:01:00.0 --port client=0000:01:00.1 --core 2

The dataplane starts transparent. Set a link with `linkctl set profile viasat2`.
SIGTERM and SIGINT end it; the final accounts go to standard output.

Exit codes: 0 ended by a signal, accounts complete; 1 could not start or a worker
failed; 2 usage.";

/// The packets of linkemu: reads from two ports, holds, and sends.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXAMPLES)]
pub struct Arguments {
    /// A port, twice: `wan` faces the servers, `client` the clients.
    ///
    /// SPEC is a DPDK virtual device with its arguments (net_af_packet,iface=IF;
    /// net_tap; net_af_xdp,iface=IF; net_pcap,…) or a PCI address with a driver that
    /// DPDK can use. For net_af_packet, framecnt=4096 and qdisc_bypass=1 are added
    /// where they are not given.
    #[arg(long = "port", value_name = "NAME=SPEC", required = true)]
    pub ports: Vec<NamedPort>,

    /// Serve dataplane.v1 on this unix socket.
    #[arg(
        long,
        value_name = "PATH",
        env = "LINKEMU_DATAPLANE",
        default_value = "/run/linkemu/dataplane.sock"
    )]
    pub socket: PathBuf,

    /// Seed of all random processes, until a profile is set with another.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Memory for packets, such as "2 GiB". It is taken as it is used.
    #[arg(long, value_name = "SIZE", default_value = "3 GiB",
          value_parser = |s: &str| profile::parse_size(s).map_err(|e| e.to_string()))]
    pub memory: u64,

    /// Most clients that are made, one per address on the client side; the packets of
    /// all further ones share the default client.
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_clients: u32,

    /// What the worker does when there is nothing to do: `busy` polls on and leaves
    /// least late, `adaptive` sleeps until a packet arrives or is nearly due.
    #[arg(long, value_enum, default_value_t = Idle::Busy)]
    pub idle: Idle,

    /// Run the worker on this core; the last one that the process may use, if not given.
    #[arg(long, value_name = "N")]
    pub core: Option<usize>,

    /// Hugepages for DPDK's buffers: `auto` uses them where enough are reserved.
    #[arg(long, value_enum, default_value_t = Huge::Auto)]
    pub huge: Huge,

    /// How the final accounts are written.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,

    /// What is logged to standard error, in tracing's syntax.
    #[arg(long, value_name = "FILTER", env = "LINKEMU_LOG", default_value = "info")]
    pub log: String,
}

/// `--idle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Idle {
    /// Poll on.
    Busy,
    /// Sleep when idle.
    Adaptive,
}

/// `--huge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Huge {
    /// Where enough are reserved.
    Auto,
    /// Always; fails where there are too few.
    On,
    /// Never.
    Off,
}

/// `--output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table.
    Text,
    /// One JSON object.
    Json,
}

impl Arguments {
    /// The specifications of `wan` and `client`.
    ///
    /// # Errors
    /// A sentence for the user, if they are not these two, each once.
    pub fn two_ports(&self) -> Result<[NamedPort; 2], String> {
        let find = |name: &str| {
            let mut all = self.ports.iter().filter(|p| p.name == name);
            match (all.next(), all.next()) {
                (Some(p), None) => Ok(p.clone()),
                (None, _) => Err(format!("no port `{name}`: give --port {name}=SPEC")),
                (Some(_), Some(_)) => Err(format!(
                    "port `{name}` is given twice: name the other \
                     one `{}`",
                    PORT_NAMES[usize::from(name == PORT_NAMES[0])]
                )),
            }
        };
        if let Some(p) = self.ports.iter().find(|p| !PORT_NAMES.contains(&p.name.as_str())) {
            return Err(format!(
                "there is no port `{}`: the ports are `wan`, which faces the \
                 servers, and `client`",
                p.name
            ));
        }
        Ok([find(PORT_NAMES[0])?, find(PORT_NAMES[1])?])
    }
}
