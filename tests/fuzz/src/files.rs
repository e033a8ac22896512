// SPDX-License-Identifier: Apache-2.0
//! Files that a user writes or downloads.

use boxfile::BoxFile;
use clients::Clients;
use emu::plan::Plan;
use group::file::GroupFile;
use orbit::{Query, Reconfigure, Script, Selection, Site, Track};
use profile::{Catalog, Profile};
use scenario::theaterq::Import;
use scenario::{Scenario, Timeline};
use std::path::Path;
use std::sync::LazyLock;

use crate::plan::{known, run};
use crate::with_file;

/// Steps of a scenario that are looked at.
const STEPS: usize = 2_000;
const S: u64 = 1_000_000_000;

/// A profile's file. A parsed profile is written such that it parses to the same, and is a link
/// that the dataplane knows.
///
/// # Panics
/// If it is not.
pub fn profile(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(read) = Profile::from_toml(text) else { return };
    let written = read.to_toml();
    match Profile::from_toml(&written) {
        Ok(again) => assert_eq!(again.as_proto(), read.as_proto(), "{written}"),
        Err(error) => panic!("what was written is refused: {error}\n{written}"),
    }
    known(read.into_proto(), 1);
}

/// A scenario's file. One that is valid keeps its limits, its instants ascend, and it has
/// as many steps as it says.
///
/// # Panics
/// If it does not.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let scenario = match Scenario::from_toml(text) {
        Ok(scenario) => scenario,
        Err(found) => {
            assert!(!found.is_empty());
            return;
        }
    };
    assert!(scenario.steps().is_none_or(|steps| (1..=scenario::STEPS).contains(&steps)));
    assert!(scenario.length_ns().is_none_or(|length| length <= scenario::LENGTH_NS));
    let mut last = 0;
    let mut count = 0;
    let mut failed = false;
    for (i, item) in Timeline::new(&scenario, None, Default::default()).take(STEPS).enumerate() {
        // A ramp from a value that is not known here.
        let Ok(item) = item else {
            failed = true;
            break;
        };
        assert_eq!(item.index, i as u64);
        assert!(item.at_ns >= last);
        assert!(!item.action.to_string().is_empty());
        last = item.at_ns;
        count += 1;
    }
    if !failed && count < STEPS {
        assert_eq!(scenario.steps(), Some(count as u64));
        assert_eq!(scenario.length_ns(), Some(last));
    }
}

/// A file of clients. A parsed file is written such that it parses to the same, and all frames
/// are accounted for, no matter which client sent them.
///
/// # Panics
/// If it is not, or they are not.
pub fn clients(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(read) = Clients::from_toml(text) else { return };
    let written = read.to_toml();
    match Clients::from_toml(&written) {
        Ok(again) => assert_eq!(again, read, "{written}"),
        Err(error) => panic!("what was written is refused: {error}\n{written}"),
    }
    let (rules, beams) = (read.rules().clone().into(), read.beams().clone().into());
    run(Plan { rules, beams, ..Plan::transparent() });
}

/// A file with a rate over time, in either format.
pub fn trace(data: &[u8]) {
    with_file(data, |path| {
        let _ = trace::read_rate(path, None);
        let _ = trace::read_rate(path, Some(1_000_000_000));
    });
}

/// A trace of TheaterQ, of one or both directions. An imported scenario is valid, unless the trace is
/// too short to be repeated, as `linkctl scenario import` says.
///
/// # Panics
/// If it is not.
pub fn theaterq(data: &[u8]) {
    for (repeated, bytes) in [(false, false), (true, true)] {
        let import = Import {
            name: "fuzz".into(),
            profile: "transparent".into(),
            bytes,
            repeated,
            ..Import::default()
        };
        let (mut forward, mut back) = (data, data);
        let back = repeated.then_some(("b.csv", &mut back as &mut dyn std::io::Read));
        let Ok(imported) = import.read(Some(("a.csv", &mut forward)), back) else { continue };
        if let Err(found) = Scenario::from_toml(&imported.toml)
            && !found.to_string().contains("too short to be repeated")
        {
            panic!("what was imported is refused: {found:?}\n{}", imported.toml);
        }
    }
}

/// Element sets of satellites. A track of the first ones is a valid scenario.
///
/// # Panics
/// If it is not.
pub fn orbit(data: &[u8]) {
    let Ok(mut satellites) = orbit::elements::read("fuzz.tle", data) else { return };
    satellites.truncate(3);
    let ground = Site::new(51.48, -0.01, 50.0);
    let gateway = Site::new(48.86, 2.35, 100.0);
    let (Ok(ground), Ok(gateway)) = (ground, gateway) else { return };
    static CATALOG: LazyLock<Catalog> = LazyLock::new(Catalog::built_in);
    let Some(profile) = CATALOG.get("transparent") else { return };
    for selection in [Selection::Highest, Selection::Longest] {
        let query = Query {
            ground,
            gateways: vec![gateway],
            start_ns: satellites[0].epoch_ns,
            duration_ns: 600 * S,
            step_ns: 30 * S,
            mask_deg: 10.0,
            gateway_mask_deg: 5.0,
            selection,
            reconfigure: Some(Reconfigure { period_ns: 60 * S, phase_ns: 12 * S }),
            processing_ns: 1_000_000,
        };
        let Ok(track) = Track::follow(&query, &satellites) else { continue };
        let ends = track.intervals.iter().map(|interval| (interval.from_ns, interval.to_ns));
        assert!(ends.clone().all(|(from, to)| from < to), "{:?}", track.intervals);
        assert!(ends.clone().zip(ends.skip(1)).all(|(one, other)| one.1 == other.0));
        let script = Script {
            name: "fuzz",
            description: "",
            source: "fuzz.tle",
            profile,
            gateways: 1,
            tolerance_ns: 100_000,
            step_ns: 100_000_000,
            outage_ns: 50_000_000,
        };
        let Ok(text) = script.write(&track, &satellites) else { continue };
        if let Err(found) = Scenario::from_toml(&text) {
            panic!("the script of a track is refused: {found:?}\n{text}");
        }
    }
}

/// A box file, and the file of its switch.
pub fn box_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(read) = BoxFile::parse(text, Path::new("box.toml")) else { return };
    let problems = read.problems();
    assert_eq!(read.check().is_ok(), problems.is_empty(), "{problems:?}");
}

/// The file of a group of boxes. A valid one has boxes, and owners among them.
///
/// # Panics
/// If it has not.
pub fn group(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(read) = GroupFile::parse(text, Path::new("group.toml")) else { return };
    assert!(!read.boxes.is_empty());
    assert!(read.owners.values().all(|place| *place < read.boxes.len()));
}
