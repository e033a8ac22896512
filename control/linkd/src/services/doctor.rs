// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Doctor`: the checks of `linkctl doctor` on the machine of linkd.

use crate::links::Links;
use doctor::finding::Finding;
use doctor::machine::Machine;
use doctor::wanted::Wanted;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::doctor_server;
use std::path::PathBuf;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// Answers are the same for so long, so that callers cannot keep the machine busy.
const FRESH: Duration = Duration::from_secs(2);
const OWN: &str = env!("CARGO_PKG_VERSION");

pub(crate) struct DoctorService {
    links: Links,
    /// The socket of the dataplane, the lock beside which names its process.
    dataplane: PathBuf,
    /// The last answer.
    last: Mutex<Option<(Instant, pb::DiagnoseResponse)>>,
}

impl DoctorService {
    pub fn new(links: Links, dataplane: PathBuf) -> Self {
        Self { links, dataplane, last: Mutex::default() }
    }

    async fn diagnose(&self) -> Result<pb::DiagnoseResponse, Status> {
        let (dataplane, runtime) = (self.dataplane.clone(), Handle::current());
        // It reads files of the kernel.
        let findings = spawn_blocking(move || {
            let machine = Machine::this();
            let process = machine.serving(&dataplane);
            let wanted = Wanted::default();
            runtime.block_on(doctor::check(&machine, &wanted, process.as_deref()))
        });
        let findings = findings.await;
        let mut findings =
            findings.map_err(|_| Status::unavailable("linkd is shutting down: try again later"))?;
        findings.push(self.version().await);
        findings.push(Finding::ok("linkd", format!("answers, version {OWN}")));
        Ok(findings.into())
    }

    /// Whether the dataplane answers, and is of linkd's own version.
    async fn version(&self) -> Finding {
        const CHECK: &str = "dataplane";
        match self.links.main().control.dataplane().describe().await {
            Ok(described) if described.version == OWN => {
                Finding::ok(CHECK, format!("answers, version {OWN}"))
            }
            Ok(described) => Finding::warning(
                CHECK,
                format!("answers, version {}; linkd is {OWN}", described.version),
                "what one of them has the other may not know",
                "which -a linkd linkd-dataplane   # install one version of both",
            ),
            Err(status) => Finding::warning(
                CHECK,
                status.message(),
                "without a dataplane there is no link",
                "systemctl status linkd-dataplane",
            )
            .bad_if(true),
        }
    }
}

#[tonic::async_trait]
impl doctor_server::Doctor for DoctorService {
    async fn diagnose(
        &self,
        _: Request<pb::DiagnoseRequest>,
    ) -> Result<Response<pb::DiagnoseResponse>, Status> {
        let mut last = self.last.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < FRESH
        {
            return Ok(Response::new(answer.clone()));
        }
        let answer = self.diagnose().await?;
        *last = Some((Instant::now(), answer.clone()));
        Ok(Response::new(answer))
    }
}
