// SPDX-License-Identifier: Apache-2.0
//! The first process in a run's namespaces: it sets up the hosts, starts the programs and the
//! command, and reports their ends. Its end, which follows the end of `linkctl run`, ends all of
//! them.
//!
//! It is in the namespace of the far host first, then in the emulator's, then in that of the near
//! host. Single-threaded, so that its namespaces are those of the process.

use super::address::Place;
use super::enter::{INIT, keep, of_command, prepare};
use super::message::{Order, Report, Server, Setup};
use super::network;
use super::ready::Ready;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, setpgid};
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

/// Lines of a program's log in a message.
const LAST_LINES: usize = 5;
/// Time between two looks at the server's sockets.
const LOOK: Duration = Duration::from_millis(20);
/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";
/// Of a process that was killed.
const KILLED: u8 = 128 + Signal::SIGKILL as u8;
/// As of a shell.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Arguments: the [`Setup`] in JSON, and the command.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    prepare(INIT);
    // The end of the process outside ends this one by the end of the connection.
    let _ = set_pdeathsig(Signal::SIGKILL);
    let Some(text) = arguments.next() else { return ExitCode::FAILURE };
    let Ok(setup) = serde_json::from_str::<Setup>(&text.to_string_lossy()) else {
        return ExitCode::FAILURE;
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    match runtime.block_on(run(&setup, arguments.collect())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

async fn run(setup: &Setup, command: Vec<OsString>) -> std::io::Result<()> {
    let (orders, reports) = UnixStream::connect(setup.socket()).await?.into_split();
    let mut orders = BufReader::new(orders).lines();
    let mut reports = Reports(reports);
    let served = serve(setup, command, &mut orders, &mut reports).await;
    if let Err(message) = served {
        reports.send(&Report::Failed(message)).await;
        // Until the outside has read it.
        while let Ok(Some(_)) = orders.next_line().await {}
    }
    Ok(())
}

/// Sends reports. An error is the end of the run, which the reading side notices.
struct Reports(OwnedWriteHalf);

impl Reports {
    async fn send(&mut self, report: &Report) {
        let line = serde_json::to_string(report).unwrap_or_default() + "\n";
        let _ = self.0.write_all(line.as_bytes()).await;
    }
}

/// Executes orders until the outside ends.
async fn serve(
    setup: &Setup,
    command: Vec<OsString>,
    orders: &mut Lines<BufReader<OwnedReadHalf>>,
    reports: &mut Reports,
) -> Result<(), String> {
    let mut ends = signal(SignalKind::child()).map_err(|e| format!("cannot wait: {e}"))?;
    // Not permitted where parts of /proc are hidden; then it shows the processes outside.
    let _ = mount(Some("proc"), "/proc", Some("proc"), hidden(), None::<&str>);
    // Before the link around this one adds an interface, which takes over the settings.
    network::prepare_host(setup.inner_gid())?;
    reports.send(&Report::Entered).await;
    let mut programs = Programs::default();
    let mut networks = None;
    let mut place = Place::default();
    let mut look = tokio::time::interval(LOOK);
    // A look takes milliseconds. Others wait for their turn in between.
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Of the server, until it is ready.
    let mut waiting: Option<Ready> = None;
    let early = "there is no network yet";
    loop {
        tokio::select! {
            line = orders.next_line() => {
                let Ok(Some(line)) = line else { return Ok(()) };
                let order = serde_json::from_str(&line).map_err(|e| format!("{line}: {e}"))?;
                match order {
                    Order::Begin(given) => {
                        place = given;
                        networks = Some(begin(setup, &place, &mut programs).await?);
                        reports.send(&Report::Begun).await;
                    }
                    Order::Buffers(sizes) => {
                        let networks = networks.as_ref().ok_or(early)?;
                        for network in [&networks.near, &networks.far] {
                            setns(network, CloneFlags::CLONE_NEWNET).map_err(
                                |e| format!("cannot enter a network namespace: {e}")
                            )?;
                            network::set_buffers(sizes)?;
                        }
                    }
                    Order::Serve(server) => {
                        // The sockets of this namespace are looked at until it is ready.
                        switch(&networks.as_ref().ok_or(early)?.far)?;
                        programs.server = Some(start_server(setup, &server, &place)?);
                        waiting = Some(server.ready);
                    }
                    Order::Start => {
                        waiting = None;
                        switch(&networks.as_ref().ok_or(early)?.near)?;
                        match start(setup, &command, &place)? {
                            Ok(pid) => programs.command = Some(pid),
                            Err((status, why)) => {
                                reports.send(&Report::NotStarted(status, why)).await;
                            }
                        }
                        // From now on, signals of the terminal are for the command only.
                        let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
                    }
                    Order::Signal(number) => {
                        let signal = Signal::try_from(number);
                        if let (Some(pid), Ok(signal)) = (programs.command, signal) {
                            // It may have ended.
                            let _ = kill(pid, signal);
                        }
                    }
                }
            }
            _ = look.tick(), if waiting.is_some() => {
                if waiting.is_some_and(Ready::holds) {
                    waiting = None;
                    reports.send(&Report::Serves).await;
                }
            }
            _ = ends.recv() => {
                while let Some((pid, status)) = ended() {
                    if let Some(report) = programs.ended(setup, pid, status) {
                        reports.send(&report).await;
                    }
                }
            }
        }
    }
}

/// Processes that run, by task.
#[derive(Debug, Default)]
struct Programs {
    dataplane: Option<Pid>,
    linkd: Option<Pid>,
    server: Option<Pid>,
    command: Option<Pid>,
}

impl Programs {
    fn ended(&mut self, setup: &Setup, pid: Pid, status: u8) -> Option<Report> {
        let pid = Some(pid);
        if pid == self.command {
            self.command = None;
            return Some(Report::Exited(status));
        }
        if pid == self.server {
            self.server = None;
            return Some(Report::ServerEnded(status));
        }
        let names = [(self.dataplane, "linkd-dataplane"), (self.linkd, "linkd")];
        let (_, name) = names.into_iter().find(|(program, _)| *program == pid)?;
        let log = fs::read_to_string(setup.log(name)).unwrap_or_default();
        let lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        let lines: String = lines[lines.len().saturating_sub(LAST_LINES)..]
            .iter()
            .map(|line| format!("\n  {line}"))
            .collect();
        let killed = match status {
            KILLED => {
                " (killed, perhaps for lack of memory: give less --memory, or raise the limit)"
            }
            _ => "",
        };
        Some(Report::Ended(format!("{name} ended with status {status}{killed}{lines}")))
    }
}

/// A process that has ended, with its status as a shell gives it.
fn ended() -> Option<(Pid, u8)> {
    loop {
        return match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => Some((pid, code as u8)),
            Ok(WaitStatus::Signaled(pid, signal, _)) => Some((pid, 128 + signal as u8)),
            Err(Errno::EINTR) => continue,
            _ => None,
        };
    }
}

fn hidden() -> MsFlags {
    MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC
}

/// The network namespace of this process.
fn current() -> Result<File, String> {
    File::open("/proc/self/ns/net").map_err(|e| format!("cannot open a network namespace: {e}"))
}

/// Makes a network namespace and enters it.
fn another() -> Result<File, String> {
    let made = unshare(CloneFlags::CLONE_NEWNET);
    made.map_err(|e| format!("cannot make a network namespace: {e}"))?;
    current()
}

/// Enters a network namespace, in a mount namespace where /sys shows its interfaces.
fn switch(network: impl AsFd) -> Result<(), String> {
    setns(network, CloneFlags::CLONE_NEWNET)
        .map_err(|e| format!("cannot enter a network namespace: {e}"))?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(|e| format!("cannot make a mount namespace: {e}"))?;
    // It would hide control groups, where programs look for their limits.
    let groups = File::open(GROUPS);
    // Not permitted where parts of /sys are hidden; then it shows other interfaces.
    let mounted = mount(Some("sysfs"), "/sys", Some("sysfs"), hidden(), None::<&str>);
    if let (Ok(()), Ok(groups)) = (mounted, groups) {
        let groups = format!("/proc/self/fd/{}", groups.as_raw_fd());
        let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
        // Without it, the limits that were found outside remain.
        let _ = mount(Some(groups.as_str()), GROUPS, None::<&str>, bind, None::<&str>);
    }
    Ok(())
}

/// Network namespaces of the hosts.
struct Networks {
    far: File,
    near: File,
}

/// Sets up the hosts and starts the programs of linkemu.
async fn begin(setup: &Setup, place: &Place, programs: &mut Programs) -> Result<Networks, String> {
    let far = current()?;
    let near = another()?;
    network::prepare_host(setup.inner_gid())?;
    let emulator = another()?;
    network::pairs(far.as_fd(), near.as_fd()).await?;
    let net = CloneFlags::CLONE_NEWNET;
    let enter = |e| format!("cannot enter a network namespace: {e}");
    setns(&near, net).map_err(enter)?;
    network::near(place).await?;
    setns(&far, net).map_err(enter)?;
    network::far(place).await?;
    if setup.unprivileged {
        keep(&of_command())?;
    }
    switch(&emulator)?;
    let mut dataplane = Command::new(&setup.dataplane);
    dataplane.arg("--socket").arg(setup.dataplane_socket()).args(&setup.options);
    programs.dataplane = Some(program(&mut dataplane, setup, "linkd-dataplane")?);
    let mut linkd = Command::new(&setup.linkd);
    linkd.arg("--socket").arg(setup.linkd_socket()).args([
        "--socket-mode",
        "0600",
        "--log",
        "warn",
    ]);
    linkd.arg("--dataplane").arg(setup.dataplane_socket());
    programs.linkd = Some(program(&mut linkd, setup, "linkd")?);
    Ok(Networks { far, near })
}

/// Starts a program of linkemu, with a log.
fn program(command: &mut Command, setup: &Setup, name: &str) -> Result<Pid, String> {
    let path = setup.log(name);
    let log = File::create(&path).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    let error = log.try_clone().map_err(|e| e.to_string())?;
    for variable in ["LINKEMU_STATE", "LINKEMU_METRICS", "LINKEMU_LOG"] {
        command.env_remove(variable);
    }
    endpoint::session::lead(command.stdin(Stdio::null()).stdout(log).stderr(error));
    let child = command
        .spawn()
        .map_err(|e| format!("cannot start {}: {e}", command.get_program().to_string_lossy()))?;
    Ok(Pid::from_raw(child.id().cast_signed()))
}

/// Starts the server in a process group.
fn start_server(setup: &Setup, server: &Server, place: &Place) -> Result<Pid, String> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &server.command]).stdin(Stdio::null()).stdout(std::io::stderr());
    if let Some(path) = &setup.server_output {
        let failed = |e| format!("cannot open {}: {e}", path.display());
        let terminal = File::options().write(true).custom_flags(libc::O_NOCTTY).open(path);
        let terminal = terminal.map_err(failed)?;
        command.stdout(terminal.try_clone().map_err(failed)?).stderr(terminal);
    }
    environment(&mut command, setup, place).process_group(0);
    let child = command.spawn().map_err(|e| format!("cannot start the server: {e}"))?;
    Ok(Pid::from_raw(child.id().cast_signed()))
}

