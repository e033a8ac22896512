// SPDX-License-Identifier: Apache-2.0
//! Random plans, traffic and changes, for the tests of this crate and of `worker`.
#![allow(dead_code, reason = "not every program uses all of it")]

use std::sync::Arc;

use emu::access::{AccessPlan, Contention, LogOn, OthersPlan, RateRequests};
use emu::aqm::codel::CoDelPlan;
use emu::aqm::pie::PiePlan;
use emu::aqm::red::RedPlan;
use emu::aqm::{AqmPlan, QueuePlan, RandomDrop};
use emu::beam::{BeamPlan, BeamsPlan, Share};
use emu::client::ClientKey;
use emu::cross::{Arrivals, CrossPlan, OnOff};
use emu::delay::{DelayPlan, ExcursionPlan};
use emu::drop_run::DropRunPlan;
use emu::ecn;
use emu::engine::{Departure, Engine, Limits};
use emu::episode::boundary::BoundaryPlan;
use emu::episode::fade::FadePlan;
use emu::episode::{DurationLaw, EpisodePlan};
use emu::frame::{Buffer, Frame};
use emu::framing::{Framing, LinkLayer};
use emu::held::{Clock, Grid, HeldPlan, Hold, Values};
use emu::loss::{FourState, GilbertElliott, LossPlan};
use emu::matches::Match;
use emu::mtu::{AnswerPlan, MtuPlan};
use emu::plan::{OffloadPlan, PipePlan, Plan};
use emu::rules::{Rule, Rules};
use emu::shaper::{RatePlan, RateTrace, VaryingPlan};
use emu::stats::Snapshot;
use emu::units::{BitRate, ByDirection, Direction, Instant, Nanos, Probability};
use proptest::prelude::*;
use std::num::NonZeroU64;

use proptest::test_runner::Config;

/// `count` cases of a property, where proptest's default is 256. PROPTEST_CASES scales both:
/// `cases(60)` is 960 cases with PROPTEST_CASES=4096.
pub fn cases(count: u32) -> Config {
    let default = Config::default();
    Config { cases: default.cases.saturating_mul(count).div_ceil(256), ..default }
}

pub const LIMITS: Limits = Limits::copying(8 << 20, 4, 9_500);

pub fn rate() -> impl Strategy<Value = RatePlan> {
    let step = prop_oneof![Just(0), 100_000_u64..2_000_000_000];
    let trace = (1_u64..40, prop::collection::vec(step, 1..6))
        .prop_map(|(ms, rates)| RateTrace::new(Nanos::from_millis(ms), &rates));
    let share = || prop::option::of(held(1 << 32));
    let varying =
        (1_000_000_u64..2_000_000_000, [share(), share(), share()]).prop_map(|(peak, shares)| {
            let peak = std::num::NonZeroU64::new(peak).expect("not zero");
            RatePlan::Varying(VaryingPlan { peak, shares })
        });
    prop_oneof![
        3 => access().prop_map(RatePlan::Access).boxed(),
        3 => varying,
        1 => Just(BitRate::Unlimited.into()),
        1 => Just(BitRate::Down.into()),
        6 => (100_000_u64..2_000_000_000).prop_map(|r| BitRate::bps(r).into()),
        4 => trace.prop_map(RatePlan::Trace),
    ]
}

