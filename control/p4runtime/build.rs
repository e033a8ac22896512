// SPDX-License-Identifier: Apache-2.0
//! Generates the messages, the client and the server of P4Runtime. protox compiles the
//! protos in-process, so that a build needs no protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = ["p4/v1/p4runtime.proto", "p4/config/v1/p4info.proto"];
    let descriptors = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
