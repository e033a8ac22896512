// SPDX-License-Identifier: Apache-2.0
//! Life of an installation on a booted Debian system: installed, used, broken, upgraded under
//! traffic, removed, purged.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use package::machine::Machine;

use super::debs::share;

/// Longest start of a service on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// Limit for `systemd-analyze security`; 10 is unrestricted root.
const EXPOSURE_MAX: f64 = 2.0;

/// A box of two veth pairs, with hosts in namespaces at the other ends.
const HOSTS: &str = r"
for side in wan client; do
  ip netns add $side
  ip link add $side type veth peer name eth0 netns $side
  ip link set $side up
  ip -n $side link set lo up
  ip -n $side link set eth0 up
done
ip -n wan addr add 10.9.0.1/24 dev eth0
ip -n client addr add 10.9.0.2/24 dev eth0
";
const BOX: &str = r#"
cat > /etc/linkemu/box.toml <<'EOF'
[ports]
wan = "net_af_packet,iface=wan"
client = "net_af_packet,iface=client"
[workers]
count = 1
idle = "adaptive"
[memory]
packets = "256 MiB"
max_clients = 1
huge = "off"
EOF
"#;
/// State of a system, without the traces that any package leaves and without running processes.
const FILES: &str = "find / -xdev \\( -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache \
     -o -path /var/log/journal -o -path /var/lib/systemd -o -path /tmp -o -path /var/tmp \
     -o -path /share \\) -prune -o \\( -type f -o -type l -o -type d \\) -print; find /run/linkemu \
     /run/systemd/system 2>/dev/null || true";
/// Users and groups remain, because files elsewhere can belong to them. So do the logs of dpkg and
/// apt.
const STAYS: [&str; 11] = [
    "/etc/subuid-",
    "/etc/subgid-",
    "/etc/passwd-",
    "/etc/group-",
    "/etc/shadow-",
    "/etc/gshadow-",
    "/etc/.pwd.lock",
    "/var/log/dpkg.log",
    "/var/log/apt",
    "/var/log/alternatives.log",
    "/etc/ld.so.cache",
];

pub fn life(release: &str) -> anyhow::Result<()> {
    let machine = Machine::boot(release, &share()?)?;
    let before = machine.sh(FILES)?;
    timed("after the installation", || installed(&machine))?;
    timed("the units", || sandboxed(&machine))?;
    timed("in use", || used(&machine))?;
    timed("when a daemon fails", || restarted(&machine))?;
    timed("in an upgrade", || upgraded(&machine))?;
    timed("after the removal", || removed(&machine, &before))
}

fn timed(what: &str, step: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let begin = Instant::now();
    step().with_context(|| what.to_owned())?;
    println!("    {what}: {:.1} s", begin.elapsed().as_secs_f64());
    Ok(())
}

/// Prints a unit's process if it is active and differs from `was`. State and process are read at
/// once, because a unit can end between two reads.
fn process(unit: &str, was: &str) -> String {
    format!(
        "eval \"$(systemctl show --property ActiveState,MainPID {unit})\"
         echo \"$ActiveState $MainPID\" >&2
         [ $ActiveState = active ]
         [ $MainPID != 0 ]
         [ $MainPID != {was} ]
         echo $MainPID"
    )
}

fn pid(machine: &Machine, unit: &str) -> anyhow::Result<String> {
    Ok(machine.sh(&process(unit, "0"))?.trim().to_owned())
}

/// The process that follows `was`.
fn next(machine: &Machine, unit: &str, was: &str) -> anyhow::Result<String> {
    let printed = machine.until("it to start anew", SOON, &process(unit, was))?;
    Ok(printed.trim().to_owned())
}

