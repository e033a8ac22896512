// SPDX-License-Identifier: Apache-2.0
//! The P4 suite: the pipeline in a software switch, frame by frame; the controller's session with it; and the
//! whole path, with the real programs and hosts.
//!
//! The switch is DPDK's SWX in `linkd-p4switch`. With `LINKEMU_BMV2` it is bmv2, which is in few
//! distributions. Without permission for namespaces each test is skipped, and the last lines give the
//! reason and the remedy.
#![allow(clippy::cast_precision_loss)]

mod suite;

use std::process::ExitCode;

use p4::target::Target;
use smoke::binaries::{Binaries, Lack, check_machine};
use smoke::cpus::Cpus;
use smoke::suite::Timing::{self, Patient, RealTime};
use smoke::suite::{Form, Suite};

/// A test, its needs, and the failures that a starved machine can cause.
type Test = (&'static str, Needs, Timing, fn(&Cpus) -> anyhow::Result<()>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Switch,
    Programs,
    /// Memory between switch and box.
    Memory,
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
    Patient Switch classify::mac_precedes_vlan_and_longest_prefix,
    Patient Switch shim::shim_has_bytes_that_box_reads,
    Patient Switch shim::random_frames_pass_unchanged_in_both_directions,
    Patient Switch shim::shim_forged_by_host_selects_no_client,
    Patient Switch shim::box_ports_are_no_host_ports,
    Patient Switch refuse::frames_without_client_are_counted_by_port_and_reason,
    Patient Switch refuse::closed_gate_drops_one_direction_of_client,
    Patient Switch refuse::clients_beyond_counters_are_counted_at_index_0,
    Patient Switch boxes::clients_of_two_boxes_are_separate,
    Patient Switch boxes::bucket_default_owner_and_box_move_by_one_entry,
    Patient Switch egress::frames_of_each_port_are_given_and_sent,
    Patient Switch hosts::known_host_gets_its_frames_and_unknown_are_flooded,
    Patient Switch hosts::switch_reports_unknown_hosts,
    Patient Switch mirror::frames_are_copied_as_given_and_nothing_else_changes,
    Patient Switch mark::ecn_capable_packet_is_marked_and_checksum_updated,
    Patient Switch mark::checksum_update_is_exact_at_carry_boundaries,
    Patient Switch mark::packet_without_ecn_field_is_not_marked,
    RealTime Switch measure::transit_times_are_counted_by_client_direction_and_bin,
    RealTime Switch measure::lateness_is_excess_over_planned_time,
    RealTime Switch measure::stamps_of_other_epoch_are_ignored,
    Patient Switch loss::independent_losses_have_probability_and_no_memory,
    Patient Switch loss::probability_is_exact_at_0_and_1,
    Patient Switch loss::burst_losses_have_geometric_runs_and_gaps,
    Patient Switch loss::clients_and_directions_have_separate_loss_states,
    Patient Switch loss::clients_with_equal_parameters_lose_independently,
    RealTime Switch session::empty_switch_gets_program_and_thousand_clients,
    RealTime Switch session::killed_switch_is_restored,
    RealTime Switch session::session_resumes_after_other_controller_leaves,
    RealTime Programs path::satellite_link_works_behind_switch,
    RealTime Memory path::switch_and_box_share_memory,
    RealTime Programs egress::frames_lost_at_egress_fail_the_certificate,
    RealTime Programs accounts::every_frame_is_counted_across_changes,
    RealTime Programs path::switch_killed_in_mid_run_resumes_link,
    RealTime Programs group::two_boxes_are_one_emulator,
};

/// Tests of the long form alone.
const LONG: &[Test] = tests! {
    RealTime Programs group::two_boxes_of_a_thousand_clients_are_one_emulator,
    RealTime Programs lateness::switch_and_dataplane_agree_on_lateness,
    RealTime Programs equivalence::link_with_switch_equals_link_without,
    RealTime Programs equivalence::many_packets_are_lost_alike_with_switch_and_without,
    Patient Switch speed::frames_per_second_of_processor_time,
    RealTime Programs speed::tcp_through_switch_and_box,
};

fn main() -> anyhow::Result<ExitCode> {
    let mut suite = Suite::new("p4")?.patient_at_a_time(2);
    let cpus = suite.cpus().clone();
    let short = TESTS.iter().map(|test| (Form::Short, *test));
    let long = LONG.iter().map(|test| (Form::Long, *test));
    for (form, (name, needs, timing, test)) in short.chain(long) {
        let cpus = cpus.clone();
        suite.add(name, form, timing, move || lacks(needs), move || test(&cpus));
    }
    Ok(suite.run())
}

fn lacks(needs: Needs) -> Result<(), Lack> {
    check_machine()?;
    Target::find()?;
    if needs != Needs::Switch {
        Binaries::find()?;
    }
    if needs == Needs::Memory && Target::is_bmv2() {
        return Err(Lack::Permission("bmv2 has no ports in memory".to_owned()));
    }
    Ok(())
}
