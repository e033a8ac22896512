// SPDX-License-Identifier: Apache-2.0
//! The capture of a run: from before the command until the packets that were in the link at its end have
//! left it.

use crate::capture::{self, Recorded, Recording, Stop};
use crate::connection::Connection;
use crate::failure::Failure;
use proto::linkemu::v1 as pb;
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Bytes of a packet: whole ones.
const SNAPLEN: u32 = 10_224;
/// Longest time for the packets in the link: a full queue of the built-in profiles takes 24 s.
const DRAIN: Duration = Duration::from_secs(30);
/// Time between two looks at them.
const LOOK: Duration = Duration::from_millis(20);
/// Time after which the wait is reported.
const SLOW: Duration = Duration::from_secs(1);

/// A file that is there, for a capture that has not begun.
pub struct Tap {
    path: PathBuf,
    out: Option<Box<dyn Write + Send>>,
}

impl Tap {
    /// Makes the file.
    ///
    /// # Errors
    /// If it exists, or cannot be made.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Err(Failure::usage(
                "--capture -: standard output is the command's; name a file, or give `linkctl \
                 capture -w -` in the command",
            ));
        }
        capture::free(path)?;
        Ok(Self { path: path.to_owned(), out: Some(capture::create(path)?) })
    }

    /// Begins the capture. All packets that arrive after it are in the file.
    ///
    /// # Errors
    /// If linkd refuses.
    pub async fn begin(mut self, connection: &Connection) -> Result<Running, Failure> {
        let (link, snaplen) = (connection.link(), SNAPLEN);
        let request = pb::CaptureRequest { link, snaplen, ..Default::default() };
        let out = self.out.take().unwrap_or_else(|| Box::new(std::io::sink()));
        let recording = Recording::begin(connection, request, out).await;
        if recording.is_err() {
            capture::discard(&self.path);
        }
        let recording = recording?;
        let (stop, stopped) = oneshot::channel();
        let stop_at = async { stopped.await.map_or(Stop::Now, Stop::After) };
        let task = tokio::spawn(recording.until(stop_at));
        Ok(Running { path: self.path.clone(), stop, task })
    }
}

/// A capture that has not begun leaves no file.
impl Drop for Tap {
    fn drop(&mut self) {
        if self.out.is_some() {
            capture::discard(&self.path);
        }
    }
}

/// A capture in force.
pub struct Running {
    path: PathBuf,
    stop: oneshot::Sender<u64>,
    task: JoinHandle<Result<Recorded, Failure>>,
}

impl Running {
    /// Ends it with the copies of all packets that have left the link until a time on the dataplane's clock;
    /// without one at once. Says what was written.
    ///
    /// # Errors
    /// If the file is not complete.
    pub async fn end(self, until_ns: Option<u64>) -> Result<String, Failure> {
        match until_ns {
            // A task that has ended has failed.
            Some(at) => drop(self.stop.send(at)),
            None => drop(self.stop),
        }
        let ended = self.task.await;
        let ended = ended.map_err(|error| Failure::failed("internal", error.to_string()))?;
        let (copies, missed) = ended?.copies();
        let path = self.path.display();
        if missed > 0 {
            return Err(Failure::failed(
                "incomplete",
                format!(
                    "{path} has {copies} copies of packets, and {missed} are missing: they came \
                     faster than they were written"
                ),
            ));
        }
        Ok(format!("{copies} copies of packets in {path}"))
    }
}

/// Waits until the packets that are in the link have left it, and gives the time on the dataplane's clock.
/// Packets that arrive meanwhile are not waited for.
///
/// # Errors
/// If linkd does not answer.
pub async fn drained(connection: &Connection) -> Result<u64, Failure> {
    let begin = tokio::time::Instant::now();
    let mut arrived: Option<HashMap<_, u64>> = None;
    let mut told = false;
    loop {
        let request = pb::GetStatsRequest { link: connection.link(), mark: false };
        let stats = connection.call(|mut c| async move { c.get_stats(request).await }).await?;
        let flows = flows(&stats);
        let arrived = arrived.get_or_insert_with(|| {
            flows.iter().map(|(pipe, flow)| (pipe.clone(), flow.arrived)).collect()
        });
        let left = |pipe: &Pipe| flows.get(pipe).map_or(u64::MAX, |flow| flow.left);
        let held: u64 = arrived.iter().map(|(pipe, n)| n.saturating_sub(left(pipe))).sum();
        if held == 0 {
            return Ok(stats.time_ns);
        }
        if begin.elapsed() > DRAIN {
            eprintln!(
                "linkctl run: {held} packets are in the link {} s after the end of the command: the \
                 capture ends without their fates",
                DRAIN.as_secs()
            );
            return Ok(stats.time_ns);
        }
        if begin.elapsed() > SLOW && !told {
            told = true;
            eprintln!("linkctl run: the capture waits for {held} packets in the link (Ctrl-C: no)");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A client and whether it is its return direction.
type Pipe = (String, bool);

/// Packets since the start.
struct Flow {
    arrived: u64,
    /// Sent or dropped.
    left: u64,
}

fn flows(stats: &pb::Stats) -> HashMap<Pipe, Flow> {
    let pipes = stats.clients.iter().flat_map(|client| {
        [(false, &client.forward_pipe), (true, &client.return_pipe)]
            .map(|(back, pipe)| ((client.client.clone(), back), pipe))
    });
    pipes.filter_map(|(name, pipe)| Some((name, flow(pipe.as_ref()?)))).collect()
}

fn flow(pipe: &pb::PipeStats) -> Flow {
    let packets = |count: &Option<pb::Count>| count.as_ref().map_or(0, |count| count.packets);
    let dropped: u64 = pipe.dropped.iter().map(|drop| packets(&drop.count)).sum();
    let left = packets(&pipe.sent) + dropped;
    Flow { arrived: left + packets(&pipe.held), left }
}
