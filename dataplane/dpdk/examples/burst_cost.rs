// SPDX-License-Identifier: Apache-2.0
//! Cost of a packet through the safe wrapper, on a cheap device, in processor time of the thread:
//! `cargo run --release -p dpdk --example burst_cost`.

use std::hint::black_box;
use std::time::Duration;

use dpdk::{
    Eal, EalOptions, Error, MbufBurst, Memory, Mempool, Port, PortConfig, RX_BURST, TscClock,
};

use nix::time::{ClockId, clock_gettime};

const ROUNDS: u64 = 100_000;

fn cpu_ns() -> i64 {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(0, |time| time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}

fn main() -> Result<(), Error> {
    let eal = Eal::init(&EalOptions::new(Memory::available(256)))?;
    let pool = Mempool::new(&eal, "bench", 8191, 2048)?;
    let clock = TscClock::calibrate(Duration::from_millis(500));
    println!("{}, counter {:?} Hz ± {:.2} ppm", eal.version(), clock.hz(), clock.error_ppm());

    let spec = "net_null,size=64".parse()?;
    let (_port, mut rx, mut tx) =
        Port::attach(&eal, "null", &spec)?.start(&PortConfig::new(&pool))?;
    let (mut rx, mut tx) = (rx.remove(0), tx.remove(0));
    let mut burst = MbufBurst::new();
    let mut staged = MbufBurst::new();
    let per_packet = |name: &str, step: &mut dyn FnMut()| {
        let mut best = f64::INFINITY;
        for _ in 0..9 {
            let start = cpu_ns();
            for _ in 0..ROUNDS {
                step();
            }
            best = best.min((cpu_ns() - start) as f64 / (ROUNDS * RX_BURST as u64) as f64);
        }
        println!("{name:44} {best:6.2} ns a packet, {:7.1} ns a burst", best * RX_BURST as f64);
    };

    per_packet("receive and send, burst 32", &mut || {
        rx.burst(&mut burst);
        tx.burst(&mut burst);
    });
    per_packet("receive and free in bulk", &mut || {
        rx.burst(&mut burst);
        burst.clear();
    });
    per_packet("receive, read a byte of each, restage, send", &mut || {
        rx.burst(&mut burst);
        for mbuf in burst.drain() {
            black_box(mbuf.contiguous().map(|frame| frame[12]));
            let _ = staged.push(mbuf);
        }
        tx.burst(&mut staged);
    });
    let frame = [0x5a; 64];
    per_packet("allocate with a copy of 64 bytes, send", &mut || {
        for _ in 0..RX_BURST {
            if let Some(mbuf) = pool.alloc(black_box(&frame)) {
                let _ = staged.push(mbuf);
            }
        }
        tx.burst(&mut staged);
    });
    per_packet("read the clock (32 times a burst)", &mut || {
        for _ in 0..RX_BURST {
            black_box(clock.now());
        }
    });
    println!("drift {:?}; buffers in use {}", clock.drift(), pool.in_use());
    Ok(())
}
