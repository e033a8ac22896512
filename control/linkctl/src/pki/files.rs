// SPDX-License-Identifier: Apache-2.0
//! Writes a certificate and its key. Each file is complete or absent, only the owner can read the key,
//! and files are replaced only with --force.

use crate::failure::Failure;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Made {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Writes NAME.pem and NAME.key into a directory, which is made if it is not there.
///
/// # Errors
/// If one of them is there, unless `force` is given; if they cannot be written.
pub fn write(
    directory: &Path,
    name: &str,
    certificate: &str,
    key: &str,
    force: bool,
) -> Result<Made, Failure> {
    let made = Made {
        certificate: directory.join(format!("{name}.pem")),
        key: directory.join(format!("{name}.key")),
    };
    fs::create_dir_all(directory).map_err(|error| failed(directory, &error))?;
    for path in [&made.key, &made.certificate] {
        if !force && fs::symlink_metadata(path).is_ok() {
            return Err(failed(path, &io::ErrorKind::AlreadyExists.into()));
        }
    }
    // Both stand before either has its name.
    let key = stage(directory, key, 0o600, &made.key)?;
    let certificate = stage(directory, certificate, 0o644, &made.certificate)?;
    place(key, &made.key, force)?;
    if let Err(failure) = place(certificate, &made.certificate, force) {
        // A key without a certificate is useless; with --force an old key is already replaced.
        let _ = fs::remove_file(&made.key);
        return Err(failure);
    }
    Ok(made)
}

/// Replaces a file.
///
/// # Errors
/// If it cannot be written.
pub fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let directory = path.parent().unwrap_or(Path::new("."));
    place(stage(directory, text, 0o644, path)?, path, true)
}

fn stage(
    directory: &Path,
    text: &str,
    mode: u32,
    path: &Path,
) -> Result<tempfile::NamedTempFile, Failure> {
    let staged = tempfile::Builder::new()
        .prefix(".linkctl-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(directory)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            // The umask may have removed bits.
            file.as_file().set_permissions(Permissions::from_mode(mode))?;
            file.as_file().sync_all()?;
            Ok(file)
        });
    staged.map_err(|error| failed(path, &error))
}

fn place(file: tempfile::NamedTempFile, path: &Path, force: bool) -> Result<(), Failure> {
    let placed = if force { file.persist(path) } else { file.persist_noclobber(path) };
    placed.map(drop).map_err(|error| failed(path, &error.error))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    let shown = path.display();
    if error.kind() == io::ErrorKind::AlreadyExists {
        return Failure::failed("exists", format!("{shown} is there already"))
            .hint("give --force to replace it, or another -d DIR");
    }
    Failure::failed("io", format!("cannot write {shown}: {error}"))
}
