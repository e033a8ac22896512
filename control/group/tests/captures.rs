// SPDX-License-Identifier: Apache-2.0
//! One capture at several boxes.

use std::time::Duration;

use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use tokio::time::timeout;
use tonic::{Code, Streaming};

use crate::common::{Lab, fakes, set};

/// The second clock less the first.
const SKEW_NS: i64 = 5_000_000_000;
/// A millisecond: times are this far apart, so that their order is certain although the clocks are not.
const MS: u64 = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(20);

/// Packets of a box at times after its capture began, with numbers from 1.
fn chunk(now_ns: u64, missed: u64, times_ns: &[u64]) -> pb::CaptureChunk {
    let point = pb::CapturePoint::Ingress.into();
    let packet = |(n, at): (u64, &u64)| pb::CapturedPacket {
        time_ns: *at,
        number: n,
        point,
        direction: pb::Direction::Forward.into(),
        ..Default::default()
    };
    pb::CaptureChunk {
        clients: vec!["10.0.0.2".into()],
        packets: (1..).zip(times_ns).map(packet).collect(),
        missed: vec![pb::CaptureMissed { point, copies: missed, ..Default::default() }],
        time_ns: now_ns,
        ..Default::default()
    }
}

/// The two chunks of a box. All simulated boxes have the same clock.
fn chunks(skew_ns: i64, start_ns: u64, chunks: &[(u64, &[u64])]) -> Vec<pb::CaptureChunk> {
    let own = |ns: u64| ns.saturating_add_signed(skew_ns);
    let of = |(missed, (now, times)): (u64, &(u64, &[u64]))| {
        let times: Vec<_> = times.iter().map(|at| own(*at)).collect();
        chunk(own(*now), missed, &times)
    };
    let mut chunks: Vec<_> = (1..).zip(chunks).map(of).collect();
    chunks[0].start = Some(pb::CaptureStart {
        time_ns: own(start_ns),
        profile: "viasat2".into(),
        snaplen: 128,
        generation: 9,
        ..Default::default()
    });
    chunks
}

async fn begin(lab: &Lab, request: pb::CaptureRequest) -> Streaming<pb::CaptureChunk> {
    lab.dataplane.clone().capture(request).await.unwrap().into_inner()
}

async fn rest(stream: &mut Streaming<pb::CaptureChunk>) -> Vec<pb::CaptureChunk> {
    let mut all = Vec::new();
    while let Some(chunk) = timeout(PATIENCE, stream.message()).await.unwrap().unwrap() {
        all.push(chunk);
    }
    all
}

/// Two boxes with skewed clocks and a link; the time of the fakes' common clock.
async fn lab() -> (Lab, u64) {
    let lab = Lab::unsettled(fakes(&[0, SKEW_NS]), "").await;
    lab.group.settle().await.unwrap();
    lab.apply(set("viasat2")).await.unwrap();
    (lab, fake::FakeDataplane::common_ns())
}

