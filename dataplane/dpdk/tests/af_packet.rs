// SPDX-License-Identifier: Apache-2.0
//! `net_af_packet` over veth pairs. Each test runs in a network namespace of its thread, which ends
//! with the thread, even after a failure. Needs root; otherwise the tests are skipped with a
//! message. The tests share one process, so each uses unique port names.

use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{eal, frame, is_ours, open, pool, receive, send};
use dpdk::{Error, Mempool, OffloadsOff, Port, PortConfig, Waiter};
use interface::{Offload, disable_offloads, offloads};
use nix::sched::{CloneFlags, unshare};

/// Runs `test` in a new network namespace with a veth pair `a0`–`b0` that is up.
fn with_veth(test: fn()) {
    eal();
    let outcome = thread::spawn(move || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            eprintln!("SKIPPED: no network namespace of our own ({error}): run as root");
            return;
        }
        // IPv6 traffic of the interfaces would disturb the counts.
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        for command in [
            "link set lo up",
            "link add a0 type veth peer name b0",
            "link set a0 up",
            "link set b0 up",
        ] {
            if !ip(command) {
                eprintln!("SKIPPED: `ip {command}` failed");
                return;
            }
        }
        let name = format!("lock{}", nix::unistd::gettid());
        match Port::attach(eal(), &name, &"net_af_packet,iface=a0".parse().unwrap()) {
            Err(error) if error.to_string().contains("CAP_IPC_LOCK") => {
                eprintln!("SKIPPED: {error}");
                return;
            }
            other => drop(other),
        }
        test();
    })
    .join();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split_whitespace()).status().is_ok_and(|s| s.success())
}

#[test]
fn frames_cross_a_veth_pair_unchanged() {
    with_veth(|| {
        let pool = pool("veth");
        let (a, _a_rx, mut a_tx) = open("a", "net_af_packet,iface=a0", &pool);
        let (b, mut b_rx, _b_tx) = open("b", "net_af_packet,iface=b0", &pool);
        assert_eq!(a.info().driver, "net_af_packet");
        assert_eq!((a.info().mtu, a.info().max_frame), (1500, 1981));
        assert_eq!(a.info().packet_sockets, 1);
        assert_eq!(a.info().iface.as_deref(), Some("a0"));
        let link = b.link().unwrap();
        assert!(link.up && link.mbps == Some(10_000), "a veth says 10 Gb/s itself: {link:?}");
        let frames: Vec<Vec<u8>> = (0..1000).map(|n| frame(n, 60 + n as usize)).collect();
        send(&mut a_tx, &pool, &frames);
        let got = receive(&mut b_rx, frames.len(), is_ours);
        assert!(got.iter().map(|(bytes, _)| bytes).eq(&frames), "{} came", got.len());
        assert_eq!(a.counters().unwrap().tx_packets, 1000);
        assert_eq!(b.counters().unwrap().rx_missed, 0);
        assert_eq!(pool.in_use(), 0);
    });
}

#[test]
fn ipv4_fragments_arrive_as_they_were_sent() {
    with_veth(|| {
        let pool = pool("fragments");
        let (_a, _a_rx, mut a_tx) = open("fa", "net_af_packet,iface=a0", &pool);
        let (_b, mut b_rx, _b_tx) = open("fb", "net_af_packet,iface=b0", &pool);
        // The second fragment of the second datagram is missing.
        let fragments = [fragment(1, 0, true), fragment(1, 3, false), fragment(2, 0, true)];
        send(&mut a_tx, &pool, &fragments);
        let is_fragment = |frame: &[u8]| frame.get(12..14) == Some(&[0x08, 0x00]);
        let got = receive(&mut b_rx, fragments.len(), is_fragment);
        assert!(got.iter().map(|(bytes, _)| bytes).eq(&fragments), "{got:02x?}");
    });
}

