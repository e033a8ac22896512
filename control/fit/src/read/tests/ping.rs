// SPDX-License-Identifier: Apache-2.0

use super::*;

const STAMPED: &str = "\
PING 192.0.2.1 (192.0.2.1) 56(84) bytes of data.
[1795283678.898028] 64 bytes from 192.0.2.1: icmp_seq=1 ttl=64 time=598 ms
[1795283679.099755] no answer yet for icmp_seq=2
[1795283679.297028] 64 bytes from 192.0.2.1: icmp_seq=3 ttl=64 time=597 ms
[1795283679.299001] 64 bytes from 192.0.2.1: icmp_seq=3 ttl=64 time=599 ms (DUP!)
[1795283679.498028] 64 bytes from 192.0.2.1: icmp_seq=4 ttl=64 time=598 ms
[1795283679.698100] From 192.0.2.9 icmp_seq=5 Destination Host Unreachable

--- 192.0.2.1 ping statistics ---
5 packets transmitted, 3 received, +1 duplicates, +1 errors, 40% packet loss, time 801ms
rtt min/avg/max/mdev = 597.028/597.700/598.230/0.500 ms, pipe 3
";

fn answers(numbers: impl IntoIterator<Item = u64>) -> String {
    let mut text = String::from("PING a (192.0.2.1) 56(84) bytes of data.\n");
    for n in numbers {
        let (ms, seq) = (598 + n * 200, n % 65_536);
        let stamp = format!("{}.{:03}", 1_795_283_678 + ms / 1_000, ms % 1_000);
        writeln!(text, "[{stamp}] 64 bytes from a: icmp_seq={seq} ttl=64 time=598 ms").unwrap();
    }
    text
}

fn ended(mut text: String, transmitted: u64) -> String {
    writeln!(text, "\n--- a ping statistics ---\n{transmitted} packets transmitted, 1 received, 0% packet loss, time 1ms").unwrap();
    text
}

#[test]
fn a_log_with_time_stamps_is_read() {
    let baseline = baseline(STAMPED);
    // Sent a round trip before the stamp: 0.300028 and 0.900028 by the clock, at 200 ms.
    assert_eq!(in_ms(&baseline)[..3], [(0, Some(598)), (200, None), (400, Some(597))]);
    assert_eq!(baseline.interval_ns, 200_000_000);
    assert_eq!(baseline.resolution_ns, MS, "three digits of 598 ms");
    assert_eq!(recorded(&baseline), "2026-11-21T17:54:38.300028Z 2026-11-21T17:54:39.498028Z");
    // The fifth was answered with an error, but three may have been on the way.
    assert_eq!(baseline.series.len(), 4);
    let remarks = baseline.remarks.join(" ");
    says(&remarks, &["1 answer is a duplicate", "1 probe was answered with an error"]);
    says(&remarks, &["1 probe at the end may have been on the way"]);
}

#[test]
fn trailing_losses_count_unless_possibly_in_flight() {
    let text = ended(answers((1..=100).filter(|n| *n != 7)), 110);
    let baseline = baseline(&text);
    // Three intervals make the round trip of 598 ms.
    assert_eq!((baseline.series.len(), baseline.series.lost()), (107, 8));
    assert_eq!(in_ms(&baseline)[6], (1_200, None));
    assert_eq!(in_ms(&baseline)[106], (21_200, None));
    says(&baseline.remarks[0], &["3 probes at the end"]);
}

#[test]
fn leading_losses_count() {
    let baseline = baseline(&ended(answers(4..=100), 100));
    assert_eq!((baseline.series.len(), baseline.series.lost()), (100, 3));
    assert_eq!(in_ms(&baseline)[3], (600, Some(598)));
}

#[test]
fn numbers_are_counted_on_after_65535() {
    let lost = [65_534, 65_535, 65_536, 65_537, 100_000];
    let baseline = baseline(&ended(answers((1..=140_000).filter(|n| !lost.contains(n))), 140_000));
    assert_eq!((baseline.series.len(), baseline.series.lost()), (140_000, 5));
    for n in lost {
        assert_eq!(baseline.series.get(n as usize - 1).unwrap().rtt_ns, None, "{n}");
    }
    assert_eq!(baseline.series.segments().len(), 1);
}

#[test]
fn reordered_answers_are_sorted() {
    let mut text = answers(1..=50);
    text = text.replace("icmp_seq=20 ", "icmp_seq=x ").replace("icmp_seq=21 ", "icmp_seq=20 ");
    text = text.replace("icmp_seq=x ", "icmp_seq=21 ");
    // The send times are swapped, too: 200 ms back and forth are no clock step.
    let line = |n: u64| text.lines().nth(n as usize).unwrap().to_string();
    let swapped =
        text.replace(&line(20), "x").replace(&line(21), &line(20)).replace('x', &line(21));
    let baseline = baseline(&ended(swapped, 50));
    assert_eq!((baseline.series.len(), baseline.series.lost()), (50, 0));
}

