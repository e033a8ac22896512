// SPDX-License-Identifier: Apache-2.0
//! Named profiles: built-in ones, files of the user's directories, and stored ones. Files are read
//! once, at start.

use crate::{FileError, PATCHED, Profile, nearest};
use prost::Message;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const BUILT_IN: [&str; 19] = [
    include_str!("../profiles/viasat2.toml"),
    include_str!("../profiles/viasat2-fixed.toml"),
    include_str!("../profiles/viasat2-pings.toml"),
    include_str!("../profiles/viasat2-bad-day.toml"),
    include_str!("../profiles/geo-600.toml"),
    include_str!("../profiles/geo-rain.toml"),
    include_str!("../profiles/geo-rcs2.toml"),
    include_str!("../profiles/starlink.toml"),
    include_str!("../profiles/starlink-victoria.toml"),
    include_str!("../profiles/starlink-lagos.toml"),
    include_str!("../profiles/adsl2plus.toml"),
    include_str!("../profiles/vdsl2.toml"),
    include_str!("../profiles/docsis31.toml"),
    include_str!("../profiles/lte.toml"),
    include_str!("../profiles/lte-driving.toml"),
    include_str!("../profiles/5g-nsa.toml"),
    include_str!("../profiles/wifi-busy.toml"),
    include_str!("../profiles/transatlantic.toml"),
    include_str!("../profiles/transparent.toml"),
];

/// Maximum number of user profiles: their list must fit into one answer.
const MOST: usize = 256;
/// Maximum total size of their messages, for the same reason.
const MOST_BYTES: usize = 16 << 20;

/// Source of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    BuiltIn,
    File(PathBuf),
    Stored,
}

/// A profile and its origin.
#[derive(Clone, Debug)]
pub struct Entry {
    pub profile: Profile,
    pub origin: Origin,
}

#[derive(Clone, Debug)]
pub struct Catalog {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StoreError {
    /// The profile is not a stored one.
    #[error("{name:?} is {whose}, which does not change: use another name")]
    Fixed {
        name: String,
        /// The origin of that profile.
        whose: String,
    },
    /// A stored profile has the name.
    #[error("another profile named {0:?} is stored: replace it, or use another name")]
    Exists(String),
    /// The name ends in the mark of a patched link.
    #[error("the name {0:?} ends in '*', which marks a patched link: leave it out")]
    Marked(String),
    #[error("no profile is named {0:?}")]
    Missing(String),
    /// Too many or too large stored profiles.
    #[error("{MOST} profiles or {} MB are stored: delete some first", MOST_BYTES >> 20)]
    Full,
}

#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("cannot list the profiles in {path}: {source}")]
    Directory { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    File(#[from] FileError),
    /// The file has a name that is in use.
    #[error("{path}: the name {name:?} is {taken}: give this profile another name")]
    Taken { path: PathBuf, name: String, taken: String },
    /// The name ends in the mark of a patched link.
    #[error("{path}: the name {name:?} ends in '*', which marks a patched link: leave it out")]
    Marked { path: PathBuf, name: String },
    #[error("{path}: more than {MOST} user profiles: move some out of the directory")]
    TooMany { path: PathBuf },
    /// The files are too large together.
    #[error(
        "{path}: with this one, the user profiles have more than {MOST_BYTES} bytes: move some out of the directory"
    )]
    TooLarge { path: PathBuf },
}

impl Catalog {
    pub fn built_in() -> Self {
        // Tests parse each of them, so none is missing.
        let profiles = BUILT_IN.iter().filter_map(|text| Profile::from_toml(text).ok());
        let entry = |profile: Profile| {
            (profile.name().to_owned(), Entry { profile, origin: Origin::BuiltIn })
        };
        Self { entries: profiles.map(entry).collect() }
    }

