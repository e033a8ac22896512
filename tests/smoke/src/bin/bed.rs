// SPDX-License-Identifier: Apache-2.0
//! Runs a command beside a test bed: two hosts and the emulator between them, in network
//! namespaces, with linkd on a unix socket and, with `--tls`, on TCP too; with `--web` it serves the
//! web page.
//!
//! ```text
//! bed --profile viasat2 -- sh -c 'ip netns exec $BED_CLIENT_NS ping -c 3 $BED_WAN_IP'
//! ```
//!
//! The environment of the command has:
//!
//! | variable | is |
//! |---|---|
//! | `LINKEMU_SOCKET` | linkd's socket |
//! | `LINKEMU_SERVER`, `_CA`, `_CERT`, `_KEY` | with `--tls`: the same linkd over TCP, as an operator |
//! | `BED_VIEWER_CERT`, `BED_VIEWER_KEY` | with `--tls`: a viewer |
//! | `BED_WEB` | with `--web`: the page, such as `http://127.0.0.1:40123` |
//! | `BED_WAN_NS`, `BED_CLIENT_NS` | the hosts' namespaces |
//! | `BED_WAN_IP`, `BED_CLIENT_IP` | their addresses; with `--clients` the first one's |
//! | `BED_DIR` | a directory that is removed with the bed; `linkd.pid` and `dataplane.pid` are in it |
//!
//! linkd and the dataplane are restarted when they end, as by a service manager. The exit code is
//! the exit code of the command, or 125 if the bed cannot be made.
//!
//! Two processes make sure that nothing is left behind. The *keeper* owns the bed, and removes it
//! when its standard input closes, which happens whenever the other process ends. The other process
//! adopts and ends processes that the keeper or the command leave behind. If the keeper was killed,
//! it removes the namespaces and the directory as well. The command ends with it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write, stdin};
use std::net::TcpListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Parser;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getpid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use smoke::binaries::{Binaries, Lack, check_machine};
use smoke::cpus::Cpus;
use smoke::directory::Directory;
use smoke::estate;
use smoke::process::{run, words};
use smoke::testbed::{Options, SERVER, Testbed};

/// Environment variables of the command, by name.
type Environment = BTreeMap<String, String>;

/// Poll interval for ended processes and signals.
const LOOK: Duration = Duration::from_millis(20);
/// Longest time from a signal to the end of the command.
const GRACE: Duration = Duration::from_secs(30);
/// Longest time that the keeper takes to clean up.
const CLEAR: Duration = Duration::from_secs(30);
/// Time for one key and its signed certificate.
const SIGN: Duration = Duration::from_secs(30);
/// Exit code if the bed cannot be made.
const NO_BED: u8 = 125;
/// Message to the keeper: the command has ended; `report` asks for the output of the programs.
const END: &str = "end";
const REPORT: &str = "report";

/// Runs a command beside a test bed of network namespaces (as root).
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Set this profile first
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Addresses of clients
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=200))]
    clients: u8,
    /// The most clients that the dataplane makes
    #[arg(long, value_name = "N")]
    max_clients: Option<u16>,
    /// linkd also listens on TCP, with certificates
    #[arg(long)]
    tls: bool,
    /// linkd also serves the web page, on a loopback address
    #[arg(long, conflicts_with = "tls")]
    web: bool,
    /// If the command fails, print the output of the programs
    #[arg(long)]
    report: bool,
    /// Run as the keeper
    #[arg(long, hide = true)]
    keep: bool,
    /// The command
    #[arg(last = true, required_unless_present = "keep", value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = if arguments.keep { keep(&arguments).map(|()| 0) } else { accompany(&arguments) };
    done.map(ExitCode::from).unwrap_or_else(|error| {
        eprintln!("bed: {error:#}");
        ExitCode::from(NO_BED)
    })
}

