// SPDX-License-Identifier: Apache-2.0
//! linkd in-process, with a fake dataplane.
#![allow(clippy::unwrap_used, clippy::panic, dead_code, missing_docs)]

use hyper_util::rt::TokioIo;
use linkd::fake::{FakeDataplane, Running};
use linkd::{Server, Settings};
use profile::Catalog;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::linkemu_client::LinkemuClient;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint, Uri};

pub struct Lab {
    pub directory: TempDir,
    pub fake: FakeDataplane,
    pub running: Option<Running>,
    pub client: LinkemuClient<Channel>,
    pub stop: Option<oneshot::Sender<()>>,
    pub server: JoinHandle<()>,
}

pub fn channel(path: &Path) -> Channel {
    let path = path.to_owned();
    let connect = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://linkd").connect_with_connector_lazy(connect)
}

impl Lab {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let fake = FakeDataplane::default();
        let running = Some(fake.serve(&at("dataplane.sock")).unwrap());
        let settings = Settings {
            socket: at("linkd.sock"),
            dataplane: at("dataplane.sock"),
            catalog: Catalog::built_in(),
        };
        let server = Server::bind(settings).unwrap();
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(async {
            let stopped = async {
                let _ = stopped.await;
            };
            server.serve(stopped).await.unwrap();
        });
        let client = LinkemuClient::new(channel(&at("linkd.sock")));
        Self { directory, fake, running, client, stop: Some(stop), server }
    }

    pub fn linkd(&self) -> Channel {
        channel(&self.directory.path().join("linkd.sock"))
    }

    pub fn dataplane(&self) -> PathBuf {
        self.directory.path().join("dataplane.sock")
    }

    pub async fn set(&mut self, name: &str) -> Result<pb::ChangeResponse, tonic::Status> {
        let profile = Some(pb::set_profile_request::Profile::Name(name.into()));
        let request = pb::SetProfileRequest { profile, ..Default::default() };
        self.client.set_profile(request).await.map(tonic::Response::into_inner)
    }

    pub async fn patch(
        &mut self,
        direction: pb::Direction,
        paths: &[&str],
        pipe: pb::Pipe,
    ) -> Result<pb::ChangeResponse, tonic::Status> {
        let request = pb::PatchLinkRequest {
            direction: direction as i32,
            pipe: Some(pipe),
            mask: Some(mask(paths)),
            ..Default::default()
        };
        self.client.patch_link(request).await.map(tonic::Response::into_inner)
    }

    pub fn in_force(&self) -> pb::Profile {
        self.fake.state().plan.clone().unwrap().profile.unwrap()
    }
}

pub fn mask(paths: &[&str]) -> prost_types::FieldMask {
    prost_types::FieldMask { paths: paths.iter().map(|path| (*path).to_owned()).collect() }
}

pub fn queue(limit_bytes: u64, random_drop: Option<pb::RandomDrop>) -> pb::Pipe {
    pb::Pipe { queue: Some(pb::Queue { limit_bytes, random_drop }), ..Default::default() }
}

pub fn rate(bps: u64) -> pb::Pipe {
    pb::Pipe { rate_bps: Some(bps), ..Default::default() }
}