    /// The built-in profiles and those of all `*.toml` files in the directories.
    ///
    /// # Errors
    /// If a directory cannot be read, a file is not a valid profile, or a name is used twice.
    pub fn load<P: AsRef<Path>>(directories: &[P]) -> Result<Self, CatalogError> {
        let mut catalog = Self::built_in();
        let own = catalog.entries.len();
        let mut bytes = 0;
        for directory in directories {
            for path in files(directory.as_ref())? {
                if catalog.entries.len() >= own + MOST {
                    return Err(CatalogError::TooMany { path: directory.as_ref().into() });
                }
                bytes += catalog.add(path.clone())?;
                if bytes > MOST_BYTES {
                    return Err(CatalogError::TooLarge { path });
                }
            }
        }
        Ok(catalog)
    }

    /// Adds the profile of a file. Returns the size of its message, bytes.
    fn add(&mut self, path: PathBuf) -> Result<usize, CatalogError> {
        let profile = Profile::from_file(&path)?;
        let name = profile.name().to_owned();
        if name.ends_with(PATCHED) {
            return Err(CatalogError::Marked { path, name });
        }
        if let Some(entry) = self.entries.get(&name) {
            let taken = match &entry.origin {
                Origin::BuiltIn => "that of a built-in profile".to_owned(),
                Origin::File(other) => format!("that of {}", other.display()),
                Origin::Stored => "that of a stored profile".to_owned(),
            };
            return Err(CatalogError::Taken { path, name, taken });
        }
        let bytes = profile.as_proto().encoded_len();
        self.entries.insert(name, Entry { profile, origin: Origin::File(path) });
        Ok(bytes)
    }

    /// Stores a profile under its name. Returns true if it replaced another one.
    ///
    /// # Errors
    /// If the name is in use or invalid, or the catalog is full.
    pub fn put(&mut self, profile: Profile, replace: bool) -> Result<bool, StoreError> {
        let name = profile.name().to_owned();
        if name.ends_with(PATCHED) {
            return Err(StoreError::Marked(name));
        }
        let known = self.entries.get(&name);
        if let Some(entry) = known {
            Self::may_change(entry)?;
            if entry.profile == profile {
                return Ok(false);
            }
            if !replace {
                return Err(StoreError::Exists(name));
            }
        }
        let replaced = known.is_some();
        let size = |entry: &Entry| entry.profile.as_proto().encoded_len();
        let others = self.stored().filter(|entry| entry.profile.name() != name);
        let (count, bytes) = others.fold((0, 0), |(n, sum), entry| (n + 1, sum + size(entry)));
        let entry = Entry { profile, origin: Origin::Stored };
        if count >= MOST || bytes + size(&entry) > MOST_BYTES {
            return Err(StoreError::Full);
        }
        self.entries.insert(name, entry);
        Ok(replaced)
    }

    ///
    /// # Errors
    /// If there is no stored profile with this name.
    pub fn remove(&mut self, name: &str) -> Result<Profile, StoreError> {
        let missing = || StoreError::Missing(name.to_owned());
        Self::may_change(self.entries.get(name).ok_or_else(missing)?)?;
        self.entries.remove(name).map(|entry| entry.profile).ok_or_else(missing)
    }

    fn may_change(entry: &Entry) -> Result<(), StoreError> {
        let whose = match &entry.origin {
            Origin::Stored => return Ok(()),
            Origin::BuiltIn => "a built-in profile".to_owned(),
            Origin::File(path) => format!("the profile of {}", path.display()),
        };
        Err(StoreError::Fixed { name: entry.profile.name().to_owned(), whose })
    }

    pub fn stored(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().filter(|entry| entry.origin == Origin::Stored)
    }

    /// All entries, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub fn get(&self, name: &str) -> Option<&Profile> {
        self.entries.get(name).map(|entry| &entry.profile)
    }

    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// The known name nearest to an unknown one.
    pub fn nearest(&self, name: &str) -> Option<&str> {
        nearest(name, self.entries.keys().map(String::as_str))
    }
}

