// SPDX-License-Identifier: Apache-2.0
//! The switch behind the server.

use std::ops::Range;

use p4runtime::entry::Key;
use p4runtime::{Change, Count, P4Info, Stalls};
use tonic::Status;

/// Executes a program. The server has checked all arguments against the program and its entries.
pub trait Target: Send + 'static {
    /// Replaces the program. All entries, counters and groups are gone.
    ///
    /// # Errors
    /// The answer to the controller. The old program stays.
    fn load(&mut self, program: &[u8], info: &P4Info) -> Result<(), Status>;

    /// Applies changes in order: all of them, or none. Digests are no business of the target.
    ///
    /// # Errors
    /// The answer to the controller.
    fn apply(&mut self, changes: &[Change]) -> Result<(), Status>;

    /// Values of these cells of a counter.
    ///
    /// # Errors
    /// The answer to the controller.
    fn counts(&mut self, counter: &str, cells: Range<u64>) -> Result<Vec<Count>, Status>;

    /// The direct counter of an entry.
    ///
    /// # Errors
    /// The answer to the controller; without direct counters always.
    fn direct_count(&mut self, _key: &Key) -> Result<Count, Status> {
        Err(Status::unimplemented("no direct counters"))
    }

    /// How often the switch stood still since the program was loaded.
    ///
    /// # Errors
    /// The answer to the controller; without a measurement always.
    fn stalls(&mut self) -> Result<Stalls, Status> {
        Err(Status::unimplemented("stalls are not measured"))
    }
}
