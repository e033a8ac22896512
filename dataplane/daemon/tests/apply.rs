// SPDX-License-Identifier: Apache-2.0
//! The current plan is the one that the workers execute.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant as Wall};

use compile::compile;
use dataplane::accounts::PortAccount;
use dataplane::dataplane::{ANSWER_WITHIN, Dataplane, DataplaneError, Fixed, Ports};
use dataplane::links::Links;
use dpdk::TscClock;
use emu::engine::{Engine, Limits};
use emu::plan::Room;
use emu::units::{Instant, Nanos};
use owner::{Changes, Current, Request, Source, Terms};
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use tonic::{Code, Status};
use worker::command::channel;
use worker::run::{Idle, Worker};
use worker::sim::SimIo;

pub struct NoPorts;

impl Ports for NoPorts {
    fn accounts(&self) -> Vec<[PortAccount; 2]> {
        vec![Default::default()]
    }
}

pub fn plan(profile: &str) -> pb::Plan {
    let profile = profile::Catalog::built_in().get(profile).unwrap().as_proto().clone();
    pb::Plan { profile: Some(profile), seed: 1, ..pb::Plan::default() }
}

/// A change to a built-in profile that restarts the random processes.
pub fn change(profile: &str) -> pb::Change {
    pb::Change { profile: plan(profile).profile, restart: true, ..Default::default() }
}

pub fn keyed(key: &str) -> Terms {
    let request = Request { key: key.into(), fingerprint: "f".into() };
    Terms { request, ..Terms::default() }
}

/// A dataplane with one worker over ports on which nothing arrives.
pub fn dataplane(capacity: u64) -> (Dataplane, thread::JoinHandle<()>) {
    let (dataplane, go, thread) = standing_still(capacity, ANSWER_WITHIN);
    go.send(()).unwrap();
    (dataplane, thread)
}

/// The same with a worker that is stopped until a message arrives, and callers that wait for
/// `patience`.
pub fn standing_still(
    capacity: u64,
    patience: Duration,
) -> (Dataplane, mpsc::Sender<()>, thread::JoinHandle<()>) {
    let clock = TscClock::calibrate(Duration::from_millis(10));
    let (handle, inbox) = channel(4);
    let running = plan("transparent");
    let compiled = compile(&running).unwrap();
    let (go, gate) = mpsc::channel();
    let thread = thread::spawn(move || {
        gate.recv().unwrap();
        let limits = Limits::copying(1 << 20, 4, 1514);
        let engine = Engine::new(limits, compiled, Instant::ZERO).unwrap();
        Worker::new(engine, SimIo::new(Vec::new(), 1), clock, inbox, Idle::Busy).run();
    });
    let room = Room {
        clients: 4,
        port_bps: 10_000_000_000,
        frame: 1514,
        capacity,
        workers: 1,
        tag: 0,
        unanswered: false,
    };
    let fixed = Fixed { room, ..Fixed::default() };
    let ports = Box::new(NoPorts);
    let dataplane = Dataplane::with_patience(vec![handle], clock, ports, fixed, running, patience);
    (dataplane, go, thread)
}

pub fn block_on<F: Future>(f: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f)
}

