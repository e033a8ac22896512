// SPDX-License-Identifier: Apache-2.0
//! Links librte_pipeline with its dependencies and generates the bindings. `dpdk-sys` has checked
//! the release of DPDK and links the rest.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

/// Static libraries, in link order: each before those that it needs.
const LIBRARIES: [&str; 8] =
    ["pipeline", "table", "port", "acl", "lpm", "sched", "ip_frag", "eventdev"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=swx.h");
    for variable in ["PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    for flag in pkg_config(&["--static", "--libs"])?.split_whitespace() {
        if let Some(path) = flag.strip_prefix("-L") {
            println!("cargo::rustc-link-search=native={path}");
        }
    }
    for name in LIBRARIES {
        println!("cargo::rustc-link-lib=static:-bundle=rte_{name}");
    }
    // librte_port reads and writes capture files.
    println!("cargo::rustc-link-lib=dylib=pcap");
    let cflags = pkg_config(&["--cflags"])?;
    bindgen::Builder::default()
        .header("swx.h")
        .clang_args(cflags.split_whitespace())
        .prepend_enum_name(false)
        .generate_comments(false)
        .derive_default(true)
        .allowlist_function("rte_swx_.*|pipeline_spec_.*")
        .allowlist_type("rte_swx_.*")
        .allowlist_var("rte_swx_.*|RTE_SWX_.*")
        .opaque_type("FILE|_IO_FILE")
        .generate()
        .map_err(|e| format!("bindgen failed: {e}; it needs libclang (libclang-dev, clang)"))?
        .write_to_file(PathBuf::from(env::var("OUT_DIR")?).join("bindings.rs"))?;
    Ok(())
}

fn pkg_config(query: &[&str]) -> Result<String, Box<dyn Error>> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
    let output = Command::new(&program).args(query).arg("libdpdk").output()?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("`{program}` found no DPDK: {reason}").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
