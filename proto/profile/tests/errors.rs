// SPDX-License-Identifier: Apache-2.0
//! Messages for invalid files.

use profile::{Catalog, FileError, Profile};
use proto::linkemu::v1 as pb;

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
fn reference_profile_is_valid() {
    let profile = Profile::from_toml(GOOD).unwrap().into_proto();
    assert_eq!(profile.return_pipe.as_ref().unwrap().rate_bps, Some(0));
    assert_eq!(profile.return_pipe.unwrap().overhead_bytes, -4);
    let in_cells = GOOD.replace("overhead", "link_layer = \"atm\"\noverhead");
    let in_cells = Profile::from_toml(&in_cells).unwrap().into_proto();
    assert_eq!(in_cells.return_pipe.unwrap().link_layer(), pb::LinkLayer::Atm);
}

#[test]
fn each_error_names_place_path_value_and_remedy() {
    for (from, to, expected) in [
        (
            "overhead = \"-4 B\"",
            "link_layer = \"ethernet\"",
            "line 8, column 14: return.link_layer: \"ethernet\" is no link layer: write \"atm\", \
             \"ptm\" or \"none\"",
        ),
        (
            "rate = \"144 Mbit/s\"",
            "rate = \"144 Mbit/s\"\nrate_trace = { step = \"1 s\", rates = [\"1 Mbit/s\"] }",
            "line 4, column 14: forward.rate_trace: the rate is given as well: write one of both",
        ),
        (
            "rate = \"144 Mbit/s\"",
            "rate_trace = { step = \"1 us\", rates = [\"1 Mbit/s\"] }",
            "line 3, column 23: forward.rate_trace.step: 1 µs is below 1 ms: write 1 ms to 1 h",
        ),
        (
            "rate = \"144 Mbit/s\"",
            "rate_trace = { step = \"1 s\" }",
            "line 3, column 14: forward.rate_trace.rates: missing: write rates = [\"12 Mbit/s\"]",
        ),
        (
            "rate = \"144 Mbit/s\"",
            "rate_trace = { step = \"1 s\", rates = \"1 Mbit/s\" }",
            "forward.rate_trace.rates: \"1 Mbit/s\" is not a list: write rates = [\"12 Mbit/s\"]",
        ),
        (
            "rate = \"144 Mbit/s\"",
            "rate_trace = { step = \"1 s\", rates = [\"down\", 12] }",
            "line 3, column 47: forward.rate_trace.rates[1]: rates[1] = 12 has no unit: write a unit, such as \"12 Mbit/s\"",
        ),
        (
            "rate = \"144 Mbit/s\"",
            "rate_trace = { step = \"1 s\", rates = [\"down\", \"unlimited\"] }",
            "line 3, column 47: forward.rate_trace.rates[1]: a step cannot be \"unlimited\": write a rate, or \"down\"",
        ),
        (
            "rate = \"144 Mbit/s\"",
            "rate_trace = { step = \"1 s\", rates = [\"down\", \"1 bit/s\"] }",
            "line 3, column 47: forward.rate_trace.rates[1]: 1 bit/s is below 1 kbit/s: write 1 kbit/s to 400 Gbit/s",
        ),
        (
            "rate = \"144 Mbit/s\"",
            "rate_trace = { step = \"1 s\", rates = [\"down\"] }",
            "line 3, column 38: forward.rate_trace.rates: every step is down: write rate = \"down\" instead, or a rate in some step",
        ),
        (
            "rate = \"144 Mbit/s\"",
            "rate = \"144 Mbit/s\"\npacket_loss = 0.02",
            "line 4, column 15: forward.packet_loss: packet_loss = 0.02 has no unit: write a unit, such as \"0.02 %\"",
        ),
        (
            "rate = \"144 Mbit/s\"",
            "rate = \"144 Mbit/s\"\ngilbert_elliott = { to_bad = \"1 %\", to_good = \"0 %\", loss_in_bad = \"100 %\" }",
            "line 4, column 47: forward.gilbert_elliott.to_good: 0 % is below 1e-7 %: write 1e-7 % to 100 %",
        ),
        (
            "rate = \"144 Mbit/s\"",
            "rate = \"144 Mbit/s\"\ndrop_run = { pass = 0, drop = 3 }",
            "line 4, column 21: forward.drop_run.pass: 0 packets pass between the runs, so that all are dropped: write 1 or more, or once = true",
        ),
        (
            "rate = \"144 Mbit/s\"",
            "rate = \"144 Mbit/s\"\ndrop_run = { pass = 0, drop = 3, once = 1 }",
            "line 4, column 41: forward.drop_run.once: 1 is no switch: write once = true or false",
        ),
        (
            "rate = \"144 Mbit/s\"",
            "rate = \"144 Mbit/s\"\ndrop_run = { pass = 9 }",
            "line 4, column 12: forward.drop_run.drop: missing: write drop = 1",
        ),
        (
            "queue.limit = \"36 MB\"",
            "queue = { limit = \"36 MB\", codel = {}, pie = {} }",
            "line 4, column 46: forward.queue.pie: codel is given as well: leave out one of both",
        ),
        (
            "queue.limit = \"36 MB\"",
            "queue = { limit = \"36 MB\", ecn = true }",
            "line 4, column 34: forward.queue.ecn: tail drop marks nothing: choose random_drop, red, codel or pie, or leave ecn out",
        ),
        (
            "queue.limit = \"36 MB\"",
            "queue = { limit = \"36 MB\", codel = { target = \"1 s\" } }",
            "line 4, column 47: forward.queue.codel.target: 1 s is above the interval of 100 ms: CoDel's target is 5 to 10 % of it",
        ),
        (
            "rate = \"144 Mbit/s\"",
            "rate = \"144 Mbit/s\"\npacket_loss = \"200 %\"",
            "line 4, column 15: forward.packet_loss: 200 % is above 100 %: write 0 % to 100 %",
        ),
        (
            "rate = \"144 Mbit/s\"",
            "rate = \"144 Mbit/s\"\nfade = { interval = \"8 h\", duration = \"1 h\", factor = 30 }",
            "line 4, column 8: forward.fade: a fade makes outages more frequent, and there are none: describe a class of outages, or leave out the fade",
        ),
        (
            "delay.base = \"275 ms\"",
            "delay.base = \"275 ms\"\nfade = { interval = \"8 h\", duration = \"1 h\", factor = \"30\" }\noutages = [{ interval = \"1 s\", duration = \"1 s\", law = \"fixed\" }]",
            "line 6, column 55: forward.fade.factor: \"30\" is not a bare number: write factor = 30.0",
        ),
        (
            "delay.base = \"275 ms\"",
            "delay.base = \"275 ms\"\nfade = { interval = \"8 h\", duration = \"1 h\", factor = 200 }\noutages = [{ interval = \"1 s\", duration = \"1 s\", law = \"fixed\" }]",
            "line 6, column 55: forward.fade.factor: 200 makes the shortest interval between episodes, 1 s, shorter than 10 ms: write at most 100",
        ),
        (
            "delay.base = \"275 ms\"",
            "delay.base = \"275 ms\"\ndelay.body = { correlation = \"80 ms\", quantiles = [\"0 ms\", \"2 ms\", \"1 ms\"] }",
            "line 6, column 68: forward.delay.body.quantiles[2]: 1 ms is below the one before, 2 ms: write them ascending",
        ),
        (
            "delay.base = \"275 ms\"",
            "delay.base = \"275 ms\"\ndelay.body = { correlation = \"80 ms\", quantile = [\"0 ms\", \"2 ms\", \"1 ms\"] }",
            "forward.delay.body.quantile: unknown key \"quantile\": the nearest is \"quantiles\"",
        ),
        (
            "delay.base = \"275 ms\"",
            "delay.base = \"275 ms\"\ndelay.body = { correlation = \"80 ms\", quantiles = [\"0 ms\"] }",
            "line 6, column 51: forward.delay.body.quantiles: a list of 1 is too short: write 2 to 1025 values",
        ),
        (
            "delay.base = \"0 ms\"\n",
            "delay.base = \"0 ms\"\n[provenance]\nsamples = -5",
            "line 12, column 11: provenance.samples: -5 is not a count: write samples = 1000, zero or more",
        ),
        (
            "delay.base = \"0 ms\"\n",
            "delay.base = \"0 ms\"\n[provenance]\nsamples = 5",
            "line 11, column 1: provenance.source: missing: name the measurement, such as its file",
        ),
        (
            "delay.base = \"0 ms\"\n",
            "delay.base = \"0 ms\"\n[provenance]\nsource = \"x\"\nremarks = [\"a\", 7]",
            "line 13, column 17: provenance.remarks[1]: 7 is not text: write it in quotes",
        ),
        (
            "delay.base = \"0 ms\"\n",
            "delay.base = \"0 ms\"\n[provenance]\nsource = \"x\"\nestimates = [7]",
            "line 13, column 14: provenance.estimates[0]: 7 is not a table: write [[provenance.estimates]]",
        ),
        (
            "delay.base = \"0 ms\"\n",
            "delay.base = \"0 ms\"\n[provenance]\nsource = \"x\"\n[[provenance.goodness]]\ntest = \"runs\"\nstatistic = 7\ndegrees_of_freedom = 5\np_value = 1.5",
            "line 17, column 11: provenance.goodness[0].p_value: 1.5 is above 1: write 0 to 1",
        ),
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
            "line 3, column 8: forward.rate: \"0 Mbit/s\" is not a rate: write \"down\" for a link that is down, or \"unlimited\"",
        ),
        (
            "\"36 MB\"",
            "\"1 kB\"",
            "line 4, column 15: forward.queue.limit: 1 kB is below 1.518 kB: write 1.518 kB to 64 GiB",
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
fn invalid_field_is_reported_once() {
    for to in ["\"36 Mb\"", "36", "true"] {
        let message = message("\"36 MB\"", to);
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn rules_that_depend_on_an_invalid_field_are_not_reported() {
    for (from, to) in [
        // The second step would be down, as the first one is.
        ("rate = \"144 Mbit/s\"", "rate_trace = { step = \"1 s\", rates = [\"down\", \"1 Mb\"] }"),
        (
            "delay.base = \"275 ms\"",
            "delay.base = \"275 ms\"\ndelay.body = { correlation = \"1 s\", quantiles = [\"2 ms\", \"1 m\", \"3 ms\"] }",
        ),
        (
            "delay.base = \"275 ms\"",
            "delay.base = \"275 ms\"\nfade = { interval = \"8 h\", duration = \"1 h\", factor = 30 }\noutages = [7]",
        ),
        (
            "delay.base = \"275 ms\"",
            "delay.base = \"275 ms\"\nfade = { interval = \"8 h\", duration = \"1 h\", factor = 30 }\noutages = 7",
        ),
        (
            "delay.base = \"0 ms\"\n",
            "delay.base = \"0 ms\"\n[provenance]\nsource = \"x\"\nsamples = \"many\"\nlost = 5",
        ),
    ] {
        let message = message(from, to);
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn invalid_file_reports_its_first_faults() {
    let keys: String = (0..300_000).map(|i| format!("k{i} = 1\n")).collect();
    assert_eq!(Profile::from_toml(&keys).unwrap_err().len(), 100);
    for wrong in ["1,", "\"1 bit/s\","] {
        let list = format!("rate_trace = {{ step = \"1 s\", rates = [{}] }}", wrong.repeat(65_536));
        let text = GOOD.replacen("rate = \"144 Mbit/s\"", &list, 1);
        let found = Profile::from_toml(&text).unwrap_err();
        assert!((2..=100).contains(&found.len()), "{}", found.len());
    }
    let text = format!("{GOOD}#{}", " ".repeat(profile::FILE_BYTES));
    let message = Profile::from_toml(&text).unwrap_err().to_string();
    assert_eq!(message, "line 1, column 1: more than 12582912 bytes are no profile: shorten it");
}

#[test]
fn tables_parse_in_inline_and_header_form() {
    let inline = GOOD.replacen(
        "rate = \"144 Mbit/s\"",
        "rate_trace = { step = \"100 ms\", rates = [\"12 Mbit/s\", \"down\"] }",
        1,
    );
    let header = GOOD
        .replacen("rate = \"144 Mbit/s\"\n", "", 1)
        .replacen("[return]", "[forward.rate_trace]\nstep = \"0.1 s\"\nrates = [\n  \"12 Mbit/s\",\n  \"down\",\n]\n[return]", 1);
    let profile = Profile::from_toml(&inline).unwrap();
    assert_eq!(profile, Profile::from_toml(&header).unwrap());
    let pipe = profile.as_proto().forward_pipe.as_ref().unwrap();
    let trace = pipe.rate_trace.as_ref().unwrap();
    assert_eq!((trace.step_ns, &trace.rates_bps[..]), (100_000_000, &[12_000_000, 0][..]));
    assert_eq!((pipe.rate_bps, pipe.packet_loss), (None, 0.0));
    let toml = profile.to_toml();
    assert!(
        toml.contains(
            "[forward.rate_trace]\nstep = \"100 ms\"\nrates = [\"12 Mbit/s\", \"down\"]\n"
        ),
        "{toml}"
    );
    assert!(!toml.contains("packet_loss"), "{toml}");
}

#[test]
fn all_errors_are_reported_at_once() {
    let text = GOOD.replace("\"144 Mbit/s\"", "144").replace("\"1 MiB\"", "\"1 B\"");
    let message = Profile::from_toml(&text).unwrap_err().to_string();
    assert_eq!(message.lines().count(), 2, "{message}");
}

#[test]
fn catalog_refuses_duplicate_names() {
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
fn catalog_size_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let rates = "\"400Gb/s\",".repeat(65_536);
    let trace = format!("rate_trace = {{ step = \"1 s\", rates = [{rates}] }}");
    let text =
        GOOD.replacen("rate = \"144 Mbit/s\"", &trace, 1).replacen("rate = \"down\"", &trace, 1);
    // Each message has 65 536 rates of six bytes, twice: 22 of them are more than 16 MiB.
    for i in 0..22 {
        let path = directory.path().join(format!("{i}.toml"));
        std::fs::write(path, text.replace("lab", &format!("lab{i}"))).unwrap();
    }
    let error = Catalog::load(&[directory.path()]).unwrap_err().to_string();
    assert!(error.contains("the user profiles have more than 16777216 bytes"), "{error}");
}

#[test]
fn missing_file_is_an_io_error() {
    let error = Profile::from_file("/nonexistent/x.toml".as_ref()).unwrap_err();
    assert!(matches!(error, FileError::Io { .. }));
}

#[test]
fn part_that_needs_a_rate_uses_that_of_the_pipe() {
    for part in [
        "cross_traffic = { rate = \"30 Mbit/s\" }",
        "capacity = { mean = \"60 %\", spread = \"10 %\", correlation = \"1 s\" }",
        "reconfiguration = { period = \"15 s\", clock = \"utc\", values = \"drawn\", shares = [\"50 %\", \"100 %\"] }",
    ] {
        if let Err(error) = profile::Part::from_toml(part) {
            panic!("{part}: {error}");
        }
        // Unless the part takes it away.
        let unlimited = format!("rate = \"unlimited\"\n{part}");
        assert!(profile::Part::from_toml(&unlimited).is_err(), "{unlimited}");
    }
}

#[test]
fn rate_trace_is_not_removed_without_a_rate() {
    let told = profile::Part::from_toml("rate_trace = \"none\"").unwrap_err().to_string();
    assert!(told.contains("\"none\" is not a table"), "{told}");
    let part = profile::Part::from_toml("rate = \"unlimited\"\nreorder = \"none\"").unwrap();
    assert_eq!(part.paths, ["rate_bps", "reorder"]);
    let part = profile::Part::from_toml("cross_traffic = \"none\"").unwrap();
    assert_eq!((part.paths, part.pipe.cross_traffic), (vec!["cross_traffic"], None));
}
