// SPDX-License-Identifier: Apache-2.0
//! No request makes linkd panic, and what it refuses changes nothing.

use crate::common::Lab;
use crate::common::pki::{Ask, Authority, channel, tls};
use linkd::{Limits, Listen, Security};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::linkemu_client::LinkemuClient;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::Code;

/// Anything, likelier to be near a limit than by chance.
fn quantity() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..3_000_u64, Just(0), Just(u64::MAX), 1_000_000..100_000_000_000_u64]
}

fn real() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), 0.0..=1.0, Just(f64::NAN), Just(f64::INFINITY)]
}

/// On the heap, as what it is part of: whole trees of values are too much for the stack.
fn queue() -> BoxedStrategy<pb::Queue> {
    let drop = option::of((quantity(), real(), real()));
    let codel = option::of((quantity(), quantity()));
    let red = option::of((quantity(), quantity(), real(), real(), any::<u32>()));
    let pie = option::of((quantity(), quantity(), real(), real(), quantity()));
    let aqm = (drop, red, codel, pie, any::<bool>());
    (quantity(), aqm)
        .prop_map(|(limit_bytes, (drop, red, codel, pie, ecn))| pb::Queue {
            limit_bytes,
            ecn,
            red: red.map(|(min_bytes, max_bytes, p, weight, packet_bytes)| pb::Red {
                min_bytes,
                max_bytes,
                probability_at_max: p,
                weight,
                packet_bytes,
                gentle: false,
            }),
            codel: codel.map(|(target_ns, interval_ns)| pb::CoDel { target_ns, interval_ns }),
            pie: pie.map(|(target_ns, update_ns, alpha_hz, beta_hz, max_burst_ns)| pb::Pie {
                target_ns,
                update_ns,
                alpha_hz,
                beta_hz,
                max_burst_ns,
            }),
            random_drop: drop.map(|(threshold_bytes, low, high)| pb::RandomDrop {
                threshold_bytes,
                probability_at_threshold: low,
                probability_at_limit: high,
                ..Default::default()
            }),
        })
        .boxed()
}

fn outage() -> impl Strategy<Value = pb::Outage> {
    (quantity(), quantity(), -1..4_i32).prop_map(|(interval_ns, duration_ns, law)| pb::Outage {
        interval_ns,
        duration_ns,
        law,
    })
}

fn excursion() -> impl Strategy<Value = pb::Excursion> {
    let regime = option::of((quantity(), quantity(), real()));
    (quantity(), quantity(), quantity(), quantity(), real(), quantity(), regime).prop_map(
        |(interval_ns, duration_ns, location_ns, scale_ns, shape, max_ns, regime)| pb::Excursion {
            interval_ns,
            duration_ns,
            location_ns,
            scale_ns,
            shape,
            max_ns,
            regime: regime.map(|(interval_ns, duration_ns, factor)| pb::Fade {
                interval_ns,
                duration_ns,
                factor,
            }),
        },
    )
}

fn losses() -> BoxedStrategy<pb::Pipe> {
    let gilbert = (real(), real(), real(), real()).prop_map(
        |(to_bad, to_good, loss_in_bad, loss_in_good)| pb::GilbertElliott {
            to_bad,
            to_good,
            loss_in_bad,
            loss_in_good,
        },
    );
    let four = (real(), real(), real(), real(), real())
        .prop_map(|(p13, p31, p32, p23, p14)| pb::FourStateLoss { p13, p31, p32, p23, p14 });
    let run =
        (quantity(), quantity(), any::<bool>()).prop_map(|(pass_packets, drop_packets, once)| {
            pb::DropRun { pass_packets, drop_packets, once }
        });
    let reorder =
        (real(), quantity()).prop_map(|(probability, by_ns)| pb::Reorder { probability, by_ns });
    let chances = (real(), real(), real(), option::of(reorder));
    (chances, option::of(gilbert), option::of(four), option::of(run))
        .prop_map(|(chances, gilbert_elliott, four_state_loss, drop_run)| {
            let (packet_loss, duplicate, corrupt, reorder) = chances;
            pb::Pipe {
                packet_loss,
                gilbert_elliott,
                four_state_loss,
                drop_run,
                duplicate,
                corrupt,
                reorder,
                ..Default::default()
            }
        })
        .boxed()
}

