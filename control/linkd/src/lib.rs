// SPDX-License-Identifier: Apache-2.0
//! The control plane of linkemu as a library: the binary `linkd` and the tests run the same
//! [`Server`].
//!
//! It serves `linkemu.v1` on a unix socket, and over TCP with mutual TLS, and drives the dataplane
//! over another socket (`dataplane.v1`). Every request reads the current plan from the dataplane,
//! so that either process may restart at any time. linkd's state on disk restores a dataplane that
//! was restarted.

mod accept;
mod audit;
mod authorisation;
mod budget;
mod caller;
mod certificates;
mod clients;
mod connection;
mod control;
mod dataplane;
mod disk;
mod events;
mod given;
mod history;
mod intake;
mod jobs;
mod keeper;
mod leases;
mod limits;
mod links;
mod member;
mod methods;
mod metrics;
mod named;
mod offload;
mod refusal;
mod scenarios;
mod server;
mod service;
mod services;
mod session;
mod shape;
mod shares;
mod slots;
mod stalls;
mod state;
mod summary;
mod switch;
mod tls;
mod turns;
mod watching;
mod web;

pub use audit::AuditError;
pub use caller::{Caller, Role};
pub use endpoint::{Permissions, SocketError};
pub use limits::Limits;
pub use metrics::{Metrics, MetricsError};
pub use server::{Listen, Reload, Security, Server, ServerError, Settings};
pub use stalls::Clocks;
pub use state::StateError;
pub use tls::{TlsError, TlsFiles};
pub use web::{WebError, WebListen};
