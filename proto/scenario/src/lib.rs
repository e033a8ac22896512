// SPDX-License-Identifier: Apache-2.0
//! Scenarios: changes of a link along a timeline.
//!
//! A scenario is a TOML file whose steps set profiles, change parts of the link in a
//! profile's words, ramp a value, repeat, and wait for events. [`Scenario::from_toml`]
//! holds it to its rules; [`Timeline`] expands it, one step at a time.
//!
//! ```
//! use scenario::{Scenario, Timeline};
//! let scenario = Scenario::from_toml(
//!     r#"
//!     name = "flap"
//!     [[step]]
//!     repeat = 3
//!     [[step.step]]
//!     both.rate = "down"
//!     [[step.step]]
//!     after = "1 s"
//!     both.rate = "10 Mbit/s"
//!     [[step.step]]
//!     after = "9 s"
//!     "#,
//! )?;
//! assert_eq!(scenario.steps(), Some(9));
//! assert_eq!(scenario.length_ns(), Some(30_000_000_000));
//! let timeline = Timeline::new(&scenario, None, Default::default());
//! let last = timeline.last().and_then(Result::ok).map(|item| item.at_ns);
//! assert_eq!(last, scenario.length_ns());
//! # Ok::<(), profile::Violations>(())
//! ```
//!
//! Units: times in nanoseconds from the start. No clock, no thread, no I/O but
//! [`Scenario::from_file`]. [`theaterq`] makes scenarios of another emulator's traces.

mod catalog;
mod limits;
mod parts;
mod ramp;
mod read;
mod step;
pub mod theaterq;
mod timeline;

pub use catalog::{built_in, named};
pub use limits::*;
pub use parts::Parts;
pub use ramp::RampError;
pub use step::{Action, Links, Wait};
pub use timeline::{Item, Timeline};

use profile::{FileError, Violations, reading};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// A valid scenario; clones share their steps.
#[derive(Clone, Debug)]
pub struct Scenario {
    name: String,
    description: String,
    source: String,
    text: String,
    step: Arc<[step::Step]>,
    extent: step::Extent,
}

impl Scenario {
    /// Reads a scenario from TOML.
    ///
    /// # Errors
    /// All that is wrong with the text, each with its line and column.
    pub fn from_toml(text: &str) -> Result<Self, Violations> {
        read::scenario(text)
    }

    /// Reads a scenario from a TOML file.
    ///
    /// # Errors
    /// If the file cannot be read, or is no valid scenario.
    pub fn from_file(path: &Path) -> Result<Self, FileError> {
        reading::parse_file(path, FILE_BYTES, "is not a valid scenario", Self::from_toml)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn description(&self) -> &str {
        &self.description
    }

    /// Where its figures come from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text that it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Number of steps, with all repetitions; none if it is endless.
    pub fn steps(&self) -> Option<u64> {
        self.extent.steps
    }

    /// From its first instant to its last, without waits; none if it is endless.
    pub fn length_ns(&self) -> Option<u64> {
        self.extent.length_ns
    }

    /// The names of the profiles that it sets, as they come; some perhaps more than once.
    pub fn profiles(&self) -> Vec<&str> {
        let mut names = Vec::new();
        step::each(&self.step, &mut |action| {
            if let Action::Profile(name) = action {
                names.push(name.as_str());
            }
        });
        names
    }

    /// The names of the other links that it changes.
    pub fn links(&self) -> BTreeSet<&str> {
        step::links(&self.step)
    }
}
