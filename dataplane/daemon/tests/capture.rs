// SPDX-License-Identifier: Apache-2.0
//! A capture shows each packet of a client come and go, ends as asked, and leaves nothing.

use std::thread;
use std::time::Duration;

use compile::compile;
use dataplane::accounts::PortAccount;
use dataplane::dataplane::{Chunks, Dataplane, DataplaneError, Fixed, Ports};
use dpdk::TscClock;
use emu::engine::{Engine, Limits};
use emu::units::{Direction, Instant};
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use worker::command::channel;
use worker::run::{Idle, Worker};
use worker::sim::{self, Arrival, SimIo};

/// A packet for one client each millisecond, for another one as well.
const EVERY_NS: u64 = 1_000_000;

struct NoPorts;

impl Ports for NoPorts {
    fn accounts(&self) -> Vec<[PortAccount; 2]> {
        vec![Default::default()]
    }
}

/// A dataplane with packets for two workers for a minute.
fn dataplane() -> (Dataplane, Vec<thread::JoinHandle<()>>) {
    let clock = TscClock::calibrate(Duration::from_millis(10));
    let profile = profile::Catalog::built_in().get("transparent").unwrap().as_proto().clone();
    let plan = pb::Plan { profile: Some(profile), seed: 1, ..pb::Plan::default() };
    let compiled = compile(&plan).unwrap();
    let workers = [1_u8, 2].map(|worker| {
        let (handle, inbox) = channel(4);
        let compiled = compiled.clone();
        let thread = thread::spawn(move || {
            let limits = Limits::copying(1 << 20, 4, 1514);
            let mut engine = Engine::new(limits, compiled, Instant::ZERO).unwrap();
            sim::resolve(&mut engine, Instant::ZERO, [[10, 0, 0, worker].into()]);
            let arrivals = (1..60_000).map(|n| arrival(n, worker)).collect();
            let io = SimIo::new(arrivals, 1);
            Worker::new(engine, io, clock, inbox, Idle::Adaptive).run();
        });
        (handle, thread)
    });
    let (handles, threads): (Vec<_>, Vec<_>) = workers.into_iter().unzip();
    (Dataplane::new(handles, clock, Box::new(NoPorts), Fixed::default(), plan), threads)
}

fn arrival(n: u64, worker: u8) -> Arrival {
    let mut frame = vec![worker; 300];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[16..18].copy_from_slice(&286_u16.to_be_bytes());
    frame[26..30].copy_from_slice(&[192, 0, 2, 1]);
    frame[30..34].copy_from_slice(&[10, 0, 0, worker]);
    Arrival { at: Instant(n * EVERY_NS), direction: Direction::Forward, frame }
}

async fn packets(
    mut chunks: Chunks,
) -> (Vec<(String, model::CapturedPacket)>, model::CaptureStart) {
    let (mut all, mut start) = (Vec::new(), None);
    while let Some(chunk) = chunks.recv().await {
        let chunk = chunk.unwrap();
        assert_eq!(chunk.missed, []);
        let names = chunk.clients;
        start = start.or(chunk.start);
        all.extend(chunk.packets.into_iter().map(|p| (names[p.client as usize].clone(), p)));
    }
    (all, start.unwrap())
}

/// Starts a capture, once the taps of the one before are off.
async fn capture(dataplane: &Dataplane, request: &model::CaptureRequest) -> Chunks {
    loop {
        match dataplane.capture(request).await {
            Err(DataplaneError::Capturing) => tokio::time::sleep(Duration::from_millis(1)).await,
            chunks => return chunks.unwrap(),
        }
    }
}

fn block_on<F: Future>(f: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f)
}

