// SPDX-License-Identifier: Apache-2.0
//! `linkctl scenario orbit`, and its scenario against linkd in-process and a fake dataplane.

use crate::lab::Lab;
use std::fs;

/// Synthetic satellites at 0 degrees east of the equator on 1 January 2026, 12:00 UTC.
const GEO: &str = "\
GEO 1
1 00001U 26001A   26001.50000000  .00000000  00000-0  00000-0 0  9994
2 00001   0.0500 281.1550 0000001   0.0000   0.0000  1.00273790    00
";
const LEO: &str = "\
LEO 1
1 00002U 26001A   26001.50000000  .00000000  00000-0  00000-0 0  9995
2 00002  53.0000 281.1550 0000001   0.0000   0.0000 15.05000000    06
";
/// A year earlier.
const OLD: &str = "\
GEO 0
1 00009U 25001A   25001.50000000  .00000000  00000-0  00000-0 0  9990
2 00009   0.0500 281.1550 0000001   0.0000   0.0000  1.00273790    08
";
const OFFLINE: &str = "--socket /nonexistent/linkd.sock scenario";

fn lab() -> Lab {
    let lab = Lab::new();
    fs::write(lab.at("geo.tle"), GEO).unwrap();
    fs::write(lab.at("both.tle"), format!("{GEO}{LEO}")).unwrap();
    lab
}

#[test]
fn track_becomes_a_scenario_that_the_dataplane_plays() {
    let lab = lab();
    lab.done("set profile viasat2");
    let orbit = "scenario orbit --tle both.tle --ground 0,0 --select longest --duration 2s";
    let done = lab.done(&format!("{orbit} --step 100ms --profile geo-600 -w sky.toml"));
    assert!(done.starts_with("sky.toml: sky (steps: "), "{done}");
    assert!(done.contains("satellites used: 1; handovers: 0; one-way delay: 238.7"), "{done}");
    assert!(lab.done(&format!("{OFFLINE} check sky.toml")).contains("sky is valid"));
    let state = lab.json("-o json scenario run sky.toml");
    assert_eq!(state["phase"], "SCENARIO_PHASE_FINISHED");
    for pipe in [lab.forward(), lab.back()] {
        let delay = pipe.delay.unwrap().base_ns as f64 / 1e6;
        assert!((delay - 238.74).abs() < 0.05, "{delay}");
    }
    // The rest is that of the profile.
    assert_eq!(lab.forward().rate_bps, profile("geo-600").forward_pipe.unwrap().rate_bps);
}

fn profile(name: &str) -> proto::linkemu::v1::Profile {
    profile::Catalog::built_in().get(name).unwrap().as_proto().clone()
}

#[test]
fn json_has_figures_intervals_and_samples() {
    let lab = lab();
    let line = format!(
        "-o json {OFFLINE} orbit --tle both.tle --satellite LEO --ground 0,0 --gateway 3,3 \
         --gateway -2,-1 --duration 95min --processing 1ms"
    );
    let json = lab.json(&line);
    assert_eq!((&json["name"], &json["start"]), (&"both".into(), &"2026-01-01T12:00:00Z".into()));
    let intervals = json["intervals"].as_array().unwrap();
    assert_eq!(
        (&intervals[0]["satellite"], &intervals[0]["norad_id"]),
        (&"LEO 1".into(), &2.into())
    );
    assert!(intervals[0]["gateway"] == 0 || intervals[0]["gateway"] == 1);
    let gap = intervals.iter().find(|it| it["satellite"].is_null()).unwrap();
    assert!(gap["to_ns"].as_u64() > gap["from_ns"].as_u64());
    assert!(json["no_satellite_ns"].as_u64().unwrap() > 3_000_000_000_000);
    let sample = &json["samples"][0];
    let [range, other] = ["range_m", "gateway_range_m"].map(|key| sample[key].as_f64().unwrap());
    let delay = sample["delay_ns"].as_f64().unwrap();
    assert!((delay - 1e6 - (range + other) / 0.299_792_458).abs() < 1.0, "{sample}");
    assert!(json["toml"].as_str().unwrap().contains("no satellite"));
}

#[test]
fn report_is_written_beside_the_scenario() {
    let lab = lab();
    let line =
        "orbit --tle both.tle --ground 2.8,1.9 --duration 5min --report sky.html -w sky.toml";
    lab.done(&format!("{OFFLINE} {line}"));
    let page = fs::read_to_string(lab.at("sky.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(page.contains("LEO 1") && page.contains("GEO 1"));
    let same = line.replace("sky.html", "sky.toml");
    assert!(lab.fails(2, &format!("{OFFLINE} {same}")).contains("name the same file"));
    let input = line.replace("sky.html", "both.tle");
    assert!(lab.fails(2, &format!("{OFFLINE} {input}")).contains("would overwrite both.tle"));
}

#[test]
fn hostile_input_is_refused_with_its_remedy() {
    let lab = lab();
    fs::write(lab.at("empty.tle"), "").unwrap();
    fs::write(lab.at("sum.tle"), GEO.replace("9994", "9995")).unwrap();
    fs::write(lab.at("cut.tle"), &GEO[..120]).unwrap();
    for (options, parts) in [
        ("none.tle --ground 0,0", ["cannot read none.tle", ""]),
        ("empty.tle --ground 0,0", ["empty.tle holds no element sets", "write TLE"]),
        ("sum.tle --ground 0,0", ["sum.tle:2-3: TLE parse error: Bad line checksum", "again"]),
        ("cut.tle --ground 0,0", ["cut.tle:2-3: TLE parse error: Bad line length", "again"]),
        ("geo.tle --ground 0,0 --satellite geo", ["no satellite of geo.tle has geo", "case"]),
        (
            "geo.tle --ground 0,0 --start 1999-01-01",
            ["from 2026-01-01T12:00:00Z to 2026-01-01T12:00:00Z, and the scenario", "--start"],
        ),
        ("geo.tle --ground 0,180", ["no satellite is 25 degrees or more above", "--elevation"]),
        ("geo.tle --ground 0,0 --duration 30d", ["are more than 200000", "--step"]),
        ("geo.tle --ground 0,0 --processing 2h", ["reduce the processing", "--processing"]),
        ("geo.tle --ground 0,0 --name a/b", ["is not a name", "--name"]),
        ("geo.tle --ground 0,0 --profile geo", ["no built-in profile \"geo\"", "toml"]),
    ] {
        let told = lab.fails(1, &format!("{OFFLINE} orbit --tle {options} -w new.toml"));
        assert!(parts.iter().all(|part| told.contains(part)), "{options}: {told}");
    }
    assert!(!lab.at("new.toml").exists());
}

#[test]
fn old_and_decayed_satellites_are_named_in_warnings() {
    let lab = lab();
    fs::write(lab.at("old.tle"), format!("{OLD}{GEO}")).unwrap();
    let line = "orbit --tle old.tle --ground 0,0 --start 2026-01-10 --duration 1min -w it.toml";
    let output = lab.run(&format!("{OFFLINE} {line}"));
    let told = crate::lab::text(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains("1 of 2 satellites are left out, with elements more than 30 d"),
        "{told}"
    );
    assert!(told.contains("such as GEO 0") && told.contains("up to 8 days"), "{told}");
}