/// A UDP fragment of 24 bytes at `place` × 8 bytes of a datagram.
fn fragment(id: u8, place: u8, has_more: bool) -> Vec<u8> {
    let mut ip = [0_u8; 20];
    (ip[0], ip[3], ip[5], ip[6], ip[7]) = (0x45, 44, id, u8::from(has_more) << 5, place);
    (ip[8], ip[9]) = (64, 17);
    ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let sum: u32 = ip.chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let addresses = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    [&addresses[..], &[0x08, 0x00], &ip, &[place; 24], &[0; 2]].concat()
}

#[test]
fn vlan_tag_survives_reception() {
    with_veth(|| {
        let pool = pool("vlan");
        let (_a, _a_rx, mut a_tx) = open("va", "net_af_packet,iface=a0", &pool);
        let (_b, mut b_rx, mut b_tx) = open("vb", "net_af_packet,iface=b0", &pool);
        let mut tagged = frame(1, 100);
        // Priority 5, VLAN 42.
        tagged.splice(12..12, [0x81, 0x00, 0xa0, 0x2a]);
        send(&mut a_tx, &pool, std::slice::from_ref(&tagged));

        let mut burst = dpdk::MbufBurst::new();
        let deadline = Instant::now() + Duration::from_secs(10);
        while burst.is_empty() && Instant::now() < deadline {
            b_rx.burst(&mut burst);
        }
        let mut mbuf = burst.drain().next().expect("the frame came");
        // 22.11 strips the tag; newer releases restore it.
        if let Some(tci) = mbuf.stripped_vlan() {
            assert_eq!((tci, mbuf.len()), (0xa02a, 100));
            assert!(mbuf.restore_vlan());
        }
        assert_eq!(mbuf.contiguous().unwrap(), tagged);
        assert_eq!(mbuf.stripped_vlan(), None);
        burst.push(mbuf).unwrap();
        assert_eq!(b_tx.burst(&mut burst), 1);
        assert_eq!(pool.in_use(), 0);
    });
}

#[test]
fn kernel_drops_are_counted() {
    with_veth(|| {
        let pool = pool("drops");
        let (_a, _a_rx, mut a_tx) = open("da", "net_af_packet,iface=a0", &pool);
        let (b, mut b_rx, _b_tx) = open("db", "net_af_packet,iface=b0,framecnt=64", &pool);
        let frames: Vec<Vec<u8>> = (0..1000).map(|number| frame(number, 60)).collect();
        send(&mut a_tx, &pool, &frames);
        // The receiver does not poll, so its ring of 64 overflows.
        let deadline = Instant::now() + Duration::from_secs(10);
        while b.counters().unwrap().rx_missed < 936 && Instant::now() < deadline {
            thread::yield_now();
        }
        let got = receive(&mut b_rx, 64, is_ours);
        let missed = b.counters().unwrap().rx_missed;
        assert_eq!((got.len(), missed), (64, 936));
        assert_eq!(b.counters().unwrap().rx_missed, 936, "reading does not lose them");
    });
}

#[test]
fn opening_port_discards_frames_of_other_interfaces() {
    with_veth(|| {
        let (flood, arrivals) = (pool("flood"), pool("arrivals"));
        assert!(ip("link add c0 type veth peer name d0") && ip("link set c0 up"));
        assert!(ip("link set d0 up"));
        let (_c, _c_rx, mut c_tx) = open("c", "net_af_packet,iface=c0", &flood);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    send(&mut c_tx, &flood, &[frame(1, 60), frame(2, 1000)]);
                }
            });
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
                for round in 0..10 {
                    let (b, mut b_rx, _b_tx) = open("opened", "net_af_packet,iface=b0", &arrivals);
                    let mut burst = dpdk::MbufBurst::new();
                    let came: usize = (0..100).map(|_| b_rx.burst(&mut burst)).sum();
                    let counted = b.counters().unwrap();
                    let counted = (counted.rx_packets, counted.rx_missed);
                    assert_eq!((came, counted), (0, (0, 0)), "in round {round}");
                }
            }));
            done.store(true, Ordering::Relaxed);
            outcome.unwrap();
        });
    });
}