/// Runs the command beside a keeper.
fn accompany(arguments: &Arguments) -> anyhow::Result<u8> {
    check_machine().and(Binaries::find().map(drop)).map_err(|lack| match lack {
        Lack::Part(reason) | Lack::Permission(reason) => anyhow!(reason),
    })?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("handle signals")?;
    set_child_subreaper(true).context("adopt orphans")?;
    let directory = Directory::new()?;
    let mut keeper = Keeper::start(&directory)?;
    let ended = beside(arguments, &mut keeper, &mut signals);
    let failed = !matches!(&ended, Ok(status) if status.success());
    let cleared = keeper.end(failed && arguments.report);
    adopted().for_each(end_at_once);
    // The first error is the one to report.
    let status = ended?;
    cleared.map(|()| code(status))
}

/// Waits for the bed, runs the command and passes signals on to it.
fn beside(
    arguments: &Arguments,
    keeper: &mut Keeper,
    signals: &mut Signals,
) -> anyhow::Result<ExitStatus> {
    let environment = keeper.environment(signals)?;
    // The command acts as a host, so it must not use the worker's processor.
    Cpus::available().keep_to_hosts();
    let line = &arguments.command;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).args(line);
    // Variables of another box would take precedence.
    for name in ["SERVER", "CA", "CERT", "KEY", "LEASE"] {
        command.env_remove(format!("LINKEMU_{name}"));
    }
    for name in ["WAN", "WAN_IP", "CLIENT", "CLIENT_IP"] {
        command.env_remove(format!("LAB_{name}"));
    }
    command.envs(environment);
    let mut child = command.spawn().with_context(|| format!("start {line:?}"))?;
    let pid = Pid::from_raw(child.id().cast_signed());
    let mut deadline = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        for signal in signals.pending() {
            deadline.get_or_insert_with(|| Instant::now() + GRACE);
            // A terminal sends SIGINT to the command as well.
            if signal != SIGINT || !std::io::IsTerminal::is_terminal(&stdin()) {
                let _ = kill(pid, Signal::try_from(signal)?);
            }
        }
        let gone = keeper.child.try_wait()?;
        if gone.is_some() || deadline.is_some_and(|d| Instant::now() >= d) {
            let _ = child.kill();
            let status = child.wait()?;
            return match gone {
                Some(status) => Err(anyhow!("the bed broke down in mid-run: {status}")),
                None => Ok(status),
            };
        }
        thread::sleep(LOOK);
    }
}

/// Follows the shell: a signal gives 128 plus its number.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// The keeper, seen from the other process.
struct Keeper {
    child: Child,
    said: mpsc::Receiver<String>,
}

impl Keeper {
    /// Starts it with a directory for everything that it makes.
    fn start(directory: &Directory) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command
            .args(std::env::args_os().skip(1).take_while(|a| a != "--"))
            .arg("--keep")
            .env("TMPDIR", directory.root())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Signals of the terminal go to the other process only.
            .process_group(0);
        let mut child = command.spawn().context("start the keeper of the bed")?;
        let (say, said) = mpsc::channel();
        if let Some(out) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    let _ = say.send(line);
                }
            });
        }
        Ok(Self { child, said })
    }

    /// Waits until the bed is made.
    fn environment(&mut self, signals: &mut Signals) -> anyhow::Result<Environment> {
        loop {
            match self.said.recv_timeout(LOOK) {
                Ok(line) => {
                    return serde_json::from_str(&line).context("read the message of the keeper");
                }
                Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => bail!("the bed could not be made"),
            }
            if let Some(signal) = signals.pending().next() {
                bail!("signal {signal} before the bed was made");
            }
        }
    }

    /// Asks it to clean up. If it was killed, cleans up in its place.
    fn end(&mut self, report: bool) -> anyhow::Result<()> {
        if let Some(mut to) = self.child.stdin.take() {
            let _ = writeln!(to, "{}", if report { REPORT } else { END });
        }
        let deadline = Instant::now() + CLEAR;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() >= deadline {
                self.child.kill()?;
                break self.child.wait()?;
            }
            thread::sleep(LOOK);
        };
        if status.signal().is_some() {
            adopted().for_each(end_at_once);
            for namespace in namespaces(self.child.id())? {
                run(words(&["ip", "netns", "delete", &namespace]), CLEAR)?.success()?;
            }
            bail!("the keeper of the bed was ended: {status}");
        }
        ensure!(status.success(), "the keeper of the bed could not clear up: {status}");
        Ok(())
    }
}

