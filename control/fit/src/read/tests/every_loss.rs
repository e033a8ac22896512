// SPDX-License-Identifier: Apache-2.0
//! Every lost probe of a log enters the likelihood, whichever the format and the pace.

use super::*;
use crate::loss::Runs;
use proptest::collection::vec;
use proptest::prelude::*;

/// A probe: when it was sent, when it was answered or given up, in µs; the latter is its end.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: u64,
    end: u64,
    lost: bool,
}

/// Probes with these fates; of a prober that waits for each answer or not.
fn probes(lost: &[bool], waits: bool, timeout: u64, interval: u64) -> Vec<Sent> {
    let mut at = 1_595_548_800_000_000;
    let sent = (0..).zip(lost).map(|(n, lost)| {
        let taken = if *lost { timeout } else { 20_000 + n * 7_919 % 3_000 };
        let sent = Sent { at, end: at + taken, lost: *lost };
        at = (at + interval).max(if waits { sent.end } else { 0 });
        sent
    });
    sent.collect()
}

fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// The same probes in each format, with the options that read it.
fn logs(probes: &[Sent], steady: bool) -> Vec<(&'static str, String, Options)> {
    let ms = |p: &Sent| format!("{}.{:03}", (p.end - p.at) / 1_000, (p.end - p.at) % 1_000);
    let columns =
        |text: &str| Options { columns: Some(text.parse().unwrap()), ..Options::default() };
    let table = |time: fn(&Sent) -> u64, loss: &str| -> String {
        let rtt = |p: &Sent| if p.lost { loss.to_owned() } else { ms(p) };
        probes.iter().map(|p| format!("{}\t{}\n", seconds(time(p)), rtt(p))).collect()
    };
    let own = probes.iter().zip(0..).map(|(p, n)| {
        let at = (p.at - probes[0].at) as f64 / 1e6;
        (n, at, (!p.lost).then(|| (p.end - p.at) as f64 / 1e3))
    });
    let trips: Vec<String> = probes
        .iter()
        .zip(0..)
        .map(|(p, n)| {
            let rtt = (p.end - p.at) * 1_000;
            let (lost, delay) = if p.lost {
                ("true_up", String::new())
            } else {
                ("false", format!("\"rtt\": {rtt}"))
            };
            let at = (p.at - probes[0].at) * 1_000;
            format!(
                "{{\"seqno\": {n}, \"lost\": \"{lost}\", \"timestamps\": {{\"client\": {{\"send\": \
                 {{\"monotonic\": {at}}}}}}}, \"delay\": {{{delay}}}}}"
            )
        })
        .collect();
    let mut logs = vec![
        ("probe", probe_log("", own), Options::default()),
        ("sent", table(|p| p.at, "-1"), columns("time,rtt")),
        (
            "irtt",
            format!("{{\"irtt\": 1, \"round_trips\": [{}]}}", trips.join(",")),
            Options::default(),
        ),
    ];
    if !steady {
        // A prober that does not wait writes the end of a lost probe after those of later ones:
        // such a log does not say when that probe was sent, and is refused.
        logs.push(("done", table(|p| p.end, "timeout"), columns("done,rtt")));
    }
    if steady {
        let answers = probes.iter().zip(1..).map(|(p, n)| match p.lost {
            true => format!("[{}] no answer yet for icmp_seq={n}\n", seconds(p.end)),
            false => format!(
                "[{}] 64 bytes from a: icmp_seq={n} ttl=64 time={} ms\n",
                seconds(p.end),
                ms(p)
            ),
        });
        let answers: String = answers.collect();
        // An answer comes last, so that none is on its way.
        let ping = format!("PING a (192.0.2.1) 56(84) bytes of data.\n{answers}");
        logs.push(("ping", ping.clone(), Options::default()));
        let rest = ping.lines().filter(|line| !line.contains("no answer"));
        logs.push((
            "ping without lines",
            rest.map(|l| format!("{l}\n")).collect(),
            Options::default(),
        ));
    }
    logs
}

proptest! {
    #[test]
    fn every_lost_probe_enters_the_likelihood(
        fates in vec(prop_oneof![6 => Just(0_usize), 2 => Just(1), 1 => 2..6_usize], 20..120),
        leading in 0..3_usize,
        waits in any::<bool>(),
        timeout in prop_oneof![Just(1_000_000_u64), Just(3_000_000), Just(10_000_000)],
        interval in prop_oneof![Just(200_000_u64), Just(1_000_000)],
    ) {
        // Answers with runs of lost probes after them; the log begins with some, and ends with an answer.
        let mut lost = vec![true; leading];
        for run in fates {
            lost.push(false);
            lost.extend(std::iter::repeat_n(true, run));
        }
        lost.extend([false; 12]);
        let count = lost.iter().filter(|lost| **lost).count();
        for (name, text, options) in logs(&probes(&lost, waits, timeout, interval), !waits) {
            let log = baseline_with(&text, &options);
            prop_assert_eq!((log.series.len(), log.series.lost()), (lost.len(), count), "{}", name);
            let runs = Runs::of_series(&log.series, log.interval_ns, log.spacing);
            let all = (runs.lost(), runs.received());
            prop_assert_eq!(all, (count as u64, (lost.len() - count) as u64), "{}", name);
        }
    }
}
