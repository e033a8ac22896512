// SPDX-License-Identifier: Apache-2.0
//! P4Runtime: messages to a switch, and what a controller reads in its answers.

use p4::p4_runtime_client::P4RuntimeClient;
use p4runtime::proto::p4::config::v1 as config;
use p4runtime::proto::p4::v1 as p4;
use p4runtime::{Entry, P4Info, Session, Stream, Target};
use p4server::Fake;
use prost::Message as _;
use prost_reflect::{DescriptorPool, MessageDescriptor};
use std::sync::{Arc, LazyLock};
use tokio::runtime::Runtime;
use tonic::transport::Channel;

use crate::entropy::Entropy;
use crate::lab::{Failed, runtime, watched};

const DEVICE: u64 = 1;
const ELECTION: p4::Uint128 = p4::Uint128 { high: 0, low: 1 };

/// A switch with our program, and its primary controller.
struct Lab {
    runtime: Runtime,
    client: P4RuntimeClient<Channel>,
    info: Arc<P4Info>,
    /// Identifiers of the program.
    known: Vec<u32>,
    pool: DescriptorPool,
    _fake: Fake,
    _session: (Session, Stream),
}

static LAB: LazyLock<Lab> =
    LazyLock::new(|| Lab::start().unwrap_or_else(|error| panic!("no switch: {error}")));

impl Lab {
    fn start() -> Result<Self, Failed> {
        let pool = DescriptorPool::decode(p4runtime::FILE_DESCRIPTOR_SET)?;
        let info = Arc::new(P4Info::decode(p4src::BMV2_P4INFO)?);
        let known = known(&config::P4Info::decode(p4src::BMV2_P4INFO)?);
        let runtime = runtime();
        let (fake, session, client) = runtime.block_on(async {
            let fake = Fake::start(DEVICE).await?;
            let address = fake.address();
            let target = Target {
                address: address.clone(),
                tls: None,
                device: DEVICE,
                election: ELECTION.low,
            };
            let session = Session::connect(&target, info.clone()).await?;
            session.0.push(p4src::BMV2_JSON, p4src::BMV2_P4INFO, 1).await?;
            let client = P4RuntimeClient::connect(address).await?;
            Ok::<_, Failed>((fake, session, client))
        })?;
        Ok(Self { runtime, client, info, known, pool, _fake: fake, _session: session })
    }

    fn kind(&self, name: &str) -> MessageDescriptor {
        let found = self.pool.get_message_by_name(name);
        found.unwrap_or_else(|| panic!("there is no message {name}"))
    }
}

fn known(info: &config::P4Info) -> Vec<u32> {
    let tables = info.tables.iter().flat_map(|table| {
        let actions = table.action_refs.iter().map(|action| action.id);
        table.preamble.iter().map(|p| p.id).chain(actions)
    });
    let counters = info.counters.iter().filter_map(|counter| counter.preamble.as_ref());
    let digests = info.digests.iter().filter_map(|digest| digest.preamble.as_ref());
    tables.chain(counters.chain(digests).map(|preamble| preamble.id)).chain(1..6).collect()
}

/// Messages that are drawn from the bytes after the first, which chooses their kind.
///
/// # Panics
/// If a server does, or does not answer.
pub fn p4runtime(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else { return };
    let lab = &*LAB;
    let mut entropy = Entropy::knowing(rest, &lab.known);
    let mut drawn = |name: &str| entropy.message(&lab.kind(name)).encode_to_vec();
    match which % 8 {
        0 => drop(P4Info::decode(rest)),
        1 => drop(P4Info::decode(&drawn("p4.config.v1.P4Info"))),
        2 => {
            let entry = drawn("p4.v1.TableEntry");
            if let Ok(entry) = p4::TableEntry::decode(&*entry) {
                drop(Entry::decode(&lab.info, &entry));
            }
        }
        3 => {
            let request = drawn("p4.v1.ReadRequest");
            let Ok(mut request) = p4::ReadRequest::decode(&*request) else { return };
            request.device_id = DEVICE;
            let mut client = lab.client.clone();
            watched(&lab.runtime, "read", async move {
                if let Ok(answers) = client.read(request).await {
                    let _ = answers.into_inner().message().await;
                }
            });
        }
        4 => {
            let request = drawn("p4.v1.SetForwardingPipelineConfigRequest");
            let request = p4::SetForwardingPipelineConfigRequest::decode(&*request);
            let Ok(mut request) = request else { return };
            // Only checked, so that the program stays.
            request.action = 1;
            (request.device_id, request.election_id) = (DEVICE, Some(ELECTION));
            let mut client = lab.client.clone();
            watched(&lab.runtime, "push", async move {
                let _ = client.set_forwarding_pipeline_config(request).await;
            });
        }
        _ => {
            let request = drawn("p4.v1.WriteRequest");
            let Ok(mut request) = p4::WriteRequest::decode(&*request) else { return };
            (request.device_id, request.election_id) = (DEVICE, Some(ELECTION));
            let mut client = lab.client.clone();
            watched(&lab.runtime, "write", async move {
                let _ = client.write(request).await;
            });
        }
    }
}
