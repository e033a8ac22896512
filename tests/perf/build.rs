// SPDX-License-Identifier: Apache-2.0
//! Records the compiler for the budget of instructions, which holds for one compiler only.

use std::process::Command;

fn main() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().map(|out| out.stdout);
    let version = String::from_utf8(version.unwrap_or_default()).unwrap_or_default();
    println!("cargo::rustc-env=PERF_RUSTC={}", version.trim());
    println!("cargo::rerun-if-changed=build.rs");
}
