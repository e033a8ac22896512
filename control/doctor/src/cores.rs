// SPDX-License-Identifier: Apache-2.0
//! Causes of late workers: other work on their cores, clock frequencies, a hypervisor. And the
//! counter that provides the time.

use crate::finding::Finding;
use crate::machine::{Machine, at_boot, cores, list, read};
use crate::wanted::Wanted;
use procfs::{CpuInfo, ExplicitSystemInfo, FromRead, FromReadSI, KernelStats};
use std::collections::BTreeMap;
use std::fs;

const CPU: &str = "devices/system/cpu";
/// Share of the time taken by a hypervisor above which it is reported.
const STOLEN: f64 = 0.001;

pub fn check(machine: &Machine, wanted: &Wanted) -> Vec<Finding> {
    let mut found = vec![
        isolated(machine, wanted),
        shared(machine),
        governor(machine, wanted),
        siblings(machine),
        clock(machine),
        stolen(machine),
    ];
    if let Some(missing) = missing(machine, wanted) {
        found.insert(0, missing);
    }
    found
}

fn missing(machine: &Machine, wanted: &Wanted) -> Option<Finding> {
    let online = machine.cores("online");
    let gone: Vec<usize> =
        wanted.cores.iter().copied().filter(|core| !online.contains(core)).collect();
    if gone.is_empty() || online.is_empty() {
        return None;
    }
    let found = format!("core {} of the box's file is not online", list(&gone));
    let remedy = format!("echo 1 > /sys/{CPU}/cpu{}/online", gone[0]);
    let why = "linkd-dataplane refuses to start a worker there";
    Some(Finding::warning("cores", found, why, remedy).bad_if(true))
}

/// Kept free of other threads (`isolcpus`) and of the timer (`nohz_full`).
fn isolated(machine: &Machine, wanted: &Wanted) -> Finding {
    const CHECK: &str = "isolated cores";
    let (isolated, tickless) = (machine.cores("isolated"), machine.cores("nohz_full"));
    let lacks = |have: &[usize]| match wanted.cores.as_slice() {
        [] => have.is_empty(),
        cores => cores.iter().any(|core| !have.contains(core)),
    };
    let show = |cores: &[usize]| if cores.is_empty() { "none".into() } else { list(cores) };
    let found = format!("isolcpus {}, nohz_full {}", show(&isolated), show(&tickless));
    let (threads, ticks) = (lacks(&isolated), lacks(&tickless));
    if !threads && !ticks {
        return Finding::ok(CHECK, found);
    }
    let why = match (threads, ticks) {
        (true, _) => "other threads run on a worker's core, and packets are late meanwhile",
        _ => "the timer interrupts a worker some hundred times a second",
    };
    let cores =
        if wanted.cores.is_empty() { machine.cores("online") } else { wanted.cores.clone() };
    // Without a box, the last one, which is what linkd-dataplane takes.
    let cores =
        if wanted.cores.is_empty() { cores.last().copied().into_iter().collect() } else { cores };
    let cores = list(&cores);
    let remedy = at_boot(&format!("isolcpus={cores} nohz_full={cores} rcu_nocbs={cores}"));
    Finding::warning(CHECK, found, why, remedy)
}

/// Whether workers of running dataplanes share a core.
fn shared(machine: &Machine) -> Finding {
    const CHECK: &str = "workers";
    let mut by_core: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut count = 0;
    for (pid, _, place) in machine.processes().filter(|(_, name, _)| name == "linkd-dataplane") {
        for task in fs::read_dir(place.join("task")).into_iter().flatten().flatten() {
            let name = read(&task.path().join("comm")).unwrap_or_default();
            let status = read(&task.path().join("status")).unwrap_or_default();
            let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            let on = cores(allowed.unwrap_or_default());
            if let (true, &[core]) = (name.starts_with("worker-"), &*on) {
                count += 1;
                by_core.entry(core).or_default().push(format!("{name} of process {pid}"));
            }
        }
    }
    by_core.retain(|_, workers| workers.len() > 1);
    if by_core.is_empty() {
        return Finding::ok(CHECK, format!("{count} running, no core is shared"));
    }
    let found = by_core.iter_mut().map(|(core, workers)| {
        workers.sort();
        format!("core {core} has {}", workers.join(" and "))
    });
    Finding::warning(
        CHECK,
        found.collect::<Vec<_>>().join("; "),
        "each waits while the other one runs, and its packets are late",
        "linkd-dataplane --core N …   # restart one of them on another core",
    )
}

