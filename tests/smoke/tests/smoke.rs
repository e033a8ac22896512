// SPDX-License-Identifier: Apache-2.0
//! The smoke suite: real Linux hosts, the real programs, one test after another.
//!
//! A test that this machine or user does not permit is skipped and says so, which is
//! not a failure. A program or tool that is missing is skipped too, unless `CI=true`,
//! where it is a failure. No test asserts how fast the machine is; what is asserted
//! are the figures of the emulated link, and a failure's message begins with what
//! the emulator says of itself, so that a machine that was too busy can be told from
//! a link that is wrong.
#![allow(clippy::cast_precision_loss)]

mod suite;

use std::process::ExitCode;

use libtest_mimic::{Completion, Failed, Trial};
use smoke::binaries::{Binaries, check_machine};
use smoke::cpus::Cpus;
use smoke::suite::{lacking, told};

/// A test, and whether it needs the programs under test.
type Test = (&'static str, Needs, fn(&Cpus) -> anyhow::Result<()>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Namespaces,
    Programs,
}

#[rustfmt::skip]
const TESTS: &[Test] = &[
    ("hosts::ping_and_udp_pass_a_plain_bridge", Needs::Namespaces, suite::hosts::ping_and_udp_pass_a_plain_bridge),
    ("hosts::a_download_passes_a_plain_bridge", Needs::Namespaces, suite::hosts::a_download_passes_a_plain_bridge),
    ("idle::ping_sees_the_measured_link", Needs::Programs, suite::idle::ping_sees_the_measured_link),
    ("overload::udp_is_delivered_at_the_rate_and_every_drop_is_the_queues", Needs::Programs, suite::overload::udp_is_delivered_at_the_rate_and_every_drop_is_the_queues),
    ("download::cubic_fills_the_link_in_order", Needs::Programs, suite::download::cubic_fills_the_link_in_order),
    ("download::bbr_fills_the_link_in_order", Needs::Programs, suite::download::bbr_fills_the_link_in_order),
    ("change::two_hundred_rates_in_a_minute_lose_nothing", Needs::Programs, suite::change::two_hundred_rates_in_a_minute_lose_nothing),
    ("api::a_python_client_needs_reflection_only", Needs::Programs, suite::api::a_python_client_needs_reflection_only),
    ("api::a_thousand_patches_a_second_for_a_minute", Needs::Programs, suite::api::a_thousand_patches_a_second_for_a_minute),
    ("capture::what_is_captured_is_what_the_accounts_count", Needs::Programs, suite::capture::what_is_captured_is_what_the_accounts_count),
    ("scenario::ten_steps_a_second_are_at_their_instants", Needs::Programs, suite::scenario::ten_steps_a_second_are_at_their_instants),
    ("clients::four_overloads_leave_a_fifth_client_alone", Needs::Programs, suite::clients::four_overloads_leave_a_fifth_client_alone),
    ("rules::hosts_of_a_prefix_are_one_client_and_a_mac_is_another", Needs::Programs, suite::rules::hosts_of_a_prefix_are_one_client_and_a_mac_is_another),
    ("rules::two_backlogged_clients_have_a_beam_by_their_weights", Needs::Programs, suite::rules::two_backlogged_clients_have_a_beam_by_their_weights),
    ("workers::two_workers_are_one_link", Needs::Programs, suite::workers::two_workers_are_one_link),
    ("model::outages_leave_cubic_its_rate_and_the_same_loss_per_packet_does_not", Needs::Programs, suite::model::outages_leave_cubic_its_rate_and_the_same_loss_per_packet_does_not),
    ("stages::a_rate_trace_is_what_the_receiver_sees", Needs::Programs, suite::stages::a_rate_trace_is_what_the_receiver_sees),
    ("stages::pings_see_the_quantiles_of_a_delay_that_varies", Needs::Programs, suite::stages::pings_see_the_quantiles_of_a_delay_that_varies),
    ("baseline::a_probe_s_log_gives_the_base_and_the_slots_back", Needs::Programs, suite::baseline::a_probe_s_log_gives_the_base_and_the_slots_back),
    ("refusal::a_bad_change_is_refused_and_nothing_is_applied", Needs::Programs, suite::refusal::a_bad_change_is_refused_and_nothing_is_applied),
    ("refusal::too_little_memory_is_refused_with_the_figures", Needs::Programs, suite::refusal::too_little_memory_is_refused_with_the_figures),
    ("refusal::a_dataplane_that_cannot_start_says_why", Needs::Programs, suite::refusal::a_dataplane_that_cannot_start_says_why),
    ("refusal::a_part_that_is_not_there_is_named", Needs::Programs, suite::refusal::a_part_that_is_not_there_is_named),
    ("hostile::frames_of_every_form_are_counted", Needs::Programs, suite::hostile::frames_of_every_form_are_counted),
    ("restart::killing_linkd_touches_no_packet", Needs::Programs, suite::restart::killing_linkd_touches_no_packet),
    ("restart::ten_kills_of_linkd_leave_a_download_alone", Needs::Programs, suite::restart::ten_kills_of_linkd_leave_a_download_alone),
    ("restart::a_dataplane_that_was_killed_comes_back_to_the_link", Needs::Programs, suite::restart::a_dataplane_that_was_killed_comes_back_to_the_link),
    ("certificate::a_run_that_the_emulator_carried_passes", Needs::Programs, suite::certificate::a_run_that_the_emulator_carried_passes),
    ("certificate::a_run_without_the_memory_that_it_needed_fails", Needs::Programs, suite::certificate::a_run_without_the_memory_that_it_needed_fails),
    ("certificate::a_run_in_which_a_worker_stood_still_fails", Needs::Programs, suite::certificate::a_run_in_which_a_worker_stood_still_fails),
    ("metrics::a_scrape_is_what_linkctl_shows_and_resets_nothing", Needs::Programs, suite::metrics::a_scrape_is_what_linkctl_shows_and_resets_nothing),
];

fn main() -> anyhow::Result<ExitCode> {
    let arguments = smoke::suite::arguments()?;
    let cpus = Cpus::available();
    cpus.keep_to_hosts();
    let trials = TESTS.iter().map(|&(name, needs, test)| {
        let cpus = cpus.clone();
        Trial::ignorable_test(name, move || run(name, needs, test, &cpus))
    });
    Ok(libtest_mimic::run(&arguments, trials.collect()).exit_code())
}

fn run(
    name: &str,
    needs: Needs,
    test: fn(&Cpus) -> anyhow::Result<()>,
    cpus: &Cpus,
) -> Result<Completion, Failed> {
    let programs = if needs == Needs::Programs { Binaries::find().map(drop) } else { Ok(()) };
    match check_machine().and(programs) {
        Err(lack) => {
            eprintln!("SKIPPED: {name}: {lack}");
            lacking(lack)
        }
        Ok(()) => told(test(cpus)),
    }
}
