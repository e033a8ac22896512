// SPDX-License-Identifier: Apache-2.0
//! Configuration of a switch, from the box file, and its P4 program.

use crate::names::{self, CheckError};
use crate::target::Target;
use crate::tofino::{self, Format, TofinoError};
use emu::units::ByDirection;
use p4runtime::{P4Info, Tls};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Boxes behind a switch: the program has three bits for their number.
pub const MAX_BOXES: usize = 8;
/// Maximum size of a program file, bytes.
const FILE_BYTES: u64 = 64 << 20;
/// File name of the compiled program for bmv2.
const DEVICE: &str = "linkemu.json";
/// File name of the compiled program for SWX.
const SWX: &str = "linkemu.spec";
/// File name of a Tofino's program in the form of its P4Runtime server.
const TOFINO: &str = "linkemu.bin";
/// File name of the compiler's description of its output for a Tofino.
const CONF: &str = "linkemu.conf";
/// File name of the P4Info.
const P4INFO: &str = "linkemu.p4info.bin";

#[derive(Clone, Debug)]
pub struct Config {
    /// URL of the P4Runtime service, such as `http://127.0.0.1:9559`.
    pub address: String,
    /// For an address with `https`.
    pub tls: Option<Tls>,
    /// P4Runtime device id.
    pub device: u64,
    /// linkd's election id.
    pub election: u64,
    pub target: Target,
    /// The switch's ports to each box: one to [`MAX_BOXES`].
    pub boxes: Vec<Sides<u16>>,
    pub host_ports: Sides<Vec<u16>>,
    /// The port for copies, if there is one. Frames that enter there are dropped.
    pub mirror_port: Option<u16>,
    pub stages: Stages,
    pub program: Program,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sides<T> {
    pub wan: T,
    pub client: T,
}

impl<T> Sides<T> {
    /// By the direction of incoming frames: forward enters at `wan`.
    pub fn incoming(&self) -> ByDirection<&T> {
        ByDirection([&self.wan, &self.client])
    }

    /// By the direction of outgoing frames: forward leaves at `client`.
    pub fn outgoing(&self) -> ByDirection<&T> {
        ByDirection([&self.client, &self.wan])
    }
}

/// File of the program that runs on a target.
fn device(target: Target) -> &'static str {
    match target {
        Target::Bmv2 => DEVICE,
        Target::Swx => SWX,
        Target::Tofino => TOFINO,
    }
}

/// Stages that the switch may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    pub classifies: bool,
    /// Applies per-packet loss.
    pub loses: bool,
    pub marks: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Compiler output for the target: JSON for bmv2, a specification for SWX.
    pub device: Cow<'static, [u8]>,
    /// P4Info in binary form.
    pub p4info: Cow<'static, [u8]>,
}

#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} has more than {} MiB: not a P4 program of linkemu", .0.display(), FILE_BYTES >> 20)]
    TooLong(PathBuf),
    #[error(transparent)]
    Tofino(#[from] TofinoError),
    #[error(transparent)]
    Check(#[from] CheckError),
}

impl Program {
    /// A program embedded in this executable.
    #[must_use]
    pub const fn embedded(device: &'static [u8], p4info: &'static [u8]) -> Self {
        Self { device: Cow::Borrowed(device), p4info: Cow::Borrowed(p4info) }
    }

    /// Reads a program from a directory: `linkemu.p4info.bin`, and `linkemu.json` for bmv2 or
    /// `linkemu.spec` for SWX. For a Tofino the rest is the compiler's output, which is converted to
    /// `format`. Without `format` it is `linkemu.bin` as it is, if there is one, and otherwise
    /// Stratum's.
    ///
    /// # Errors
    /// If a file cannot be read or is too large, or is not the compiler's.
    pub fn read(
        directory: &Path,
        target: Target,
        format: Option<Format>,
    ) -> Result<Self, ProgramError> {
        let read = |name: &Path| {
            let path = directory.join(name);
            let failed = |source| ProgramError::Io { path: path.clone(), source };
            let file = File::open(&path).map_err(failed)?;
            let mut bytes = Vec::new();
            file.take(FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
            if bytes.len() as u64 > FILE_BYTES {
                return Err(ProgramError::TooLong(path));
            }
            Ok(bytes)
        };
        let p4info = read(Path::new(P4INFO))?;
        let ready = format.is_none() && directory.join(TOFINO).exists();
        let device = if target == Target::Tofino && !ready {
            let conf = read(Path::new(CONF))?;
            tofino::device(&directory.join(CONF), &conf, format.unwrap_or_default(), read)?
        } else {
            read(Path::new(device(target)))?
        };
        Ok(Self { device: Cow::Owned(device), p4info: Cow::Owned(p4info) })
    }

    /// Checks that a session can use the program. Returns its name, version and architecture.
    ///
    /// # Errors
    /// The first difference, and the remedy.
    pub fn check(&self, target: Target) -> Result<String, ProgramError> {
        let info = P4Info::decode(&self.p4info).map_err(CheckError::from)?;
        names::check(&info, target)?;
        Ok(info.package().to_string())
    }

    /// Identifies the program: the first 64 bits of its hash.
    #[must_use]
    pub fn cookie(&self) -> u64 {
        let mut hash = Sha256::new();
        hash.update((self.device.len() as u64).to_be_bytes());
        hash.update(&self.device);
        hash.update(&self.p4info);
        let hash = hash.finalize();
        hash.iter().take(8).fold(0, |cookie, byte| (cookie << 8) | u64::from(*byte))
    }
}
