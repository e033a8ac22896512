// SPDX-License-Identifier: Apache-2.0
//! What a user is told about a file that is wrong.
#![allow(clippy::unwrap_used, missing_docs)]

use profile::{Catalog, FileError, Profile};

const GOOD: &str = r#"name = "lab"
[forward]
rate = "144 Mbit/s"
queue.limit = "36 MB"
delay.base = "275 ms"
[return]
rate = "down"
overhead = "-4 B"
queue.limit = "1 MiB"
delay.base = "0 ms"
"#;

fn message(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let error = Profile::from_toml(&GOOD.replacen(from, to, 1)).unwrap_err();
    error.to_string()
}

#[test]
fn the_good_one_is_good() {
    let profile = Profile::from_toml(GOOD).unwrap().into_proto();
    assert_eq!(profile.return_pipe.as_ref().unwrap().rate_bps, Some(0));
    assert_eq!(profile.return_pipe.unwrap().overhead_bytes, -4);
}

#[test]
fn each_error_names_place_path_value_and_remedy() {
    for (from, to, expected) in [
        (
            "\"144 Mbit/s\"",
            "144",
            "line 3, column 8: forward.rate: rate = 144 has no unit: write a unit, such as \"144 Mbit/s\"",
        ),
        (
            "rate = \"144",
            "rat = \"144",
            "line 3, column 1: forward.rat: unknown key \"rat\": the nearest is \"rate\"",
        ),
        (
            "\"144 Mbit/s\"",
            "\"0 Mbit/s\"",
            "line 3, column 8: forward.rate: \"0 Mbit/s\" is no rate: say \"down\" for a link that is down, or \"unlimited\"",
        ),
        (
            "\"36 MB\"",
            "\"1 kB\"",
            "line 4, column 15: forward.queue.limit: 1 kB is less than one full frame: write at least \"1518 B\"",
        ),
        (
            "\"275 ms\"",
            "\"99999999999 d\"",
            "line 5, column 14: forward.delay.base: \"99999999999 d\" is more than the largest representable 213503 d 23 h 34 min 33.709551615 s: write less",
        ),
        (
            "\"275 ms\"",
            "\"-1 ms\"",
            "line 5, column 14: forward.delay.base: \"-1 ms\" is negative: write zero or more",
        ),
        ("[return]", "[retrun]", "unknown key \"retrun\": the nearest is \"return\""),
        ("[return]", "[retrun]", "return: missing: describe both directions, forward and return"),
        ("name = \"lab\"", "", "name: missing: give the profile a name"),
        ("name = \"lab\"", "name = 7", "7 is not text: write it in quotes"),
        (
            "rate = \"down\"\n",
            "",
            "line 6, column 1: return.rate: missing: write rate = \"144 Mbit/s\", \"unlimited\" or \"down\"",
        ),
        ("\"down\"", "true", "return.rate: true is no quantity: write it as \"144 Mbit/s\""),
        ("[forward]", "[forward", "not TOML"),
        (
            "queue.limit = \"36 MB\"",
            "queue = { limit = \"36 MB\", random_drop = { threshold = \"40 MB\", probability_at_threshold = \"0 %\", probability_at_limit = 0.1 } }",
            "probability_at_limit = 0.1 has no unit: write a unit, such as \"0.1 %\"",
        ),
        (
            "queue.limit = \"36 MB\"",
            "queue = { limit = \"36 MB\", random_drop = { threshold = \"40 MB\", probability_at_threshold = \"0 %\", probability_at_limit = \"1 %\" } }",
            "forward.queue.random_drop.threshold: 40 MB is above the queue's limit of 36 MB",
        ),
        (
            "delay.base = \"275 ms\"",
            "delay.base = \"275 ms\"\noutages = [{ interval = \"1 ms\", duration = \"1 s\", law = \"fix\" }]",
            "forward.outages[0].law: \"fix\" is no law: write \"exponential\" or \"fixed\"",
        ),
        (
            "delay.base = \"275 ms\"",
            "delay.base = \"275 ms\"\noutages = [{ interval = \"1 ms\", duration = \"1 s\", law = \"fixed\" }]",
            "line 6, column 25: forward.outages[0].interval: 1 ms is below 10 ms: write 10 ms to 365 d",
        ),
    ] {
        let message = message(from, to);
        assert!(message.contains(expected), "{to}\n{message}");
    }
}

#[test]
fn a_field_that_cannot_be_read_is_reported_once() {
    for to in ["\"36 Mb\"", "36", "true"] {
        let message = message("\"36 MB\"", to);
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn all_errors_are_reported_at_once() {
    let text = GOOD.replace("\"144 Mbit/s\"", "144").replace("\"1 MiB\"", "\"1 B\"");
    let message = Profile::from_toml(&text).unwrap_err().to_string();
    assert_eq!(message.lines().count(), 2, "{message}");
}

#[test]
fn a_catalog_refuses_names_that_are_taken() {
    let directory = tempfile::tempdir().unwrap();
    let write = |file: &str, name: &str| {
        std::fs::write(directory.path().join(file), GOOD.replace("lab", name)).unwrap();
    };
    let load = || Catalog::load(&[directory.path()]);
    write("a.toml", "lab");
    std::fs::write(directory.path().join("README"), "not a profile").unwrap();
    let catalog = load().unwrap();
    assert_eq!(catalog.get("lab").unwrap().name(), "lab");
    assert_eq!(catalog.nearest("labb"), Some("lab"));

    write("b.toml", "lab");
    assert!(load().unwrap_err().to_string().contains("a.toml: give this profile another name"));
    write("b.toml", "viasat2");
    assert!(load().unwrap_err().to_string().contains("that of a built-in profile"));
    write("b.toml", "lab*");
    assert!(load().unwrap_err().to_string().contains("marks a patched link"));
    std::fs::write(directory.path().join("b.toml"), "x = 1").unwrap();
    let error = load().unwrap_err().to_string();
    assert!(error.contains("b.toml:1:1: x: unknown key \"x\""), "{error}");
    assert!(Catalog::load(&["/nonexistent"]).unwrap_err().to_string().contains("/nonexistent"));
}

#[test]
fn a_file_that_is_not_there_is_an_io_error() {
    let error = Profile::from_file("/nonexistent/x.toml".as_ref()).unwrap_err();
    assert!(matches!(error, FileError::Io { .. }));
}
