// SPDX-License-Identifier: Apache-2.0
//! Lets the P4 switch do its part of the current plan.
//!
//! The switch is prepared first, then the dataplane is informed (`SetOffload`), at the same
//! generation. This follows each change of the link, and is repeated when the switch becomes ready
//! or the dataplane was restarted. A lost switch changes nothing.

use crate::control::{Changing, Control, is_away};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use tonic::{Code, Status};

impl Control {
    /// Offloads the stages of a plan that the switch can execute, unless it does so already.
    ///
    /// # Errors
    /// If the dataplane does not answer.
    pub async fn match_switch(
        &self,
        changing: &mut Changing,
        plan: &dp::Plan,
        generation: u64,
        instance: u64,
    ) -> Result<(), Status> {
        let dataplane = self.dataplane();
        dataplane.meet(instance).await?;
        let switches = dataplane.switches();
        switches.in_use(plan.offload.as_ref());
        // A dataplane's initial plan was not set by a caller.
        if generation == 0 || !switches.is_ready() {
            return Ok(());
        }
        let (clients, profile) = (plan.clients.as_ref(), plan.profile.as_ref());
        let Some(can) = switches.offload(instance, clients, profile).await else { return Ok(()) };
        let attempt = Some((instance, generation, can));
        if plan.offload == Some(can) || changing.unmatched == attempt {
            return Ok(());
        }
        let request = dp::SetOffloadRequest {
            offload: Some(can),
            expected_generation: generation,
            expected_instance: instance,
        };
        let before = plan.offload.unwrap_or_default().epoch;
        match dataplane.set_offload(request).await {
            Ok(()) => {
                // A new epoch: the switch became ready, or has new clients.
                if before != can.epoch {
                    self.tell_ready(plan, generation);
                }
                Ok(())
            }
            // Another change was faster, and is followed by another attempt.
            Err(status) if status.code() == Code::Aborted => Ok(()),
            Err(status) if is_away(&status) => Err(status),
            Err(status) => {
                changing.unmatched = attempt;
                tracing::error!(why = status.message(), "the dataplane refuses the offload");
                Ok(())
            }
        }
    }

    fn tell_ready(&self, plan: &dp::Plan, generation: u64) {
        let profile = plan.profile.as_ref();
        let clients = plan.clients.as_ref();
        let what = match profile.and_then(|profile| self.does(profile, clients)) {
            Some(does) => format!("the switch is ready and does {does}"),
            None => "the switch is ready".to_owned(),
        };
        self.publish(pb::Event {
            kind: pb::EventKind::SwitchOffloaded as i32,
            subject: profile.map_or("", |profile| &profile.name).to_owned(),
            message: format!("{what}: generation {generation}"),
            generation: Some(generation),
            ..Default::default()
        });
    }

    /// The stages of a link that the switch executes, in words.
    fn does(&self, profile: &pb::Profile, clients: Option<&pb::Clients>) -> Option<String> {
        let split = self.dataplane().switches().split(profile, clients)?;
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
