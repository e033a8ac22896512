// SPDX-License-Identifier: Apache-2.0
//! Malformed frames, sent through a packet socket.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::ensure;
use etherparse::{PacketBuilder, VlanId};
use smoke::cpus::Cpus;
use smoke::linkctl::Linkctl;
use smoke::namespace::Namespace;
use smoke::ping::Ping;
use smoke::raw::{Mac, RawSocket};
use smoke::stats::{DropReason, Port, Stats, drops};
use smoke::testbed::{CLIENT_INTERFACE, SERVER, SERVER_INTERFACE, Testbed, WAN_INTERFACE};
use smoke::wait;

use super::{SEED, drained, emulator, on_bed};

const ETHERNET_BYTES: usize = 14;
/// MTU of the hosts' interfaces during this test.
const JUMBO_MTU: &str = "9000";
const RANDOM_FRAMES: u64 = 2000;
/// Unicast address of no host here.
const NOBODY: Mac = [2, 0, 0, 0, 0, 0x99];

pub fn frames_of_any_form_are_counted(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("geo-600", SEED)?;
        // The ports are open by now, with slots for the MTU of before: the kernel truncates a jumbo frame.
        bed.server().run(&["ip", "link", "set", SERVER_INTERFACE, "mtu", JUMBO_MTU])?;
        bed.emulator().run(&["ip", "link", "set", WAN_INTERFACE, "mtu", JUMBO_MTU])?;
        let server = RawSocket::open(bed.server(), SERVER_INTERFACE)?;
        let client = RawSocket::open(bed.client(), CLIENT_INTERFACE)?;
        let address = bed.client_address(0);
        // No host sends ARP requests while frames are counted, and none replies to a frame that is
        // not addressed to it.
        known(bed.server(), address, client.mac, SERVER_INTERFACE)?;
        known(bed.client(), SERVER, server.mac, CLIENT_INTERFACE)?;
        let from_server = forms(server.mac, SERVER.octets(), address.octets());
        let from_client = forms(client.mac, address.octets(), SERVER.octets());
        for (port, socket, forms) in
            [("wan", &server, from_server), ("client", &client, from_client)]
        {
            for (name, frame) in forms {
                counted(bed, &linkctl, port, &name, socket, &[frame])?;
            }
            let noise: Vec<Vec<u8>> = (0..RANDOM_FRAMES).map(noise).collect();
            // At most as many as the ring of a port holds while its worker waits for a processor.
            for part in noise.chunks(250) {
                counted(bed, &linkctl, port, "random bytes", socket, part)?;
            }
        }
        let stats = drained(&linkctl)?;
        let truncated: u64 =
            stats.pipes().map(|(_, _, p)| p.dropped_for(DropReason::Oversize).packets).sum();
        ensure!(truncated == 1, "{truncated} frames are oversize, not the jumbo frame alone");
        for (_, _, pipe) in stats.pipes() {
            let odd: Vec<_> =
                drops(pipe).filter(|(reason, _)| !["runt", "oversize"].contains(reason)).collect();
            ensure!(odd.is_empty(), "geo-600 dropped for {odd:?}");
        }
        // Afterwards it still carries well-formed packets.
        let source = bed.client_address(0);
        let ping = Ping::start(bed.client(), source, SERVER, 10, Duration::from_millis(100))?;
        let pings = ping.finish()?;
        ensure!(pings.lost() == 0 && pings.share_within(599.0, 620.0) > 0.5, "{pings:?}");
        Ok(())
    })
}

/// Sends frames and waits until the emulator has counted every frame that the kernel accepted: for
/// a client, or as missed by the port.
fn counted(
    bed: &mut Testbed,
    linkctl: &Linkctl,
    port: &str,
    name: &str,
    socket: &RawSocket,
    frames: &[Vec<u8>],
) -> anyhow::Result<()> {
    let before = linkctl.stats()?;
    let mut taken = 0;
    for frame in frames {
        taken += u64::from(socket.send(frame)?);
    }
    let length = frames[0].len();
    let what = format!("{taken} frames of the form `{name}` are counted on {port}");
    let after = wait::until(&what, Duration::from_secs(10), || {
        let stats = linkctl.stats()?;
        let seen =
            |s: &Stats| Ok::<_, smoke::error::Error>(arrived(s, port) + s.port(port)?.missed);
        Ok((seen(&stats)? >= seen(&before)? + taken).then_some(stats))
    });
    ensure!(bed.dataplane_runs(), "`{name}` on {port} ended the dataplane");
    let after = after?;
    after.conserved()?;
    let (first, last) = (arrived(&before, port), arrived(&after, port));
    ensure!(last <= first + taken, "{what}: {first}, then {last} arrived");
    let (old, new): (&Port, &Port) = (before.port(port)?, after.port(port)?);
    println!(
        "    {port}, {name} ({length} bytes): {taken} taken, {} arrived, {} malformed, {} missed",
        arrived(&after, port) - arrived(&before, port),
        new.malformed - old.malformed,
        new.missed - old.missed
    );
    Ok(())
}

fn known(host: &Namespace, address: Ipv4Addr, mac: Mac, interface: &str) -> anyhow::Result<()> {
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    let address = address.to_string();
    host.run(&["ip", "neighbour", "replace", &address, "lladdr", &mac, "dev", interface])?;
    Ok(())
}