/// Children that this process did not start or no longer tracks. None of them is reaped, so no id
/// can be reused.
fn adopted() -> impl Iterator<Item = Pid> {
    // A process that this one adopted can leave orphans when it ends.
    std::iter::from_fn(|| {
        let tasks = fs::read_dir("/proc/self/task").ok()?;
        tasks.filter_map(Result::ok).find_map(|task| {
            let children = fs::read_to_string(task.path().join("children")).ok()?;
            children.split_whitespace().next()?.parse().ok().map(Pid::from_raw)
        })
    })
}

fn end_at_once(child: Pid) {
    let _ = kill(child, Signal::SIGKILL);
    let _ = waitpid(child, None);
}

fn namespaces(keeper: u32) -> anyhow::Result<Vec<String>> {
    let listed = run(words(&["ip", "netns", "list"]), CLEAR)?.success()?;
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    let own = format!("lemu-{keeper}-");
    Ok(names.filter(|name| name.starts_with(&own)).map(str::to_owned).collect())
}

/// Makes the bed and keeps it until the other process no longer needs it.
fn keep(arguments: &Arguments) -> anyhow::Result<()> {
    estate::watch_signals()?;
    if let Some(above) = std::env::var_os("TMPDIR") {
        // The directory of the other process, which may be killed before it removes it.
        estate::add_directory(|| Ok(((), above.into())))?;
    }
    let directory = Directory::new()?;
    let root = directory.root().display().to_string();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut word = String::new();
        let read = stdin().read_to_string(&mut word);
        if read.is_ok() && !word.is_empty() {
            let _ = tell.send(word);
        } else {
            abandoned(&root);
        }
    });
    let cpus = Cpus::available();
    cpus.keep_to_hosts();
    let (linkd, mut environment) = match (arguments.tls, arguments.web) {
        (true, _) => certified(&directory)?,
        (_, true) => with_web()?,
        _ => Default::default(),
    };
    let options = Options {
        clients: arguments.clients,
        max_clients: arguments.max_clients,
        adaptive: true,
        linkd,
        ..Options::default()
    };
    let mut bed = Testbed::new(options, &cpus)?;
    if let Some(profile) = &arguments.profile {
        bed.linkctl()?.set_profile(profile, 1).map_err(|e| anyhow!("{e}\n{}", bed.report()))?;
    }
    let text = |path: &std::path::Path| path.display().to_string();
    for (name, value) in [
        ("LINKEMU_SOCKET", text(&bed.linkd_socket())),
        ("BED_WAN_NS", bed.server().name().to_owned()),
        ("BED_CLIENT_NS", bed.client().name().to_owned()),
        ("BED_WAN_IP", SERVER.to_string()),
        ("BED_CLIENT_IP", bed.client_address(0).to_string()),
        ("BED_DIR", text(directory.root())),
    ] {
        environment.insert(name.to_owned(), value);
    }
    note_pids(&bed, &directory)?;
    println!("{}", serde_json::to_string(&environment)?);
    loop {
        match told.recv_timeout(LOOK) {
            Ok(word) => {
                if word.trim() == REPORT {
                    eprintln!("{}", bed.report());
                }
                break;
            }
            Err(RecvTimeoutError::Timeout) => serve_on(&mut bed, &directory)?,
            // The signal from `abandoned` is being handled.
            Err(RecvTimeoutError::Disconnected) => {
                thread::park();
            }
        }
    }
    bed.stop()?;
    Ok(())
}

