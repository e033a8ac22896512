// SPDX-License-Identifier: Apache-2.0
//! `linkctl capture`: a client's packets as they come and as they leave, as a pcapng file.
//!
//! The crate `capture` sorts the chunks from linkd by time and writes them. An
//! interrupt, an end of linkd and a full disk all leave a whole file, as far as it goes.

use crate::complete;
use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use crate::target::Direction;
use capture::{CaptureError, Counts, Lost, Writer};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use indicatif::{ProgressBar, ProgressStyle};
use profile::{parse_duration, parse_size};
use proto::linkemu::v1 as pb;
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

pub const EXAMPLES: &str = "\
Examples:
  linkctl capture --client 10.0.0.2 -w run.pcapng             until interrupted
  linkctl capture --client 10.0.0.2 --duration 10s -w run.pcapng
  linkctl capture --direction forward --snaplen 1514B -w all.pcapng
  linkctl capture --client 10.0.0.2 -w - | tshark -r -        live
  linkctl -o json capture --count 1000 -w run.pcapng          the summary as JSON

The file is for Wireshark. It has a copy of each packet at its arrival, and one at its departure or
drop, with nanosecond timestamps of the dataplane's clock in UTC. The interface tells them apart:
  forward-in, forward-out     towards the client: received, sent
  return-in, return-out       from the client
  forward-drop, return-drop   dropped; the comment has the reason: \"dropped: outage\"
  forward-mark, return-mark   marked by the AQM of the queue, and forwarded
In a group each box has its own interfaces, such as forward-in.b1.
All copies of a packet have the same packet ID (epb_packetid). Packets that are in flight at the end
have no departure. Display filters:
  frame.interface_name == \"forward-drop\"
  frame.comment contains \"outage\"

A capture has no effect on the link. If the reader is too slow, copies are missed, not packets: the
summary counts them, and the file does so for each interface (isb_ifdrop). One capture runs at a
time. It needs the role operator, because it shows the content of packets.";

#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// Client: an address or a name of `linkctl clients`, or bypass (traffic that is not IP), or
    /// default; may be given again. Default: all clients
    #[arg(short, long = "client", value_name = "CLIENT", add = ArgValueCompleter::new(complete::client))]
    clients: Vec<String>,
    /// Direction of the packets: towards the client, from it, or both
    #[arg(short, long, value_enum, default_value = "both")]
    direction: Direction,
    /// Length that is captured of each packet, 1B to 10224B
    #[arg(short, long, value_name = "SIZE", value_parser = snaplen, default_value = "128B")]
    snaplen: u32,
    /// Stop after N copies
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Stop after this time; without --count and --duration, at SIGINT
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<u64>,
    /// Write pcapng to this new file; - is standard output
    #[arg(short, long, value_name = "FILE|-")]
    pub write: Option<PathBuf>,
}

fn duration(text: &str) -> Result<u64, String> {
    match parse_duration(text).map_err(|error| error.to_string())? {
        0 => Err("0 is no time to capture in: give some, or leave it out".into()),
        ns => Ok(ns),
    }
}

fn snaplen(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| (1..=10_224).contains(bytes))
        .ok_or_else(|| format!("{bytes} B is outside of 1 B to 10224 B"))
}

#[derive(Debug, Serialize)]
struct Summary<'a> {
    file: &'a Path,
    profile: &'a str,
    generation: u64,
    /// Copies, by where they are from.
    copies: u64,
    forward: &'a Counts,
    #[serde(rename = "return")]
    back: &'a Counts,
    /// Copies that were dropped because the reader was slow.
    missed: u64,
    /// In a group: largest bound of the error of a time on the group's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_error_ns: Option<u64>,
    /// Boxes of the group that stopped answering.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost: Vec<&'a Lost>,
    interrupted: bool,
}

impl Summary<'_> {
    fn text(&self) -> String {
        let way = |name, c: &Counts| {
            let Counts { received, sent, marked, dropped, .. } = c;
            let marked = if *marked > 0 { format!(", {marked} marked") } else { String::new() };
            format!("{name:<8} {received} received, {sent} sent, {dropped} dropped{marked}\n")
        };
        let missed = match self.missed {
            0 => "no copy was missed".to_owned(),
            n => format!(
                "{n} copies were missed, for they came faster than they were read: capture \
                 fewer clients, one direction or less of each packet"
            ),
        };
        let hint = match self.copies {
            0 => "\n`linkctl clients list` says which clients there are",
            _ => "",
        };
        let clocks = self.clock_error_ns.map_or_else(String::new, |ns| {
            format!(
                "; times of different boxes are within {} µs of the group's clock",
                ns.div_ceil(1000)
            )
        });
        format!(
            "{}{}{} copies in {}; {missed}{clocks}{hint}",
            way("forward", self.forward),
            way("return", self.back),
            self.copies,
            self.file.display()
        )
    }

    /// The file has all that it should have.
    fn complete(&self) -> Result<(), Failure> {
        if self.lost.is_empty() {
            return Ok(());
        }
        let lost: Vec<_> = self.lost.iter().map(ToString::to_string).collect();
        let message = lost.join("; ");
        Err(Failure::failed("incomplete", message))
    }
}

