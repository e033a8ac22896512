// SPDX-License-Identifier: Apache-2.0
//! The links of the fake as an executor of plans.

use crate::{FakeDataplane, Instance, Links};
use owner::{Current, Executor, Owned};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use proto::{MAIN_LINK, link_id, link_name};
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

impl Links {
    fn named(&self) -> MutexGuard<'_, BTreeMap<String, Owned<Instance>>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Executor for Links {
    const NAME: &'static str = "dataplane";

    type Link = Instance;
    type Chunks = ReceiverStream<Result<pb::CaptureChunk, Status>>;

    fn instance(&self) -> u64 {
        self.main.link.0.fake.state().instance
    }

    fn link(&self, name: &str) -> Result<Owned<Instance>, Status> {
        let owned = match link_id(name) {
            MAIN_LINK => self.main.clone(),
            name => self.named().get(name).cloned().ok_or_else(|| {
                Status::not_found(format!("there is no link `{name}`: the links are {MAIN_LINK}"))
            })?,
        };
        owned.link.adopt();
        Ok(owned)
    }

    fn describe(&self, link: &Instance) -> Result<dp::DescribeResponse, Status> {
        let state = link.0.fake.state();
        let (room, instance, switch) = (state.room, state.instance, state.switch.clone());
        let (version, ports) = ("fake".into(), state.ports.clone());
        Ok(dp::DescribeResponse { version, room, instance, switch, ports, ..Default::default() })
    }

    fn on_hold(&self, link: &Instance) -> Vec<dp::HeldClient> {
        link.0.fake.state().withdrawals += 1;
        let (holds, skew_ns) = {
            let state = link.0.fake.state();
            (state.holds.clone(), state.skew_ns)
        };
        let mut on_hold = BTreeMap::new();
        for (since_ns, hold) in holds {
            match hold.hold_ns {
                Some(_) => on_hold.insert(hold.client, since_ns),
                None => on_hold.remove(&hold.client),
            };
        }
        let held = |(client, since_ns): (String, u64)| {
            let since_ns = since_ns.saturating_add_signed(skew_ns);
            dp::HeldClient { client, since_ns }
        };
        on_hold.into_iter().map(held).collect()
    }

    async fn hold_clients(
        &self,
        link: &Instance,
        clients: Vec<dp::HoldClient>,
    ) -> Result<(), Status> {
        let mut state = link.0.fake.state();
        if let Some(status) = &state.refuse {
            return Err(status.clone());
        }
        let now_ns = FakeDataplane::common_ns();
        state.holds.extend(clients.into_iter().map(|hold| (now_ns, hold)));
        Ok(())
    }

    async fn look_at_clients(
        &self,
        link: &Instance,
        clients: Vec<String>,
    ) -> Result<Vec<dp::ClientLook>, Status> {
        let mut state = link.0.fake.state();
        state.looked += clients.len() as u64;
        let look = |client: &String| state.looks.get(client).copied().unwrap_or_default();
        Ok(clients.iter().map(look).collect())
    }

    async fn set_offload(
        &self,
        link: &Instance,
        request: dp::SetOffloadRequest,
    ) -> Result<(), Status> {
        let mut state = link.0.fake.state();
        state.offloads.push(request);
        if state.switch.is_none() {
            return Err(Status::failed_precondition("there is no switch"));
        }
        owner::check_generation(state.generation, Some(request.expected_generation))?;
        state.plan.get_or_insert_default().offload = request.offload;
        Ok(())
    }

    async fn current(&self, link: &Instance) -> Result<Current, Status> {
        Ok(link.0.fake.state().current())
    }

    fn ports(&self, _: &Instance) -> (Vec<pb::PortState>, u64) {
        (Vec::new(), 0)
    }

    async fn stats(&self, link: &Instance, mark: bool) -> Result<pb::Stats, Status> {
        let pause = {
            let mut state = link.0.fake.state();
            state.reads += 1;
            state.pause
        };
        tokio::time::sleep(pause).await;
        let mut state = link.0.fake.state();
        state.marks += u64::from(mark);
        let (generation, lossy) = (state.generation, state.lossy);
        Ok(pb::Stats { generation, lossy, ..state.stats.clone() })
    }

    async fn capture(
        &self,
        link: &Instance,
        request: pb::CaptureRequest,
    ) -> Result<Self::Chunks, Status> {
        let mut state = link.0.fake.state();
        state.captures.push(request);
        if let Some(status) = &state.refuse {
            return Err(status.clone());
        }
        let (chunks, waits) = (state.capture.clone(), state.capture_waits);
        let (sender, receiver) = mpsc::channel(1);
        state.capturing += 1;
        let fake = link.0.fake.clone();
        tokio::spawn(async move {
            for chunk in chunks {
                if sender.send(Ok(chunk)).await.is_err() {
                    break;
                }
            }
            if waits {
                sender.closed().await;
            }
            fake.state().capturing -= 1;
        });
        Ok(ReceiverStream::new(receiver))
    }

    async fn links_of_scenario(
        &self,
        _: &Instance,
        names: &[String],
    ) -> Result<BTreeMap<String, Instance>, Status> {
        names.iter().map(|name| Ok((name.clone(), self.link(name)?.link))).collect()
    }

    async fn list_links(&self) -> Result<(Vec<pb::NamedLink>, pb::LinkRules), Status> {
        let state = self.main.link.0.fake.state();
        let main = pb::NamedLink { name: link_name(MAIN_LINK), ..Default::default() };
        let links = std::iter::once(main).chain(state.named.values().cloned()).collect();
        Ok((links, state.rules.clone()))
    }

    async fn add_link(&self, link: pb::NamedLink) -> Result<pb::NamedLink, Status> {
        let name = link_id(&link.name).to_owned();
        let mut state = self.main.link.0.fake.state();
        if let Some(status) = &state.refuse {
            return Err(status.clone());
        }
        if state.named.contains_key(&name) || name == MAIN_LINK {
            return Err(Status::already_exists(format!("there is a link `{name}` already")));
        }
        state.named.insert(name.clone(), link.clone());
        let fake = FakeDataplane::default();
        fake.state().instance = state.instance;
        state.links.insert(name.clone(), fake.clone());
        drop(state);
        let owned = Instance::owned(&name, fake);
        self.named().insert(name, owned);
        Ok(link)
    }

    async fn remove_link(&self, name: &str) -> Result<(), Status> {
        let name = link_id(name);
        let mut state = self.main.link.0.fake.state();
        if state.named.remove(name).is_none() {
            return Err(Status::not_found(format!("there is no link `{name}`")));
        }
        state.links.remove(name);
        self.named().remove(name);
        Ok(())
    }

    async fn set_link_rules(
        &self,
        link: &Instance,
        mut rules: Vec<pb::LinkRule>,
        _: Option<u64>,
    ) -> Result<pb::LinkRules, Status> {
        let name = link_name(&link.0.name);
        rules.iter_mut().for_each(|rule| rule.link.clone_from(&name));
        let mut state = self.main.link.0.fake.state();
        rules.extend(state.rules.rules.iter().filter(|rule| rule.link != name).cloned());
        let generation = state.rules.generation + 1;
        let effective_utc = Some(SystemTime::now().into());
        state.rules = pb::LinkRules { rules, effective_utc, generation };
        Ok(state.rules.clone())
    }
}
