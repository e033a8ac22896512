// SPDX-License-Identifier: Apache-2.0
//! A dataplane without packets as a process that ends and starts again.

use std::sync::{Arc, Mutex, PoisonError};

use fake::FakeDataplane;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Server;

use crate::network::Way;

/// A rate that it refuses: it is below the least one.
pub const REFUSED_BPS: u64 = 1;

/// A dataplane, and the way to it. Clones are the same.
#[derive(Clone)]
pub struct Node {
    pub fake: FakeDataplane,
    pub way: Way,
    serving: Arc<Mutex<Option<AbortHandle>>>,
}

impl Node {
    /// It does not run yet.
    pub fn new(instance: u64, seed: u64) -> Self {
        let fake = FakeDataplane::default();
        fake.state().instance = instance;
        Self { fake, way: Way::new(seed), serving: Arc::default() }
    }

    /// Starts it, in place of one that runs.
    pub fn start(&self) {
        let connections = UnboundedReceiverStream::new(self.way.listen());
        let service = self.fake.service();
        let serving = tokio::spawn(async move {
            let _ = Server::builder().add_service(service).serve_with_incoming(connections).await;
        });
        self.serve(Some(serving.abort_handle()));
    }

    /// Ends it; the next one has no plan.
    pub fn crash(&self) {
        self.way.cut(true);
        self.serve(None);
        let mut state = self.fake.state();
        state.instance += 100;
        (state.generation, state.plan, state.lossy) = (0, None, false);
    }

    fn serve(&self, next: Option<AbortHandle>) {
        let mut serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = std::mem::replace(&mut *serving, next) {
            before.abort();
        }
    }
}
