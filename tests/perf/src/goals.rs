// SPDX-License-Identifier: Apache-2.0
//! The goals, and whether a run reaches them.

use crate::case::Case;
use crate::cost::Cost;
use crate::results::{Goal, Results};
use crate::suite;

#[must_use]
pub fn judge(results: &Results) -> Vec<Goal> {
    let cost = |case: Case| results.costs.iter().find(|c| c.case == case.to_string());
    let over = |case| cost(case).map(|c| c.over_ns.median);
    let memory = |case: Case| {
        let found = results.memory.iter().find(|m| m.case == case.to_string());
        // The kernel's account and the engine's own: whichever is more.
        found.map(|m| m.resident.max(m.accounted))
    };
    let ratio = |of: fn(&Cost) -> f64| {
        cost(suite::many_clients()).zip(cost(suite::smallest())).map(|(n, one)| of(n) / of(one))
    };
    let mut goals = vec![
        Goal::at_most("64 B, full, 300 ms: over the ceiling", over(suite::smallest()), 55.0, " ns"),
        Goal::at_most(
            "1518 B, full, 300 ms: over the ceiling",
            over(suite::full_frames()),
            70.0,
            " ns",
        ),
        Goal::at_least(
            "64 B, full, 300 ms: packets a second of CPU",
            cost(suite::smallest()).map(|c| c.mpps),
            14.88,
            " M",
        ),
        Goal::at_most("memory a byte held, 64 B", memory(suite::smallest()), 1.6, ""),
        Goal::at_most("memory a byte held, IMIX", memory(suite::mix()), 2.0, ""),
        Goal::at_most(
            "10,000 clients against 1: cost of a packet",
            ratio(|c| c.ours_ns.median),
            1.2,
            " ×",
        ),
        Goal::at_most(
            "lateness: p99 over the bare loop's",
            results.lateness.as_ref().and_then(|l| l.p99_over_ns).map(|ns| ns.median / 1e3),
            1.0,
            " µs",
        ),
    ];
    if let Some(ratio) = ratio(|c| c.over_ns.median) {
        for goal in goals.iter_mut().filter(|g| g.name.starts_with("10,000")) {
            goal.measured.push_str(&format!(" ({ratio:.2} × over the ceiling)"));
        }
    }
    for pause in &results.changes {
        let name = format!("change under load, {} clients: worst turn", pause.clients);
        goals.push(Goal::at_most(&name, Some(pause.worst_us), 50.0, " µs"));
        let name = format!("change under load, {} clients: frames lost", pause.clients);
        let lost = if pause.conserved { pause.lost as f64 } else { f64::INFINITY };
        goals.push(Goal::at_most(&name, Some(lost), 0.0, ""));
    }
    goals.push(Goal::at_least(
        "4 workers: throughput by CPU time, of one's",
        results.scaling.as_ref().map(|s| s.four_to_one.median),
        3.6,
        " ×",
    ));
    goals
}

/// Whether no goal that was measured is missed, and no case measured something else.
#[must_use]
pub fn all_hold(results: &Results) -> bool {
    results.goals.iter().all(|g| g.holds != Some(false)) && sound(results)
}

/// Whether every case measured what it says.
#[must_use]
pub fn sound(results: &Results) -> bool {
    results.costs.iter().all(|c| c.faults.is_empty())
        && results.keeping.iter().all(|k| k.faults.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goal_at_its_bound_holds() {
        assert_eq!(Goal::at_most("x", Some(55.0), 55.0, " ns").holds, Some(true));
        assert_eq!(Goal::at_most("x", Some(55.1), 55.0, " ns").holds, Some(false));
        let goal = Goal::at_least("x", Some(3.5), 3.6, " ×");
        assert_eq!((goal.holds, goal.bound.as_str()), (Some(false), "≥ 3.6 ×"));
    }

    #[test]
    fn goal_without_measurement_neither_holds_nor_fails() {
        let goals = judge(&Results::default());
        assert!(goals.iter().all(|g| g.holds.is_none() && g.measured.is_empty()));
        let results = Results { goals, ..Results::default() };
        assert!(all_hold(&results));
    }

    #[test]
    fn case_with_wrong_conditions_fails_run() {
        let mut results = Results::default();
        results.costs.push(Cost { faults: vec!["x".to_owned()], ..Cost::default() });
        assert!(!sound(&results) && !all_hold(&results));
    }
}
