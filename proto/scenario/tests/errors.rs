// SPDX-License-Identifier: Apache-2.0
//! Errors have their place, the limit and a remedy.

use scenario::Scenario;

fn errors(steps: &str) -> String {
    Scenario::from_toml(&format!("name = \"it\"\n{steps}")).unwrap_err().to_string()
}

#[test]
fn every_fault_is_named_with_its_remedy() {
    for (steps, expected) in [
        ("", "step: missing"),
        ("step = []", "there is none"),
        ("[[step]]\n", "an empty step"),
        ("[[step]]\nlable = \"x\"", "the nearest is \"label\""),
        ("[[step]]\nboth.rat = \"1 Mbit/s\"", "the nearest is \"rate\""),
        ("[[step]]\nboth = {}", "changes nothing"),
        ("[[step]]\nboth.queue = {}", "changes nothing"),
        ("[[step]]\nboth.rate = 72", "no unit"),
        ("[[step]]\nboth.rate = \"1 bit/s\"", "is below 1 kbit/s"),
        ("[[step]]\nboth.delay.base = \"2 min\"", "is above 1 min"),
        ("[[step]]\nboth.queue.limit = \"1 B\"", "is below 1.518 kB"),
        ("[[step]]\nboth.rate = \"1 Mbit/s\"\nprofile = \"x\"", "profile is given as well"),
        ("[[step]]\nboth.rate = \"1 Mbit/s\"\nforward.rate = \"down\"", "forward is given as well"),
        ("[[step]]\nat = \"1 s\"\nafter = \"1 s\"", "at is given as well"),
        (
            "[[step]]\nat = \"2 s\"\n[[step]]\nat = \"1 s\"",
            "before the end of the step before it, 2 s",
        ),
        ("[[step]]\nprofile = \"\"", "write a profile's name"),
        ("[[step]]\nlinks.lab1 = {}", "changes nothing: write a profile"),
        ("[[step]]\nlinks.lab1.ramp = {}", "ramp"),
        ("[[step]]\nlinks.\"a/b\".profile = \"lte\"", "\"a/b\" is no link's name"),
        (
            "[[step]]\nlinks.a.profile = \"lte\"\nlinks.a.both.rate = \"down\"",
            "profile is given as well",
        ),
        (
            "[[step]]\nwait = { event = \"link_changed\", timeout = \"1 s\" }\nlinks.a.profile = \"lte\"",
            "a step of its own",
        ),
        ("[[step]]\nlabel = \"a\\u001bb\"", "control character"),
        ("[[step]]\nrepeat = 0", "no number of times"),
        ("[[step]]\nrepeat = 3", "missing: write step"),
        ("[[step]]\nrepeat = \"ever\"", "or \"forever\""),
        ("[[step]]\nlabel = \"x\"\n[[step.step]]\nlabel = \"y\"", "write repeat = 10"),
        (
            "[[step]]\nrepeat = \"forever\"\n[[step.step]]\nlabel = \"x\"",
            "too short to be repeated forever",
        ),
        (
            "[[step]]\nrepeat = \"forever\"\n[[step.step]]\nafter = \"1 s\"\n[[step]]\nlabel = \"x\"",
            "something comes after it",
        ),
        (
            "[[step]]\nrepeat = 1000\n[[step.step]]\nrepeat = 1000\n[[step.step.step]]\nlabel = \"x\"",
            "1000000 steps",
        ),
        ("[[step]]\nafter = \"400 d\"", "longer than"),
        (
            "[[step]]\nramp = { value = \"rat\", to = \"1 Mbit/s\", over = \"1 s\", steps = 2 }",
            "the nearest is \"rate\"",
        ),
        (
            "[[step]]\nramp = { value = \"rate\", to = \"unlimited\", over = \"1 s\", steps = 2 }",
            "no value of a ramp",
        ),
        (
            "[[step]]\nramp = { value = \"rate\", to = \"1 Mbit/s\", over = \"1 s\" }",
            "write one of steps",
        ),
        ("[[step]]\nramp = { value = \"rate\", to = \"1 Mbit/s\", steps = 2 }", "over: missing"),
        ("[[step]]\nramp = { value = \"rate\", over = \"1 s\", steps = 2 }", "to: missing"),
        (
            "[[step]]\nramp = { value = \"rate\", to = \"1 Mbit/s\", over = \"1 s\", steps = 5000 }",
            "less than 1 ms apart",
        ),
        (
            "[[step]]\nramp = { value = \"delay.base\", to = \"0 ms\", over = \"1 s\", steps = 5, law = \"exponential\" }",
            "make it linear",
        ),
        (
            "[[step]]\nramp = { value = \"delay.base\", to = \"61 s\", over = \"1 s\", steps = 5 }",
            "outside of 0",
        ),
        (
            "[[step]]\nwait = { event = \"link_change\", timeout = \"1 s\" }",
            "the nearest is \"link_changed\"",
        ),
        ("[[step]]\nwait = { event = \"scenario_step\", timeout = \"1 s\" }", "none of its words"),
        ("[[step]]\nwait = { event = \"link_changed\" }", "timeout: missing"),
        ("[[step]]\nwait = { event = \"link_changed\", timeout = \"0 s\" }", "outside of 1 ms to"),
    ] {
        let errors = errors(steps);
        assert!(errors.contains(expected), "{steps}\nexpected {expected}:\n{errors}");
        assert!(errors.contains("line "), "{errors}");
    }
}

#[test]
fn all_faults_are_found_at_one_look_each_at_its_place() {
    let text = "name = \"a b\"\n[[step]]\nat = 5\n[[step]]\nboth.rate = \"1 MB\"\n";
    let found = Scenario::from_toml(text).unwrap_err();
    let places: Vec<_> = found.iter().map(|v| (v.path.as_str(), v.place.unwrap().line)).collect();
    assert_eq!(places, [("step[0].at", 3), ("step[1].both.rate", 5), ("name", 1)]);
}

#[test]
fn what_is_too_long_or_too_deep_is_refused_without_reading_it() {
    let long = format!("name = \"it\"\n# {}\n", "x".repeat(scenario::FILE_BYTES));
    assert!(Scenario::from_toml(&long).unwrap_err().to_string().contains("shorten it"));
    let mut deep = String::new();
    for depth in 1..=20 {
        deep += &format!("[[step{}]]\nrepeat = 2\n", ".step".repeat(depth - 1));
    }
    assert!(errors(&deep).contains("more than 4 deep"), "{}", errors(&deep));
    let bomb = format!("step = {}{}", "[".repeat(20_000), "]".repeat(20_000));
    assert!(errors(&bomb).contains("not TOML"), "{}", errors(&bomb));
}

#[test]
fn a_scenario_s_text_names_no_other_file() {
    // There is such a file, where tests run.
    for name in ["Cargo.toml", "/etc/hostname"] {
        let text = format!("name = \"it\"\n[[step]]\nforward.rate_trace = {{ file = {name:?} }}\n");
        let told = Scenario::from_toml(&text).map(drop).unwrap_err().to_string();
        let expected = "step[0].forward.rate_trace.file: a file is looked for beside the profile";
        assert!(told.contains(expected), "{told}");
    }
}
