// SPDX-License-Identifier: Apache-2.0
//! Properties of every scenario.

use profile::{format_duration, format_size};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use scenario::{Action, Item, Scenario, Timeline};
use std::collections::BTreeMap;
use std::sync::Arc;

const MS: u64 = 1_000_000;

fn items(text: &str) -> Vec<Item> {
    let scenario = Scenario::from_toml(text).unwrap_or_else(|found| panic!("{text}\n{found}"));
    let catalog = profile::Catalog::built_in();
    let link = catalog.get("viasat2").unwrap().as_proto().clone();
    let profiles = Arc::new(BTreeMap::from([("viasat2".to_owned(), link.clone())]));
    let items: Result<Vec<_>, _> = Timeline::new(&scenario, Some(&link), profiles).collect();
    let items = items.unwrap();
    assert_eq!(scenario.steps(), Some(items.len() as u64));
    items
}

fn rates(items: &[Item]) -> Vec<u64> {
    let rate = |item: &Item| match &item.action {
        Action::Patch(parts) => parts.forward.as_ref()?.pipe.rate_bps,
        _ => None,
    };
    items.iter().filter_map(rate).collect()
}

/// A step, after some time, as TOML below `path`.
fn step() -> impl Strategy<Value = String> {
    let after = (0..5_000u64).prop_map(|ms| format!("after = \"{}\"\n", format_duration(ms * MS)));
    let what = prop_oneof![
        Just("label = \"mark\"\n".to_owned()),
        Just("profile = \"viasat2\"\n".to_owned()),
        (1..1_000_000u64).prop_map(|kbps| format!("both.rate = \"{kbps} kbit/s\"\n")),
        (1..100u64, 1..40u64).prop_map(|(to, steps)| format!(
            "ramp = {{ value = \"delay.base\", to = \"{to} ms\", over = \"1 s\", steps = {steps} }}\n"
        )),
        (1..2_000u64).prop_map(|ms| format!(
            "ramp = {{ value = \"queue.limit\", from = \"1 MB\", to = \"2 MB\", over = \"{ms} ms\", every = \"7 ms\", direction = \"return\" }}\n"
        )),
    ];
    (after, what).prop_map(|(after, what)| after + &what)
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        // 200 cases by default, scaled by PROPTEST_CASES / 256.
        cases: ProptestConfig::default().cases.saturating_mul(200).div_ceil(256),
        ..ProptestConfig::default()
    })]

    #[test]
    fn instants_ascend_and_the_last_one_is_the_length(
        outer in prop::collection::vec(step(), 1..6),
        inner in prop::collection::vec(step(), 1..6),
        times in 1..9u64,
    ) {
        let mut text = "name = \"it\"\n".to_owned();
        for step in &outer {
            text += &format!("[[step]]\n{step}");
        }
        text += &format!("[[step]]\nrepeat = {times}\n");
        for step in &inner {
            text += &format!("[[step.step]]\n{step}");
        }
        let items = items(&text);
        prop_assert!(items.is_sorted_by_key(|item| item.at_ns));
        prop_assert!(items.iter().enumerate().all(|(i, item)| item.index == i as u64));
        let scenario = Scenario::from_toml(&text).unwrap();
        prop_assert_eq!(scenario.length_ns(), items.last().map(|item| item.at_ns));
    }

    #[test]
    fn repeats_multiply(step in step(), times in 1..18u64, again in 1..18u64) {
        let once = items(&format!("name = \"it\"\n[[step]]\n{step}"));
        let all = items(&format!(
            "name = \"it\"\n[[step]]\nrepeat = {times}\n[[step.step]]\nrepeat = {again}\n\
             [[step.step.step]]\n{step}"
        ));
        prop_assert_eq!(all.len() as u64, once.len() as u64 * times * again);
        let length = |items: &[Item]| items.last().map_or(0, |item| item.at_ns);
        prop_assert_eq!(length(&all), length(&once) * times * again);
    }

    #[test]
    fn a_ramp_ends_exactly_at_its_value_and_never_leaves_its_range(
        from in 1_000..400_000_000_000u64,
        to in 1_000..400_000_000_000u64,
        ms in 1..100_000u64,
        steps in 1..200u64,
        every in proptest::option::of(1..1_000u64),
        exponential: bool,
    ) {
        prop_assume!(every.is_some() || ms / steps >= 1);
        let pace = every.map_or(format!("steps = {steps}"), |ms| format!("every = \"{ms} ms\""));
        let law = if exponential { "exponential" } else { "linear" };
        let items = items(&format!(
            "name = \"it\"\n[[step]]\nramp = {{ value = \"rate\", from = \"{from} bit/s\", \
             to = \"{to} bit/s\", over = \"{ms} ms\", {pace}, law = \"{law}\" }}\n"
        ));
        let rates = rates(&items);
        prop_assert_eq!(rates.len(), items.len());
        prop_assert_eq!((rates.first(), rates.last()), (Some(&from), Some(&to)));
        prop_assert!(rates.iter().all(|rate| (from.min(to)..=from.max(to)).contains(rate)));
        let ascends = rates.is_sorted();
        prop_assert!(ascends && from <= to || rates.is_sorted_by(|a, b| a >= b) && from >= to);
        prop_assert_eq!(items.last().map(|item| item.at_ns), Some(ms * MS));
    }

    #[test]
    fn a_ramp_begins_at_the_value_in_force(bytes in 40_000u64..1_000_000_000) {
        let text = format!(
            "name = \"it\"\n[[step]]\nforward.queue.limit = \"{}\"\n[[step]]\n\
             ramp = {{ value = \"queue.limit\", direction = \"forward\", to = \"20 kB\", over = \"2 s\", \
             steps = 2 }}\n",
            format_size(bytes)
        );
        let items = items(&text);
        let limit = |item: &Item| match &item.action {
            Action::Patch(parts) => parts.forward.clone().unwrap().pipe.queue.unwrap().limit_bytes,
            _ => 0,
        };
        let limits: Vec<_> = items.iter().map(limit).collect();
        // A fraction is cut on the way.
        prop_assert!(limits[1].abs_diff(bytes - (bytes - 20_000) / 2) <= 1);
        prop_assert_eq!((limits.len(), limits[0], limits[2]), (3, bytes, 20_000));
    }
}

