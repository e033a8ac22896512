// SPDX-License-Identifier: Apache-2.0
//! The machine that a box is: where it tells about itself, and its tools.
//!
//! Tools are those of the system's own directories below the root, never of the caller's PATH:
//! they run as root.

use crate::failure::Failure;
use ::doctor::machine::Machine;
use boxfile::Roots;
use nix::unistd::geteuid;
use std::path::{Path, PathBuf};
use std::process::Command;

const TOOLS: [&str; 6] = ["usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"];

#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    /// `/proc` and `/sys`.
    pub machine: Machine,
    /// `/sys` and `/run`.
    pub roots: Roots,
}

impl Host {
    /// Host with its trees below `root`.
    pub fn below(root: &Path) -> Self {
        let sys = root.join("sys");
        Self {
            root: root.to_owned(),
            machine: Machine { proc: root.join("proc"), sys: sys.clone() },
            roots: Roots { sys, run: root.join("run") },
        }
    }

    /// Where something is that has the absolute path `path` on it.
    pub fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Whether it is this machine, and not a tree of files.
    fn is_this(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Whether the caller may change it at all.
    pub fn may_change(&self) -> Result<(), Failure> {
        if self.is_this() && !geteuid().is_root() {
            let failure = Failure::failed(
                "permission_denied",
                "only root reserves hugepages and binds devices: nothing was changed",
            );
            return Err(failure.hint("sudo linkctl box …"));
        }
        Ok(())
    }

    pub fn tool(&self, name: &str) -> Option<PathBuf> {
        TOOLS.iter().map(|folder| self.root.join(folder).join(name)).find(|path| path.is_file())
    }

    /// Runs a tool and gives what it prints; the error has its own words.
    pub fn run(&self, words: &[String]) -> Result<String, String> {
        let (name, arguments) = words.split_first().ok_or("no command")?;
        let path = self.tool(name).ok_or_else(|| {
            format!("there is no `{name}` in {}", self.at(Path::new("/usr/sbin")).display())
        })?;
        // Some are scripts, which take words and programs from the caller's environment.
        let mut command = Command::new(path);
        command.args(arguments).env_clear().env("LC_ALL", "C");
        let output = command
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .output()
            .map_err(|e| format!("{name}: {e}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().lines().last().unwrap_or_default();
        Err(format!("`{}` failed ({}): {said}", words.join(" "), output.status))
    }
}

pub fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
