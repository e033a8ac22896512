// SPDX-License-Identifier: Apache-2.0
//! `linkd-group`: several boxes behind one P4 switch as one dataplane for linkd.
//!
//! ```text
//!          linkd ──dataplane.v1──▶ service ──▶ group ──▶ changes, moves, scenarios
//!                                                │
//!                              member (one task per box): control, clock, statistics
//!                                                │ dataplane.v1
//!                                       dataplanes of the boxes
//! ```
//!
//! One thread runs all of it. A box owns its plan, packets and counts; the group owns who owns which
//! client, its generation and the running scenario (docs/adr/0085).

pub mod accounts;
pub mod arguments;
pub mod capture;
pub mod clock;
pub mod connect;
pub mod description;
pub mod file;
pub mod group;
pub mod member;
pub mod owners;
pub mod service;
pub mod steering;
