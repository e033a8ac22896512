// SPDX-License-Identifier: Apache-2.0
//! Properties of all profiles and all texts.

use profile::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use prost::Message;
use proto::linkemu::v1 as pb;
use std::net::Ipv6Addr;

fn outage() -> impl Strategy<Value = pb::Outage> {
    (OUTAGE_INTERVAL_NS, OUTAGE_DURATION_NS, 1..=2_i32)
        .prop_map(|(interval_ns, duration_ns, law)| pb::Outage { interval_ns, duration_ns, law })
}

fn excursion() -> impl Strategy<Value = pb::Excursion> {
    (
        OUTAGE_INTERVAL_NS,
        OUTAGE_DURATION_NS,
        EXCURSION_MAX_NS,
        EXCURSION_MAX_NS,
        EXCURSION_MAX_NS,
        SHAPE_MIN..SHAPE_BELOW,
        option::of((FADE_INTERVAL_NS, FADE_INTERVAL_NS, 0.0..=1.0_f64)),
    )
        .prop_map(|(interval_ns, duration_ns, a, b, scale_ns, shape, regime)| pb::Excursion {
            interval_ns,
            duration_ns,
            location_ns: a.min(b),
            scale_ns,
            shape,
            max_ns: a.max(b),
            regime: regime.map(|regime| fade(regime, interval_ns)),
        })
}

/// A fade that leaves intervals of `shortest` long enough.
fn fade((interval_ns, duration_ns, share): (u64, u64, f64), shortest: u64) -> pb::Fade {
    let most = (shortest as f64 / *OUTAGE_INTERVAL_NS.start() as f64).min(*FADE_FACTOR.end());
    pb::Fade { interval_ns, duration_ns, factor: 1.0 + share * (most.floor() - 1.0) }
}

/// Tail drop, or one of the AQMs.
fn queue() -> impl Strategy<Value = pb::Queue> {
    QUEUE_LIMIT_BYTES.prop_flat_map(|limit_bytes| {
        let tail = pb::Queue { limit_bytes, ..Default::default() };
        let share = || 0.0..=1.0_f64;
        let drop = (0..=limit_bytes, share(), share(), share(), share()).prop_map(
            |(threshold_bytes, at_threshold, at_limit, early_at, early_probability)| {
                pb::RandomDrop {
                    threshold_bytes,
                    probability_at_threshold: at_threshold,
                    probability_at_limit: at_limit,
                    early_threshold_bytes: (threshold_bytes as f64 * early_at) as u64,
                    early_probability,
                }
            },
        );
        let red = (
            1..=limit_bytes,
            0.0..1.0_f64,
            RED_PROBABILITY_AT_MAX,
            RED_WEIGHT,
            RED_PACKET_BYTES,
            any::<bool>(),
        )
            .prop_map(
                |(max_bytes, share, probability_at_max, weight, packet_bytes, gentle)| {
                    let min_bytes = ((max_bytes as f64 * share) as u64).min(max_bytes - 1);
                    pb::Red {
                        min_bytes,
                        max_bytes,
                        probability_at_max,
                        weight,
                        packet_bytes,
                        gentle,
                    }
                },
            );
        let codel = (CO_DEL_INTERVAL_NS, 0.0..=1.0_f64).prop_map(|(interval_ns, share)| {
            let target_ns = ((interval_ns as f64 * share) as u64).max(*PIE_TARGET_NS.start());
            pb::CoDel { target_ns, interval_ns }
        });
        let pie = (PIE_TARGET_NS, PIE_UPDATE_NS, PIE_ALPHA_HZ, PIE_ALPHA_HZ, EXCURSION_MAX_NS)
            .prop_map(|(target_ns, update_ns, alpha_hz, beta_hz, max_burst_ns)| pb::Pie {
                target_ns,
                update_ns,
                alpha_hz,
                beta_hz,
                max_burst_ns,
            });
        let aqm = prop_oneof![
            drop.prop_map(move |it| pb::Queue { random_drop: Some(it), ..tail }),
            red.prop_map(move |it| pb::Queue { red: Some(it), ..tail }),
            codel.prop_map(move |it| pb::Queue { codel: Some(it), ..tail }),
            pie.prop_map(move |it| pb::Queue { pie: Some(it), ..tail }),
        ];
        let aqm = (aqm, any::<bool>()).prop_map(|(queue, ecn)| pb::Queue { ecn, ..queue });
        prop_oneof![1 => Just(tail), 4 => aqm]
    })
}

