// SPDX-License-Identifier: Apache-2.0
//! Profiles that name a file with a rate trace.

use profile::{Catalog, FileError, Part, Profile, RATE_TRACE_RATES_BPS_ITEMS};
use std::fs;
use std::path::Path;

/// A profile with `trace` as its forward rate.
fn toml(trace: &str) -> String {
    format!(
        "name = \"traced\"\n[forward]\nrate_trace = {trace}\nqueue.limit = \"1 MB\"\n\
         delay.base = \"5 ms\"\n[return]\nrate = \"1 Mbit/s\"\nqueue.limit = \"1 MB\"\n\
         delay.base = \"5 ms\"\n"
    )
}

/// Parses a profile in `directory`.
fn read(directory: &Path, trace: &str) -> Result<Profile, String> {
    let path = directory.join("traced.toml");
    fs::write(&path, toml(trace)).unwrap();
    Profile::from_file(&path).map_err(|error| match error {
        FileError::Invalid { violations, .. } => violations.to_string(),
        error @ FileError::Io { .. } => error.to_string(),
    })
}

#[test]
fn trace_file_beside_the_profile_gives_its_rates() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    // An opportunity each millisecond, then each half of one, for 100 ms each.
    let mut times: Vec<u64> = (1..=200).chain(101..=200).collect();
    times.sort_unstable();
    let lines: String = times.iter().map(|ms| format!("{ms}\n")).collect();
    fs::create_dir(at("traces")).unwrap();
    fs::write(at("traces/lte.mahimahi"), lines).unwrap();
    // One at the start, 49 after 3 ms, and one after 8 ms more.
    fs::write(at("bursts"), format!("0\n{}11\n", "3\n".repeat(49))).unwrap();
    fs::write(at("lte.csv"), "time_s,rate_mbps\n0,10\n1,0\n3,20\n").unwrap();
    for (named, written) in [
        (
            "{ file = \"traces/lte.mahimahi\", step = \"100 ms\" }",
            "{ step = \"100 ms\", rates = [\"12.032 Mbit/s\", \"24.064 Mbit/s\"] }",
        ),
        (
            "{ file = \"./traces/lte.mahimahi\", step = \"200 ms\" }",
            "{ step = \"200 ms\", rates = [\"18.048 Mbit/s\"] }",
        ),
        (
            "{ file = \"bursts\" }",
            "{ step = \"1 ms\", opportunities = { size = \"1504 B\", runs = [1, 63, 15, 15, 4, 129] } }",
        ),
        (
            "{ file = \"lte.csv\", step = \"1 s\" }",
            "{ step = \"1 s\", rates = [\"10 Mbit/s\", \"down\", \"down\", \"20 Mbit/s\", \"20 Mbit/s\"] }",
        ),
    ] {
        let profile = read(directory.path(), named).unwrap();
        assert_eq!(profile, Profile::from_toml(&toml(written)).unwrap(), "{named}");
        // Printed and sent profiles contain no file name.
        assert_eq!(Profile::from_toml(&profile.to_toml()).unwrap(), profile);
    }
    // linkd loads its directories with this function.
    let catalog = Catalog::load(&[directory.path()]).unwrap();
    let pipe = catalog.get("traced").unwrap().as_proto().forward_pipe.clone().unwrap();
    assert_eq!(pipe.rate_trace.unwrap().rates_bps.len(), 5);
}

