// SPDX-License-Identifier: Apache-2.0
//! Requests objects over one connection and reports their arrival.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::object;
use crate::page::Page;
use crate::report::{Fetched, STEP};
use crate::stack::{self, Connection, Path, Settings, StackName};

#[derive(Debug, Args)]
pub struct Options {
    /// QUIC stack
    #[arg(long, value_enum)]
    pub stack: StackName,
    /// Address and UDP port of the server
    #[arg(long)]
    pub connect: SocketAddr,
    /// Local address and UDP port
    #[arg(long)]
    pub bind: SocketAddr,
    /// File with the X.509 certificate of the server
    #[arg(long)]
    pub x509: PathBuf,
    /// Longest time of the whole transfer, in seconds
    #[arg(long, default_value_t = 300.0)]
    pub limit: f64,
    #[command(flatten)]
    pub work: WorkArgs,
    #[command(flatten)]
    pub settings: Settings,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct WorkArgs {
    /// Receive for this time, in seconds
    #[arg(long)]
    seconds: Option<f64>,
    /// Receive one object with this many bytes
    #[arg(long)]
    bytes: Option<u64>,
    /// Load a page of QUIC18
    #[arg(long, value_enum)]
    page: Option<Page>,
}

/// Objects of a bulk transfer that are requested at once, and their size. One long object would end
/// with a loss-tolerant sender on a lossy link: quinn limits the gaps of a stream.
const BULK_OBJECTS: usize = 64;
const BULK_OBJECT: u64 = 256 * 1024;

/// What a client requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    Bulk(Duration),
    Object(u64),
    Page(Page),
}

impl WorkArgs {
    fn work(&self) -> Result<Work> {
        match (self.seconds, self.bytes, self.page) {
            (Some(seconds), ..) => {
                let time = Duration::try_from_secs_f64(seconds);
                Ok(Work::Bulk(time.with_context(|| format!("--seconds {seconds}"))?))
            }
            (_, Some(bytes), _) => Ok(Work::Object(bytes)),
            (.., Some(page)) => Ok(Work::Page(page)),
            (None, None, None) => bail!("give --seconds, --bytes or --page"),
        }
    }
}

/// Runs one transfer.
pub async fn run(options: &Options) -> Result<Fetched> {
    let work = options.work.work()?;
    let x509 =
        fs::read(&options.x509).with_context(|| format!("read {}", options.x509.display()))?;
    let limit = Duration::try_from_secs_f64(options.limit).context("--limit")?;
    let whole = async {
        let socket =
            UdpSocket::bind(options.bind).with_context(|| format!("bind {}", options.bind))?;
        stack::deepen(&socket)?;
        let (server, settings) = (options.connect, options.settings);
        let begin = Instant::now();
        match options.stack {
            StackName::Quinn => {
                let to = stack::quinn::connect(socket, server, &x509, settings).await?;
                transfer(to, work, "quinn", begin).await
            }
            #[cfg(feature = "s2n")]
            StackName::S2n => {
                let to = stack::s2n::connect(socket, server, &x509, settings).await?;
                transfer(to, work, "s2n", begin).await
            }
        }
    };
    let ended = timeout(limit, whole).await;
    ended.with_context(|| format!("the transfer did not end within {limit:?} (--limit)"))?
}

/// Arrivals of all streams.
#[derive(Debug)]
struct Arrivals {
    begin: Instant,
    first_byte: Option<Duration>,
    last_byte: Duration,
    bytes: u64,
    per_step: Vec<u64>,
}

impl Arrivals {
    fn new(begin: Instant) -> Self {
        Self { begin, first_byte: None, last_byte: Duration::ZERO, bytes: 0, per_step: Vec::new() }
    }

    fn add(&mut self, bytes: usize) {
        let at = self.begin.elapsed();
        let step = usize::try_from(at.as_nanos() / STEP.as_nanos()).unwrap_or(usize::MAX);
        if self.per_step.len() <= step {
            self.per_step.resize(step + 1, 0);
        }
        self.per_step[step] += bytes as u64;
        self.first_byte.get_or_insert(at);
        self.last_byte = at;
        self.bytes += bytes as u64;
    }
}

