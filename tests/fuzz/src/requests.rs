// SPDX-License-Identifier: Apache-2.0
//! Messages on the wire, and frames with a shim.

use compile::compile;
use prost::Message;
use proto::dataplane::v1 as dataplane;
use proto::linkemu::v1 as pb;
use shim::{SHIM, Shim};

use crate::plan::{known, run};

/// A request as it comes over the wire, after a byte that chooses which. A profile in it
/// that is found valid is a link that the dataplane knows.
pub fn request(data: &[u8]) {
    let Some((which, wire)) = data.split_first() else { return };
    match which % 6 {
        0 | 1 => drop(pb::UpdateLinksRequest::decode(wire)),
        2 => drop(pb::WatchStatsRequest::decode(wire)),
        3 => drop(pb::AcquireLeaseRequest::decode(wire)),
        4 => {
            let Ok(pb::PutProfileRequest { profile: Some(profile), .. }) =
                pb::PutProfileRequest::decode(wire)
            else {
                return;
            };
            if profile::validate(&profile).is_ok() {
                known(profile, 1);
            }
        }
        _ => {
            let Ok(mut request) = dataplane::ApplyRequest::decode(wire) else { return };
            let Some(change) = request.changes.pop().and_then(|it| it.change) else { return };
            let Ok(merged) = owner::merge(&change, dataplane::Plan::default()) else { return };
            if let Ok(compiled) = compile(&merged.plan) {
                run(compiled);
            }
        }
    }
}

/// A frame with a shim. One that is read is written with the same bytes, but for unused bits.
///
/// # Panics
/// If it is not.
pub fn shim(data: &[u8]) {
    let mut frame = vec![0; SHIM as usize];
    frame.splice(..data.len().min(frame.len()), data.iter().copied());
    let _ = shim::sees_packet(data);
    for frame in [data, &[&frame, data].concat()] {
        let Some((read, inner)) = Shim::read(frame) else { continue };
        assert_eq!(inner.len(), frame.len() - SHIM as usize);
        let written = read.to_bytes();
        assert_eq!(Shim::read(&written), Some((read, &[][..])));
    }
}
