// SPDX-License-Identifier: Apache-2.0
//! Changes at an instant, their withdrawal, and clients on hold, with real workers.

use std::thread;
use std::time::Duration;

use dataplane::dataplane::{Dataplane, Fixed};
use dpdk::TscClock;
use emu::engine::{Engine, Limits};
use emu::place::worker_of;
use emu::plan::Room;
use emu::units::{Instant, Nanos};
use owner::{Changes, Terms};
use proto::dataplane::v1 as pb;
use worker::command::channel;
use worker::run::{Idle, Worker};
use worker::sim::SimIo;

use crate::apply::{NoPorts, block_on, change, dataplane, keyed, plan};

/// A dataplane with two workers that get no frames.
fn two_workers() -> (Dataplane, Vec<thread::JoinHandle<()>>) {
    let clock = TscClock::calibrate(Duration::from_millis(10));
    let running = plan("transparent");
    let compiled = compile::compile(&running).unwrap();
    let (mut handles, mut threads) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (handle, inbox) = channel(4);
        let plan = compiled.clone();
        threads.push(thread::spawn(move || {
            let limits = Limits::copying(1 << 20, 4, 1514);
            let engine = Engine::new(limits, plan, Instant::ZERO).unwrap();
            Worker::new(engine, SimIo::new(Vec::new(), 1), clock, inbox, Idle::Busy).run();
        }));
        handles.push(handle);
    }
    let room = Room { clients: 4, frame: 1514, capacity: 1 << 40, workers: 2, ..Room::default() };
    let fixed = Fixed { room, ..Fixed::default() };
    (Dataplane::new(handles, clock, Box::new(NoPorts), fixed, running), threads)
}

fn held(client: &str, hold_ns: Option<u64>) -> pb::HoldClient {
    pb::HoldClient { client: client.into(), hold_ns, ..Default::default() }
}

#[test]
fn change_is_made_at_its_instant_or_withdrawn() {
    let (dataplane, thread) = dataplane(1 << 40);
    let in_future = |ms| Instant(dataplane.time().0) + Nanos::from_millis(ms);
    block_on(async {
        let at = in_future(40);
        let terms = |at: Instant| Terms { at_ns: Some(at.0), ..Terms::default() };
        let again = |at: Instant| Terms { at_ns: Some(at.0), ..keyed("k") };
        let made = dataplane.apply(change("geo-600"), again(at)).await.unwrap();
        assert_eq!((made.applied.generation, made.repeated), (1, false));
        assert!(made.applied.effective_ns >= at.0);
        // The same request again, and another one too far away.
        let again = dataplane.apply(change("geo-600"), again(in_future(40))).await.unwrap();
        assert!(again.repeated && again.applied == made.applied);
        let far = dataplane.apply(change("viasat2"), terms(in_future(11_000))).await;
        assert_eq!(far.unwrap_err().code(), tonic::Code::OutOfRange);
        // It outlasts the patience of callers, and can be withdrawn.
        let waiting = dataplane.apply(change("transparent"), terms(in_future(9_000)));
        let withdraw = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            dataplane.withdraw().await
        };
        let (waited, withdrawn) = tokio::join!(waiting, withdraw);
        assert_eq!(waited.unwrap_err().code(), tonic::Code::Aborted);
        withdrawn.unwrap();
        assert_eq!(dataplane.plan().await.unwrap().plan, plan("geo-600"));
        dataplane.stop().await.unwrap();
    });
    thread.join().unwrap();
}

#[test]
fn clients_of_all_workers_are_held_and_looked_at() {
    let (dataplane, threads) = two_workers();
    // Two clients of each worker.
    let of = |worker: usize| {
        let own = (1..=255).map(|n| format!("10.0.0.{n}"));
        own.filter(move |name| worker_of(name.parse().unwrap(), 2) == worker)
    };
    let names: Vec<String> = of(0).take(4).chain(of(1).take(4)).collect();
    block_on(async {
        let all: Vec<_> = names.iter().map(|name| held(name, Some(1_000_000_000))).collect();
        let before_ns = dataplane.time().0;
        dataplane.hold_clients(&all).await.unwrap();
        let held_now = dataplane.on_hold();
        let mut on_hold: Vec<_> = held_now.iter().map(|it| it.client.clone()).collect();
        on_hold.sort_by_key(|name| names.iter().position(|it| it == name));
        assert_eq!(on_hold, names);
        assert!(held_now.iter().all(|it| (before_ns..=dataplane.time().0).contains(&it.since_ns)));
        let stats = dataplane.stats(false).await.unwrap();
        let known = |name: &String| stats.clients.iter().any(|client| client.client == *name);
        assert!(names.iter().all(known), "{stats:?}");
        let looks = dataplane.look_at_clients(&names).await.unwrap();
        assert_eq!(looks.len(), names.len());
        assert_eq!(looks[0].forward_pipe, Some(pb::PipeLook::default()));
        let ends: Vec<_> = names.iter().map(|name| held(name, None)).collect();
        dataplane.hold_clients(&ends).await.unwrap();
        assert_eq!(dataplane.on_hold(), []);
        // One that ends by itself.
        dataplane.hold_clients(&[held(&names[0], Some(1))]).await.unwrap();
        assert_eq!(dataplane.on_hold(), []);
        let due = pb::HoldClient { forward_due_ns: 77, ..held(&names[0], None) };
        dataplane.hold_clients(&[due]).await.unwrap();
        let looks = dataplane.look_at_clients(&names[..1]).await.unwrap();
        assert_eq!(looks[0].forward_pipe.unwrap().last_due_ns, 77);
        // There is no slot for a fifth one.
        let fifth = of(0).nth(4).unwrap();
        let error = dataplane.hold_clients(&[held(&fifth, Some(1))]).await.unwrap_err().to_string();
        assert!(error.contains(&fifth) && error.contains("--max-clients"), "{error}");
        assert_eq!(dataplane.on_hold(), []);
        for (clients, message) in [
            (vec![held("no name!", Some(1))], "\"no name!\""),
            (vec![held("bypass", Some(1))], "`bypass` is not a client that can move"),
            (vec![held(&names[0], Some(0))], "0 is not within 1 and 60000000000"),
            (vec![held(&names[0], Some(60_000_000_001))], "60000000001 is not within"),
            (vec![held(&names[0], None), held(&names[0], None)], "named twice"),
            (vec![pb::HoldClient { return_due_ns: 1, ..held("a", Some(1)) }], "a due time"),
            (vec![held("a", None); 4097], "4097 are more than 4096"),
        ] {
            let error = dataplane.hold_clients(&clients).await.unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        dataplane.stop().await.unwrap();
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
