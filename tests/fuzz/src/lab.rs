// SPDX-License-Identifier: Apache-2.0
//! Servers in this process, for targets that call them: linkd with a fake dataplane.

use fake::{FakeDataplane, Running};
use http::header::{CONTENT_TYPE, COOKIE, HOST, ORIGIN, SET_COOKIE};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use linkd::{Security, Server, Settings, WebListen};
use prost::Message as _;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::leases_client::LeasesClient;
use proto::linkemu::v1::linkemu_client::LinkemuClient;
use proto::linkemu::v1::web_client::WebClient;
use sha2::{Digest, Sha256};
use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Once, OnceLock};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::entropy::Entropy;
use proto::POOL;

pub type Failed = Box<dyn Error + Send + Sync>;

/// For an answer: an input that takes longer makes the server hang.
pub const PATIENCE: Duration = Duration::from_secs(10);

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Panics of any thread so far. A server catches those of its tasks.
pub fn panics() -> u64 {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            before(info);
        }));
    });
    PANICS.load(Ordering::SeqCst)
}

/// Runs something on a runtime.
///
/// # Panics
/// If a task has panicked, or it takes too long.
pub fn watched<T>(runtime: &Runtime, what: &str, task: impl Future<Output = T>) -> T {
    let before = panics();
    let done = runtime.block_on(async { timeout(PATIENCE, task).await });
    assert_eq!(panics(), before, "a task panicked: {what}");
    done.unwrap_or_else(|_| panic!("no answer within {PATIENCE:?}: {what}"))
}

pub fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap_or_else(|error| panic!("no runtime: {error}"))
}

fn channel(path: &Path) -> Channel {
    let path = path.to_owned();
    let connect = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://linkd").connect_with_connector_lazy(connect)
}

/// A linkd with a web page, and a session of an admin.
pub struct Lab {
    pub runtime: Runtime,
    channel: Channel,
    web: SocketAddr,
    cookie: String,
    _running: Running,
    directory: TempDir,
}

static LAB: OnceLock<Lab> = OnceLock::new();

/// Removes its files: a static is not dropped.
pub fn end() {
    if let Some(lab) = LAB.get() {
        let _ = fs::remove_dir_all(lab.directory.path());
    }
}

impl Lab {
    /// The one of all targets.
    pub fn get() -> &'static Self {
        LAB.get_or_init(|| Self::start().unwrap_or_else(|error| panic!("no lab: {error}")))
    }

    fn start() -> Result<Self, Failed> {
        let directory = TempDir::with_prefix("linkemu-fuzz-")?;
        let runtime = runtime();
        let inside = runtime.enter();
        let fake = FakeDataplane::default();
        fake.state().instance = 1;
        let running = fake.serve(&directory.path().join("dataplane.sock"))?;
        let address = "127.0.0.1:0".parse()?;
        let web = Some(WebListen { address, hosts: Vec::new(), tls: None, insecure: false });
        let server = Server::bind(settings(directory.path(), web))?;
        let web = server.web_address().ok_or("no address of the page")?;
        runtime.spawn(server.serve(std::future::pending()));
        let channel = channel(&directory.path().join("linkd.sock"));
        drop(inside);
        let mut lab =
            Self { runtime, channel, web, cookie: String::new(), _running: running, directory };
        lab.cookie = lab.runtime.block_on(lab.login())?;
        Ok(lab)
    }

    async fn login(&self) -> Result<String, Failed> {
        let request = pb::CreateWebLoginRequest { role: "admin".into() };
        let answer = WebClient::new(self.channel.clone()).create_web_login(request).await?;
        let path = answer.into_inner().path;
        let token = path.strip_prefix("/login#").ok_or("no token")?;
        let body = format!("{{\"token\":\"{token}\"}}").into_bytes();
        let answer = self.post("/login", "application/json", body).await?;
        let cookie = answer.headers().get(SET_COOKIE).ok_or("no cookie")?.to_str()?;
        Ok(cookie.split(';').next().unwrap_or_default().to_owned())
    }

    /// A POST as of the page.
    pub async fn post(
        &self,
        path: &str,
        kind: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, Failed> {
        let io = TcpStream::connect(self.web).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await?;
        tokio::spawn(connection);
        let request = Request::post(path)
            .header(HOST, self.web.to_string())
            .header(ORIGIN, format!("http://{}", self.web))
            .header(COOKIE, &self.cookie)
            .header(CONTENT_TYPE, kind)
            .body(Full::new(Bytes::from(body)))?;
        Ok(sender.send_request(request).await?)
    }

    /// Ends a lease, which would refuse what follows.
    pub async fn release(&self, token: String) {
        let request = pb::ReleaseLeaseRequest { token, ..Default::default() };
        let _ = LeasesClient::new(self.channel.clone()).release_lease(request).await;
    }
}

fn settings(directory: &Path, web: Option<WebListen>) -> Settings {
    Settings {
        socket: directory.join("linkd.sock"),
        dataplane: directory.join("dataplane.sock"),
        catalog: profile::Catalog::built_in(),
        state: Some(directory.join("state")),
        security: Security { web, ..Security::default() },
    }
}

/// The state of linkd on disk, drawn from the bytes, after a byte that tells whether it is another
/// link's: linkd starts with it.
///
/// # Panics
/// If it does not.
pub fn state(data: &[u8]) {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(runtime);
    let Some((which, data)) = data.split_first() else { return };
    let Some(kind) = POOL.get_message_by_name("linkd.v1.State") else {
        panic!("there is no state");
    };
    let body = Entropy::new(data).message(&kind).encode_to_vec();
    let file = [Sha256::digest(&body).as_slice(), &body].concat();
    let started = async {
        let directory = TempDir::with_prefix("linkemu-fuzz-")?;
        let folder = match which % 2 {
            0 => directory.path().join("state"),
            _ => directory.path().join("state/links/a"),
        };
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("state"), file)?;
        let fake = FakeDataplane::default();
        let _running = fake.serve(&directory.path().join("dataplane.sock"))?;
        let server = Server::bind(settings(directory.path(), None))?;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(server.serve(async {
            let _ = stopped.await;
        }));
        let mut client = LinkemuClient::new(channel(&directory.path().join("linkd.sock")));
        client.get_version(pb::GetVersionRequest {}).await?;
        let _ = client.get_link(pb::GetLinkRequest::default()).await;
        drop((stop, client));
        serving.await??;
        Ok::<_, Failed>(())
    };
    if let Err(error) = watched(&RUNTIME, "a state", started) {
        panic!("linkd does not start: {error}");
    }
}
