// SPDX-License-Identifier: Apache-2.0
//! `linkctl run`, as an ordinary user: a command behind its own link.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pcap_file::pcapng::{Block, PcapNgReader};
use smoke::binaries::Binaries;
use smoke::cpus::Cpus;
use smoke::ping::Pings;
use smoke::process::{Outcome, Process, words};
use smoke::suite::{Certain, Form};
use smoke::wait;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
/// Longest time until the first packet.
const START: Duration = Duration::from_secs(5);
/// An id that no user of this machine has.
const USER: u32 = 12_345;
const FAR: &str = "10.0.0.1";

/// The programs in a directory that the user can read; elsewhere they may be below a home directory.
/// The directories of runs are made in it.
struct User {
    folder: TempDir,
}

impl User {
    fn new() -> anyhow::Result<Self> {
        let found = Binaries::find().map_err(|lack| anyhow::anyhow!("{lack}"))?;
        let folder = tempfile::Builder::new().prefix("lemu-run-").tempdir()?;
        for program in [&found.linkctl, &found.linkd, &found.dataplane] {
            fs::copy(program, folder.path().join(program.file_name().unwrap_or_default()))?;
        }
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
        Ok(Self { folder })
    }

    fn linkctl(&self) -> String {
        self.folder.path().join("linkctl").display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let user = USER.to_string();
        let mut command = words(&["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]);
        command.arg(self.linkctl()).args(["-o", "json", "run"]).args(arguments);
        command.env("TMPDIR", self.folder.path()).env_remove("XDG_RUNTIME_DIR");
        command.current_dir(self.folder.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> anyhow::Result<Outcome> {
        Ok(Process::spawn(self.command(arguments))?.finish(LIMIT)?)
    }

    /// Directories of runs.
    fn directories(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path()).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }

    /// Waits until there is neither a process of the user nor a directory.
    fn wait_until_nothing_is_left(&self) -> anyhow::Result<()> {
        wait::until("nothing of the run is left", Duration::from_secs(10), || {
            Ok((processes().is_empty() && self.directories().is_empty()).then_some(()))
        })
        .with_context(|| format!("left: {:?} {:?}", processes(), self.directories()))
    }
}

/// Processes of the user.
fn processes() -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_process = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
    };
    entries
        .filter(is_process)
        .filter(|path| fs::metadata(path).is_ok_and(|it| it.uid() == USER))
        .filter(|path| fs::read_link(path.join("exe")).is_ok())
        .collect()
}

fn holds(certificate: &str) -> anyhow::Result<bool> {
    let line = certificate.lines().find(|line| line.starts_with('{'));
    let line = line.with_context(|| format!("no certificate in {certificate:?}"))?;
    let value: serde_json::Value = serde_json::from_str(line)?;
    value["holds"].as_bool().with_context(|| format!("no verdict in {value}"))
}

pub fn ordinary_user_pings_through_satellite_link(_: &Cpus) -> anyhow::Result<()> {
    let user = User::new()?;
    let begun = Instant::now();
    let outcome = user.run(&["--profile", "geo-600", "--", "ping", "-D", "-n", "-c", "1", FAR])?;
    let took = begun.elapsed();
    ensure!(outcome.code() == 0, "{outcome:?}");
    let pings = Pings::read(&outcome.stdout, 1)?;
    ensure!(pings.share_within(600.0, 620.0) == 1.0, "{}", outcome.stdout);
    ensure!(took < START + Duration::from_millis(620), "{took:?}");
    holds(&outcome.stderr)?;
    user.wait_until_nothing_is_left()
}

pub fn exit_status_is_that_of_command(_: &Cpus) -> anyhow::Result<()> {
    let user = User::new()?;
    let not_executable = user.folder.path().join("text");
    fs::write(&not_executable, "text")?;
    let not_executable = not_executable.display().to_string();
    #[rustfmt::skip]
    let cases: &[(&[&str], i32)] = &[
        (&["--", "sh", "-c", "test $(id -u) = 12345 && exit 7"], 7),
        (&["--", "sh", "-c", "kill -KILL $$"], 137),
        (&["--", "no-such-program"], 127),
        (&["--", &not_executable], 126),
        (&["--profile", "no-such-profile", "--", "true"], 125),
        (&["--require-pass", "--", "true"], 4),
        (&["--serve", "no-such-program", "--", "true"], 125),
        (&["--serve", "true", "--serve-timeout", "100ms", "--", "true"], 125),
        (&["--serve", "exit 3", "--serve-ready", "none", "--", "sleep", "0.3"], 125),
        (&["--serve", "sleep 0.3; exec iperf3 -s", "--", "iperf3", "-c", FAR, "-n", "1"], 0),
    ];
    for (arguments, status) in cases {
        let outcome = user.run(arguments)?;
        ensure!(outcome.code() == *status, "{arguments:?}: not {status}: {outcome:?}");
    }
    let mut run = Process::spawn(user.command(&["--", "sleep", "60"]))?;
    wait::until("the command", LIMIT, || Ok(command_runs("sleep").then_some(())))?;
    run.signal(Signal::SIGTERM);
    ensure!(run.finish(LIMIT)?.code() == 143, "SIGTERM");
    user.wait_until_nothing_is_left()
}

pub fn capture_has_fates_of_packets_in_flight_at_end(_: &Cpus) -> anyhow::Result<()> {
    let user = User::new()?;
    let file = user.folder.path().join("run.pcapng");
    let capture = file.display().to_string();
    let link = ["--set", "rate 10Mbit/s", "--set", "delay 300ms", "--capture", &capture];
    // It has no answer yet when it ends.
    let ping = ["--", "ping", "-c", "1", "-W", "0.05", FAR];
    let outcome = user.run(&[link.as_slice(), &ping].concat())?;
    ensure!(outcome.code() == 1, "{outcome:?}");
    let mut reader = PcapNgReader::new(fs::File::open(&file)?)?;
    let (mut interfaces, mut echoes) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block() {
        match block? {
            Block::InterfaceDescription(interface) => {
                interfaces.push(format!("{:?}", interface.options.first()));
            }
            // Of ICMP without options.
            Block::EnhancedPacket(packet) if packet.data.get(23) == Some(&1) => {
                echoes.push(interfaces[packet.interface_id as usize].clone());
            }
            _ => {}
        }
    }
    for point in ["return-in", "return-out"] {
        let seen = echoes.iter().filter(|at| at.contains(point)).count();
        ensure!(seen == 1, "{seen} at {point}: {echoes:?}, {outcome:?}");
    }
    ensure!(outcome.stderr.contains("copies of packets in"), "{outcome:?}");
    let again = user.run(&["--capture", &capture, "--", "touch", "ran"])?;
    ensure!(again.code() == 125 && again.stderr.contains("is there already"), "{again:?}");
    ensure!(!user.folder.path().join("ran").exists(), "the command ran: {again:?}");
    user.wait_until_nothing_is_left()
}

pub fn killed_dataplane_fails_run_and_certificate(_: &Cpus) -> anyhow::Result<()> {
    let user = User::new()?;
    let kill = "for p in /proc/[0-9]*; do \
        [ \"$(cat $p/comm)\" = linkd-dataplane ] && kill -9 ${p#/proc/}; done; sleep 60";
    let file = user.folder.path().join("certificate");
    let certificate = file.display().to_string();
    let outcome = user.run(&["--certificate", &certificate, "--", "sh", "-c", kill])?;
    ensure!(outcome.code() == 125, "{outcome:?}");
    ensure!(outcome.stderr.contains("linkd-dataplane ended with status 137"), "{outcome:?}");
    let text = fs::read_to_string(file)?;
    ensure!(!holds(&text)?, "{text}");
    user.wait_until_nothing_is_left()
}

/// Whether a process of the user has this name.
fn command_runs(name: &str) -> bool {
    processes().iter().any(|path| has_name(path, name))
}

fn has_name(path: &Path, name: &str) -> bool {
    fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name)
}