fn files(directory: &Path) -> Result<Vec<PathBuf>, CatalogError> {
    let list = || -> std::io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "toml") && path.is_file() {
                files.push(path);
            }
        }
        // The order of a directory is undefined; that of messages must be stable.
        files.sort();
        Ok(files)
    };
    list().map_err(|source| CatalogError::Directory { path: directory.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_are_valid_and_name_their_source() {
        for text in BUILT_IN {
            let profile = Profile::from_toml(text).unwrap();
            assert!(!profile.as_proto().source.is_empty(), "{}", profile.name());
            assert!(!profile.as_proto().description.is_empty(), "{}", profile.name());
            assert!(!profile.as_proto().group.is_empty(), "{}", profile.name());
            assert!(text.starts_with("# SPDX-License-Identifier: Apache-2.0\n"));
        }
        let names: Vec<_> = Catalog::built_in().entries.into_keys().collect();
        assert_eq!(names.len(), BUILT_IN.len(), "{names:?}");
    }

    #[test]
    fn only_stored_profiles_can_be_replaced_and_removed() {
        let mut catalog = Catalog::built_in();
        let own = |name: &str, seconds: u32| {
            let rtt =
                format!("name = {name:?}\ndescription = \"{seconds}\"\nsource = \"a test\"\n");
            let transparent =
                include_str!("../profiles/transparent.toml").replace("name = \"transparent\"", "");
            let text = transparent
                .lines()
                .filter(|l| !l.starts_with("description") && !l.starts_with("source"));
            Profile::from_toml(&(rtt + &text.collect::<Vec<_>>().join("\n"))).unwrap()
        };
        assert_eq!(catalog.put(own("mine", 1), false), Ok(false));
        // Storing the same profile again is idempotent.
        assert_eq!(catalog.put(own("mine", 1), false), Ok(false));
        assert_eq!(catalog.put(own("mine", 2), false), Err(StoreError::Exists("mine".into())));
        assert_eq!(catalog.put(own("mine", 2), true), Ok(true));
        assert_eq!(catalog.get("mine").unwrap().as_proto().description, "2");
        for replace in [false, true] {
            let fixed = catalog.put(own("viasat2", 1), replace).unwrap_err();
            assert!(fixed.to_string().contains("built-in"), "{fixed}");
        }
        assert!(matches!(catalog.remove("viasat2"), Err(StoreError::Fixed { .. })));
        assert_eq!(catalog.remove("mine").unwrap().name(), "mine");
        assert_eq!(catalog.remove("mine"), Err(StoreError::Missing("mine".into())));
        for n in 0..MOST {
            catalog.put(own(&format!("n{n}"), 1), false).unwrap();
        }
        assert_eq!(catalog.put(own("more", 1), false), Err(StoreError::Full));
        assert_eq!(catalog.put(own("n1", 2), true), Ok(true));
    }

    #[test]
    fn viasat2_has_the_study_figures() {
        let catalog = Catalog::built_in();
        let viasat2 = catalog.get("viasat2").unwrap().as_proto();
        let forward = viasat2.forward_pipe.as_ref().unwrap();
        let queue = forward.queue.as_ref().unwrap();
        let week_ns = 7.0 * 86_400e9;
        assert_eq!(forward.rate_bps, Some(144_000_000));
        assert_eq!(queue.limit_bytes, 36_000_000);
        assert_eq!(queue.random_drop.unwrap().threshold_bytes, 18_000_000);
        for pipe in [forward, viasat2.return_pipe.as_ref().unwrap()] {
            // Per week over both directions: 110 outages and 854 isolated losses.
            for (outage, events) in pipe.outages.iter().zip([110.0, 854.0]) {
                let rate = 2.0 * week_ns / outage.interval_ns as f64;
                assert!((rate / events - 1.0).abs() < 5e-3, "{rate}");
            }
        }
    }
}
