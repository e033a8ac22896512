// SPDX-License-Identifier: Apache-2.0
//! The scenarios that are compiled in.

use crate::Scenario;

const BUILT_IN: [&str; 5] = [
    include_str!("../scenarios/beam-congestion.toml"),
    include_str!("../scenarios/handover.toml"),
    include_str!("../scenarios/link-flap.toml"),
    include_str!("../scenarios/lte-highway.toml"),
    include_str!("../scenarios/rain-fade.toml"),
];

/// All of them, in the order of their names.
pub fn built_in() -> Vec<Scenario> {
    // Each is read in the tests, so none is lost here.
    BUILT_IN.iter().filter_map(|text| Scenario::from_toml(text).ok()).collect()
}

/// The one of a name; else the name that is nearest.
///
/// # Errors
/// The nearest name, if one is near.
pub fn named(name: &str) -> Result<Scenario, Option<String>> {
    let all = built_in();
    if let Some(scenario) = all.iter().find(|scenario| scenario.name() == name) {
        return Ok(scenario.clone());
    }
    Err(profile::nearest(name, all.iter().map(Scenario::name)).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timeline;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[test]
    fn every_built_in_scenario_is_valid_names_its_source_and_expands() {
        let catalog = profile::Catalog::built_in();
        let mut names = Vec::new();
        for text in BUILT_IN {
            let scenario = Scenario::from_toml(text).unwrap_or_else(|found| panic!("{found}"));
            assert!(text.starts_with("# SPDX-License-Identifier: Apache-2.0\n"));
            assert!(!scenario.source().is_empty() && !scenario.description().is_empty());
            // Each says on which link it is.
            let link =
                |name: &&str| Some(((*name).to_owned(), catalog.get(name)?.as_proto().clone()));
            let profiles: BTreeMap<_, _> = scenario.profiles().iter().filter_map(link).collect();
            assert!(!profiles.is_empty(), "{}", scenario.name());
            let timeline = Timeline::new(&scenario, None, Arc::new(profiles));
            let items: Result<Vec<_>, _> = timeline.take(10_000).collect();
            let items = items.unwrap_or_else(|error| panic!("{}: {error}", scenario.name()));
            if let Some(steps) = scenario.steps() {
                assert_eq!(items.len() as u64, steps);
                assert_eq!(items.last().map(|item| item.at_ns), scenario.length_ns());
            }
            names.push(scenario.name().to_owned());
        }
        assert_eq!(names, ["beam-congestion", "handover", "link-flap", "lte-highway", "rain-fade"]);
        assert_eq!(built_in().len(), BUILT_IN.len());
        assert_eq!(named("rain-fad").map(drop), Err(Some("rain-fade".to_owned())));
    }
}
