// SPDX-License-Identifier: Apache-2.0
//! Ports, pools and buffers on a real EAL without hugepages, privileges or network.

use crate::common::{eal, frame, open, pool, receive, send};
use dpdk::{Error, MbufBurst, Mempool, Port, PortConfig, RX_BURST};

#[test]
fn eal_reports_its_release_and_starts_once() {
    assert!(eal().version().starts_with("DPDK "), "{}", eal().version());
    let options = dpdk::EalOptions::new(dpdk::Memory::NoHuge { megabytes: 64 });
    assert!(matches!(dpdk::Eal::init(&options), Err(Error::AlreadyInitialised)));
}

#[test]
fn ring_returns_frames_unchanged() {
    let pool = pool("ring");
    let (port, mut rx, mut tx) = open("loop", "net_ring", &pool);
    let frames: Vec<Vec<u8>> =
        (0..500).map(|number| frame(number, 60 + 3 * number as usize)).collect();
    let mut back = Vec::new();
    for chunk in frames.chunks(100) {
        send(&mut tx, &pool, chunk);
        back.extend(receive(&mut rx, chunk.len(), |_| true));
    }
    assert_eq!(back.len(), frames.len());
    assert!(back.iter().map(|(bytes, _)| bytes).eq(&frames));
    assert!(back.iter().all(|(_, vlan)| vlan.is_none()));
    let counters = port.counters().unwrap();
    assert_eq!((counters.rx_packets, counters.tx_packets), (500, 500));
    assert_eq!(port.info().driver, "net_ring");
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn dropped_port_frees_packets_in_its_ring() {
    let pool = pool("left");
    let (port, rx, mut tx) = open("left", "net_ring", &pool);
    send(&mut tx, &pool, &[frame(1, 60), frame(2, 60)]);
    assert_eq!(pool.in_use(), 2);
    drop((port, tx));
    assert_eq!(pool.in_use(), 2, "the receive queue keeps the port open");
    drop(rx);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn full_ring_refuses_the_rest_in_order() {
    let pool = pool("full");
    let (_port, mut rx, mut tx) = open("full", "net_ring", &pool);
    let mut staged = MbufBurst::new();
    let mut number = 0;
    loop {
        while !staged.is_full() {
            staged.push(pool.alloc(&frame(number, 60)).unwrap()).unwrap();
            number += 1;
        }
        if tx.burst(&mut staged) < MbufBurst::CAPACITY {
            break;
        }
    }
    assert!(!staged.is_empty());
    let first = number - staged.len() as u32;
    for (mbuf, expected) in staged.as_slice().iter().zip(first..) {
        assert_eq!(mbuf.contiguous().unwrap(), frame(expected, 60));
    }
    let got = receive(&mut rx, first as usize, |_| true);
    assert!(got.iter().zip(0..).all(|((bytes, _), number)| *bytes == frame(number, 60)));
    staged.clear();
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn net_null_sends_and_receives_full_bursts() {
    let pool = pool("null");
    let (port, mut rx, mut tx) = open("null", "net_null,size=64", &pool);
    let mut burst = MbufBurst::new();
    for _ in 0..100 {
        assert_eq!(rx.burst(&mut burst), RX_BURST);
        assert!(burst.as_slice().iter().all(|mbuf| mbuf.len() == 64));
        assert_eq!(tx.burst(&mut burst), RX_BURST);
        assert!(burst.is_empty());
    }
    assert_eq!(pool.in_use(), 0);
    assert_eq!(port.counters().unwrap().tx_packets, 100 * RX_BURST as u64);
    let mut waiter = rx.waiter().unwrap();
    assert!(waiter.is_blind());
    waiter.wait(std::time::Duration::from_secs(60));
}

#[test]
fn burst_receives_up_to_its_free_capacity() {
    let pool = pool("burst");
    let (_port, mut rx, _tx) = open("burst", "net_null", &pool);
    let mut burst = MbufBurst::new();
    assert_eq!(rx.burst(&mut burst), RX_BURST);
    assert_eq!(rx.burst(&mut burst), RX_BURST);
    assert_eq!(rx.burst(&mut burst), 0);
    let extra = pool.alloc(b"one more").unwrap();
    let extra = burst.push(extra).unwrap_err();
    assert_eq!(extra.contiguous(), Some(&b"one more"[..]));
    assert_eq!(burst.drain().take(10).count(), 10);
    assert!(burst.is_empty(), "the rest went with the iterator");
    drop(extra);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn every_buffer_is_accounted_for() {
    let pool = Mempool::new(eal(), "count", 63, 2048).unwrap();
    assert_eq!((pool.available(), pool.in_use()), (63, 0));
    let held: Vec<_> = std::iter::from_fn(|| pool.alloc(&[7; 60])).collect();
    assert_eq!(held.len(), 63);
    assert_eq!((pool.available(), pool.in_use()), (0, 63));
    drop(held);
    assert_eq!((pool.available(), pool.in_use()), (63, 0));
}

#[test]
fn frames_larger_than_a_buffer_take_a_chain() {
    let pool = Mempool::new(eal(), "chain", 63, 512).unwrap();
    let bytes = frame(9, 1514);
    let mbuf = pool.alloc_parts(&bytes[..100], &bytes[100..]).unwrap();
    assert_eq!((mbuf.len(), mbuf.contiguous()), (1514, None));
    assert!(mbuf.segments() > 1);
    let mut out = vec![0; 2000];
    assert_eq!(mbuf.copy_into(&mut out), 1514);
    assert_eq!(out[..1514], bytes);
    assert_eq!(mbuf.copy_into(&mut out[..700]), 700);
    assert!(pool.alloc(&vec![0; 100 * 512]).is_none(), "more than the pool has");
    drop(mbuf);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn frame_can_be_changed_in_place() {
    let pool = pool("change");
    let mut mbuf = pool.alloc(&frame(1, 60)).unwrap();
    mbuf.contiguous_mut().unwrap()[59] = 0xee;
    assert_eq!(mbuf.contiguous().unwrap()[59], 0xee);
    assert!(mbuf.restore_vlan(), "nothing was stripped");
    assert_eq!(mbuf.len(), 60);
}

#[test]
fn queues_move_to_registered_threads() {
    let pool = pool("threads");
    let (port, mut rx, mut tx) = open("threads", "net_ring", &pool);
    let sender = pool.clone();
    let frames: Vec<Vec<u8>> = (0..300).map(|number| frame(number, 60)).collect();
    let sent = frames.clone();
    let out = std::thread::spawn(move || {
        let _lcore = eal().register_thread().unwrap();
        send(&mut tx, &sender, &sent);
    });
    let back = std::thread::spawn(move || {
        let _lcore = eal().register_thread().unwrap();
        let _again = eal().register_thread().unwrap();
        receive(&mut rx, 300, |_| true)
    });
    out.join().unwrap();
    let back = back.join().unwrap();
    assert!(back.iter().map(|(bytes, _)| bytes).eq(&frames));
    drop(port);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn port_can_be_reopened_under_its_name() {
    let pool = pool("again");
    for _ in 0..3 {
        drop(open("again", "net_null", &pool));
        drop(open("again", "net_ring", &pool));
    }
}

#[test]
fn unknown_driver_error_names_the_nearest() {
    let error = Port::attach(eal(), "x", &"net_af_paket,iface=lo".parse().unwrap()).unwrap_err();
    assert!(matches!(error, Error::UnknownDriver { .. }), "{error}");
    assert!(error.to_string().contains("did you mean `net_af_packet`?"), "{error}");
}

#[test]
fn missing_interface_error_lists_existing_ones() {
    let spec = "net_af_packet,iface=nosuch0".parse().unwrap();
    let error = Port::attach(eal(), "wan", &spec).unwrap_err();
    assert!(matches!(error, Error::NoInterface { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("`wan`") && text.contains("`nosuch0`"), "{text}");
}

#[test]
fn missing_pci_device_error_names_it() {
    let error = Port::attach(eal(), "wan", &"ffff:ff:1f.7".parse().unwrap()).unwrap_err();
    assert!(matches!(error, Error::Pci { .. }), "{error}");
}

#[test]
fn device_serves_one_port() {
    let spec = "net_null7".parse().unwrap();
    let first = Port::attach(eal(), "first", &spec).unwrap();
    let error = Port::attach(eal(), "second", &spec).unwrap_err();
    assert!(matches!(error, Error::SameDevice { .. }), "{error}");
    assert!(error.to_string().contains("`first` and `second`"), "{error}");
    drop(first);
    Port::attach(eal(), "second", &spec).unwrap();
}

#[test]
fn refused_driver_arguments_are_shown() {
    let spec = "net_null,nosuch=1".parse().unwrap();
    let error = Port::attach(eal(), "args", &spec).unwrap_err();
    assert!(error.to_string().contains("net_null_args,nosuch=1"), "{error}");
}

#[test]
fn too_many_queues_are_refused_with_the_limit() {
    let pool = pool("queues");
    let port = Port::attach(eal(), "queues", &"net_ring".parse().unwrap()).unwrap();
    let most = port.info().max_rx_queues;
    let error = port.start(&PortConfig::new(&pool).with_queues(most + 1)).unwrap_err();
    assert!(error.to_string().contains(&format!("1 to {most}")), "{error}");
    let port = Port::attach(eal(), "queues", &"net_ring".parse().unwrap()).unwrap();
    assert!(port.start(&PortConfig::new(&pool).with_queues(0)).is_err());
}

#[test]
fn impossible_pools_are_refused_with_the_numbers() {
    let error = Mempool::new(eal(), "huge", 10_000_000, 2048).unwrap_err();
    assert!(error.to_string().contains("`huge` of 10000000 buffers"), "{error}");
    assert!(Mempool::new(eal(), "", 63, 2048).is_err());
    assert!(Mempool::new(eal(), "a name with spaces", 63, 2048).is_err());
    assert!(Mempool::new(eal(), "room", 63, u16::MAX).is_err());
    let _one = Mempool::new(eal(), "twice", 63, 2048).unwrap();
    assert!(Mempool::new(eal(), "twice", 63, 2048).is_err());
}

#[test]
fn pool_uses_the_memory_of_its_node_or_is_refused() {
    let pool = Mempool::on_node(eal(), "node", 63, 2048, Some(0)).unwrap();
    assert!(pool.alloc(&[0; 60]).is_some());
    let error = Mempool::on_node(eal(), "nowhere", 63, 2048, Some(31)).unwrap_err();
    assert!(error.to_string().contains("mempool `nowhere`"), "{error}");
}
