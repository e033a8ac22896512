// SPDX-License-Identifier: Apache-2.0
//! The integration tests of this crate, as one program: each file of this folder is a module.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../../emu/tests/arbitrary.rs"]
mod arbitrary;
mod capture;
mod capture_fates;
mod eal;
mod exhaustion;
mod faults;
mod links;
mod nohuge;

#[path = "../../emu/tests/numbered/mod.rs"]
mod numbered;
mod paired;
mod replay;
mod shim;
mod shim_fates;
mod shimmed;

use arbitrary::cases;
use emu::classify::{Class, classify, resolved_client};
use emu::client::ClientKey;
use emu::units::Direction;

/// The client, without rules, that decides which worker gets a frame.
fn key_of(frame: &[u8], direction: Direction) -> ClientKey {
    match classify(frame, direction) {
        Class::Client(key) => resolved_client(frame, direction).unwrap_or(key),
        Class::Malformed | Class::Runt => ClientKey::Default,
    }
}