#[test]
fn invalid_trace_file_is_refused_at_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("inner")).unwrap();
    fs::write(at("words"), "hello\n").unwrap();
    fs::write(at("nothing"), "").unwrap();
    fs::write(at("short"), "1\n2\n").unwrap();
    fs::write(at("slow.csv"), "time_s,rate_bps\n0,5000\n1,999\n").unwrap();
    fs::write(at("long"), format!("{}\n", *RATE_TRACE_RATES_BPS_ITEMS.end() * 100 + 100)).unwrap();
    fs::write(at("many"), (0..524_289).map(|ms| format!("{ms}\n")).collect::<String>()).unwrap();
    let absolute = at("short").display().to_string();
    let inner = at("inner");
    for (named, place, expected) in [
        ("{ file = \"none\" }", "line 3, column 23: forward.rate_trace.file: ", "No such file"),
        ("{ file = \"inner\" }", "forward.rate_trace.file: ", "is no file"),
        ("{ file = \"words\" }", "forward.rate_trace.file: ", "no mahimahi trace"),
        ("{ file = \"nothing\" }", "forward.rate_trace.file: ", "no duration"),
        ("{ file = \"\" }", "forward.rate_trace.file: ", "no file beside the profile"),
        ("{ file = \"../short\" }", "forward.rate_trace.file: ", "no file beside the profile"),
        ("{ file = \"a/../../short\" }", "forward.rate_trace.file: ", "no file beside"),
        (&format!("{{ file = {absolute:?} }}"), "forward.rate_trace.file: ", "no file beside"),
        ("{ file = 5 }", "forward.rate_trace.file: ", "5 is not text"),
        ("{ file = \"short\", step = \"1 us\" }", "forward.rate_trace.file: ", "shorter than 1 ms"),
        ("{ file = \"short\", step = 5 }", "forward.rate_trace.step: ", "write a unit"),
        ("{ file = \"slow.csv\" }", "forward.rate_trace.rates[1]: ", "999 bit/s"),
        (
            "{ file = \"long\", step = \"100 ms\" }",
            "forward.rate_trace.file: ",
            "65537 steps of 100 ms are more than the 65536 that a profile holds: 101 ms each",
        ),
        (
            "{ file = \"short\", rates = [\"1 Mbit/s\"] }",
            "line 3, column 40: forward.rate_trace.rates: ",
            "the file is given as well",
        ),
        (
            "{ file = \"short\", opportunities = { size = \"1504 B\", runs = [17] } }",
            "line 3, column 48: forward.rate_trace.opportunities: ",
            "the file is given as well",
        ),
        (
            "{ file = \"many\" }",
            "forward.rate_trace.file: ",
            "524289 runs of opportunities are more",
        ),
        ("{ fil = \"short\" }", "forward.rate_trace.fil: ", "the nearest is \"file\""),
    ] {
        // A path with `..` would find the file from here.
        let from = if named.contains("..") { inner.as_path() } else { directory.path() };
        let told = read(from, named).unwrap_err();
        assert!(told.contains(place) && told.contains(expected), "{named}: {told}");
    }
}

#[test]
fn remainder_of_a_split_opportunity_is_not_a_rate() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gap");
    // 200 steps of 100.005 ms: 5 us of the last millisecond of the first are in the second.
    std::fs::write(&path, "101\n20001\n").unwrap();
    let read = profile::read_trace(&path, Some(100_000_000)).unwrap();
    let rates = &read.trace.rates_bps;
    assert!(rates.iter().all(|rate| *rate == 0 || *rate >= 1_000), "{rates:?}");
    assert!(read.remarks.iter().any(|r| r.contains("are down")), "{:?}", read.remarks);
}

#[test]
fn text_without_a_file_cannot_name_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("short");
    fs::write(&file, "1\n2\n").unwrap();
    for name in ["short", "Cargo.toml", file.to_str().unwrap()] {
        let trace = format!("{{ file = {name:?} }}");
        for told in [
            Profile::from_toml(&toml(&trace)).unwrap_err().to_string(),
            Part::from_toml(&format!("rate_trace = {trace}")).unwrap_err().to_string(),
        ] {
            assert!(told.contains("came without one: write step and rates"), "{told}");
        }
    }
}

#[test]
fn path_trace_beside_the_profile_gives_delays_and_losses() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let rows = "time_ms,delay_ms,loss_percent,rate_mbps\n0,20,0,8\n1,35,50,9\n";
    fs::write(at("path.csv"), rows).unwrap();
    let rate = "rate_trace = { file = \"path.csv\" }\npath_trace = { file = \"path.csv\" }";
    let text = toml("X").replace("rate_trace = X", rate);
    fs::write(at("both.toml"), &text).unwrap();
    let profile = Profile::from_file(&at("both.toml")).unwrap();
    let pipe = profile.as_proto().forward_pipe.clone().unwrap();
    let trace = pipe.path_trace.unwrap();
    assert_eq!((trace.step_ns, trace.delays_ns), (1_000_000, vec![20_000_000, 35_000_000]));
    assert_eq!(trace.losses, [0.0, 0.5]);
    assert_eq!(pipe.rate_trace.unwrap().rates_bps, [8_000_000, 9_000_000]);
    assert_eq!(Profile::from_toml(&profile.to_toml()).unwrap(), profile);
    for (named, expected) in [
        ("{ file = \"none\" }", "forward.path_trace.file: cannot read"),
        ("{ file = \"path.csv\", step = \"1 us\" }", "forward.path_trace.step: 1 µs is below 1 ms"),
        (
            "{ file = \"path.csv\", losses = [\"0 %\"] }",
            "forward.path_trace.losses: the file is given",
        ),
        ("{ step = \"1 ms\" }", "forward.path_trace: without delays and losses"),
        (
            "{ step = \"1 ms\", delays = [\"1 ms\"], losses = [\"0 %\", \"1 %\"] }",
            "2 values are not as many",
        ),
        ("{ step = \"1 ms\", delays = [\"61 s\"] }", "delays[0]: 1 min 1 s is above 1 min"),
    ] {
        let path = format!("rate = \"1 Mbit/s\"\npath_trace = {named}");
        fs::write(at("both.toml"), toml("X").replace("rate_trace = X", &path)).unwrap();
        let told = Profile::from_file(&at("both.toml")).unwrap_err().to_string();
        assert!(told.contains(expected), "{named}: {told}");
    }
}