#[test]
fn without_time_stamps_the_summary_gives_the_interval() {
    let text: String = STAMPED
        .lines()
        .map(|line| line.split_once("] ").map_or(line, |(_, rest)| rest).to_string() + "\n")
        .collect();
    let log = baseline(&text);
    assert_eq!(log.interval_ns, 200_250_000, "801 ms over four intervals");
    assert_eq!(in_ms(&log)[2], (400, Some(597)));
    says(&log.remarks.join(" "), &["no time stamps (ping -D)"]);

    let options = Options { interval_ns: Some(1_000 * MS), ..Options::default() };
    says(&refused_with(&text, &options), &["200.3 ms apart", "--interval says 1 s"]);

    let text = text.replace(", time 801ms", "");
    says(&refused(&text), &["ping -D", "--interval"]);
    let options = Options { interval_ns: Some(200 * MS), ..Options::default() };
    let baseline = baseline_with(&text, &options);
    assert_eq!(baseline.interval_ns, 200 * MS);
}

#[test]
fn busybox_and_macos_count_from_zero() {
    let busybox = "\
PING 192.0.2.1 (192.0.2.1): 56 data bytes
64 bytes from 192.0.2.1: seq=1 ttl=64 time=0.112 ms
64 bytes from 192.0.2.1: seq=2 ttl=64 time=0.140 ms

--- 192.0.2.1 ping statistics ---
4 packets transmitted, 2 packets received, 50% packet loss
round-trip min/avg/max = 0.112/0.125/0.140 ms
";
    let options = Options { interval_ns: Some(S), ..Options::default() };
    let log = baseline_with(busybox, &options);
    let answered: Vec<bool> = log.series.iter().map(|p| p.rtt_ns.is_some()).collect();
    assert_eq!(answered, [false, true, true, false]);
    assert_eq!(log.resolution_ns, 1_000);

    let macos = "\
PING example.org (192.0.2.1): 56 data bytes
64 bytes from 192.0.2.1: icmp_seq=0 ttl=57 time=12.345 ms
Request timeout for icmp_seq 1
64 bytes from 192.0.2.1: icmp_seq=2 ttl=57 time=13.001 ms
^C
--- example.org ping statistics ---
3 packets transmitted, 2 packets received, 33.3% packet loss
round-trip min/avg/max/stddev = 12.345/12.673/13.001/0.328 ms
";
    let log = baseline_with(macos, &options);
    assert_eq!((log.series.len(), log.series.lost()), (3, 1));
}

#[test]
fn a_log_without_its_end_stops_at_the_last_answer() {
    let mut text = answers(1..=20);
    text.push_str("[1795283682.6] no answer yet for icmp_seq=21\n[1795283682.8] no ans");
    let baseline = baseline(&text);
    assert_eq!((baseline.series.len(), baseline.series.lost()), (20, 0));
    says(&baseline.remarks.join(" "), &["last line is cut off", "summary is missing"]);
}

#[test]
fn messages_about_ping_itself_are_counted() {
    let text = answers(1..=20).replace(
        "icmp_seq=9 ttl=64 time=598 ms",
        "icmp_seq=9 ttl=64 time=598 ms\nwrong data byte #16 should be 0x10 but was 0x0\n#16\t0 11",
    );
    let text = text + "ping: sendmsg: Network is unreachable\n";
    says(&baseline(&text).remarks.join(" "), &["3 lines are not about a probe", "wrong data byte"]);
}

#[test]
fn corrupted_answers_are_losses() {
    let text = answers(1..=20)
        .replace("icmp_seq=9 ttl=64 time=598 ms", "icmp_seq=9 ttl=64 time=598 ms (BAD CHECKSUM!)");
    let baseline = baseline(&text);
    assert_eq!(baseline.series.lost(), 1);
    says(&baseline.remarks.join(" "), &["1 answer was corrupted"]);
}

