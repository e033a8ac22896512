// SPDX-License-Identifier: Apache-2.0
//! For any bytes, a reader neither panics nor returns an invalid baseline.

use super::*;
use proptest::prelude::*;

fn all_options() -> Vec<Options> {
    let columns =
        |text: &str| Options { columns: Some(text.parse().unwrap()), ..Options::default() };
    let formats = Format::ALL.map(|format| Options { format: Some(format), ..Options::default() });
    let mut all = vec![
        Options::default(),
        Options { interval_ns: Some(200 * MS), ..Options::default() },
        columns("sent=sent_s,rtt=rtt_ms,seq=sequence"),
        columns("sent=sent_utc:rfc3339,rtt=rtt_ms"),
    ];
    all.extend(formats);
    all
}

fn try_all(bytes: &[u8]) {
    for options in all_options() {
        match read_from(Box::new(bytes), "hostile", &options) {
            Ok(Input::Log(baseline)) => hold(&baseline),
            Ok(Input::Summary(summary)) => {
                assert!(summary.interval_ns > 0);
                let points = &summary.exceedance;
                assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 > b.1));
                assert!(summary.losses.is_some() || points.len() >= 2);
            }
            Err(error) => {
                let text = error.to_string();
                assert!(!text.is_empty() && text.len() < 10_000, "{text}");
            }
        }
    }
}

fn seeds() -> Vec<String> {
    let probe = probe_log(
        "# interval = 200 ms\n# spacing = constant\n# synchronised = true\n",
        (0..40).map(|n| (n, n as f64 * 0.2, (n % 7 != 3).then_some(600.0 + n as f64))),
    );
    let resumed =
        format!("{probe}# resumed_utc = 2026-01-01T01:00:00Z\n0,2026-01-01T01:00:00Z,0,5,,\n");
    let stamped: String = (1..40)
        .map(|n| format!("[{}.5] 64 bytes from a: icmp_seq={n} ttl=64 time=598 ms\n", 100 + n))
        .collect();
    let ping = format!(
        "PING a (1.2.3.4) 56(84) bytes of data.\n{stamped}[3.5] no answer yet for icmp_seq=41\n\n\
         --- a ping statistics ---\n45 packets transmitted, 39 received, 0% packet loss, time 44001ms\n"
    );
    let plain =
        ping.lines().map(|l| l.split_once("] ").map_or(l, |x| x.1).to_string() + "\n").collect();
    let trips: Vec<String> = (0..20)
        .map(|n| {
            format!(
                "{{\"seqno\":{n},\"lost\":\"{}\",\"timestamps\":{{\"client\":{{\"send\":{{\
                 \"wall\":{},\"monotonic\":{}}}}}}},\"delay\":{{\"rtt\":600000,\"send\":300000,\
                 \"receive\":300000}}}}",
                n == 5,
                n * 1_000_000,
                n * 1_000_000 + 5
            )
        })
        .collect();
    let irtt = format!(
        "{{\"version\":{{\"irtt\":\"0.9.0\"}},\"config\":{{\"params\":{{\"interval\":1000000}}}},\
         \"round_trips\":[{}]}}",
        trips.join(",")
    );
    let summary = "source = \"x\"\ninterval = \"200 ms\"\n[losses]\nsamples = 1000\nlost = 10\n\
                   single = 6\nruns = 2\nlongest = 2\n[delay]\nsamples = 1000\nexceedance = \
                   [[\"500 ms\", \"90 %\"], [\"600 ms\", \"10 %\"]]\n";
    vec![probe, resumed, ping, plain, irtt, summary.into()]
}

/// A change of a text.
#[derive(Clone, Debug)]
enum Change {
    Byte(u8),
    Number(i64),
    Cut,
    Repeat,
    Swap(prop::sample::Index),
    Remove,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        prop::sample::select(&b"0123456789,.\n-+e[]{}\":= \0\xff"[..]).prop_map(Change::Byte),
        prop_oneof![any::<i64>(), -2_i64..1_000].prop_map(Change::Number),
        Just(Change::Cut),
        Just(Change::Repeat),
        any::<prop::sample::Index>().prop_map(Change::Swap),
        Just(Change::Remove),
    ]
}

/// Changes one place: a byte, a number, or a whole line.
fn apply(text: &mut Vec<u8>, at: usize, change: &Change) {
    let mut lines: Vec<Vec<u8>> = text.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    let line = at % lines.len();
    match change {
        Change::Byte(byte) => text[at] = *byte,
        Change::Number(number) => {
            let digit = |index: &usize| text[*index].is_ascii_digit();
            let Some(start) = (at..text.len()).find(digit) else { return };
            let end = (start..text.len()).find(|i| !digit(i)).unwrap_or(text.len());
            text.splice(start..end, number.to_string().into_bytes());
        }
        Change::Cut => text.truncate(at),
        Change::Repeat => {
            let copy = lines[line].clone();
            lines.insert(line, copy);
            *text = lines.join(&b'\n');
        }
        Change::Swap(other) => {
            let other = other.index(lines.len());
            lines.swap(line, other);
            *text = lines.join(&b'\n');
        }
        Change::Remove => {
            lines.remove(line);
            *text = lines.join(&b'\n');
        }
    }
}

#[test]
fn the_seeds_are_logs() {
    for seed in seeds() {
        let options = Options::default();
        read_from(Box::new(seed.as_bytes()), "seed", &options).unwrap();
    }
}

proptest! {
    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        try_all(&bytes);
    }

    #[test]
    fn changed_logs_never_panic(
        seed in 0_usize..6,
        changes in prop::collection::vec((any::<prop::sample::Index>(), change()), 1..8),
    ) {
        let mut text = seeds().swap_remove(seed).into_bytes();
        for (at, change) in &changes {
            if text.is_empty() {
                break;
            }
            let at = at.index(text.len());
            apply(&mut text, at, change);
        }
        try_all(&text);
    }

    #[test]
    fn rows_of_any_numbers_never_panic(
        rows in prop::collection::vec(
            (prop_oneof![0_u64..40, any::<u64>()], prop_oneof![-50_i64..50, any::<i64>()], -1_i64..5),
            0..40,
        ),
    ) {
        let mut text = String::from("sequence,sent_s,rtt_ms\n");
        for (sequence, sent, rtt) in rows {
            writeln!(text, "{sequence},{sent}e-1,{}", if rtt < 0 { String::new() } else { rtt.to_string() }).unwrap();
        }
        try_all(text.as_bytes());
    }
}
