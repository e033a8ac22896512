// SPDX-License-Identifier: Apache-2.0
//! What to change before a run is repeated.
//!
//! The kernel's figures of the dataplane's machine tell who had the workers' time: other programs, a
//! hypervisor, or the workers' own packets.

use crate::PACKETS;
use proto::linkemu::v1::{Criterion, HostSpan, Span};
use view::time;

/// Remedies for the criteria that do not hold, most important first.
pub(crate) fn all(criteria: &[Criterion], span: &Span, until_ns: u64) -> Vec<String> {
    let failed = |names: &[&str]| criteria.iter().any(|c| !c.holds && names.contains(&&*c.name));
    let mut remedies = Vec::new();
    if failed(&[PACKETS]) {
        remedies.push(
            "send packets over the link: `linkctl stats` shows what the ports receive, and clients are \
             behind the port `client`"
                .to_owned(),
        );
    }
    let lost = [
        (
            span.overload,
            "overload: give the link more memory for packets (--memory), or a profile within \
             `linkctl envelope`",
        ),
        (
            span.missed,
            "missed: a worker did not fetch frames from its port in time: give the workers processors of their \
             own, and a kernel interface a longer ring (`net_af_packet,iface=IF,framecnt=N`)",
        ),
        (
            span.transmit_dropped,
            "transmit dropped: a port did not take frames: check the MTU and the link of its interface and \
             of the host behind it",
        ),
        (
            span.unconfirmed,
            "unconfirmed: an interface did not send what it took: check the host behind it, and its \
             backlog (net.core.netdev_max_backlog)",
        ),
    ];
    if failed(&["emulator_drops"]) {
        let lost = lost.into_iter().filter(|(packets, _)| *packets > 0);
        remedies.extend(lost.map(|(_, remedy)| remedy.to_owned()));
    }
    let late = failed(&["lateness_p99", "lateness_max", "stall"]);
    if late || (failed(&["emulator_drops"]) && span.missed > 0) {
        let length = until_ns.saturating_sub(span.since_ns);
        remedies.extend(processors(span.host.as_ref(), length));
    }
    if late {
        remedies.push(
            "if the experiment tolerates this lateness: --max-lateness and --max-stall, with the reason in its \
             report"
                .to_owned(),
        );
    }
    let others = [
        (
            "memory",
            "give the link more memory for packets: --memory of linkd-dataplane or `linkctl run`",
        ),
        (
            "conservation",
            "this is a fault of the emulator: please report it with `linkctl -o json stats`",
        ),
        (
            "port_faults",
            "`linkctl stats` names the fault of the port: check its cable, MTU and interface",
        ),
        ("unplaced", "allow more clients (--max-clients), or name them: `linkctl clients`"),
        ("changes", "keep others from changing the link: `linkctl lease acquire`"),
    ];
    remedies.extend(others.iter().filter(|(name, _)| failed(&[name])).map(|it| it.1.to_owned()));
    let of_switch = criteria.iter().any(|c| !c.holds && c.name.starts_with("switch_"));
    if of_switch {
        remedies.push("`linkctl switch show` has the switch's counts and its faults".to_owned());
    }
    if failed(&["boxes"]) {
        remedies.push("`linkctl group show` names the box and why it was down".to_owned());
    }
    remedies
}

/// How the workers get the time that they did not have in a run of this length.
fn processors(host: Option<&HostSpan>, length_ns: u64) -> Vec<String> {
    let Some(host) = host else {
        return vec!["give the workers processors of their own: docs/install.md".to_owned()];
    };
    let share = |ns: u64| format!("{} of {}", time(ns), time(length_ns));
    let (waited, stolen) = (host.waited_ns.unwrap_or(0), host.stolen_ns.unwrap_or(0));
    let mut remedies = Vec::new();
    if stolen >= NOTABLE {
        remedies.push(format!(
            "the hypervisor withheld a worker's processor for {}: use a machine with processors of its own",
            share(stolen)
        ));
    }
    if waited >= NOTABLE {
        let load = host.load.map_or_else(String::new, |load| {
            format!(" (load average {load:.1}, {} processors)", host.processors)
        });
        let mut remedy = format!(
            "a worker waited for its processor for {}, while other threads ran there{load}: end other programs",
            share(waited)
        );
        if host.nice > HIGH {
            remedy += &format!(
                ", or start the emulator as root or with CAP_SYS_NICE, so that it can raise its priority (--nice; \
                 it had {})",
                host.nice
            );
        }
        if !host.reserved {
            remedy +=
                ", or give it a machine with more processors or reserved cores (docs/install.md)";
        }
        remedies.push(remedy);
    }
    if remedies.is_empty() {
        let pages = if host.hugepages { "" } else { ", or use hugepages" };
        remedies.push(format!(
            "the workers had their processors for all but {}: if a thread or the machine was not stopped, they \
             have too much to do: share clients among more workers (--workers){pages}",
            share(waited.saturating_add(stolen))
        ));
    }
    remedies
}

/// Time that a worker did not have its processor, if that is worth a word.
const NOTABLE: u64 = 1_000_000;
/// Nice value of linkd-dataplane where it may set it.
const HIGH: i32 = -10;
