use super::*;
use crate::baseline::Probe;
use crate::splitmix::unit;

/// A probe every 50 ms for ten minutes.
fn series(rtt_ms: impl Fn(f64) -> f64) -> Series {
    let mut series = Series::default();
    for i in 0..12_000 {
        let sent_ns = i * 50_000_000;
        let rtt = rtt_ms(seconds(sent_ns)) + unit(i);
        series.push(Probe { sent_ns, rtt_ns: Some((rtt * 1e6) as u64) });
    }
    series
}

fn detected(rtt_ms: impl Fn(f64) -> f64) -> Option<Period> {
    detect(&series(rtt_ms), 50_000_000)
}

#[test]
fn new_levels_are_found_with_their_phase() {
    let found = detected(|t| 30.0 + 9.0 * unit(((t - 4.0) / 15.0).floor() as i64 as u64)).unwrap();
    assert_eq!(found.length.value, 15.0);
    assert!((found.phase.value - 4.0).abs() < 0.1, "{found:?}");
    assert_eq!((found.number(3.9), found.number(4.1), found.number(19.1)), (0, 1, 2));
    assert!((found.from_boundary(18.5) + 0.5).abs() < 0.1);
}

#[test]
fn two_levels_in_turn_have_the_period_of_one() {
    let found =
        detected(|t| if ((t / 7.5) as u64).is_multiple_of(2) { 20.0 } else { 26.0 }).unwrap();
    assert_eq!(found.length.value, 7.5);
}

#[test]
fn periodic_round_trips_with_one_level_are_no_reconfiguration() {
    // The wait for a slot that beats with the probes.
    assert_eq!(detected(|t| 30.0 + 8.0 * (t / 15.0).fract()), None);
    assert_eq!(detected(|t| 30.0 + 8.0 * (1.0 - (t / 2.7).fract())), None);
    // A second of queueing every 15 s.
    assert_eq!(detected(|t| if t % 15.0 < 1.0 { 60.0 } else { 30.0 }), None);
    assert_eq!(detected(|t| 30.0 + 8.0 * (t / 12.0 * std::f64::consts::TAU).sin()), None);
}

#[test]
fn one_change_and_irregular_changes_have_no_period() {
    assert_eq!(detected(|t| if t < 301.0 { 30.0 } else { 50.0 }), None);
    let changes = [11.0, 61.0, 75.0, 130.0, 171.0, 260.0, 287.0, 333.0, 401.0, 480.0, 533.0, 571.0];
    let level = |t: f64| changes.iter().take_while(|c| **c < t).count() as u64;
    assert_eq!(detected(|t| 30.0 + 20.0 * unit(level(t))), None);
}

#[test]
fn empty_and_short_logs_have_no_period() {
    assert_eq!(detect(&Series::default(), 50_000_000), None);
    let mut lost = series(|_| 1.0);
    for i in 12_000..24_000 {
        lost.push(Probe { sent_ns: i * 50_000_000, rtt_ns: None });
    }
    assert_eq!(detect(&lost, 50_000_000), None);
    let mut short = Series::default();
    for i in 0..20 {
        short.push(Probe { sent_ns: i * 50_000_000, rtt_ns: Some(i) });
    }
    assert_eq!(detect(&short, 50_000_000), None);
}
