// SPDX-License-Identifier: Apache-2.0
//! The scenario of a track, expanded as the dataplane does it.

use crate::sky::{Circle, GEO_KM, S, follow, query, satellites};
use orbit::{Query, Script, ScriptError, Track};
use profile::{Catalog, Profile};
use scenario::{Action, Item, Scenario, Timeline};
use std::collections::BTreeMap;
use std::sync::Arc;

fn transparent() -> Profile {
    Catalog::built_in().get("transparent").unwrap().clone()
}

fn script(profile: &Profile) -> Script<'_> {
    Script {
        name: "it",
        description: "",
        source: "",
        profile,
        gateways: 1,
        tolerance_ns: 1_000,
        step_ns: S,
        outage_ns: 0,
    }
}

/// The steps, checked to be complete.
fn items(toml: &str, profile: &Profile) -> Vec<Item> {
    let scenario = Scenario::from_toml(toml).unwrap_or_else(|found| panic!("{toml}\n{found}"));
    let link = profile.as_proto().clone();
    let profiles = BTreeMap::from([(profile.name().to_owned(), link)]);
    let items: Result<Vec<_>, _> = Timeline::new(&scenario, None, Arc::new(profiles)).collect();
    let items = items.unwrap();
    assert_eq!(scenario.steps(), Some(items.len() as u64));
    assert_eq!(items.last().map(|item| item.at_ns), scenario.length_ns());
    items
}

/// From when on, and a forward value.
fn values<T>(items: &[Item], path: &str, value: impl Fn(&proto_pipe::Pipe) -> T) -> Vec<(u64, T)> {
    let change = |item: &Item| match &item.action {
        Action::Patch(parts) => {
            let part = parts.forward.as_ref()?;
            part.paths.contains(&path).then(|| (item.at_ns, value(&part.pipe)))
        }
        _ => None,
    };
    items.iter().filter_map(change).collect()
}

use proto::linkemu::v1 as proto_pipe;

fn delays(items: &[Item]) -> Vec<(u64, u64)> {
    values(items, "delay.base_ns", |pipe| pipe.delay.as_ref().map_or(0, |delay| delay.base_ns))
}

fn losses(items: &[Item]) -> Vec<(u64, f64)> {
    values(items, "packet_loss", |pipe| pipe.packet_loss)
}

fn ring(count: usize, height_km: f64) -> Vec<Circle> {
    let place = |i| Circle::equatorial(height_km, 360.0 * i as f64 / count as f64);
    (0..count).map(place).collect()
}

/// The current value at an instant.
fn at<T: Copy>(values: &[(u64, T)], ns: u64) -> Option<T> {
    values.iter().take_while(|(at, _)| *at <= ns).last().map(|(_, value)| *value)
}

fn check_delays(query: &Query, circles: &[Circle], slack_ns: u64) -> Track {
    let track = follow(query, circles);
    let profile = transparent();
    let toml = script(&profile).write(&track, &satellites(circles)).unwrap();
    let played = delays(&items(&toml, &profile));
    for (_, sample) in track.samples() {
        // At the instant of a handover the next satellite is current.
        let Some(played) = at(&played, sample.at_ns) else { continue };
        let is_handover = track.intervals.iter().any(|it| it.to_ns.abs_diff(sample.at_ns) < S / 2);
        let difference = played.abs_diff(sample.delay_ns);
        assert!(is_handover || difference <= slack_ns, "{difference} {sample:?}");
    }
    track
}

#[test]
fn played_delay_follows_the_geometry_in_low_medium_and_geostationary_orbits() {
    // The tolerance, the rounding, and one step at most: 46 µs/s in a low orbit.
    let low = check_delays(&query(30), &ring(40, 550.0), 48_000);
    assert!(low.handovers() > 5);
    check_delays(&query(120), &ring(12, 8_062.0), 12_000);
    check_delays(&query(120), &[Circle::equatorial(GEO_KM, 10.0)], 1_500);
}

