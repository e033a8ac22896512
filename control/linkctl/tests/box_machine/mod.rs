// SPDX-License-Identifier: Apache-2.0
//! A machine of files with two nodes, three cards' ports and fake tools, and linkctl on it.
//!
//! The tools do to the tree what the real ones do to the kernel. A file `fail/X`, `lie/X` or
//! `kill/X` makes them fail at X, do nothing at X, or kill linkctl at X.

use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Ports of the card that the box's file names.
pub const NICS: usize = 2;

pub const BOX: &str = "\
[ports.wan]
pci = \"0000:01:00.0\"
driver = \"vfio-pci\"
[ports.client]
pci = \"0000:01:00.1\"
[workers]
cores = [2, 3]
numa_node = 0
[memory]
packets = \"1 GiB\"
buffers = \"1 GiB\"
huge = \"on\"
[hugepages]
size = \"2 MiB\"
count = 600
[clock]
ptp = \"/dev/ptp0\"
";

/// The kernel's figures for a memory with too little space for the hugepages.
pub const SMALL: &str = "MemTotal: 2000000 kB\nMemFree: 100 kB\nMemAvailable: 1100000 kB\n\
    Buffers: 0 kB\nCached: 0 kB\nSwapCached: 0 kB\nActive: 0 kB\nInactive: 0 kB\n\
    SwapTotal: 0 kB\nSwapFree: 0 kB\nDirty: 0 kB\nWriteback: 0 kB\nMapped: 0 kB\n\
    Slab: 0 kB\nCommitted_AS: 0 kB\nVmallocTotal: 0 kB\nVmallocUsed: 0 kB\n\
    VmallocChunk: 0 kB\n";

const NODE_PAGES: &str = "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";

/// Where the tree is, and what happens at a device or a module.
const COMMON: &str = "\
root=\"$(cd \"$(dirname \"$0\")/../..\" && pwd)\"
gate() {
  if [ -e \"$root/fail/$1\" ]; then echo \"fake: not $1\" >&2; exit 1; fi
  if [ -e \"$root/lie/$1\" ]; then exit 0; fi
  if [ -e \"$root/kill/$1\" ]; then kill -9 $PPID; exit 0; fi
}
bind() {
  rm -f \"$root/sys/bus/pci/devices/$1/driver\"
  [ -z \"$2\" ] || ln -s \"../../../bus/pci/drivers/$2\" \"$root/sys/bus/pci/devices/$1/driver\"
  iface=eth${1##*.}
  if [ \"$2\" = vfio-pci ]; then
    if [ -e \"$root/sys/class/net/$iface\" ]; then mv \"$root/sys/class/net/$iface\" \"$root/gone\"; fi
  elif [ -e \"$root/gone/$iface\" ]; then
    mv \"$root/gone/$iface\" \"$root/sys/class/net\"
  fi
}
";

const DRIVERCTL: &str = "\
[ \"$1\" = --nosave ] || exit 9
shift
probe=1
if [ \"$1\" = --noprobe ]; then probe=0; shift; fi
gate \"$2\"
override=\"$root/sys/bus/pci/devices/$2/driver_override\"
case \"$1\" in
  set-override) echo \"$3\" > \"$override\"; bind \"$2\" \"$3\";;
  unset-override)
    echo '(null)' > \"$override\"
    if [ $probe = 1 ]; then bind \"$2\" ixgbe; else bind \"$2\" ''; fi;;
  *) exit 9;;
esac
";

const DEVBIND: &str = "\
gate \"$2\"
case \"$1\" in
  --bind=*) bind \"$2\" \"${1#--bind=}\";;
  --unbind) bind \"$2\" '';;
  *) exit 9;;
esac
";

const MODPROBE: &str = "\
if [ \"$1\" = -r ]; then rm -rf \"$root/sys/module/vfio_pci\"; exit 0; fi
gate \"$1\"
mkdir -p \"$root/sys/module/vfio_pci\"
";

const IP: &str = "\
case \"$*\" in
  '-j address show') cat \"$root/net/addresses\";;
  '-j -4 route show table all default') cat \"$root/net/routes-4\";;
  '-j -6 route show table all default') cat \"$root/net/routes-6\";;
  '-j route get '*) cat \"$root/net/to-$4\";;
  'link set '*' up') echo 0x1003 > \"$root/sys/class/net/$3/flags\";;
  'link set '*' down') echo 0x1002 > \"$root/sys/class/net/$3/flags\";;
  *) exit 9;;
esac
";

