// SPDX-License-Identifier: Apache-2.0
//! The P4 suite: the pipeline in bmv2, frame by frame; the controller's session with it; and
//! the whole path, with the real programs and hosts.
//!
//! bmv2 is in few distributions. Where it is missing, or namespaces are not permitted, nothing
//! fails: each test is skipped, and the last lines say what was skipped, why, and how to get it.
#![allow(clippy::cast_precision_loss)]

mod suite;

use std::process::ExitCode;

use p4::bmv2;
use smoke::binaries::{Binaries, Lack, check_machine};
use smoke::cpus::Cpus;
use smoke::suite::Timing::{self, Patient, RealTime};
use smoke::suite::{Form, Suite};

/// A test, what it needs, and which of its failures a starved machine can cause.
type Test = (&'static str, Needs, Timing, fn(&Cpus) -> anyhow::Result<()>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Switch,
    Programs,
}

#[rustfmt::skip]
const TESTS: &[Test] = &[
    ("classify::the_longest_prefix_wins_and_before_it_the_vlan_and_before_that_the_mac", Needs::Switch, Patient, suite::classify::the_longest_prefix_wins_and_before_it_the_vlan_and_before_that_the_mac),
    ("shim::a_shim_has_the_bytes_that_the_box_reads", Needs::Switch, Patient, suite::shim::a_shim_has_the_bytes_that_the_box_reads),
    ("shim::random_frames_pass_both_ways_byte_for_byte", Needs::Switch, Patient, suite::shim::random_frames_pass_both_ways_byte_for_byte),
    ("shim::a_shim_that_a_host_forges_selects_nobody", Needs::Switch, Patient, suite::shim::a_shim_that_a_host_forges_selects_nobody),
    ("shim::the_box_s_ports_are_no_hosts", Needs::Switch, Patient, suite::shim::the_box_s_ports_are_no_hosts),
    ("refuse::nobody_s_frames_are_counted_by_port_and_reason", Needs::Switch, Patient, suite::refuse::nobody_s_frames_are_counted_by_port_and_reason),
    ("refuse::a_closed_gate_drops_a_client_s_frames_of_one_direction", Needs::Switch, Patient, suite::refuse::a_closed_gate_drops_a_client_s_frames_of_one_direction),
    ("refuse::clients_beyond_the_cells_are_counted_at_0", Needs::Switch, Patient, suite::refuse::clients_beyond_the_cells_are_counted_at_0),
    ("hosts::a_host_gets_its_frames_and_what_is_for_nobody_known_goes_to_its_side", Needs::Switch, Patient, suite::hosts::a_host_gets_its_frames_and_what_is_for_nobody_known_goes_to_its_side),
    ("hosts::the_switch_tells_of_hosts_that_it_does_not_know", Needs::Switch, Patient, suite::hosts::the_switch_tells_of_hosts_that_it_does_not_know),
    ("mark::a_packet_that_can_take_a_mark_gets_it_with_its_checksum", Needs::Switch, Patient, suite::mark::a_packet_that_can_take_a_mark_gets_it_with_its_checksum),
    ("mark::the_checksum_is_right_at_the_edges_of_its_arithmetic", Needs::Switch, Patient, suite::mark::the_checksum_is_right_at_the_edges_of_its_arithmetic),
    ("mark::what_has_no_ecn_field_is_not_marked", Needs::Switch, Patient, suite::mark::what_has_no_ecn_field_is_not_marked),
    ("measure::times_away_are_counted_by_client_direction_and_bin", Needs::Switch, RealTime, suite::measure::times_away_are_counted_by_client_direction_and_bin),
    ("measure::lateness_is_what_is_more_than_was_meant", Needs::Switch, RealTime, suite::measure::lateness_is_what_is_more_than_was_meant),
    ("measure::only_stamps_of_this_epoch_are_believed", Needs::Switch, RealTime, suite::measure::only_stamps_of_this_epoch_are_believed),
    ("loss::independent_losses_have_their_probability_and_no_memory", Needs::Switch, Patient, suite::loss::independent_losses_have_their_probability_and_no_memory),
    ("loss::a_probability_is_exact_at_its_ends", Needs::Switch, Patient, suite::loss::a_probability_is_exact_at_its_ends),
    ("loss::losses_in_bursts_have_geometric_runs_and_gaps", Needs::Switch, Patient, suite::loss::losses_in_bursts_have_geometric_runs_and_gaps),
    ("loss::each_client_and_direction_has_a_state_of_its_own", Needs::Switch, Patient, suite::loss::each_client_and_direction_has_a_state_of_its_own),
    ("loss::clients_that_share_figures_lose_each_by_itself", Needs::Switch, Patient, suite::loss::clients_that_share_figures_lose_each_by_itself),
    ("session::an_empty_switch_is_given_its_program_and_a_thousand_clients", Needs::Switch, RealTime, suite::session::an_empty_switch_is_given_its_program_and_a_thousand_clients),
    ("session::a_switch_that_was_killed_has_all_back", Needs::Switch, RealTime, suite::session::a_switch_that_was_killed_has_all_back),
    ("session::another_controller_takes_it_and_goes", Needs::Switch, RealTime, suite::session::another_controller_takes_it_and_goes),
    ("path::a_satellite_link_behind_a_switch", Needs::Programs, RealTime, suite::path::a_satellite_link_behind_a_switch),
    ("path::the_same_link_with_and_without_the_switch", Needs::Programs, RealTime, suite::path::the_same_link_with_and_without_the_switch),
    ("path::no_frame_is_without_account_whatever_changes", Needs::Programs, RealTime, suite::path::no_frame_is_without_account_whatever_changes),
    ("path::the_switch_sees_the_lateness_that_the_dataplane_confesses", Needs::Programs, RealTime, suite::path::the_switch_sees_the_lateness_that_the_dataplane_confesses),
    ("path::a_switch_that_is_killed_in_mid_run_comes_back_to_the_link", Needs::Programs, RealTime, suite::path::a_switch_that_is_killed_in_mid_run_comes_back_to_the_link),
];

fn main() -> anyhow::Result<ExitCode> {
    let mut suite = Suite::new("p4")?;
    let cpus = suite.cpus().clone();
    for &(name, needs, timing, test) in TESTS {
        let cpus = cpus.clone();
        suite.add(name, Form::Short, timing, move || lacks(needs), move || test(&cpus));
    }
    Ok(suite.run())
}

fn lacks(needs: Needs) -> Result<(), Lack> {
    check_machine()?;
    bmv2::find()?;
    if needs == Needs::Programs {
        Binaries::find()?;
    }
    Ok(())
}
