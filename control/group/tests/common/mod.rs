// SPDX-License-Identifier: Apache-2.0
//! A group in this process, with fake dataplanes as its boxes.

use std::path::PathBuf;
use std::time::Duration;

use fake::{FakeDataplane, Running, declared_switch};
use group::file::GroupFile;
use group::group::Group;
use group::service;
use hyper_util::rt::TokioIo;
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::dataplane_client::DataplaneClient;
use proto::dataplane::v1::group_client::GroupClient;
use proto::linkemu::v1 as pb;
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint, Uri};

/// How long a condition may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Lab {
    directory: TempDir,
    pub fakes: Vec<FakeDataplane>,
    pub running: Vec<Option<Running>>,
    pub group: Group,
    pub dataplane: DataplaneClient<Channel>,
    pub boxes: GroupClient<Channel>,
}

/// Boxes with these clock skews, in nanoseconds, that fit together.
pub fn fakes(skews: &[i64]) -> Vec<FakeDataplane> {
    let fakes = (0..).zip(skews).map(|(place, skew_ns)| {
        let fake = FakeDataplane::default();
        let mut state = fake.state();
        state.skew_ns = *skew_ns;
        state.instance = 100 + u64::from(place);
        state.room = Some(pb::Room { clients: 16, workers: 2, ..Default::default() });
        state.ports = ["wan", "client"]
            .map(|name| dp::Port { name: name.into(), ..Default::default() })
            .to_vec();
        let boxes = vec![dp::SwitchBox { wan_port: 10 + 2 * place, client_port: 11 + 2 * place }];
        let sharing = u32::try_from(skews.len()).unwrap_or(u32::MAX);
        state.switch =
            Some(dp::Switch { boxes, sharing, ..declared_switch("http://127.0.0.1:9559") });
        drop(state);
        fake
    });
    fakes.collect()
}

impl Lab {
    /// So many boxes, named b1, b2, …, without skew.
    pub async fn new(boxes: usize) -> Self {
        let lab = Self::unsettled(fakes(&vec![0; boxes]), "").await;
        lab.group.settle().await.unwrap();
        lab
    }

    /// A group of these boxes, with rules for owners, before it has settled.
    pub async fn unsettled(fakes: Vec<FakeDataplane>, rules: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let mut text = String::new();
        let mut running = Vec::new();
        for (place, fake) in fakes.iter().enumerate() {
            let name = format!("b{}", place + 1);
            let socket = at(&name);
            text +=
                &format!("[[box]]\nname = \"{name}\"\ndataplane = \"unix:{}\"\n", socket.display());
            running.push(Some(fake.serve(&socket).unwrap()));
        }
        text += &format!("[owner]\n{rules}");
        let file = GroupFile::parse(&text, &at("group.toml")).unwrap();
        let group = Group::new(file, 7);
        let socket = at("group.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (serving, keeping) = (group.clone(), group.clone());
        tokio::spawn(async move { service::serve(serving, listener).await });
        tokio::spawn(async move { keeping.keep("test").await });
        let channel = channel(socket);
        let (dataplane, boxes) = (DataplaneClient::new(channel.clone()), GroupClient::new(channel));
        Self { directory, fakes, running, group, dataplane, boxes }
    }

    /// Ends a box.
    pub fn stop(&mut self, place: usize) {
        self.running[place] = None;
    }

    /// Serves a box again.
    pub fn start(&mut self, place: usize) {
        let path = self.directory.path().join(format!("b{}", place + 1));
        self.running[place] = Some(self.fakes[place].serve(&path).unwrap());
    }

    pub async fn apply(&self, change: dp::LinkChange) -> Result<dp::LinkChanged, tonic::Status> {
        let answer = self.dataplane.clone().apply(dp::ApplyRequest::from(change)).await;
        answer.map(|answer| answer.into_inner().into_one())
    }

    pub async fn plan(&self) -> dp::GetPlanResponse {
        self.dataplane.clone().get_plan(dp::GetPlanRequest {}).await.unwrap().into_inner()
    }

    pub async fn list(&self) -> Vec<dp::Box> {
        let boxes = self.boxes.clone().list_boxes(dp::ListBoxesRequest {}).await;
        boxes.unwrap().into_inner().boxes
    }

    pub async fn stats(&self, mark: bool) -> pb::Stats {
        let request = dp::GetStatsRequest { mark };
        self.dataplane.clone().get_stats(request).await.unwrap().into_inner()
    }

    /// Waits until the boxes are so.
    pub async fn until(&self, what: &str, is: impl Fn(&[dp::Box]) -> bool) -> Vec<dp::Box> {
        let wait = async {
            loop {
                let boxes = self.list().await;
                if is(&boxes) {
                    return boxes;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
    }

    /// The next event of a kind after a sequence.
    pub async fn event(&self, after: u64, kind: pb::EventKind) -> (u64, pb::Event) {
        let request = dp::WatchRequest { after: Some(after) };
        let mut events = self.dataplane.clone().watch(request).await.unwrap().into_inner();
        let wait = async {
            loop {
                let next = events.message().await.unwrap().unwrap();
                if let Some(dp::watch_response::What::Event(event)) = next.what
                    && event.kind() == kind
                {
                    return (next.sequence, event);
                }
            }
        };
        timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("no event {kind:?}"))
    }
}

fn channel(path: PathBuf) -> Channel {
    let connect = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://group").connect_with_connector_lazy(connect)
}

/// A change to a built-in profile.
pub fn set(profile: &str) -> dp::LinkChange {
    let profile = profile::Catalog::built_in().get(profile).unwrap().as_proto().clone();
    let change = dp::Change { profile: Some(profile), ..Default::default() };
    dp::LinkChange { change: Some(change), ..Default::default() }
}

/// A change to these named clients.
pub fn clients(names: &[&str]) -> dp::LinkChange {
    let client = |(n, name): (usize, &&str)| pb::Client {
        name: (*name).to_owned(),
        prefixes: vec![format!("10.9.{n}.0/24")],
        ..Default::default()
    };
    let clients = names.iter().enumerate().map(client).collect();
    let clients = Some(pb::Clients { clients, ..Default::default() });
    let change = dp::Change { clients, ..Default::default() };
    dp::LinkChange { change: Some(change), ..Default::default() }
}
