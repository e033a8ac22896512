// SPDX-License-Identifier: Apache-2.0
//! A QEMU process with its guest.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use smoke::directory::Directory;
use smoke::namespace::Namespace;
use smoke::process::Process;

use crate::image::Image;
use crate::parts::Parts;
use crate::qmp::Qmp;
use crate::shell::Shell;

pub const PROGRAMS: [&str; 26] = [
    "bash", "basename", "cat", "cp", "cut", "dash", "date", "dd", "ethtool", "head", "ip",
    "iperf3", "ln", "ls", "mawk", "mkdir", "mount", "ping", "readlink", "realpath", "rm", "sleep",
    "stty", "tail", "tc", "touch",
];

/// A guest boots within seconds, or longer on a busy machine.
const BOOT: Duration = Duration::from_secs(120);
const COMMAND: Duration = Duration::from_secs(60);

/// Clock of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Real,
    /// Virtual time: a nanosecond for each instruction of the only processor, and no time while it
    /// idles. Exact regardless of the machine's load.
    Virtual,
}

/// Configuration of a guest.
#[derive(Debug)]
pub struct Options<'a> {
    pub clock: Clock,
    /// Megabytes.
    pub memory: u32,
    pub devices: Vec<String>,
    /// Kernel modules to load, in order.
    pub modules: &'a [&'a str],
    /// Parameters for the kernel's command line.
    pub cmdline: &'a str,
}

/// A running guest. Dropping it ends QEMU.
#[derive(Debug)]
pub struct Guest {
    qemu: Process,
    shell: Shell,
    qmp: Qmp,
    console: PathBuf,
    booted: Duration,
    _directory: Directory,
}

impl Guest {
    /// Boots a guest in a namespace with `image` and the guest's own programs.
    pub fn boot(
        parts: &Parts,
        namespace: &Namespace,
        mut image: Image,
        options: &Options<'_>,
    ) -> anyhow::Result<Self> {
        let directory = Directory::new()?;
        furnish(parts, &mut image, options)?;
        let initrd = directory.path("initrd");
        image.write(fs::File::create(&initrd)?).context("write the guest's initramfs")?;

        let console = directory.path("console");
        let (shell, qmp) = (directory.path("shell"), directory.path("qmp"));
        let mut words = parts.qemu();
        let mut add = |more: &[&str]| words.extend(more.iter().map(|w| (*w).to_owned()));
        add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        add(&["-machine", "q35,hpet=off", "-m", &format!("{}M", options.memory)]);
        match options.clock {
            Clock::Real => add(&["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]),
            Clock::Virtual => {
                add(&["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "1"]);
                add(&["-icount", "shift=0,sleep=off", "-rtc", "clock=vm"]);
            }
        }
        add(&["-kernel", &parts.vmlinuz().display().to_string()]);
        add(&[
            "-initrd",
            &initrd.display().to_string(),
            "-append",
            &format!("{KERNEL} {}", options.cmdline.trim()),
        ]);
        add(&["-serial", &format!("file:{}", console.display())]);
        add(&["-serial", &format!("unix:{},server=on,wait=off", shell.display())]);
        add(&["-qmp", &format!("unix:{},server=on,wait=off", qmp.display())]);
        words.extend(options.devices.iter().cloned());

        let begin = Instant::now();
        let argv: Vec<&str> = words.iter().map(String::as_str).collect();
        let process = Process::spawn(namespace.command(&argv))?;
        let connected = Shell::connect(&shell).and_then(|s| Ok((s, Qmp::connect(&qmp)?)));
        let (shell, qmp) = connected.map_err(|e| e.context(process.stderr()))?;
        let mut guest =
            Self { qemu: process, shell, qmp, console, booted: BOOT, _directory: directory };
        let qemu = &mut guest.qemu;
        let up = guest.shell.answer(BOOT, || match qemu.ended() {
            Some(status) => bail!("QEMU has ended: {status}: {}", qemu.stderr()),
            None => Ok(()),
        });
        guest.booted = begin.elapsed();
        match up {
            Ok(_) => Ok(guest),
            Err(error) => Err(error.context(guest.console())),
        }
    }

    /// Duration of the boot.
    #[must_use]
    pub const fn booted(&self) -> Duration {
        self.booted
    }

    pub fn run(&mut self, command: &str) -> anyhow::Result<String> {
        self.run_within(command, COMMAND)
    }

    /// Runs a command with a time limit.
    pub fn run_within(&mut self, command: &str, limit: Duration) -> anyhow::Result<String> {
        let (code, said) = self.shell.run(command, limit)?;
        if code != 0 {
            bail!("in the guest `{command}` ended with {code}: {said}");
        }
        Ok(said)
    }

    pub const fn qmp(&mut self) -> &mut Qmp {
        &mut self.qmp
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.qemu.pid()
    }

    /// End of its console output.
    #[must_use]
    pub fn console(&self) -> String {
        let bytes = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let end = lines[lines.len().saturating_sub(40)..].join("\n");
        format!("--- the guest's console, its end:\n{end}\n")
    }

    /// End of a file in it.
    pub fn log(&mut self, path: &str) -> String {
        let end = self.shell.run(&format!("tail -n 40 {path}"), Duration::from_secs(20));
        let end = end.map_or_else(|e| format!("({e:#})"), |(_, said)| said);
        format!("--- the guest's {path}, its end:\n{end}\n")
    }
}

/// A system for one user that runs for minutes on an emulated processor.
const KERNEL: &str = "console=ttyS0 quiet loglevel=4 panic=-1 rdinit=/init \
                      tsc=reliable no_timer_check mitigations=off nokaslr audit=0 \
                      random.trust_cpu=on random.trust_bootloader=on";

fn furnish(parts: &Parts, image: &mut Image, options: &Options<'_>) -> anyhow::Result<()> {
    for directory in ["proc", "sys", "dev", "run", "tmp", "var/lib", "sbin"] {
        image.directory(directory);
    }
    image.text("init", include_str!("../guest/init"), 0o755);
    image.text("etc/modules", options.modules.join("\n") + "\n", 0o644);
    image.modules(parts, options.modules)?;
    for name in PROGRAMS.into_iter().chain(["kmod"]) {
        let program = parts.program(name).with_context(|| {
            format!("there is no {name} in {}: run scripts/setup.sh hw", parts.path("").display())
        })?;
        image.program(parts, name, &fs::canonicalize(program)?)?;
    }
    image.link("bin/sh", "dash");
    image.link("bin/awk", "mawk");
    image.link("bin/modprobe", "kmod");
    // Path that the kernel uses.
    image.link("sbin/modprobe", "/bin/kmod");
    let distributions = "usr/lib/x86_64-linux-gnu/tc";
    for file in fs::read_dir(parts.path(distributions)).into_iter().flatten().flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        if name.ends_with(".dist") {
            image.copy(&format!("{distributions}/{name}"), &file.path());
            image.copy(&format!("usr/lib/tc/{name}"), &file.path());
        }
    }
    Ok(())
}
