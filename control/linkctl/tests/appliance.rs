// SPDX-License-Identifier: Apache-2.0
//! `linkctl box` on machines of files: trees of `/proc` and `/sys` with tools that change them,
//! so that changes, and their absence, are visible. Nothing is read from the machine that runs
//! this.

use crate::box_machine::{self, BOX, Machine, NICS};
use serde_json::Value;

#[test]
fn a_file_is_checked_by_itself() {
    let machine = Machine::new();
    let (json, code) = machine.json("check box.toml");
    assert_eq!((json["bad"].as_u64(), code), (Some(0), 0), "{json}");
    machine.write(
        "odd.toml",
        "[ports]\nwan = \"01:00.0\"\nclient = \"01:00.0\"\n[workers]\ncores = [1, 1]\n",
    );
    let (json, code) = machine.json("check odd.toml");
    assert_eq!((json["bad"].as_u64(), code), (Some(2), 4), "{json}");
    assert!(json["checks"][0]["found"].as_str().unwrap().contains("core 1 is given to two"));
    machine.write("key.toml", "[port]\n");
    let output = machine.run("check key.toml");
    assert_eq!(output.code, 4);
    assert!(output.err.contains("no key `port`: the nearest is `ports`"), "{}", output.err);
    assert_eq!(machine.run("check nothing.toml").code, 1);
}

