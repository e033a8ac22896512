// SPDX-License-Identifier: Apache-2.0
//! The smoke suite: real Linux hosts, the real programs, one test after another.
//!
//! A test that this machine or user does not permit is skipped and says so, which is
//! not a failure. A program or tool that is missing is skipped too, unless `CI=true`,
//! where it is a failure. No test asserts how fast the machine is; what is asserted
//! are the figures of the emulated link. A test that failed because the machine was
//! busy with something else is void, if there is evidence of that (`smoke::suite`).
//!
//! Each behaviour has one short test. Long forms are ignored unless asked for by
//! `--ignored`.
#![allow(clippy::cast_precision_loss)]

mod suite;

use std::process::ExitCode;

use smoke::binaries::{Binaries, Lack, check_machine};
use smoke::cpus::Cpus;
use smoke::suite::Timing::{self, Patient, RealTime};
use smoke::suite::{Form, Suite};

/// A test, what it needs, and which of its failures a starved machine can cause.
type Test = (&'static str, Needs, Timing, Forms);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Namespaces,
    Programs,
}

/// In which forms a test exists. The long form of a test that has both is named `…::long`.
#[derive(Clone, Copy)]
enum Forms {
    Once(fn(&Cpus) -> anyhow::Result<()>),
    Both(fn(&Cpus, Form) -> anyhow::Result<()>),
    OnlyLong(fn(&Cpus) -> anyhow::Result<()>),
}
use Forms::{Both, Once, OnlyLong};