pub fn nested_runs_add_their_delays(_: &Cpus) -> anyhow::Result<()> {
    let user = User::new()?;
    let linkctl = user.linkctl();
    let outcome = user.run(&[
        "--set",
        "delay 100ms",
        "--",
        &linkctl,
        "run",
        "--set",
        "delay 50ms",
        "--",
        "sh",
        "-c",
        "ping -n -c 3 -i 0.2 10.0.0.1 && ping -n -c 1 fd00::1",
    ])?;
    ensure!(outcome.code() == 0, "{outcome:?}");
    let times: Vec<f64> = outcome
        .stdout
        .split("time=")
        .skip(1)
        .filter_map(|text| text.split(' ').next()?.parse().ok())
        .collect();
    ensure!(times.len() == 4 && times.iter().all(|ms| (300.0..320.0).contains(ms)), "{times:?}");
    user.wait_until_nothing_is_left()
}

pub fn killed_run_leaves_nothing(_: &Cpus) -> anyhow::Result<()> {
    let user = User::new()?;
    let mut run = Process::spawn(user.command(&["--", "sleep", "60"]))?;
    wait::until("the command", LIMIT, || Ok(command_runs("sleep").then_some(())))?;
    ensure!(user.directories().len() == 1, "{:?}", user.directories());
    run.kill()?;
    user.wait_until_nothing_is_left()
}

