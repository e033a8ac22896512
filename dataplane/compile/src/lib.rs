// SPDX-License-Identifier: Apache-2.0
//! From the protos' plan to the core's. The daemon runs the result; a caller that wants to
//! know what a profile does can run it in virtual time.
//!
//! Requests are checked whole before anything of them is used: the same check that
//! `linkctl profile check` makes, and the core's own.

use emu::aqm::codel::CoDelPlan;
use emu::aqm::pie::PiePlan;
use emu::aqm::red::RedPlan;
use emu::aqm::{AqmPlan, QueuePlan, RandomDrop};
use emu::cross::{Arrivals, CrossPlan, OnOff};
use emu::delay::{DelayPlan, ExcursionPlan};
use emu::drop_run::DropRunPlan;
use emu::episode::fade::FadePlan;
use emu::episode::{DurationLaw, EpisodePlan};
use emu::framing::{Framing, LinkLayer};
use emu::held::HeldPlan;
use emu::loss::{FourState, GilbertElliott, LossPlan};
use emu::mtu::{AnswerPlan, MtuPlan};
use emu::plan::{OffloadPlan, PipePlan, Plan};
use emu::reorder::ReorderPlan;
use emu::units::{ByDirection, Nanos, Probability};
use profile::Violations;
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;

mod vary;

/// Compiles a plan that came over the wire.
///
/// # Errors
/// Every field that is missing or out of its range.
pub fn compile(plan: &pb::Plan) -> Result<Plan, Violations> {
    let profile = plan.profile.clone().unwrap_or_default();
    profile::validate(&profile)?;
    let (rules, beams) =
        plan.clients.as_ref().map_or_else(|| Ok(Default::default()), clients::check)?;
    // Validation has checked that it is there.
    let forward = profile.forward_pipe.unwrap_or_default();
    let back = profile.return_pipe.unwrap_or_default();
    let mut pipes = ByDirection([pipe(&forward), pipe(&back)]);
    let Offloaded { epoch, pipes: offloaded } = offload(plan.offload)?;
    for (pipe, offload) in pipes.0.iter_mut().zip(offloaded) {
        pipe.offload = offload;
    }
    Ok(Plan { seed: plan.seed, pipes, rules: rules.into(), beams: beams.into(), epoch })
}

/// The part that the switch does.
#[derive(Default)]
struct Offloaded {
    epoch: u16,
    pipes: [OffloadPlan; 2],
}

fn offload(offload: Option<pb::Offload>) -> Result<Offloaded, Violations> {
    let Some(offload) = offload else { return Ok(Offloaded::default()) };
    let mut found = Violations::default();
    let mut number = |key: &str, value: u32| {
        u16::try_from(value).unwrap_or_else(|_| {
            let most = u16::MAX;
            let message = format!("{value} is more than {most}, which is all that a shim holds");
            found.push(format!("offload.{key}"), message);
            0
        })
    };
    let epoch = number("epoch", offload.epoch);
    let loss =
        [number("forward_loss", offload.forward_loss), number("return_loss", offload.return_loss)];
    found.into_result()?;
    let pipes = loss.map(|loss| OffloadPlan { loss, marks: offload.marks });
    Ok(Offloaded { epoch, pipes })
}

fn framing(p: &model::Pipe) -> Framing {
    let link_layer = match p.link_layer() {
        model::LinkLayer::Atm => LinkLayer::Atm,
        model::LinkLayer::Ptm => LinkLayer::Ptm,
        model::LinkLayer::Unspecified => LinkLayer::Plain,
    };
    Framing { overhead: p.overhead_bytes, min_frame: p.min_frame_bytes, link_layer }
}

