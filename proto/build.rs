// SPDX-License-Identifier: Apache-2.0
//! Generates the messages and services. protox compiles the protos in-process, so a build does not
//! need protoc.

#[path = "build/limits.rs"]
mod limits;

use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "linkemu/v1/linkemu.proto",
        "linkemu/v1/boxes.proto",
        "linkemu/v1/capture.proto",
        "linkemu/v1/certificate.proto",
        "linkemu/v1/clients.proto",
        "linkemu/v1/doctor.proto",
        "linkemu/v1/envelope.proto",
        "linkemu/v1/event.proto",
        "linkemu/v1/history.proto",
        "linkemu/v1/jobs.proto",
        "linkemu/v1/lease.proto",
        "linkemu/v1/links.proto",
        "linkemu/v1/method.proto",
        "linkemu/v1/scenario.proto",
        "linkemu/v1/switch.proto",
        "linkemu/v1/web.proto",
        "dataplane/v1/dataplane.proto",
        "linkd/v1/state.proto",
    ];
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=linkemu");
    println!("cargo:rerun-if-changed=dataplane");
    println!("cargo:rerun-if-changed=linkd");
    let mut compiler = protox::Compiler::new(["."])?;
    compiler.include_imports(true).include_source_info(true).open_files(files)?;
    let descriptors = compiler.file_descriptor_set();
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Includes field options, which the typed set drops, and comments.
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    fs::write(out.join("limits.rs"), limits::generate(&compiler.descriptor_pool())?)?;
    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    tonic_prost_build::configure().compile_fds_with_config(descriptors, config)?;
    Ok(())
}
