// SPDX-License-Identifier: Apache-2.0
//! `[hugepages]` of a box file.

use serde::{Deserialize, Deserializer, de};

/// `[hugepages]`: pages that `linkctl box apply` reserves.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hugepages {
    pub size: PageSize,
    pub count: u64,
}

impl Hugepages {
    /// Total size, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.count.saturating_mul(self.size.bytes())
    }
}

/// Hugepage sizes of x86-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    Mib2,
    Gib1,
}

impl PageSize {
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Mib2 => 2 << 20,
            Self::Gib1 => 1 << 30,
        }
    }

    /// Name of its directory in `/sys`.
    #[must_use]
    pub fn folder(self) -> String {
        format!("hugepages-{}kB", self.bytes() >> 10)
    }

    /// Name as in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mib2 => "2 MiB",
            Self::Gib1 => "1 GiB",
        }
    }
}

impl<'de> Deserialize<'de> for PageSize {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        let text = String::deserialize(value)?;
        let bytes = profile::parse_size(&text).map_err(de::Error::custom)?;
        [Self::Mib2, Self::Gib1].into_iter().find(|size| size.bytes() == bytes).ok_or_else(|| {
            de::Error::custom(format!("there are no hugepages of {text}: write 2 MiB or 1 GiB"))
        })
    }
}