fn governor(machine: &Machine, wanted: &Wanted) -> Finding {
    const CHECK: &str = "CPU governor";
    let online = machine.cores("online");
    let cores = if wanted.cores.is_empty() { &online } else { &wanted.cores };
    let of = |core: &usize| {
        Some((*core, machine.sys(format!("{CPU}/cpu{core}/cpufreq/scaling_governor"))?))
    };
    let governors: Vec<(usize, String)> = cores.iter().filter_map(of).collect();
    if governors.is_empty() {
        return Finding::ok(CHECK, "the kernel does not set the frequency");
    }
    match governors.iter().find(|(_, governor)| governor != "performance") {
        None => Finding::ok(CHECK, "performance"),
        Some((core, governor)) => Finding::warning(
            CHECK,
            format!("{governor} on core {core}"),
            "a core that changes its frequency serves packets late and in bursts",
            format!("echo performance | tee /sys/{CPU}/cpu*/cpufreq/scaling_governor"),
        ),
    }
}

fn siblings(machine: &Machine) -> Finding {
    const CHECK: &str = "SMT";
    match machine.sys(format!("{CPU}/smt/active")).as_deref() {
        Some("1") => Finding::warning(
            CHECK,
            "on",
            "the sibling of a worker's core takes up to half of its speed",
            format!("echo off > /sys/{CPU}/smt/control   # or leave the siblings idle"),
        ),
        Some(_) => Finding::ok(CHECK, "off"),
        None => Finding::ok(CHECK, "the processor has none"),
    }
}

