// SPDX-License-Identifier: Apache-2.0
//! The smoke suite: real Linux hosts and the real programs, one test at a time.
//!
//! Tests that this machine or user does not permit are skipped. Tests that lack a program or tool
//! are skipped, too, and fail if `CI=true`. No test asserts the speed of the machine; tests assert
//! the figures of the emulated link. A test that failed because the machine was busy is void, if
//! there is evidence for that (`smoke::suite`).
//!
//! Each behaviour has one short test. Long forms run with `--ignored` only.
#![allow(clippy::cast_precision_loss)]

mod suite;

use std::process::ExitCode;

use smoke::binaries::{Binaries, Lack, check_machine};
use smoke::cpus::Cpus;
use smoke::suite::Timing::{self, Patient, RealTime};
use smoke::suite::{Form, Suite};

/// A test, its needs, and the failures that a starved machine can cause.
type Test = (&'static str, Needs, Timing, Forms);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Namespaces,
    Programs,
}

/// Forms of a test. If there are two, the long one is named `…::long`.
#[derive(Clone, Copy)]
enum Forms {
    Once(fn(&Cpus) -> anyhow::Result<()>),
    Both(fn(&Cpus, Form) -> anyhow::Result<()>),
    OnlyLong(fn(&Cpus) -> anyhow::Result<()>),
}
use Forms::{Both, Once, OnlyLong};

/// Each test with its name, `file::test`.
macro_rules! tests {
    ($($forms:ident $timing:ident $needs:ident $file:ident::$test:ident),* $(,)?) => {
        &[$((
            concat!(stringify!($file), "::", stringify!($test)),
            Needs::$needs,
            $timing,
            $forms(suite::$file::$test),
        )),*]
    };
}