/// Capacity on demand, with any way of asking for it.
pub fn access() -> impl Strategy<Value = AccessPlan> {
    let millis = |most: u64| (0..most).prop_map(Nanos::from_millis);
    let times = (1_u64..3_000, millis(2_000), millis(9_000));
    let rate = (10_000_u64..50_000_000, 0_u32..1 << 18, times).prop_map(
        |(max, gain, (timeout, drain, decay))| RateRequests {
            max: NonZeroU64::new(max).expect("not zero"),
            timeout: Nanos::from_millis(timeout),
            gain,
            drain,
            decay,
        },
    );
    let log_on = (millis(2_000), millis(2_000)).prop_map(|(after, delay)| LogOn { after, delay });
    let contention = (0.05_f64..1.0, 0_u32..20)
        .prop_map(|(p, backoff)| Contention { success: Probability::new(p), backoff });
    let others = (1_u32..20, 10_000_u64..5_000_000, 1_u64..2_000, millis(2_000)).prop_map(
        |(terminals, rate, on, off)| OthersPlan {
            terminals,
            rate: NonZeroU64::new(rate).expect("not zero"),
            on: Nanos::from_millis(on),
            off,
        },
    );
    let asks = (
        prop::option::of(rate),
        (0_u64..1_000_000).prop_map(|most| NonZeroU64::new(most.saturating_sub(300_000))),
        prop::option::of(log_on),
        prop::option::of(contention),
        prop::option::of(others),
    );
    let bursts = (5_u64..100, 20_u32..2_000, any::<bool>(), 0_u32..4, 0_u32..2);
    let times = (millis(1_000), millis(400), millis(400));
    (1_000_000_u64..100_000_000, bursts, times, asks).prop_map(
        |(peak, (superframe, burst, packs, constant, free), times, asks)| AccessPlan {
            // At least a burst for each superframe.
            peak: NonZeroU64::new(peak + u64::from(burst) * 8_000).expect("not zero"),
            superframe: Nanos::from_millis(superframe),
            burst,
            packs,
            constant,
            free,
            rate: asks.0,
            volume: asks.1,
            interval: times.0,
            request_delay: times.1,
            plan_delay: times.2,
            log_on: asks.2,
            contention: asks.3,
            others: asks.4,
        },
    )
}

fn grid() -> impl Strategy<Value = Grid> {
    let clock = prop_oneof![
        Just(Clock::Start),
        any::<u32>().prop_map(|zero| Clock::Utc(Nanos(u64::from(zero) << 30))),
    ];
    (10_u64..300, any::<u32>(), clock).prop_map(|(period, phase, clock)| Grid {
        period: Nanos::from_millis(period),
        phase: Nanos(phase.into()),
        clock,
    })
}

/// A process with values up to `max`.
pub fn held(max: u64) -> impl Strategy<Value = HeldPlan> {
    let hold = prop_oneof![
        (1_u64..100).prop_map(|ms| Hold::Exponential(Nanos::from_millis(ms))),
        grid().prop_map(Hold::Period),
    ];
    (hold, prop::collection::vec(0..=max, 1..8), any::<bool>()).prop_map(
        |(hold, mut values, listed)| {
            let values = if listed {
                Values::Listed(values.into())
            } else {
                values.sort_unstable();
                Values::Quantiles(values.into())
            };
            HeldPlan { hold, values }
        },
    )
}

/// A trace of values up to `max`.
fn steps(max: u64) -> impl Strategy<Value = HeldPlan> {
    (1_u64..50, prop::collection::vec(0..=max, 1..20))
        .prop_map(|(ms, values)| HeldPlan::steps(Nanos::from_millis(ms), values))
}

fn boundary() -> impl Strategy<Value = BoundaryPlan> {
    (grid(), 0.0..=1.0, 0_u64..400, any::<bool>()).prop_map(|(grid, p, ms, fixed)| BoundaryPlan {
        grid,
        probability: Probability::new(p),
        duration: Nanos::from_millis(ms),
        law: if fixed { DurationLaw::Fixed } else { DurationLaw::Exponential },
    })
}

pub fn delay() -> impl Strategy<Value = DelayPlan> {
    let regime = prop::option::of((10_u64..500, 10_u64..300, 1.0..3.0_f64)).prop_map(|regime| {
        regime.map(|(interval, duration, factor)| FadePlan {
            interval: Nanos::from_millis(interval),
            duration: Nanos::from_millis(duration),
            factor,
        })
    });
    let figures = (30_u64..200, 1_u64..50, 0_u64..30, 1_u64..30, -0.3..0.6);
    let excursion =
        (figures, regime).prop_map(|((interval, duration, location, scale, shape), regime)| {
            ExcursionPlan {
                interval: Nanos::from_millis(interval),
                duration: Nanos::from_millis(duration),
                location: Nanos::from_millis(location),
                scale: Nanos::from_millis(scale),
                shape,
                max: Nanos::from_millis(100),
                regime,
            }
        });
    (
        0_u64..400_000_000,
        prop_oneof![Just(0), 1_u64..50_000_000],
        prop::option::of(steps(80_000_000)),
        prop::option::of(held(80_000_000)),
        prop::option::of(held(80_000_000)),
        prop::collection::vec(excursion, 0..3),
    )
        .prop_map(|(base, slot, trace, level, body, excursions)| DelayPlan {
            base: Nanos(base),
            slot: Nanos(slot),
            trace,
            level,
            body,
            excursions,
        })
}

