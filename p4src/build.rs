// SPDX-License-Identifier: Apache-2.0
//! Locates the compiled program: in `LINKEMU_P4` if a build compiled it, otherwise in the sources,
//! where each release has it.

use std::env;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-env-changed=LINKEMU_P4");
    let kept = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("compiled/bmv2");
    let compiled = env::var_os("LINKEMU_P4").filter(|p| !p.is_empty());
    let compiled = compiled.map_or(kept, PathBuf::from);
    for name in ["linkemu.json", "linkemu.p4info.bin"] {
        let file = compiled.join(name);
        if !file.is_file() {
            return Err(format!(
                "{} is not there: compile with p4src/compile.sh, or leave LINKEMU_P4 out",
                file.display()
            )
            .into());
        }
        println!("cargo::rerun-if-changed={}", file.display());
    }
    println!("cargo::rustc-env=P4_COMPILED={}", compiled.display());
    Ok(())
}