/// Packets that a port received, by the clients' counters.
fn arrived(stats: &Stats, port: &str) -> u64 {
    let direction = if port == "wan" { "forward" } else { "return" };
    stats.pipes().filter(|(_, d, _)| *d == direction).map(|(_, _, p)| p.received().packets).sum()
}

/// One frame of each form.
///
/// IPv4 fragments follow two VLAN tags: DPDK's net_af_packet asks the kernel to reassemble
/// fragments that it recognises, so they would arrive late and whole.
fn forms(from: Mac, source: [u8; 4], target: [u8; 4]) -> Vec<(String, Vec<u8>)> {
    let to = NOBODY;
    let packet = |payload: usize| {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2(from, to).ipv4(source, target, 64).udp(4000, 4001);
        // A Vec accepts every write.
        let _ = builder.write(&mut frame, &vec![0xa5; payload]);
        frame
    };
    let stacked = |payload: usize| {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2(from, to)
            .double_vlan(VlanId::default(), VlanId::default())
            .ipv4(source, target, 64)
            .udp(4000, 4001);
        let _ = builder.write(&mut frame, &vec![0xa5; payload]);
        frame
    };
    let head = |ethertype: u16| [&to[..], &from[..], &ethertype.to_be_bytes()].concat();
    let changed = |place: usize, byte: u8| {
        let mut frame = packet(64);
        frame[ETHERNET_BYTES + place] = byte;
        frame
    };
    let fragment = |place: usize, byte: u8| {
        let mut frame = stacked(64);
        frame[ETHERNET_BYTES + 8 + place] = byte;
        frame
    };
    let mut forms = vec![
        ("only an Ethernet header, IPv4".to_owned(), head(0x0800)),
        ("only an Ethernet header, IPv6".to_owned(), head(0x86dd)),
        // The kernel drops frames with fewer than two bytes after a VLAN tag.
        ("a VLAN tag and two bytes".to_owned(), [head(0x8100), vec![0, 1, 8, 0, 0x45, 0]].concat()),
        ("one byte short of an Ethernet header".to_owned(), head(0x0800)[..13].to_vec()),
        ("one byte".to_owned(), vec![0xff]),
        ("full frame".to_owned(), packet(1472)),
        ("jumbo".to_owned(), packet(8000)),
        ("stacked VLANs".to_owned(), stacked(64)),
        ("stacked VLANs, then nothing".to_owned(), stacked(0)[..22].to_vec()),
        ("IPv4 version 7".to_owned(), changed(0, 0x75)),
        ("IPv4 header length 0".to_owned(), changed(0, 0x40)),
        ("IPv4 header length 60 in a shorter frame".to_owned(), {
            let mut frame = packet(0);
            frame[ETHERNET_BYTES] = 0x4f;
            frame
        }),
        ("IPv4 total length 65535".to_owned(), {
            let mut frame = changed(2, 0xff);
            frame[ETHERNET_BYTES + 3] = 0xff;
            frame
        }),
        ("IPv4 total length 0".to_owned(), {
            let mut frame = changed(2, 0);
            frame[ETHERNET_BYTES + 3] = 0;
            frame
        }),
        ("first fragment".to_owned(), fragment(6, 0x20)),
        ("last fragment".to_owned(), fragment(7, 0xb9)),
        ("IPv6 fragment".to_owned(), {
            let mut frame = head(0x86dd);
            frame.extend([0x60, 0, 0, 0, 0, 16, 44, 64]);
            frame.extend([0xfd; 32]);
            frame.extend([17, 0, 0x05, 0xb9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
            frame
        }),
        ("IPv6 with next header 0 and nothing after".to_owned(), {
            let mut frame = head(0x86dd);
            frame.extend([0x60, 0, 0, 0, 0xff, 0xff, 0, 1]);
            frame.extend([0xfe; 32]);
            frame
        }),
        ("ARP cut".to_owned(), [head(0x0806), vec![0, 1, 8]].concat()),
        ("LLDP".to_owned(), [head(0x88cc), vec![2, 7, 4]].concat()),
        ("an 802.3 length field".to_owned(), [head(60), vec![0x42; 60]].concat()),
        ("an unknown EtherType".to_owned(), [head(0xffff), vec![0; 100]].concat()),
        ("multicast source".to_owned(), [&to[..], &[0xff; 6], &[8, 0], &[0x45; 40]].concat()),
    ];
    for cut in [1, 10, 19, 20, 27] {
        let frame = packet(64)[..ETHERNET_BYTES + cut].to_vec();
        forms.push((format!("IPv4 cut after {cut} bytes"), frame));
    }
    forms
}

/// A frame of random bytes and length, determined by its number. Every other one has the EtherType
/// of IPv4, so that it is parsed further. Its addresses belong to a network without hosts.
fn noise(number: u64) -> Vec<u8> {
    let mut state = number;
    let mut random = move || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let length = ETHERNET_BYTES + usize::try_from(random() % 1500).unwrap_or(0);
    let mut frame: Vec<u8> = (0..length).map(|_| (random() & 0xff) as u8).collect();
    // Unicast and local, so that no device replies or floods.
    frame[0] = 0x02;
    frame[6] = 0x02;
    if number.is_multiple_of(2) {
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        // No IPv4 fragment, for the reason given at `forms`.
        if let Some(place) = frame.get_mut(ETHERNET_BYTES + 6..ETHERNET_BYTES + 8) {
            place.copy_from_slice(&[0x40, 0x00]);
        }
    }
    frame
}
