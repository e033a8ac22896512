// SPDX-License-Identifier: Apache-2.0
//! A private directory for sockets, captures and profiles of one test bed.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{Result, Trying};
use crate::estate;

/// A temporary directory, removed when dropped or when a signal ends the run.
#[derive(Debug)]
pub struct Directory(TempDir);

impl Directory {
    /// The path is short, because paths of unix sockets are limited.
    pub fn new() -> Result<Self> {
        estate::add_directory(|| {
            let made = tempfile::Builder::new()
                .prefix("lemu-")
                .tempdir()
                .trying(|| "make a temporary directory".to_owned())?;
            let path = made.path().to_owned();
            Ok((Self(made), path))
        })
    }

    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, text).trying(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        estate::forget_directory(self.0.path());
    }
}