/// Starts the command. The inner error has its exit status.
fn start(
    setup: &Setup,
    words: &[OsString],
    place: &Place,
) -> Result<Result<Pid, (u8, String)>, String> {
    let (program, arguments) = words.split_first().ok_or("there is no command")?;
    let mut command = Command::new(program);
    let command = environment(&mut command, setup, place).args(arguments);
    Ok(match command.spawn() {
        Ok(child) => Ok(Pid::from_raw(child.id().cast_signed())),
        Err(error) => {
            let (program_path, program) = (Path::new(program), program.to_string_lossy());
            Err(match error.kind() {
                // A directory of PATH that may not be read hides the fact that it is nowhere.
                ErrorKind::NotFound | ErrorKind::PermissionDenied if !exists(program_path) => {
                    (NOT_FOUND, format!("{program}: command not found"))
                }
                _ => (NOT_EXECUTABLE, format!("{program}: {error}")),
            })
        }
    })
}

/// Whether a program is there, by its path or in a directory of PATH.
fn exists(program: &Path) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    match program.components().count() {
        1 if !program.is_absolute() => {
            env::split_paths(&path).any(|dir| dir.join(program).is_file())
        }
        _ => program.exists(),
    }
}

/// The variables by which `linkctl` and a run inside find this one.
fn environment<'a>(command: &'a mut Command, setup: &Setup, place: &Place) -> &'a mut Command {
    for variable in ["SERVER", "CA", "CERT", "KEY", "LINK", "LEASE"] {
        command.env_remove(format!("LINKEMU_{variable}"));
    }
    command
        .env("LINKEMU_SOCKET", setup.linkd_socket())
        .env("LINKEMU_DATAPLANE", setup.dataplane_socket())
        .env("LINKEMU_RUN", place.to_string())
        .env("LINKEMU_FAR", place.far().0.to_string())
}