#[test]
fn idle_worker_sleeps_until_a_packet_arrives() {
    with_veth(|| {
        let pool = pool("wait");
        let (_a, _a_rx, mut a_tx) = open("wa", "net_af_packet,iface=a0", &pool);
        let (b, mut b_rx, _b_tx) = open("wb", "net_af_packet,iface=b0", &pool);
        let waiter = b_rx.waiter().unwrap();
        assert!(!waiter.is_blind());
        assert_eq!(waiter.descriptors().count(), 1);
        let mut waiter = Waiter::new().and(waiter);
        assert!(!waiter.wait(Duration::from_millis(1)), "nothing was sent yet");
        let worker = thread::spawn(move || {
            let woken = waiter.wait(Duration::from_secs(60));
            (woken, receive(&mut b_rx, 1, is_ours).len(), waiter, b_rx)
        });
        send(&mut a_tx, &pool, &[frame(1, 60)]);
        let (woken, got, mut waiter, mut b_rx) = worker.join().unwrap();
        assert_eq!((woken, got), (true, 1));
        assert!(!waiter.wait(Duration::from_millis(1)), "the packet was taken");

        // An interface that is down must not cause a busy loop.
        assert!(ip("link set b0 down"));
        let start = Instant::now();
        for _ in 0..20 {
            waiter.wait(Duration::from_millis(5));
        }
        assert!(start.elapsed() >= Duration::from_millis(15), "{:?}", start.elapsed());
        assert!(!b.link().unwrap().up);

        assert!(ip("link set b0 up"));
        let deadline = Instant::now() + Duration::from_secs(10);
        while !b.link().unwrap().up && Instant::now() < deadline {
            thread::yield_now();
        }
        send(&mut a_tx, &pool, &[frame(2, 60)]);
        while !waiter.wait(Duration::from_millis(100)) {
            assert!(Instant::now() < deadline, "no wake-up after the interface came back");
        }
        assert_eq!(receive(&mut b_rx, 1, is_ours).len(), 1);
    });
}

#[test]
fn frames_sent_by_this_machine_are_not_received() {
    with_veth(|| {
        let pool = pool("own");
        let (_a, mut a_rx, _a_tx) = open("oa", "net_af_packet,iface=a0", &pool);
        let (_b, mut b_rx, _b_tx) = open("ob", "net_af_packet,iface=b0", &pool);
        assert!(ip("address add 192.0.2.1/24 dev a0"));
        // ARP requests of this machine leave through a0 and arrive at b0.
        let ping = Command::new("ping").args(["-c", "1", "-W", "1", "192.0.2.2"]).output();
        if ping.is_err() {
            eprintln!("SKIPPED: there is no `ping`");
            return;
        }
        let arp = |bytes: &[u8]| bytes.get(12..14) == Some(&[0x08, 0x06]);
        assert!(!receive(&mut b_rx, 1, arp).is_empty());
        let mut burst = dpdk::MbufBurst::new();
        assert_eq!(a_rx.burst(&mut burst), 0, "{burst:?}");
    });
}

#[test]
fn jumbo_frames_take_large_buffers() {
    with_veth(|| {
        assert!(ip("link set a0 mtu 9000") && ip("link set b0 mtu 9000"));
        let small = pool("small");
        let port = Port::attach(eal(), "ja", &"net_af_packet,iface=a0".parse().unwrap()).unwrap();
        assert!(port.info().max_frame >= 9018, "{:?}", port.info());
        let error = port.start(&PortConfig::new(&small)).unwrap_err();
        assert!(matches!(error, Error::SmallBuffers { need: 16_352, .. }), "{error}");

        let pool = Mempool::new(eal(), "jumbo", 255, 16_384).unwrap();
        let (_a, _a_rx, mut a_tx) = open("ja", "net_af_packet,iface=a0", &pool);
        let (_b, mut b_rx, _b_tx) = open("jb", "net_af_packet,iface=b0", &pool);
        let frames = [frame(1, 9014), frame(2, 1514), frame(3, 60)];
        send(&mut a_tx, &pool, &frames);
        let got = receive(&mut b_rx, 3, is_ours);
        assert!(got.iter().map(|(bytes, _)| bytes).eq(&frames), "{} came", got.len());
    });
}

