// SPDX-License-Identifier: Apache-2.0
//! A group of boxes: linkd-group's code, dataplanes without packets, and the network between them.

mod check;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fake::{FakeDataplane, declared_switch};
use group::clock::GroupClock;
use group::connect::Dial;
use group::file::{Address, GroupFile};
use group::group::Group;
use hyper_util::rt::TokioIo;
use owner::{Changes, Link, Scenarios, Terms};
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::dataplane_client::DataplaneClient;
use proto::dataplane::v1::step::What;
use proto::linkemu::v1 as pb;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::time::{sleep, timeout};
use tonic::Status;
use tonic::transport::{Endpoint, Uri};

use crate::node::{Node, REFUSED_BPS};
use crate::requests::{
    Answer, Asked, PROFILE, events, key_name, rate, rates, request, scenario, told, trace,
};
use crate::script::{BOXES, Change, Op, Script, Timed};
use crate::{Report, in_virtual_time};

/// All requests are answered within that time.
const QUIET: Duration = Duration::from_secs(60);
/// Boxes are back and have the plan of the group within that time.
const RETURN: Duration = Duration::from_secs(8);
/// A box of the group.
fn node(place: u32, skew_ns: i64, seed: u64) -> Node {
    let node = Node::new(100 + u64::from(place), seed.wrapping_add(u64::from(place)));
    let mut state = node.fake.state();
    state.skew_ns = skew_ns;
    state.room = Some(pb::Room { clients: 16, workers: 2, ..Default::default() });
    let boxes = vec![dp::SwitchBox { wan_port: 10 + 2 * place, client_port: 11 + 2 * place }];
    let sharing = u32::try_from(BOXES).unwrap_or(u32::MAX);
    let switch = declared_switch("http://127.0.0.1:9559");
    state.switch = Some(dp::Switch { boxes, sharing, ..switch });
    drop(state);
    node
}

#[derive(Clone)]
struct Bed {
    group: Group,
    scenarios: Scenarios<Group>,
    boxes: Vec<Node>,
    record: Arc<Mutex<Vec<Answer>>>,
}

/// What a history ended with.
struct End {
    answers: Vec<Answer>,
    current: owner::Current,
    pending: usize,
    events: Vec<pb::Event>,
    scenario: pb::ScenarioState,
    /// The rates of each box, and whether the group says that it has the current plan.
    boxes: Vec<([Option<u64>; 2], dp::Box)>,
}

/// Runs a script, and checks what must hold.
pub(crate) fn run(script: &Script) -> Report {
    let end = in_virtual_time(history(script));
    let mut trace = trace(&end.answers);
    trace += &format!("{:?}\n", end.boxes.iter().map(|it| it.0).collect::<Vec<_>>());
    check::check(&end).report(trace)
}

async fn history(script: &Script) -> End {
    let mut random = ChaCha8Rng::seed_from_u64(script.seed);
    let boxes: Vec<_> = (0..BOXES)
        .map(|place| {
            let skew_ns = random.random_range(-1_000_000_000..1_000_000_000);
            node(u32::try_from(place).unwrap_or(0), skew_ns, script.seed * BOXES as u64)
        })
        .collect();
    boxes.iter().for_each(Node::start);
    let text: String = (0..BOXES)
        .map(|place| format!("[[box]]\nname = \"b{place}\"\ndataplane = \"unix:/{place}\"\n"))
        .collect();
    let file = GroupFile::parse(&text, Path::new("/group.toml"));
    let file = file.expect("a group file");
    let ways: Vec<_> = boxes.iter().map(|it| it.way.clone()).collect();
    let dial = Dial::by(move |address| {
        let place = match address {
            Address::Unix(path) => path.display().to_string(),
            Address::Tls { .. } => String::new(),
        };
        let place: usize = place.trim_start_matches('/').parse().unwrap_or(0);
        let way = ways[place].clone();
        let connect = tower::service_fn(move |_: Uri| {
            let way = way.clone();
            async move { way.connect().map(TokioIo::new) }
        });
        DataplaneClient::new(
            Endpoint::from_static("http://box").connect_with_connector_lazy(connect),
        )
    });
    let clock = GroupClock::of(FakeDataplane::common_ns);
    let group = Group::over(file, 7, clock, &dial);
    let keeping = group.clone();
    let keeping = tokio::spawn(async move { keeping.keep("simulation").await });
    group.settle().await.expect("boxes that fit");
    // The profile that all later requests change.
    let first = dp::Change { profile: PROFILE.clone(), ..Default::default() };
    let _ = group.apply(first, Terms::default()).await;
    let scenarios = Scenarios::new(group.clone());
    let bed = Bed { group, scenarios, boxes, record: Arc::default() };
    let player = bed.clone();
    let make = move |op| {
        let bed = player.clone();
        async move { bed.make(op).await }
    };
    script.play(QUIET, make).await;
    bed.boxes.iter().for_each(|it| it.way.calm());
    sleep(RETURN).await;
    // One that was paused.
    let _ = bed.scenarios.stop("the end".to_owned(), false).await;
    sleep(RETURN).await;
    let plans = bed.group.history().plans_now();
    let pending = plans.as_ref().map_or(usize::MAX, |it| it.schedule.len());
    drop(plans);
    let boxes = bed.boxes.iter().zip(bed.group.boxes());
    let boxes = boxes.map(|(it, listed)| {
        let plan = it.fake.state().plan.clone().unwrap_or_default();
        (rates(&plan), listed)
    });
    let end = End {
        boxes: boxes.collect(),
        current: bed.group.shown().unwrap_or_default(),
        pending,
        events: events(bed.group.history().journal()),
        scenario: bed.scenarios.status().state.unwrap_or_default(),
        answers: std::mem::take(&mut *bed.record()),
    };
    keeping.abort();
    end
}

