// SPDX-License-Identifier: Apache-2.0
//! Hugepages, memory, and what limits it.

use crate::finding::Finding;
use crate::machine::{Machine, read};
use crate::wanted::Wanted;
use boxfile::{DPDK_BYTES, Huge};
use bytesize::ByteSize;
use procfs::process::{LimitValue, Limits};
use procfs::{FromRead, Meminfo, ProcessCGroups};
use std::path::Path;

/// A page of the small kind, bytes.
const SMALL: u64 = 2 << 20;
const GROUP: &str = "control group";
const LOCKED: &str = "locked memory";
/// A limit above this counts as unlimited, bytes.
const NO_LIMIT: u64 = 1 << 50;

/// Limits are those of a process: `self` or a number, as in `/proc`.
pub fn check(machine: &Machine, wanted: &Wanted, of: Option<&str>) -> Vec<Finding> {
    let mut found = vec![hugepages(machine, wanted), available(machine, wanted)];
    match of {
        Some(of) => found.extend([group(machine, wanted, of), locked(machine, wanted, of)]),
        None => found.extend([GROUP, LOCKED].map(unseen)),
    }
    found
}

/// The limit of a process that cannot be seen.
fn unseen(check: &'static str) -> Finding {
    Finding::warning(
        check,
        "not known: no process of the dataplane is seen",
        "a limit can keep the dataplane from its memory",
        "linkctl doctor   # on this machine",
    )
}

fn size(bytes: u64) -> String {
    ByteSize::b(bytes).display().si().to_string()
}

/// Whether enough of them are reserved.
pub fn hugepages(machine: &Machine, wanted: &Wanted) -> Finding {
    const CHECK: &str = "hugepages";
    if wanted.huge == Huge::Off {
        return Finding::ok(CHECK, "not wanted: the box's file says huge = \"off\"");
    }
    let pages = |kib: u64, file: &str| {
        let path = format!("kernel/mm/hugepages/hugepages-{kib}kB/{file}");
        machine.sys(path).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
    };
    let kinds = [("2 MB", 2_048), ("1 GB", 1_048_576)];
    let counts: Vec<String> = kinds
        .iter()
        .map(|(name, kib)| {
            let (total, free) = (pages(*kib, "nr_hugepages"), pages(*kib, "free_hugepages"));
            format!("{total} of {name} ({free} free)")
        })
        .collect();
    let bytes = |file: &str| {
        let part = |kib: u64| pages(kib, file).saturating_mul(kib << 10);
        kinds.iter().map(|(_, kib)| part(*kib)).fold(0, u64::saturating_add)
    };
    let (total, free) = (bytes("nr_hugepages"), bytes("free_hugepages"));
    // /proc/meminfo counts reserved pages of all sizes, for kernels that hide /sys.
    let meminfo = Meminfo::from_file(machine.proc.join("meminfo")).ok();
    let total = total.max(meminfo.and_then(|info| info.hugetlb).unwrap_or(0));
    let needed = wanted.buffers.saturating_add(DPDK_BYTES);
    let found = counts.join(", ");
    let remedy = format!(
        "echo {} > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        needed.div_ceil(SMALL)
    );
    if total == 0 {
        let why = "DPDK then runs on plain memory, a third slower";
        return Finding::warning(CHECK, found, why, remedy).bad_if(wanted.huge == Huge::On);
    }
    if total < needed {
        let why = format!("{} are needed for DPDK and its buffers", size(needed));
        return Finding::warning(CHECK, found, why, remedy).bad_if(wanted.huge == Huge::On);
    }
    if free < needed {
        // A dataplane that runs has them.
        return Finding::ok(CHECK, format!("{found}: in use"));
    }
    Finding::ok(CHECK, found)
}

/// Whether there is memory for the packets.
pub fn available(machine: &Machine, wanted: &Wanted) -> Finding {
    const CHECK: &str = "memory";
    let needed =
        wanted.packets.saturating_add(if wanted.huge == Huge::On { 0 } else { wanted.buffers });
    let available = match Meminfo::from_file(machine.proc.join("meminfo")) {
        Ok(info) => info.mem_available.unwrap_or(info.mem_free),
        Err(error) => {
            let why = "without it nothing is known of the memory";
            return Finding::warning(CHECK, format!("/proc/meminfo: {error}"), why, "mount /proc");
        }
    };
    let found = format!("{} available", size(available));
    if available < needed {
        let why = format!(
            "linkd-dataplane takes {} for packets and refuses to start without",
            size(needed)
        );
        let remedy = format!("linkd-dataplane --memory \"{} MB\" …", available / 4 * 3 / 1_000_000);
        return Finding::warning(CHECK, found, why, remedy).bad_if(wanted.named);
    }
    Finding::ok(CHECK, found)
}