pub async fn run(context: &Context, args: &CaptureArgs) -> Result<(), Failure> {
    let Some(path) = &args.write else {
        return Err(Failure::usage("where to? give -w FILE.pcapng, or -w - for standard output"));
    };
    free(path)?;
    let connection = Connection::open(context).await?;
    // Opening a pipe blocks until it has a reader: signals still end it, and other clients can
    // still capture.
    let out = create(path)?;
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let signals = signals.map(|signal| {
        signal.map_err(|error| Failure::failed("internal", format!("cannot take signals: {error}")))
    });
    let [interrupt, terminate] = signals;
    let (mut interrupt, mut terminate) = (interrupt?, terminate?);
    let recording = Recording::begin(&connection, args.request(connection.link()), out).await;
    if recording.is_err() {
        discard(path);
    }
    let recorded = recording?
        .until(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            Stop::Now
        })
        .await?;
    let summary = recorded.summary(path);
    // The packets are where the result would be.
    let aside = is_stdout(path);
    match context.output {
        Output::Json if aside => say(&serde_json::to_string(&summary).unwrap_or_default()),
        Output::Json => output::json(&summary)?,
        Output::Text if aside => say(&summary.text()),
        Output::Text => output::text(&summary.text())?,
    }
    summary.complete()
}

impl CaptureArgs {
    fn request(&self, link: String) -> pb::CaptureRequest {
        let direction = pb::Direction::from(self.direction);
        pb::CaptureRequest {
            clients: self.clients.clone(),
            direction: direction.into(),
            snaplen: self.snaplen,
            count: self.count.unwrap_or(0),
            duration_ns: self.duration.unwrap_or(0),
            link,
        }
    }
}

/// When a capture ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At once.
    Now,
    /// With all copies up to this time on the dataplane's clock, in nanoseconds.
    After(u64),
}

/// Longest time for copies that are on their way.
const LAST: Duration = Duration::from_secs(10);

/// A capture in force.
pub struct Recording {
    connection: Connection,
    chunks: tonic::Streaming<pb::CaptureChunk>,
    writer: Writer<Box<dyn Write + Send>>,
    progress: Progress,
}

impl Recording {
    /// Begins a capture. All packets that arrive after it are in it.
    ///
    /// # Errors
    /// If linkd refuses.
    pub async fn begin(
        connection: &Connection,
        request: pb::CaptureRequest,
        out: Box<dyn Write + Send>,
    ) -> Result<Self, Failure> {
        let application = concat!("linkctl ", env!("CARGO_PKG_VERSION"));
        let writer = Writer::new(out, application, request.direction());
        let mut client = connection.captures();
        // The answer comes when all workers capture.
        let chunks = connection.answer(client.capture(request)).await?;
        Ok(Self { connection: connection.clone(), chunks, writer, progress: Progress::new() })
    }

    /// Writes copies until the end of the stream, or as `stop` says.
    ///
    /// # Errors
    /// If they cannot be written, or linkd ends. The file is whole, as far as it goes.
    pub async fn until(mut self, stop: impl Future<Output = Stop>) -> Result<Recorded, Failure> {
        let result = self.read(stop).await;
        let ended = self.writer.end();
        self.progress.end();
        let interrupted = result?;
        ended?;
        Ok(Recorded { writer: self.writer, interrupted })
    }

    /// Whether it ended before the stream.
    async fn read(&mut self, stop: impl Future<Output = Stop>) -> Result<bool, Failure> {
        let mut stop = pin!(stop);
        let (mut last_ns, mut deadline) = (None, None);
        loop {
            let late = async {
                tokio::time::sleep_until(deadline?).await;
                Some(())
            };
            tokio::select! {
                chunk = self.chunks.message() => {
                    let chunk = chunk.map_err(|status| self.connection.failure(&status))?;
                    let Some(chunk) = chunk else { return Ok(false) };
                    let is_last = last_ns.is_some_and(|at| follows(&chunk, at));
                    self.writer.chunk(chunk)?;
                    self.progress.show(&self.writer);
                    if is_last {
                        return Ok(false);
                    }
                }
                stop = &mut stop, if last_ns.is_none() => match stop {
                    Stop::Now => return Ok(true),
                    Stop::After(at) => {
                        last_ns = Some(at);
                        deadline = Some(tokio::time::Instant::now() + LAST);
                    }
                },
                Some(()) = late => return Ok(true),
            }
        }
    }
}

