// SPDX-License-Identifier: Apache-2.0
//! Generates the messages and services. protox compiles the protos in-process,
//! so that a build needs no protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files =
        ["linkemu/v1/linkemu.proto", "linkemu/v1/event.proto", "dataplane/v1/dataplane.proto"];
    println!("cargo:rerun-if-changed=linkemu");
    println!("cargo:rerun-if-changed=dataplane");
    tonic_prost_build::configure().compile_fds(protox::compile(files, ["."])?)?;
    Ok(())
}
