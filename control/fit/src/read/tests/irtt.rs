// SPDX-License-Identifier: Apache-2.0

use super::*;

fn trip(seqno: u64, lost: &str, wall: Option<u64>, rtt: u64) -> String {
    let at = 5_000_000 + seqno * 200 * MS;
    let wall = wall.map_or(String::new(), |wall| format!("\"wall\": {wall}, "));
    let delay = match lost {
        "false" | "\"false\"" => {
            format!("\"receive\": {}, \"rtt\": {rtt}, \"send\": {}", rtt / 3, rtt - rtt / 3)
        }
        _ => String::new(),
    };
    format!(
        "{{\"seqno\": {seqno}, \"lost\": {lost}, \"timestamps\": {{\"client\": {{\"receive\": {{}}, \
         \"send\": {{{wall}\"monotonic\": {at}}}}}, \"server\": {{\"receive\": {{}}, \"send\": \
         {{}}}}}}, \"delay\": {{{delay}}}, \"ipdv\": {{}}}}"
    )
}

fn output(trips: &[String]) -> String {
    format!(
        "{{\n    \"version\": {{\"irtt\": \"0.9.0\", \"protocol\": 1, \"json_format\": 1}},\n    \
         \"system_info\": {{\"os\": \"linux\"}},\n    \"config\": {{\"params\": {{\"interval\": \
         200000000, \"length\": 48}}, \"ttl\": 0}},\n    \"stats\": {{\"rtt\": {{\"n\": 2}}}},\n    \
         \"round_trips\": [\n{}\n]}}\n",
        trips.join(",\n")
    )
}

fn trips(wall: impl Fn(u64) -> Option<u64>) -> Vec<String> {
    let lost = |n| match n {
        3 => "\"true\"",
        4 => "\"true_up\"",
        5 => "\"true_down\"",
        6 => "true",
        7 => "false",
        _ => "\"false\"",
    };
    (0..12).map(|n| trip(n, lost(n), wall(n), 600_000_123 + n)).collect()
}

#[test]
fn output_is_read() {
    let baseline = baseline(&output(&trips(|n| Some(1_508_180_723_502_727_340 + n * 200 * MS))));
    assert_eq!((baseline.series.len(), baseline.series.lost()), (12, 4));
    assert_eq!(baseline.interval_ns, 200 * MS);
    assert_eq!(baseline.spacing, Spacing::Constant);
    assert_eq!(baseline.resolution_ns, 1);
    let probe = Probe { sent_ns: 1_400 * MS, rtt_ns: Some(600_000_130) };
    assert_eq!(baseline.series.get(7), Some(probe));
    let one_way = baseline.one_way.unwrap();
    // Medians of eight, which do not add up to that of the round trips.
    assert!((one_way.there_ns + one_way.back_ns).abs_diff(600_000_131) < 4, "{one_way:?}");
    says(&baseline.remarks[0], &["400 ms there", "200 ms back", "does not say"]);
    let times = "2017-10-16T19:05:23.50272734Z 2017-10-16T19:05:26.302727474Z";
    assert_eq!(recorded(&baseline), times);
}

#[test]
fn output_without_wall_clock_has_no_recording_time() {
    assert_eq!(baseline(&output(&trips(|_| None))).recorded, None);
}

#[test]
fn monotonic_clock_is_preferred() {
    let jumps =
        |n| Some(1_508_180_723_502_727_340 + n * 200 * MS + if n > 6 { 3_600 * S } else { 0 });
    assert_eq!(baseline(&output(&trips(jumps))).series.segments().len(), 1);
    let text = output(&trips(jumps)).replacen("\"monotonic\": 5000000", "\"other\": 1", 1);
    assert_eq!(baseline(&text).series.segments().len(), 2);
}

#[test]
fn one_way_delays_of_unsynchronised_clocks_are_ignored() {
    let text = output(&trips(|_| None)).replace("\"receive\": 2000", "\"receive\": -2000");
    let baseline = baseline(&text);
    assert_eq!(baseline.one_way, None);
    says(&baseline.remarks[0], &["-200 ms back", "not synchronised"]);
}

#[test]
fn bad_output_is_refused() {
    let text = output(&trips(|_| None));
    says(&refused(&text[..text.len() / 2]), &["irtt", "cut off", "line"]);
    says(&refused(&text.replace("true_up", "maybe")), &["irtt"]);
    says(&refused(&text.replace("\"round_trips\"", "\"trips\"")), &["missing field `round_trips`"]);
    says(&refused(&output(&[])), &["no probe"]);
    says(
        &refused(&text.replace("\"rtt\": 600000123", "\"rtt\": -5")),
        &["round_trips[0]", "-5 ns"],
    );
    says(&refused(&text.replace("\"rtt\": 600000124, ", "")), &["round_trips[1]", "delay.rtt"]);
    let timeless = text.replace("\"monotonic\": 5000000", "\"other\": 5");
    says(&refused(&timeless), &["round_trips[0]", "send time is missing"]);
    says(&refused(&text.replace("200000000", "20000000")), &["200 ms apart", "20 ms"]);
    let all = (0..4).map(|n| trip(n, "\"true\"", None, 0)).collect::<Vec<_>>();
    says(&refused(&output(&all)), &["all 4 probes were lost"]);
}