fn clock(machine: &Machine) -> Finding {
    const CHECK: &str = "clock source";
    let source = machine
        .sys("devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_else(|| "not known".into());
    let info = CpuInfo::from_file(machine.proc.join("cpuinfo")).ok();
    let flags = info.as_ref().and_then(|info| info.flags(0));
    let Some(flags) = flags else {
        // Other processors have a counter that is constant by its specification.
        return Finding::ok(CHECK, source);
    };
    let missing: Vec<&str> =
        ["constant_tsc", "nonstop_tsc"].into_iter().filter(|flag| !flags.contains(flag)).collect();
    if !missing.is_empty() {
        return Finding::warning(
            CHECK,
            format!("{source}; the processor lacks {}", missing.join(" and ")),
            "the dataplane asks the kernel for the time instead, which takes longer for each packet",
            "qemu-system-x86_64 -cpu host,migratable=off,+invtsc …   # if it is a virtual machine",
        );
    }
    if source != "tsc" {
        return Finding::warning(
            CHECK,
            source,
            "the kernel does not trust the processor's counter, or a call for the time is slow",
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
        );
    }
    Finding::ok(CHECK, "tsc, constant and nonstop")
}

fn stolen(machine: &Machine) -> Finding {
    const CHECK: &str = "virtual machine";
    let info = CpuInfo::from_file(machine.proc.join("cpuinfo")).ok();
    let guest = info
        .as_ref()
        .and_then(|info| info.flags(0))
        .is_some_and(|flags| flags.contains(&"hypervisor"));
    let path = machine.proc.join("stat");
    // Only sums of ticks are read, which do not depend on these.
    let system = ExplicitSystemInfo {
        boot_time_secs: 0,
        ticks_per_second: 100,
        page_size: 4096,
        is_little_endian: cfg!(target_endian = "little"),
    };
    let stats = std::fs::File::open(path).ok();
    let stats = stats.and_then(|file| KernelStats::from_read(file, &system).ok());
    let share = stats.map(|stats| {
        let time = stats.total;
        let steal = time.steal.unwrap_or(0);
        let rest = [time.iowait, time.irq, time.softirq].map(|ticks| ticks.unwrap_or(0));
        let busy = [time.user, time.nice, time.system, time.idle, steal];
        let all: u64 = busy.iter().chain(&rest).copied().fold(0, u64::saturating_add);
        steal as f64 / all.max(1) as f64
    });
    match share {
        Some(share) if share > STOLEN => Finding::warning(
            CHECK,
            format!("the hypervisor took {:.1} % of the time since the start", share * 100.0),
            "while it does, no packet leaves: lateness of milliseconds, shown as stalls",
            "linkctl stats   # see \"longest stall\"; give the machine cores of its own",
        ),
        Some(_) if guest => Finding::ok(CHECK, "yes, and it gets its time"),
        Some(_) => Finding::ok(CHECK, "no"),
        None => Finding::warning(
            CHECK,
            "/proc/stat cannot be read",
            "without it nothing is known of time that a hypervisor takes",
            "mount -t proc proc /proc",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level::{Bad, Ok as Good, Warning};
    use crate::finding::tests::is;
    use crate::machine::tests::Tree;

    fn on(cores: &[usize]) -> Wanted {
        Wanted { named: true, cores: cores.to_vec(), ..Wanted::default() }
    }

    #[test]
    fn core_named_by_the_box_must_exist() {
        let tree = Tree::new(&[("sys/devices/system/cpu/online", "0-3\n")]);
        assert_eq!(missing(&tree.machine(), &on(&[2, 3])), None);
        let found = missing(&tree.machine(), &on(&[3, 4])).unwrap();
        is(&found, Bad, "core 4 of the box's file");
        is(&check(&tree.machine(), &on(&[4]))[0], Bad, "cpu4/online");
    }

    #[test]
    fn worker_cores_must_be_isolated_and_tickless() {
        let tree = Tree::new(&[("sys/devices/system/cpu/online", "0-3\n")]);
        let set = |name: &str, cores: &str| {
            tree.write(&format!("sys/devices/system/cpu/{name}"), cores);
        };
        is(&isolated(&tree.machine(), &Wanted::default()), Warning, "isolcpus=3 nohz_full=3");
        set("isolated", "2-3\n");
        is(&isolated(&tree.machine(), &on(&[2, 3])), Warning, "the timer interrupts");
        set("nohz_full", "2-3\n");
        is(&isolated(&tree.machine(), &on(&[2, 3])), Good, "isolcpus 2,3");
        is(&isolated(&tree.machine(), &Wanted::default()), Good, "isolcpus 2,3");
        is(&isolated(&tree.machine(), &on(&[1, 2])), Warning, "isolcpus=1,2");
    }

    #[test]
    fn workers_sharing_a_core_are_reported() {
        let tree = Tree::new(&[]);
        is(&shared(&tree.machine()), Good, "0 running");
        let thread = |pid: u32, task: u32, name: &str, cores: &str| {
            tree.write(&format!("proc/{pid}/comm"), "linkd-dataplane\n");
            let task = format!("proc/{pid}/task/{task}");
            tree.write(&format!("{task}/comm"), &format!("{name}\n"));
            tree.write(
                &format!("{task}/status"),
                &format!("Name:\tx\nCpus_allowed_list:\t{cores}\n"),
            );
        };
        thread(7, 7, "linkd-dataplane", "0-3");
        thread(7, 8, "worker-0", "3");
        thread(7, 9, "worker-1", "2");
        // It was not given a core.
        thread(9, 10, "worker-1", "0-3");
        is(&shared(&tree.machine()), Good, "2 running");
        thread(9, 11, "worker-0", "3");
        let found = shared(&tree.machine());
        is(&found, Warning, "core 3 has worker-0 of process 7 and worker-0 of process 9");
        assert!(!found.found.contains("core 2"), "{found:?}");
        // Another program's threads may have these names.
        tree.write("proc/9/comm", "redis\n");
        is(&shared(&tree.machine()), Good, "2 running");
    }

    #[test]
    fn governor_must_be_performance_if_present() {
        let tree = Tree::new(&[("sys/devices/system/cpu/online", "0-1\n")]);
        let set = |core: usize, governor: &str| {
            let path = format!("sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor");
            tree.write(&path, governor);
        };
        is(&governor(&tree.machine(), &Wanted::default()), Good, "does not set");
        set(0, "powersave\n");
        set(1, "performance\n");
        is(&governor(&tree.machine(), &Wanted::default()), Warning, "powersave on core 0");
        is(&governor(&tree.machine(), &on(&[1])), Good, "performance");
    }

    #[test]
    fn online_siblings_are_reported() {
        let tree = Tree::new(&[]);
        is(&siblings(&tree.machine()), Good, "none");
        tree.write("sys/devices/system/cpu/smt/active", "1\n");
        is(&siblings(&tree.machine()), Warning, "echo off");
        tree.write("sys/devices/system/cpu/smt/active", "0\n");
        is(&siblings(&tree.machine()), Good, "off");
    }

    #[test]
    fn counter_must_be_constant_and_trusted() {
        let tree = Tree::new(&[]);
        let source = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        let flags = |flags: &str| {
            tree.write("proc/cpuinfo", &format!("processor\t: 0\nflags\t\t: {flags}\n\n"));
        };
        tree.write(source, "arch_sys_counter\n");
        is(&clock(&tree.machine()), Good, "arch_sys_counter");
        tree.write(source, "tsc\n");
        flags("fpu constant_tsc nonstop_tsc");
        is(&clock(&tree.machine()), Good, "tsc, constant");
        tree.write(source, "hpet\n");
        is(&clock(&tree.machine()), Warning, "echo tsc");
        flags("fpu constant_tsc");
        is(&clock(&tree.machine()), Warning, "lacks nonstop_tsc");
    }

    #[test]
    fn stolen_time_is_reported() {
        let tree = Tree::new(&[]);
        let set = |steal: u64| {
            let text = format!(
                "cpu 500 0 300 9000 10 0 20 {steal} 0 0\ncpu0 500 0 300 9000 10 0 20 {steal} 0 0\n\
                 ctxt 1\nbtime 1\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n"
            );
            tree.write("proc/stat", &text);
        };
        is(&stolen(&tree.machine()), Warning, "/proc/stat");
        set(0);
        is(&stolen(&tree.machine()), Good, "no");
        tree.write("proc/cpuinfo", "processor\t: 0\nflags\t\t: hypervisor\n\n");
        is(&stolen(&tree.machine()), Good, "gets its time");
        set(170);
        is(&stolen(&tree.machine()), Warning, "took 1.7 %");
    }
}
