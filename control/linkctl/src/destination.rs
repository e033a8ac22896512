// SPDX-License-Identifier: Apache-2.0
//! An output file: written whole or not at all, and never one of the inputs.
//!
//! It is checked before the work begins, which may take minutes.

use crate::failure::Failure;
use std::fs::{Metadata, OpenOptions, Permissions};
use std::io::{Error, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file to be written.
#[derive(Debug)]
pub struct Destination {
    path: PathBuf,
    /// Metadata of the existing file; links are followed.
    there: Option<Metadata>,
}

impl Destination {
    /// The file that `option` names, for a command that reads `inputs`.
    ///
    /// # Errors
    /// If it cannot be written, or is one of the inputs.
    pub fn new(option: &str, path: &Path, inputs: &[&Path]) -> Result<Self, Failure> {
        let shown = path.display();
        let there = path.metadata().ok();
        if there.as_ref().is_some_and(Metadata::is_dir)
            || path.as_os_str().as_bytes().ends_with(b"/")
        {
            let message = format!("cannot write {shown}: it is a folder; name a file in it");
            return Err(Failure::failed("io", message));
        }
        let same = |input: &&Path| match (&there, input.metadata()) {
            (Some(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
            _ => false,
        };
        if let Some(input) = inputs.iter().copied().find(|input| same(input)) {
            return Err(Failure::usage(format!(
                "{option} {shown} would overwrite {}, which is read: name another file",
                input.display()
            )));
        }
        let destination = Self { path: path.to_owned(), there };
        let folder = folder(path);
        if !folder.is_dir() {
            return Err(Failure::failed(
                "io",
                format!("cannot write {shown}: there is no folder {}; make it", folder.display()),
            ));
        }
        if destination.is_regular() {
            // A file without a name needs no cleanup.
            tempfile::tempfile_in(folder).map_err(|error| destination.failed(&error))?;
        }
        Ok(destination)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file. On failure an existing file is unchanged.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn write(&self, text: &str) -> Result<(), Failure> {
        let written = if self.is_regular() { self.replace(text) } else { self.fill(text) };
        written.map_err(|error| self.failed(&error))
    }

    /// Whether it is a file, or nothing yet: no device and no pipe.
    fn is_regular(&self) -> bool {
        self.there.as_ref().is_none_or(Metadata::is_file)
    }

    fn replace(&self, text: &str) -> Result<(), Error> {
        // A link stays one.
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let mut file = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder(&path))?;
        file.write_all(text.as_bytes())?;
        if let Some(there) = &self.there {
            file.as_file().set_permissions(there.permissions())?;
        }
        file.persist(&path).map_err(|error| error.error)?;
        Ok(())
    }

    fn fill(&self, text: &str) -> Result<(), Error> {
        OpenOptions::new().write(true).open(&self.path)?.write_all(text.as_bytes())
    }

    fn failed(&self, error: &Error) -> Failure {
        // The message does not name the temporary file.
        let why = error.to_string();
        let why = why.split_once(" at path ").map_or(why.as_str(), |(why, _)| why);
        Failure::failed("io", format!("cannot write {}: {why}", self.path.display()))
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
