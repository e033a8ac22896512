// SPDX-License-Identifier: Apache-2.0
//! What is said of a switch in the box's file, and the program that it runs.

use emu::units::ByDirection;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Bytes that a file of a program may have.
const FILE_BYTES: u64 = 64 << 20;
/// Of the compiled program, in a directory.
const DEVICE: &str = "linkemu.json";
/// Of the compiled program of a Tofino, in a directory.
const TOFINO: &str = "linkemu.bin";
/// Of its P4Info, in a directory.
const P4INFO: &str = "linkemu.p4info.bin";

/// A switch between the hosts and the box.
#[derive(Clone, Debug)]
pub struct Config {
    /// Of its P4Runtime service, such as `http://127.0.0.1:9559`.
    pub address: String,
    /// As P4Runtime counts devices.
    pub device: u64,
    /// Of linkd, in the election of a primary.
    pub election: u64,
    pub target: Target,
    /// Its ports to the box.
    pub box_ports: Sides<u16>,
    pub host_ports: Sides<Vec<u16>>,
    pub stages: Stages,
    pub program: Program,
}

/// The two sides of the link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sides<T> {
    pub wan: T,
    pub client: T,
}

impl<T> Sides<T> {
    /// By the direction of what comes in there: forward from `wan`.
    pub fn incoming(&self) -> ByDirection<&T> {
        ByDirection([&self.wan, &self.client])
    }

    /// By the direction of what goes out there: forward to `client`.
    pub fn outgoing(&self) -> ByDirection<&T> {
        ByDirection([&self.client, &self.wan])
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Bmv2,
    Tofino,
}

impl Target {
    /// What its clock counts, in ns.
    #[must_use]
    pub fn tick(self) -> u64 {
        match self {
            Self::Bmv2 => 1000,
            Self::Tofino => 1,
        }
    }

    fn device(self) -> &'static str {
        match self {
            Self::Bmv2 => DEVICE,
            Self::Tofino => TOFINO,
        }
    }
}

/// What a switch may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    pub classifies: bool,
    /// Loses frames one by one.
    pub loses: bool,
    pub marks: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// What the compiler wrote for the switch: JSON for bmv2.
    pub device: Cow<'static, [u8]>,
    /// The P4Info in binary form.
    pub p4info: Cow<'static, [u8]>,
}

/// Why a program is not read.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} has more than {} MiB: it is no P4 program of ours", .0.display(), FILE_BYTES >> 20)]
    TooLong(PathBuf),
}

impl Program {
    /// One that is part of this executable.
    #[must_use]
    pub const fn embedded(device: &'static [u8], p4info: &'static [u8]) -> Self {
        Self { device: Cow::Borrowed(device), p4info: Cow::Borrowed(p4info) }
    }

    /// One in a directory: `linkemu.p4info.bin`, and `linkemu.json` for bmv2 or `linkemu.bin`
    /// for a Tofino.
    ///
    /// # Errors
    /// [`ProgramError`].
    pub fn read(directory: &Path, target: Target) -> Result<Self, ProgramError> {
        let read = |name: &str| {
            let path = directory.join(name);
            let failed = |source| ProgramError::Io { path: path.clone(), source };
            let file = File::open(&path).map_err(failed)?;
            let mut bytes = Vec::new();
            file.take(FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
            if bytes.len() as u64 > FILE_BYTES {
                return Err(ProgramError::TooLong(path));
            }
            Ok(Cow::Owned(bytes))
        };
        Ok(Self { device: read(target.device())?, p4info: read(P4INFO)? })
    }

    /// What it is known by: the beginning of its hash.
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
