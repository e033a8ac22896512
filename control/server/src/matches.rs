// SPDX-License-Identifier: Apache-2.0
//! Puts the plan in force in force again when the switch could do another part of it.
//!
//! That is so when the switch has become ready, and when it or the dataplane was started anew:
//! the plan in force was then made for less than there is, or names what is there no more. It
//! is the same link by a generation of its own, and nothing starts anew. A switch that was lost
//! changes nothing: what it was to do, nobody else could do better, and the next change is made
//! without it.

use crate::control::{Changing, Control, is_away};
use crate::dataplane::Taken;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use tonic::{Code, Status};

/// Changes that are remembered.
const REMEMBERED: usize = 64;

/// The changes that linkd has made for the switch's sake: to whoever counts on a generation,
/// they are nobody's.
#[derive(Debug, Default)]
pub(crate) struct Matches(Mutex<VecDeque<Match>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    instance: u64,
    from: u64,
    to: u64,
}

impl Matches {
    fn remember(&self, made: Match) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == REMEMBERED {
            all.pop_front();
        }
        all.push_back(made);
    }

    /// One was refused.
    fn forget(&self, refused: Match) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One only: another one like it may have been made, and not been answered.
        if let Some(at) = all.iter().rposition(|made| *made == refused) {
            all.remove(at);
        }
    }

    /// Whether a generation is one of them.
    pub fn made(&self, instance: u64, generation: u64) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().any(|made| made.instance == instance && made.to == generation)
    }

    /// The generation of the same link by what linkd has done to it since.
    pub fn after(&self, instance: u64, generation: u64) -> u64 {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().fold(generation, |generation, made| {
            let goes_on = made.instance == instance && made.from == generation;
            if goes_on { made.to } else { generation }
        })
    }
}

impl Control {
    /// Lets the switch do of the plan in force what it can, unless it does. True if what is in
    /// force is another generation by now.
    ///
    /// # Errors
    /// If the dataplane went away meanwhile.
    pub async fn match_switch(
        &self,
        changing: &mut Changing,
        in_force: dp::GetPlanResponse,
    ) -> Result<bool, Status> {
        let dataplane = self.dataplane();
        let dp::GetPlanResponse { plan, applied, instance, .. } = in_force;
        dataplane.meet(instance).await?;
        let generation = applied.unwrap_or_default().generation;
        let offload = plan.as_ref().and_then(|plan| plan.offload);
        dataplane.switches().in_use(offload.as_ref());
        // What a dataplane begins with is nobody's choice.
        let Some(plan) = plan.filter(|_| generation > 0 && dataplane.switches().is_ready()) else {
            return Ok(false);
        };
        let request = dp::ApplyRequest {
            plan: Some(plan.clone()),
            expected_generation: Some(generation),
            lossy: applied.is_some_and(|applied| applied.lossy),
            ..Default::default()
        };
        let request = dataplane.offloaded(request, instance).await;
        let Some(can) = request.plan.as_ref().and_then(|plan| plan.offload) else {
            return Ok(false);
        };
        let attempt = Some((instance, generation, can));
        if offload == Some(can) || changing.unmatched == attempt {
            return Ok(false);
        }
        // Others see the generation before its answer is here, which may be lost.
        let own = Match { instance, from: generation, to: generation + 1 };
        self.matches().remember(own);
        let answer = dataplane.apply(request).await;
        if answer.as_ref().is_err_and(|status| !is_away(status)) {
            self.matches().forget(own);
        }
        match answer {
            Ok(Taken { applied, remarks, .. }) => {
                self.keep_link(&plan, &applied);
                let what = match plan.profile.as_ref().and_then(|p| self.does(p)) {
                    Some(does) => format!("the switch is ready and does {does}"),
                    None => "the switch is ready".to_owned(),
                };
                let dp::Plan { profile, seed, .. } = plan;
                let applied = Some(applied);
                let change =
                    pb::ChangeResponse { applied, profile, seed, remarks, repeated: false };
                self.note_as(pb::EventKind::LinkChanged, &what, "", &change);
                Ok(true)
            }
            // Somebody was quicker, and the switch was asked for that as well.
            Err(status) if status.code() == Code::Aborted => Ok(true),
            Err(status) if is_away(&status) => Err(status),
            Err(status) => {
                changing.unmatched = attempt;
                tracing::error!(
                    why = status.message(),
                    "the dataplane does not let the switch do its part"
                );
                Ok(false)
            }
        }
    }

    /// What the switch can do of a link, in words.
    fn does(&self, profile: &pb::Profile) -> Option<String> {
        let split = self.dataplane().switches().split(profile)?;
        let mut does: Vec<String> = Vec::new();
        for decision in split.decisions.iter().filter(|decision| decision.in_switch) {
            let way = match decision.direction {
                pb::Direction::Return => "return",
                _ => "forward",
            };
            match does.iter_mut().find(|told| told.starts_with(decision.stage)) {
                Some(told) => *told = decision.stage.to_owned(),
                None => does.push(format!("{} ({way})", decision.stage)),
            }
        }
        (!does.is_empty()).then(|| does.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_followed_through_linkds_own_changes_and_no_others() {
        let matches = Matches::default();
        for (instance, from, to) in [(1, 5, 6), (1, 6, 7), (2, 7, 8), (1, 9, 10)] {
            matches.remember(Match { instance, from, to });
        }
        assert_eq!(matches.after(1, 5), 7);
        assert_eq!(matches.after(1, 7), 7);
        assert_eq!(matches.after(1, 8), 8);
        assert_eq!(matches.after(2, 7), 8);
        assert!(matches.made(1, 6) && !matches.made(1, 5) && !matches.made(2, 6));
        // One of two was refused, because the other one was made.
        let twice = Match { instance: 4, from: 1, to: 2 };
        matches.remember(twice);
        matches.remember(twice);
        matches.forget(twice);
        assert_eq!(matches.after(4, 1), 2);
        matches.forget(twice);
        assert_eq!(matches.after(4, 1), 1);
        for n in 0..1_000 {
            matches.remember(Match { instance: 3, from: n, to: n + 1 });
        }
        assert_eq!(matches.after(3, 990), 1_000);
    }
}
