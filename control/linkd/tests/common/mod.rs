// SPDX-License-Identifier: Apache-2.0
//! linkd in-process, with a fake dataplane.

use fake::{FakeDataplane, Running};
use hyper_util::rt::TokioIo;
use linkd::{Reload, Security, Server, Settings};
use nix::fcntl::{Flock, FlockArg};
use profile::Catalog;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::linkemu_client::LinkemuClient;
use proto::linkemu::v1::scenarios_client::ScenariosClient;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint, Uri};

pub mod pki;

/// Time limit for events that must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Lab {
    pub directory: TempDir,
    pub fake: FakeDataplane,
    pub running: Option<Running>,
    pub client: LinkemuClient<Channel>,
    pub stop: Option<oneshot::Sender<()>>,
    pub server: JoinHandle<()>,
    /// Of the web page.
    pub web: Option<SocketAddr>,
    threads: Threads,
}

pub fn channel(path: &Path) -> Channel {
    let path = path.to_owned();
    let connect = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://linkd").connect_with_connector_lazy(connect)
}

/// A linkd with separate threads, which can be ended as a whole.
struct Linkd {
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
    threads: Threads,
    address: Option<SocketAddr>,
    web: Option<SocketAddr>,
    reload: Reload,
}

fn linkd(directory: &Path, security: Security) -> Linkd {
    let at = |name: &str| directory.join(name);
    let settings = Settings {
        socket: at("linkd.sock"),
        dataplane: at("dataplane.sock"),
        catalog: Catalog::built_in(),
        state: Some(at("state")),
        security,
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let inside = runtime.enter();
    let server = Server::bind(settings).unwrap();
    drop(inside);
    let (address, web, reload) = (server.address(), server.web_address(), server.reloader());
    let (stop, stopped) = oneshot::channel();
    let server = runtime.spawn(async {
        let stopped = async {
            let _ = stopped.await;
        };
        server.serve(stopped).await.unwrap();
    });
    Linkd { stop, server, threads: Threads(Some(runtime)), address, web, reload }
}

/// The threads of a linkd, which end with it.
pub struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Lab {
    pub fn new() -> Self {
        Self::with(|_| Security::default()).0
    }

    /// With other settings, which may need the lab's directory.
    pub fn with(security: impl FnOnce(&Path) -> Security) -> (Self, Option<SocketAddr>, Reload) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let fake = FakeDataplane::default();
        fake.state().instance = 1;
        let running = Some(fake.serve(&at("dataplane.sock")).unwrap());
        let linkd = linkd(directory.path(), security(directory.path()));
        let (address, web, reload) = (linkd.address, linkd.web, linkd.reload.clone());
        let client = LinkemuClient::new(channel(&at("linkd.sock")));
        let Linkd { stop, server, threads, .. } = linkd;
        let stop = Some(stop);
        let lab = Self { directory, fake, running, client, stop, server, web, threads };
        (lab, address, reload)
    }

    /// Ends linkd as a signal that it cannot catch would.
    pub async fn kill_linkd(&mut self) {
        self.threads = Threads(None);
        // The kernel would have released the directory.
        let lock = self.directory.path().join("state/lock");
        self.until("the directory is free", |_| {
            let file = std::fs::File::open(&lock).unwrap();
            Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok()
        })
        .await;
    }

    /// Restarts it in the same directory.
    pub fn start_linkd(&mut self) {
        let Linkd { stop, server, threads, .. } = linkd(self.directory.path(), Security::default());
        (self.stop, self.server, self.threads) = (Some(stop), server, threads);
        // The way to the one before may be taken once more before it is known to be closed.
        let socket = self.directory.path().join("linkd.sock");
        self.client = LinkemuClient::new(channel(&socket));
    }

    /// Replaces the dataplane by another instance.
    pub fn start_dataplane_anew(&mut self, instance: u64) {
        self.running = None;
        {
            let mut state = self.fake.state();
            state.instance = instance;
            state.generation = 0;
            state.plan = None;
        }
        self.running = Some(self.fake.serve(&self.dataplane()).unwrap());
    }

    /// Lets linkd look after the dataplane until `done`.
    pub async fn until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        until(what, async || done(self).then_some(())).await;
    }

    pub fn linkd(&self) -> Channel {
        channel(&self.directory.path().join("linkd.sock"))
    }

    pub fn dataplane(&self) -> PathBuf {
        self.directory.path().join("dataplane.sock")
    }

    /// The scenario of `main`.
    pub async fn scenario(&self) -> pb::ScenarioState {
        let mut client = ScenariosClient::new(self.linkd());
        let request = pb::GetScenarioStateRequest::default();
        client.get_scenario_state(request).await.unwrap().into_inner()
    }

    pub async fn set(&mut self, name: &str) -> Result<pb::Link, tonic::Status> {
        self.update(to_profile(name)).await
    }

    pub async fn update(
        &mut self,
        update: impl Into<pb::LinkUpdate>,
    ) -> Result<pb::Link, tonic::Status> {
        let answer = self.client.update_links(only(update)).await;
        answer.map(|answer| answer.into_inner().into_one())
    }

    pub async fn patch(
        &mut self,
        direction: pb::Direction,
        paths: &[&str],
        pipe: pb::Pipe,
    ) -> Result<pb::Link, tonic::Status> {
        let direction = direction as i32;
        self.update(pb::PipeUpdate { direction, ..to_values(paths, pipe) }).await
    }

    pub fn in_force(&self) -> pb::Profile {
        self.fake.state().plan.clone().unwrap().profile.unwrap()
    }
}

/// The change to a known profile.
pub fn to_profile(name: &str) -> pb::ProfileUpdate {
    let profile = Some(pb::profile_update::Profile::Name(name.into()));
    pb::ProfileUpdate { profile, seed: None }
}

/// The change to another profile.
pub fn to_inline(profile: &pb::Profile) -> pb::ProfileUpdate {
    let profile = Some(pb::profile_update::Profile::Inline(profile.clone()));
    pb::ProfileUpdate { profile, seed: None }
}

/// The change of both pipes to other values.
pub fn to_values(paths: &[&str], pipe: pb::Pipe) -> pb::PipeUpdate {
    pb::PipeUpdate { pipe: Some(pipe), mask: Some(mask(paths)), ..Default::default() }
}

/// A request of one change.
pub fn only(update: impl Into<pb::LinkUpdate>) -> pb::UpdateLinksRequest {
    update.into().into()
}

/// Waits until there is something.
pub async fn until<T>(what: &str, mut there: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            match there().await {
                Some(found) => return found,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let found = tokio::time::timeout(PATIENCE, waiting).await;
    found.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

pub fn mask(paths: &[&str]) -> prost_types::FieldMask {
    prost_types::FieldMask { paths: paths.iter().map(|path| (*path).to_owned()).collect() }
}

pub fn rate(bps: u64) -> pb::Pipe {
    pb::Pipe { rate_bps: Some(bps), ..Default::default() }
}
