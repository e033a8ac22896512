// SPDX-License-Identifier: Apache-2.0
//! Files of element sets, good and bad.

use crate::sky::{Circle, EPOCH_NS, checksum, query};
use orbit::Track;
use orbit::elements::{ElementsError, nearest, read};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn geo() -> String {
    Circle::equatorial(35_786.0, 0.0).tle("GEO 1", 1)
}

fn error(text: &str) -> String {
    match read("it.tle", text.as_bytes()) {
        Ok(satellites) => panic!("{text}: {} satellites", satellites.len()),
        Err(error) => error.to_string(),
    }
}

/// Replaces columns of a line, and corrects its checksum.
fn with(tle: &str, line: usize, column: usize, text: &str) -> String {
    let mut lines: Vec<String> = tle.lines().map(str::to_owned).collect();
    lines[line].replace_range(column..column + text.len(), text);
    lines[line].truncate(68);
    let sum = checksum(&lines[line]);
    lines[line] += &sum.to_string();
    lines.join("\n")
}

#[test]
fn tle_is_read_with_and_without_names() {
    let named = read("it", geo().as_bytes()).unwrap();
    assert_eq!((named[0].name.as_str(), named[0].norad_id), ("GEO 1", 1));
    assert_eq!(named[0].epoch_ns, EPOCH_NS);
    let zero = read("it", format!("\u{feff}0 {}", geo()).as_bytes()).unwrap();
    assert_eq!(zero[0].name, "GEO 1");
    let bare: Vec<_> = geo().lines().skip(1).map(str::to_owned).collect();
    let text = format!("# a comment\r\n\r\n{}  \r\n{}\r\n{}", bare[0], bare[1], geo());
    let names = read("it", text.as_bytes()).unwrap();
    let names: Vec<_> = names.into_iter().map(|satellite| satellite.name).collect();
    assert_eq!(names, ["1", "GEO 1"]);
}

const OMM: &str = r#"{"OBJECT_NAME":"OMM 1","OBJECT_ID":"2026-001A","EPOCH":"2026-01-01T12:00:00",
"MEAN_MOTION":15.05,"ECCENTRICITY":0.0001,"INCLINATION":53.0,"RA_OF_ASC_NODE":10.0,
"ARG_OF_PERICENTER":20.0,"MEAN_ANOMALY":30.0,"EPHEMERIS_TYPE":0,"CLASSIFICATION_TYPE":"U",
"NORAD_CAT_ID":123456,"ELEMENT_SET_NO":999,"REV_AT_EPOCH":1,"BSTAR":0.0001,"MEAN_MOTION_DOT":0.0,
"MEAN_MOTION_DDOT":0}"#;