fn installed(machine: &Machine) -> anyhow::Result<()> {
    // With recommended packages, as by default.
    machine.sh("apt-get install --yes /share/1/*.deb")?;
    // linkd serves. The dataplane waits for a description of the box and has not failed.
    machine.sh("systemctl is-active linkd")?;
    machine.sh("systemctl is-enabled linkd linkd-dataplane linkemu-box
         [ \"$(systemctl is-active linkd-dataplane)\" = inactive ]
         [ \"$(systemctl show --property ConditionResult --value linkd-dataplane)\" = no ]")?;
    machine.sh("! systemctl --failed --no-legend | grep link")?;
    machine.sh("linkctl --version && linkd --version && linkd-dataplane --version")?;
    // Off, and with all that it needs.
    machine.sh("linkd-p4switch --version
         [ \"$(systemctl is-enabled linkd-p4switch)\" = disabled ]")?;
    machine.sh("linkd-group --version
         [ \"$(systemctl is-enabled linkd-group)\" = disabled ]")?;
    let modes = machine.sh("stat --format '%A %U:%G' /run/linkemu /run/linkemu/linkd.sock")?;
    let expected = "drwxrwxr-x root:linkemu-dataplane\nsrw-rw---- linkemu:linkemu\n";
    ensure!(modes == expected, "{modes}");
    Ok(())
}

fn sandboxed(machine: &Machine) -> anyhow::Result<()> {
    let said = machine.run(&[
        "systemd-analyze",
        "verify",
        "--man=no",
        "linkd.service",
        "linkd-dataplane.service",
        "linkd-p4switch.service",
        "linkd-group.service",
        "linkemu-box.service",
    ])?;
    ensure!(said.status.success() && said.stderr.is_empty(), "{}", said.stderr);
    let overall = |unit: &str| -> anyhow::Result<f64> {
        let table = machine.sh(&format!("systemd-analyze security --no-pager {unit}.service"))?;
        let line = table.lines().find(|line| line.contains("Overall exposure level"));
        let figure =
            line.and_then(|line| line.rsplit_once(": ")?.1.split(' ').next()?.parse().ok());
        figure.with_context(|| format!("no figure in {table}"))
    };
    let (linkd, dataplane) = (overall("linkd")?, overall("linkd-dataplane")?);
    let group = overall("linkd-group")?;
    println!("exposure: linkd {linkd}, linkd-group {group}, linkd-dataplane {dataplane}");
    ensure!(group <= EXPOSURE_MAX, "linkd-group's exposure is {group}, above {EXPOSURE_MAX}");
    ensure!(linkd <= EXPOSURE_MAX, "linkd's exposure is {linkd}, above {EXPOSURE_MAX}");
    // The needs of DPDK cost some exposure. The limit is the value when the unit was written.
    ensure!(dataplane <= 3.0, "the dataplane's exposure is {dataplane}");
    Ok(())
}

fn used(machine: &Machine) -> anyhow::Result<()> {
    machine.sh(HOSTS)?;
    machine.sh(BOX)?;
    // Returns when the dataplane is ready.
    machine.sh("systemctl start linkd-dataplane")?;
    // The ports were configured before.
    machine.sh("[ \"$(systemctl show --property Result --value linkemu-box)\" = success ]")?;
    machine.sh("linkctl -o json box show | grep -q '\"complete\": *true'")?;
    let status = machine.sh("systemctl show --property StatusText --value linkd-dataplane")?;
    ensure!(status.contains("wan net_af_packet,iface=wan"), "{status}");
    // Members of the group can control the box, but only through linkd. Other users have no access.
    machine.sh("useradd --create-home alice --groups linkemu && useradd --create-home bob")?;
    machine.until("linkd to find the dataplane", SOON, "runuser -u alice -- linkctl show")?;
    machine.sh("runuser -u alice -- linkctl set profile viasat2")?;
    let link = machine.sh("runuser -u alice -- linkctl -o json show")?;
    ensure!(link.contains("viasat2"), "{link}");
    for (user, socket) in [("bob", "linkd"), ("alice", "dataplane"), ("bob", "dataplane")] {
        let opened = format!("runuser -u {user} -- test -w /run/linkemu/{socket}.sock");
        let done = machine.run(&["sh", "-c", &opened])?;
        ensure!(!done.status.success(), "{user} may open {socket}.sock");
    }
    // The audit log has the user by name, so linkd can resolve users.
    machine.sh("grep -q '\"alice\"' /var/log/linkemu/audit.jsonl")?;
    // The link works: a round trip of 600 ms.
    let ping = machine.sh("ip netns exec client ping -c 2 -W 5 10.9.0.1")?;
    let rtt =
        ping.lines().find_map(|line| line.split_once("min/avg/max/mdev = ")?.1.split('/').next());
    let rtt: f64 = rtt.context("no RTT")?.parse()?;
    ensure!(rtt >= 500.0, "{ping}");
    // Checks fail with code 4 here: there is no NIC.
    let doctor = machine.run(&["linkctl", "doctor"])?;
    ensure!(matches!(doctor.code(), 0 | 4), "{}{}", doctor.stdout, doctor.stderr);
    // Certificates and the log are reloaded without a restart.
    let before = pid(machine, "linkd")?;
    machine.sh("systemctl reload linkd")?;
    ensure!(pid(machine, "linkd")? == before, "a reload has ended linkd");
    Ok(())
}

fn restarted(machine: &Machine) -> anyhow::Result<()> {
    // A daemon that is killed, or that stalls, restarts. The other one keeps running.
    for (unit, other) in [("linkd", "linkd-dataplane"), ("linkd-dataplane", "linkd")] {
        // The other daemon keeps its limit: a busy machine is late by seconds.
        machine.sh(&format!(
            "mkdir -p /run/systemd/system/{unit}.service.d
             printf '[Service]\\nWatchdogSec=5\\nTimeoutAbortSec=2\\n' \
               > /run/systemd/system/{unit}.service.d/test.conf
             systemctl daemon-reload"
        ))?;
        let beside = pid(machine, other)?;
        let killed = pid(machine, unit)?;
        machine.sh(&format!("kill -KILL {killed}"))?;
        // It runs with the shorter limit.
        let stopped = next(machine, unit, &killed)?;
        machine.sh(&format!("kill -STOP {stopped}"))?;
        next(machine, unit, &stopped).context("from the watchdog")?;
        ensure!(pid(machine, other)? == beside, "{other} was restarted with {unit}");
        machine.sh("rm -r /run/systemd/system/*.service.d && systemctl daemon-reload")?;
    }
    // The new dataplane has the last link.
    let shown = "linkctl -o json show | grep -q viasat2";
    machine.until("the last link", SOON, shown)?;
    machine.sh("systemctl reset-failed && systemctl restart linkd")?;
    Ok(())
}

/// Packets that the dataplane received.
fn received(machine: &Machine) -> anyhow::Result<u64> {
    let stats = machine.sh("linkctl -o json stats")?;
    let stats: serde_json::Value = serde_json::from_str(&stats)?;
    stats["conservation"]["received"].as_u64().with_context(|| format!("no count in {stats}"))
}

fn upgraded(machine: &Machine) -> anyhow::Result<()> {
    machine.until("linkd", SOON, "linkctl set profile transparent")?;
    let (linkd, dataplane) = (pid(machine, "linkd")?, pid(machine, "linkd-dataplane")?);
    machine.sh(
        "ip netns exec client ping -i 0.1 10.9.0.1 > /tmp/ping 2>&1 & echo $! > /tmp/ping.pid",
    )?;
    let before = received(machine)?;
    let said = machine.sh("apt-get install --yes /share/2/*.deb 2>&1")?;
    ensure!(pid(machine, "linkd")? != linkd, "linkd is the old one");
    ensure!(pid(machine, "linkd-dataplane")? == dataplane, "the dataplane was restarted");
    let expected = format!("the running dataplane (pid {dataplane}) is of an older version");
    ensure!(said.contains(&expected), "{said}");
    machine.until("linkd to find the dataplane", SOON, "linkctl show")?;
    let after = received(machine)?;
    ensure!(after > before, "{after} after {before}");
    machine.sh("kill -INT $(cat /tmp/ping.pid)")?;
    machine.until("ping's summary", SOON, "grep -q 'packet loss' /tmp/ping")?;
    // ping ends at once: its last request may be without a reply.
    let ping = machine.sh("cat /tmp/ping")?;
    let numbers: Vec<u32> = ping
        .lines()
        .filter_map(|line| line.split_once("icmp_seq=")?.1.split_once(' ')?.0.parse().ok())
        .collect();
    let last = u32::try_from(numbers.len())?;
    ensure!(last > 0 && numbers.iter().copied().eq(1..=last), "{ping}");
    let sent = [last, last + 1].map(|sent| format!("{sent} packets transmitted, {last} received"));
    ensure!(sent.iter().any(|line| ping.contains(line)), "{ping}");
    machine.sh("systemctl restart linkd-dataplane")?;
    // No output if this version is installed.
    let said = machine.sh("apt-get install --yes --reinstall /share/2/*.deb 2>&1")?;
    ensure!(!said.contains("older version"), "{said}");
    Ok(())
}

fn removed(machine: &Machine, before: &str) -> anyhow::Result<()> {
    machine.sh("apt-get remove --yes linkemu")?;
    // One line each: `sh -e` ends only at the last command of a list.
    machine.sh("if systemctl is-active linkd linkd-dataplane; then exit 1; fi
         [ ! -e /usr/sbin/linkd ]
         [ ! -e /run/linkemu ]
         [ ! -e /run/linkemu-box/state.json ]
         [ -s /etc/linkemu/box.toml ]
         [ -s /var/log/linkemu/audit.jsonl ]
         [ -d /var/lib/linkemu ]")?;
    machine.sh("userdel --remove alice; userdel --remove bob")?;
    machine.sh("apt-get purge --yes --autoremove linkemu linkctl")?;
    let after = machine.sh(FILES)?;
    // Recommended packages and their files can remain.
    let others = machine.sh("cat /var/lib/dpkg/info/*.list")?;
    let before: HashSet<_> = before.lines().chain(others.lines()).collect();
    // dpkg can have /usr/lib under its other name.
    let is_known = |file: &str| {
        before.contains(file) || file.strip_prefix("/usr").is_some_and(|f| before.contains(f))
    };
    let left = after.lines().filter(|file| !is_known(file));
    let left = left.filter(|file| !STAYS.iter().any(|stays| file.starts_with(stays)));
    let left: Vec<_> = left.collect();
    ensure!(left.is_empty(), "left: {left:?}");
    Ok(())
}
