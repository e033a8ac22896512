// SPDX-License-Identifier: Apache-2.0
//! The P4 program of the switch, compiled: what the control plane pushes to it.
//!
//! The program is `v1model/linkemu.p4` with `shared/`; docs/p4.md says what it does. Its
//! compiled form is kept beside it, so that a build needs no P4 compiler; a test holds it
//! against its sources. `compile.sh` makes it anew.

/// What bmv2 runs: its JSON.
pub const BMV2_JSON: &[u8] = include_bytes!(concat!(env!("P4_COMPILED"), "/linkemu.json"));
/// What P4Runtime says of it: a `p4.config.v1.P4Info`.
pub const BMV2_P4INFO: &[u8] = include_bytes!(concat!(env!("P4_COMPILED"), "/linkemu.p4info.bin"));