fn varies() -> impl Strategy<Value = (Option<pb::Capacity>, Option<pb::Reconfiguration>)> {
    let capacity = (real(), real(), quantity(), vec(real(), 0..4)).prop_map(
        |(mean, spread, correlation_ns, daily)| pb::Capacity {
            mean,
            spread,
            correlation_ns,
            daily,
        },
    );
    let words = (-1..4_i32, -1..4_i32, -1..4_i32);
    let lists = (vec(quantity(), 0..4), vec(real(), 0..4));
    let reconfiguration = (quantity(), quantity(), words, lists, real(), quantity()).prop_map(
        |(period_ns, phase_ns, words, (delays_ns, shares), outage_probability, outage_ns)| {
            let (clock, values, outage_law) = words;
            pb::Reconfiguration {
                period_ns,
                phase_ns,
                clock,
                values,
                delays_ns,
                shares,
                outage_probability,
                outage_ns,
                outage_law,
            }
        },
    );
    (option::of(capacity), option::of(reconfiguration))
}

fn pipe() -> BoxedStrategy<pb::Pipe> {
    let body = (quantity(), vec(quantity(), 0..4))
        .prop_map(|(correlation_ns, quantiles_ns)| pb::Body { correlation_ns, quantiles_ns });
    let delay = (quantity(), quantity(), vec(excursion(), 0..20), option::of(body)).prop_map(
        |(base_ns, slot_ns, excursions, body)| pb::Delay { base_ns, slot_ns, excursions, body },
    );
    let opportunities = (0_u32..70_000, vec(quantity(), 0..4))
        .prop_map(|(size_bytes, runs)| pb::Opportunities { size_bytes, runs });
    let trace = (quantity(), vec(quantity(), 0..4), option::of(opportunities)).prop_map(
        |(step_ns, rates_bps, opportunities)| pb::RateTrace {
            step_ns,
            rates_bps,
            opportunities,
            begin_ns: 0,
        },
    );
    let fade = (quantity(), quantity(), real()).prop_map(|(interval_ns, duration_ns, factor)| {
        pb::Fade { interval_ns, duration_ns, factor }
    });
    let rate = (option::of(quantity()), option::of(trace));
    let path = (quantity(), vec(quantity(), 0..4), vec(real(), 0..4)).prop_map(
        |(step_ns, delays_ns, losses)| pb::PathTrace { step_ns, delays_ns, losses, begin_ns: 0 },
    );
    let rate = (rate, varies(), option::of(path));
    let rate = rate.boxed();
    let parts =
        (rate, any::<i32>(), losses().boxed(), option::of(queue().boxed()), vec(outage(), 0..20));
    (parts.boxed(), option::of(fade), option::of(delay.boxed()))
        .prop_map(|((rate, overhead_bytes, losses, queue, outages), fade, delay)| {
            let ((rate_bps, rate_trace), (capacity, reconfiguration), path_trace) = rate;
            pb::Pipe {
                capacity,
                reconfiguration,
                path_trace,
                rate_bps,
                rate_trace,
                overhead_bytes,
                queue,
                outages,
                fade,
                delay,
                ..losses
            }
        })
        .boxed()
}

fn provenance() -> impl Strategy<Value = pb::Provenance> {
    (any::<String>(), any::<u64>(), vec(any::<String>(), 0..4), real()).prop_map(
        |(source, samples, remarks, statistic)| pb::Provenance {
            source,
            samples,
            remarks,
            goodness: vec![pb::Goodness { statistic, ..Default::default() }],
            ..Default::default()
        },
    )
}

