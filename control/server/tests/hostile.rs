// SPDX-License-Identifier: Apache-2.0
//! No request makes linkd panic, and what it refuses changes nothing.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use common::Lab;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use proto::linkemu::v1 as pb;
use tonic::Code;

/// Anything, likelier to be near a limit than by chance.
fn quantity() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..3_000_u64, Just(0), Just(u64::MAX), 1_000_000..100_000_000_000_u64]
}

fn real() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), 0.0..=1.0, Just(f64::NAN), Just(f64::INFINITY)]
}

fn queue() -> impl Strategy<Value = pb::Queue> {
    let drop = option::of((quantity(), real(), real()));
    (quantity(), drop).prop_map(|(limit_bytes, drop)| pb::Queue {
        limit_bytes,
        random_drop: drop.map(|(threshold_bytes, low, high)| pb::RandomDrop {
            threshold_bytes,
            probability_at_threshold: low,
            probability_at_limit: high,
        }),
    })
}

fn outage() -> impl Strategy<Value = pb::Outage> {
    (quantity(), quantity(), -1..4_i32).prop_map(|(interval_ns, duration_ns, law)| pb::Outage {
        interval_ns,
        duration_ns,
        law,
    })
}

fn excursion() -> impl Strategy<Value = pb::Excursion> {
    (quantity(), quantity(), quantity(), quantity(), real(), quantity()).prop_map(
        |(interval_ns, duration_ns, location_ns, scale_ns, shape, max_ns)| pb::Excursion {
            interval_ns,
            duration_ns,
            location_ns,
            scale_ns,
            shape,
            max_ns,
        },
    )
}

fn pipe() -> impl Strategy<Value = pb::Pipe> {
    let body = (quantity(), vec(quantity(), 0..4))
        .prop_map(|(correlation_ns, quantiles_ns)| pb::Body { correlation_ns, quantiles_ns });
    let delay = (quantity(), quantity(), vec(excursion(), 0..20), option::of(body)).prop_map(
        |(base_ns, slot_ns, excursions, body)| pb::Delay { base_ns, slot_ns, excursions, body },
    );
    let trace = (quantity(), vec(quantity(), 0..4))
        .prop_map(|(step_ns, rates_bps)| pb::RateTrace { step_ns, rates_bps });
    let fade = (quantity(), quantity(), real()).prop_map(|(interval_ns, duration_ns, factor)| {
        pb::Fade { interval_ns, duration_ns, factor }
    });
    let rate = (option::of(quantity()), option::of(trace));
    let parts = (rate, any::<i32>(), real(), option::of(queue()), vec(outage(), 0..20));
    (parts, option::of(fade), option::of(delay)).prop_map(
        |(((rate_bps, rate_trace), overhead_bytes, packet_loss, queue, outages), fade, delay)| {
            pb::Pipe {
                rate_bps,
                rate_trace,
                overhead_bytes,
                packet_loss,
                queue,
                outages,
                fade,
                delay,
            }
        },
    )
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
            "rate_bps", "overhead_bytes", "queue", "queue.limit_bytes", "queue.random_drop",
            "outages", "delay", "delay.base_ns", "delay.slot_ns", "delay.excursions",
            "rate_trace", "packet_loss", "fade", "delay.body",
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
        });
    use pb::set_profile_request::Profile::{Inline, Name};
    let profile = prop_oneof![profile.prop_map(Inline), any::<String>().prop_map(Name)];
    (option::of(profile), option::of(any::<u64>())).prop_map(|(profile, seed)| {
        pb::SetProfileRequest { profile, seed, lossy: true, ..Default::default() }
    })
}

enum Request {
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
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..1_000 {
        let patch = patch().new_tree(&mut runner).unwrap().current();
        let set = set().new_tree(&mut runner).unwrap().current();
        for request in [Request::Patch(Box::new(patch)), Request::Set(Box::new(set))] {
            let answer = match request {
                Request::Patch(patch) => lab.client.patch_link(*patch).await,
                Request::Set(set) => lab.client.set_profile(*set).await,
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
    assert!(taken > 10, "{taken}");
    profile::validate(&lab.in_force()).unwrap();
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused() {
    let mut lab = Lab::new();
    let status = lab.set(&"x".repeat(2 << 20)).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    lab.set("viasat2").await.unwrap();
}
