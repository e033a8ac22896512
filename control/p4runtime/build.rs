// SPDX-License-Identifier: Apache-2.0
//! Generates the messages, the client and the server of P4Runtime. protox compiles the
//! protos in-process, so that a build needs no protoc.

use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = ["p4/v1/p4runtime.proto", "p4/config/v1/p4info.proto"];
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_files(files)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
