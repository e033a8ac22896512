// SPDX-License-Identifier: Apache-2.0
//! The software switch under test: DPDK's SWX in `linkd-p4switch`, or bmv2's `simple_switch_grpc` if
//! `LINKEMU_BMV2` names it.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::Signal;
use smoke::binaries::{Lack, program};
use smoke::directory::Directory;
use smoke::error::{Error, Result, Trying};
use smoke::namespace::Namespace;
use smoke::process::Process;
use smoke::wait;

/// Environment variable with the path of bmv2, or of its directory. Selects it.
pub const VARIABLE: &str = "LINKEMU_BMV2";
const BMV2: &str = "simple_switch_grpc";
const SWX: &str = "linkd-p4switch";
/// P4Runtime port, inside the namespace of the switch.
pub const SERVES: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9559);
/// Device id in P4Runtime.
pub const DEVICE: u64 = 1;

const START: Duration = Duration::from_secs(20);

/// A kind of switch, with its program file.
#[derive(Clone, Debug)]
pub enum Target {
    Swx(PathBuf),
    Bmv2(PathBuf),
}

impl Target {
    /// The switch that this run tests.
    pub fn find() -> std::result::Result<Self, Lack> {
        let Some(named) = env::var_os(VARIABLE) else {
            return program(SWX).map(Self::Swx);
        };
        let named = PathBuf::from(named);
        let file = if named.is_dir() { named.join(BMV2) } else { named };
        let lack = || format!("{VARIABLE} names {}, which is not there", file.display());
        if file.is_file() { Ok(Self::Bmv2(file)) } else { Err(Lack::Part(lack())) }
    }

    /// Whether this run tests bmv2.
    #[must_use]
    pub fn is_bmv2() -> bool {
        env::var_os(VARIABLE).is_some()
    }

    /// Its name in a box file.
    #[must_use]
    pub fn name() -> &'static str {
        if Self::is_bmv2() { "bmv2" } else { "swx" }
    }

    /// Its compiled program, and the P4Info.
    #[must_use]
    pub fn compiled() -> (&'static [u8], &'static [u8]) {
        if Self::is_bmv2() {
            (p4src::BMV2_JSON, p4src::BMV2_P4INFO)
        } else {
            (p4src::SWX_SPEC, p4src::SWX_P4INFO)
        }
    }
}

/// Where a switch serves P4Runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// [`SERVES`].
    Tcp,
    /// A unix socket, as `linkd-p4switch` by default.
    Unix(PathBuf),
}

impl Place {
    /// A socket in a directory; TCP for bmv2, which has no other.
    #[must_use]
    pub fn within(directory: &Directory) -> Self {
        match Target::is_bmv2() {
            true => Self::Tcp,
            false => Self::Unix(directory.path("p4switch.sock")),
        }
    }

    /// As in the box file.
    #[must_use]
    pub fn address(&self) -> String {
        match self {
            Self::Tcp => format!("http://{SERVES}"),
            Self::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    fn answers(&self) -> bool {
        match self {
            Self::Tcp => TcpStream::connect(SERVES).is_ok(),
            Self::Unix(path) => UnixStream::connect(path).is_ok(),
        }
    }
}

/// A running switch, initially without a P4 program. It ends with its owner.
#[derive(Debug)]
pub struct SoftSwitch {
    process: Process,
    name: &'static str,
    log: Option<PathBuf>,
}

impl SoftSwitch {
    /// Starts it in a namespace with these ports, and waits until it accepts connections. A port is an
    /// interface, or for SWX any DPDK device with its arguments.
    pub fn start(
        target: &Target,
        namespace: &Namespace,
        ports: &[(u16, String)],
        log: PathBuf,
        place: &Place,
    ) -> Result<Self> {
        let mut command = namespace.command(&[]);
        let (name, log) = match target {
            Target::Swx(program) => {
                command.arg(program);
                match place {
                    Place::Tcp => command.args(["--listen", &SERVES.to_string()]),
                    Place::Unix(path) => command.arg("--socket").arg(path),
                };
                // The tests run on the same processors.
                command.args(["--device", &DEVICE.to_string(), "--idle", "adaptive"]);
                for (number, interface) in ports {
                    let spec = match interface.contains(',') {
                        true => format!("{number}={interface}"),
                        false => format!("{number}=net_af_packet,iface={interface}"),
                    };
                    command.args(["--port", &spec]);
                }
                (SWX, None)
            }
            Target::Bmv2(program) => {
                command.arg(program).arg("--no-p4").args(["--device-id", &DEVICE.to_string()]);
                for (number, interface) in ports {
                    command.args(["-i", &format!("{number}@{interface}")]);
                }
                command.arg("--log-file").arg(&log).args(["--log-level", "warn", "--log-flush"]);
                command.args(["--", "--grpc-server-addr", &SERVES.to_string()]);
                (BMV2, Some(log))
            }
        };
        let mut switch = Self { process: Process::spawn(command)?, name, log };
        wait::until(&format!("{name} serves {}", place.address()), START, || {
            if let Some(status) = switch.process.ended() {
                return Err(Error::Command {
                    command: name.to_owned(),
                    outcome: format!("{status} at its start"),
                    stderr: switch.said(),
                });
            }
            // linkd-p4switch takes its socket before its ports.
            if switch.name == SWX && !switch.process.stderr().contains("ready at=") {
                return Ok(None);
            }
            let place = place.clone();
            namespace.enter(move || Ok(place.answers().then_some(())))
        })?;
        Ok(switch)
    }

    /// Sends it a signal.
    pub fn signal(&mut self, signal: Signal) {
        self.process.signal(signal);
    }

    pub fn kill(mut self) -> Result<()> {
        self.process.kill().map(drop)
    }

    /// Processor time of all its threads since the start.
    pub fn processor_time(&self) -> anyhow::Result<Duration> {
        processor_time(&self.process)
    }

    pub fn runs(&mut self) -> bool {
        self.process.ended().is_none()
    }

    /// Its output, for the message of a failure.
    #[must_use]
    pub fn said(&self) -> String {
        let file = self.log.as_deref().map(read).unwrap_or_default();
        format!("--- {}:\n{}{}{file}", self.name, self.process.stdout(), self.process.stderr())
    }
}

/// Processor time of all threads of a process since its start.
pub(crate) fn processor_time(process: &Process) -> anyhow::Result<Duration> {
    let path = format!("/proc/{}/stat", process.pid());
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    // The second field is the name, in parentheses; user and system time are the 14th and 15th.
    let fields = text.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
    let ticks = fields.into_iter().flatten().skip(11).take(2).map(str::parse::<u64>);
    let ticks: u64 = ticks.sum::<std::result::Result<_, _>>().context(path)?;
    // USER_HZ is 100 on all architectures of Linux.
    Ok(Duration::from_millis(10 * ticks))
}

/// A log of bmv2, whose name may have a suffix.
fn read(log: &Path) -> String {
    let text = PathBuf::from(format!("{}.txt", log.display()));
    let file = fs::read_to_string(text).or_else(|_| fs::read_to_string(log));
    let file = file.trying(|| format!("read {}", log.display()));
    file.unwrap_or_else(|e| e.to_string())
}
