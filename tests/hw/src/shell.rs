// SPDX-License-Identifier: Apache-2.0
//! Commands in the guest, over its second serial port.
//!
//! A command is one line. The guest's init runs it, writes its output, then a line with the byte 1
//! and the exit code.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use smoke::error::Error;
use smoke::wait;

/// Ends an answer, before the exit code.
const END: char = '\u{1}';
/// Timeout of a read, after which the deadline is checked.
const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Shell {
    stream: UnixStream,
    /// Bytes read that are not yet part of an answer.
    text: Vec<u8>,
}

impl Shell {
    /// Connects to the socket of the serial port as soon as it exists.
    pub fn connect(socket: &Path) -> anyhow::Result<Self> {
        let stream = wait::until("QEMU serves the guest's shell", Duration::from_secs(20), || {
            Ok(UnixStream::connect(socket).ok())
        })?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, text: Vec::new() })
    }

    /// Waits for the answer to the previous command. Init sends one when it is ready.
    pub fn answer(
        &mut self,
        limit: Duration,
        mut alive: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<(i32, String)> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(answer) = self.take()? {
                return Ok(answer);
            }
            alive()?;
            if Instant::now() > deadline {
                let what = "an answer of the guest".to_owned();
                return Err(Error::Timeout { what, limit }.into());
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => bail!("the guest's shell is closed"),
                Ok(count) => self.text.extend_from_slice(&bytes[..count]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) => return Err(e).context("read from the guest's shell"),
            }
        }
    }

    fn take(&mut self) -> anyhow::Result<Option<(i32, String)>> {
        let text = String::from_utf8_lossy(&self.text).into_owned();
        let Some((said, rest)) = text.split_once(END) else { return Ok(None) };
        let Some((code, rest)) = rest.split_once('\n') else { return Ok(None) };
        let code = code.trim().parse().with_context(|| format!("the exit code `{code}`"))?;
        let said = said.replace('\r', "").trim().to_owned();
        self.text = rest.as_bytes().to_vec();
        Ok(Some((code, said)))
    }

    pub fn run(&mut self, command: &str, limit: Duration) -> anyhow::Result<(i32, String)> {
        if command.contains('\n') {
            bail!("a command for the guest is one line: {command}");
        }
        self.stream.write_all(format!("{command}\n").as_bytes())?;
        self.answer(limit, || Ok(())).with_context(|| format!("in the guest: {command}"))
    }
}
