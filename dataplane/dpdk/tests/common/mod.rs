// SPDX-License-Identifier: Apache-2.0
//! One EAL per test process, without hugepages, and helpers shared by the tests.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dpdk::{
    Eal, EalOptions, MbufBurst, Memory, Mempool, Port, PortConfig, RxQueue, StartedPort, TxQueue,
};

pub fn eal() -> &'static Eal {
    static EAL: OnceLock<Eal> = OnceLock::new();
    EAL.get_or_init(|| {
        Eal::init(&EalOptions::new(Memory::NoHuge { megabytes: 128 })).expect("EAL starts")
    })
}

/// A pool of 2047 buffers that hold ordinary frames.
pub fn pool(name: &str) -> Mempool {
    Mempool::new(eal(), name, 2047, 2048).expect("there is memory")
}

/// A port with one queue each way.
pub fn open(name: &str, spec: &str, pool: &Mempool) -> (StartedPort, RxQueue, TxQueue) {
    let port = Port::attach(eal(), name, &spec.parse().unwrap()).expect("the port attaches");
    let (port, mut rx, mut tx) = port.start(&PortConfig::new(pool)).expect("the port starts");
    (port, rx.remove(0), tx.remove(0))
}

/// Sends `frames` in order, with a deadline.
pub fn send(tx: &mut TxQueue, pool: &Mempool, frames: &[Vec<u8>]) {
    let mut staged = MbufBurst::new();
    let mut frames = frames.iter();
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        while !staged.is_full() {
            let Some(frame) = frames.next() else { break };
            staged.push(pool.alloc(frame).expect("the pool has buffers")).unwrap();
        }
        if staged.is_empty() {
            return;
        }
        tx.burst(&mut staged);
        assert!(Instant::now() < deadline, "{} frames refused for 10 s", staged.len());
    }
}

/// Receives until `count` frames that satisfy `wanted` have arrived, with a deadline. Returns them
/// with their stripped tags.
pub fn receive(
    rx: &mut RxQueue,
    count: usize,
    wanted: impl Fn(&[u8]) -> bool,
) -> Vec<(Vec<u8>, Option<u16>)> {
    let mut burst = MbufBurst::new();
    let mut frames = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(10);
    while frames.len() < count && Instant::now() < deadline {
        if rx.burst(&mut burst) == 0 {
            dpdk::pause();
        }
        for mbuf in burst.drain() {
            let mut bytes = vec![0; mbuf.len()];
            assert_eq!(mbuf.copy_into(&mut bytes), mbuf.len());
            if wanted(&bytes) {
                frames.push((bytes, mbuf.stripped_vlan()));
            }
        }
    }
    frames
}

/// An Ethernet frame of `len` bytes of an experimental type that contains `number`.
pub fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0, 0, 0, 0, 1, 0x88, 0xb5];
    bytes.extend(number.to_be_bytes());
    bytes.extend((bytes.len()..len).map(|at| (at as u32 ^ number) as u8));
    bytes.truncate(len);
    bytes
}

/// True for frames that [`frame`] made.
pub fn is_ours(bytes: &[u8]) -> bool {
    bytes.get(12..14) == Some(&[0x88, 0xb5])
}
