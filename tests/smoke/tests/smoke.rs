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
    Once RealTime Namespaces hosts::ping_and_udp_pass_a_plain_bridge,
    Once RealTime Namespaces hosts::a_download_passes_a_plain_bridge,
    Both RealTime Programs idle::ping_sees_the_measured_link,
    Both RealTime Programs overload::udp_is_delivered_at_the_rate_and_every_drop_is_the_queues,
    Both RealTime Programs download::cubic_fills_the_link_in_order,
    Both RealTime Programs download::bbr_fills_the_link_in_order,
    Both RealTime Programs change::seven_rates_a_second_lose_nothing,
    Once Patient Programs api::a_python_client_needs_reflection_only,
    Both RealTime Programs api::a_thousand_patches_a_second_each_make_one_change,
    Once RealTime Programs capture::what_is_captured_is_what_the_accounts_count,
    Both RealTime Programs scenario::ten_steps_a_second_are_at_their_instants,
    Both RealTime Programs clients::four_overloads_leave_a_fifth_client_alone,
    Once RealTime Programs rules::hosts_of_a_prefix_are_one_client_and_a_mac_is_another,
    Once RealTime Programs rules::two_backlogged_clients_have_a_beam_by_their_weights,
    Once RealTime Programs workers::two_workers_are_one_link,
    Once RealTime Programs model::outages_and_losses_are_those_that_the_core_draws,
    OnlyLong RealTime Programs model::outages_leave_cubic_its_rate_and_the_same_loss_per_packet_does_not,
    Both RealTime Programs stages::a_rate_trace_is_what_the_receiver_sees,
    Both RealTime Programs stages::pings_see_the_quantiles_of_a_delay_that_varies,
    Both RealTime Programs baseline::a_probe_s_log_gives_the_base_and_the_slots_back,
    Once Patient Programs refusal::a_bad_change_is_refused_and_nothing_is_applied,
    Once Patient Programs refusal::too_little_memory_is_refused_with_the_figures,
    Once Patient Programs refusal::a_dataplane_that_cannot_start_says_why,
    Once Patient Programs refusal::a_part_that_is_not_there_is_named,
    Once RealTime Programs hostile::frames_of_every_form_are_counted,
    Once RealTime Programs restart::a_second_linkd_changes_nothing_while_the_first_is_there,
    Once RealTime Programs restart::killing_linkd_touches_no_packet,
    Both RealTime Programs restart::kills_of_linkd_leave_a_download_alone,
    Once Patient Programs restart::a_dataplane_that_was_killed_comes_back_to_the_link,
    Once RealTime Programs ports::frames_beyond_an_mtu_that_was_lowered_are_counted,
    Once RealTime Programs ports::frames_that_the_interface_loses_are_counted,
    Once RealTime Programs ports::a_link_that_was_lost_between_two_readings_is_told,
    Once RealTime Programs ports::a_dataplane_whose_interface_was_removed_says_so_and_ends,
    Once RealTime Programs ports::a_worker_that_stood_still_is_told_and_asked_again,
    Once RealTime Programs certificate::a_run_that_the_emulator_carried_passes,
    Once RealTime Programs certificate::a_run_without_the_memory_that_it_needed_fails,
    Once RealTime Programs certificate::a_run_in_which_a_worker_stood_still_fails,
    Once RealTime Programs certificate::a_run_in_which_a_client_found_no_place_fails,
    Once RealTime Programs metrics::a_scrape_is_what_linkctl_shows_and_resets_nothing,
    Once RealTime Programs tutorial::commands_run_as_documented,
    Once Patient Programs tutorial::failed_start_is_rolled_back,
    Once RealTime Programs void::emulator_stopped_on_an_idle_machine_fails,
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
