// SPDX-License-Identifier: Apache-2.0
//! `linkctl probe`: measure a link's baseline. Needs no linkd.
//!
//! The sender and the reflector have a thread of their own; what they report goes
//! through a channel of one place, so that a terminal that stands still holds up neither.

mod show;

use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use ::probe::{Error, Extent, LogError, Plan, Reflected, Reflector, Report, Spacing, Stop, Target};
use clap::{Args, Subcommand};
use profile::parse_duration;
use show::{Progress, ReflectView, SendView, say};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// How often a verbose reflector says what it did.
const VERBOSE_INTERVAL: Duration = Duration::from_secs(10);

/// For the group.
pub const EXAMPLES: &str = "\
A reflector runs at the far end of the link, a sender at the near end. The sender writes
one line per probe; linkctl fit makes a profile of them.

Examples:
  linkctl probe reflect                     at the far end
  linkctl probe send far.example -w link.csv --duration 24h";

/// For the reflector.
pub const REFLECT_EXAMPLES: &str = "\
Answers each probe with a packet of the same length, and nothing else; keeps nothing of
its clients. Open its UDP port in the firewall. SIGINT and SIGTERM end it.

Examples:
  linkctl probe reflect                     IPv4 and IPv6, port 8620
  linkctl probe reflect --bind 192.0.2.7:9000 --verbose
  linkctl -o json probe reflect             what it did, as JSON, at the end";

/// For the sender.
pub const SEND_EXAMPLES: &str = "\
Examples:
  linkctl probe send far.example -w link.csv --duration 24h
  linkctl probe send far.example -w link.csv --duration 24h --resume
  linkctl probe send [2001:db8::7]:9000 -w link.csv --interval 15ms --count 1000000
  linkctl probe send far.example -w link.csv --poisson --seed 7
  linkctl -o json probe send 192.0.2.7 -w link.csv --count 100 | jq .rtt_ms

How long, how often: an outage shorter than the interval is seen by chance only, and an event
that comes every three hours is seen eight times in a day. 20 bytes each 200 ms are 2 kbit/s
with their headers.

The file is CSV after comment lines with how it was made: sequence, sent_utc, sent_s (since
the start), rtt_ms (empty: lost), there_ms and back_ms (with --synchronised only). It is
written at least once a second. The first SIGINT or SIGTERM waits for the probes under way,
the second does not; --resume goes on with the file after either, or after a crash.

Round trips are by the monotonic clock, from right before the system call that sends to the
kernel's stamp of the arrival: exact to some microseconds, whatever the wall clock does. A
probe that is due while this process is held up for more than an interval is not sent, and
is counted.";

/// Measure a link.
#[derive(Debug, Subcommand)]
pub enum Probe {
    /// Answer probes until interrupted: run it at the far end of the link
    #[command(after_help = REFLECT_EXAMPLES)]
    Reflect(ReflectArgs),
    /// Send probes, and write to a file what becomes of each
    #[command(after_help = SEND_EXAMPLES)]
    Send(SendArgs),
}

/// How to answer.
#[derive(Debug, Args)]
pub struct ReflectArgs {
    /// Listen here; [::] is for IPv4 too
    #[arg(long, value_name = "ADDR:PORT", default_value = "[::]:8620")]
    bind: SocketAddr,
    /// Say every 10 s what was done
    #[arg(short, long)]
    verbose: bool,
}

/// How to send.
#[derive(Debug, Args)]
pub struct SendArgs {
    /// Where linkctl probe reflect runs; the port is 8620 if not given
    #[arg(value_name = "HOST[:PORT]")]
    target: Target,
    /// Write the probes to this file, which must not be there but for --resume
    #[arg(short, long, value_name = "FILE")]
    write: PathBuf,
    /// Time from probe to probe, 10us to 1h
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "200ms")]
    interval: Duration,
    /// Exponential intervals with that mean, so that nothing periodic hides between probes
    #[arg(long)]
    poisson: bool,
    /// Give the same exponential intervals again
    #[arg(long, value_name = "N", requires = "poisson")]
    seed: Option<u64>,
    /// End when the file has this many probes; without --count and --duration, at SIGINT
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    count: Option<u64>,
    /// End this long after the file was begun
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Bytes of UDP payload, 20 to 1472
    #[arg(long, value_name = "BYTES", default_value_t = ::probe::HEADER)]
    size: usize,
    /// A probe is lost if its reply takes longer, 1ms to 1h
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    timeout: Duration,
    /// Go on with the file, if it is there; the other options must be those that it was made with
    #[arg(long)]
    resume: bool,
    /// Both hosts' clocks are synchronised (PTP, GNSS): write one-way delays too
    #[arg(long)]
    synchronised: bool,
    /// Send from this address
    #[arg(long, value_name = "ADDR")]
    bind: Option<IpAddr>,
}

fn duration(text: &str) -> Result<Duration, profile::UnitError> {
    parse_duration(text).map(Duration::from_nanos)
}

