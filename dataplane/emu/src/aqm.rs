// SPDX-License-Identifier: Apache-2.0
//! Admission to the queue: tail drop at the limit, and random drop above a
//! threshold.
//!
//! The random drop is that of the gateway of SAT20 (S. Claypool, J. Chung,
//! M. Claypool, CCNC 2021): arriving frames are dropped at random while the queue
//! is above half of its limit. The study does not publish the probability, so it
//! is a law: linear in the queue's length from the threshold to the limit, and
//! constant where both ends are alike.
//!
//! Differs from RED (S. Floyd, V. Jacobson, 1993) in that it looks at the queue as
//! it is and not at a moving average, and does not space the drops.

use crate::rng::Stream;
use crate::stats::DropReason;
use crate::units::Probability;

/// Random drop of arriving frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomDrop {
    /// Applies while more bytes than this are queued.
    pub threshold: u64,
    /// The probability just above the threshold.
    pub at_threshold: Probability,
    /// The probability at the limit.
    pub at_limit: Probability,
}

/// The queue of one pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlan {
    /// Most bytes queued, the frame in service included.
    pub limit: u64,
    /// `None` is tail drop.
    pub random_drop: Option<RandomDrop>,
}

impl QueuePlan {
    /// The most bytes in the queue, the arriving frame included, at which every frame is
    /// admitted without a draw.
    #[must_use]
    pub fn admits_up_to(&self) -> u64 {
        self.limit.min(self.random_drop.map_or(u64::MAX, |r| r.threshold))
    }

    /// Decides on a frame of `len` bytes that finds `queued` bytes.
    ///
    /// # Errors
    /// The reason why it is dropped.
    #[inline]
    pub fn admit(&self, queued: u64, len: u64, stream: &mut Stream) -> Result<(), DropReason> {
        if queued.saturating_add(len) > self.limit {
            return Err(DropReason::Limit);
        }
        if let Some(r) = self.random_drop
            && queued > r.threshold
        {
            let span = self.limit.saturating_sub(r.threshold);
            let p = r.at_threshold.toward(r.at_limit, queued - r.threshold, span);
            if stream.chance(p) {
                return Err(DropReason::Aqm);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientKey;
    use crate::rng::{Stage, StreamKey};
    use crate::units::Direction;

    #[test]
    fn random_drop_follows_its_law() {
        let key = StreamKey {
            seed: 1,
            client: ClientKey::Default,
            direction: Direction::Forward,
            epoch: 0,
        };
        let mut s = Stream::new(key, Stage::Aqm, 0);
        let q = QueuePlan {
            limit: 36_000_000,
            random_drop: Some(RandomDrop {
                threshold: 18_000_000,
                at_threshold: Probability::ZERO,
                at_limit: Probability::new(0.4),
            }),
        };
        let n = 100_000;
        for (queued, p) in
            [(18_000_000, 0.0), (22_500_000, 0.1), (27_000_000, 0.2), (35_990_000, 0.4)]
        {
            let hits = (0..n).filter(|_| q.admit(queued, 1514, &mut s).is_err()).count();
            let tolerance = 5.0 * (f64::from(n) * p * (1.0 - p)).sqrt() + 30.0;
            assert!((hits as f64 - p * f64::from(n)).abs() <= tolerance, "{hits} at {queued}");
        }
        let certain = QueuePlan { random_drop: None, ..q };
        assert_eq!(certain.admit(36_000_000 - 1514, 1514, &mut s), Ok(()));
        assert_eq!(q.admit(36_000_000 - 1513, 1514, &mut s), Err(DropReason::Limit));
    }
}
