// SPDX-License-Identifier: Apache-2.0
//! Finds DPDK, links the libraries of `libraries.txt`, builds the shim and generates the bindings
//! listed in `allowlist.txt`.
//!
//! The flags come from `pkg-config` itself: DPDK's inline functions need `-march=…` and `-include
//! rte_config.h`, which the `pkg-config` crate does not pass on.

use std::error::Error;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

const OLDEST: (u32, u32) = (22, 11);
const REMEDY: &str = "install DPDK 22.11 or newer with its headers and static libraries (Debian, \
                      Ubuntu: `apt-get install --no-install-recommends libdpdk-dev pkg-config`), \
                      or point PKG_CONFIG_PATH at the folder of its libdpdk.pc";

fn main() {
    if let Err(error) = run() {
        println!("cargo::error={error}");
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    for file in ["allowlist.txt", "libraries.txt", "shim.c", "shim.h"] {
        println!("cargo::rerun-if-changed={file}");
    }
    for variable in ["PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }

    check_version(pkg_config("--modversion")?.trim())?;
    let cflags: Vec<String> =
        pkg_config("--cflags")?.split_whitespace().map(str::to_owned).collect();

    let mut shim = cc::Build::new();
    shim.file("shim.c").opt_level(3).flag("-std=gnu11");
    for flag in &cflags {
        shim.flag(flag);
    }
    shim.try_compile("lke_shim").map_err(|e| format!("cannot compile dpdk-sys/shim.c: {e}"))?;
    link()?;
    bind(&cflags)
}

fn pkg_config(query: &str) -> Result<String, String> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
    let output = Command::new(&program)
        .args(query.split(' '))
        .arg("libdpdk")
        .output()
        .map_err(|e| format!("cannot run `{program}` ({e}); {REMEDY}"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        let reason = reason.lines().next().unwrap_or("no reason given").to_owned();
        return Err(format!("`{program} {query} libdpdk` found no DPDK ({reason}); {REMEDY}"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn check_version(version: &str) -> Result<(), String> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if found < OLDEST {
        return Err(format!("DPDK {version} is too old; {REMEDY}"));
    }
    Ok(())
}

/// Links the libraries of `libraries.txt` statically, in their order.
fn link() -> Result<(), Box<dyn Error>> {
    let flags = pkg_config("--static --libs")?;
    let there = |name: &str| {
        let archive = format!("-l:librte_{name}.a");
        flags.split_whitespace().any(|flag| flag == archive)
    };
    for path in flags.split_whitespace().filter_map(|flag| flag.strip_prefix("-L")) {
        println!("cargo::rustc-link-search=native={path}");
    }
    let list = fs::read_to_string("libraries.txt")?;
    let mut drivers = Vec::new();
    for (number, line) in list.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (kind, name) = line.split_once(' ').unwrap_or((line, ""));
        match kind {
            "system" => println!("cargo::rustc-link-lib=dylib={name}"),
            "newer" if !there(name) => {}
            "library" | "driver" | "newer" if there(name) => {
                println!("cargo::rustc-link-lib=static:+whole-archive,-bundle=rte_{name}");
                drivers.extend((kind == "driver" && name.starts_with("net_")).then_some(name));
            }
            "library" | "driver" | "newer" => {
                return Err(format!("this DPDK has no static librte_{name}.a; {REMEDY}").into());
            }
            _ => return Err(format!("libraries.txt:{}: unknown kind `{kind}`", number + 1).into()),
        }
    }
    println!("cargo::rustc-env=DPDK_DRIVERS={}", drivers.join(" "));
    Ok(())
}

fn bind(cflags: &[String]) -> Result<(), Box<dyn Error>> {
    let mut builder = bindgen::Builder::default()
        .header("shim.h")
        .clang_args(cflags)
        .prepend_enum_name(false)
        .generate_comments(false)
        .derive_default(true);
    for (number, line) in fs::read_to_string("allowlist.txt")?.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (kind, name) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let name = name.trim();
        builder = match kind {
            "function" => builder.allowlist_function(name),
            "type" => builder.allowlist_type(name),
            "var" => builder.allowlist_var(name),
            "opaque" => builder.opaque_type(name),
            _ => return Err(format!("allowlist.txt:{}: unknown kind `{kind}`", number + 1).into()),
        };
    }
    let out = PathBuf::from(env::var("OUT_DIR")?).join("bindings.rs");
    builder
        .generate()
        .map_err(|e| format!("bindgen failed: {e}; it needs libclang (libclang-dev, clang)"))?
        .write_to_file(out)?;
    Ok(())
}
