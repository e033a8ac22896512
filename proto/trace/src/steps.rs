// SPDX-License-Identifier: Apache-2.0
//! A quantity over time, averaged in steps of equal length.

use crate::{MS, RateError, RateFormat, STEPS};

/// Pieces of constant rate: the end of each, in ns from the start of the trace, ascending,
/// and what it carries, in bits times 10⁹.
pub(crate) struct Trace {
    pub pieces: Vec<(u64, u128)>,
    /// Step length if none is requested.
    pub usual_step_ns: u64,
}

impl Trace {
    /// Spreads the pieces over equal steps.
    pub fn steps(
        &self,
        format: RateFormat,
        asked: Option<u64>,
    ) -> Result<(u64, Vec<u64>), RateError> {
        let asked = asked.unwrap_or(self.usual_step_ns);
        let error = |problem: String| RateError::Step { step_ns: asked, problem };
        let finest = if format == RateFormat::Mahimahi { MS } else { 1 };
        if asked < finest {
            return Err(error("a trace in milliseconds has none shorter than 1 ms".into()));
        }
        let Some(&(end, _)) = self.pieces.last() else { return Err(RateError::NoDuration) };
        if end == 0 {
            return Err(RateError::NoDuration);
        }
        let count = (end.saturating_add(asked / 2) / asked).max(1);
        if count > STEPS {
            return Err(error(format!("the trace would have {count} of them, more than {STEPS}")));
        }
        let mut rates = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
        let mut pieces = self.pieces.iter();
        // The current piece, its remaining length, and its start.
        let (mut piece, mut at) = (pieces.next(), 0_u64);
        let mut left = piece.map_or(0, |piece| piece.1);
        let bound = |step: u64| (u128::from(end) * u128::from(step) / u128::from(count)) as u64;
        for step in 0..count {
            let (start, until) = (bound(step), bound(step + 1));
            let mut carried = 0_u128;
            while let Some(&(piece_end, _)) = piece {
                if piece_end > until {
                    // The share of the piece that falls into this step.
                    let (part, whole) = (until - at, piece_end - at);
                    let share = left / u128::from(whole) * u128::from(part)
                        + left % u128::from(whole) * u128::from(part) / u128::from(whole);
                    carried += share;
                    left -= share;
                    at = until;
                    break;
                }
                carried += left;
                at = piece_end;
                piece = pieces.next();
                left = piece.map_or(0, |piece| piece.1);
            }
            let ns = u128::from((until - start).max(1));
            rates.push(u64::try_from((carried + ns / 2) / ns).unwrap_or(u64::MAX));
        }
        Ok(((end / count).max(1), rates))
    }
}
