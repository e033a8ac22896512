// SPDX-License-Identifier: Apache-2.0
//! The steps of apply, in order: steps that can fail for lack of memory come first, steps that
//! take something away from the kernel last.
//!
//! The record with all steps and the previous state is written before the first step. A step
//! that fails, and those that this apply did before it, are undone.

use crate::appliance::here::{self, Checked};
use crate::appliance::host::Host;
use crate::appliance::port::{Seen, holder, running};
use crate::appliance::record::Record;
use crate::appliance::step::{Step, Tool, VFIO, driver, pages};
use crate::failure::Failure;
use ::doctor::machine::read;
use boxfile::{Binding, BoxFile, Device};
use std::collections::HashSet;
use std::path::Path;

/// As the kernel names its process.
const DATAPLANE: &str = "linkd-dataplane";

/// The steps of apply, and the previous state.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Steps that are not done yet.
    pub to_do: Vec<Step>,
    /// All steps of the box, also of an apply before.
    all: Vec<Step>,
    ports: Vec<Binding>,
}

impl Plan {
    /// Plans the steps from the file and the state of the machine.
    ///
    /// # Errors
    /// If another box is applied.
    pub fn new(
        host: &Host,
        file: &BoxFile,
        checked: &Checked,
        before: Option<&Record>,
    ) -> Result<Self, Failure> {
        let goals = goals(host, file, checked);
        let known = |step: &Step| {
            let steps = before.map(|record| record.steps.as_slice()).unwrap_or_default();
            steps.iter().find(|old| old.target() == step.target())
        };
        if let Some(record) = before
            && let Some(other) = record.steps.iter().find(|old| {
                old.is_changed(host) && goals.iter().all(|goal| goal.target() != old.target())
            })
        {
            let message = format!(
                "{} was applied from {}, and is not in this file: nothing was changed",
                other.target(),
                record.file.display()
            );
            return Err(Failure::failed("failed_precondition", message).hint("linkctl box undo"));
        }
        let mut plan = Self::default();
        for goal in goals {
            let done = goal.is_done(host);
            // If a step of this apply fails, the current state is restored.
            if !done {
                plan.to_do.push(goal.clone());
            }
            // A full undo restores the state before the first apply.
            match known(&goal) {
                Some(old) => plan.all.push(merged(old, goal)),
                None if !done => plan.all.push(goal),
                None => {}
            }
        }
        let old = before.map(|record| record.ports.as_slice()).unwrap_or_default();
        plan.ports = checked.ports.iter().filter_map(|port| binding(host, port, old)).collect();
        Ok(plan)
    }

    /// Does all of it, or nothing.
    ///
    /// # Errors
    /// The step that failed, and whether those before it could be undone.
    pub fn carry_out(
        &self,
        host: &Host,
        tool: Tool,
        file: &Path,
        before: Option<Record>,
    ) -> Result<(), Failure> {
        if self.to_do.is_empty() && before.as_ref().is_some_and(|record| record.complete) {
            return Ok(());
        }
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let mut record = Record::new(&file, self.ports.clone(), self.all.clone());
        record.write(host)?;
        for (n, step) in self.to_do.iter().enumerate() {
            let Err(error) = step.carry_out(host, tool) else { continue };
            let message = format!("{}: {error}", step.what());
            let kept: Vec<String> = self.to_do[..=n]
                .iter()
                .rev()
                .filter_map(|done| done.undo(host, tool).err())
                .collect();
            if !kept.is_empty() {
                // The record stays, so that undo can be tried again.
                let failure = Failure::failed("failed", message);
                let failure = kept.into_iter().fold(failure, Failure::hint);
                return Err(failure.hint("not all of it could be undone: linkctl box undo"));
            }
            match before {
                Some(before) => before.write(host)?,
                None => Record::remove(host)?,
            }
            return Err(Failure::failed("failed", message)
                .hint("what was done before it was undone: nothing is changed"));
        }
        record.complete = true;
        record.write(host)
    }
}

/// An old step to repeat.
fn merged(old: &Step, goal: Step) -> Step {
    match (old, goal) {
        // The most that was asked for: undo takes no more than that for ours.
        (Step::Hugepages { before, count: most, .. }, Step::Hugepages { node, kib, count, .. }) => {
            Step::Hugepages { node, kib, before: *before, count: count.max(*most) }
        }
        (old, _) => old.clone(),
    }
}

