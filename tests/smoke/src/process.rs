// SPDX-License-Identifier: Apache-2.0
//! Child processes that end with their owner. Their output is kept.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use endpoint::session;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Error, Result, Trying};
use crate::estate;
use crate::wait;

/// Longest time from SIGTERM to the end of a process.
const GRACE: Duration = Duration::from_secs(10);

type Text = Arc<Mutex<String>>;

/// Called for each line of standard output.
pub type OnLine = Box<dyn FnMut(&str) + Send>;

/// A running child in a separate process group, so that Ctrl-C at the terminal reaches this process
/// only.
#[derive(Debug)]
pub struct Process {
    command: String,
    child: Child,
    status: Option<ExitStatus>,
    stdout: Text,
    stderr: Text,
    readers: Vec<JoinHandle<()>>,
}

/// Result of a command that has ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub command: String,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Process {
    /// Starts a command without standard input.
    pub fn spawn(command: Command) -> Result<Self> {
        Self::spawn_reading(command, Box::new(|_| ()))
    }

    /// Starts a command and passes on its standard output line by line.
    pub fn spawn_reading(mut command: Command, on_line: OnLine) -> Result<Self> {
        command.process_group(0);
        Self::start(command, on_line)
    }

    fn start(mut command: Command, on_line: OnLine) -> Result<Self> {
        let line = command_line(&command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env("LC_ALL", "C")
            .env("NO_COLOR", "1");
        let mut child = estate::add_process(|| {
            let child = command.spawn().trying(|| format!("start `{line}`"))?;
            let pid = child.id();
            Ok((child, pid))
        })?;
        let (stdout, stderr) = (Text::default(), Text::default());
        let mut readers = Vec::new();
        if let Some(pipe) = child.stdout.take() {
            readers.push(read_lines(pipe, Arc::clone(&stdout), on_line));
        }
        if let Some(pipe) = child.stderr.take() {
            readers.push(read_lines(pipe, Arc::clone(&stderr), Box::new(|_| ())));
        }
        Ok(Self { command: line, child, status: None, stdout, stderr, readers })
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            let pid = self.child.id();
            self.status = estate::reap_process(pid, || self.child.try_wait().ok().flatten());
            if self.status.is_some() {
                for reader in self.readers.drain(..) {
                    let _ = reader.join();
                }
            }
        }
        self.status
    }

    /// Sends a signal if it has not ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            let _ = kill(Pid::from_raw(self.child.id().cast_signed()), signal);
        }
    }

    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let what = format!("the end of `{}`", self.command);
        wait::until(&what, limit, || Ok(self.ended()))
    }

    /// Ends it by SIGTERM, or by SIGKILL if it does not end.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM);
        self.wait(GRACE).or_else(|_| self.kill())
    }

    /// Ends it at once (SIGKILL).
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::SIGKILL);
        self.wait(GRACE)
    }

    /// Waits for its end and takes its output. Ends it at the limit.
    pub fn finish(mut self, limit: Duration) -> Result<Outcome> {
        let status = match self.wait(limit) {
            Ok(status) => status,
            Err(e) => {
                let _ = self.kill();
                return Err(e);
            }
        };
        Ok(Outcome {
            command: self.command.clone(),
            status,
            stdout: self.stdout(),
            stderr: self.stderr(),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

impl Outcome {
    /// Standard output of a command that succeeded.
    pub fn success(self) -> Result<String> {
        if self.status.success() { Ok(self.stdout) } else { Err(self.failure()) }
    }

    /// The exit code. As in a shell, a signal gives 128 plus its number.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or_default())
    }

    fn failure(&self) -> Error {
        let stderr = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        Error::Command {
            command: self.command.clone(),
            outcome: self.status.to_string(),
            stderr: stderr.trim().to_owned(),
        }
    }
}

/// Runs a command and takes its output, regardless of the exit code.
pub fn run(command: Command, limit: Duration) -> Result<Outcome> {
    Process::spawn(command)?.finish(limit)
}

/// As [`run`], in a session of its own and so with an equal share of the processors. The first process of a
/// namespace reaps others: on Linux 6.18 it spins until their last threads have ended, and keeps them from
/// that, and all of the processor, if its session has a higher priority than theirs.
pub fn run_in_session(mut command: Command, limit: Duration) -> Result<Outcome> {
    session::lead(&mut command);
    Process::start(command, Box::new(|_| ()))?.finish(limit)
}

#[must_use]
pub fn words(argv: &[&str]) -> Command {
    let mut command = Command::new(argv.first().copied().unwrap_or("false"));
    command.args(argv.iter().skip(1));
    command
}

fn command_line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        let _ = write!(line, " {}", argument.to_string_lossy());
    }
    line
}

fn read_lines(pipe: impl Read + Send + 'static, text: Text, mut on_line: OnLine) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let string = String::from_utf8_lossy(&line);
            text.lock().unwrap_or_else(PoisonError::into_inner).push_str(&string);
            on_line(string.trim_end());
            line.clear();
        }
    })
}