#[test]
fn satellite_that_sets_takes_all_packets_until_the_next_one_rises() {
    let circles = ring(3, 550.0);
    let profile = Catalog::built_in().get("lte").unwrap().clone();
    let track = follow(&query(95), &circles);
    let toml = script(&profile).write(&track, &satellites(&circles)).unwrap();
    let items = items(&toml, &profile);
    let losses = losses(&items);
    let gaps: Vec<_> = track.intervals.iter().filter(|it| it.link.is_none()).collect();
    assert!(gaps.len() >= 2);
    let inner = profile.as_proto().forward_pipe.as_ref().unwrap().packet_loss;
    for gap in gaps {
        assert_eq!(at(&losses, gap.from_ns), Some(1.0));
        assert_eq!(at(&losses, gap.to_ns - 1), Some(1.0));
        if gap.to_ns < track.intervals.last().unwrap().to_ns {
            assert_eq!(at(&losses, gap.to_ns), Some(inner));
        }
    }
    let labels: Vec<_> = items.iter().map(|item| item.label.as_str()).collect();
    assert!(labels.contains(&"SAT-1") && labels.contains(&"no satellite"), "{labels:?}");
}

#[test]
fn handover_outage_restores_the_loss_model_of_the_profile() {
    let circles = ring(40, 550.0);
    let mut text = transparent().to_toml();
    text = text.replace("\"transparent\"", "\"bursty\"").replace(
        "[forward]\n",
        "[forward]\ngilbert_elliott = { to_bad = \"1 %\", to_good = \"25 %\", loss_in_bad = \"100 %\" }\n",
    );
    let profile = Profile::from_toml(&text).unwrap();
    let track = follow(&query(10), &circles);
    let script = Script { outage_ns: 50_000_000, ..script(&profile) };
    let toml = script.write(&track, &satellites(&circles)).unwrap();
    let items = items(&toml, &profile);
    let lost = losses(&items);
    assert_eq!(lost.len(), track.handovers());
    let restored = values(&items, "gilbert_elliott", |pipe| pipe.gilbert_elliott);
    assert_eq!(restored.len(), lost.len());
    let expected = profile.as_proto().forward_pipe.as_ref().unwrap().gilbert_elliott;
    assert!(expected.is_some());
    for ((from, loss), (to, model)) in lost.into_iter().zip(restored) {
        assert_eq!((loss, to - from, model), (1.0, 50_000_000, expected));
    }
}

#[test]
fn motionless_satellite_needs_no_steps() {
    let track = follow(&query(5), &[Circle::equatorial(GEO_KM, 0.0)]);
    let mut still = track.clone();
    for interval in &mut still.intervals {
        for sample in interval.link.iter_mut().flat_map(|link| &mut link.samples) {
            sample.delay_ns = 238_740_000;
        }
    }
    let profile = transparent();
    let toml = script(&profile).write(&still, &satellites(&[Circle::equatorial(GEO_KM, 0.0)]));
    assert!(!toml.as_ref().unwrap().contains("ramp"), "{toml:?}");
}

#[test]
fn scenario_that_is_too_long_names_a_duration_that_fits() {
    let circles = ring(40, 550.0);
    let (profile, sky) = (transparent(), satellites(&circles));
    let day = follow(&query(24 * 60), &circles);
    let ScriptError::Bytes { fits, .. } = script(&profile).write(&day, &sky).unwrap_err() else {
        panic!("a day fits");
    };
    let mut shorter = query(60);
    shorter.duration_ns = profile::parse_duration(&fits).unwrap();
    assert!(shorter.duration_ns > 3_600 * S, "{fits}");
    script(&profile).write(&follow(&shorter, &circles), &sky).unwrap();
    let mut slow = query(1);
    slow.processing_ns = 3_600 * S;
    let error = script(&profile).write(&follow(&slow, &circles), &sky).unwrap_err().to_string();
    assert!(error.contains("reduce the processing time"), "{error}");
}