fn bps() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 9 => PIPE_RATE_BPS]
}

/// Absent, a rate, or a trace with a step that is not down.
fn rate() -> impl Strategy<Value = (Option<u64>, Option<pb::RateTrace>)> {
    let trace = (RATE_TRACE_STEP_NS, PIPE_RATE_BPS, vec(bps(), 0..40)).prop_map(
        |(step_ns, rate, mut rates)| {
            rates.insert(rates.len() / 2, rate);
            pb::RateTrace { step_ns, rates_bps: rates, ..Default::default() }
        },
    );
    let runs = vec(prop_oneof![9 => 1..200_u64, 1 => OPPORTUNITIES_RUNS], 0..40);
    let opportunities = (RATE_TRACE_STEP_NS, OPPORTUNITIES_SIZE_BYTES, runs).prop_map(
        |(step_ns, size_bytes, mut runs)| {
            runs.push(17);
            let opportunities = Some(pb::Opportunities { size_bytes, runs });
            pb::RateTrace { step_ns, opportunities, ..Default::default() }
        },
    );
    prop_oneof![
        option::of(bps()).prop_map(|bps| (bps, None)),
        trace.prop_map(|trace| (None, Some(trace))),
        opportunities.prop_map(|trace| (None, Some(trace))),
    ]
}

/// Classes, and perhaps a fade that does not make them too frequent.
fn channel() -> impl Strategy<Value = (Vec<pb::Outage>, Option<pb::Fade>)> {
    let fade = option::of((FADE_INTERVAL_NS, FADE_INTERVAL_NS, 0.0..=1.0_f64));
    (vec(outage(), PIPE_OUTAGES_ITEMS), fade).prop_map(|(outages, fade)| {
        let shortest = outages.iter().map(|outage| outage.interval_ns).min();
        let fade = fade.zip(shortest).map(|(it, shortest)| self::fade(it, shortest));
        (outages, fade)
    })
}

fn delay() -> impl Strategy<Value = pb::Delay> {
    let body = (BODY_CORRELATION_NS, vec(EXCURSION_MAX_NS, 2..40)).prop_map(
        |(correlation_ns, mut values)| {
            values.sort_unstable();
            pb::Body { correlation_ns, quantiles_ns: values }
        },
    );
    (DELAY_BASE_NS, DELAY_SLOT_NS, vec(excursion(), PIPE_OUTAGES_ITEMS), option::of(body)).prop_map(
        |(base_ns, slot_ns, excursions, body)| pb::Delay { base_ns, slot_ns, excursions, body },
    )
}

/// A pipe with at most one per-packet loss model.
fn losses() -> impl Strategy<Value = pb::Pipe> {
    let p = || 0.0..=1.0_f64;
    let gilbert = (p(), GILBERT_ELLIOTT_TO_GOOD, p(), p()).prop_map(
        |(to_bad, to_good, loss_in_bad, loss_in_good)| pb::GilbertElliott {
            to_bad,
            to_good,
            loss_in_bad,
            loss_in_good,
        },
    );
    let four = (p(), p(), GILBERT_ELLIOTT_TO_GOOD, p(), GILBERT_ELLIOTT_TO_GOOD).prop_map(
        |(a, b, p31, c, p23)| {
            let (p13, p14, p32) = (a, b * (1.0 - a), c * (1.0 - p31));
            pb::FourStateLoss { p13, p31, p32, p23, p14 }
        },
    );
    let model = prop_oneof![
        Just(pb::Pipe::default()),
        p().prop_map(|packet_loss| pb::Pipe { packet_loss, ..Default::default() }),
        gilbert.prop_map(|it| pb::Pipe { gilbert_elliott: Some(it), ..Default::default() }),
        four.prop_map(|it| pb::Pipe { four_state_loss: Some(it), ..Default::default() }),
    ];
    let run = (DROP_RUN_PASS_PACKETS, DROP_RUN_DROP_PACKETS, any::<bool>()).prop_map(
        |(pass, drop_packets, once)| pb::DropRun {
            pass_packets: pass.max(u64::from(!once)),
            drop_packets,
            once,
        },
    );
    let chance = || prop_oneof![Just(0.0), p()];
    let reorder =
        (p(), REORDER_BY_NS).prop_map(|(probability, by_ns)| pb::Reorder { probability, by_ns });
    let others = (option::of(run), chance(), chance(), option::of(reorder), option::of(cross()));
    (model, others).prop_map(|(pipe, (drop_run, duplicate, corrupt, reorder, cross))| pb::Pipe {
        cross_traffic: cross,
        drop_run,
        duplicate,
        corrupt,
        reorder,
        ..pipe
    })
}

