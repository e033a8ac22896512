// SPDX-License-Identifier: Apache-2.0
//! The network between a group and its boxes: connections that are late and break.

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

/// The way to a box. Clones are the same.
#[derive(Clone)]
pub struct Way(Arc<Mutex<State>>);

struct State {
    random: ChaCha8Rng,
    /// Takes connections, while the box runs.
    listener: Option<mpsc::UnboundedSender<io::Result<DuplexStream>>>,
    /// Dropped to break the open connections.
    open: Vec<oneshot::Sender<()>>,
    /// Nothing is late.
    calm: Arc<AtomicBool>,
}

impl Way {
    pub fn new(seed: u64) -> Self {
        let random = ChaCha8Rng::seed_from_u64(seed);
        Self(Arc::new(Mutex::new(State {
            random,
            listener: None,
            open: Vec::new(),
            calm: Arc::default(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connections that come from now on.
    pub fn listen(&self) -> mpsc::UnboundedReceiver<io::Result<DuplexStream>> {
        let (listener, connections) = mpsc::unbounded_channel();
        self.state().listener = Some(listener);
        connections
    }

    /// Breaks all connections; with `down`, no others can be made.
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
    /// While the box is down.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let mut state = self.state();
        let listener = state.listener.clone().ok_or_else(refused)?;
        let (ours, near) = duplex(ON_THE_WAY);
        let (far, theirs) = duplex(ON_THE_WAY);
        let (open, broken) = oneshot::channel();
        state.open.retain(|it| !it.is_closed());
        state.open.push(open);
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