pub fn queue() -> impl Strategy<Value = QueuePlan> {
    let p = || (0.0..=1.0).prop_map(Probability::new);
    let ms = |n: u64| (0..n * 1_000_000).prop_map(Nanos);
    let aqm = move |limit: u64| {
        let red = (p(), 0.0..=0.5, 1_u32..2_000, any::<bool>());
        let pie = (ms(20), 1_u64..30, 0.0..10.0, 0.0..50.0, ms(50));
        prop_oneof![
            Just(AqmPlan::TailDrop),
            (p(), p(), p()).prop_map(move |(at_threshold, at_limit, early)| {
                let (threshold, early_threshold) = (limit / 2, limit / 8);
                let law = RandomDrop { threshold, at_threshold, at_limit, early, early_threshold };
                AqmPlan::RandomDrop(law)
            }),
            red.prop_map(move |(at_max, weight, packet, gentle)| {
                let (min, max, weight) = (limit / 8, limit / 3, Probability::new(weight));
                AqmPlan::Red(RedPlan { min, max, at_max, weight, packet, gentle })
            }),
            (ms(20), ms(100))
                .prop_map(|(target, interval)| AqmPlan::CoDel(CoDelPlan { target, interval })),
            pie.prop_map(|(target, update, alpha, beta, max_burst)| {
                let update = Nanos::from_millis(update);
                AqmPlan::Pie(PiePlan { target, update, alpha, beta, max_burst })
            }),
        ]
    };
    (2_000_u64..200_000, any::<bool>()).prop_flat_map(move |(limit, ecn)| {
        aqm(limit).prop_map(move |aqm| QueuePlan { limit, aqm, ecn })
    })
}

pub fn packet_loss() -> impl Strategy<Value = LossPlan> {
    let p = || (0.0..=1.0).prop_map(Probability::new);
    let half = || (0.0..=0.5).prop_map(Probability::new);
    prop_oneof![
        2 => Just(LossPlan::None),
        1 => p().prop_map(LossPlan::from),
        1 => (p(), p(), p(), p()).prop_map(|(to_bad, to_good, loss_in_bad, loss_in_good)| {
            LossPlan::GilbertElliott(GilbertElliott { to_bad, to_good, loss_in_bad, loss_in_good })
        }),
        1 => (half(), half(), half(), p(), half()).prop_map(|(p13, p31, p32, p23, p14)| {
            LossPlan::FourState(FourState { p13, p31, p32, p23, p14 })
        }),
    ]
}

pub fn link_layer() -> impl Strategy<Value = LinkLayer> {
    prop_oneof![Just(LinkLayer::Plain), Just(LinkLayer::Atm), Just(LinkLayer::Ptm)]
}

pub fn framing() -> impl Strategy<Value = Framing> {
    (-20_i32..40, 0_u32..257, link_layer()).prop_map(|(overhead, min_frame, link_layer)| Framing {
        overhead,
        min_frame,
        link_layer,
    })
}

/// Often none.
pub fn cross() -> impl Strategy<Value = Option<CrossPlan>> {
    let ms = |n: u64| (1..n).prop_map(Nanos::from_millis);
    let on_off = (ms(50), ms(50), 1.05..4.0_f64);
    let arrivals = prop_oneof![
        Just(Arrivals::Constant),
        Just(Arrivals::Poisson),
        on_off.prop_map(|(on, off, shape)| Arrivals::OnOff(OnOff { on, off, shape })),
    ];
    let plan = (10_000_u64..20_000_000, 64_u32..1_515, arrivals)
        .prop_map(|(rate, frame, arrivals)| CrossPlan { rate, frame, arrivals });
    prop::option::weighted(0.4, plan)
}

/// Often none.
pub fn mtu() -> impl Strategy<Value = Option<MtuPlan>> {
    let answers = (1_u32..2_000).prop_map(|rate| AnswerPlan { v4: None, v6: None, rate });
    let plan = (68_u16..9_600, prop::option::of(answers))
        .prop_map(|(limit, answers)| MtuPlan { limit, answers });
    prop::option::weighted(0.25, plan)
}