impl Bed {
    fn record(&self) -> MutexGuard<'_, Vec<Answer>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn make(&self, Timed { number, op, .. }: Timed) {
        match op {
            Op::Change { change, ahead_ms, key, leaves } => {
                let Change { forward, refused, expects, link } = change;
                let expected = expects.generation(self.group.current()).await;
                let rate = if refused && forward { REFUSED_BPS } else { told(number, 0) };
                let now_ns = self.group.now_ns();
                let at_ns = ahead_ms.map(|ms| now_ns.saturating_add_signed(ms * 1_000_000));
                let asked = Asked { link, forward, rate, expected };
                self.send(asked, at_ns, request(number, key), leaves).await;
            }
            Op::Again { key } => {
                let key = key_name(key);
                let before = self.record().iter().rfind(|it| it.request.key == key).cloned();
                if let Some(Answer { mut asked, at_ns, request, .. }) = before
                    && let Some(asked) = asked.pop()
                {
                    self.send(asked, at_ns, request, false).await;
                }
            }
            Op::Withdraw { .. } => {
                let _ = self.group.withdraw().await;
            }
            Op::Run { steps, every_ms, tolerate, .. } => {
                self.run(number, steps, every_ms, tolerate).await;
            }
            Op::Pause { .. } => {
                let _ = self.scenarios.pause("ana".to_owned()).await;
            }
            Op::Resume { .. } => {
                let _ = self.scenarios.resume("ana".to_owned()).await;
            }
            Op::Stop { restore, .. } => {
                let _ = self.scenarios.stop("asked".to_owned(), restore).await;
            }
            Op::Cut { place } => self.boxes[place].way.cut(false),
            Op::Crash { place, ms } => {
                self.boxes[place].crash();
                sleep(Duration::from_millis(ms)).await;
                self.boxes[place].start();
            }
            Op::Refuse { place, ms } => {
                let fake = &self.boxes[place].fake;
                fake.state().refuse = Some(Status::failed_precondition("it does not fit"));
                sleep(Duration::from_millis(ms)).await;
                fake.state().refuse = None;
            }
            _ => {}
        }
    }

    async fn send(&self, asked: Asked, at_ns: Option<u64>, request: owner::Request, leaves: bool) {
        let change = rate(asked.forward, asked.rate);
        let expected = asked.expected;
        let terms = Terms { at_ns, expected, request: request.clone(), ..Terms::default() };
        let place = {
            let mut record = self.record();
            record.push(Answer { asked: vec![asked], at_ns, request, made: None });
            record.len() - 1
        };
        let patience = if leaves { Duration::from_millis(1) } else { QUIET };
        let Ok(made) = timeout(patience, self.group.apply(change, terms)).await else { return };
        self.record()[place].made = Some(made.map(|made| vec![made]));
    }

    async fn run(&self, number: u64, steps: u64, every_ms: u64, tolerate: bool) {
        let first = (0..steps).map(|index| {
            let change = rate(true, told(number, index as usize));
            let at_ns = index * every_ms * 1_000_000;
            dp::Step { index, at_ns, what: Some(What::Change(change)), ..Default::default() }
        });
        let request = scenario(first.collect(), true, tolerate);
        let _ = self.scenarios.run(request, BTreeMap::new()).await;
    }
}
