// SPDX-License-Identifier: Apache-2.0
//! A P4Runtime client for the controller of one switch with one program.
//!
//! [`info`] looks up the tables, actions and counters of a program by name, [`entry`] converts
//! entries to and from messages, and [`session`] communicates with the switch. The messages are a
//! subset of P4Runtime 1.x (`docs/adr/0032`). Answers of a switch are untrusted: wrong numbers,
//! truncated bytes and endless streams are errors.

pub mod bits;
pub mod entry;
pub mod info;
pub mod session;

pub use entry::{Entry, Match};
pub use info::P4Info;
pub use session::{Change, Count, Error, Session, Stalls, Stream, StreamEvent, Target, Tls};

/// All protos as a `google.protobuf.FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Generated from `proto/`; the `.proto` files have the documentation.
pub mod proto {
    #![allow(clippy::all)]
    pub mod google {
        pub mod rpc {
            tonic::include_proto!("google.rpc");
        }
    }
    pub mod p4 {
        pub mod v1 {
            tonic::include_proto!("p4.v1");
        }
        pub mod config {
            pub mod v1 {
                tonic::include_proto!("p4.config.v1");
            }
        }
    }
}
