// SPDX-License-Identifier: Apache-2.0
//! Web pages of QUIC18 (Y. Wang et al., "Performance Evaluation of QUIC with BBR in Satellite
//! Internet", WiSEE 2018, section III.A and Table I).
//!
//! A page has small images of 3.7 KB, large images of 86.1 KB and an index that names them. The paper
//! gives the size of the whole page. The size of the index is the difference to the images, which
//! agrees with an index that has about 200 bytes per image.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Bytes of a KB. With 1000 the index of the large page would have 96 KB.
const KB: f64 = 1024.0;
const SMALL_IMAGE: u64 = (3.7 * KB) as u64;
const LARGE_IMAGE: u64 = (86.1 * KB) as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Page {
    Small,
    Medium,
    Big,
}

impl Page {
    /// Bytes of the index and of all images.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Small => 344_000,
            Self::Medium => 784_000,
            Self::Big => 2_300_000,
        }
    }

    /// Bytes of each image, in the order of requests.
    #[must_use]
    pub fn images(self) -> Vec<u64> {
        let (small, large) = match self {
            Self::Small => (18, 3),
            Self::Medium => (40, 7),
            Self::Big => (200, 17),
        };
        let mut images = vec![SMALL_IMAGE; small];
        images.extend(std::iter::repeat_n(LARGE_IMAGE, large));
        images
    }

    /// Bytes of the index.
    #[must_use]
    pub fn index(self) -> u64 {
        self.bytes() - self.images().iter().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::Page;

    #[test]
    fn page_has_size_and_objects_of_the_paper() {
        for (page, bytes, objects) in
            [(Page::Small, 344_000, 21), (Page::Medium, 784_000, 47), (Page::Big, 2_300_000, 217)]
        {
            let images = page.images();
            assert_eq!(images.len(), objects);
            assert_eq!(page.index() + images.iter().sum::<u64>(), bytes);
        }
    }

    #[test]
    fn index_grows_with_number_of_images() {
        let index = [Page::Small, Page::Medium, Page::Big].map(Page::index);
        assert!(index.is_sorted() && index[0] > 10_000 && index[2] < 50_000, "{index:?}");
    }
}