#[test]
fn complete_machine_passes() {
    let machine = Machine::new();
    let (json, code) = machine.json("check box.toml --here");
    let bad: Vec<_> = json["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|c| c["level"] == "FINDING_LEVEL_BAD")
        .collect();
    assert!(bad.is_empty() && code == 0, "{bad:?}");
    let text = machine.run("check box.toml --here").out;
    assert!(
        text.contains("0 of 600 of 2 MiB are reserved on NUMA node 0; apply reserves the rest"),
        "{text}"
    );
}

#[test]
fn certificates_for_the_switch_are_checked_here() {
    let machine = Machine::new();
    let key = rcgen::KeyPair::generate().unwrap();
    let made = rcgen::CertificateParams::new(vec!["p4.lab".into()]).unwrap().self_signed(&key);
    let authority = made.unwrap().pem();
    machine.write("ca.pem", &authority);
    let key = key.serialize_pem();
    let switch = "[workers]\ncores = [2]\n[switch]\ntarget = \"bmv2\"\nbox_wan = 0\nbox_client = 1\n\
                  wan = [2]\nclient = [3]\naddress = \"https://p4.lab:9559\"\nca = \"/ca.pem\"\n";
    let least = BOX.replace("[workers]\ncores = [2, 3]\n", switch).replace("numa_node = 0\n", "");
    let finding = |text: &str| {
        machine.write("switch.toml", text);
        let (json, _) = machine.json("check switch.toml --here");
        let checks = json["checks"].as_array().unwrap().clone();
        let found = checks.into_iter().find(|check| check["check"] == "switch").unwrap();
        (found["level"].as_str().unwrap().to_owned(), found["found"].as_str().unwrap().to_owned())
    };
    let (level, found) = finding(&least);
    assert_eq!(
        (&*level, &*found),
        ("FINDING_LEVEL_OK", "the certificates for https://p4.lab:9559 can be used")
    );
    let (level, found) = finding(&least.replace("/ca.pem", "/none.pem"));
    assert_eq!(level, "FINDING_LEVEL_BAD");
    assert!(found.contains("cannot read") && found.contains("none.pem: No such file"), "{found}");
    let own = least.replace("ca =", "cert = \"/ca.pem\"\nkey = \"/own.key\"\nca =");
    machine.write("own.key", &key);
    machine.mode("own.key", 0o644);
    let (level, found) = finding(&own);
    assert_eq!(level, "FINDING_LEVEL_BAD");
    assert!(found.contains("own.key has mode 0644") && found.contains("chmod 600"), "{found}");
    machine.mode("own.key", 0o600);
    assert_eq!(finding(&own).0, "FINDING_LEVEL_OK");
    machine.write("home/ca.pem", &authority);
    let (level, found) = finding(&least.replace("/ca.pem", "/home/ca.pem"));
    assert_eq!((&*level, &*found), ("FINDING_LEVEL_WARNING", "/home/ca.pem is in /home"));
    let (json, code) = machine.json("check switch.toml");
    assert_eq!((json["bad"].as_u64(), code), (Some(0), 0), "{json}");
    machine.write("program/linkemu.json", "{}");
    let program = least.replace("ca =", "program = \"/program\"\nca =");
    let program = program.replace("/ca.pem", "/none.pem");
    machine.write("switch.toml", &program);
    let (json, _) = machine.json("check switch.toml --here");
    assert!(json.to_string().contains("program/linkemu.p4info.bin: No such file"), "{json}");
    let info = concat!(env!("CARGO_MANIFEST_DIR"), "/../../p4src/compiled/bmv2/linkemu.p4info.bin");
    std::fs::copy(info, machine.at("program/linkemu.p4info.bin")).unwrap();
    let (json, _) = machine.json("check switch.toml --here");
    assert!(json.to_string().contains("/program has the program linkemu 2 (v1model)"), "{json}");
    let half = least.replace("ca =", "key = \"/own.key\"\nca =");
    machine.write("switch.toml", &half);
    let (json, code) = machine.json("check switch.toml");
    assert_eq!(code, 4);
    assert!(json.to_string().contains("has `key` without `cert`: give both"), "{json}");
}

#[test]
fn directory_of_the_compiler_for_a_tofino_is_accepted() {
    let machine = Machine::new();
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let file = std::fs::read_to_string(format!("{repository}/hw-configs/tofino-wedge100/box.toml"));
    machine.write("wedge.toml", &file.unwrap());
    let finding = || {
        let (json, _) = machine.json("check wedge.toml --here");
        let checks = json["checks"].as_array().unwrap();
        checks.iter().find(|check| check["check"] == "switch").unwrap().to_string()
    };
    let found = finding();
    assert!(found.contains("share/linkemu/tofino/linkemu.p4info.bin: No such file"), "{found}");
    let at = |name: &str| format!("usr/local/share/linkemu/tofino/{name}");
    // bmv2's P4Info, whose names are the same, with another architecture.
    let info = std::fs::read(format!("{repository}/p4src/compiled/bmv2/linkemu.p4info.bin"));
    let (package, info) = (b"\x0a\x15\x0a\x07linkemu\x12\x012\x2a\x07v1model", info.unwrap());
    let rest = info.strip_prefix(package).unwrap();
    machine.write(&at("linkemu.conf"), "{\"p4_devices\": []}");
    std::fs::write(machine.at(&at("linkemu.p4info.bin")), &info).unwrap();
    let found = finding();
    assert!(found.contains("not of one device; give the directory that p4c -o wrote"), "{found}");
    machine.write(
        &at("linkemu.conf"),
        "{\"p4_devices\": [{\"p4_programs\": [{\"program-name\": \"linkemu\", \"bfrt-config\": \
         \"/build/bfrt.json\", \"p4_pipelines\": [{\"p4_pipeline_name\": \"pipe\", \"context\": \
         \"/build/pipe/context.json\", \"config\": \"/build/pipe/tofino.bin\", \"pipe_scope\": [0, \
         1]}]}]}]}",
    );
    for name in ["bfrt.json", "pipe/context.json", "pipe/tofino.bin"] {
        machine.write(&at(name), "{}");
    }
    let found = finding();
    assert!(found.contains("linkemu 2 (v1model)") && found.contains("needs"), "{found}");
    let package = b"\x0a\x11\x0a\x07linkemu\x12\x012\x2a\x03tna";
    std::fs::write(machine.at(&at("linkemu.p4info.bin")), [&package[..], rest].concat()).unwrap();
    let found = finding();
    assert!(found.contains("linkemu/tofino has the program linkemu 2 (tna)"), "{found}");
}

#[test]
fn apply_takes_ports_and_undo_restores_them() {
    let machine = Machine::new();
    machine.set("sys/bus/pci/devices/0000:01:00.1/driver_override", "ixgbe\n");
    let before = machine.state();
    let plan = machine.run("apply box.toml --dry-run");
    assert_eq!(plan.code, 0, "{}", plan.err);
    let lines: Vec<_> = plan.out.lines().map(|l| l.split("   #").next().unwrap()).collect();
    assert_eq!(
        lines,
        [
            "echo 600 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
            "modprobe vfio-pci",
            "driverctl --nosave set-override 0000:01:00.0 vfio-pci",
            "driverctl --nosave set-override 0000:01:00.1 vfio-pci",
        ]
    );
    assert_eq!(machine.state(), before);

    let (json, code) = machine.json("apply box.toml");
    assert_eq!((code, json["changed"].as_bool()), (0, Some(true)), "{json}");
    assert_eq!(machine.driver(0).as_deref(), Some("vfio-pci"));
    assert_eq!(machine.driver(1).as_deref(), Some("vfio-pci"));
    assert_eq!(machine.pages(), "600");
    let (shown, _) = machine.json("show");
    assert_eq!(shown["complete"], true);
    assert_eq!(shown["ports"][0]["mac"], "3c:fd:fe:00:00:00");
    assert!(shown["steps"].as_array().unwrap().iter().all(|s| s["in_force"] == true), "{shown}");
    // Again: no steps remain, and the previous state is still recorded.
    let (json, code) = machine.json("apply box.toml");
    assert_eq!((code, json["changed"].as_bool()), (0, Some(false)), "{json}");

    let undo = machine.run("undo --dry-run");
    let lines: Vec<_> = undo.out.lines().map(|l| l.split("   #").next().unwrap()).collect();
    assert_eq!(
        lines,
        [
            "driverctl --nosave set-override 0000:01:00.1 ixgbe",
            "driverctl --nosave unset-override 0000:01:00.0",
            "modprobe -r vfio-pci",
            "echo 0 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
        ]
    );
    assert_eq!(machine.run("undo").code, 0);
    assert_eq!(machine.state(), before);
    assert_eq!(machine.run("undo").out, "nothing to undo\n");
    assert_eq!(machine.run("show").out, "nothing was applied\n");
}

#[test]
fn without_driverctl_dpdks_own_tool_does_it() {
    let machine = Machine::new();
    machine.remove("usr/sbin/driverctl");
    let before = machine.state();
    assert_eq!(machine.run("apply box.toml").code, 0);
    assert_eq!(machine.driver(1).as_deref(), Some("vfio-pci"));
    assert_eq!(machine.run("undo").code, 0);
    assert_eq!(machine.state(), before);
    machine.remove("usr/bin/dpdk-devbind.py");
    machine.refuses("apt-get install driverctl");
}

#[test]
fn faults_are_reported_with_remedy_and_nothing_changes() {
    type Change = (&'static str, fn(&Machine), &'static [&'static str]);
    let changes: &[Change] = &[
        (
            "a wrong PCI address",
            |m| m.edit("0000:01:00.0", "0000:09:00.0"),
            &["0000:09:00.0: there is no such PCI device; Ethernet cards: 0000:01:00.0", "lspci"],
        ),
        (
            "a device that is no card",
            |m| m.set("sys/bus/pci/devices/0000:01:00.0/class", "0x010802\n"),
            &["this PCI device is no Ethernet card"],
        ),
        (
            "a selector of nothing",
            |m| m.edit("pci = \"0000:01:00.0\"", "select.id = \"8086:ffff\""),
            &["there is no such network card", "0000:01:00.1 (8086:1572, ixgbe, eth1"],
        ),
        (
            "two ways to one device",
            |m| m.edit("pci = \"0000:01:00.0\"", "select = { id = \"8086:1572\", nth = 2 }"),
            &["wan and client are both 0000:01:00.1"],
        ),
        ("an address", |m| m.address("eth0", "192.0.2.1"), &["eth0 has the address 192.0.2.1"]),
        (
            "the default route",
            |m| m.default_route("-4", "eth1"),
            &["eth1 carries the default route"],
        ),
        ("IPv6's", |m| m.default_route("-6", "eth0"), &["eth0 carries the default route"]),
        (
            "a default route above a bond and a VLAN",
            |m| {
                m.above("eth0", "bond0");
                m.above("bond0", "bond0.7");
                m.default_route("-4", "bond0.7");
            },
            &["eth0 is below bond0.7, which carries the default route"],
        ),
        ("a bridge", |m| m.above("eth0", "br0"), &["eth0 is part of br0"]),
        (
            "the caller's session, behind sudo",
            |m| {
                m.session("198.51.100.9 5000 192.0.2.1 22");
                m.address("br0", "192.0.2.1");
                m.above("eth1", "br0");
            },
            &["eth1 is below br0, which carries this session"],
        ),
        (
            "the way by which the session comes",
            |m| {
                m.session("198.51.100.9 5000 203.0.113.1 22");
                m.route_to("198.51.100.9", "eth0");
            },
            &["eth0 carries this session"],
        ),
        (
            "an ip that does not answer",
            |m| m.remove("usr/sbin/ip"),
            &["there is no `ip`", "no port is known to be free"],
        ),
        (
            "an interface elsewhere",
            |m| m.remove("sys/class/net/eth0"),
            &["0000:01:00.0 has ixgbe, and no interface here", "another network namespace"],
        ),
        (
            "virtual functions",
            |m| m.set("sys/bus/pci/devices/0000:01:00.0/sriov_numvfs", "4\n"),
            &["0000:01:00.0 has 4 virtual functions", "echo 0 >"],
        ),
        (
            "another program",
            |m| {
                m.bind(0, "vfio-pci");
                m.hold(0, "testpmd");
            },
            &["0000:01:00.0 is in use by testpmd (process 77)"],
        ),
        (
            "a neighbour in the IOMMU group",
            |m| m.neighbour("0000:01:00.2", "ixgbe"),
            &["shares its IOMMU group with 0000:01:00.2, which has ixgbe"],
        ),
        (
            "no IOMMU",
            |m| m.remove("sys/kernel/iommu_groups"),
            &["0 IOMMU groups", "without an IOMMU vfio-pci takes no device", "intel_iommu=on"],
        ),
        (
            "more hugepages than memory",
            |m| m.set("proc/meminfo", box_machine::SMALL),
            &["0 of 600 of 2 MiB are reserved", "is available", "hugepagesz=2M hugepages=600"],
        ),
        (
            "too few hugepages, and none to be reserved",
            |m| m.edit("[hugepages]\nsize = \"2 MiB\"\ncount = 600\n", ""),
            &["0 of 2 MB (0 free)", "echo 600 > /sys/kernel/mm/hugepages/hugepages-2048kB"],
        ),
        (
            "a size that the processor lacks",
            |m| m.edit("size = \"2 MiB\"\ncount = 600", "size = \"1 GiB\"\ncount = 2"),
            &["the kernel has no hugepages of 1 GiB on NUMA node 0"],
        ),
        (
            "a core that does not exist",
            |m| m.edit("cores = [2, 3]", "cores = [2, 64]"),
            &["core 64 of the box's file is not online"],
        ),
        (
            "a core of another node",
            |m| m.edit("cores = [2, 3]", "cores = [2, 5]"),
            &["core 5 is on NUMA node 1, the box's file says 0", "node0/cpulist"],
        ),
        (
            "a port of another node",
            |m| m.set("sys/bus/pci/devices/0000:01:00.1/numa_node", "1\n"),
            &["the port client is on NUMA node 1, the box's file says 0"],
        ),
        (
            "a node that is not there",
            |m| m.edit("numa_node = 0", "numa_node = 7"),
            &["there is no NUMA node 7: the machine has 0-1"],
        ),
        (
            "a PTP clock that is not there",
            |m| m.edit("/dev/ptp0", "/dev/ptp9"),
            &["there is no /dev/ptp9; clocks: ptp0", "clock_name"],
        ),
        (
            "the PTP clock of a port",
            |m| m.link("sys/class/ptp/ptp0/device", "sys/bus/pci/devices/0000:01:00.1"),
            &["/dev/ptp0 is the clock of the port client, which vfio-pci takes"],
        ),
        (
            "a driver that DPDK's cannot work beside",
            |m| m.edit("driver = \"vfio-pci\"", "driver = \"kernel\""),
            &["is to stay with its kernel driver", "write driver = \"vfio-pci\" under [ports.wan]"],
        ),
        (
            "a driver that DPDK's needs",
            |m| m.set("sys/bus/pci/devices/0000:01:00.0/vendor", "0x15b3\n"),
            &["is to go to vfio-pci", "write driver = \"kernel\" under [ports.wan]"],
        ),
    ];
    for (name, change, words) in changes {
        let machine = Machine::new();
        change(&machine);
        let before = machine.state();
        let output = machine.run("apply box.toml");
        assert_eq!(output.code, 4, "{name}: {}{}", output.out, output.err);
        for words in *words {
            assert!(output.out.contains(words), "{name}: `{words}` in\n{}", output.out);
        }
        assert!(output.err.contains("nothing was changed"), "{name}: {}", output.err);
        assert_eq!(machine.state(), before, "{name}");
        let (json, code) = machine.json("check box.toml --here");
        assert!(code == 4 && json["bad"].as_u64() > Some(0), "{name}: {json}");
        assert_eq!(machine.run("apply box.toml --dry-run").code, 4, "{name}");
    }
}

#[test]
fn failing_step_undoes_earlier_steps() {
    for (name, change, words) in [
        (
            "the second device is not let go",
            (|m: &Machine| m.touch("fail/0000:01:00.1")) as fn(&Machine),
            "0000:01:00.1 to vfio-pci, before ixgbe: `driverctl",
        ),
        (
            "a tool that says it did",
            |m: &Machine| m.touch("lie/0000:01:00.1"),
            "went well, and 0000:01:00.1 has ixgbe",
        ),
        (
            "a module that is not there",
            |m: &Machine| m.touch("fail/vfio-pci"),
            "`modprobe vfio-pci` failed",
        ),
    ] {
        let machine = Machine::new();
        change(&machine);
        let before = machine.state();
        let output = machine.run("apply box.toml");
        assert_eq!(output.code, 1, "{name}: {}", output.err);
        assert!(output.err.contains(words), "{name}: {}", output.err);
        assert!(output.err.contains("nothing is changed"), "{name}: {}", output.err);
        assert_eq!(machine.state(), before, "{name}");
    }
}

#[test]
fn undo_after_crash_restores_and_apply_continues() {
    for again in [false, true] {
        let machine = Machine::new();
        let before = machine.state();
        machine.touch("kill/0000:01:00.1");
        let crashed = machine.run("apply box.toml");
        assert_eq!(crashed.code, 137, "{}", crashed.err);
        assert_eq!(machine.driver(0).as_deref(), Some("vfio-pci"));
        assert_eq!(machine.driver(1).as_deref(), Some("ixgbe"));
        let (shown, _) = machine.json("show");
        assert_eq!(shown["complete"], false);
        assert!(machine.run("show").out.contains("begun and not finished"), "{shown}");
        machine.remove("kill/0000:01:00.1");
        if again {
            assert_eq!(machine.run("apply box.toml").code, 0);
            assert_eq!(machine.driver(1).as_deref(), Some("vfio-pci"));
        }
        assert_eq!(machine.run("undo").code, 0);
        assert_eq!(machine.state(), before);
    }
}

#[test]
fn killed_undo_is_resumed() {
    let machine = Machine::new();
    let before = machine.state();
    assert_eq!(machine.run("apply box.toml").code, 0);
    machine.touch("kill/0000:01:00.0");
    assert_eq!(machine.run("undo").code, 137);
    machine.remove("kill/0000:01:00.0");
    machine.touch("fail/0000:01:00.0");
    let output = machine.run("undo");
    assert_eq!(output.code, 1);
    assert!(output.err.contains("1 of the steps could not be undone"), "{}", output.err);
    assert_eq!(machine.pages(), "0");
    machine.remove("fail/0000:01:00.0");
    assert_eq!(machine.run("undo").code, 0);
    assert_eq!(machine.state(), before);
}

#[test]
fn device_in_use_is_not_taken() {
    let machine = Machine::new();
    assert_eq!(machine.run("apply box.toml").code, 0);
    machine.hold(0, "linkd-dataplane");
    let before = machine.state();
    let output = machine.run("undo");
    assert_eq!(output.code, 1);
    assert!(output.err.contains("in use by linkd-dataplane (process 77)"), "{}", output.err);
    assert_eq!(machine.state(), before);
    // A running dataplane is no obstacle if nothing changes.
    assert_eq!(machine.run("apply box.toml").code, 0);
}

#[test]
fn another_box_is_not_applied_over_the_first() {
    let machine = Machine::new();
    assert_eq!(machine.run("apply box.toml").code, 0);
    let before = machine.state();
    machine.write("other.toml", &BOX.replace("0000:01:00.0", "0000:02:00.0"));
    let output = machine.run("apply other.toml");
    assert_eq!(output.code, 1);
    assert!(output.err.contains("0000:01:00.0 was applied from"), "{}", output.err);
    assert!(output.err.contains("linkctl box undo"), "{}", output.err);
    assert_eq!(machine.state(), before);
}

#[test]
fn hugepages_reserved_by_others_stay() {
    let machine = Machine::new();
    machine.set_pages("700");
    assert_eq!(machine.run("apply box.toml").code, 0);
    assert_eq!(machine.run("undo").code, 0);
    assert_eq!(machine.pages(), "700");
    machine.set_pages("100");
    assert_eq!(machine.run("apply box.toml").code, 0);
    machine.set_pages("900");
    assert_eq!(machine.run("undo").code, 0);
    assert_eq!(machine.pages(), "900");
}

#[test]
fn bifurcated_driver_is_kept() {
    let machine = Machine::new();
    for nic in 0..NICS {
        machine.set(&format!("sys/bus/pci/devices/0000:01:00.{nic}/vendor"), "0x15b3\n");
        machine.bind(nic, "mlx5_core");
    }
    machine.edit("driver = \"vfio-pci\"\n", "");
    // No IOMMU is needed for it.
    machine.remove("sys/kernel/iommu_groups");
    machine.set("sys/class/net/eth0/flags", "0x1002\n");
    let (json, code) = machine.json("apply box.toml");
    let steps: Vec<_> = json["steps"].as_array().unwrap().iter().map(|s| &s["command"]).collect();
    assert_eq!(code, 0, "{json}");
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert_eq!(steps[1], &Value::from("ip link set eth0 up"));
    assert_eq!(machine.driver(0).as_deref(), Some("mlx5_core"));
    assert_eq!(machine.run("undo").code, 0);
    assert_eq!(machine.get("sys/class/net/eth0/flags"), "0x1002\n");
}

#[test]
fn concurrent_applies_are_serialised() {
    let machine = Machine::new();
    let _held = machine.lock();
    let output = machine.run("apply box.toml");
    assert_eq!(output.code, 1);
    assert!(output.err.contains("another `linkctl box` is at work"), "{}", output.err);
    assert_eq!(machine.driver(0).as_deref(), Some("ixgbe"));
}

#[test]
fn invalid_record_is_refused() {
    let machine = Machine::new();
    for text in
        ["odd", "{}", "{\"version\":9,\"file\":\"x\",\"complete\":true,\"ports\":[],\"steps\":[]}"]
    {
        machine.write("run/linkemu-box/state.json", text);
        for line in ["apply box.toml", "undo", "show"] {
            let output = machine.run(line);
            assert_eq!(output.code, 1, "{line}");
            assert!(output.err.contains("is no record"), "{line}: {}", output.err);
        }
    }
    assert_eq!(machine.driver(0).as_deref(), Some("ixgbe"));
}
