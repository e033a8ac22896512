// SPDX-License-Identifier: Apache-2.0
//! Keeps the workers' clock at the system's rate, from the control thread.

use std::time::Duration;

use dpdk::TscClock;
use tokio::time::{MissedTickBehavior, interval};

const EVERY: Duration = Duration::from_secs(1);
/// Corrections between words about them.
const SAY_EVERY: u32 = 60;

/// Corrects `clock` for as long as it is polled.
pub async fn keep(clock: TscClock) {
    let mut every = interval(EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is immediate, and there is nothing to correct yet.
    every.tick().await;
    for n in 1_u32.. {
        every.tick().await;
        let found = clock.correct();
        if let Some(jump) = found.jump {
            tracing::warn!(
                ?jump,
                jumps = clock.jumps(),
                "the processor's counter jumped against the system's clock: was the machine \
                 suspended, or a virtual one stopped? Packets may be late or early by as much; \
                 it is counted as a stall"
            );
        }
        if n % SAY_EVERY == 1 {
            let (offset_ns, rate_ppm, error_ppm) =
                (found.offset_ns, found.rate_ppm, found.error_ppm);
            tracing::info!(offset_ns, rate_ppm, error_ppm, hz = clock.hz(), "clock corrected");
        }
    }
}
