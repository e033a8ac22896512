// SPDX-License-Identifier: Apache-2.0
//! Plays bulk TCP flows over a profile in virtual time, and prints the figures of SAT20. A model of
//! TCP: it guides a search and is no result.
//!
//! ```text
//! cargo run -p fit --example flows -- PROFILE.toml --algorithm cubic --flows 20
//! ```

use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use fit::traffic::flow::{Algorithm, Flow, Setup, play};
use profile::Profile;

#[derive(Parser)]
struct Args {
    profile: PathBuf,
    /// cubic, bbr, or both
    #[arg(long, default_value = "both")]
    algorithm: String,
    #[arg(long, default_value_t = 20)]
    flows: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Receive window in bytes
    #[arg(long, default_value_t = 30_000_000)]
    window: u64,
    /// As kernels before 5.1
    #[arg(long)]
    old: bool,
    /// Print each flow
    #[arg(long)]
    each: bool,
    /// Print the first flow, second by second
    #[arg(long)]
    series: bool,
}

fn mean_sd(x: &[f64]) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let var = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    (mean, var.sqrt())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let profile = Profile::from_file(&args.profile)?;
    let algorithms = match args.algorithm.as_str() {
        "both" => vec![Algorithm::Cubic, Algorithm::Bbr],
        one => vec![one.parse()?],
    };
    for algorithm in algorithms {
        let setup =
            Setup { algorithm, receive_window: args.window, lumps: !args.old, ..Setup::default() };
        let began = Instant::now();
        let flows = (args.seed..args.seed + args.flows)
            .map(|seed| play(&profile, seed, &setup))
            .collect::<Result<Vec<Flow>, _>>()?;
        let took = began.elapsed().as_secs_f64() / args.flows as f64;
        report(algorithm, &flows, took, &args);
    }
    Ok(())
}

fn report(algorithm: Algorithm, flows: &[Flow], took: f64, args: &Args) {
    const MB: u64 = 1_000_000;
    if args.series {
        series(&flows[0]);
    }
    let all = |f: &dyn Fn(&Flow) -> Option<f64>| -> String {
        let x: Vec<f64> = flows.iter().filter_map(f).collect();
        let (mean, sd) = mean_sd(&x);
        format!("{mean:7.1} ({sd:.1})")
    };
    let mean_rtt = |f: &Flow, from: f64, to: f64| {
        let x: Vec<f64> = f.rtts_ms(from..to, 400.0).collect();
        (!x.is_empty()).then(|| mean_sd(&x).0)
    };
    let samples: Vec<f64> = flows.iter().flat_map(|f| f.rtts_ms(30.0..1e9, 400.0)).collect();
    let sd_samples = mean_sd(&samples).1;
    let share = |limit: f64| {
        samples.iter().filter(|s| **s >= limit).count() as f64 / samples.len() as f64 * 100.0
    };
    println!(
        "{algorithm:?}: steady {} Mb/s, RTT {} ms, SD of samples {sd_samples:.0}, >=2 s {:.1} %; \
         start-up {} Mb/s, RTT {} ms; 1/5/30/50 MB {} / {} / {} / {} s; retransmitted {} %; \
         {took:.2} s CPU a flow",
        all(&|f| f.throughput(500 * MB, 1000 * MB)),
        all(&|f| mean_rtt(f, 30.0, 1e9)),
        share(2000.0),
        all(&|f| f.throughput(0, 50 * MB)),
        all(&|f| mean_rtt(f, 0.0, 30.0)),
        all(&|f| f.seconds_to(MB).map(|s| s as f64)),
        all(&|f| f.seconds_to(5 * MB).map(|s| s as f64)),
        all(&|f| f.seconds_to(30 * MB).map(|s| s as f64)),
        all(&|f| f.seconds_to(50 * MB).map(|s| s as f64)),
        all(&|f| Some(
            100.0 * (f.transmissions - f.segments.min(f.transmissions)) as f64
                / f.transmissions as f64
        )),
    );
    if args.each {
        for f in flows {
            println!(
                "  {:?} Mb/s, {:?} ms, {:?} s to 1 MB, {} recoveries, {} timeouts, complete {}",
                f.throughput(500 * MB, 1000 * MB).map(f64::round),
                mean_rtt(f, 30.0, 1e9).map(f64::round),
                f.seconds_to(MB),
                f.recoveries,
                f.timeouts,
                f.complete
            );
        }
    }
}

fn series(flow: &Flow) {
    let mut before = 0;
    for (second, received) in flow.received.iter().enumerate() {
        let rtts: Vec<f64> = flow.rtts_ms(second as f64..second as f64 + 1.0, 0.0).collect();
        println!(
            "{second:4} s {:7.1} Mb/s {:6.0} ms",
            (received - before) as f64 * 8e-6,
            mean_sd(&rtts).0
        );
        before = *received;
    }
}