prop_compose! {
    pub fn pipe()(
        rate in rate(),
        framing in framing(),
        mtu in mtu(),
        queue in queue(),
        cross in cross(),
        outages in prop::collection::vec((10_u64..100, 1_u64..40, any::<bool>()), 0..3),
        fade in prop::option::of((10_u64..500, 1_u64..200, 1.0..20.0)),
        boundary in prop::option::of(boundary()),
        packet_loss in packet_loss(),
        loss_trace in prop::option::of(steps(Probability::ONE.raw())),
        duplicate in prop_oneof![3 => Just(0.0), 1 => 0.0..=1.0],
        corrupt in prop_oneof![3 => Just(0.0), 1 => 0.0..=1.0],
        drop_run in prop::option::of((0_u64..20, 1_u64..5, any::<bool>())),
        delay in delay(),
    ) -> PipePlan {
        PipePlan {
            rate,
            framing,
            mtu,
            queue,
            cross,
            outages: outages.into_iter().map(|(interval, duration, fixed)| EpisodePlan {
                interval: Nanos::from_millis(interval),
                duration: Nanos::from_millis(duration),
                law: if fixed { DurationLaw::Fixed } else { DurationLaw::Exponential },
            }).collect(),
            fade: fade.map(|(interval, duration, factor)| FadePlan {
                interval: Nanos::from_millis(interval),
                duration: Nanos::from_millis(duration),
                factor,
            }),
            boundary,
            packet_loss,
            loss_trace,
            drop_run: drop_run.map(|(pass, drop, once)| DropRunPlan {
                pass,
                drop,
                once,
                arm: pass % 2 == 0,
            }),
            duplicate: Probability::new(duplicate),
            corrupt: Probability::new(corrupt),
            reorder: None,
            delay,
            offload: OffloadPlan::default(),
        }
    }
}

/// Without what makes two of a frame, or another one.
pub fn faithful(mut plan: Plan) -> Plan {
    for p in &mut plan.pipes.0 {
        (p.duplicate, p.corrupt) = (Probability::ZERO, Probability::ZERO);
    }
    plan
}

/// Rules for some of the clients of [`frame`], often none.
pub fn rules() -> impl Strategy<Value = Rules> {
    let rule = (0_u8..8, 29_u8..=32, 0_usize..3, prop::option::weighted(0.3, 0_u32..3));
    let rule = rule.prop_map(|(client, length, name, priority)| {
        let network = [10, 0, 0, client & !((1_u16 << (32 - length)) - 1) as u8].into();
        let prefix = Some((network, length));
        let rule = match priority {
            Some(priority) => {
                Rule::Match(Match { priority, prefix, dscp: Some(0), ..Match::default() })
            }
            None => Rule::Prefix(network, length),
        };
        (rule, ["a", "b", "c"][name].parse().unwrap())
    });
    let some = (prop::collection::vec(rule, 1..4), prop::option::of(0_u32..6), 0_u32..4);
    prop_oneof![
        1 => Just(Rules::default()),
        1 => some.prop_map(|(all, automatic, reserved)| {
            let mut rules = Rules::default();
            (rules.automatic, rules.reserved) = (automatic, reserved);
            for (rule, name) in all {
                // Of two rules for one prefix the second counts, of two matches the first.
                let _ = rules.insert(rule, name);
            }
            rules
        }),
    ]
}

prop_compose! {
    pub fn plan()(seed in 0_u64..4, forward in pipe(), back in pipe(), rules in rules()) -> Plan {
        Plan { seed, pipes: ByDirection([forward, back]), rules: rules.into(), ..Plan::transparent() }
    }
}

/// Beams of some clients, all, or none.
pub fn beams() -> impl Strategy<Value = BeamsPlan> {
    let bps = || {
        prop_oneof![
            1 => Just(BitRate::Unlimited),
            1 => Just(BitRate::Down),
            6 => (100_000_u64..2_000_000_000).prop_map(BitRate::bps),
        ]
    };
    let beam = (bps(), bps(), framing()).prop_map(|(forward, back, framing)| BeamPlan {
        name: String::new(),
        rate: ByDirection([forward, back]),
        framing,
    });
    prop::collection::vec(beam, 1..4).prop_flat_map(|beams| {
        let n = beams.len() as u16;
        let share = move || (0..n, 1_u16..=1_000).prop_map(|(beam, weight)| Share { beam, weight });
        let own = prop::collection::btree_map(0_u8..7, share(), 0..4);
        (prop::option::weighted(0.8, share()), own).prop_map(move |(automatic, own)| {
            let key = |(client, share)| (ClientKey::Ip([10, 0, 0, client].into()), share);
            let shares = own.into_iter().map(key).collect();
            BeamsPlan { beams: beams.clone(), shares, automatic }
        })
    })
}

