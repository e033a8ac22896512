// SPDX-License-Identifier: Apache-2.0
//! Limits of connections: their number, and the time to establish one.
//!
//! Each listener has its own: the network cannot lock out local users.

use std::time::Duration;

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of callers at one listener. A quarter is reserved for operators and admins; on the unix
    /// socket, for its owner.
    pub connections: usize,
    /// Over TCP, of one caller.
    pub per_caller: usize,
    /// Over TCP, of callers from one IPv4 address or one IPv6 /64, which is one subscriber's. A quarter
    /// is reserved for operators and admins. Callers on this machine have no such limit.
    pub per_address: usize,
    /// Over TCP, of peers that have shown no certificate or session yet. Another one closes one of
    /// these.
    pub strangers: usize,
    /// On the unix socket, for each user other than its owner.
    pub per_user: usize,
    /// From the connection to the end of the handshakes of TLS and of HTTP/2.
    pub handshake: Duration,
    /// Silence after which a peer is sent an HTTP/2 PING.
    pub quiet: Duration,
    /// Time without an answer to the PING after which the connection is closed.
    pub dead: Duration,
    /// From the creation of a login link of the web page to its end.
    pub web_link: Duration,
    /// From a login to the end of the session.
    pub web_session: Duration,
    /// For the head of a request to the web page.
    pub web_head: Duration,
    /// How long a browser may leave an answer unread before its connection is closed.
    pub web_unread: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            per_caller: 40,
            per_address: 32,
            strangers: 64,
            per_user: 32,
            handshake: Duration::from_secs(5),
            quiet: Duration::from_secs(20),
            dead: Duration::from_secs(10),
            web_link: Duration::from_secs(120),
            web_session: Duration::from_secs(12 * 3600),
            web_head: Duration::from_secs(5),
            web_unread: Duration::from_secs(30),
        }
    }
}