/// Restarts programs that have ended.
fn serve_on(bed: &mut Testbed, directory: &Directory) -> anyhow::Result<()> {
    let (linkd, dataplane) = (bed.linkd_runs(), bed.dataplane_runs());
    if !dataplane {
        bed.kill_dataplane()?;
        bed.start_dataplane()?;
    }
    if !linkd {
        bed.kill_linkd()?;
        bed.start_linkd()?;
    }
    if linkd && dataplane { Ok(()) } else { note_pids(bed, directory) }
}

/// Files are replaced atomically.
fn note_pids(bed: &Testbed, directory: &Directory) -> anyhow::Result<()> {
    for (name, pid) in [("linkd.pid", bed.linkd_pid()), ("dataplane.pid", bed.dataplane_pid())] {
        if let Some(pid) = pid {
            let made = directory.write("pid.new", &format!("{pid}\n"))?;
            fs::rename(made, directory.path(name)).with_context(|| format!("write {name}"))?;
        }
    }
    Ok(())
}

/// The other process was killed: ends the remaining processes of its command, found by an
/// environment variable, and then the bed, as a signal does.
fn abandoned(directory: &str) {
    let mark = format!("BED_DIR={directory}");
    // A process can start others before it ends.
    while let Some(pid) = follower(mark.as_bytes()) {
        let _ = kill(pid, Signal::SIGKILL);
        thread::sleep(LOOK);
    }
    let _ = kill(getpid(), Signal::SIGTERM);
}

/// A process with this environment variable. A zombie has no environment.
fn follower(mark: &[u8]) -> Option<Pid> {
    fs::read_dir("/proc").ok()?.filter_map(Result::ok).find_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(process.path().join("environ")).ok()?;
        environment.split(|byte| *byte == 0).any(|v| v == mark).then(|| Pid::from_raw(pid))
    })
}

/// A TCP port of loopback. Another process is unlikely to get one that was just released.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Options of a linkd that serves the web page, and the environment for browsers.
fn with_web() -> anyhow::Result<(Vec<String>, Environment)> {
    let address = format!("127.0.0.1:{}", free_port()?);
    let page = [("BED_WEB".to_owned(), format!("http://{address}"))];
    Ok((vec!["--web".to_owned(), address], page.into()))
}

/// A CA, and certificates of linkd, of an operator and of a viewer. Returns the options of linkd
/// and the environment of the command.
fn certified(directory: &Directory) -> anyhow::Result<(Vec<String>, Environment)> {
    let linkctl = Binaries::find().map_err(|lack| anyhow!("{lack:?}"))?.linkctl;
    let ca = directory.path("ca").display().to_string();
    let file = |name: &str| format!("{ca}/{name}");
    for line in [
        &["ca", "--name", "bed", "-d", &ca][..],
        &["server", "--ca", &ca, "--host", "localhost", "--ip", "127.0.0.1"],
        &["client", "--ca", &ca, "--name", "operator", "--role", "operator"],
        &["client", "--ca", &ca, "--name", "viewer", "--role", "viewer"],
    ] {
        let mut command = Command::new(&linkctl);
        command.arg("pki").args(line);
        run(command, SIGN)?.success()?;
    }
    let port = free_port()?;
    let mut linkd = vec!["--listen".to_owned(), format!("127.0.0.1:{port}")];
    for (option, name) in [
        ("--tls-cert", "localhost.pem"),
        ("--tls-key", "localhost.key"),
        ("--tls-client-ca", "ca.pem"),
    ] {
        linkd.extend([option.to_owned(), file(name)]);
    }
    let environment = [
        ("LINKEMU_SERVER", format!("localhost:{port}")),
        ("LINKEMU_CA", file("ca.pem")),
        ("LINKEMU_CERT", file("operator.pem")),
        ("LINKEMU_KEY", file("operator.key")),
        ("BED_VIEWER_CERT", file("viewer.pem")),
        ("BED_VIEWER_KEY", file("viewer.key")),
    ];
    Ok((linkd, environment.map(|(name, value)| (name.to_owned(), value)).into()))
}