pub fn killed_enter_process_leaves_nothing(_: &Cpus) -> anyhow::Result<()> {
    let user = User::new()?;
    let run = Process::spawn(user.command(&["--", "sleep", "60"]))?;
    wait::until("the command", LIMIT, || Ok(command_runs("sleep").then_some(())))?;
    let enter = processes().into_iter().find(|path| has_name(path, "linkemu-enter"));
    let pid = enter.as_deref().and_then(|path| path.file_name()?.to_str()?.parse().ok());
    kill(Pid::from_raw(pid.context("no linkemu-enter")?), Signal::SIGKILL)?;
    let outcome = run.finish(LIMIT)?;
    ensure!(outcome.code() == 125, "{outcome:?}");
    user.wait_until_nothing_is_left()
}

pub fn hosts_have_tcp_buffers_for_link(_: &Cpus) -> anyhow::Result<()> {
    let user = User::new()?;
    let show = "cat /proc/sys/net/ipv4/tcp_rmem /proc/sys/net/ipv4/tcp_wmem";
    let server = format!("{show}; exec sleep 60");
    let link = ["--profile", "viasat2", "--serve", &server, "--serve-ready", "none"];
    let outcome = user.run(&[link.as_slice(), &["--", "sh", "-c", show]].concat())?;
    ensure!(outcome.code() == 0, "{outcome:?}");
    let of = |text: &str| text.lines().filter(|line| line.ends_with("\t58200000")).count();
    // Of a machine with the usual limits. The lines of the server have a label.
    ensure!(of(&outcome.stdout) == 2 && of(&outcome.stderr) == 2, "{outcome:?}");
    ensure!(outcome.stderr.contains("server: 4096\t"), "{outcome:?}");
    let kept = fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem")?;
    let outcome = user.run(&["--buffers", "keep", "--", "cat", "/proc/sys/net/ipv4/tcp_rmem"])?;
    ensure!(outcome.stdout == kept, "not {kept}: {outcome:?}");
    user.wait_until_nothing_is_left()
}

pub fn multicast_from_far_host_is_of_command(_: &Cpus) -> anyhow::Result<()> {
    let user = User::new()?;
    let server = ["--serve", "exec ping -n 239.1.2.3", "--serve-ready", "none"];
    // What a host sent before the client was set does not count.
    let stats = format!("{0} -o json stats; sleep 2; {0} -o json stats", user.linkctl());
    let outcome = user.run(&[server.as_slice(), &["--", "sh", "-c", &stats]].concat())?;
    let stats = serde_json::Deserializer::from_str(&outcome.stdout).into_iter();
    let stats = stats.collect::<Result<Vec<serde_json::Value>, _>>()?;
    let received = |name: &str| {
        let count = |stats: &serde_json::Value| {
            let mut clients = stats["clients"].as_array()?.iter();
            let client = clients.find(|client| client["client"] == name)?;
            client["forward_pipe"]["received"]["packets"].as_u64()
        };
        Some(count(stats.last()?)? - stats.first().and_then(count).unwrap_or(0))
    };
    ensure!(received("command") > Some(0), "{outcome:?}");
    ensure!(received("default") == Some(0), "{outcome:?}");
    user.wait_until_nothing_is_left()
}

pub fn command_sees_its_control_groups(_: &Cpus) -> anyhow::Result<()> {
    let user = User::new()?;
    let list = ["ls", "/sys/fs/cgroup"];
    let outside = smoke::process::run(words(&list), LIMIT)?.success()?;
    let outcome = user.run(&[["--"].as_slice(), &list].concat())?;
    ensure!(outcome.stdout == outside, "not {outside}: {outcome:?}");
    user.wait_until_nothing_is_left()
}

/// A run that passes has lost no ping: the link has no losses.
pub fn certificates_of_simultaneous_runs_are_true(_: &Cpus, form: Form) -> anyhow::Result<()> {
    let (runs, pings) = match form {
        Form::Short => (4, 10),
        Form::Long => (20, 100),
    };
    let user = User::new()?;
    let count = pings.to_string();
    let arguments = [
        "--set",
        "delay 100ms",
        "--",
        "ping",
        "-D",
        "-n",
        "-c",
        &count,
        "-i",
        "0.2",
        "-W",
        "5",
        FAR,
    ];
    let started: Vec<_> =
        (0..runs).map(|_| Process::spawn(user.command(&arguments))).collect::<Result<_, _>>()?;
    let mut passed = 0;
    for run in started {
        let outcome = run.finish(LIMIT)?;
        let lost = Pings::read(&outcome.stdout, pings)?.lost();
        if holds(&outcome.stderr)? {
            passed += 1;
            if lost > 0 {
                return Err(
                    Certain(format!("{lost} pings lost, certificate passes: {outcome:?}")).into()
                );
            }
        }
    }
    ensure!(passed > 0, "none of {runs} certificates passed");
    user.wait_until_nothing_is_left()
}
