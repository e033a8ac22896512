// SPDX-License-Identifier: Apache-2.0
//! `linkctl top`: a live view of all clients, in the terminal.
//!
//! [`rates`], [`history`], [`format`] and [`model`] compute, [`draw`] draws; only this file,
//! [`feed`] and [`screen`] know linkd, the clock and the terminal.

mod draw;
mod feed;
mod format;
mod history;
mod model;
mod order;
mod rates;
mod screen;

use crate::context::{Context, Output};
use crate::failure::Failure;
use clap::Args;
use crossterm::event::{Event as Input, EventStream, KeyEventKind};
use draw::{Moment, draw};
use model::{Event, Model};
use profile::parse_duration;
use screen::Screen;
use std::io::IsTerminal;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tokio_stream::StreamExt;

pub const EXAMPLES: &str = "\
Examples:
  linkctl top
  linkctl top --interval 2s

Keys: q quit, arrows or j/k choose a client, s sort, d direction, p pause, ? help.
DELAY is an estimate: bytes in the queue x 8 / the rate in force. Without a terminal:
linkctl stats --watch.";

/// Longest interval between redraws; the age of the statistics is shown.
const REDRAW: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub struct TopArgs {
    /// Time between updates, 10 ms to 1 h
    #[arg(long, value_name = "INTERVAL", default_value = "500ms", value_parser = parse_interval)]
    pub interval: u64,
}

fn parse_interval(text: &str) -> Result<u64, String> {
    match parse_duration(text).map_err(|error| error.to_string())? {
        ns @ 10_000_000..=3_600_000_000_000 => Ok(ns),
        ns => Err(format!("{} is outside of 10 ms to 1 h", profile::format_duration(ns))),
    }
}

/// Shows it until a key or a signal ends it.
pub async fn run(context: &Context, args: &TopArgs) -> Result<(), Failure> {
    if context.output == Output::Json {
        return Err(Failure::usage("linkctl top draws pictures and has no JSON")
            .hint("for programs: linkctl -o json stats --watch"));
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::usage("linkctl top needs a terminal to draw on, and keys from it")
            .hint("without one: linkctl stats --watch"));
    }
    let failed = |error| Failure::failed("internal", format!("cannot take signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let interval = Duration::from_nanos(args.interval);
    // A picture that is not drawn in time holds up the stream, not the memory.
    let (sender, mut events) = tokio::sync::mpsc::channel(1);
    let feed = tokio::spawn(feed::feed(context.linkd.clone(), args.interval, sender));
    let mut screen = Screen::open()?;
    let mut keys = EventStream::new();
    let mut redraw = tokio::time::interval(REDRAW);
    let mut model = Model::default();
    let mut heard = Instant::now();
    let ended = loop {
        let moment = Moment { interval, silent: heard.elapsed() };
        if let Err(error) = screen.0.draw(|frame| draw(frame, &mut model, moment)) {
            break Err(Failure::failed("terminal", format!("cannot draw: {error}")));
        }
        tokio::select! {
            Some(event) = events.recv() => {
                // `Use` comes from other calls: it does not prove that statistics arrive.
                if !matches!(event, Event::Use(_)) {
                    heard = Instant::now();
                }
                model.take(event);
            }
            _ = redraw.tick() => {}
            input = keys.next() => match input {
                Some(Ok(Input::Key(key))) if key.kind != KeyEventKind::Release => {
                    if model.key(key) {
                        break Ok(());
                    }
                }
                // A resize: the next iteration redraws the screen.
                Some(Ok(_)) => {}
                // The terminal is gone.
                Some(Err(_)) | None => break Ok(()),
            },
            _ = terminate.recv() => break Ok(()),
            _ = hangup.recv() => break Ok(()),
            _ = interrupt.recv() => break Ok(()),
        }
    };
    feed.abort();
    ended
}