/// Whether no later chunk has a copy up to the time. A chunk may be as full as it can be: then its time
/// says nothing about its copies.
fn follows(chunk: &pb::CaptureChunk, at_ns: u64) -> bool {
    chunk.time_ns >= at_ns
        && (chunk.packets.is_empty() || chunk.packets.iter().any(|packet| packet.time_ns > at_ns))
}

/// A capture that has ended.
pub struct Recorded {
    writer: Writer<Box<dyn Write + Send>>,
    interrupted: bool,
}

impl Recorded {
    /// Number of copies, and of those that were missed because this side was slow.
    pub fn copies(&self) -> (u64, u64) {
        (self.writer.copies(), self.writer.counts().iter().map(|counts| counts.missed).sum())
    }

    fn summary<'a>(&'a self, file: &'a Path) -> Summary<'a> {
        let [forward, back] = self.writer.counts();
        let start = self.writer.started();
        Summary {
            file,
            profile: start.map_or("", |start| &start.profile),
            generation: start.map_or(0, |start| start.generation),
            copies: self.writer.copies(),
            forward,
            back,
            missed: forward.missed + back.missed,
            clock_error_ns: self.writer.clock_error_ns(),
            lost: self.writer.lost().collect(),
            interrupted: self.interrupted,
        }
    }
}

impl From<CaptureError> for Failure {
    fn from(error: CaptureError) -> Self {
        match &error {
            CaptureError::Io(io) if io.kind() == ErrorKind::BrokenPipe => Self::Closed,
            CaptureError::Io(_) => Self::failed("io", error.to_string()),
            _ => Self::failed("internal", error.to_string()),
        }
    }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Refuses an existing path, unless it is not a regular file, such as a pipe.
///
/// # Errors
/// With the remedy.
pub fn free(path: &Path) -> Result<(), Failure> {
    if !is_stdout(path) && path.metadata().is_ok_and(|there| there.is_file()) {
        let path = path.display();
        let message = format!("{path} is there already: give another name, or remove it");
        return Err(Failure::failed("already_exists", message));
    }
    if is_stdout(path) && std::io::stdout().is_terminal() {
        return Err(Failure::usage("-w - writes packets, and standard output is a terminal"));
    }
    Ok(())
}

/// Opens the output: a new file, a pipe or standard output.
///
/// # Errors
/// If it cannot be written.
pub fn create(path: &Path) -> Result<Box<dyn Write + Send>, Failure> {
    if is_stdout(path) {
        return Ok(Box::new(std::io::stdout()));
    }
    let is_pipe = path.metadata().is_ok_and(|there| !there.is_file());
    let file = OpenOptions::new().write(true).create_new(!is_pipe).open(path);
    let file = file.map_err(|error| {
        Failure::failed("io", format!("cannot write {}: {error}", path.display()))
    })?;
    Ok(Box::new(file))
}

/// Removes the file of a capture that did not start.
pub fn discard(path: &Path) {
    if path.metadata().is_ok_and(|file| file.is_file()) {
        let _ = fs::remove_file(path);
    }
}

/// On a terminal, how many there are.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new() -> Self {
        Self(std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar
        }))
    }

    fn show(&self, writer: &Writer<Box<dyn Write + Send>>) {
        if let Some(bar) = &self.0 {
            let missed: u64 = writer.counts().iter().map(|c| c.missed).sum();
            bar.set_message(format!("{} copies, {missed} missed", writer.copies()));
            bar.tick();
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_with_older_copies_only_may_be_followed_by_others() {
        let packet = |time_ns| pb::CapturedPacket { time_ns, ..Default::default() };
        let chunk = |time_ns, packets| pb::CaptureChunk { time_ns, packets, ..Default::default() };
        assert!(!follows(&chunk(9, vec![]), 10));
        assert!(follows(&chunk(10, vec![]), 10));
        assert!(!follows(&chunk(12, vec![packet(8), packet(10)]), 10));
        assert!(follows(&chunk(12, vec![packet(8), packet(11)]), 10));
    }
}