#[test]
fn omm_is_read_as_json_and_csv() {
    let csv = "OBJECT_NAME,OBJECT_ID,EPOCH,MEAN_MOTION,ECCENTRICITY,INCLINATION,RA_OF_ASC_NODE,\
               ARG_OF_PERICENTER,MEAN_ANOMALY,EPHEMERIS_TYPE,CLASSIFICATION_TYPE,NORAD_CAT_ID,\
               ELEMENT_SET_NO,REV_AT_EPOCH,BSTAR,MEAN_MOTION_DOT,MEAN_MOTION_DDOT\n\
               OMM 1,2026-001A,2026-01-01T12:00:00.000000,15.05,.0001,53.0,10.0,20.0,30.0,0,U,\
               123456,999,1,.1E-3,.00001,0\n";
    for text in [OMM.to_owned(), format!("[{OMM},{OMM}]"), csv.to_owned()] {
        let satellites = read("it", text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        let first = &satellites[0];
        assert_eq!((first.name.as_str(), first.norad_id), ("OMM 1", 123_456));
        assert_eq!(first.epoch_ns, EPOCH_NS);
        assert!(first.is_in_orbit(EPOCH_NS));
    }
    for (from, to, part) in [
        ("15.05", "0", "mean motion 0 is outside of 0.03 to 17"),
        ("15.05", "\"nan\"", "mean motion NaN is outside"),
        ("0.0001,\"INC", "1.5,\"INC", "eccentricity 1.5"),
        ("53.0", "1e300", "inclination"),
        ("2026-01-01T", "9026-01-01T", "the epoch 9026-01-01 12:00:00 is outside of 1678 to 2262"),
        ("\"EPOCH\"", "\"EPOK\"", "missing field `EPOCH`"),
        ("\"U\"", "\"X\"", "unknown variant"),
    ] {
        let wrong = OMM.replace(from, to);
        assert!(wrong != OMM && error(&wrong).contains(part), "{part}: {}", error(&wrong));
    }
    assert!(error(&csv.replace("15.05", "x")).starts_with("it.tle:2: "));
    assert!(error(&csv.replace("EPOCH,", "EPOCX,")).contains("missing field `EPOCH`"));
}

#[test]
fn broken_file_is_refused_with_place_and_remedy() {
    let tle = geo();
    let lines: Vec<_> = tle.lines().collect();
    let (one, two) = (lines[1], lines[2]);
    for (text, part) in [
        (String::new(), "it.tle holds no element sets: write TLE"),
        ("\n# nothing\n".into(), "holds no element sets"),
        ("<?xml version=\"1.0\"?>".into(), "OMM as XML, which is not supported"),
        ("CCSDS_OMM_VERS = 2.0".into(), "OMM as KVN"),
        ("[]".into(), "holds no element sets"),
        ("[{}]".into(), "it.tle:1: missing field"),
        ("{\"OBJECT".into(), "it.tle:1: EOF"),
        ("hello".into(), "it.tle:1: not a line of elements"),
        ("x".repeat(200), "it.tle:1: neither a name"),
        (format!("A\nB\n{one}\n{two}"), "it.tle:1: a name without elements"),
        (format!("{one}\n{one}\n{two}"), "it.tle:2: a line 1 follows a line 1"),
        (format!("{one}\nname\n{two}"), "it.tle:2: line 2 of an element set is missing"),
        (one.into(), "it.tle:1: the file ends before line 2"),
        (two.into(), "it.tle:1: a line 2 without its line 1"),
        (format!("{one}\n{}", &two[..60]), "it.tle:1-2: TLE parse error: Bad line length"),
        (format!("{one}\n{}x", &two[..68]), "it.tle:2: the line does not end with a checksum"),
        (format!("{one}\n{}é", &two[..67]), "it.tle:2: the character 'é'"),
        (format!("{}9\n{two}", &one[..68]), "it.tle:1-2: TLE parse error: Bad line checksum"),
        (with(&tle, 2, 3, "9"), "NORAD mismatch"),
        (with(&tle, 2, 52, " 0.00000000"), "the mean motion 0 is outside"),
        (with(&tle, 2, 52, "17.01000000"), "GEO 1: the mean motion 17.01 is outside"),
        (with(&tle, 2, 52, "        nan"), "the mean motion NaN"),
        (with(&tle, 1, 18, "26999.50000000"), "Date generation failed"),
        (with(&tle, 1, 18, "26         inf"), "Date generation failed"),
    ] {
        let told = error(&text);
        assert!(told.contains(part), "{text}\n{told}\n{part}");
    }
    let large = vec![b' '; (32 << 20) + 1];
    assert!(matches!(read("it", &large), Err(ElementsError::Bytes { .. })));
}

#[test]
fn of_several_sets_the_nearest_to_the_instant_is_kept() {
    let old = with(&geo(), 1, 18, "25300");
    let new = with(&geo(), 1, 18, "26100");
    let other = Circle::equatorial(35_786.0, 0.0).tle("GEO 2", 1);
    let text = format!("{old}\n{new}\n{}{other}", geo());
    let satellites = nearest(read("it", text.as_bytes()).unwrap(), EPOCH_NS + 1);
    let kept: Vec<_> = satellites.iter().map(|it| (it.name.as_str(), it.epoch_ns)).collect();
    assert_eq!(kept, [("GEO 1", EPOCH_NS), ("GEO 2", EPOCH_NS)]);
}

#[test]
fn decayed_satellite_is_not_in_orbit() {
    let low = Circle { height_km: 200.0, inclination: 53.0, node: 0.0, anomaly: 0.0 };
    let draggy = with(&low.tle("LOW", 1), 1, 53, " 99999-1");
    let satellite = read("it", draggy.as_bytes()).unwrap().remove(0);
    assert!(satellite.is_in_orbit(EPOCH_NS));
    let buried = read("it", with(&geo(), 2, 52, "16.99000000").as_bytes()).unwrap().remove(0);
    assert!(!buried.is_in_orbit(EPOCH_NS));
    assert!(!satellite.is_in_orbit(EPOCH_NS + 30 * 86_400_000_000_000));
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Any bytes with the right checksum are refused, or give a track.
    #[test]
    fn changed_elements_never_panic(
        changes in prop::collection::vec((1..3_usize, 2..68_usize, b' '..=b'z'), 1..4),
        days in -20_000..40_000_i64,
    ) {
        let mut text = geo();
        for (line, column, byte) in changes {
            text = with(&text, line, column, &char::from(byte).to_string());
        }
        if let Ok(satellites) = read("it", text.as_bytes()) {
            let mut query = query(1);
            query.start_ns += days * 86_400_000_000_000;
            prop_assert!(Track::follow(&query, &satellites).is_ok());
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in "[ -~\n\u{e9}{}12]{0,200}") {
        let _ = read("it", text.as_bytes());
    }
}