const TESTS: &[Test] = tests! {
    Once RealTime Namespaces hosts::ping_and_udp_pass_plain_bridge,
    Once RealTime Namespaces hosts::download_passes_plain_bridge,
    Both RealTime Programs idle::idle_pings_match_measured_link,
    Both RealTime Programs overload::udp_overload_is_delivered_at_link_rate_and_dropped_by_queue_only,
    Both RealTime Programs download::cubic_download_fills_link_in_order,
    Both RealTime Programs download::bbr_download_fills_link_in_order,
    Both RealTime Programs change::seven_rate_changes_a_second_lose_no_packet,
    Once Patient Programs api::python_client_needs_reflection_only,
    Both RealTime Programs api::thousand_patches_a_second_make_one_change_each,
    Once RealTime Programs capture::captured_packets_match_counters,
    Both RealTime Programs scenario::ten_steps_a_second_are_on_time,
    Both RealTime Programs clients::four_overloaded_clients_do_not_disturb_fifth,
    Once RealTime Programs rules::hosts_of_prefix_share_client_and_mac_is_separate,
    Once RealTime Programs rules::backlogged_clients_share_beam_by_weight,
    Once RealTime Programs links::two_leases_share_box_without_effect_on_each_other,
    Once RealTime Programs links::links_of_two_workers_conserve_packets,
    Once RealTime Programs links::flow_classes_by_port_and_dscp_have_their_own_delay,
    Once Patient Programs links::links_return_after_restarts,
    Once RealTime Programs pairs::each_pair_has_its_own_link_and_hosts,
    Once RealTime Programs pairs::two_workers_keep_pairs_apart,
    Once RealTime Programs pairs::hairpin_pair_exchanges_vlans,
    Once RealTime Programs chain::access_links_share_backbone_by_weight,
    Once RealTime Programs chain::backlogged_access_links_get_what_cross_traffic_leaves,
    Both RealTime Programs multipath::mptcp_adds_up_links_and_survives_one,
    Once RealTime Programs handover::scenario_swaps_delays_of_two_links_at_one_instant,
    Once RealTime Programs workers::two_workers_emulate_one_link,
    OnlyLong RealTime Programs throughput::tcp_download_keeps_share_of_bridge_throughput,
    Both RealTime Programs rest::adaptive_worker_sleeps_and_is_on_time,
    Once RealTime Programs model::outages_and_losses_match_core,
    OnlyLong RealTime Programs model::outages_slow_cubic_less_than_equal_loss_per_packet,
    Once RealTime Programs mtu::tcp_stalls_without_messages_and_adapts_to_them,
    Both RealTime Programs stages::received_rate_follows_rate_trace,
    Both RealTime Programs stages::pings_match_quantiles_of_varying_delay,
    Once RealTime Programs stages::long_trace_is_played_step_by_step,
    Once RealTime Programs stages::terminal_asks_for_capacity_and_has_it_a_round_trip_later,
    Both RealTime Programs baseline::fit_of_probe_log_recovers_base_and_slot,
    Once Patient Programs refusal::bad_change_is_refused_and_not_applied,
    Once Patient Programs refusal::too_little_memory_is_refused_with_figures,
    Once Patient Programs refusal::dataplane_that_cannot_start_reports_reason,
    Once Patient Programs refusal::missing_process_is_named,
    Once RealTime Programs hostile::frames_of_any_form_are_counted,
    Once RealTime Programs restart::second_linkd_is_refused_while_first_runs,
    Once RealTime Programs restart::killed_linkd_loses_no_packet,
    Both RealTime Programs restart::repeated_kills_of_linkd_do_not_disturb_download,
    Once Patient Programs restart::killed_dataplane_resumes_link,
    Once RealTime Programs ports::frames_above_lowered_mtu_are_counted,
    Once RealTime Programs ports::frames_lost_by_interface_are_counted,
    Once RealTime Programs ports::carrier_loss_between_two_polls_is_reported,
    Once RealTime Programs ports::dataplane_ends_with_reason_when_interface_is_removed,
    Once RealTime Programs ports::stalled_worker_is_reported_and_resumes,
    Once RealTime Programs certificate::run_without_emulator_fault_passes,
    Once RealTime Programs certificate::run_with_too_little_memory_fails,
    Once RealTime Programs certificate::run_with_stalled_worker_fails,
    Once RealTime Programs certificate::run_with_client_without_slot_fails,
    Once RealTime Programs metrics::scrape_matches_linkctl_and_resets_nothing,
    Once RealTime Programs pages::commands_run_as_documented,
    Once RealTime Programs tutorial::commands_run_as_documented,
    Once Patient Programs tutorial::failed_start_is_rolled_back,
    Once RealTime Programs run::ordinary_user_pings_through_satellite_link,
    Once Patient Programs run::exit_status_is_that_of_command,
    Once Patient Programs run::capture_has_fates_of_packets_in_flight_at_end,
    Once Patient Programs run::killed_dataplane_fails_run_and_certificate,
    Once RealTime Programs run::nested_runs_add_their_delays,
    Once RealTime Programs run::killed_run_leaves_nothing,
    Once Patient Programs run::killed_enter_process_leaves_nothing,
    Once Patient Programs run::hosts_have_tcp_buffers_for_link,
    Once Patient Programs run::multicast_from_far_host_is_of_command,
    Once Patient Programs run::command_sees_its_control_groups,
    Both RealTime Programs run::certificates_of_simultaneous_runs_are_true,
    Once RealTime Programs void::stopped_emulator_on_idle_machine_fails,
};

fn main() -> anyhow::Result<ExitCode> {
    let mut suite = Suite::new("smoke")?;
    let cpus = suite.cpus().clone();
    cpus.keep_to_hosts();
    for &(name, needs, timing, forms) in TESTS {
        let needs = move || lacks(needs);
        let cpus = cpus.clone();
        match forms {
            Once(test) => suite.add(name, Form::Short, timing, needs, move || test(&cpus)),
            OnlyLong(test) => suite.add(name, Form::Long, timing, needs, move || test(&cpus)),
            Both(test) => {
                let again = cpus.clone();
                suite.add(name, Form::Short, timing, needs, move || test(&again, Form::Short));
                let name = format!("{name}::long");
                suite.add(name, Form::Long, timing, needs, move || test(&cpus, Form::Long));
            }
        }
    }
    Ok(suite.run())
}

fn lacks(needs: Needs) -> Result<(), Lack> {
    let programs = if needs == Needs::Programs { Binaries::find().map(drop) } else { Ok(()) };
    check_machine().and(programs)
}