pub struct Output {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub struct Machine(TempDir);

impl Machine {
    pub fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for (name, text) in [
            ("usr/sbin/driverctl", DRIVERCTL),
            ("usr/bin/dpdk-devbind.py", DEVBIND),
            ("usr/sbin/modprobe", MODPROBE),
            ("usr/sbin/ip", IP),
        ] {
            machine.write(name, &format!("#!/bin/sh\n{COMMON}{text}"));
            fs::set_permissions(machine.at(name), Permissions::from_mode(0o755)).unwrap();
        }
        for folder in ["gone", "run", "sys/class/net"] {
            fs::create_dir_all(machine.at(folder)).unwrap();
        }
        machine.card("0000:01:00.0", "eth0", 10);
        machine.card("0000:01:00.1", "eth1", 11);
        machine.card("0000:02:00.0", "eth2", 12);
        machine.write("sys/devices/system/cpu/online", "0-7\n");
        for core in 0..8 {
            let path = format!("sys/devices/system/cpu/cpu{core}/node{}/x", core / 4);
            machine.write(&path, "");
        }
        machine.write("sys/devices/system/node/online", "0-1\n");
        machine.write(NODE_PAGES, "0\n");
        machine.write("sys/devices/system/node/node1/cpulist", "4-7\n");
        for file in ["nr_hugepages", "free_hugepages"] {
            machine.write(&format!("sys/kernel/mm/hugepages/hugepages-2048kB/{file}"), "0\n");
        }
        machine.write("sys/class/ptp/ptp0/clock_name", "clock of another card\n");
        machine.write("dev/ptp0", "");
        machine.write("proc/meminfo", &SMALL.replace("1100000", "8000000"));
        machine.process("self", 50);
        machine.process("50", 1);
        for (name, text) in [("addresses", "[]"), ("routes-4", "[ ]"), ("routes-6", "")] {
            machine.write(&format!("net/{name}"), text);
        }
        machine.address("eth0", "fe80::1");
        machine.address("lo", "127.0.0.1");
        machine.default_route("-4", "eth9");
        machine.write("box.toml", BOX);
        machine
    }

    fn card(&self, address: &str, iface: &str, group: u32) {
        let real = format!("sys/devices/pci0000:00/{address}");
        for (file, text) in [
            ("vendor", "0x8086\n"),
            ("device", "0x1572\n"),
            ("class", "0x020000\n"),
            ("numa_node", "0\n"),
            ("driver_override", "(null)\n"),
        ] {
            self.write(&format!("{real}/{file}"), text);
        }
        self.link(&format!("sys/bus/pci/devices/{address}"), &real);
        self.driver_link(address, "ixgbe");
        self.write(&format!("sys/kernel/iommu_groups/{group}/devices/{address}"), "");
        self.link(&format!("{real}/iommu_group"), &format!("sys/kernel/iommu_groups/{group}"));
        let mac = format!("3c:fd:fe:00:00:0{}\n", &iface[3..]);
        self.write(&format!("sys/class/net/{iface}/address"), &mac);
        self.write(&format!("sys/class/net/{iface}/flags"), "0x1003\n");
        self.link(&format!("sys/class/net/{iface}/device"), &real);
    }