fn pipe(p: &model::Pipe) -> PipePlan {
    let queue = p.queue.unwrap_or_default();
    let delay = p.delay.clone().unwrap_or_default();
    PipePlan {
        rate: vary::rate(p),
        framing: framing(p),
        mtu: p.mtu.as_ref().map(mtu),
        queue: QueuePlan { limit: queue.limit_bytes, aqm: aqm(&queue), ecn: queue.ecn },
        cross: p.cross_traffic.as_ref().map(cross),
        outages: p.outages.iter().map(outage).collect(),
        fade: p.fade.as_ref().map(fade),
        boundary: p.reconfiguration.as_ref().and_then(vary::boundary),
        packet_loss: loss(p),
        loss_trace: p.path_trace.as_ref().and_then(vary::loss_trace),
        duplicate: Probability::new(p.duplicate),
        corrupt: Probability::new(p.corrupt),
        reorder: p.reorder.map(|r| ReorderPlan {
            probability: Probability::new(r.probability),
            by: Nanos(r.by_ns),
        }),
        drop_run: p.drop_run.map(|r| DropRunPlan {
            pass: r.pass_packets,
            drop: r.drop_packets,
            once: r.once,
            // The caller that applies the plan sets it.
            arm: false,
        }),
        delay: DelayPlan {
            base: Nanos(delay.base_ns),
            slot: Nanos(delay.slot_ns),
            trace: p.path_trace.as_ref().and_then(vary::delay_trace),
            level: p.reconfiguration.as_ref().and_then(vary::level),
            body: delay.body.as_ref().map(body),
            excursions: delay.excursions.iter().map(excursion).collect(),
        },
        offload: OffloadPlan::default(),
    }
}

fn mtu(m: &model::Mtu) -> MtuPlan {
    // Validation has checked the addresses. An empty one means none.
    let answers =
        AnswerPlan { v4: m.address.parse().ok(), v6: m.address_v6.parse().ok(), rate: m.rate_hz };
    MtuPlan {
        limit: u16::try_from(m.limit_bytes).unwrap_or(u16::MAX),
        answers: (m.exceeded() != model::MtuExceeded::Drop).then_some(answers),
    }
}

fn aqm(q: &model::Queue) -> AqmPlan {
    if let Some(r) = q.random_drop {
        AqmPlan::RandomDrop(RandomDrop {
            threshold: r.threshold_bytes,
            at_threshold: Probability::new(r.probability_at_threshold),
            at_limit: Probability::new(r.probability_at_limit),
            early: Probability::new(r.early_probability),
            early_threshold: r.early_threshold_bytes,
        })
    } else if let Some(r) = q.red {
        AqmPlan::Red(RedPlan {
            min: r.min_bytes,
            max: r.max_bytes,
            at_max: Probability::new(r.probability_at_max),
            weight: Probability::new(r.weight),
            packet: r.packet_bytes,
            gentle: r.gentle,
        })
    } else if let Some(c) = q.codel {
        AqmPlan::CoDel(CoDelPlan { target: Nanos(c.target_ns), interval: Nanos(c.interval_ns) })
    } else if let Some(p) = q.pie {
        AqmPlan::Pie(PiePlan {
            target: Nanos(p.target_ns),
            update: Nanos(p.update_ns),
            alpha: p.alpha_hz,
            beta: p.beta_hz,
            max_burst: Nanos(p.max_burst_ns),
        })
    } else {
        AqmPlan::TailDrop
    }
}

fn cross(c: &model::CrossTraffic) -> CrossPlan {
    let arrivals = match &c.on_off {
        Some(p) => {
            Arrivals::OnOff(OnOff { on: Nanos(p.on_ns), off: Nanos(p.off_ns), shape: p.shape })
        }
        None if c.poisson => Arrivals::Poisson,
        None => Arrivals::Constant,
    };
    CrossPlan { rate: c.rate_bps, frame: c.frame_bytes, arrivals }
}

fn loss(p: &model::Pipe) -> LossPlan {
    if let Some(g) = p.gilbert_elliott {
        return LossPlan::GilbertElliott(GilbertElliott {
            to_bad: Probability::new(g.to_bad),
            to_good: Probability::new(g.to_good),
            loss_in_bad: Probability::new(g.loss_in_bad),
            loss_in_good: Probability::new(g.loss_in_good),
        });
    }
    if let Some(f) = p.four_state_loss {
        return LossPlan::FourState(FourState {
            p13: Probability::new(f.p13),
            p31: Probability::new(f.p31),
            p32: Probability::new(f.p32),
            p23: Probability::new(f.p23),
            p14: Probability::new(f.p14),
        });
    }
    Probability::new(p.packet_loss).into()
}

fn fade(f: &model::Fade) -> FadePlan {
    FadePlan { interval: Nanos(f.interval_ns), duration: Nanos(f.duration_ns), factor: f.factor }
}

fn body(b: &model::Body) -> HeldPlan {
    HeldPlan::renewal(Nanos(b.correlation_ns), b.quantiles_ns.iter().copied().map(Nanos))
}