/// All that the file wants, whether it is so or not.
fn goals(host: &Host, file: &BoxFile, checked: &Checked) -> Vec<Step> {
    let mut goals = Vec::new();
    if let Some(wanted) = &file.hugepages {
        let (node, kib) = (here::node_of(host, file), wanted.size.bytes() >> 10);
        let before = read(&host.at(&pages(node, kib))).and_then(|n| n.parse().ok()).unwrap_or(0);
        goals.push(Step::Hugepages { node, kib, before, count: wanted.count });
    }
    let bound = |port: &&Seen| port.is_for_vfio();
    if checked.ports.iter().any(|port| bound(&port)) {
        goals.push(Step::Module { name: VFIO.to_owned() });
    }
    for nic in checked.ports.iter().filter(bound).filter_map(|port| port.nic.as_ref()) {
        let address = nic.address.to_string();
        let (before, forced) = (driver(host, &address), here::forced(host, &address));
        goals.push(Step::Bind { address, before, forced });
    }
    let ifaces = checked.ports.iter().filter(|port| !bound(port)).flat_map(|port| {
        let of_card = port.nic.iter().flat_map(|nic| nic.interfaces.iter().map(|(i, _)| i.clone()));
        let itself = match &port.found.device {
            Device::Kernel(iface) => Some(iface.clone()),
            _ => None,
        };
        of_card.chain(itself)
    });
    goals.extend(ifaces.map(|iface| Step::Up { iface }));
    // Both ports of a hairpin pair are one device.
    let mut targets = HashSet::new();
    goals.retain(|goal| targets.insert(goal.target()));
    goals
}

fn binding(host: &Host, port: &Seen, old: &[Binding]) -> Option<Binding> {
    let found = here::binding(host, port)?;
    // vfio-pci shows no MAC address, so it is taken from the record.
    let of = old.iter().find(|o| o.address == found.address).and_then(|o| o.mac.clone());
    Some(Binding { mac: found.mac.clone().or(of), ..found })
}

/// Undoes what a record has, the last step first.
///
/// # Errors
/// If a device is in use, then nothing is changed; if a step cannot be undone, then the others
/// are, and the record keeps it.
pub fn undo(host: &Host, tool: Tool, mut record: Record) -> Result<(), Failure> {
    for step in record.steps.iter().filter(|step| step.is_changed(host)) {
        let user = match step {
            Step::Bind { address, .. } => holder(host, &format!("bus/pci/devices/{address}")),
            // Its packet socket, or mlx5's queues, would stay, and the link be down.
            Step::Up { .. } => running(host, DATAPLANE),
            _ => None,
        };
        if let Some((pid, name)) = user {
            let message = format!(
                "{} is in use by {name} (process {pid}): nothing was changed",
                step.target()
            );
            let failure = Failure::failed("failed_precondition", message);
            return Err(failure.hint("systemctl stop linkd-dataplane   # or: kill PROCESS"));
        }
    }
    let mut kept = Vec::new();
    let mut errors = Vec::new();
    for step in record.steps.iter().rev() {
        if let Err(error) = step.undo(host, tool) {
            kept.insert(0, step.clone());
            errors.push(format!("{}: {error}", step.what()));
        }
    }
    if errors.is_empty() {
        return Record::remove(host);
    }
    let count = kept.len();
    record.complete = false;
    record.steps = kept;
    record.write(host)?;
    let message = format!("{count} of the steps could not be undone; the others are");
    Err(errors.into_iter().fold(Failure::failed("failed", message), Failure::hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_before_first_apply_is_recorded() {
        let pages = |before, count| Step::Hugepages { node: None, kib: 2048, before, count };
        assert_eq!(merged(&pages(0, 600), pages(600, 700)), pages(0, 700));
        assert_eq!(merged(&pages(0, 600), pages(600, 400)), pages(0, 600));
        let bind = |before: Option<&str>| Step::Bind {
            address: "0000:01:00.0".into(),
            before: before.map(str::to_owned),
            forced: None,
        };
        assert_eq!(merged(&bind(Some("ixgbe")), bind(Some(VFIO))), bind(Some("ixgbe")));
    }
}
