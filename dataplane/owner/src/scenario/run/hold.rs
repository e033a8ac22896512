// SPDX-License-Identifier: Apache-2.0
//! Commands to a run, and the times in which it applies no step: pauses and waits.

use super::{Halt, Run, changed};
use crate::Link;
use crate::scenario::{Answer, Command};
use profile::format_duration;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;

impl<L: Link> Run<L> {
    /// Executes a command. A pause lasts until its end; `tolerate` says whether others may change
    /// the link meanwhile.
    pub(super) async fn obey(
        &mut self,
        command: Option<Command>,
        tolerate: bool,
    ) -> Result<(), Halt> {
        match command {
            None => Err(Halt::ending()),
            Some(Command::Stop { reason, restore, answer }) => {
                Err(Halt { reason, restore, answer: Some(answer) })
            }
            Some(Command::Resume { answer, .. }) => {
                self.reply(Some(answer));
                Ok(())
            }
            Some(Command::Pause { who, answer }) => self.pause(&who, answer, tolerate).await,
            Some(Command::Notify { .. }) => Ok(()),
        }
    }

    async fn pause(&mut self, who: &str, answer: Answer, tolerate: bool) -> Result<(), Halt> {
        let paused_ns = self.link.now_ns();
        self.withdraw().await?;
        self.tell(pb::EventKind::ScenarioPaused, paused_ns, format!("by {who}"));
        self.show(pb::ScenarioPhase::Paused, format!("paused by {who}"));
        self.reply(Some(answer));
        loop {
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(Command::Resume { who, answer }) => {
                        let now = self.link.now_ns();
                        let paused = now.saturating_sub(paused_ns);
                        let shift_ns = &mut self.progress.shift_ns;
                        *shift_ns = shift_ns.saturating_add(paused);
                        let length = format_duration(paused / 1_000_000 * 1_000_000);
                        let message = format!("by {who} after {length}");
                        self.tell(pb::EventKind::ScenarioResumed, now, message);
                        self.show(pb::ScenarioPhase::Running, String::new());
                        self.reply(Some(answer));
                        self.read_current().await;
                        return Ok(());
                    }
                    Some(Command::Pause { answer, .. }) => self.reply(Some(answer)),
                    Some(Command::Stop { reason, restore, answer }) => {
                        return Err(Halt { reason, restore, answer: Some(answer) });
                    }
                    Some(Command::Notify { .. }) => {}
                    None => return Err(Halt::ending()),
                },
                _ = self.others.changed() => {
                    self.others.mark_changed();
                    self.check_others(tolerate)?;
                }
                () = changed(&mut self.named) => self.check_others(tolerate)?,
            }
        }
    }

    /// Waits for an event, which delays all later steps.
    pub(super) async fn wait(&mut self, step: &dp::Step, wait: &dp::Wait) -> Result<(), Halt> {
        // A scenario that waits for a change of the link tolerates it.
        let expects_change = wait.event() == pb::EventKind::LinkChanged;
        let tolerate = self.options.tolerate_changes || expects_change;
        self.uploads.set_waiting(Some(step.clone()));
        self.show(pb::ScenarioPhase::Waiting, step.action.clone());
        let met_ns = loop {
            let end_ns = self.planned_ns(step).saturating_add(wait.timeout_ns);
            let end = self.instant(end_ns);
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(Command::Notify { index, time_ns }) if index == step.index => {
                        break time_ns.unwrap_or_else(|| self.link.now_ns());
                    }
                    command => {
                        self.obey(command, tolerate).await?;
                        self.show(pb::ScenarioPhase::Waiting, step.action.clone());
                    }
                },
                _ = self.others.changed() => {
                    self.others.mark_changed();
                    self.check_others(tolerate)?;
                }
                () = changed(&mut self.named) => self.check_others(tolerate)?,
                () = tokio::time::sleep_until(end) => {
                    if self.link.now_ns() < end_ns {
                        continue;
                    }
                    if wait.go_on {
                        break end_ns;
                    }
                    let timeout = format_duration(wait.timeout_ns);
                    return Err(Halt::because(format!(
                        "step {}: {} did not come within {timeout}",
                        step.index,
                        wait.event().as_str_name().trim_start_matches("EVENT_KIND_")
                    )));
                }
            }
        };
        if expects_change {
            self.check_others(true)?;
        }
        self.read_current().await;
        // This includes pauses during the wait.
        let plan = self.progress.start_ns.saturating_add(step.at_ns);
        let shift_ns = &mut self.progress.shift_ns;
        *shift_ns = (*shift_ns).max(met_ns.saturating_sub(plan));
        self.uploads.set_waiting(None);
        self.show(pb::ScenarioPhase::Running, String::new());
        Ok(())
    }
}