#[rustfmt::skip]
const TESTS: &[Test] = &[
    ("hosts::ping_and_udp_pass_a_plain_bridge", Needs::Namespaces, RealTime, Once(suite::hosts::ping_and_udp_pass_a_plain_bridge)),
    ("hosts::a_download_passes_a_plain_bridge", Needs::Namespaces, RealTime, Once(suite::hosts::a_download_passes_a_plain_bridge)),
    ("idle::ping_sees_the_measured_link", Needs::Programs, RealTime, Both(suite::idle::ping_sees_the_measured_link)),
    ("overload::udp_is_delivered_at_the_rate_and_every_drop_is_the_queues", Needs::Programs, RealTime, Both(suite::overload::udp_is_delivered_at_the_rate_and_every_drop_is_the_queues)),
    ("download::cubic_fills_the_link_in_order", Needs::Programs, RealTime, Both(suite::download::cubic_fills_the_link_in_order)),
    ("download::bbr_fills_the_link_in_order", Needs::Programs, RealTime, Both(suite::download::bbr_fills_the_link_in_order)),
    ("change::seven_rates_a_second_lose_nothing", Needs::Programs, RealTime, Both(suite::change::seven_rates_a_second_lose_nothing)),
    ("api::a_python_client_needs_reflection_only", Needs::Programs, Patient, Once(suite::api::a_python_client_needs_reflection_only)),
    ("api::a_thousand_patches_a_second_each_make_one_change", Needs::Programs, RealTime, Both(suite::api::a_thousand_patches_a_second_each_make_one_change)),
    ("capture::what_is_captured_is_what_the_accounts_count", Needs::Programs, RealTime, Once(suite::capture::what_is_captured_is_what_the_accounts_count)),
    ("scenario::ten_steps_a_second_are_at_their_instants", Needs::Programs, RealTime, Both(suite::scenario::ten_steps_a_second_are_at_their_instants)),
    ("clients::four_overloads_leave_a_fifth_client_alone", Needs::Programs, RealTime, Both(suite::clients::four_overloads_leave_a_fifth_client_alone)),
    ("rules::hosts_of_a_prefix_are_one_client_and_a_mac_is_another", Needs::Programs, RealTime, Once(suite::rules::hosts_of_a_prefix_are_one_client_and_a_mac_is_another)),
    ("rules::two_backlogged_clients_have_a_beam_by_their_weights", Needs::Programs, RealTime, Once(suite::rules::two_backlogged_clients_have_a_beam_by_their_weights)),
    ("workers::two_workers_are_one_link", Needs::Programs, RealTime, Once(suite::workers::two_workers_are_one_link)),
    ("model::outages_and_losses_are_those_that_the_core_draws", Needs::Programs, RealTime, Once(suite::model::outages_and_losses_are_those_that_the_core_draws)),
    ("model::outages_leave_cubic_its_rate_and_the_same_loss_per_packet_does_not", Needs::Programs, RealTime, OnlyLong(suite::model::outages_leave_cubic_its_rate_and_the_same_loss_per_packet_does_not)),
    ("stages::a_rate_trace_is_what_the_receiver_sees", Needs::Programs, RealTime, Both(suite::stages::a_rate_trace_is_what_the_receiver_sees)),
    ("stages::pings_see_the_quantiles_of_a_delay_that_varies", Needs::Programs, RealTime, Both(suite::stages::pings_see_the_quantiles_of_a_delay_that_varies)),
    ("baseline::a_probe_s_log_gives_the_base_and_the_slots_back", Needs::Programs, RealTime, Both(suite::baseline::a_probe_s_log_gives_the_base_and_the_slots_back)),
    ("refusal::a_bad_change_is_refused_and_nothing_is_applied", Needs::Programs, Patient, Once(suite::refusal::a_bad_change_is_refused_and_nothing_is_applied)),
    ("refusal::too_little_memory_is_refused_with_the_figures", Needs::Programs, Patient, Once(suite::refusal::too_little_memory_is_refused_with_the_figures)),
    ("refusal::a_dataplane_that_cannot_start_says_why", Needs::Programs, Patient, Once(suite::refusal::a_dataplane_that_cannot_start_says_why)),
    ("refusal::a_part_that_is_not_there_is_named", Needs::Programs, Patient, Once(suite::refusal::a_part_that_is_not_there_is_named)),
    ("hostile::frames_of_every_form_are_counted", Needs::Programs, RealTime, Once(suite::hostile::frames_of_every_form_are_counted)),
    ("restart::a_second_linkd_changes_nothing_while_the_first_is_there", Needs::Programs, RealTime, Once(suite::restart::a_second_linkd_changes_nothing_while_the_first_is_there)),
    ("restart::killing_linkd_touches_no_packet", Needs::Programs, RealTime, Once(suite::restart::killing_linkd_touches_no_packet)),
    ("restart::kills_of_linkd_leave_a_download_alone", Needs::Programs, RealTime, Both(suite::restart::kills_of_linkd_leave_a_download_alone)),
    ("restart::a_dataplane_that_was_killed_comes_back_to_the_link", Needs::Programs, Patient, Once(suite::restart::a_dataplane_that_was_killed_comes_back_to_the_link)),
    ("ports::frames_beyond_an_mtu_that_was_lowered_are_counted", Needs::Programs, RealTime, Once(suite::ports::frames_beyond_an_mtu_that_was_lowered_are_counted)),
    ("ports::frames_that_the_interface_loses_are_counted", Needs::Programs, RealTime, Once(suite::ports::frames_that_the_interface_loses_are_counted)),
    ("ports::a_link_that_was_lost_between_two_readings_is_told", Needs::Programs, RealTime, Once(suite::ports::a_link_that_was_lost_between_two_readings_is_told)),
    ("ports::a_dataplane_whose_interface_was_removed_says_so_and_ends", Needs::Programs, RealTime, Once(suite::ports::a_dataplane_whose_interface_was_removed_says_so_and_ends)),
    ("ports::a_worker_that_stood_still_is_told_and_asked_again", Needs::Programs, RealTime, Once(suite::ports::a_worker_that_stood_still_is_told_and_asked_again)),
    ("certificate::a_run_that_the_emulator_carried_passes", Needs::Programs, RealTime, Once(suite::certificate::a_run_that_the_emulator_carried_passes)),
    ("certificate::a_run_without_the_memory_that_it_needed_fails", Needs::Programs, RealTime, Once(suite::certificate::a_run_without_the_memory_that_it_needed_fails)),
    ("certificate::a_run_in_which_a_worker_stood_still_fails", Needs::Programs, RealTime, Once(suite::certificate::a_run_in_which_a_worker_stood_still_fails)),
    ("certificate::a_run_in_which_a_client_found_no_place_fails", Needs::Programs, RealTime, Once(suite::certificate::a_run_in_which_a_client_found_no_place_fails)),
    ("metrics::a_scrape_is_what_linkctl_shows_and_resets_nothing", Needs::Programs, RealTime, Once(suite::metrics::a_scrape_is_what_linkctl_shows_and_resets_nothing)),
    ("tutorial::commands_run_as_documented", Needs::Programs, RealTime, Once(suite::tutorial::commands_run_as_documented)),
    ("tutorial::failed_start_is_rolled_back", Needs::Programs, Patient, Once(suite::tutorial::failed_start_is_rolled_back)),
    ("void::emulator_stopped_on_an_idle_machine_fails", Needs::Programs, RealTime, Once(suite::void::emulator_stopped_on_an_idle_machine_fails)),
];

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
