// SPDX-License-Identifier: Apache-2.0
//! A P4Runtime client: what a controller of one switch with one program needs.
//!
//! [`info`] knows a program's tables, actions and counters by their names, [`entry`] turns
//! entries by names into messages and back, [`session`] speaks with the switch. The messages
//! are our own subset of P4Runtime 1.x (`docs/adr/0032`). Whatever a switch answers is taken
//! for hostile: wrong numbers, cut bytes and endless streams are errors.

pub mod bits;
pub mod entry;
pub mod info;
pub mod session;

pub use entry::{Entry, Match};
pub use info::P4Info;
pub use session::{Change, Count, Error, Session, Stream, StreamEvent, Target};

/// Generated from `proto/`; the documentation is that of the `.proto` files.
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
