// SPDX-License-Identifier: Apache-2.0
use super::super::flow::{Algorithm, Flow, Setup, play};
use super::super::observation::{Figure, Observation, Origin, Quantity, Statistic};
use super::*;

const MB: u64 = 1_000_000;

/// A link of 20 Mbit/s and 100 ms with isolated losses that take 0.03 % of the time.
fn link(isolated: &str, capacity: &str) -> Profile {
    let text = format!(
        "name = \"lab\"\n[forward]\nrate = \"20 Mbit/s\"\nqueue.limit = \"500 kB\"\n\
         delay.base = \"50 ms\"\n{capacity}\n[[forward.outages]]\n{isolated}\nlaw = \"fixed\"\n\
         [return]\nrate = \"5 Mbit/s\"\nqueue.limit = \"500 kB\"\ndelay.base = \"50 ms\""
    );
    Profile::from_toml(&text).unwrap()
}

fn observe(truth: &Profile, algorithm: Algorithm, count: u64) -> Observation {
    let setup = Setup { algorithm, bytes: 10 * MB, ..Setup::default() };
    let flows: Vec<Flow> = (0..count).map(|i| play(truth, 1000 + i, &setup).unwrap()).collect();
    let origin = Origin { name: "truth".into(), format: "summary", ..Origin::default() };
    Observation::of_flows(vec![origin], algorithm, &flows)
}

const QUICK: Options = Options { flows: 10, seed: 1, points: 2, steps: 3 };

fn quiet(_: usize, _: usize) {}

#[test]
fn parameters_of_other_seeds_are_inside_their_intervals() {
    let truth = link(
        "interval = \"2 s\"\nduration = \"600 us\"",
        "[forward.capacity]\nmean = \"80 %\"\nspread = \"12 %\"\ncorrelation = \"5 s\"",
    );
    let start = link("interval = \"333 s\"\nduration = \"100 ms\"", "");
    let observed = [Algorithm::Cubic, Algorithm::Bbr].map(|a| observe(&truth, a, 40));
    let options = Options { flows: 20, points: 5, steps: 10, ..QUICK };
    let found = calibrate(&start, &observed, &options, &quiet).unwrap();
    for (parameter, value) in [
        (Parameter::IsolatedDuration, 0.0006),
        (Parameter::CapacityMean, 0.8),
        (Parameter::CapacitySpread, 0.12),
    ] {
        let e = found.estimates.iter().find(|e| e.parameter == parameter).unwrap();
        assert!(e.interval.covers(value), "{e:?} {:#?}", found.figures);
        // They tell more than the prior.
        assert!(e.from_prior < 0.5, "{e:?}");
    }
    let pipe = found.profile.as_proto().forward_pipe.as_ref().unwrap();
    let outage = pipe.outages[0];
    let share = outage.interval_ns as f64 / outage.duration_ns as f64;
    assert!((share / 3333.0 - 1.0).abs() < 0.01, "{outage:?}");
    assert!(pipe.capacity.is_some());
    let provenance = found.profile.as_proto().provenance.as_ref().unwrap();
    let methods = provenance.estimates.iter().filter(|e| e.method == "simulated moments");
    assert_eq!(methods.count(), found.estimates.len());
    assert!(!provenance.sensitivities.is_empty());
    // It is a profile as any other.
    let text = found.profile.to_toml();
    assert_eq!(Profile::from_toml(&text).unwrap(), found.profile);
}

#[test]
fn calibration_repeats_with_its_seed() {
    let truth = link("interval = \"2 s\"\nduration = \"600 us\"", "");
    let start = link("interval = \"333 s\"\nduration = \"100 ms\"", "");
    let observed = [observe(&truth, Algorithm::Cubic, 4)];
    let options = Options { flows: 4, points: 1, steps: 1, ..QUICK };
    let once = calibrate(&start, &observed, &options, &quiet).unwrap();
    let again = calibrate(&start, &observed, &options, &quiet).unwrap();
    assert_eq!(once.profile, again.profile);
    let other = Options { seed: 99, ..options };
    let other = calibrate(&start, &observed, &other, &quiet).unwrap();
    assert_ne!(once.figures, other.figures);
}

#[test]
fn stated_priors_are_told_with_their_sensitivity() {
    // The receive window limits the flows, and nothing else does.
    let start = link("interval = \"333 s\"\nduration = \"100 ms\"", "");
    let quantity = Quantity::Throughput { from: MB, to: 16 * MB };
    let statistic = Statistic::Mean;
    let figures = vec![Figure { quantity, statistic, value: 8.0, error: Some(0.5) }];
    let setup = Setup { bytes: 16 * MB, receive_window: 100_000, ..Setup::default() };
    let observed = [Observation { origins: Vec::new(), setup, count: 10, figures }];
    let options = Options { flows: 4, points: 1, steps: 1, ..QUICK };
    let found = calibrate(&start, &observed, &options, &quiet).unwrap();
    let window = found.sensitivities.iter().find(|s| s.prior == "hosts: receive window").unwrap();
    assert_eq!((window.value.as_str(), window.per.as_str()), ("100 kB", "10 % more"));
    // 8 Mbit/s in proportion.
    let change: f64 = window.change.split(' ').next().unwrap().parse().unwrap();
    assert!((0.4..1.1).contains(&change), "{window:?}");
}

