// SPDX-License-Identifier: Apache-2.0
//! Ways to processes: connections that are late and break.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

/// Bytes on the way in each direction.
const ON_THE_WAY: usize = 1 << 20;

/// The way to a process, of one that calls it. Clones are the same.
#[derive(Clone)]
pub struct Way {
    state: Arc<Mutex<State>>,
    caller: u64,
}

struct State {
    random: ChaCha8Rng,
    /// Takes connections, while the process runs.
    listener: Option<mpsc::UnboundedSender<io::Result<DuplexStream>>>,
    /// Open connections by their callers; dropped to break them.
    open: Vec<(u64, oneshot::Sender<()>)>,
    /// Callers, and those that have ended.
    callers: u64,
    ended: BTreeSet<u64>,
    /// Nothing is late.
    calm: Arc<AtomicBool>,
}

impl Way {
    pub fn new(seed: u64) -> Self {
        let random = ChaCha8Rng::seed_from_u64(seed);
        let state = State {
            random,
            listener: None,
            open: Vec::new(),
            callers: 0,
            ended: BTreeSet::new(),
            calm: Arc::default(),
        };
        Self { state: Arc::new(Mutex::new(state)), caller: 0 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The way of another caller to the same process.
    #[must_use]
    pub fn beside(&self) -> Self {
        let caller = {
            let mut state = self.state();
            state.callers += 1;
            state.callers
        };
        Self { state: self.state.clone(), caller }
    }

    /// Ends this caller: its connections break, and it gets no others.
    pub fn end(&self) {
        let mut state = self.state();
        state.open.retain(|it| it.0 != self.caller);
        state.ended.insert(self.caller);
    }

    /// The connections that come from now on.
    pub fn listen(&self) -> mpsc::UnboundedReceiver<io::Result<DuplexStream>> {
        let (listener, connections) = mpsc::unbounded_channel();
        self.state().listener = Some(listener);
        connections
    }

    /// Breaks the connections of all callers; with `down`, no others can be made.
    pub fn cut(&self, down: bool) {
        let mut state = self.state();
        state.open.clear();
        if down {
            state.listener = None;
        }
    }

    /// From now on nothing is late.
    pub fn calm(&self) {
        self.state().calm.store(true, Ordering::Relaxed);
    }

    /// # Errors
    /// While the process is down, or after the end of the caller.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let mut state = self.state();
        if state.ended.contains(&self.caller) {
            return Err(refused());
        }
        let listener = state.listener.clone().ok_or_else(refused)?;
        let (ours, near) = duplex(ON_THE_WAY);
        let (far, theirs) = duplex(ON_THE_WAY);
        let (open, broken) = oneshot::channel();
        state.open.retain(|it| !it.1.is_closed());
        state.open.push((self.caller, open));
        let calm = state.calm.clone();
        let mut late = || (ChaCha8Rng::seed_from_u64(state.random.random()), calm.clone());
        let (there, back) = (late(), late());
        let (near_read, near_write) = tokio::io::split(near);
        let (far_read, far_write) = tokio::io::split(far);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = broken => {}
                () = carry(near_read, far_write, there) => {}
                () = carry(far_read, near_write, back) => {}
            }
        });
        listener.send(Ok(theirs)).map_err(|_| refused())?;
        Ok(ours)
    }
}

/// Carries bytes in their order, each part after a time of its own.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    (mut random, calm): (ChaCha8Rng, Arc<AtomicBool>),
) {
    let mut part = vec![0; 1 << 16];
    while let Ok(bytes @ 1..) = from.read(&mut part).await {
        let ms = match random.random_range(0..200_u8) {
            0 => random.random_range(100..2_500),
            1..20 => random.random_range(1..40),
            _ => 0,
        };
        if ms > 0 && !calm.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(ms)).await;
        }
        if to.write_all(&part[..bytes]).await.is_err() {
            return;
        }
    }
}
