// SPDX-License-Identifier: Apache-2.0
//! Finds the programs that a run starts.

use crate::failure::Failure;
use std::env;
use std::path::{Path, PathBuf};

/// Where packages install programs of the system, which may not be in an ordinary user's PATH.
const SYSTEM: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/usr/local/bin", "/usr/bin"];

/// Finds a program in `--bin-dir`, or beside linkctl, in PATH, and in the system's directories.
pub fn find(name: &str, given: Option<&Path>) -> Result<PathBuf, Failure> {
    let folders = match given {
        Some(folder) => vec![folder.to_owned()],
        None => {
            let own = env::current_exe().ok();
            let own = own.as_deref().and_then(Path::parent).map(Path::to_owned);
            let path = env::var_os("PATH").unwrap_or_default();
            own.into_iter()
                .chain(env::split_paths(&path))
                .chain(SYSTEM.map(PathBuf::from))
                .collect()
        }
    };
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    let path = found.ok_or_else(|| {
        let what = match given {
            Some(folder) => format!("there is no {name} in {}", folder.display()),
            None => format!("there is no {name} beside linkctl, in PATH and in /usr/sbin"),
        };
        Failure::failed("not_found", what)
            .hint("install the package linkemu, or build it: make build")
            .hint("is it elsewhere? give --bin-dir DIR")
    })?;
    // The command may have changed the directory until it is started.
    path.canonicalize()
        .map_err(|error| Failure::failed("io", format!("cannot open {}: {error}", path.display())))
}
