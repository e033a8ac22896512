// SPDX-License-Identifier: Apache-2.0
//! A plan that the core does not take, as a status: a sentence for people, and the numbers
//! for programs as an `ErrorInfo` (google.rpc) of the reason [`OUTSIDE`].

use std::collections::HashMap;

use emu::check::PlanError;
use emu::envelope::{Largest, Pair, Shortage, TooBusy};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The plan needs more memory or time than there is; `lossy` would have taken it.
pub const OUTSIDE: &str = "OUTSIDE_ENVELOPE";
const DOMAIN: &str = "linkemu";

/// The status of a refusal.
pub fn status(e: &PlanError) -> Status {
    let numbers = match e {
        PlanError::Memory(short) => memory(short),
        PlanError::Work(busy) => work(busy),
        _ => return Status::failed_precondition(e.to_string()),
    };
    let message = format!("{e}. Or accept with --lossy that packets are late or lost");
    let numbers: HashMap<_, _> =
        numbers.into_iter().map(|(name, n)| (name.to_owned(), n.to_string())).collect();
    let details = ErrorDetails::with_error_info(OUTSIDE, DOMAIN, numbers);
    Status::with_error_details(Code::FailedPrecondition, message, details)
}

fn memory(short: &Shortage) -> Vec<(&'static str, u64)> {
    let fits = short.fits;
    let mut numbers = vec![("needed_bytes", short.needed), ("memory_bytes", short.room.capacity)];
    numbers.extend(fits.clients.value().map(|n| ("clients_max", n.into())));
    let pairs: [(Option<Largest<Pair>>, [&str; 2]); 3] = [
        (fits.delay, ["forward_delay_max_ns", "return_delay_max_ns"]),
        (fits.queue, ["forward_queue_max_bytes", "return_queue_max_bytes"]),
        (fits.rate, ["forward_rate_max_bps", "return_rate_max_bps"]),
    ];
    for (largest, names) in pairs {
        let Some(values) = largest.and_then(Largest::value) else { continue };
        let named = names.into_iter().zip(values.0);
        numbers.extend(named.filter_map(|(name, value)| Some((name, value?))));
    }
    numbers
}

fn work(busy: &TooBusy) -> Vec<(&'static str, u64)> {
    let mut numbers = vec![("events_per_second", busy.events)];
    numbers.extend(busy.fits.map(|n| ("clients_max", n.into())));
    numbers
}
