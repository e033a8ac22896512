// SPDX-License-Identifier: Apache-2.0
//! Expected throughput of Cubic (RFC 9438) on a long link: in closed form for equidistant losses,
//! and round by round from its window for random losses.
//!
//! The window is in full segments. Differences from the kernel: slow start ends at the first loss,
//! the losses of a round are one event, and a full queue caps the window instead of dropping. The
//! Reno-friendly region is omitted: at such round-trip times it is far below.

use std::ops::Range;

/// C, in segments per second cubed (section 5).
const C: f64 = 0.4;
/// Factor of the window at a loss (section 4.6).
const BETA: f64 = 0.7;
const INITIAL_WINDOW: f64 = 10.0;
/// Largest growth of the window in a round (section 4.4).
const MOST_GROWTH: f64 = 1.5;
/// Payload of a frame of 1514 bytes with the time stamp option.
const SEGMENT_BITS: f64 = 1448.0 * 8.0;

#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Round trip in seconds.
    pub rtt: f64,
    /// Capacity in full frames per second.
    pub frames_per_second: f64,
    /// Frames in the queue when it starts to drop.
    pub queue: f64,
}

/// Mbit/s at one loss in 1 / `loss` packets, equidistant: the response function of section 5.1, the
/// same as in RFC 8312.
pub fn response_mbps(loss: f64, rtt: f64) -> f64 {
    let window = (C * (3.0 + BETA) / (4.0 * (1.0 - BETA))).powf(0.25) * (rtt / loss).powf(0.75);
    window / rtt * SEGMENT_BITS / 1e6
}

/// Mbit/s within `span`, in seconds from the start. `lost` decides the fate of one packet after the
/// other.
pub fn window_mbps(path: Path, span: &Range<f64>, mut lost: impl FnMut() -> bool) -> f64 {
    let most = path.frames_per_second * path.rtt + path.queue;
    let (mut at, mut window, mut within) = (0.0, INITIAL_WINDOW, 0.0);
    // Time of the last loss, and the window before it.
    let mut last: Option<(f64, f64)> = None;
    while at < span.end {
        let round = path.rtt.max(window / path.frames_per_second);
        let packets = window.round().max(1.0);
        // Not `any`: each packet needs its draw.
        let hit = (0..packets as u64).filter(|_| lost()).count() > 0;
        let inside = (span.end.min(at + round) - span.start.max(at)).max(0.0);
        within += packets * inside / round;
        at += round;
        window = match last {
            _ if hit => {
                // Fast convergence (section 4.7).
                let gives_way = last.is_some_and(|(_, before)| window < before);
                let before = if gives_way { window * (1.0 + BETA) / 2.0 } else { window };
                last = Some((at, before));
                window * BETA
            }
            None => window * 2.0,
            Some((when, before)) => {
                // Section 4.2.
                let k = (before * (1.0 - BETA) / C).cbrt();
                let target = C * (at + path.rtt - when - k).powi(3) + before;
                target.clamp(window, window * MOST_GROWTH)
            }
        };
        window = window.min(most);
    }
    within / (span.end - span.start) * SEGMENT_BITS / 1e6
}