fn cross() -> impl Strategy<Value = pb::CrossTraffic> {
    let on_off = (ON_OFF_ON_NS, ON_OFF_OFF_NS, ON_OFF_SHAPE)
        .prop_map(|(on_ns, off_ns, shape)| pb::OnOff { on_ns, off_ns, shape });
    (CROSS_TRAFFIC_FRAME_BYTES, 0.0..1.0, any::<bool>(), option::of(on_off)).prop_map(
        |(frame_bytes, share, poisson, on_off)| {
            let duty = on_off.map_or(1.0, |p| p.on_ns as f64 / (p.on_ns + p.off_ns) as f64);
            let most = 8e6 * f64::from(frame_bytes) * duty;
            let rate_bps = ((most * share) as u64).max(*CROSS_TRAFFIC_RATE_BPS.start());
            // The least rate may be too high for rare periods.
            let on_off = on_off.filter(|_| most >= 2_000.0);
            pb::CrossTraffic { rate_bps, frame_bytes, poisson: poisson && on_off.is_none(), on_off }
        },
    )
}

/// Capacity on demand of a pipe with a rate above a burst of each superframe.
fn access() -> impl Strategy<Value = pb::Access> {
    let rates = (
        RATE_REQUESTS_MAX_BPS,
        RATE_REQUESTS_TIMEOUT_NS,
        RATE_REQUESTS_GAIN,
        RATE_REQUESTS_DRAIN_NS,
        RATE_REQUESTS_DECAY_NS,
    )
        .prop_map(|(max_bps, timeout_ns, gain, drain_ns, decay_ns)| pb::RateRequests {
            max_bps,
            timeout_ns,
            gain,
            drain_ns,
            decay_ns,
        });
    let log_on = (LOG_ON_AFTER_NS, LOG_ON_DELAY_NS)
        .prop_map(|(after_ns, delay_ns)| pb::LogOn { after_ns, delay_ns });
    let contention = (CONTENTION_LOAD, CONTENTION_BACKOFF)
        .prop_map(|(load, backoff)| pb::Contention { load, backoff });
    let bursts = (ACCESS_SUPERFRAME_NS, ACCESS_CONSTANT, ACCESS_FREE, any::<bool>());
    let times = (ACCESS_REQUEST_DELAY_NS, ACCESS_PLAN_DELAY_NS, ACCESS_VOLUME_BYTES);
    let others = (OTHERS_TERMINALS, OTHERS_RATE_BPS, OTHERS_ON_NS, OTHERS_OFF_NS).prop_map(
        |(terminals, rate_bps, on_ns, off_ns)| pb::Others { terminals, rate_bps, on_ns, off_ns },
    );
    let asks = (option::of(rates), option::of(log_on), option::of(contention), option::of(others));
    (bursts, times, asks).prop_map(
        |(bursts, times, (rate_requests, log_on, contention, others))| {
            let (superframe_ns, constant, free, padding) = bursts;
            let (request_delay_ns, plan_delay_ns, volume_bytes) = times;
            pb::Access {
                superframe_ns,
                // A byte per millisecond is the least rate but one.
                burst_bytes: 1,
                padding,
                constant: constant.max(1),
                free,
                rate_requests,
                volume_bytes,
                // One request at a time.
                request_interval_ns: *ACCESS_REQUEST_INTERVAL_NS.end(),
                request_delay_ns,
                plan_delay_ns,
                log_on,
                contention,
                others,
            }
        },
    )
}