#[test]
fn bad_lines_are_named() {
    let with =
        |line: &str| STAMPED.replace("[1795283679.099755] no answer yet for icmp_seq=2", line);
    for (line, parts) in [
        ("hello", &["line 3", "no line of ping's", "\"hello\""][..]),
        ("64 bytes from a: ttl=64 time=1 ms", &["line 3", "no sequence number"]),
        ("64 bytes from a: icmp_seq=70000 ttl=64 time=1 ms", &["line 3", "no sequence number"]),
        ("8 bytes from a: icmp_seq=2 ttl=64", &["line 3", "no time", "-s"]),
        ("64 bytes from a: icmp_seq=2 ttl=64 time=1 ms", &["line 3", "some have none"]),
        ("[1.5] 64 bytes from a: icmp_seq=2 time=0.000 ms", &["line 3", "0 ms", "more than zero"]),
        ("[1.5] 64 bytes from a: icmp_seq=2 time=-5 ms", &["line 3", "-5 ms"]),
        ("PING b (192.0.2.2) 56(84) bytes of data.", &["line 3", "second run", "split"]),
    ] {
        says(&refused(&with(line)), parts);
    }
    says(&refused(&STAMPED.replace("5 packets", "5000000 packets")), &["line 10", "32767", "-O"]);
    says(&refused(&STAMPED.replace("5 packets", "2 packets")), &["line 10", "2 were transmitted"]);
    says(&refused(&STAMPED.replace("5 packets", "x packets")), &["line 10", "summary"]);
}

#[test]
fn ping_without_answers_is_refused() {
    let text = "PING a (192.0.2.1) 56(84) bytes of data.\n\n--- a ping statistics ---\n\
                5 packets transmitted, 0 received, 100% packet loss, time 4096ms\n";
    says(&refused(text), &["all 5 probes were lost"]);
    says(&refused("PING a (192.0.2.1) 56(84) bytes of data.\n"), &["no probe"]);
}

/// The same log with other words before each line.
fn prefixed(prefix: impl Fn(u64) -> String) -> String {
    let lines = STAMPED.lines().map(|line| {
        let (stamp, rest) = line
            .split_once("] ")
            .map_or((None, line), |(stamp, rest)| (stamp[1..].split_once('.'), rest));
        let stamp =
            stamp.map(|(s, us)| s.parse::<u64>().unwrap() * S + us.parse::<u64>().unwrap() * 1_000);
        if rest.is_empty() {
            "\n".into()
        } else {
            format!("{}{rest}\n", prefix(stamp.unwrap_or(0)))
        }
    });
    lines.collect()
}

#[test]
fn dates_before_each_line_are_its_time_stamps() {
    let date = |ns: u64, format: &str| {
        let time = jiff::Timestamp::from_nanosecond(ns.into()).unwrap();
        jiff::fmt::strtime::format(format, time).unwrap()
    };
    for format in
        ["%Y-%m-%dT%H:%M:%S.%6fZ ", "%Y-%m-%d %H:%M:%S.%6f: ", "[%Y-%m-%dT%H:%M:%S.%6f+00:00] "]
    {
        let log = baseline(&prefixed(|ns| date(ns, format)));
        assert_eq!(in_ms(&log), in_ms(&baseline(STAMPED)), "{format}");
        assert_eq!(recorded(&log), "2026-11-21T17:54:38.300028Z 2026-11-21T17:54:39.498028Z");
    }
}

#[test]
fn other_lines_before_and_after_are_left_out() {
    let text = format!("$ ping -D -O 192.0.2.1\nnot a probe\n{STAMPED}\n$ exit\nbye\n");
    let log = baseline(&text);
    assert_eq!(in_ms(&log), in_ms(&baseline(STAMPED)));
    says(&log.remarks.join(" "), &["4 lines are not about a probe", "$ ping -D"]);
    // Between probes, they may hide one.
    let text = STAMPED.replace("\n[1795283679.498028]", "\nhello\n[1795283679.498028]");
    says(&refused(&text), &["line 6", "no line of ping's", "hello"]);
}

#[test]
fn losses_at_the_ends_of_a_part_of_a_log_count() {
    let text: String = STAMPED.lines().skip(2).take(5).map(|line| format!("{line}\n")).collect();
    let log = baseline(&text);
    assert_eq!(in_ms(&log)[..2], [(0, None), (200, Some(597))]);
}

#[test]
fn fping_is_read() {
    let mut text = String::new();
    for n in 0..70_000_u64 {
        let what = match n % 1_000 {
            7 => "timed out (20.1 avg, 1% loss)".into(),
            _ => format!("64 bytes, {}.5 ms (20.1 avg, 0% loss)", 20 + n % 3),
        };
        let us = n * 200_000 + if n % 1_000 == 7 { 500_000 } else { 20_500 + n % 3 * 1_000 };
        writeln!(
            text,
            "[{}.{:05}] 192.0.2.1 : [{n}], {what}",
            1_609_459_200 + us / 1_000_000,
            us % 1_000_000 / 10
        )
        .unwrap();
    }
    let log = baseline(&text);
    assert_eq!((log.series.len(), log.series.lost()), (70_000, 70));
    assert_eq!((log.interval_ns, log.series.segments().len()), (200 * MS, 1));
    assert_eq!(in_ms(&log)[6..9], [(1_200, Some(20)), (1_400, None), (1_600, Some(22))]);
}