async fn transfer(
    mut connection: impl Connection,
    work: Work,
    stack: &str,
    begin: Instant,
) -> Result<Fetched> {
    let handshake = begin.elapsed();
    let arrivals = Arc::new(Mutex::new(Arrivals::new(begin)));
    let udp = Arc::new(Mutex::new(Vec::new()));
    let counting = tokio::spawn(count(connection.path(), begin, Arc::clone(&udp)));
    let objects = match work {
        Work::Bulk(time) => {
            let mut objects = 0;
            let endless = fetch_endlessly(&mut connection, &arrivals, &mut objects);
            if let Ok(ended) = timeout(time.saturating_sub(handshake), endless).await {
                ended.context("before the end of the transfer's time")?;
            }
            objects
        }
        Work::Object(bytes) => fetch(&mut connection, &[bytes], &arrivals).await?,
        Work::Page(page) => {
            // As in a browser, the index names the images.
            let index = fetch(&mut connection, &[page.index()], &arrivals).await?;
            index + fetch(&mut connection, &page.images(), &arrivals).await?
        }
    };
    let end = if matches!(work, Work::Bulk(_)) { begin.elapsed() } else { Duration::ZERO };
    counting.abort();
    let path = connection.path();
    add(&udp, &path, begin);
    connection.close().await;
    let udp = udp.lock().unwrap_or_else(PoisonError::into_inner);
    let mut arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Fetched {
        stack: stack.to_owned(),
        handshake_s: handshake.as_secs_f64(),
        first_byte_s: arrivals.first_byte.unwrap_or(arrivals.last_byte).as_secs_f64(),
        end_s: end.max(arrivals.last_byte).as_secs_f64(),
        objects,
        bytes: arrivals.bytes,
        bytes_per_step: std::mem::take(&mut arrivals.per_step),
        udp_bytes_per_step: differences(&udp),
    })
}

/// Records the received bytes of each step.
async fn count(path: impl Path, begin: Instant, udp: Arc<Mutex<Vec<u64>>>) {
    let mut step = tokio::time::interval_at((begin + STEP).into(), STEP);
    loop {
        step.tick().await;
        add(&udp, &path, begin);
    }
}

/// Sets the received bytes at the end of the current step. Steps that were missed have the same.
fn add(udp: &Mutex<Vec<u64>>, path: &impl Path, begin: Instant) {
    let bytes = path.sample().received_bytes;
    let steps = begin.elapsed().as_nanos().div_ceil(STEP.as_nanos());
    let steps = usize::try_from(steps).unwrap_or(usize::MAX);
    let mut udp = udp.lock().unwrap_or_else(PoisonError::into_inner);
    let known = udp.len();
    udp.resize(steps.max(known), bytes);
    if let Some(current) = udp.last_mut() {
        *current = bytes;
    }
}

fn differences(totals: &[u64]) -> Vec<u64> {
    let before = std::iter::once(&0).chain(totals);
    totals.iter().zip(before).map(|(now, before)| now.saturating_sub(*before)).collect()
}

/// Fetches objects at once, each on a stream. Returns their number.
async fn fetch(
    connection: &mut impl Connection,
    lengths: &[u64],
    arrivals: &Arc<Mutex<Arrivals>>,
) -> Result<usize> {
    let mut streams = JoinSet::new();
    for &length in lengths {
        start(connection, &mut streams, length, arrivals).await?;
    }
    while let Some(ended) = streams.join_next().await {
        ended.context("a stream")??;
    }
    Ok(lengths.len())
}

/// Fetches one object after another on several streams, and counts them.
async fn fetch_endlessly(
    connection: &mut impl Connection,
    arrivals: &Arc<Mutex<Arrivals>>,
    objects: &mut usize,
) -> Result<()> {
    let mut streams = JoinSet::new();
    loop {
        while streams.len() < BULK_OBJECTS {
            start(connection, &mut streams, BULK_OBJECT, arrivals).await?;
        }
        if let Some(ended) = streams.join_next().await {
            ended.context("a stream")??;
            *objects += 1;
        }
    }
}

/// Starts to fetch an object on a new stream.
async fn start(
    connection: &mut impl Connection,
    streams: &mut JoinSet<Result<()>>,
    length: u64,
    arrivals: &Arc<Mutex<Arrivals>>,
) -> Result<()> {
    let (send, receive) = connection.open().await?;
    let arrivals = Arc::clone(arrivals);
    streams.spawn(async move {
        let on_part = |part| arrivals.lock().unwrap_or_else(PoisonError::into_inner).add(part);
        let received = object::fetch(send, receive, length, on_part).await?;
        if received != length {
            bail!("an object of {length} bytes ended after {received}");
        }
        Ok(())
    });
    Ok(())
}