#[tokio::test]
async fn capture_has_the_packets_of_all_boxes_on_one_clock() {
    let (lab, t) = lab().await;
    lab.fakes[0].state().capture =
        chunks(0, t, &[(t + 100 * MS, &[t + 10 * MS]), (t + 900 * MS, &[t + 500 * MS])]);
    let of_second =
        [(t + 300 * MS, &[t + 60 * MS, t + 250 * MS][..]), (t + 800 * MS, &[t + 700 * MS])];
    lab.fakes[1].state().capture = chunks(SKEW_NS, t + 50 * MS, &of_second);
    let request = pb::CaptureRequest { snaplen: 77, ..Default::default() };
    let mut stream = begin(&lab, request.clone()).await;
    let all = rest(&mut stream).await;
    for fake in &lab.fakes {
        assert_eq!(fake.state().captures, std::slice::from_ref(&request));
    }
    let start = all[0].start.clone().unwrap();
    assert!(all[1..].iter().all(|chunk| chunk.start.is_none()));
    assert_eq!(
        (&*start.profile, start.generation),
        ("viasat2", lab.plan().await.applied.unwrap().generation)
    );
    assert_eq!(start.boxes, ["b1", "b2"]);
    // The start is that of the second box. Between boxes times are known to the bound of the error.
    let bound = all.iter().map(|chunk| chunk.clock_error_ns).max().unwrap();
    assert!(bound > 0);
    let packets = all.iter().flat_map(|chunk| chunk.packets.iter().map(|it| (chunk.box_index, it)));
    let mut packets: Vec<_> =
        packets.map(|(b, it)| (b, it.number, it.time_ns as i64 - start.time_ns as i64)).collect();
    packets.sort_unstable();
    let [b1, b2]: [Vec<_>; 2] = [0, 1].map(|b| packets.iter().filter(|it| it.0 == b).collect());
    // Numbers of different boxes differ. Those of a box have exact differences of time.
    assert_eq!(b1.iter().map(|it| it.1).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(b2.iter().map(|it| it.1).collect::<Vec<_>>(), [2, 2, 4]);
    assert_eq!(b1[1].2 - b1[0].2, 490 * MS as i64);
    assert_eq!(
        b2.iter().map(|it| it.2).collect::<Vec<_>>(),
        [10, 650, 200].map(|ms| ms * MS as i64)
    );
    assert!((b1[0].2 + 40 * MS as i64).unsigned_abs() <= 2 * bound, "{b1:?} {bound}");
    // Missed copies are those of the chunk's box.
    let missed = |b| all.iter().filter(move |it| it.box_index == b && !it.missed.is_empty());
    assert_eq!(missed(0).map(|it| it.missed[0].copies).collect::<Vec<_>>(), [1, 2]);
    // The time of a chunk is the least time that any box with a running capture has reached.
    let (mut reached, mut last) = ([start.time_ns - 50 * MS, start.time_ns], 0);
    let own = |b: u32| if b == 0 { [100, 900] } else { [300, 800] };
    let mut seen = [0, 0];
    for chunk in &all {
        assert!(chunk.time_ns >= last, "{all:#?}");
        last = chunk.time_ns;
        let b = chunk.box_index as usize;
        if chunk.packets.is_empty() {
            // The end of its capture.
            reached[b] = u64::MAX;
        } else {
            reached[b] = (start.time_ns - 50 * MS) + own(chunk.box_index)[seen[b]] * MS;
            seen[b] += 1;
            let least = reached.iter().min().unwrap();
            assert!(last <= least + 2 * bound, "{last} {reached:?}");
        }
    }
}

#[tokio::test]
async fn capture_of_several_boxes_ends_at_its_count_and_with_its_caller() {
    let (lab, t) = lab().await;
    for (fake, skew) in lab.fakes.iter().zip([0, SKEW_NS]) {
        let mut state = fake.state();
        state.capture = chunks(skew, t, &[(t + 9, &[t + 1, t + 2, t + 3])]);
        state.capture_waits = true;
    }
    let mut stream = begin(&lab, pb::CaptureRequest { count: 4, ..Default::default() }).await;
    let all = rest(&mut stream).await;
    assert_eq!(all.iter().map(|chunk| chunk.packets.len()).sum::<usize>(), 4);
    let none = || lab.fakes.iter().all(|fake| fake.state().capturing == 0);
    let ended = async {
        while !none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, ended).await.unwrap();
    let mut stream = begin(&lab, pb::CaptureRequest::default()).await;
    stream.message().await.unwrap().unwrap();
    // One at a time.
    let refused = lab.dataplane.clone().capture(pb::CaptureRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    drop(stream);
    let again = async {
        while lab.dataplane.clone().capture(pb::CaptureRequest::default()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, again).await.unwrap();
}

#[tokio::test]
async fn box_that_refuses_ends_the_capture_of_the_others() {
    let (lab, t) = lab().await;
    lab.fakes[0].state().capture = chunks(0, t, &[(t + 9, &[t + 1])]);
    lab.fakes[0].state().capture_waits = true;
    let refusal = tonic::Status::resource_exhausted("another capture runs");
    lab.fakes[1].state().refuse = Some(refusal);
    let refused = lab.dataplane.clone().capture(pb::CaptureRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "box b2: another capture runs");
    let ended = async {
        while lab.fakes[0].state().capturing > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, ended).await.unwrap();
}

#[tokio::test]
async fn box_that_dies_is_stated_and_the_others_continue() {
    let (mut lab, t) = lab().await;
    for (fake, skew) in lab.fakes.iter().zip([0, SKEW_NS]) {
        let mut state = fake.state();
        state.capture = chunks(skew, t, &[(t + 9, &[t + 1])]);
        state.capture_waits = true;
    }
    let mut stream = begin(&lab, pb::CaptureRequest::default()).await;
    let mut last_ns = 0;
    for _ in 0..2 {
        let chunk = stream.message().await.unwrap().unwrap();
        assert_eq!(chunk.lost, None);
        if chunk.box_index == 1 {
            last_ns = chunk.packets[0].time_ns;
        }
    }
    lab.stop(1);
    let chunk = timeout(PATIENCE, stream.message()).await.unwrap().unwrap().unwrap();
    let lost = chunk.lost.unwrap();
    assert_eq!((chunk.box_index, lost.time_ns), (1, last_ns));
    assert!(!lost.message.is_empty());
    println!("{}", lost.message);
    // The first box still captures.
    assert_eq!(lab.fakes[0].state().capturing, 1);
    assert!(timeout(Duration::from_millis(50), stream.message()).await.is_err());
    drop(stream);

    // A capture that begins without it says so at once; of its clients alone it is refused.
    lab.until("the box is down", |boxes| !boxes[1].up).await;
    let free = async {
        loop {
            let answer = lab.dataplane.clone().capture(pb::CaptureRequest::default()).await;
            if let Ok(stream) = answer {
                return stream.into_inner();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let mut stream = timeout(PATIENCE, free).await.unwrap();
    let chunk = stream.message().await.unwrap().unwrap();
    assert!(chunk.start.is_some());
    let lost = chunk.lost.unwrap();
    assert!(lost.message.contains("it was down at the start"), "{}", lost.message);
    drop(stream);
    let list = lab.boxes.clone().list_boxes(dp::ListBoxesRequest {}).await.unwrap().into_inner();
    let bucket = list.owners.unwrap().buckets.iter().position(|owner| *owner == 1).unwrap();
    let clients = vec![format!("10.0.0.{bucket}")];
    let request = pb::CaptureRequest { clients, ..Default::default() };
    let refused = lab.dataplane.clone().capture(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("box b2 is down"), "{}", refused.message());
}
