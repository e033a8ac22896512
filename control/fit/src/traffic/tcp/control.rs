// SPDX-License-Identifier: Apache-2.0
//! What a congestion control learns and decides.

use std::fmt::Debug;

/// A congestion window, in segments.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub size: u32,
    /// Slow start ends here.
    pub threshold: u32,
}

impl Window {
    pub fn in_slow_start(&self) -> bool {
        self.size < self.threshold
    }
}

/// State of loss recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    Open,
    /// Retransmits after selective acknowledgements.
    Recovery,
    /// Retransmits after a timeout.
    Timeout,
}

/// A delivery-rate sample (`net/ipv4/tcp_rate.c`; draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// Segments delivered when the newest acknowledged segment was sent.
    pub prior_delivered: u64,
    /// Segments delivered over the interval.
    pub delivered: u64,
    /// In ns; zero if it is shorter than the least round trip.
    pub interval: u64,
}

/// One acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// In ns.
    pub now: u64,
    /// First segment that is not acknowledged.
    pub una: u32,
    /// First segment that was never sent.
    pub next: u32,
    /// Segments newly acknowledged, selectively or not.
    pub delivered: u32,
    /// Segments newly found lost.
    pub lost: u32,
    /// Round trip of the newest of those, unless it was retransmitted.
    pub rtt: Option<u64>,
    pub rate: Option<RateSample>,
    /// Segments delivered since the flow began.
    pub total_delivered: u64,
    pub in_flight: u32,
    /// Segments in flight before this acknowledgement.
    pub prior_in_flight: u32,
    /// Whether the window limited the sender.
    pub limited: bool,
    pub phase: Phase,
    /// Whether the sender reduces the window itself (RFC 6937).
    pub reduces: bool,
    /// Smoothed round trip; zero if none is known.
    pub srtt: u64,
}

pub trait Control: Debug + Send {
    /// Takes an acknowledgement, and changes the window.
    fn acked(&mut self, acked: &Acked, window: &mut Window);

    /// A loss was found: the new slow-start threshold.
    fn reduces(&mut self, window: &Window) -> u32;

    /// The retransmission timer expired. `next` is the first segment that was never sent.
    fn times_out(&mut self, now: u64, next: u32);

    /// Segments per second, if it paces.
    fn pacing(&self) -> Option<f64> {
        None
    }

    /// Whether it sets the window in recovery itself.
    fn owns_recovery(&self) -> bool {
        false
    }
}
