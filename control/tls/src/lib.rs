// SPDX-License-Identifier: Apache-2.0
//! TLS of linkd, linkctl and the P4 switch: keys from files, and errors in words.
//!
//! TLS 1.3 only. [`server`] accepts only callers with a certificate of a known authority.
//! [`client`] checks the server's certificate and presents its own.

pub mod client;
pub mod server;

/// HTTP/2, the only protocol of gRPC.
pub const HTTP2: &[u8] = b"h2";
