// SPDX-License-Identifier: Apache-2.0
//! Generates the messages and services. protox compiles the protos in-process,
//! so that a build needs no protoc.

#[path = "build/methods.rs"]
mod methods;

use prost::Message;
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "linkemu/v1/linkemu.proto",
        "linkemu/v1/capture.proto",
        "linkemu/v1/certificate.proto",
        "linkemu/v1/clients.proto",
        "linkemu/v1/event.proto",
        "linkemu/v1/lease.proto",
        "linkemu/v1/scenario.proto",
        "linkemu/v1/switch.proto",
        "dataplane/v1/dataplane.proto",
        "linkd/v1/state.proto",
    ];
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=linkemu");
    println!("cargo:rerun-if-changed=dataplane");
    println!("cargo:rerun-if-changed=linkd");
    let descriptors = protox::compile(files, ["."])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    fs::write(out.join("methods.rs"), methods::generate(&descriptors)?)?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