#[test]
fn profile_without_open_parameters_is_refused() {
    let text = "name = \"lab\"\n[forward]\nrate = \"unlimited\"\nqueue.limit = \"1 MB\"\n\
                delay.base = \"1 ms\"\n[return]\nrate = \"unlimited\"\nqueue.limit = \"1 MB\"\n\
                delay.base = \"1 ms\"";
    let profile = Profile::from_toml(text).unwrap();
    let figure = Figure {
        quantity: Quantity::Time { bytes: MB },
        statistic: Statistic::Mean,
        value: 1.0,
        error: None,
    };
    let o = Observation {
        origins: Vec::new(),
        setup: Setup::default(),
        count: 1,
        figures: vec![figure],
    };
    let refused = calibrate(&profile, std::slice::from_ref(&o), &QUICK, &quiet).unwrap_err();
    assert!(matches!(refused, CalibrateError::NoParameter), "{refused}");
    let none = Observation { figures: Vec::new(), ..o };
    let refused = calibrate(&profile, &[none], &QUICK, &quiet).unwrap_err();
    assert!(matches!(refused, CalibrateError::NoFigure), "{refused}");
}

/// A link as [`link`] with a terminal that asks for capacity.
fn on_demand(burst: u32, [delay, log_on, interval, decay]: [f64; 4], gain: f64) -> Profile {
    let text = format!(
        "name = \"lab\"\n[forward]\nrate = \"100 Mbit/s\"\nqueue.limit = \"18 MB\"\n\
         delay.base = \"275 ms\"\n[return]\nrate = \"12 Mbit/s\"\nqueue.limit = \"18 MB\"\n\
         delay.base = \"300 ms\"\n[return.access]\nsuperframe = \"40 ms\"\nburst = \"{burst} B\"\n\
         constant = 1\nrequest_interval = \"{interval:.0} ms\"\nrequest_delay = \"{:.0} ms\"\n\
         plan_delay = \"{:.0} ms\"\nlog_on = {{ after = \"400 ms\", delay = \"{log_on:.0} ms\" }}\n\
         rate_requests = {{ max = \"12 Mbit/s\", timeout = \"5 s\", gain = {gain:.3}, \
         drain = \"2500 ms\", decay = \"{decay:.0} ms\" }}",
        delay / 2.0,
        delay / 2.0
    );
    Profile::from_toml(&text).unwrap()
}

/// What a capture of one download of the sender tells of it.
fn observe_acknowledgements(truth: &Profile, seed: u64) -> Observation {
    let setup = Setup { algorithm: Algorithm::Bbr, limit_ns: 20_000_000_000, ..Setup::default() };
    let flow = play(truth, seed, &setup).unwrap();
    let flow = Flow { rtts: flow.rtts, ..Flow::default() };
    let origin = Origin { name: "truth".into(), format: "csv", ..Origin::default() };
    Observation::of_flows(vec![origin], Algorithm::Bbr, &[flow])
}

/// Values of a terminal about those of the start of a search, on the scale of the search.
fn drawn(n: u32) -> (Profile, [(Parameter, f64); 6]) {
    let place = |prime: u32, middle: f64, spread: f64| {
        middle * (spread * (2.0 * super::search::halton(n, prime) - 1.0)).exp()
    };
    let burst = place(2, 62.0, 0.3).round();
    let [delay, log_on] = [place(3, 420.0, 0.4), place(5, 600.0, 0.4)];
    let [interval, decay] = [place(7, 640.0, 0.4), place(11, 6_000.0, 0.7)];
    let gain = place(13, 1.2, 0.1);
    let s = |ms: f64| ms / 1e3;
    let truth = [
        (Parameter::AccessBurst, burst),
        (Parameter::AccessDelay, s(delay)),
        (Parameter::AccessLogOn, s(log_on)),
        (Parameter::AccessInterval, s(interval)),
        (Parameter::AccessGain, gain),
        (Parameter::AccessDecay, s(decay)),
    ];
    (on_demand(burst as u32, [delay, log_on, interval, decay], gain), truth)
}

/// Of `downloads`, how many intervals cover each parameter.
fn recovered(downloads: u32) -> Vec<(Parameter, u32)> {
    let start = on_demand(62, [420.0, 600.0, 640.0, 6_000.0], 1.2);
    let mut all: Vec<(Parameter, u32)> = Vec::new();
    for n in 1..=downloads {
        let (truth, values) = drawn(n);
        let observed = [observe_acknowledgements(&truth, 1_000 + u64::from(n))];
        let found = calibrate(&start, &observed, &Options::default(), &quiet).unwrap();
        assert_eq!(found.estimates.len(), values.len());
        for (i, (e, (parameter, value))) in found.estimates.iter().zip(values).enumerate() {
            assert_eq!(e.parameter, parameter);
            println!("{n} {parameter:?} {value:.4} {:?} prior {:.2}", e.interval, e.from_prior);
            if n == 1 {
                all.push((parameter, 0));
            }
            all[i].1 += u32::from(e.interval.covers(value));
        }
    }
    all
}

#[test]
#[ignore = "long form: make soak PART=unit"]
fn parameters_of_access_are_inside_their_intervals_in_18_of_20_downloads() {
    let recovered = recovered(20);
    assert!(recovered.iter().all(|(_, n)| *n >= 18), "{recovered:?}");
}
