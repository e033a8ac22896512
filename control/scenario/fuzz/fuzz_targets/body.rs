// SPDX-License-Identifier: Apache-2.0
//! What the fuzzer runs, and the test that plays its corpus.

use scenario::{Scenario, Timeline};

/// Steps that are looked at.
const LOOK: usize = 2_000;

/// Takes `data` as a scenario. None may panic; one that is valid keeps its limits, its
/// instants ascend, and it has as many steps as it says.
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
    for (i, item) in Timeline::new(&scenario, None, Default::default()).take(LOOK).enumerate() {
        // A ramp from a value that nobody knows here.
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
    if !failed && count < LOOK {
        assert_eq!(scenario.steps(), Some(count as u64));
        assert_eq!(scenario.length_ns(), Some(last));
    }
}
