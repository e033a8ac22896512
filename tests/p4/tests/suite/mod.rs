// SPDX-License-Identifier: Apache-2.0
//! The tests, one file per subject, and their common parts.

pub mod accounts;
pub mod boxes;
pub mod classify;
pub mod egress;
pub mod equivalence;
pub mod group;
pub mod hosts;
pub mod lateness;
pub mod loss;
pub mod mark;
pub mod measure;
pub mod mirror;
pub mod path;
pub mod refuse;
pub mod session;
pub mod shim;
pub mod speed;

use p4runtime::Entry;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// Seed of all random values of the tests.
pub const SEED: u64 = 20;

/// A generator with a fixed seed.
pub fn generator() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(SEED)
}

pub fn noise(random: &mut ChaCha8Rng, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    random.fill_bytes(&mut bytes);
    bytes
}

/// Adds the action that assigns a frame to a client.
pub fn is_client(entry: Entry, client: u16) -> Entry {
    assign_at(entry, client, 0)
}

/// Adds the action that assigns a frame to a client of a box.
pub fn assign_at(entry: Entry, client: u16, owner: u8) -> Entry {
    entry.does("linkemu.set_client").with("client", client).with("box", owner)
}
