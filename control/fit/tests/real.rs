// SPDX-License-Identifier: Apache-2.0
//! Output of real probers: irtt 0.9.0, ping of iputils 20221126 and fping 5.1, 160 probes each over
//! the same path, which lost all answers for 0.2, 0.4, 0.6 and 0.8 s.

use std::path::Path;

use fit::baseline::Baseline;
use fit::fitted::{Direction, Options as FitOptions, fit};
use fit::loss::Runs;
use fit::read::{Input, Options, read};

fn sample(name: &str) -> Baseline {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(name);
    match read(&path, &Options::default()).unwrap() {
        Input::Log(baseline) => baseline,
        Input::Summary(_) => panic!("a summary"),
    }
}

#[test]
fn output_of_real_probers_is_read_whole() {
    for (name, probes, lost) in [
        ("irtt.json.gz", 160, 43),
        ("ping-D-O.log", 160, 39),
        ("ping.log", 160, 38),
        ("fping.log", 160, 42),
    ] {
        let baseline = sample(name);
        let series = &baseline.series;
        assert_eq!((series.len(), series.lost()), (probes, lost), "{name}: {:?}", baseline.remarks);
        assert!(baseline.interval_ns.abs_diff(50_000_000) < 8_000_000, "{name}");
        let runs = Runs::of_series(series, baseline.interval_ns, baseline.spacing);
        assert_eq!((runs.lost(), runs.events()), (lost as u64, 4), "{name}");
        let lengths: Vec<f64> =
            runs.lengths().keys().map(|n| f64::from(*n) * runs.interval_s).collect();
        for (seconds, truth) in lengths.iter().zip([0.2, 0.4, 0.6, 0.8]) {
            assert!((seconds - truth).abs() < 0.11, "{name}: {lengths:?}");
        }
    }
}

#[test]
fn every_loss_of_real_probers_enters_the_fit() {
    for name in ["irtt.json.gz", "ping-D-O.log", "ping.log", "fping.log"] {
        let baseline = sample(name);
        let lost = baseline.series.lost() as u64;
        let options = FitOptions { losses_in: Direction::Forward, ..FitOptions::new("real") };
        let fitted = fit(&Input::Log(baseline), &options).unwrap();
        let losses = fitted.losses.unwrap();
        assert_eq!((losses.lost, losses.events), (lost, 4), "{name}");
        assert!(losses.classes[0].duration.covers(0.5), "{name}: {:?}", losses.classes);
    }
}
