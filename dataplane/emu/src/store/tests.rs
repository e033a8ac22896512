// SPDX-License-Identifier: Apache-2.0
//! The store against double-ended queues.

use super::*;
use crate::frame::Frame;
use crate::units::Instant;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::rc::Rc;

/// A driver's buffer; counts those that are not freed.
#[derive(Debug)]
struct Owned(Vec<u8>, #[allow(dead_code, reason = "counts")] Rc<()>);

impl Buffer for Owned {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// The bytes and the tag of a frame that leaves.
fn leaving((frame, tagged, len): Held<'_, Owned>) -> (Vec<u8>, Vec<u8>) {
    assert_eq!(frame.bytes().len(), len as usize);
    let packed = [tagged.tag(), frame.bytes()].concat();
    assert!(matches!(frame, Frame::Buffer(_)) || tagged.whole() == packed);
    (frame.bytes().to_vec(), tagged.tag().to_vec())
}

#[derive(Clone, Debug)]
enum Step {
    Push(u16, Option<u8>),
    Keep(u16, Option<u8>),
    Depart(bool),
    Pop,
}

fn step() -> impl Strategy<Value = Step> {
    let tag = || prop::option::of(1_u8..=10);
    let frame = || (prop_oneof![Just(60_u16), 1_u16..2000, Just(10_224)], tag());
    prop_oneof![
        3 => frame().prop_map(|(len, tag)| Step::Push(len, tag)),
        2 => frame().prop_map(|(len, tag)| Step::Keep(len, tag)),
        2 => any::<bool>().prop_map(Step::Depart),
        2 => Just(Step::Pop),
    ]
}

proptest! {
    /// Two fifos in one store behave as two double-ended queues do, and give
    /// all memory back; some of the frames have tags.
    #[test]
    fn fifo_keeps_bytes_and_tags_in_order(steps in prop::collection::vec((any::<bool>(), step()), 1..400)) {
        let mut store = Store::new(96 * SEGMENT as usize, 6).unwrap();
        let out = Rc::new(());
        let mut fifos = [Fifo::default(), Fifo::default()];
        let mut queued = [VecDeque::new(), VecDeque::new()];
        type Shown = (Vec<u8>, Vec<u8>);
        let mut delayed: [VecDeque<(u64, Shown)>; 2] = Default::default();
        for (n, (which, step)) in steps.into_iter().enumerate() {
            let i = usize::from(which);
            let f = &mut fifos[i];
            match step {
                Step::Push(len, tag) => {
                    let frame: Vec<u8> = (0..len).map(|b| (b as u8) ^ (n as u8)).collect();
                    let tag = vec![n as u8; usize::from(tag.unwrap_or(0)) * 4];
                    if f.push(&mut store, Instant(7), &frame, &tag).is_ok() {
                        queued[i].push_back((frame, tag));
                    }
                }
                Step::Keep(len, tag) => {
                    let tag = vec![n as u8; usize::from(tag.unwrap_or(0)) * 4];
                    let frame: Vec<u8> = (0..len).map(|b| (b as u8) ^ (n as u8)).collect();
                    let mut buffer = Some(Owned(frame.clone(), out.clone()));
                    if f.keep(&mut store, Instant(7), &mut buffer, &tag).is_ok() {
                        queued[i].push_back((frame, tag));
                    } else {
                        prop_assert!(buffer.is_some());
                    }
                }
                Step::Depart(survives) => {
                    let due = survives.then_some(Instant(n as u64));
                    f.depart(&mut store, due);
                    if let Some(frame) = queued[i].pop_front() && survives {
                        delayed[i].push_back((n as u64, frame));
                    }
                }
                Step::Pop => {
                    f.pop(&mut store);
                    delayed[i].pop_front();
                }
            }
            for i in 0..2 {
                while fifos[i].head() == Some(Head::Lost) {
                    prop_assert!(fifos[i].frame(&mut store).is_none());
                    fifos[i].pop(&mut store);
                }
                let ready = fifos[i].head().map(|h| match h {
                    Head::Due(due) => (due.0, leaving(fifos[i].frame(&mut store).unwrap())),
                    Head::Lost => unreachable!(),
                });
                let expected = delayed[i].front().cloned();
                prop_assert_eq!(ready, expected.clone());
                let mut show = |place| store.look(place, |tag, frame| (frame.to_vec(), tag.to_vec()));
                prop_assert_eq!(fifos[i].place_due().map(&mut show), expected.map(|(_, f)| f));
                let first = fifos[i].place_queued().map(show);
                prop_assert_eq!(first, queued[i].front().cloned());
                let first = fifos[i].queued(&store).map(|head| head.bytes());
                prop_assert_eq!(first, queued[i].front().map(|f: &Shown| f.0.len() as u32));
            }
        }
        for (i, f) in fifos.iter_mut().enumerate() {
            for _ in 0..queued[i].len() {
                f.depart(&mut store, Some(Instant(0)));
            }
            while f.head().is_some() {
                f.pop(&mut store);
            }
        }
        prop_assert_eq!(store.used(), 0);
        prop_assert_eq!(store.buffers(), 0);
        prop_assert_eq!(Rc::strong_count(&out), 1);
    }
}

#[test]
fn full_store_refuses_frames_and_stays_consistent() {
    let mut store = Store::<NoBuffer>::new(8 * SEGMENT as usize, 0).unwrap();
    let mut f = Fifo::default();
    let mut n = 0;
    while f.push(&mut store, Instant::ZERO, &[7; 1514], &[]).is_ok() {
        n += 1;
    }
    // Less than a header is left at the end of a segment.
    assert_eq!(n, 8 * SEGMENT / record_size(1514));
    for _ in 0..n {
        f.depart(&mut store, Some(Instant(1)));
        f.pop(&mut store);
    }
    assert_eq!(store.used(), 0);
    assert!(f.push(&mut store, Instant::ZERO, &[7; 1514], &[]).is_ok());
}