async fn end(dataplane: &Dataplane, threads: Vec<thread::JoinHandle<()>>) {
    dataplane.stop().await.unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_capture_ends_with_as_many_copies_as_were_asked_for() {
    let (dataplane, threads) = dataplane();
    block_on(async {
        let request = model::CaptureRequest { count: 101, snaplen: 60, ..Default::default() };
        let (all, start) = packets(dataplane.capture(&request).await.unwrap()).await;
        assert_eq!(all.len(), 101);
        assert_eq!((&*start.profile, start.generation, start.snaplen), ("transparent", 0, 60));
        assert!(start.utc.unwrap().seconds > 1_700_000_000);
        for (client, p) in &all {
            assert!(p.length == 300 && p.data.len() == 60);
            // The numbers of all workers are apart.
            let worker = if client == "10.0.0.1" { 1 } else { 0 };
            assert!(p.number > 0 && p.number % 2 == worker, "{client} {}", p.number);
            if p.point() == model::CapturePoint::Egress {
                let of = |p: &model::CapturedPacket| (p.number, p.point());
                let came = (p.number, model::CapturePoint::Ingress);
                assert_eq!(all.iter().filter(|(_, q)| of(q) == came).count(), 1);
            }
        }
        assert!(all.iter().any(|(_, p)| p.point() == model::CapturePoint::Egress));
        end(&dataplane, threads).await;
    });
}

#[test]
fn a_capture_has_the_client_that_was_asked_for_and_ends_in_time() {
    let (dataplane, threads) = dataplane();
    block_on(async {
        let request = model::CaptureRequest {
            clients: vec!["10.0.0.2".into()],
            direction: model::Direction::Forward.into(),
            duration_ns: 50_000_000,
            ..Default::default()
        };
        // A worker that was not scheduled meanwhile has seen nothing.
        for attempt in 0.. {
            let (all, start) = packets(capture(&dataplane, &request).await).await;
            let until = start.time_ns + 50_000_000;
            let is_wanted = |(client, p): &(String, model::CapturedPacket)| {
                client == "10.0.0.2" && p.time_ns < until && p.data.len() == 128
            };
            assert!(all.iter().all(is_wanted));
            if !all.is_empty() {
                break;
            }
            assert!(attempt < 50, "nothing is captured");
        }
        // Without a receiver nothing is captured.
        let request = model::CaptureRequest { clients: vec!["10.9.9.9".into()], ..request };
        assert_eq!(packets(capture(&dataplane, &request).await).await.0, []);
        end(&dataplane, threads).await;
    });
}

#[test]
fn a_second_capture_waits_for_the_first_ones_end_which_is_when_its_caller_goes_away() {
    let (dataplane, threads) = dataplane();
    block_on(async {
        let forever = model::CaptureRequest::default();
        let first = dataplane.capture(&forever).await.unwrap();
        let second = dataplane.capture(&forever).await;
        assert!(matches!(second, Err(DataplaneError::Capturing)));
        drop(first);
        // Its taps are taken off first.
        let third = loop {
            match dataplane.capture(&forever).await {
                Ok(third) => break third,
                Err(DataplaneError::Capturing) => {
                    tokio::time::sleep(Duration::from_millis(1)).await
                }
                Err(error) => panic!("{error}"),
            }
        };
        // The end of the workers ends it.
        dataplane.stop().await.unwrap();
        packets(third).await;
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn what_cannot_be_captured_is_refused_by_name() {
    let (dataplane, threads) = dataplane();
    block_on(async {
        let clients = |clients| model::CaptureRequest { clients, ..Default::default() };
        let cases = [
            (clients(vec!["10.0.0.256".into()]), "10.0.0.256"),
            (clients(vec!["nobody".into()]), "nobody"),
            (clients(vec!["x".repeat(1 << 16)]), "xxx"),
            (clients(vec![String::new()]), "\"\""),
            (clients(vec!["10.0.0.1".into(); 65]), "65"),
            (model::CaptureRequest { snaplen: 10_225, ..Default::default() }, "10225"),
            (model::CaptureRequest { direction: 3, ..Default::default() }, "direction: 3"),
        ];
        for (request, expected) in cases {
            let error = dataplane.capture(&request).await.unwrap_err().to_string();
            assert!(error.contains(expected) && error.len() < 200, "{error}");
        }
        // Rejected requests do not occupy the slot.
        let request = model::CaptureRequest { duration_ns: 1, ..Default::default() };
        packets(capture(&dataplane, &request).await).await;
        end(&dataplane, threads).await;
    });
}