#[test]
fn two_queues_share_the_packets() {
    with_veth(|| {
        let pool = pool("fanout");
        let (_a, _a_rx, mut a_tx) = open("fa", "net_af_packet,iface=a0", &pool);
        let spec: dpdk::PortSpec = "net_af_packet,iface=b0".parse().unwrap();
        let port = Port::attach(eal(), "fb", &spec.clone().with_queues(2)).unwrap();
        assert_eq!(port.info().packet_sockets, 2);
        let error = port.start(&PortConfig::new(&pool)).unwrap_err();
        assert!(matches!(error, Error::Queues { .. }), "{error}");
        let port = Port::attach(eal(), "fb", &spec.with_queues(2)).unwrap();
        let (_b, mut rx, _tx) = port.start(&PortConfig::new(&pool).with_queues(2)).unwrap();
        send(&mut a_tx, &pool, &(0..100).map(|n| frame(n, 60)).collect::<Vec<_>>());
        let mut burst = dpdk::MbufBurst::new();
        let mut count = 0;
        let deadline = Instant::now() + Duration::from_secs(10);
        while count < 100 && Instant::now() < deadline {
            for queue in &mut rx {
                count += queue.burst(&mut burst);
                burst.clear();
            }
        }
        assert_eq!(count, 100);
    });
}

#[test]
fn same_interface_name_in_another_namespace_is_another_device() {
    with_veth(|| {
        let spec = "net_af_packet,iface=a0".parse().unwrap();
        let _first = Port::attach(eal(), "alike", &spec).unwrap();
        let other = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            assert!(ip("link add a0 type veth peer name b0"));
            let alike = Port::attach(eal(), "alike", &spec).unwrap_err();
            assert!(matches!(alike, Error::SameName { .. }), "{alike}");
            // The same interface name in another namespace is another device.
            Port::attach(eal(), "unlike", &spec).unwrap();
        });
        other.join().unwrap();
    });
}

#[test]
fn interface_serves_one_port_and_is_restored() {
    with_veth(|| {
        let pool = pool("once");
        let a0 = dpdk::Interface::find("a0").unwrap();
        assert!(!a0.promiscuous().unwrap());
        let first = open("once", "net_af_packet,iface=a0", &pool);
        assert!(a0.promiscuous().unwrap());
        let spec = "net_af_packet,iface=a0,framecnt=64".parse().unwrap();
        let error = Port::attach(eal(), "more", &spec).unwrap_err();
        assert!(matches!(error, Error::SameDevice { .. }), "{error}");
        drop(first);
        assert!(!a0.promiscuous().unwrap());
        drop(open("more", "net_af_packet,iface=a0", &pool));
    });
}

#[test]
fn offloads_are_disabled_and_enabled_again() {
    with_veth(|| {
        let on = offloads("a0").unwrap();
        assert!(on.contains(&Offload::TxChecksum) && on.contains(&Offload::Tso), "{on:?}");
        let off = disable_offloads("a0").unwrap();
        assert_eq!(off.kinds(), on);
        assert_eq!(offloads("a0").unwrap(), []);
        assert_eq!(disable_offloads("a0").unwrap().kinds(), []);
        assert!(offloads("b0").unwrap().contains(&Offload::TxChecksum), "the peer is untouched");
        off.enable().unwrap();
        assert_eq!(offloads("a0").unwrap(), on);
        let mut held = OffloadsOff::default();
        held.turn_off("a0");
        assert_eq!(offloads("a0").unwrap(), []);
        drop(held);
        assert_eq!(offloads("a0").unwrap(), on);
    });
}