fn outage(o: &model::Outage) -> EpisodePlan {
    EpisodePlan {
        interval: Nanos(o.interval_ns),
        duration: Nanos(o.duration_ns),
        law: law(o.law()),
    }
}

fn law(law: model::DurationLaw) -> DurationLaw {
    match law {
        model::DurationLaw::Fixed => DurationLaw::Fixed,
        _ => DurationLaw::Exponential,
    }
}

fn excursion(e: &model::Excursion) -> ExcursionPlan {
    ExcursionPlan {
        interval: Nanos(e.interval_ns),
        duration: Nanos(e.duration_ns),
        location: Nanos(e.location_ns),
        scale: Nanos(e.scale_ns),
        shape: e.shape,
        max: Nanos(e.max_ns),
        regime: e.regime.as_ref().map(fade),
    }
}

#[cfg(test)]
mod opportunities;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use emu::access::{AccessPlan, Contention, LogOn, OthersPlan, RateRequests};
    use emu::check::PlanError;
    use emu::shaper::{RatePlan, RateTrace};
    use emu::units::{BitRate, Direction};

    fn plan(change: impl FnOnce(&mut model::Pipe)) -> pb::Plan {
        let mut profile =
            profile::Catalog::built_in().get("viasat2-pings").expect("built in").as_proto().clone();
        change(profile.forward_pipe.as_mut().expect("it has one"));
        pb::Plan { profile: Some(profile), seed: 9, ..pb::Plan::default() }
    }

    #[test]
    fn every_built_in_profile_compiles() {
        for entry in profile::Catalog::built_in().iter() {
            let plan = pb::Plan {
                profile: Some(entry.profile.as_proto().clone()),
                seed: 1,
                ..pb::Plan::default()
            };
            let compiled = compile(&plan).unwrap_or_else(|e| panic!("{e}"));
            // All but a store for it is there.
            let checked = compiled.check(emu::plan::Room::default());
            assert!(matches!(checked, Err(PlanError::Memory { .. })), "{checked:?}");
        }
    }

    #[test]
    fn varying_processes_are_compiled() {
        let compiled = compile(&plan(|p| {
            p.rate_bps = None;
            p.rate_trace = Some(model::RateTrace {
                step_ns: 5_000_000,
                rates_bps: vec![0, 144_000_000, 2_000],
                ..Default::default()
            });
            p.fade = Some(model::Fade {
                interval_ns: 60_000_000_000,
                duration_ns: 20_000_000_000,
                factor: 2.5,
            });
            p.packet_loss = 0.25;
            (p.duplicate, p.corrupt) = (0.125, 0.75);
            p.reorder = Some(model::Reorder { probability: 0.5, by_ns: 7_000 });
            if let Some(delay) = &mut p.delay {
                let quantiles_ns = vec![0, 1_000, 7_000];
                delay.body = Some(model::Body { correlation_ns: 2_000_000, quantiles_ns });
            }
        }));
        let compiled = compiled.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(compiled.seed, 9);
        let pipe = &compiled.pipes[Direction::Forward];
        let trace = RateTrace::new(Nanos::from_millis(5), &[0, 144_000_000, 2_000]);
        assert_eq!(pipe.rate, RatePlan::Trace(trace));
        let (interval, duration) = (Nanos::from_secs(60), Nanos::from_secs(20));
        assert_eq!(pipe.fade, Some(FadePlan { interval, duration, factor: 2.5 }));
        assert_eq!(pipe.packet_loss, Probability::new(0.25).into());
        let reorder = ReorderPlan { probability: Probability::new(0.5), by: Nanos(7_000) };
        assert_eq!(pipe.reorder, Some(reorder));
        assert_eq!(
            (pipe.duplicate, pipe.corrupt),
            (Probability::new(0.125), Probability::new(0.75))
        );
        let body = HeldPlan::renewal(Nanos::from_millis(2), [0, 1_000, 7_000].map(Nanos));
        assert_eq!(pipe.delay.body, Some(body));
        // The other direction has none of it.
        let other = &compiled.pipes[Direction::Return];
        assert!(matches!(other.rate, RatePlan::Constant(BitRate::PerSec(_))));
        assert_eq!((other.fade, other.delay.body.as_ref()), (None, None));
        assert_eq!(other.packet_loss, LossPlan::None);
    }

    #[test]
    fn packet_losses_are_compiled() {
        let loss = |change: &dyn Fn(&mut model::Pipe)| {
            let compiled = compile(&plan(|p| change(p))).unwrap_or_else(|e| panic!("{e}"));
            let [forward, _] = compiled.pipes.0;
            (forward.packet_loss, forward.drop_run)
        };
        let p = Probability::new;
        let (to_bad, to_good, loss_in_bad, loss_in_good) = (0.1, 0.2, 0.3, 0.4);
        let message = model::GilbertElliott { to_bad, to_good, loss_in_bad, loss_in_good };
        let (found, _) = loss(&|pipe| pipe.gilbert_elliott = Some(message));
        let expected = GilbertElliott {
            to_bad: p(0.1),
            to_good: p(0.2),
            loss_in_bad: p(0.3),
            loss_in_good: p(0.4),
        };
        assert_eq!(found, LossPlan::GilbertElliott(expected));
        let (p13, p31, p32, p23, p14) = (0.1, 0.2, 0.3, 0.4, 0.5);
        let message = model::FourStateLoss { p13, p31, p32, p23, p14 };
        let (found, _) = loss(&|pipe| pipe.four_state_loss = Some(message));
        let expected =
            FourState { p13: p(p13), p31: p(p31), p32: p(p32), p23: p(p23), p14: p(p14) };
        assert_eq!(found, LossPlan::FourState(expected));
        let message = model::DropRun { pass_packets: 7, drop_packets: 3, once: true };
        let (_, found) = loss(&|pipe| pipe.drop_run = Some(message));
        assert_eq!(found, Some(DropRunPlan { pass: 7, drop: 3, once: true, arm: false }));
    }

    #[test]
    fn cross_traffic_is_compiled() {
        let with = |c: model::CrossTraffic| {
            let c = model::CrossTraffic { rate_bps: 30_000_000, frame_bytes: 700, ..c };
            let compiled = compile(&plan(|p| p.cross_traffic = Some(c)));
            let [forward, back] = compiled.unwrap_or_else(|e| panic!("{e}")).pipes.0;
            assert_eq!(back.cross, None);
            let cross = forward.cross.expect("given");
            assert_eq!((cross.rate, cross.frame), (30_000_000, 700));
            cross.arrivals
        };
        assert_eq!(with(model::CrossTraffic::default()), Arrivals::Constant);
        let poisson = model::CrossTraffic { poisson: true, ..Default::default() };
        assert_eq!(with(poisson), Arrivals::Poisson);
        let on_off = Some(model::OnOff { on_ns: 2_000_000, off_ns: 7_000_000, shape: 1.25 });
        let (on, off) = (Nanos(2_000_000), Nanos(7_000_000));
        let expected = Arrivals::OnOff(OnOff { on, off, shape: 1.25 });
        assert_eq!(with(model::CrossTraffic { on_off, ..Default::default() }), expected);
    }

    #[test]
    fn capacity_on_demand_is_compiled() {
        let access = model::Access {
            superframe_ns: 43_000_000,
            burst_bytes: 100,
            padding: true,
            constant: 2,
            free: 3,
            rate_requests: Some(model::RateRequests {
                max_bps: 2_000_000,
                timeout_ns: 5_000_000,
                gain: 1.5,
                drain_ns: 6_000_000,
                decay_ns: 12_000_000,
            }),
            volume_bytes: 9_000,
            request_interval_ns: 1_000_000,
            request_delay_ns: 2_000_000,
            plan_delay_ns: 3_000_000,
            log_on: Some(model::LogOn { after_ns: 7_000_000, delay_ns: 8_000_000 }),
            contention: Some(model::Contention { load: 0.5, backoff: 4 }),
            others: Some(model::Others {
                terminals: 30,
                rate_bps: 64_000,
                on_ns: 10_000_000,
                off_ns: 11_000_000,
            }),
        };
        let message =
            profile::Catalog::built_in().get("geo-rcs2").expect("built in").as_proto().clone();
        let with = |access| {
            let mut message = message.clone();
            message.return_pipe.get_or_insert_default().access = access;
            let plan = pb::Plan { profile: Some(message), ..pb::Plan::default() };
            compile(&plan).unwrap_or_else(|e| panic!("{e}")).pipes[Direction::Return].rate.clone()
        };
        let millis = Nanos::from_millis;
        let expected = AccessPlan {
            peak: NonZeroU64::new(4_000_000).expect("not zero"),
            superframe: millis(43),
            burst: 100,
            packs: false,
            constant: 2,
            free: 3,
            rate: Some(RateRequests {
                max: NonZeroU64::new(2_000_000).expect("not zero"),
                timeout: millis(5),
                gain: 3 << 15,
                drain: millis(6),
                decay: millis(12),
            }),
            volume: NonZeroU64::new(9_000),
            interval: millis(1),
            request_delay: millis(2),
            plan_delay: millis(3),
            log_on: Some(LogOn { after: millis(7), delay: millis(8) }),
            contention: Some(Contention {
                success: Probability::new((-0.5_f64).exp()),
                backoff: 4,
            }),
            others: Some(OthersPlan {
                terminals: 30,
                rate: NonZeroU64::new(64_000).expect("not zero"),
                on: millis(10),
                off: millis(11),
            }),
        };
        assert_eq!(with(Some(access)), RatePlan::Access(expected));
        assert_eq!(with(None), BitRate::bps(4_000_000).into());
    }

    #[test]
    fn queues_are_compiled() {
        let queue = |queue: model::Queue| {
            let limit_bytes = 1_000_000;
            let queue = model::Queue { limit_bytes, ecn: true, ..queue };
            let compiled = compile(&plan(|p| p.queue = Some(queue)));
            let [forward, _] = compiled.unwrap_or_else(|e| panic!("{e}")).pipes.0;
            assert!(forward.queue.ecn);
            assert_eq!(forward.queue.limit, limit_bytes);
            forward.queue.aqm
        };
        let red = model::Red {
            min_bytes: 100,
            max_bytes: 200,
            probability_at_max: 0.1,
            weight: 0.002,
            packet_bytes: 700,
            gentle: true,
        };
        let expected = RedPlan {
            min: 100,
            max: 200,
            at_max: Probability::new(0.1),
            weight: Probability::new(0.002),
            packet: 700,
            gentle: true,
        };
        let found = queue(model::Queue { red: Some(red), ..Default::default() });
        assert_eq!(found, AqmPlan::Red(expected));
        let codel = model::CoDel { target_ns: 5_000_000, interval_ns: 100_000_000 };
        let expected =
            CoDelPlan { target: Nanos::from_millis(5), interval: Nanos::from_millis(100) };
        let found = queue(model::Queue { codel: Some(codel), ..Default::default() });
        assert_eq!(found, AqmPlan::CoDel(expected));
        let pie = model::Pie {
            target_ns: 15_000_000,
            update_ns: 16_000_000,
            alpha_hz: 0.125,
            beta_hz: 1.25,
            max_burst_ns: 150_000_000,
        };
        let expected = PiePlan {
            target: Nanos::from_millis(15),
            update: Nanos::from_millis(16),
            alpha: 0.125,
            beta: 1.25,
            max_burst: Nanos::from_millis(150),
        };
        let found = queue(model::Queue { pie: Some(pie), ..Default::default() });
        assert_eq!(found, AqmPlan::Pie(expected));
    }

    #[test]
    fn mtus_are_compiled() {
        let with = |mtu: model::Mtu| {
            let compiled = compile(&plan(|p| p.mtu = Some(mtu)));
            let [forward, _] = compiled.unwrap_or_else(|e| panic!("{e}")).pipes.0;
            forward.mtu
        };
        let message = model::Mtu { limit_bytes: 1_400, rate_hz: 7, ..Default::default() };
        let answers = AnswerPlan { v4: None, v6: None, rate: 7 };
        let expected = MtuPlan { limit: 1_400, answers: Some(answers) };
        assert_eq!(with(message.clone()), Some(expected));
        let (address, address_v6) = ("192.0.2.1".to_owned(), "2001:db8::1".to_owned());
        let (v4, v6) = (address.parse().ok(), address_v6.parse().ok());
        let addressed = model::Mtu { address, address_v6, ..message.clone() };
        assert_eq!(
            with(addressed).and_then(|mtu| mtu.answers),
            Some(AnswerPlan { v4, v6, ..answers })
        );
        let silent = model::Mtu { exceeded: model::MtuExceeded::Drop.into(), ..message };
        assert_eq!(with(silent), Some(MtuPlan { answers: None, ..expected }));
    }

    #[test]
    fn clients_are_compiled() {
        let client = model::Client {
            name: "alice".into(),
            prefixes: vec!["10.1.0.0/24".into()],
            vlans: vec![7],
            ..Default::default()
        };
        let client = model::Client { beam: "b".into(), weight: 3, ..client };
        let automatic = Some(model::Automatic { limit: Some(3), ..Default::default() });
        let beams = vec![model::Beam {
            name: "b".into(),
            forward_rate_bps: Some(9_000),
            return_rate_bps: None,
        }];
        let message = model::Clients { clients: vec![client], automatic, beams };
        let with = |clients| compile(&pb::Plan { clients: Some(clients), ..plan(|_| ()) });
        let Plan { rules, beams, .. } = with(message.clone()).unwrap_or_else(|e| panic!("{e}"));
        let alice = emu::client::ClientKey::Named("alice".parse().expect("a name"));
        let share = emu::beam::Share { beam: 0, weight: 3 };
        assert_eq!(beams.share(alice, Direction::Forward), Some(share));
        assert_eq!(beams.share(alice, Direction::Return), None);
        assert_eq!(beams.beams[0].rate[Direction::Forward], BitRate::bps(9_000));
        assert_eq!((rules.len(), rules.automatic, rules.reserved), (2, Some(3), 1));
        let none = compile(&plan(|_| ())).unwrap_or_else(|e| panic!("{e}")).rules;
        assert_eq!(*none, emu::rules::Rules::default());
        let mut bad = message;
        bad.clients[0].vlans = vec![0];
        let found = with(bad).expect_err("there is no VLAN 0").to_string();
        assert!(found.contains("client[0].vlan[0]"), "{found}");
    }

    #[test]
    fn terminals_of_a_beam_share_a_carrier() {
        let profile =
            profile::Catalog::built_in().get("geo-rcs2").expect("built in").as_proto().clone();
        let automatic = Some(model::Automatic { beam: "b".into(), ..Default::default() });
        let beams = vec![model::Beam {
            name: "b".into(),
            forward_rate_bps: None,
            return_rate_bps: Some(8_000_000),
        }];
        let clients = model::Clients { clients: vec![], automatic, beams };
        let message =
            pb::Plan { profile: Some(profile), clients: Some(clients), ..pb::Plan::default() };
        let plan = compile(&message).unwrap_or_else(|e| panic!("{e}"));
        assert!(plan.pipes[Direction::Return].rate.is_on_demand());
        assert!(plan.beams.shares_in(Direction::Return));
        let room = emu::plan::Room {
            clients: 10,
            port_bps: 1_000_000_000,
            frame: 1_514,
            capacity: 1 << 30,
            workers: 1,
            tag: 0,
            unanswered: false,
        };
        assert_eq!(plan.check(room), Ok(()));
    }

    #[test]
    fn offload_is_compiled() {
        let with = |offload| compile(&pb::Plan { offload, ..plan(|p| p.packet_loss = 0.25) });
        let offload = pb::Offload { epoch: 65_535, forward_loss: 7, return_loss: 0, marks: true };
        let compiled = with(Some(offload)).unwrap_or_else(|e| panic!("{e}"));
        let [forward, back] = compiled.pipes.0;
        assert_eq!(compiled.epoch, 65_535);
        assert_eq!(forward.offload, OffloadPlan { loss: 7, marks: true });
        assert_eq!(back.offload, OffloadPlan { loss: 0, marks: true });
        // The plan keeps the request, no matter where it is done.
        assert_eq!(forward.packet_loss, Probability::new(0.25).into());
        assert_eq!(forward.drawn_loss(), LossPlan::None);
        let none = with(None).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((none.epoch, none.pipes.0[0].offload), (0, OffloadPlan::default()));
        for (epoch, forward_loss, return_loss, words) in [
            (65_536, 1, 1, "offload.epoch"),
            (1, 65_536, 1, "offload.forward_loss"),
            (1, 1, u32::MAX, "offload.return_loss: 4294967295 is more than 65535"),
        ] {
            let offload = pb::Offload { epoch, forward_loss, return_loss, marks: false };
            let error = with(Some(offload)).expect_err("it is too large").to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn invalid_or_missing_plan_is_refused() {
        assert!(compile(&plan(|p| p.packet_loss = f64::NAN)).is_err());
        assert!(compile(&plan(|p| p.queue = None)).is_err());
        assert!(compile(&pb::Plan::default()).is_err());
    }
}