fn capacity() -> impl Strategy<Value = pb::Capacity> {
    let daily = vec(CAPACITY_DAILY, CAPACITY_DAILY_ITEMS);
    (CAPACITY_MEAN, 0.0..0.99_f64, CAPACITY_CORRELATION_NS, daily).prop_map(
        |(mean, share, correlation_ns, daily)| {
            let most = (mean * (1.0 - mean)).sqrt().min(*CAPACITY_SPREAD.end());
            pb::Capacity { mean, spread: share * most, correlation_ns, daily }
        },
    )
}

fn reconfiguration() -> impl Strategy<Value = pb::Reconfiguration> {
    let lists = (vec(RECONFIGURATION_DELAYS_NS, 1..40), vec(0.0..=1.0_f64, 0..40), 1..=2_i32);
    let outage = option::of((0.001..=1.0_f64, 0..=2_i32));
    (RECONFIGURATION_PERIOD_NS, 0.0..1.0_f64, 1..=2_i32, lists, outage).prop_map(
        |(period_ns, phase, clock, (mut delays_ns, mut shares, values), outage)| {
            delays_ns.sort_unstable();
            shares.sort_by(f64::total_cmp);
            let outage_ns = period_ns.min(*RECONFIGURATION_OUTAGE_NS.end());
            let (outage_probability, outage_law) = outage.unwrap_or_default();
            pb::Reconfiguration {
                period_ns,
                phase_ns: ((period_ns - 1) as f64 * phase) as u64,
                clock,
                values,
                delays_ns,
                shares,
                outage_probability,
                outage_ns: if outage.is_some() { outage_ns } else { 0 },
                outage_law,
            }
        },
    )
}

fn path_trace() -> impl Strategy<Value = pb::PathTrace> {
    let both = vec((PATH_TRACE_DELAYS_NS, 0.0..=1.0), 1..40);
    let begin = prop_oneof![Just(0), PATH_TRACE_BEGIN_NS];
    (PATH_TRACE_STEP_NS, both, begin, 0..3).prop_map(|(step_ns, both, begin_ns, which)| {
        let (mut delays_ns, mut losses): (Vec<u64>, Vec<f64>) = both.into_iter().unzip();
        match which {
            0 => delays_ns.clear(),
            1 => losses.clear(),
            _ => {}
        }
        pb::PathTrace { step_ns, delays_ns, losses, begin_ns }
    })
}

fn mtu() -> impl Strategy<Value = pb::Mtu> {
    let v4 = option::of((1_u8..=126, any::<[u8; 3]>()));
    let v6 = option::of((0x2000_u16..=0x3fff, any::<[u16; 7]>()));
    (MTU_LIMIT_BYTES, 0..=2, v4, v6, MTU_RATE_HZ).prop_map(
        |(limit_bytes, exceeded, v4, v6, rate_hz)| pb::Mtu {
            limit_bytes,
            exceeded,
            address: v4.map_or_else(String::new, |(a, [b, c, d])| format!("{a}.{b}.{c}.{d}")),
            address_v6: v6.map_or_else(String::new, |(a, [b, c, d, e, f, g, h])| {
                Ipv6Addr::new(a, b, c, d, e, f, g, h).to_string()
            }),
            rate_hz,
        },
    )
}

fn pipe() -> impl Strategy<Value = pb::Pipe> {
    let varies = (option::of(capacity()), option::of(reconfiguration()), option::of(path_trace()));
    let framing = (PIPE_OVERHEAD_BYTES, 0..=2, option::of(mtu()));
    (rate(), varies, framing, losses(), queue(), channel(), delay()).prop_map(
        |(
            (rate_bps, rate_trace),
            (capacity, mut reconfiguration, path_trace),
            framing,
            losses,
            queue,
            (outages, fade),
            delay,
        )| {
            let (overhead_bytes, link_layer, mtu) = framing;
            let limited = rate_bps.is_some() || rate_trace.is_some();
            let cross_traffic = losses.cross_traffic.filter(|_| limited);
            let capacity = capacity.filter(|_| rate_bps.is_some());
            if let Some(it) = reconfiguration.as_mut().filter(|_| rate_bps.is_none()) {
                it.shares.clear();
            }
            pb::Pipe {
                cross_traffic,
                capacity,
                reconfiguration,
                path_trace,
                rate_bps,
                rate_trace,
                overhead_bytes,
                mtu,
                link_layer,
                queue: Some(queue),
                outages,
                fade,
                delay: Some(delay),
                ..losses
            }
        },
    )
}