/// Does it.
pub async fn run(context: &Context, what: &Probe) -> Result<(), Failure> {
    match what {
        Probe::Reflect(args) => reflect(context.output, args).await,
        Probe::Send(args) => send(context.output, args).await,
    }
}

impl SendArgs {
    fn plan(&self) -> Plan {
        let spacing = match self.poisson {
            true => Spacing::Poisson { seed: self.seed },
            false => Spacing::Constant,
        };
        let extent = match (self.count, self.duration) {
            (Some(count), _) => Extent::Count(count),
            (None, Some(duration)) => Extent::Duration(duration),
            (None, None) => Extent::Open,
        };
        Plan {
            source: self.bind,
            interval: self.interval,
            spacing,
            size: self.size,
            timeout: self.timeout,
            extent,
            synchronised: self.synchronised,
            ..Plan::new(self.target.clone())
        }
    }
}

async fn send(format: Output, args: &SendArgs) -> Result<(), Failure> {
    let report = measure(&args.plan(), &args.write, args.resume).await?;
    let view = SendView::new(&args.target, &args.write, &report);
    match format {
        Output::Json => output::json(&view),
        Output::Text => output::text(&view.text()),
    }
}

/// Sends as planned, showing how it goes.
pub async fn measure(plan: &Plan, path: &Path, resume: bool) -> Result<Report, Failure> {
    plan.check().map_err(|error| failure(Error::Plan(error)))?;
    let (signals, stop) = (Signals::new()?, stop()?);
    let (told, reports) = watch::channel(Report::default());
    let mut progress = Progress::new(plan);
    let sender = {
        let (plan, path, stop) = (plan.clone(), path.to_owned(), stop.clone());
        let tell = move |report: &Report| {
            told.send_replace(*report);
        };
        tokio::task::spawn_blocking(move || ::probe::send(&plan, &path, resume, &stop, tell))
    };
    let report = drive(sender, reports, signals, &stop, |event| progress.show(&event)).await;
    progress.end();
    let report = report?;
    // What came after the last tick.
    progress.warn(&report);
    Ok(report)
}

async fn reflect(format: Output, args: &ReflectArgs) -> Result<(), Failure> {
    let (signals, stop) = (Signals::new()?, stop()?);
    let reflector = Reflector::bind(args.bind).map_err(failure)?;
    say(&format!("reflecting probes at {}", reflector.address()));
    let (told, reports) = watch::channel(Reflected::default());
    let reflector = {
        let (every, stop) = (args.verbose.then_some(VERBOSE_INTERVAL), stop.clone());
        let tell = move |counts: &Reflected| {
            told.send_replace(*counts);
        };
        tokio::task::spawn_blocking(move || reflector.run(&stop, every, tell))
    };
    let counts = drive(reflector, reports, signals, &stop, |event| {
        if let Event::Report(counts) = event {
            say(&ReflectView::from(counts).text());
        }
    });
    let view = ReflectView::from(counts.await?);
    match format {
        Output::Json => output::json(&view),
        Output::Text => output::text(&view.text()),
    }
}

/// What happens while a thread works.
enum Event<R> {
    /// The thread says how it goes.
    Report(R),
    /// The user asked to end.
    Interrupt,
}

/// Waits for the thread and passes on what it reports, and signals to it.
async fn drive<T, R: Copy>(
    mut thread: tokio::task::JoinHandle<Result<T, Error>>,
    mut reports: watch::Receiver<R>,
    mut signals: Signals,
    stop: &Stop,
    mut on: impl FnMut(Event<R>),
) -> Result<T, Failure> {
    loop {
        tokio::select! {
            result = &mut thread => {
                let result = result.map_err(|error| Failure::failed("internal", error.to_string()))?;
                return result.map_err(failure);
            }
            Ok(()) = reports.changed() => {
                let report = *reports.borrow_and_update();
                on(Event::Report(report));
            }
            () = signals.next() => {
                stop.request();
                on(Event::Interrupt);
            }
        }
    }
}

/// SIGINT and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let of = |kind| {
            let failed =
                |error| Failure::failed("internal", format!("cannot take signals: {error}"));
            signal(kind).map_err(failed)
        };
        Ok(Self {
            interrupt: of(SignalKind::interrupt())?,
            terminate: of(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn stop() -> Result<Stop, Failure> {
    Stop::new().map_err(|error| Failure::failed("internal", format!("cannot start: {error}")))
}

fn failure(error: Error) -> Failure {
    let code = match &error {
        Error::Plan(_) => return Failure::usage(error.to_string()),
        Error::Resolve(_) => "not_found",
        Error::Log(LogError::Exists(_)) => "already_exists",
        Error::Log(LogError::Different { .. } | LogError::Foreign { .. } | LogError::Busy(_)) => {
            "failed_precondition"
        }
        _ => "io",
    };
    Failure::failed(code, error.to_string())
}
