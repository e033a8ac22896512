// SPDX-License-Identifier: Apache-2.0
//! Checks whether a machine is fit to run linkemu. `linkctl doctor` runs them where it is, and linkd on
//! its machine.
//!
//! Each check reads the kernel's state of the machine, from roots of `/proc` and `/sys` that are
//! parameters, and gives a [`finding::Finding`]: the observation, the reason, and the command. It changes
//! nothing.

pub mod cores;
pub mod devices;
pub mod finding;
pub mod machine;
pub mod memory;
mod offloads;
mod used;
pub mod wall_clock;
pub mod wanted;

use finding::Finding;
use machine::Machine;
use wanted::Wanted;

/// All checks of the machine. Limits are those of the process `of`, as in [`memory::check`].
pub async fn check(machine: &Machine, wanted: &Wanted, of: Option<&str>) -> Vec<Finding> {
    let mut findings = local(machine, wanted, of);
    findings.push(wall_clock::check());
    for iface in wanted.ifaces.iter().chain(&wanted.ports) {
        findings.push(offloads::check(machine, iface).await);
    }
    for iface in &wanted.ports {
        findings.extend(used::check(iface).await);
    }
    findings
}

/// Checks of files.
fn local(machine: &Machine, wanted: &Wanted, of: Option<&str>) -> Vec<Finding> {
    let mut findings = memory::check(machine, wanted, of);
    findings.extend(devices::check(machine, wanted));
    findings.extend(cores::check(machine, wanted));
    findings
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use finding::Level;
    use machine::tests::Tree;

    #[test]
    fn empty_machine_is_checked_without_error() {
        let wanted = Wanted { named: true, cores: vec![2], ..Wanted::default() };
        for of in [Some("self"), None] {
            let findings = local(&Tree::new(&[]).machine(), &wanted, of);
            assert!(findings.len() >= 10);
            for finding in &findings {
                let silent = finding.why.is_empty() && finding.remedy.is_empty();
                assert_eq!(silent, finding.level() == Level::Ok, "{finding:?}");
            }
            let mut names: Vec<_> = findings.iter().map(|finding| &finding.check).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), findings.len());
        }
    }
}
