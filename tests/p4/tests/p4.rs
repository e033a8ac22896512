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

/// Each test with its name, `file::test`.
macro_rules! tests {
    ($($timing:ident $needs:ident $file:ident::$test:ident),* $(,)?) => {
        &[$((
            concat!(stringify!($file), "::", stringify!($test)),
            Needs::$needs,
            $timing,
            suite::$file::$test,
        )),*]
    };
}

const TESTS: &[Test] = tests! {
    Patient Switch classify::the_longest_prefix_wins_and_before_it_the_vlan_and_before_that_the_mac,
    Patient Switch shim::a_shim_has_the_bytes_that_the_box_reads,
    Patient Switch shim::random_frames_pass_both_ways_byte_for_byte,
    Patient Switch shim::a_shim_that_a_host_forges_selects_nobody,
    Patient Switch shim::the_box_s_ports_are_no_hosts,
    Patient Switch refuse::nobody_s_frames_are_counted_by_port_and_reason,
    Patient Switch refuse::a_closed_gate_drops_a_client_s_frames_of_one_direction,
    Patient Switch refuse::clients_beyond_the_cells_are_counted_at_0,
    Patient Switch hosts::a_host_gets_its_frames_and_what_is_for_nobody_known_goes_to_its_side,
    Patient Switch hosts::the_switch_tells_of_hosts_that_it_does_not_know,
    Patient Switch mark::a_packet_that_can_take_a_mark_gets_it_with_its_checksum,
    Patient Switch mark::the_checksum_is_right_at_the_edges_of_its_arithmetic,
    Patient Switch mark::what_has_no_ecn_field_is_not_marked,
    RealTime Switch measure::times_away_are_counted_by_client_direction_and_bin,
    RealTime Switch measure::lateness_is_what_is_more_than_was_meant,
    RealTime Switch measure::only_stamps_of_this_epoch_are_believed,
    Patient Switch loss::independent_losses_have_their_probability_and_no_memory,
    Patient Switch loss::a_probability_is_exact_at_its_ends,
    Patient Switch loss::losses_in_bursts_have_geometric_runs_and_gaps,
    Patient Switch loss::each_client_and_direction_has_a_state_of_its_own,
    Patient Switch loss::clients_that_share_figures_lose_each_by_itself,
    RealTime Switch session::an_empty_switch_is_given_its_program_and_a_thousand_clients,
    RealTime Switch session::a_switch_that_was_killed_has_all_back,
    RealTime Switch session::another_controller_takes_it_and_goes,
    RealTime Programs path::a_satellite_link_behind_a_switch,
    RealTime Programs equivalence::the_same_link_with_and_without_the_switch,
    RealTime Programs accounts::no_frame_is_without_account_whatever_changes,
    RealTime Programs lateness::the_switch_sees_the_lateness_that_the_dataplane_confesses,
    RealTime Programs path::a_switch_that_is_killed_in_mid_run_comes_back_to_the_link,
};

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