const TEXT: &str = "[^\\p{Cc}]{0,40}(\n[\"'\\\\#=]{0,5}\t)?";
const TEXT_OF_SOME: &str = "[^\\p{Cc}]{1,40}(\n[\"'\\\\#=]{0,5}\t)?";

fn estimate() -> impl Strategy<Value = pb::Estimate> {
    (TEXT_OF_SOME, TEXT_OF_SOME, TEXT, TEXT, TEXT).prop_map(
        |(parameter, value, low, high, method)| pb::Estimate {
            parameter,
            value,
            low,
            high,
            method,
        },
    )
}

fn goodness() -> impl Strategy<Value = pb::Goodness> {
    let finite = prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO;
    (TEXT_OF_SOME, finite, finite, 0.0..=1.0).prop_map(|(test, statistic, degrees, p_value)| {
        pb::Goodness { test, statistic, degrees_of_freedom: degrees.abs(), p_value }
    })
}

fn sensitivity() -> impl Strategy<Value = pb::Sensitivity> {
    (TEXT_OF_SOME, TEXT, TEXT_OF_SOME, TEXT_OF_SOME, TEXT).prop_map(
        |(prior, value, figure, change, per)| pb::Sensitivity { prior, value, figure, change, per },
    )
}

fn provenance() -> impl Strategy<Value = pb::Provenance> {
    let head = (TEXT_OF_SOME, TEXT, "([0-9a-fA-F]{64})?");
    let counts = (PROVENANCE_SAMPLES, PROVENANCE_SAMPLES, PROVENANCE_INTERVAL_NS);
    let lists = (
        vec(TEXT, 0..3),
        vec(TEXT, 0..3),
        vec(estimate(), 0..3),
        vec(goodness(), 0..3),
        vec(sensitivity(), 0..3),
    );
    (head, counts, lists).prop_map(|((source, format, sha256), (a, b, interval_ns), lists)| {
        pb::Provenance {
            source,
            format,
            sha256,
            samples: a.max(b),
            lost: a.min(b),
            interval_ns,
            unidentified: lists.0,
            remarks: lists.1,
            estimates: lists.2,
            goodness: lists.3,
            sensitivities: lists.4,
        }
    })
}

/// A pipe that may have capacity on demand.
fn return_pipe() -> impl Strategy<Value = pb::Pipe> {
    (pipe(), option::of((access(), 8_000..*PIPE_RATE_BPS.end()))).prop_map(|(mut pipe, access)| {
        if let Some((access, rate)) = access {
            (pipe.access, pipe.rate_bps) = (Some(access), Some(rate));
            (pipe.rate_trace, pipe.capacity, pipe.cross_traffic) = (None, None, None);
            if let Some(it) = &mut pipe.reconfiguration {
                it.shares.clear();
            }
            if let Some(it) = &mut pipe.delay {
                it.slot_ns = 0;
            }
        }
        pipe
    })
}

fn valid() -> impl Strategy<Value = pb::Profile> {
    let head = ("[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}\\*?", "[^\\p{Cc}]{0,20}", TEXT, TEXT);
    (head, pipe(), return_pipe(), option::of(provenance())).prop_map(
        |((name, group, description, source), forward, back, provenance)| pb::Profile {
            name,
            group,
            description,
            source,
            forward_pipe: Some(forward),
            return_pipe: Some(back),
            provenance,
        },
    )
}

/// Entries of each list of a provenance.
const ENTRIES: usize = *PROVENANCE_REMARKS_ITEMS.end();