fn patch() -> impl Strategy<Value = pb::PatchLinkRequest> {
    let path = prop_oneof![
        20 => prop::sample::select(vec![
            "rate_bps", "overhead_bytes", "link_layer", "queue", "queue.limit_bytes", "queue.random_drop",
            "outages", "delay", "delay.base_ns", "delay.slot_ns", "delay.excursions",
            "rate_trace", "packet_loss", "fade", "delay.body", "gilbert_elliott",
            "four_state_loss", "drop_run", "duplicate", "corrupt", "reorder", "queue.red", "queue.codel", "queue.pie", "queue.ecn",
        ])
        .prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    let mask = vec(path, 0..3).prop_map(|paths| prost_types::FieldMask { paths });
    (0..4_i32, option::of(pipe()), option::of(mask)).prop_map(|(direction, pipe, mask)| {
        pb::PatchLinkRequest { direction, pipe, mask, lossy: true, ..Default::default() }
    })
}

fn set() -> impl Strategy<Value = pb::SetProfileRequest> {
    let texts = (any::<String>(), any::<String>());
    let profile = (texts, option::of(pipe()), option::of(pipe()), option::of(provenance()))
        .prop_map(|((name, description), forward_pipe, return_pipe, provenance)| pb::Profile {
            name,
            description,
            source: String::new(),
            forward_pipe,
            return_pipe,
            provenance,
            group: String::new(),
        });
    use pb::set_profile_request::Profile::{Inline, Name};
    let profile = prop_oneof![profile.prop_map(Inline), any::<String>().prop_map(Name)];
    (option::of(profile), option::of(any::<u64>())).prop_map(|(profile, seed)| {
        pb::SetProfileRequest { profile, seed, lossy: true, ..Default::default() }
    })
}

/// A match, likelier to be valid than by chance.
fn rule() -> impl Strategy<Value = pb::Match> {
    let vlan = || prop_oneof![6 => Just(0), 2 => 1..4_097_u32, 1 => any::<u32>()];
    let mac = "|||0[0-3]:00:00:00:00:0[0-9a-f]";
    let prefix = || prop_oneof![8 => "|10\\.[0-3]\\.0\\.0/16|fd0[0-3]::/16", 1 => any::<String>()];
    let protocol = prop_oneof![8 => "|tcp|udp|icmp|47", 1 => any::<String>()];
    let port = || prop_oneof![8 => "|||[0-9]{1,4}|1[0-9]{3}-2[0-9]{3}", 1 => any::<String>()];
    let small = || option::of(prop_oneof![8 => 0..65_u32, 1 => any::<u32>()]);
    let pair = prop_oneof![8 => "||[a-c]", 1 => any::<String>()];
    let texts = (mac, prefix(), prefix(), protocol, port(), port(), pair);
    (any::<u32>(), vlan(), vlan(), texts, small(), small()).prop_map(
        |(priority, vlan, inner_vlan, texts, dscp, flow_label)| {
            let (mac, prefix, remote_prefix, protocol, port, remote_port, port_pair) = texts;
            pb::Match {
                priority,
                vlan,
                inner_vlan,
                mac,
                prefix,
                remote_prefix,
                protocol,
                port,
                remote_port,
                dscp,
                flow_label,
                port_pair,
            }
        },
    )
}

/// Clients, likelier to be near a limit than by chance.
fn clients() -> impl Strategy<Value = pb::SetClientsRequest> {
    let name = prop_oneof![Just("alice".to_owned()), "[a-z.]{0,17}", any::<String>()];
    let prefix = prop_oneof!["10\\.[0-3]\\.0\\.0/(16|8|33)", "fd0[0-3]::/16", any::<String>()];
    let mac = prop_oneof!["0[0-3]:00:00:00:00:0[0-9a-f]", any::<String>()];
    let vlan = prop_oneof![4 => 0..4_097_u32, 1 => any::<u32>()];
    let beam_name =
        || prop_oneof![6 => Just(String::new()), 3 => Just("b".to_owned()), 1 => any::<String>()];
    let weight = || prop_oneof![6 => Just(0), 1 => 0..1_002_u32, 1 => any::<u32>()];
    let share = (beam_name(), weight());
    let simple = (vec(prefix, 0..2), vec(vlan, 0..2), vec(mac, 0..2));
    let client = (name, simple, prop_oneof![2 => Just(Vec::new()), 1 => vec(rule(), 0..3)], share)
        .prop_map(|(name, (prefixes, vlans, macs), matches, (beam, weight))| pb::Client {
            name,
            prefixes,
            vlans,
            macs,
            beam,
            weight,
            matches,
        });
    let beam = (beam_name(), option::of(quantity()), option::of(quantity())).prop_map(
        |(name, forward_rate_bps, return_rate_bps)| pb::Beam {
            name,
            forward_rate_bps,
            return_rate_bps,
        },
    );
    let automatic = (option::of(any::<u32>()), beam_name(), weight())
        .prop_map(|(limit, beam, weight)| pb::Automatic { limit, beam, weight });
    let beams = prop_oneof![2 => Just(Vec::new()), 1 => vec(beam, 0..2)];
    let clients = (vec(client, 0..3), option::of(automatic), beams)
        .prop_map(|(clients, automatic, beams)| pb::Clients { clients, automatic, beams });
    option::of(clients).prop_map(|clients| pb::SetClientsRequest { clients, ..Default::default() })
}

enum Request {
    Clients(Box<pb::SetClientsRequest>),
    Patch(Box<pb::PatchLinkRequest>),
    Set(Box<pb::SetProfileRequest>),
}

#[tokio::test]
async fn no_request_makes_linkd_panic() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]),
    );
    let (mut taken, mut refused, mut named_taken) = (0, 0, 0);
    for _ in 0..1_000 {
        let patch = patch().new_tree(&mut runner).unwrap().current();
        let set = set().new_tree(&mut runner).unwrap().current();
        let named = clients().new_tree(&mut runner).unwrap().current();
        for request in [
            Request::Patch(Box::new(patch)),
            Request::Set(Box::new(set)),
            Request::Clients(Box::new(named)),
        ] {
            let answer = match request {
                Request::Clients(named) => {
                    let sent = named.clients.clone();
                    let answer = Box::pin(lab.client.set_clients(*named)).await;
                    if answer.is_ok() {
                        named_taken += 1;
                        let kept = lab.fake.state().plan.clone().unwrap().clients;
                        assert!(kept == sent && kept.is_some());
                    }
                    answer
                }
                Request::Patch(patch) => Box::pin(lab.client.patch_link(*patch)).await,
                Request::Set(set) => Box::pin(lab.client.set_profile(*set)).await,
            };
            match answer {
                Ok(change) => {
                    taken += 1;
                    let profile = change.into_inner().profile.unwrap();
                    profile::validate(&profile).unwrap();
                    assert_eq!(lab.in_force(), profile);
                }
                Err(status) => {
                    refused += 1;
                    let code = status.code();
                    assert!(matches!(code, Code::InvalidArgument | Code::NotFound), "{status:?}");
                }
            }
            assert_eq!(lab.fake.state().generation, 1 + taken);
        }
    }
    assert!(refused > 1_000, "{refused}");
    assert!(taken - named_taken > 10 && named_taken > 50, "{taken}, {named_taken}");
    profile::validate(&lab.in_force()).unwrap();
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused() {
    let mut lab = Lab::new();
    let status = lab.set(&"x".repeat(profile::MESSAGE_BYTES)).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    lab.set("viasat2").await.unwrap();
}