prop_compose! {
    pub fn plan_with_beams()(plan in plan(), beams in prop::option::of(beams())) -> Plan {
        Plan { beams: Arc::new(beams.unwrap_or_default()), ..plan }
    }
}

/// What happens next, and how long after the last.
#[derive(Clone, Debug)]
pub enum Step {
    Arrive { direction: Direction, client: u8, len: u16 },
    Release { budget: usize, port_takes: usize },
    Apply { plan: Box<Plan>, restart: bool },
    KeepUp,
}

pub fn step() -> impl Strategy<Value = (u64, Step)> {
    let direction = any::<bool>().prop_map(|f| Direction::BOTH[usize::from(f)]);
    let arrive = (direction, 0_u8..7, prop_oneof![Just(60), 0_u16..1515, 1500_u16..9_600])
        .prop_map(|(direction, client, len)| Step::Arrive { direction, client, len });
    let gap = prop_oneof![Just(0), 0_u64..100_000, 0_u64..30_000_000];
    (
        gap,
        prop_oneof![
            20 => arrive,
            6 => (1_usize..100, prop_oneof![Just(usize::MAX), 0_usize..20])
                .prop_map(|(budget, port_takes)| Step::Release { budget, port_takes }),
            1 => (plan_with_beams(), any::<bool>()).prop_map(|(plan, restart)| Step::Apply { plan: Box::new(plan), restart }),
            1 => Just(Step::KeepUp),
        ],
    )
}

/// A frame for `client` that carries its number.
pub fn frame(direction: Direction, client: u8, len: u16, number: u32) -> Vec<u8> {
    let mut f = vec![0_u8; usize::from(len)];
    if len >= 34 {
        f[12..14].copy_from_slice(&[8, 0]);
        f[14] = 0x45;
        f[16..18].copy_from_slice(&(len - 14).to_be_bytes());
        let at = if direction == Direction::Forward { 30 } else { 26 };
        f[at..at + 4].copy_from_slice(&[10, 0, 0, client]);
    }
    if len >= 42 {
        // ECT(0), or not.
        f[15] = (number as u8 & 1) << 1;
        f[34..38].copy_from_slice(&number.to_be_bytes());
    }
    f
}

/// Whether a frame left as it came, but for a mark.
pub fn is_same(came: &[u8], left: &[u8]) -> bool {
    let mut marked = came.to_vec();
    left == came || ecn::mark(&mut marked) && left == marked
}

pub fn number(f: &[u8]) -> Option<u32> {
    f.get(34..38).map(|b| u32::from_be_bytes(b.try_into().unwrap()))
}

/// What left: which way, whose, when it was due, and its bytes.
pub type Left = Vec<(Direction, ClientKey, Instant, Vec<u8>)>;

/// Sorts by pipe and keeps the order in each: which of two pipes sends first in a release, and how late
/// the other is, depends on how far their queues were served, and is no frame's fate.
pub fn sort_by_pipe(left: &mut Left) {
    left.sort_by_key(|(direction, client, ..)| (*direction as u8, *client));
}

/// See [`sort_by_pipe`].
pub fn forget_lateness(snapshot: &mut Snapshot) {
    snapshot.lateness = Default::default();
    for pipe in snapshot.clients.iter_mut().flat_map(|client| &mut client.pipes.0) {
        pipe.lateness = Default::default();
    }
}

pub fn release<B: Buffer>(
    engine: &mut Engine<B>,
    now: Instant,
    budget: usize,
    port_takes: usize,
    left: &mut Left,
) {
    let full = left.len().saturating_add(port_takes);
    engine.release(now, budget, &mut |d: Departure<'_, B>| {
        let takes = left.len() < full;
        if takes {
            assert!(d.due <= now, "early");
            left.push((d.direction, *d.client, d.due, d.bytes().to_vec()));
            if let Frame::Buffer(buffer) = d.frame {
                buffer.take();
            }
        }
        takes
    });
}
