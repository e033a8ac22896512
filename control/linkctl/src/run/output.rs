// SPDX-License-Identifier: Apache-2.0
//! The output of a run's server: its lines get a label on standard error, which tells them from those
//! of the command.
//!
//! The server writes to a pseudo-terminal, as programs hold back what they write to a pipe.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::pty::openpty;
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::ttyname;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinHandle;

const LABEL: &[u8] = b"server: ";
/// A line that is longer is cut in parts, bytes.
const LONGEST: usize = 64 << 10;
/// Longest time for the last lines.
const END: Duration = Duration::from_secs(1);

/// The reading side of the server's terminal.
pub struct ServerOutput {
    /// Keeps the terminal while the server has not opened it yet.
    writer: OwnedFd,
    reader: JoinHandle<()>,
}

impl ServerOutput {
    /// Makes a terminal and copies what is written to it. Gives its path.
    ///
    /// # Errors
    /// If the system has no pseudo-terminals.
    pub fn open() -> std::io::Result<(PathBuf, Self)> {
        let pair = openpty(None, None)?;
        let mut mode = tcgetattr(&pair.slave)?;
        // Bytes pass as they are.
        cfmakeraw(&mut mode);
        tcsetattr(&pair.slave, SetArg::TCSANOW, &mode)?;
        let path = ttyname(&pair.slave)?;
        fcntl(&pair.master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let master = Receiver::from_owned_fd_unchecked(pair.master)?;
        let reader = tokio::spawn(copy(master));
        Ok((path, Self { writer: pair.slave, reader }))
    }

    /// Copies what is left. The server has ended.
    pub async fn end(self) {
        drop(self.writer);
        let _ = tokio::time::timeout(END, self.reader).await;
    }
}

/// Copies until nothing has the terminal open for writing, which is an error of the reading side.
async fn copy(mut master: Receiver) {
    let mut lines = Lines::default();
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = master.read(&mut buffer).await {
        say(&lines.take(&buffer[..n]));
    }
    say(&lines.rest());
}

fn say(text: &[u8]) {
    // Without a reader there is nobody to tell.
    let _ = std::io::stderr().write_all(text);
}

/// Bytes as lines with a label.
#[derive(Debug, Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// Adds bytes and gives the lines that are complete.
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut whole = Vec::new();
        for byte in bytes {
            self.0.push(*byte);
            if *byte == b'\n' || self.0.len() >= LONGEST {
                whole.extend(self.rest());
            }
        }
        whole
    }

    /// The begun line, complete.
    fn rest(&mut self) -> Vec<u8> {
        let mut line = std::mem::take(&mut self.0);
        if line.is_empty() {
            return line;
        }
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        [LABEL, &line].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_label_and_rest_ends_as_line() {
        let mut lines = Lines::default();
        assert_eq!(lines.take(b"listening"), b"");
        assert_eq!(lines.take(b" on 5201\n\n[  5]"), b"server: listening on 5201\nserver: \n");
        assert_eq!(lines.rest(), b"server: [  5]\n");
        assert_eq!(lines.rest(), b"");
        let long = lines.take(&vec![b'x'; LONGEST + 1]);
        assert_eq!(long.len(), LABEL.len() + LONGEST + 1);
    }
}
