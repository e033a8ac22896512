// SPDX-License-Identifier: Apache-2.0
//! The compiled P4 program, which the control plane loads into the switch.
//!
//! The program is `v1model/linkemu.p4` for bmv2 and `pna/linkemu.p4` for SWX, with `shared/`,
//! described in docs/p4.md. Its compiled forms are in the repository, so that a build needs no P4
//! compiler. A test compares them with the sources. `compile.sh` compiles them.

/// Program for bmv2, as JSON.
pub const BMV2_JSON: &[u8] = include_bytes!(concat!(env!("P4_COMPILED"), "/linkemu.json"));
/// Its P4Info: a `p4.config.v1.P4Info`.
pub const BMV2_P4INFO: &[u8] = include_bytes!(concat!(env!("P4_COMPILED"), "/linkemu.p4info.bin"));

/// Program for SWX (`linkd-p4switch`): a specification with the program's own entries.
pub const SWX_SPEC: &[u8] = include_bytes!("../compiled/dpdk/linkemu.spec");
/// Its P4Info.
pub const SWX_P4INFO: &[u8] = include_bytes!("../compiled/dpdk/linkemu.p4info.bin");