/// Everything at its limit, with texts of maximum length.
fn largest() -> pb::Profile {
    let text = |bytes: usize| "\\".repeat(bytes);
    let pipe = pb::Pipe {
        rate_bps: None,
        rate_trace: Some(pb::RateTrace {
            step_ns: 3_599_999_999_999,
            rates_bps: Vec::new(),
            opportunities: Some(pb::Opportunities {
                size_bytes: 65_535,
                // The longest numbers of a byte.
                runs: vec![127; *OPPORTUNITIES_RUNS_ITEMS.end()],
            }),
            begin_ns: 0,
        }),
        path_trace: Some(pb::PathTrace {
            step_ns: 3_599_999_999_999,
            delays_ns: vec![59_999_999_999; *PATH_TRACE_DELAYS_NS_ITEMS.end()],
            losses: vec![0.123_456_789_012_345_67; *PATH_TRACE_LOSSES_ITEMS.end()],
            begin_ns: *PATH_TRACE_BEGIN_NS.end(),
        }),
        overhead_bytes: -64,
        mtu: Some(pb::Mtu {
            limit_bytes: *MTU_LIMIT_BYTES.end() - 1,
            exceeded: pb::MtuExceeded::Icmp.into(),
            address: "223.255.255.254".into(),
            address_v6: "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".into(),
            rate_hz: *MTU_RATE_HZ.end() - 1,
        }),
        link_layer: pb::LinkLayer::Atm.into(),
        four_state_loss: Some(pb::FourStateLoss {
            p13: 0.123_456_789_012_345_67,
            p31: 0.123_456_789_012_345_67,
            p32: 0.123_456_789_012_345_67,
            p23: 0.123_456_789_012_345_67,
            p14: 0.123_456_789_012_345_67,
        }),
        duplicate: 0.123_456_789_012_345_67,
        corrupt: 0.123_456_789_012_345_67,
        reorder: Some(pb::Reorder {
            probability: 0.123_456_789_012_345_67,
            by_ns: *REORDER_BY_NS.end() - 1,
        }),
        cross_traffic: Some(pb::CrossTraffic {
            rate_bps: 399_999_999,
            frame_bytes: *CROSS_TRAFFIC_FRAME_BYTES.end() - 1,
            poisson: false,
            on_off: Some(pb::OnOff {
                on_ns: *ON_OFF_ON_NS.end() - 1,
                off_ns: *ON_OFF_OFF_NS.end() - 1,
                shape: 1.234_567_890_123_456_7,
            }),
        }),
        drop_run: Some(pb::DropRun {
            pass_packets: *DROP_RUN_PASS_PACKETS.end(),
            drop_packets: *DROP_RUN_DROP_PACKETS.end(),
            once: false,
        }),
        queue: Some(pb::Queue { limit_bytes: (64 << 30) - 1, ..Default::default() }),
        outages: vec![
            pb::Outage {
                interval_ns: 364 * 86_400_000_000_000 + 86_399_999_999_999,
                duration_ns: 3_599_999_999_999,
                law: 1,
            };
            *PIPE_OUTAGES_ITEMS.end()
        ],
        fade: Some(pb::Fade { interval_ns: 86_399_999_999_999, duration_ns: 1 << 40, factor: 1.5 }),
        delay: Some(pb::Delay {
            base_ns: 59_999_999_999,
            slot_ns: 999_999_999,
            excursions: Vec::new(),
            body: Some(pb::Body {
                correlation_ns: 3_599_999_999_999,
                quantiles_ns: vec![59_999_999_999; *BODY_QUANTILES_NS_ITEMS.end()],
            }),
        }),
        ..Default::default()
    };
    let estimate = pb::Estimate { parameter: text(1), value: text(1), ..Default::default() };
    let goodness = pb::Goodness {
        test: text(1),
        statistic: -f64::MAX,
        degrees_of_freedom: f64::MAX,
        p_value: f64::MIN_POSITIVE,
    };
    let entries = ENTRIES * 3;
    let mut remarks = vec![text(1); ENTRIES];
    // The remaining bytes of the provenance.
    let mut left = PROVENANCE_BYTES - 1 - entries - ENTRIES - 2 * ENTRIES;
    for remark in &mut remarks {
        let more = left.min(TEXT_BYTES - remark.len());
        remark.push_str(&text(more));
        left -= more;
    }
    pb::Profile {
        name: "a".repeat(NAME_CHARS),
        group: "\\".repeat(NAME_CHARS),
        description: text(TEXT_BYTES),
        source: text(TEXT_BYTES),
        forward_pipe: Some(pipe.clone()),
        return_pipe: Some(pipe),
        provenance: Some(pb::Provenance {
            source: text(1),
            samples: *PROVENANCE_SAMPLES.end(),
            lost: *PROVENANCE_SAMPLES.end(),
            interval_ns: 86_399_999_999_999,
            unidentified: vec![text(2); ENTRIES],
            remarks,
            estimates: vec![estimate; ENTRIES],
            goodness: vec![goodness; ENTRIES],
            ..Default::default()
        }),
    }
}