#[test]
fn what_is_refused_changes_nothing() {
    let (dataplane, thread) = dataplane(100_000_000);
    block_on(async {
        let refused = dataplane.apply(change("viasat2"), Terms::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        let mut hostile = change("geo-600");
        let forward = hostile.profile.as_mut().unwrap().forward_pipe.as_mut().unwrap();
        forward.delay = None;
        forward.queue.as_mut().unwrap().limit_bytes = 1;
        // Not valid stays so, whatever may be lost.
        for lossy in [false, true] {
            let terms = Terms { lossy, ..Terms::default() };
            let invalid = dataplane.apply(hostile.clone(), terms).await.unwrap_err();
            assert_eq!(invalid.code(), Code::InvalidArgument, "{invalid}");
        }
        let offload = Some(pb::Offload::default());
        let switchless = dataplane.set_offload(offload, 0).await.unwrap_err();
        assert!(switchless.message().contains("no P4 switch"), "{switchless}");
        let expected = Terms { expected: Some(7), ..Terms::default() };
        let stale = dataplane.apply(change("transparent"), expected).await.unwrap_err();
        let why = "generation 7 was expected and 0 is current";
        assert!(stale.message().contains(why), "{stale}");
        let Current { plan: in_force, applied, .. } = dataplane.plan().await.unwrap();
        assert_eq!((in_force, applied.generation), (plan("transparent"), 0));
        assert_eq!(dataplane.stats(false).await.unwrap().generation, 0);
        dataplane.stop().await.unwrap();
        // After its end it fails immediately.
        thread.join().unwrap();
        assert!(dataplane.stats(false).await.is_err());
    });
}

#[test]
fn what_does_not_fit_is_taken_as_lossy_and_said_to_be_so_until_it_fits() {
    let (dataplane, thread) = dataplane(100_000_000);
    block_on(async {
        let lossy = Terms { lossy: true, ..Terms::default() };
        let taken = dataplane.apply(change("viasat2"), lossy.clone()).await.unwrap();
        assert!(taken.applied.lossy);
        assert!(taken.remarks[0].starts_with("too little memory: needs "), "{:?}", taken.remarks);
        assert!(!taken.remarks[0].contains("--lossy"), "{:?}", taken.remarks);
        let in_force = dataplane.plan().await.unwrap();
        assert_eq!((in_force.plan, in_force.remarks), (plan("viasat2"), taken.remarks));
        assert!(dataplane.stats(false).await.unwrap().lossy);
        // The leave is not kept.
        assert!(dataplane.apply(change("viasat2"), Terms::default()).await.is_err());
        let fits = dataplane.apply(change("transparent"), lossy).await.unwrap();
        assert_eq!((fits.applied.lossy, fits.remarks), (false, Vec::new()));
        assert!(!dataplane.stop().await.unwrap().lossy);
    });
    thread.join().unwrap();
}

#[test]
fn a_refusal_has_its_numbers_for_programs() {
    use tonic_types::StatusExt;
    let (dataplane, thread) = dataplane(100_000_000);
    let service = dataplane::service::Service::new(Links::new(dataplane.clone()));
    block_on(async {
        use pb::dataplane_server::Dataplane;
        let described = service.describe(tonic::Request::new(pb::DescribeRequest {})).await;
        let room = described.unwrap().into_inner().room.unwrap();
        assert_eq!((room.clients, room.memory_bytes), (4, 100_000_000));
        let change = pb::LinkChange { change: Some(change("viasat2")), ..Default::default() };
        let request = tonic::Request::new(change.into());
        let refused = service.apply(request).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        let info = refused.get_details_error_info().unwrap();
        assert_eq!(info.reason, "OUTSIDE_ENVELOPE");
        let number = |name: &str| info.metadata[name].parse::<u64>().unwrap();
        // 5 clients × 2 queues of 36 MB, at least.
        assert!((360_000_000..1_000_000_000).contains(&number("needed_bytes")), "{info:?}");
        assert_eq!(number("memory_bytes"), 100_000_000);
        assert_eq!(number("forward_queue_max_bytes"), number("return_queue_max_bytes"));
        assert!(number("forward_queue_max_bytes") < 36_000_000, "{info:?}");
        dataplane.stop().await.unwrap();
    });
    thread.join().unwrap();
}

/// Requests a change at an instant, and lets the workers have it.
async fn scheduled(
    dataplane: &Dataplane,
    name: &str,
    at: Instant,
    expected: u64,
) -> tokio::task::JoinHandle<Result<owner::Made, Status>> {
    let (this, change) = (dataplane.clone(), change(name));
    let (at_ns, expected) = (Some(at.0), Some(expected));
    let terms = Terms { at_ns, expected, ..Terms::of(Source::Scenario) };
    let pending = tokio::spawn(this.change(change, terms));
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    pending
}

fn is_withdrawn<T>(answer: Result<T, Status>) -> bool {
    answer.is_err_and(|status| status.message().starts_with("withdrawn"))
}

/// Far enough ahead for a thread that is held up: nearly the 10 s that are allowed.
const AHEAD: Nanos = Nanos::from_millis(9_500);

fn ahead(dataplane: &Dataplane, by: Nanos) -> Instant {
    Instant(dataplane.time().0) + by
}

#[test]
fn changes_take_effect_at_their_instants_whatever_this_thread_does_meanwhile() {
    let (dataplane, thread) = dataplane(1 << 40);
    block_on(async {
        let at = ahead(&dataplane, Nanos::from_millis(1_500));
        let mut pending = Vec::new();
        for n in 0..8u64 {
            let at = at + Nanos::from_millis(n);
            pending.push(scheduled(&dataplane, "geo-600", at, n).await);
        }
        // The current plan and the accounts do not wait for them.
        let stats = dataplane.stats(false).await.unwrap();
        let in_force = dataplane.plan().await.unwrap().applied.generation;
        if dataplane.time().0 < at.0 {
            assert_eq!((stats.generation, in_force), (0, 0));
        }
        // The workers make them, not this thread, which is away from before the first
        // instant until after the last one.
        thread::sleep(Duration::from_millis(1_700));
        // A worker that was held up needs longer, not this thread.
        let deadline = Wall::now() + Duration::from_secs(60);
        while dataplane.plan().await.unwrap().applied.generation < 8 {
            assert!(Wall::now() < deadline, "the workers made no change");
            thread::sleep(Duration::from_millis(20));
        }
        for (n, pending) in pending.into_iter().enumerate() {
            let applied = pending.await.unwrap().unwrap().applied;
            assert_eq!(applied.generation, n as u64 + 1);
            // A worker that was held up is late.
            assert!(applied.effective_ns >= at.0 + n as u64 * 1_000_000);
        }
        dataplane.stop().await.unwrap();
    });
    thread.join().unwrap();
}

#[test]
fn a_change_that_comes_before_others_takes_them_back() {
    let (dataplane, thread) = dataplane(1 << 40);
    block_on(async {
        let at = ahead(&dataplane, AHEAD);
        let first = scheduled(&dataplane, "geo-600", at + Nanos(10), 0).await;
        let second = scheduled(&dataplane, "viasat2", at + Nanos(20), 1).await;
        // Between them: the second one is withdrawn, the first one stays.
        let between = scheduled(&dataplane, "transparent", at + Nanos(15), 1).await;
        assert!(is_withdrawn(second.await.unwrap()));
        // A refused change withdraws nothing.
        let stale = Terms { expected: Some(1), ..Terms::default() };
        let refused = dataplane.apply(change("viasat2"), stale).await.unwrap_err();
        assert!(refused.message().contains("generation 1 was expected and 0 is current"));
        assert!(!first.is_finished() && !between.is_finished());
        let made = dataplane.apply(change("viasat2"), Terms::default()).await.unwrap();
        assert_eq!(made.applied.generation, 1);
        for pending in [first, between] {
            assert!(is_withdrawn(pending.await.unwrap()));
        }
        assert!(dataplane.time().0 < at.0, "this thread was away for {AHEAD:?}");
        // The workers are well.
        let stats = dataplane.stats(false).await.unwrap();
        assert_eq!((stats.generation, dataplane.plan().await.unwrap().plan), (1, plan("viasat2")));
        dataplane.stop().await.unwrap();
    });
    thread.join().unwrap();
}

#[test]
fn clients_are_named_as_long_as_there_are_places_for_them() {
    let (dataplane, thread) = dataplane(1 << 40);
    let named = |names: &[&str]| {
        let client = |(n, name): (usize, &&str)| model::Client {
            name: (*name).into(),
            vlans: vec![n as u32 + 1],
            ..Default::default()
        };
        let clients = names.iter().enumerate().map(client).collect();
        pb::Change {
            clients: Some(model::Clients { clients, ..Default::default() }),
            ..change("transparent")
        }
    };
    block_on(async {
        let terms = Terms::default;
        dataplane.apply(named(&["a", "b"]), terms()).await.unwrap();
        assert_eq!(dataplane.plan().await.unwrap().plan.clients, named(&["a", "b"]).clients);
        dataplane.apply(named(&["b", "c"]), terms()).await.unwrap();
        dataplane.apply(change("geo-600"), terms()).await.unwrap();
        // Three of four slots are reserved permanently.
        let refused = dataplane.apply(named(&["d", "e"]), terms()).await.unwrap_err().to_string();
        for part in ["5 named clients", "0 that were made for addresses", "--max-clients is 4"] {
            assert!(refused.contains(part), "{refused}");
        }
        dataplane.apply(named(&["d", "a", "b", "c"]), terms()).await.unwrap();
        let mut bad = named(&["d"]);
        bad.clients.as_mut().unwrap().clients[0].vlans.push(4095);
        let refused = dataplane.apply(bad, terms()).await.unwrap_err().to_string();
        assert!(refused.contains("client[0].vlan[1]"), "{refused}");
        assert_eq!(dataplane.plan().await.unwrap().applied.generation, 4);
        dataplane.stop().await.unwrap();
    });
    thread.join().unwrap();
}

/// Patience of callers of a stalled worker.
const PATIENCE: Duration = Duration::from_millis(50);

#[test]
fn a_worker_that_stood_still_is_asked_again_when_it_goes_on() {
    let (dataplane, go, thread) = standing_still(1 << 40, PATIENCE);
    let service = dataplane::service::Service::new(Links::new(dataplane.clone()));
    block_on(async {
        use pb::dataplane_server::Dataplane;
        let stalled = dataplane.stalled();
        assert!(dataplane.health().is_ok());
        let error = dataplane.stats(true).await.unwrap_err();
        assert!(matches!(error, DataplaneError::Stalled(PATIENCE)), "{error}");
        // All callers get the same answer, immediately.
        assert!(*stalled.borrow());
        let describe = service.describe(tonic::Request::new(pb::DescribeRequest {})).await;
        let get_plan = service.get_plan(tonic::Request::new(pb::GetPlanRequest::default())).await;
        for code in [describe.unwrap_err().code(), get_plan.unwrap_err().code()] {
            assert_eq!(code, tonic::Code::Unavailable);
        }
        let turned = tokio::spawn({
            let dataplane = dataplane.clone();
            async move { dataplane.turned().await }
        });
        go.send(()).unwrap();
        turned.await.unwrap().unwrap();
        assert!(dataplane.health().is_ok() && !*stalled.borrow());
        let made = answered(&dataplane, || dataplane.apply(change("geo-600"), keyed("k"))).await;
        assert_eq!(made.applied.generation, 1);
        dataplane.stop().await.unwrap();
    });
    thread.join().unwrap();
}

/// The answer of a worker that continues: on a busy machine that may take longer than `PATIENCE`.
async fn answered<T, E, F>(dataplane: &Dataplane, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, E>>,
    E: Into<Status>,
{
    loop {
        match ask().await.map_err(Into::into) {
            Err(status) if status.code() == Code::Unavailable => dataplane.turned().await.unwrap(),
            answer => return answer.unwrap(),
        }
    }
}

#[test]
fn a_change_that_a_worker_finds_when_it_goes_on_is_made_and_said() {
    let (dataplane, go, thread) = standing_still(1 << 40, PATIENCE);
    block_on(async {
        let terms = keyed("k");
        let error = dataplane.apply(change("geo-600"), terms).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "{error}");
        // Its result is unknown, and is not reported as a failure.
        assert!(dataplane.plan().await.is_err());
        go.send(()).unwrap();
        let in_force = answered(&dataplane, || dataplane.plan()).await;
        assert_eq!((in_force.plan, in_force.applied.generation), (plan("geo-600"), 1));
        let again = || dataplane.apply(change("geo-600"), keyed("k"));
        let again = answered(&dataplane, again).await;
        assert_eq!((again.applied, again.repeated), (in_force.applied, true));
        assert_eq!(answered(&dataplane, || dataplane.stats(false)).await.generation, 1);
        dataplane.stop().await.unwrap();
    });
    thread.join().unwrap();
}

#[test]
fn the_final_accounts_of_a_worker_that_stands_still_are_waited_for() {
    let (dataplane, go, thread) = standing_still(1 << 40, PATIENCE);
    block_on(async {
        assert!(dataplane.stats(false).await.is_err());
        let stop = tokio::spawn({
            let dataplane = dataplane.clone();
            async move { dataplane.stop().await }
        });
        tokio::time::sleep(2 * PATIENCE).await;
        assert!(!stop.is_finished());
        go.send(()).unwrap();
        assert_eq!(stop.await.unwrap().unwrap().generation, 0);
    });
    thread.join().unwrap();
}