#[test]
fn an_exponential_ramp_has_equal_ratios_and_a_linear_one_equal_differences() {
    let ramp = |law| {
        rates(&items(&format!(
            "name = \"it\"\n[[step]]\nramp = {{ value = \"rate\", from = \"1 Mbit/s\", to = \"16 Mbit/s\", \
             over = \"4 s\", steps = 4, law = \"{law}\" }}\n"
        )))
    };
    assert_eq!(ramp("linear"), [1_000_000, 4_750_000, 8_500_000, 12_250_000, 16_000_000]);
    assert_eq!(ramp("exponential"), [1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000]);
}

#[test]
fn a_ramp_from_nothing_says_what_there_is() {
    let text = "name = \"it\"\n[[step]]\nramp = { value = \"rate\", to = \"1 Mbit/s\", over = \"1 s\", steps = 2 }\n";
    let scenario = Scenario::from_toml(text).unwrap();
    let transparent = profile::Catalog::built_in().get("transparent").unwrap().as_proto().clone();
    for (link, expected) in [(None, "is none"), (Some(&transparent), "is unlimited")] {
        let mut timeline = Timeline::new(&scenario, link, Default::default());
        let error = timeline.next().unwrap().unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(timeline.next(), None);
    }
    let mut timeline = Timeline::new(&scenario, None, Default::default());
    let other = profile::Catalog::built_in().get("viasat2").unwrap().as_proto().clone();
    timeline.observe(Some(&other));
    assert_eq!(timeline.count(), 2);
}

#[test]
fn an_endless_one_goes_on() {
    let text = "name = \"it\"\n[[step]]\nafter = \"1 s\"\n[[step]]\nrepeat = \"forever\"\n\
                [[step.step]]\nboth.rate = \"1 Mbit/s\"\n[[step.step]]\nafter = \"10 s\"\n";
    let scenario = Scenario::from_toml(text).unwrap();
    assert_eq!((scenario.steps(), scenario.length_ns()), (None, None));
    let item = Timeline::new(&scenario, None, Default::default()).nth(1_000_001).unwrap().unwrap();
    assert_eq!((item.index, item.at_ns), (1_000_001, 1_000_000_000 + 500_000 * 10_000_000_000));
}
