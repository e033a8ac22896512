// SPDX-License-Identifier: Apache-2.0
//! PEM files with certificates and keys.

use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Maximum file size. A bundle of a hundred authorities has 200 KB.
const FILE_BYTES: u64 = 1 << 20;
/// Permissions that a key file must not have: group write, and any for others.
const FORBIDDEN: u32 = 0o027;

#[derive(Debug, thiserror::Error)]
pub enum PemError {
    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A key must be in a regular file.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    #[error("{} has more than {FILE_BYTES} bytes: too large for certificates or a key", .0.display())]
    TooLarge(PathBuf),
    /// Other users can read the key.
    #[error("{} has mode {mode:04o}, so others than its owner can use the key: chmod 600 {0}, and make a new key if someone may have read it", path.display())]
    Readable { path: PathBuf, mode: u32 },
    #[error("{} holds no {what} in PEM: {why}", path.display())]
    Missing { path: PathBuf, what: &'static str, why: String },
}

/// All certificates of a file, in order; at least one.
///
/// # Errors
/// [`PemError`].
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PemError> {
    read_all(path, "certificate")
}

/// All certificate revocation lists of a file, in order; at least one.
///
/// # Errors
/// [`PemError`].
pub fn read_crls(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, PemError> {
    read_all(path, "certificate revocation list")
}

fn read_all<T: PemObject>(path: &Path, what: &'static str) -> Result<Vec<T>, PemError> {
    let (text, _) = read(path)?;
    let found: Result<Vec<_>, _> = T::pem_slice_iter(&text).collect();
    let found = found.map_err(missing(path, what))?;
    if found.is_empty() {
        return Err(missing(path, what)(pem::Error::NoItemsFound));
    }
    Ok(found)
}

/// The first private key of a file. Only its owner may be able to write the file, and only owner
/// and group to read it.
///
/// # Errors
/// [`PemError`].
pub fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, PemError> {
    let (text, mode) = read(path)?;
    if mode & FORBIDDEN != 0 {
        return Err(PemError::Readable { path: path.into(), mode });
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(missing(path, "private key"))
}

fn missing<'a>(path: &'a Path, what: &'static str) -> impl Fn(pem::Error) -> PemError + 'a {
    move |error| {
        let why = match error {
            pem::Error::NoItemsFound => "nothing of the kind is in it".to_owned(),
            error => error.to_string(),
        };
        PemError::Missing { path: path.into(), what, why }
    }
}

/// Content and permissions of a file, from one open file.
fn read(path: &Path) -> Result<(Vec<u8>, u32), PemError> {
    let io = |source| PemError::Io { path: path.into(), source };
    // Opening a pipe would block.
    let there = std::fs::metadata(path).map_err(io)?;
    if !there.is_file() {
        return Err(PemError::NotAFile(path.into()));
    }
    let file = File::open(path).map_err(io)?;
    let mode = file.metadata().map_err(io)?.permissions().mode() & 0o7777;
    let mut text = Vec::new();
    file.take(FILE_BYTES + 1).read_to_end(&mut text).map_err(io)?;
    if text.len() as u64 > FILE_BYTES {
        return Err(PemError::TooLarge(path.into()));
    }
    Ok((text, mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    #[test]
    fn key_readable_by_others_is_refused_with_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.key");
        fs::write(&path, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
        for (mode, good) in [
            (0o600, true),
            (0o400, true),
            (0o640, true),
            (0o644, false),
            (0o660, false),
            (0o601, false),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            match read_key(&path) {
                Ok(_) => assert!(good, "{mode:o}"),
                Err(error) => {
                    assert!(!good, "{mode:o}: {error}");
                    assert!(error.to_string().contains(&format!("mode {mode:04o}")), "{error}");
                }
            }
        }
    }

    #[test]
    fn invalid_pem_is_refused_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("empty"), "").unwrap();
        fs::write(at("bad"), "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n")
            .unwrap();
        fs::write(at("large"), vec![b'x'; 2 << 20]).unwrap();
        for (name, expected) in [
            ("empty", "holds no certificate in PEM: nothing of the kind"),
            ("bad", "holds no certificate in PEM"),
            ("large", "more than"),
            ("none", "No such file"),
            ("", "not a regular file"),
        ] {
            let error = read_certificates(&at(name)).unwrap_err().to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }
}