#[test]
fn largest_profile_fits_and_round_trips() {
    let message = largest();
    let texts = message.provenance.as_ref().unwrap().encoded_len();
    assert!(texts > PROVENANCE_BYTES, "{texts}");
    assert!(message.encoded_len() < MESSAGE_BYTES, "{}", message.encoded_len());
    let toml = Profile::try_from(message.clone()).unwrap().to_toml();
    assert!(toml.len() < FILE_BYTES, "{}", toml.len());
    assert!(toml.len() > FILE_BYTES / 2, "{}", toml.len());
    assert_eq!(Profile::from_toml(&toml).unwrap().as_proto(), &message);
}

#[test]
fn quantity_lists_print_several_items_per_line() {
    let mut profile = largest();
    for pipe in [&mut profile.forward_pipe, &mut profile.return_pipe].into_iter().flatten() {
        pipe.rate_trace = Some(pb::RateTrace {
            step_ns: 3_599_999_999_999,
            rates_bps: vec![399_999_999_999; *RATE_TRACE_RATES_BPS_ITEMS.end()],
            ..Default::default()
        });
    }
    assert!(profile.encoded_len() < MESSAGE_BYTES, "{}", profile.encoded_len());
    let toml = Profile::try_from(profile).unwrap().to_toml();
    assert!(toml.len() < FILE_BYTES, "{}", toml.len());
    let (mut lines, mut items) = (0, 0);
    for line in toml.lines().filter(|line| line.starts_with("    \"") && line.ends_with(',')) {
        assert!(line.len() <= 100, "{line}");
        if line.contains("bit/s") {
            lines += 1;
            items += line.matches(',').count();
        }
    }
    assert_eq!(items, 2 * *RATE_TRACE_RATES_BPS_ITEMS.end());
    assert_eq!(lines, items / 4);
}

proptest! {
    #[test]
    fn valid_profile_round_trips_through_toml(message in valid()) {
        let profile = Profile::try_from(message.clone()).unwrap();
        let text = profile.to_toml();
        let back = Profile::from_toml(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(back.as_proto(), &message);
    }

    #[test]
    fn no_text_panics_the_parser(text in any::<String>()) {
        let _ = Profile::from_toml(&text);
    }

    #[test]
    fn damaged_profile_does_not_panic_the_parser(
        message in valid(), at in any::<prop::sample::Index>(), junk in "\\PC{0,8}", cut in 0..20_usize,
    ) {
        let text = Profile::try_from(message).unwrap().to_toml();
        let chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        let head: String = chars[..at].iter().collect();
        let tail: String = chars[(at + cut).min(chars.len())..].iter().collect();
        if let Err(found) = Profile::from_toml(&format!("{head}{junk}{tail}")) {
            prop_assert!(!found.is_empty());
            prop_assert!(found.iter().all(|v| v.place.is_some()));
        }
    }

    #[test]
    fn no_text_panics_a_unit_parser(text in "\\PC{0,30}|[0-9. ]{0,30}[a-zA-Z/%µ ]{0,8}") {
        let _ = (parse_rate(&text), parse_size(&text), parse_duration(&text));
        let _ = (parse_overhead(&text), parse_probability(&text));
    }

    #[test]
    fn printed_quantities_parse_to_themselves(n in any::<u64>(), shift in 0..64_u32, o in any::<i32>(), p in 0.0..=1.0) {
        let n = n >> shift;
        let rate = Rate::from_bps(Some(n));
        prop_assert_eq!(parse_rate(&rate.to_string()), Ok(rate));
        prop_assert_eq!(parse_size(&format_size(n)), Ok(n));
        prop_assert_eq!(parse_duration(&format_duration(n)), Ok(n));
        prop_assert_eq!(parse_overhead(&format_overhead(o)), Ok(o));
        prop_assert_eq!(parse_probability(&format_probability(p)), Ok(p));
    }

    #[test]
    fn printed_probabilities_parse_to_themselves(bits in any::<u64>()) {
        let p = f64::from_bits(bits).abs();
        prop_assume!(p.is_finite());
        prop_assert_eq!(parse_probability(&format_probability(p)), Ok(p));
    }
}
