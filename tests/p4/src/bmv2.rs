// SPDX-License-Identifier: Apache-2.0
//! The software switch: bmv2's `simple_switch_grpc`, if it is installed.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use smoke::binaries::Lack;
use smoke::error::{Error, Result, Trying};
use smoke::namespace::Namespace;
use smoke::process::Process;
use smoke::wait;

/// Environment variable with the path of the program, or of its directory.
pub const VARIABLE: &str = "LINKEMU_BMV2";
pub const PROGRAM: &str = "simple_switch_grpc";
/// P4Runtime port, inside the namespace of the switch.
pub const SERVES: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9559);
/// Device id in P4Runtime.
pub const DEVICE: u64 = 1;

const START: Duration = Duration::from_secs(20);

/// The program, if this machine has it.
pub fn find() -> std::result::Result<PathBuf, Lack> {
    if let Some(named) = env::var_os(VARIABLE) {
        let named = PathBuf::from(named);
        let file = if named.is_dir() { named.join(PROGRAM) } else { named };
        let lack = || format!("{VARIABLE} names {}, which is not there", file.display());
        return if file.is_file() { Ok(file) } else { Err(Lack::Part(lack())) };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|d| d.join(PROGRAM)).find(|file| file.is_file());
    found.ok_or_else(|| {
        Lack::Permission(format!(
            "there is no `{PROGRAM}` on PATH: build it from github.com/p4lang/behavioral-model \
             with --with-pi, or name it or its directory in {VARIABLE}"
        ))
    })
}

/// A running switch, initially without a P4 program. It ends with its owner.
#[derive(Debug)]
pub struct Bmv2 {
    process: Process,
    log: PathBuf,
}

impl Bmv2 {
    /// Starts it in a namespace with these ports, and waits until it accepts connections.
    pub fn start(
        program: &Path,
        namespace: &Namespace,
        ports: &[(u16, String)],
        log: PathBuf,
    ) -> Result<Self> {
        let mut command = namespace.command(&[]);
        command.arg(program).arg("--no-p4").args(["--device-id", &DEVICE.to_string()]);
        for (number, interface) in ports {
            command.args(["-i", &format!("{number}@{interface}")]);
        }
        command.arg("--log-file").arg(&log).args(["--log-level", "warn", "--log-flush"]);
        command.args(["--", "--grpc-server-addr", &SERVES.to_string()]);
        let mut switch = Self { process: Process::spawn(command)?, log };
        wait::until(&format!("{PROGRAM} serves {SERVES}"), START, || {
            if let Some(status) = switch.process.ended() {
                return Err(Error::Command {
                    command: PROGRAM.to_owned(),
                    outcome: format!("{status} at its start"),
                    stderr: switch.said(),
                });
            }
            namespace.enter(|| Ok(TcpStream::connect(SERVES).is_ok().then_some(())))
        })?;
        Ok(switch)
    }

    pub fn kill(mut self) -> Result<()> {
        self.process.kill().map(drop)
    }

    pub fn runs(&mut self) -> bool {
        self.process.ended().is_none()
    }

    /// Its output, for the message of a failure.
    #[must_use]
    pub fn said(&self) -> String {
        let log = PathBuf::from(format!("{}.txt", self.log.display()));
        let file = fs::read_to_string(log).or_else(|_| fs::read_to_string(&self.log));
        let file = file.trying(|| format!("read {}", self.log.display()));
        let file = file.unwrap_or_else(|e| e.to_string());
        format!("--- {PROGRAM}:\n{}{}{file}", self.process.stdout(), self.process.stderr())
    }
}
