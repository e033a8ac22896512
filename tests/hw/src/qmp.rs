// SPDX-License-Identifier: Apache-2.0
//! QEMU's machine protocol: one JSON object per line (docs/interop/qmp-spec.rst of QEMU).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
}

impl Qmp {
    /// Connects and negotiates the session.
    pub fn connect(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket).context("connect to QEMU's monitor")?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut qmp = Self { reader: BufReader::new(stream) };
        qmp.line()?;
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    fn line(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line).context("read from QEMU's monitor")? == 0 {
            bail!("QEMU has closed its monitor");
        }
        serde_json::from_str(&line).with_context(|| format!("QEMU's answer {line}"))
    }

    /// Runs a command and returns its result.
    pub fn execute(&mut self, command: &str, arguments: Value) -> anyhow::Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        self.reader.get_mut().write_all(format!("{request}\n").as_bytes())?;
        loop {
            let answer = self.line()?;
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
            if let Some(error) = answer.get("error") {
                bail!("QEMU refuses {request}: {error}");
            }
            // Events can precede the answer.
        }
    }

    /// Plugs a NIC's cable in or out.
    pub fn set_link(&mut self, nic: &str, up: bool) -> anyhow::Result<()> {
        self.execute("set_link", json!({ "name": nic, "up": up })).map(drop)
    }
}
