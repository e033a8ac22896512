// SPDX-License-Identifier: Apache-2.0
//! Signals that a run passes on to its command.
//!
//! The terminal sends its signals (Ctrl-C, Ctrl-\) to the command too, as both are in its
//! foreground process group. These are not passed on, so that the command receives them once.

use crate::failure::Failure;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];
/// `SI_KERNEL`: sent by the kernel, here on behalf of a terminal.
const FROM_KERNEL: i32 = 0x80;

pub struct Signals(UnboundedReceiver<Received>);

/// A received signal.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    pub number: i32,
    /// Whether the command has received it too.
    pub by_terminal: bool,
}

impl Signals {
    /// Takes these signals from now on. Processes that are started receive them as usual.
    pub fn new() -> Result<Self, Failure> {
        let failed =
            |e: std::io::Error| Failure::failed("internal", format!("cannot take signals: {e}"));
        let set: SigSet = PASSED_ON.into_iter().collect();
        set.thread_block().map_err(|e| failed(e.into()))?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC);
        let signals = signals.map_err(|e| failed(e.into()))?;
        let (sender, receiver) = unbounded_channel();
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || read(&signals, &sender))
            .map_err(failed)?;
        Ok(Self(receiver))
    }

    pub async fn next(&mut self) -> Received {
        match self.0.recv().await {
            Some(received) => received,
            None => std::future::pending().await,
        }
    }
}

fn read(signals: &SignalFd, sender: &UnboundedSender<Received>) {
    while let Ok(Some(info)) = signals.read_signal() {
        let number = info.ssi_signo.cast_signed();
        let received = Received { number, by_terminal: info.ssi_code == FROM_KERNEL };
        if sender.send(received).is_err() {
            return;
        }
    }
}
