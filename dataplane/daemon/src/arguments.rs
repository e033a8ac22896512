// SPDX-License-Identifier: Apache-2.0
//! The command line of `linkd-dataplane`.

use std::path::PathBuf;

pub use boxfile::{Huge, Idle, MIN_MAX_FRAME};
use clap::{Parser, ValueEnum};
use dpdk::NamedPort;
use emu::store::MAX_FRAME;

// A check of the file without the packet store uses the same limit.
const _: () = assert!(boxfile::MAX_FRAME == MAX_FRAME);

const EXAMPLES: &str = "\
Examples:
  Two veth ends, on a machine shared with other work:
    linkd-dataplane --port wan=net_af_packet,iface=veth0 \\
                    --port client=net_af_packet,iface=veth1 --idle adaptive

  Two 10 GbE ports bound to vfio-pci, the worker on core 2:
    linkd-dataplane --port wan=0000:01:00.0 --port client=0000:01:00.1 --core 2

  The same with two workers:
    linkd-dataplane --port wan=0000:01:00.0 --port client=0000:01:00.1 --core 2,3

  Two paths through a card with four ports; `linkctl link assign fast --match 'port_pair = \"b\"'`
  gives the second one a link:
    linkd-dataplane --port wan.a=0000:01:00.0 --port client.a=0000:01:00.1 \\
                    --port wan.b=0000:01:00.2 --port client.b=0000:01:00.3 --core 2,3

  A box that is described in a file:
    linkd-dataplane --box /etc/linkemu/box.toml

The dataplane starts transparent. Set a link with `linkctl set profile viasat2`.
SIGTERM and SIGINT end it; the final statistics go to standard output.

Exit codes: 0 ended by a signal, statistics complete; 1 could not start or a worker
failed; 2 usage.";

/// The dataplane of linkemu: receives packets from pairs of ports, holds and sends them.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXAMPLES)]
pub struct Arguments {
    /// A port: `wan` faces the servers, `client` the clients; both are required. Several port pairs
    /// are `wan.NAME` and `client.NAME`: a packet leaves on the pair that it came in by.
    ///
    /// SPEC is a DPDK virtual device with its arguments (net_af_packet,iface=IF;
    /// net_tap; net_af_xdp,iface=IF) or a PCI address with a driver that
    /// DPDK can use. For net_af_packet, framecnt=8192, qdisc_bypass=1 and, with several
    /// workers, qpairs=N are the defaults. An interface with the machine's default route is
    /// refused without `takeover` among the arguments.
    #[arg(long = "port", value_name = "NAME=SPEC", required_unless_present = "box_file")]
    pub ports: Vec<NamedPort>,

    /// The box file, in TOML; options have precedence over it.
    ///
    /// [ports] wan, client, or wan.NAME, client.NAME: as --port's SPEC, or tables with pci, select
    /// or kernel. [workers]
    /// cores: a list; count; idle. [memory] packets: as --memory; buffers; copy_break;
    /// max_frame; max_clients; client_idle; huge. `linkctl box check FILE` checks it.
    #[arg(long = "box", value_name = "FILE")]
    pub box_file: Option<PathBuf>,

    /// Serve dataplane.v1 on this unix socket.
    #[arg(
        long,
        value_name = "PATH",
        env = "LINKEMU_DATAPLANE",
        default_value = "/run/linkemu/dataplane.sock"
    )]
    pub socket: PathBuf,

    /// Seed of all random processes until a profile is set with another one.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Memory for packets, such as "2 GiB", divided among the workers and allocated as it is
    /// used. [default: 3 GiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,

    /// Memory for buffers that hold frames longer than --copy-break without a copy; allocated at
    /// the start. [default: 0 B: every frame is copied]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub buffers: Option<u64>,

    /// Length up to which frames are always copied. [default: 1024]
    #[arg(long, value_name = "BYTES")]
    pub copy_break: Option<u32>,

    /// Longest frame, without FCS; longer ones are dropped as `oversize`. Buffers have this
    /// size. [default: the longest frame that both ports carry]
    #[arg(long, value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(i64::from(MIN_MAX_FRAME)..=i64::from(MAX_FRAME)))]
    pub max_frame: Option<u32>,

    /// Maximum number of clients of a worker, one per address on the client side; packets of
    /// further ones share the default client and are counted as `unplaced`. [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_clients: Option<u32>,

    /// Time without arrivals after which the client of an address expires; "0 s": never.
    /// [default: 10 min]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub client_idle: Option<u64>,

    /// Idle worker: `busy` polls, with the least lateness; `adaptive` sleeps until a packet
    /// arrives or is nearly due. [default: busy]
    #[arg(long, value_enum)]
    pub idle: Option<Idle>,

    /// Number of workers that share the clients. [default: one for each core of --core, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: Option<u16>,

    /// Cores of the workers. [default: the last ones that the process may use]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub core: Vec<usize>,

    /// Scheduling priority, as a nice value from -20, which is the highest, to 19. Where the system does not
    /// permit it, the priority stays as it is, and the log says so. [default: -10, or the value that it
    /// is started with if that is lower]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(i8).range(-20..=19))]
    pub nice: Option<i8>,

    /// Hugepages for DPDK's buffers: `auto` uses them if enough are reserved.
    /// [default: auto]
    #[arg(long, value_enum)]
    pub huge: Option<Huge>,

    /// Format of the final statistics.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,

    /// Log to standard error: error, warn, info, debug, trace, or filters of `tracing`.
    #[arg(long, value_name = "FILTER", env = "LINKEMU_LOG", default_value = "info")]
    pub log: String,

    /// Write the man page and the completion scripts into this directory, and end.
    #[arg(long, value_name = "DIR", hide = true, exclusive = true)]
    pub manual: Option<PathBuf>,
}

fn size(text: &str) -> Result<u64, String> {
    profile::parse_size(text).map_err(|e| e.to_string())
}

fn duration(text: &str) -> Result<u64, String> {
    profile::parse_duration(text).map_err(|e| e.to_string())
}

/// `--output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table.
    Text,
    /// One JSON object.
    Json,
}