/// Says so much and waits for the end, which may come in the middle of it. A connection that
/// linkd keeps is left after a second.
async fn say(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) {
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(1), stream.read_to_end(&mut rest)).await;
}

/// Over TCP: random calls of all roles, random bytes before and after the handshake.
#[tokio::test]
async fn nothing_over_the_network_makes_linkd_panic_or_pass_the_gate() {
    const ROLES: [&str; 3] = ["linkemu:role:viewer", "linkemu:role:operator", "linkemu:role:none"];
    let authority = Authority::new();
    let server = authority.sign(&Ask::server());
    let (lab, address, _) = Lab::with(|directory| Security {
        listen: Some(Listen {
            address: "127.0.0.1:0".parse().unwrap(),
            tls: authority.files(directory, &server),
        }),
        audit: Some(directory.join("audit.jsonl")),
        // All come at once.
        limits: Limits { per_caller: 100, ..Limits::default() },
        ..Security::default()
    });
    let address = address.unwrap();
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        TestRng::from_seed(RngAlgorithm::ChaCha, &[9; 32]),
    );
    let pairs = ROLES.map(|role| authority.sign(&Ask::client("x", &[role])));
    let mut clients = pairs.each_ref().map(|pair| {
        let connector = authority.client(Some(pair));
        LinkemuClient::new(channel(connector, address, "linkemu.lab"))
    });
    let mut changes = 0;
    for n in 0..300 {
        let who = n % ROLES.len();
        let patch = patch().new_tree(&mut runner).unwrap().current();
        let set = set().new_tree(&mut runner).unwrap().current();
        for answer in [clients[who].patch_link(patch).await, clients[who].set_profile(set).await] {
            match (who, answer) {
                (1, Ok(_)) => changes += 1,
                (1, Err(status)) => assert!(
                    matches!(
                        status.code(),
                        Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition
                    ),
                    "{status:?}"
                ),
                (_, answer) => {
                    assert_eq!(answer.unwrap_err().code(), Code::PermissionDenied, "{who}");
                }
            }
            assert_eq!(lab.fake.state().generation, changes);
        }
    }
    let bytes = vec(any::<u8>(), 0..600);
    let mut noises = JoinSet::new();
    for n in 0..60 {
        let noise = bytes.new_tree(&mut runner).unwrap().current();
        let connector = authority.client(Some(&pairs[1]));
        noises.spawn(async move {
            if n % 2 == 0 {
                say(TcpStream::connect(address).await.unwrap(), &noise).await;
                return;
            }
            // Half of them after the preface of HTTP/2.
            let preface: &[u8] = if n % 4 == 1 { b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" } else { &[] };
            let stream = tls(&connector, address, "linkemu.lab").await.unwrap();
            say(stream, &[preface, &noise].concat()).await;
        });
    }
    noises.join_all().await;
    let list = pb::ListProfilesRequest::default();
    clients[0].list_profiles(list).await.unwrap();
    assert_eq!(lab.fake.state().generation, changes);
    let text = std::fs::read_to_string(lab.directory.path().join("audit.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |event: &str| lines.iter().filter(|line| line["event"] == event).count();
    // Two calls in each of 100 rounds.
    assert_eq!((count("asked"), count("answered")), (200, 200));
    assert!(count("refused") >= 200, "{}", count("refused"));
    assert!(count("handshake_refused") > 0);
}