/// The tightest limit among the control groups of a process (`self` or a number).
fn group(machine: &Machine, wanted: &Wanted, of: &str) -> Finding {
    let groups = ProcessCGroups::from_file(machine.proc.join(of).join("cgroup"));
    let root = machine.sys.join("fs/cgroup");
    let mut tightest: Option<(u64, String)> = None;
    for group in groups.map(|groups| groups.0).unwrap_or_default() {
        let memory = group.controllers.iter().any(|name| name == "memory");
        let (base, file) = match (group.hierarchy, memory) {
            (0, _) => (root.clone(), "memory.max"),
            (_, true) => (root.join("memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        let inner = Path::new(&group.pathname);
        // Every group above limits too.
        for path in inner.ancestors() {
            let Ok(path) = path.strip_prefix("/") else { break };
            let Some(limit) = read(&base.join(path).join(file)) else { continue };
            let Ok(limit) = limit.parse::<u64>() else { continue };
            if limit < NO_LIMIT && tightest.as_ref().is_none_or(|(least, _)| limit < *least) {
                tightest = Some((limit, format!("/{}", path.display())));
            }
        }
    }
    let Some((limit, path)) = tightest else { return Finding::ok(GROUP, "no limit on memory") };
    let found = format!("{path} is limited to {}", size(limit));
    let needed = wanted.packets.saturating_add(wanted.buffers);
    if limit < needed {
        let why = format!("packets and buffers take {}: the kernel would kill it", size(needed));
        let remedy = format!(
            "systemctl set-property linkd-dataplane.service MemoryMax={}",
            needed.saturating_add(1 << 30)
        );
        return Finding::warning(GROUP, found, why, remedy).bad_if(wanted.named);
    }
    Finding::ok(GROUP, found)
}

/// `RLIMIT_MEMLOCK` of a process (`self` or a number).
fn locked(machine: &Machine, wanted: &Wanted, of: &str) -> Finding {
    let limit = match Limits::from_file(machine.proc.join(of).join("limits")) {
        Ok(limits) => limits.max_locked_memory.soft_limit,
        Err(error) => {
            let why = "DPDK locks the memory that a device reads and writes";
            let remedy = "ulimit -l";
            return Finding::warning(LOCKED, format!("not known: {error}"), why, remedy);
        }
    };
    let needed = wanted.buffers.saturating_add(DPDK_BYTES);
    match limit {
        LimitValue::Unlimited => Finding::ok(LOCKED, "not limited"),
        LimitValue::Value(bytes) if bytes >= needed => {
            Finding::ok(LOCKED, format!("limited to {}", size(bytes)))
        }
        LimitValue::Value(bytes) => Finding::warning(
            LOCKED,
            format!("limited to {}", size(bytes)),
            format!(
                "DPDK locks the memory that a device reads and writes, {} here; only root may do \
                 so beyond the limit",
                size(needed)
            ),
            "ulimit -l unlimited   # for a systemd unit: LimitMEMLOCK=infinity",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level::{Bad, Ok as Good, Warning};
    use crate::finding::tests::is;
    use crate::machine::tests::Tree;

    const MEMINFO: &str = "MemTotal: 16000000 kB\nMemFree: 100 kB\nMemAvailable: 8000000 kB\n\
        Buffers: 0 kB\nCached: 0 kB\nSwapCached: 0 kB\nActive: 0 kB\nInactive: 0 kB\n\
        SwapTotal: 0 kB\nSwapFree: 0 kB\nDirty: 0 kB\nWriteback: 0 kB\nMapped: 0 kB\n\
        Slab: 0 kB\nCommitted_AS: 0 kB\nVmallocTotal: 0 kB\nVmallocUsed: 0 kB\n\
        VmallocChunk: 0 kB\n";

    fn named(packets: u64, buffers: u64, huge: Huge) -> Wanted {
        Wanted { named: true, packets, buffers, huge, ..Wanted::default() }
    }

    #[test]
    fn too_few_hugepages_give_a_command() {
        let small = "sys/kernel/mm/hugepages/hugepages-2048kB/";
        let tree = Tree::new(&[]);
        let set = |total: &str, free: &str| {
            tree.write(&format!("{small}nr_hugepages"), total);
            tree.write(&format!("{small}free_hugepages"), free);
        };
        is(&hugepages(&tree.machine(), &Wanted::default()), Warning, "echo 88 >");
        is(&hugepages(&tree.machine(), &named(0, 1 << 30, Huge::On)), Bad, "echo 600 >");
        set("600\n", "600\n");
        is(
            &hugepages(&tree.machine(), &named(0, 1 << 30, Huge::On)),
            Good,
            "600 of 2 MB (600 free)",
        );
        set("600\n", "2\n");
        is(&hugepages(&tree.machine(), &named(0, 1 << 30, Huge::On)), Good, "in use");
        is(&hugepages(&tree.machine(), &named(0, 2 << 30, Huge::On)), Bad, "are needed");
        is(&hugepages(&tree.machine(), &named(0, 2 << 30, Huge::Auto)), Warning, "are needed");
        let large = "sys/kernel/mm/hugepages/hugepages-1048576kB/";
        tree.write(&format!("{large}nr_hugepages"), "4");
        tree.write(&format!("{large}free_hugepages"), "4");
        is(&hugepages(&tree.machine(), &named(0, 2 << 30, Huge::On)), Good, "4 of 1 GB");
        set("odd", "");
        is(&hugepages(&tree.machine(), &named(0, 2 << 30, Huge::On)), Good, "0 of 2 MB");
    }

    #[test]
    fn memory_must_suffice_for_the_packets() {
        let tree = Tree::new(&[("proc/meminfo", MEMINFO)]);
        is(&available(&tree.machine(), &named(7 << 30, 0, Huge::On)), Good, "8.2 GB available");
        is(&available(&tree.machine(), &named(8 << 30, 0, Huge::On)), Bad, "--memory");
        is(&available(&tree.machine(), &named(7 << 30, 1 << 30, Huge::Auto)), Bad, "--memory");
        let unnamed = Wanted { packets: 8 << 30, ..Wanted::default() };
        is(&available(&tree.machine(), &unnamed), Warning, "refuses to start");
        tree.write("proc/meminfo", "nonsense");
        is(&available(&tree.machine(), &unnamed), Warning, "/proc/meminfo");
    }

    #[test]
    fn the_tightest_control_group_counts_of_both_versions() {
        let tree = Tree::new(&[("proc/self/cgroup", "0::/a/b\n")]);
        let wanted = named(3 << 30, 0, Huge::Auto);
        is(&group(&tree.machine(), &wanted, "self"), Good, "no limit");
        tree.write("sys/fs/cgroup/a/memory.max", "4294967296\n");
        tree.write("sys/fs/cgroup/a/b/memory.max", "max\n");
        is(&group(&tree.machine(), &wanted, "self"), Good, "/a is limited to");
        tree.write("sys/fs/cgroup/a/memory.max", "1073741824\n");
        is(&group(&tree.machine(), &wanted, "self"), Bad, "MemoryMax=");
        is(&group(&tree.machine(), &Wanted::default(), "self"), Warning, "would kill it");
        tree.write("proc/7/cgroup", "4:memory:/old\n3:cpuset:/\n");
        tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
        is(&group(&tree.machine(), &wanted, "7"), Good, "no limit");
        tree.write("sys/fs/cgroup/memory/old/memory.limit_in_bytes", "1000");
        is(&group(&tree.machine(), &wanted, "7"), Bad, "/old is limited to");
        tree.write("proc/7/cgroup", "odd");
        is(&group(&tree.machine(), &wanted, "7"), Good, "no limit");
    }

    #[test]
    fn locked_memory_must_suffice_for_the_buffers() {
        let tree = Tree::new(&[]);
        let set = |limit: &str| {
            let rest = "Limit Soft Limit Hard Limit Units\n";
            let names = [
                "Max cpu time",
                "Max file size",
                "Max data size",
                "Max stack size",
                "Max core file size",
                "Max resident set",
                "Max processes",
                "Max open files",
                "Max address space",
                "Max file locks",
                "Max pending signals",
                "Max msgqueue size",
                "Max nice priority",
                "Max realtime priority",
                "Max realtime timeout",
            ];
            let mut text = rest.to_owned();
            for name in names {
                // The kernel gives these no unit.
                let unit = if name.ends_with("priority") { "" } else { "units" };
                text += &format!("{name:<26}{:<21}{:<21}{unit}\n", "unlimited", "unlimited");
            }
            text += &format!("{:<26}{limit:<21}unlimited            bytes\n", "Max locked memory");
            tree.write("proc/self/limits", &text);
        };
        set("unlimited");
        is(&locked(&tree.machine(), &Wanted::default(), "self"), Good, "not limited");
        set("8388608");
        is(&locked(&tree.machine(), &Wanted::default(), "self"), Warning, "ulimit -l unlimited");
        set("1073741824");
        is(&locked(&tree.machine(), &Wanted::default(), "self"), Good, "limited to");
        is(&locked(&tree.machine(), &named(0, 1 << 30, Huge::On), "self"), Warning, "ulimit -l");
        is(&locked(&tree.machine(), &Wanted::default(), "8"), Warning, "not known");
    }
}
