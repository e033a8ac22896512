// SPDX-License-Identifier: Apache-2.0
//! Files that `scripts/setup.sh hw` unpacks: QEMU, a kernel, and the programs of the guest.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use smoke::binaries::Lack;

/// Environment variable with another directory than that of setup.sh.
pub const VARIABLE: &str = "LINKEMU_HW";

/// Directories of libraries in a Debian root of this architecture.
const LIBRARIES: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];
const PROGRAMS: [&str; 4] = ["bin", "sbin", "usr/bin", "usr/sbin"];

/// The unpacked root of the guest.
#[derive(Clone, Debug)]
pub struct Parts {
    root: PathBuf,
    kernel: String,
}

impl Parts {
    pub fn find() -> Result<Self, Lack> {
        let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/tools/hw");
        let root = env::var_os(VARIABLE).map_or_else(usual, PathBuf::from);
        let lack = |what: &dyn std::fmt::Display| {
            Lack::Part(format!(
                "there is no QEMU with a kernel in {} ({what}): run scripts/setup.sh hw",
                root.display()
            ))
        };
        let root = fs::canonicalize(&root).map_err(|e| lack(&e))?;
        let kernel = fs::read_to_string(root.join("kernel")).map_err(|e| lack(&e))?;
        Ok(Self { root, kernel: kernel.trim().to_owned() })
    }

    #[must_use]
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    #[must_use]
    pub fn vmlinuz(&self) -> PathBuf {
        self.root.join(format!("boot/vmlinuz-{}", self.kernel))
    }

    /// The directory of the kernel's modules.
    #[must_use]
    pub fn modules(&self) -> PathBuf {
        self.root.join("lib/modules").join(&self.kernel)
    }

    /// A file or directory in it.
    #[must_use]
    pub fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    #[must_use]
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        PROGRAMS.iter().map(|d| self.root.join(d).join(name)).find(|p| p.is_file())
    }

    #[must_use]
    pub fn libraries(&self) -> Vec<PathBuf> {
        LIBRARIES.iter().map(|d| self.root.join(d)).collect()
    }

    /// Its dynamic loader. Programs of it run with their own C library and not with the one of this
    /// machine.
    #[must_use]
    pub fn loader(&self) -> PathBuf {
        let name = "ld-linux-x86-64.so.2";
        let places = self.libraries().into_iter().map(|d| d.join(name));
        places
            .into_iter()
            .find(|p| p.is_file())
            .unwrap_or_else(|| self.root.join("lib64").join(name))
    }

    /// Start of a command that runs a program of it.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(self.loader());
        command.arg("--library-path").arg(joined(&self.libraries())).arg(program);
        command
    }

    /// Command line of QEMU.
    #[must_use]
    pub fn qemu(&self) -> Vec<String> {
        let path = |below: &str| self.path(below).display().to_string();
        let modules = path("usr/lib/x86_64-linux-gnu/qemu");
        vec![
            "env".to_owned(),
            format!("QEMU_MODULE_DIR={modules}"),
            self.loader().display().to_string(),
            "--library-path".to_owned(),
            joined(&self.libraries()),
            path("usr/bin/qemu-system-x86_64"),
            "-L".to_owned(),
            path("usr/share/qemu"),
            "-L".to_owned(),
            path("usr/share/seabios"),
        ]
    }
}

fn joined(directories: &[PathBuf]) -> String {
    directories.iter().map(|d| d.display().to_string()).collect::<Vec<_>>().join(":")
}