    fn driver_link(&self, address: &str, driver: &str) {
        let link = self.at(&format!("sys/bus/pci/devices/{address}/driver"));
        let _ = fs::remove_file(&link);
        symlink(format!("../../../bus/pci/drivers/{driver}"), link).unwrap();
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.at(path), Permissions::from_mode(mode)).unwrap();
    }

    pub fn set(&self, path: &str, text: &str) {
        self.write(path, text);
    }

    pub fn get(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    pub fn touch(&self, path: &str) {
        self.write(path, "");
    }

    pub fn remove(&self, path: &str) {
        let path = self.at(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }

    /// A link to another place of the tree.
    pub fn link(&self, path: &str, to: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(self.at(to), path).unwrap();
    }

    pub fn edit(&self, from: &str, to: &str) {
        let text = self.get("box.toml");
        assert!(text.contains(from), "{from}");
        self.write("box.toml", &text.replace(from, to));
    }

    pub fn bind(&self, nic: usize, driver: &str) {
        self.driver_link(&format!("0000:01:00.{nic}"), driver);
        if driver == "vfio-pci" {
            let name = format!("eth{nic}");
            fs::rename(self.at("sys/class/net").join(&name), self.at("gone").join(name)).unwrap();
        }
    }

    pub fn driver(&self, nic: usize) -> Option<String> {
        let link = self.at(&format!("sys/bus/pci/devices/0000:01:00.{nic}/driver"));
        Some(fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned())
    }

    pub fn pages(&self) -> String {
        self.get(NODE_PAGES).trim().to_owned()
    }

    pub fn set_pages(&self, count: &str) {
        self.write(NODE_PAGES, &format!("{count}\n"));
    }

    fn process(&self, name: &str, parent: u32) {
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        let (_, rest) = own.rsplit_once(") ").unwrap();
        let rest: Vec<_> = rest.split(' ').collect();
        let stat = format!("7 (x) {} {parent} {}", rest[0], rest[2..].join(" "));
        self.write(&format!("proc/{name}/stat"), &stat);
        self.write(&format!("proc/{name}/environ"), "HOME=/root\0");
    }

    /// Makes the shell above linkctl an SSH session.
    pub fn session(&self, connection: &str) {
        let environment = format!("HOME=/root\0SSH_CONNECTION={connection}\0PATH=/bin\0");
        self.write("proc/50/environ", &environment);
    }

    pub fn address(&self, iface: &str, address: &str) {
        let mut all: Vec<Value> = serde_json::from_str(&self.get("net/addresses")).unwrap();
        all.push(json!({ "ifname": iface, "addr_info": [{ "local": address }] }));
        self.write("net/addresses", &json!(all).to_string());
    }

    pub fn default_route(&self, family: &str, device: &str) {
        // As `ip` shows a route over several.
        let routes =
            json!([{ "dst": "default", "nexthops": [{ "dev": "eth9" }, { "dev": device }] }]);
        self.write(&format!("net/routes{family}"), &routes.to_string());
    }

    pub fn route_to(&self, address: &str, device: &str) {
        let route = json!([{ "dst": address, "dev": device }]);
        self.write(&format!("net/to-{address}"), &route.to_string());
    }

    pub fn above(&self, iface: &str, upper: &str) {
        self.touch(&format!("sys/class/net/{iface}/upper_{upper}"));
        self.write(&format!("sys/class/net/{upper}/flags"), "0x1003\n");
    }

    /// A device beside the port wan.
    pub fn neighbour(&self, address: &str, driver: &str) {
        self.write(&format!("sys/bus/pci/devices/{address}/class"), "0x010802\n");
        self.driver_link(address, driver);
        self.touch(&format!("sys/kernel/iommu_groups/10/devices/{address}"));
    }

    /// A process has a device open.
    pub fn hold(&self, nic: usize, name: &str) {
        self.write("proc/77/comm", &format!("{name}\n"));
        fs::create_dir_all(self.at("proc/77/fd")).unwrap();
        symlink(format!("/dev/vfio/1{nic}"), self.at("proc/77/fd/5")).unwrap();
    }

    pub fn lock(&self) -> Flock<File> {
        self.touch("run/linkemu-box/lock");
        let file = File::open(self.at("run/linkemu-box/lock")).unwrap();
        Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| e).unwrap()
    }

    /// All that the kernel shows, and the record.
    pub fn state(&self) -> Vec<(PathBuf, String)> {
        let mut all = Vec::new();
        collect(&self.at("sys"), &mut all);
        let record = fs::read_to_string(self.at("run/linkemu-box/state.json"));
        all.push(("record".into(), record.unwrap_or_default()));
        all.sort();
        all
    }

    pub fn run(&self, line: &str) -> Output {
        self.linkctl(&[], line)
    }

    pub fn json(&self, line: &str) -> (Value, i32) {
        let output = self.linkctl(&["-o", "json"], line);
        (serde_json::from_str(&output.out).unwrap_or(Value::Null), output.code)
    }

    pub fn refuses(&self, words: &str) {
        let before = self.state();
        let output = self.run("apply box.toml");
        assert!(output.code == 4 && output.out.contains(words), "{}", output.out);
        assert_eq!(self.state(), before);
    }

    fn linkctl(&self, options: &[&str], line: &str) -> Output {
        let output = Command::new(env!("CARGO_BIN_EXE_linkctl"))
            .args(options)
            .arg("box")
            .args(line.split(' '))
            .arg("--root")
            .arg(self.0.path())
            .current_dir(self.0.path())
            .output()
            .unwrap();
        let status = output.status;
        Output {
            code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap()),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

fn collect(folder: &Path, all: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match fs::read_link(&path) {
            Ok(to) => all.push((path, to.display().to_string())),
            Err(_) if path.is_dir() => collect(&path, all),
            Err(_) => {
                let text = fs::read_to_string(&path).unwrap();
                all.push((path, text));
            }
        }
    }
}
