// SPDX-License-Identifier: Apache-2.0
//! What is said to be in force is what the workers run.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use compile::compile;
use dataplane::accounts::PortAccount;
use dataplane::dataplane::{Dataplane, DataplaneError, Fixed, Ports};
use dpdk::TscClock;
use emu::engine::{Engine, Limits};
use emu::plan::Room;
use emu::units::Instant;
use proto::dataplane::v1 as pb;
use worker::command::channel;
use worker::run::{Idle, Worker};
use worker::sim::SimIo;

struct NoPorts;

impl Ports for NoPorts {
    fn accounts(&self) -> [PortAccount; 2] {
        Default::default()
    }
}

fn plan(profile: &str) -> pb::Plan {
    let profile = profile::Catalog::built_in().get(profile).unwrap().as_proto().clone();
    pb::Plan { profile: Some(profile), seed: 1 }
}

/// A dataplane with one worker over ports on which nothing arrives.
fn dataplane(capacity: u64) -> (Dataplane, thread::JoinHandle<()>) {
    let clock = TscClock::calibrate(Duration::from_millis(10));
    let (handle, inbox) = channel(4);
    let running = plan("transparent");
    let compiled = compile(&running).unwrap();
    let thread = thread::spawn(move || {
        let limits = Limits { memory: 1 << 20, clients: 4, frame: 1514 };
        let engine = Engine::new(limits, compiled, Instant::ZERO).unwrap();
        Worker::new(engine, SimIo::new(Vec::new(), 1), clock, inbox, Idle::Busy).run();
    });
    let room = Room { clients: 4, port_bps: 10_000_000_000, frame: 1514, capacity };
    let fixed = Fixed { room, ..Fixed::default() };
    (Dataplane::new(vec![handle], clock, Box::new(NoPorts), fixed, running), thread)
}

fn block_on<F: Future>(f: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f)
}

#[test]
fn a_change_whose_caller_goes_away_is_made_and_said() {
    let (dataplane, thread) = dataplane(1 << 40);
    block_on(async {
        {
            let mut apply = pin!(dataplane.apply(plan("geo-600"), true, None));
            // Once polled, it is on its way; the caller then hangs up.
            poll_fn(|cx| Poll::Ready(apply.as_mut().poll(cx).is_pending())).await;
            tokio::task::yield_now().await;
        }
        let stats = loop {
            let stats = dataplane.stats(false).await.unwrap();
            if stats.generation > 0 {
                break stats;
            }
        };
        let (in_force, applied) = dataplane.plan().await;
        assert_eq!(applied.generation, stats.generation);
        assert_eq!(in_force, plan("geo-600"));
        let next = dataplane.apply(plan("transparent"), false, None).await.unwrap();
        assert_eq!(next.generation, 2);
        dataplane.stop().await.unwrap();
    });
    thread.join().unwrap();
}

#[test]
fn what_is_refused_changes_nothing() {
    let (dataplane, thread) = dataplane(100_000_000);
    block_on(async {
        let refused = dataplane.apply(plan("viasat2"), true, None).await.unwrap_err();
        assert!(matches!(refused, DataplaneError::Refused(_)), "{refused}");
        let mut hostile = plan("geo-600");
        let forward = hostile.profile.as_mut().unwrap().forward_pipe.as_mut().unwrap();
        forward.delay = None;
        forward.queue.as_mut().unwrap().limit_bytes = 1;
        let invalid = dataplane.apply(hostile, true, None).await.unwrap_err();
        assert!(matches!(invalid, DataplaneError::Invalid(_)), "{invalid}");
        let stale = dataplane.apply(plan("transparent"), true, Some(7)).await.unwrap_err();
        assert!(matches!(stale, DataplaneError::Generation { current: 0, expected: 7 }));
        let (in_force, applied) = dataplane.plan().await;
        assert_eq!((in_force, applied.generation), (plan("transparent"), 0));
        assert_eq!(dataplane.stats(false).await.unwrap().generation, 0);
        dataplane.stop().await.unwrap();
        // After its end it says so, at once.
        thread.join().unwrap();
        assert!(dataplane.stats(false).await.is_err());
    });
}
