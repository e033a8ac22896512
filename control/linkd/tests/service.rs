// SPDX-License-Identifier: Apache-2.0
//! Effects of linkemu.v1 on the dataplane, and its answers.

use crate::common::{Lab, mask, queue, rate};
use pb::Direction::{Forward, Return, Unspecified};
use pb::certificates_client::CertificatesClient;
use proto::linkemu::v1 as pb;
use std::time::Duration;
use tonic::Code;
use tonic_types::StatusExt;

fn forward(profile: &pb::Profile) -> &pb::Pipe {
    profile.forward_pipe.as_ref().unwrap()
}

fn back(profile: &pb::Profile) -> &pb::Pipe {
    profile.return_pipe.as_ref().unwrap()
}

fn fields(status: &tonic::Status) -> Vec<String> {
    let request = status.get_details_bad_request().unwrap();
    request.field_violations.into_iter().map(|violation| violation.field).collect()
}

#[tokio::test]
async fn a_profile_is_compiled_and_restarts_the_random_processes() {
    let mut lab = Lab::new();
    let change = lab.set("viasat2").await.unwrap();
    assert_eq!(change.applied.unwrap().generation, 1);
    assert_eq!(change.profile.unwrap().name, "viasat2");
    assert_eq!(change.seed, 1);
    let apply = lab.fake.state().applies[0].clone();
    assert!(apply.restart);
    assert_eq!(apply.plan.profile.as_ref(), Some(&lab.in_force()));
}

#[tokio::test]
async fn the_seed_stays_until_another_is_given() {
    let mut lab = Lab::new();
    let profile = Some(pb::set_profile_request::Profile::Name("viasat2".into()));
    let request = pb::SetProfileRequest { profile, seed: Some(77), ..Default::default() };
    assert_eq!(lab.client.set_profile(request).await.unwrap().into_inner().seed, 77);
    assert_eq!(lab.set("geo-600").await.unwrap().seed, 77);
    assert_eq!(lab.patch(Unspecified, &["rate_bps"], rate(50_000)).await.unwrap().seed, 77);
}

#[tokio::test]
async fn an_unknown_profile_names_the_nearest() {
    let mut lab = Lab::new();
    let status = lab.set("viasat").await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(status.message(), "no profile is named \"viasat\": the nearest is \"viasat2\"");
    assert!(lab.fake.state().applies.is_empty());
    let status = lab.set(&"x".repeat(500_000)).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
}

#[tokio::test]
async fn an_inline_profile_is_checked_whole() {
    let mut lab = Lab::new();
    let mut profile = profile::Catalog::built_in().get("viasat2").unwrap().as_proto().clone();
    profile.name = "mine".into();
    let set = |profile: &pb::Profile| pb::SetProfileRequest {
        profile: Some(pb::set_profile_request::Profile::Inline(profile.clone())),
        ..Default::default()
    };
    lab.client.set_profile(set(&profile)).await.unwrap();
    assert_eq!(lab.in_force(), profile);
    profile.forward_pipe.as_mut().unwrap().rate_bps = Some(1);
    profile.return_pipe.as_mut().unwrap().delay = None;
    let status = lab.client.set_profile(set(&profile)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(fields(&status), ["forward.rate", "return.delay"]);
    assert!(status.message().contains("forward.rate: 1 bit/s is below 1 kbit/s"));
    assert_eq!(lab.fake.state().generation, 1);
    let status = lab.client.set_profile(pb::SetProfileRequest::default()).await.unwrap_err();
    assert_eq!(fields(&status), ["profile"]);
}

#[tokio::test]
async fn another_profile_may_not_take_a_known_name() {
    let mut lab = Lab::new();
    let mut profile = profile::Catalog::built_in().get("viasat2-pings").unwrap().as_proto().clone();
    let set = |profile: &pb::Profile| pb::SetProfileRequest {
        profile: Some(pb::set_profile_request::Profile::Inline(profile.clone())),
        ..Default::default()
    };
    lab.client.set_profile(set(&profile)).await.unwrap();
    profile.forward_pipe.as_mut().unwrap().rate_bps = None;
    let status = lab.client.set_profile(set(&profile)).await.unwrap_err();
    assert_eq!(fields(&status), ["name"]);
    profile.name.push('*');
    lab.client.set_profile(set(&profile)).await.unwrap();
}

#[tokio::test]
async fn all_that_is_wrong_with_a_patch_is_told_at_once() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    let mask =
        Some(prost_types::FieldMask { paths: vec!["rate_bsp".into(), "delay.base_ns".into()] });
    let request = pb::PatchLinkRequest {
        direction: 9,
        pipe: Some(pb::Pipe::default()),
        mask: mask.clone(),
        ..Default::default()
    };
    let status = lab.client.patch_link(request.clone()).await.unwrap_err();
    assert_eq!(fields(&status), ["direction", "mask.paths[0]", "pipe.delay"]);
    let request = pb::PatchLinkRequest { pipe: None, direction: 0, ..request };
    let status = lab.client.patch_link(request).await.unwrap_err();
    assert_eq!(fields(&status), ["pipe", "mask.paths[0]"]);
}

#[tokio::test]
async fn a_patch_changes_what_its_mask_names() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    let before = lab.in_force();
    let change = lab.patch(Forward, &["rate_bps"], rate(72_000_000)).await.unwrap();
    assert_eq!(change.applied.unwrap().generation, 2);
    let mut expected = before.clone();
    expected.name = "viasat2*".into();
    expected.forward_pipe.as_mut().unwrap().rate_bps = Some(72_000_000);
    // It is not the fitted link any longer.
    expected.provenance = None;
    assert_eq!(lab.in_force(), expected);
    assert_eq!(change.profile.unwrap(), expected);
    assert!(!lab.fake.state().applies[1].restart);
    assert_eq!(lab.fake.state().applies[1].expected_generation, None);

    lab.patch(Unspecified, &["rate_bps", "outages"], pb::Pipe::default()).await.unwrap();
    let now = lab.in_force();
    assert_eq!(now.name, "viasat2*");
    for pipe in [forward(&now), back(&now)] {
        assert_eq!(pipe.rate_bps, None);
        assert!(pipe.outages.is_empty());
        assert!(pipe.queue.unwrap().random_drop.is_some());
    }
    let delay = pb::Delay { base_ns: 7, slot_ns: 9, ..Default::default() };
    let pipe = pb::Pipe { delay: Some(delay), ..Default::default() };
    let before = back(&lab.in_force()).delay.clone().unwrap();
    lab.patch(Return, &["delay.base_ns"], pipe.clone()).await.unwrap();
    let delay = back(&lab.in_force()).delay.clone().unwrap();
    assert_eq!(delay, pb::Delay { base_ns: 7, ..before });
    lab.patch(Return, &["delay"], pipe).await.unwrap();
    let delay = back(&lab.in_force()).delay.clone().unwrap();
    assert_eq!((delay.base_ns, delay.slot_ns, delay.excursions.len()), (7, 9, 0));
    assert_eq!(forward(&lab.in_force()).delay.as_ref().unwrap().base_ns, 275_000_000);
}

#[tokio::test]
async fn a_rate_and_a_rate_trace_replace_each_other() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    let trace = pb::RateTrace {
        step_ns: 100_000_000,
        rates_bps: vec![12_000_000, 0],
        ..Default::default()
    };
    let traced = pb::Pipe { rate_trace: Some(trace.clone()), ..Default::default() };
    // No trace to take away: the rate stays.
    lab.patch(Forward, &["rate_trace"], pb::Pipe::default()).await.unwrap();
    assert_eq!(forward(&lab.in_force()).rate_bps, Some(144_000_000));
    lab.patch(Forward, &["rate_trace"], traced.clone()).await.unwrap();
    assert_eq!(forward(&lab.in_force()).rate_trace, Some(trace.clone()));
    assert_eq!(forward(&lab.in_force()).rate_bps, None);
    assert_eq!(back(&lab.in_force()).rate_bps, Some(12_000_000));
    let framed = pb::Pipe { link_layer: pb::LinkLayer::Atm.into(), ..Default::default() };
    lab.patch(Forward, &["overhead_bytes", "link_layer"], framed).await.unwrap();
    assert_eq!(forward(&lab.in_force()).link_layer(), pb::LinkLayer::Atm);
    assert_eq!(forward(&lab.in_force()).rate_trace, Some(trace.clone()));
    lab.patch(Unspecified, &["rate_bps"], rate(50_000)).await.unwrap();
    for pipe in [forward(&lab.in_force()), back(&lab.in_force())] {
        assert_eq!((pipe.rate_bps, &pipe.rate_trace), (Some(50_000), &None));
    }
    lab.patch(Forward, &["rate_trace"], traced.clone()).await.unwrap();
    lab.patch(Forward, &["rate_trace"], pb::Pipe::default()).await.unwrap();
    assert_eq!(
        (forward(&lab.in_force()).rate_bps, &forward(&lab.in_force()).rate_trace),
        (None, &None)
    );
    // Both in a mask are what the request says.
    for mask in [["rate_trace", "rate_bps"], ["rate_bps", "rate_trace"]] {
        lab.patch(Forward, &mask, traced.clone()).await.unwrap();
        assert_eq!(forward(&lab.in_force()).rate_trace, Some(trace.clone()));
        let both = pb::Pipe { rate_bps: Some(50_000), ..traced.clone() };
        let status = lab.patch(Forward, &mask, both).await.unwrap_err();
        assert_eq!(fields(&status), ["forward.rate_trace"]);
        lab.patch(Forward, &mask, rate(50_000)).await.unwrap();
        assert_eq!(forward(&lab.in_force()).rate_trace, None);
    }
}

#[tokio::test]
async fn a_fade_goes_with_the_last_outage() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    let fade = pb::Fade { interval_ns: 1 << 45, duration_ns: 1 << 40, factor: 30.0 };
    let faded = pb::Pipe { fade: Some(fade), packet_loss: 0.25, ..Default::default() };
    lab.patch(Forward, &["fade", "packet_loss"], faded.clone()).await.unwrap();
    assert_eq!(forward(&lab.in_force()).fade, Some(fade));
    assert_eq!(forward(&lab.in_force()).packet_loss, 0.25);
    assert_eq!((back(&lab.in_force()).fade, back(&lab.in_force()).packet_loss), (None, 0.0));
    let outage = forward(&lab.in_force()).outages[1];
    let one = pb::Pipe { outages: vec![outage], ..Default::default() };
    lab.patch(Forward, &["outages"], one).await.unwrap();
    assert_eq!(forward(&lab.in_force()).fade, Some(fade));
    let status = lab.patch(Forward, &["outages", "fade"], faded.clone()).await.unwrap_err();
    assert_eq!(fields(&status), ["forward.fade"]);
    // An outage that is too frequent for the current fade.
    let frequent = pb::Outage { interval_ns: 200_000_000, duration_ns: 1_000_000, law: 2 };
    let frequent = pb::Pipe { outages: vec![frequent], ..Default::default() };
    let status = lab.patch(Forward, &["outages"], frequent).await.unwrap_err();
    assert_eq!(fields(&status), ["forward.fade.factor"]);
    lab.patch(Forward, &["outages"], pb::Pipe::default()).await.unwrap();
    let now = lab.in_force();
    assert_eq!((forward(&now).outages.len(), forward(&now).fade), (0, None));
    assert_eq!(forward(&now).packet_loss, 0.25);
    let status = lab.patch(Forward, &["fade"], faded).await.unwrap_err();
    assert_eq!(fields(&status), ["forward.fade"]);
}

#[tokio::test]
async fn a_model_of_loss_replaces_the_others() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    let gilbert =
        pb::GilbertElliott { to_bad: 0.01, to_good: 0.25, loss_in_bad: 1.0, loss_in_good: 0.0 };
    let four = pb::FourStateLoss { p13: 0.01, p31: 0.2, ..Default::default() };
    let run = pb::DropRun { pass_packets: 9, drop_packets: 1, once: false };
    let all = pb::Pipe {
        packet_loss: 0.5,
        gilbert_elliott: Some(gilbert),
        four_state_loss: Some(four),
        drop_run: Some(run),
        duplicate: 0.125,
        corrupt: 0.75,
        reorder: Some(pb::Reorder { probability: 0.5, by_ns: 5_000_000 }),
        ..Default::default()
    };
    let mut expected = forward(&lab.in_force()).clone();
    expected.drop_run = Some(run);
    expected.packet_loss = 0.5;
    (expected.duplicate, expected.corrupt) = (0.125, 0.75);
    expected.reorder = all.reorder;
    let mask = ["drop_run", "packet_loss", "duplicate", "corrupt", "reorder"];
    lab.patch(Forward, &mask, all.clone()).await.unwrap();
    assert_eq!(forward(&lab.in_force()), &expected);
    (expected.packet_loss, expected.gilbert_elliott) = (0.0, Some(gilbert));
    lab.patch(Forward, &["gilbert_elliott"], all.clone()).await.unwrap();
    assert_eq!(forward(&lab.in_force()), &expected);
    (expected.gilbert_elliott, expected.four_state_loss) = (None, Some(four));
    lab.patch(Forward, &["four_state_loss"], all.clone()).await.unwrap();
    assert_eq!(forward(&lab.in_force()), &expected);
    // One that is taken away leaves the others alone.
    lab.patch(Forward, &["gilbert_elliott", "packet_loss"], pb::Pipe::default()).await.unwrap();
    assert_eq!(forward(&lab.in_force()), &expected);
    let status = lab.patch(Forward, &["packet_loss", "gilbert_elliott"], all).await.unwrap_err();
    assert_eq!(fields(&status), ["forward.gilbert_elliott", "forward.four_state_loss"][..1]);
}

#[tokio::test]
async fn to_name_the_drop_run_arms_it_and_nothing_else_does() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    let run = Some(pb::DropRun { pass_packets: 999, drop_packets: 1, once: true });
    let once = pb::Pipe { drop_run: run, rate_bps: Some(50_000), ..Default::default() };
    for (direction, mask, armed) in [
        (Forward, &["drop_run"][..], (true, false)),
        // The very same again.
        (Forward, &["drop_run"], (true, false)),
        (Return, &["rate_bps", "drop_run"], (false, true)),
        (Unspecified, &["drop_run"], (true, true)),
        (Unspecified, &["rate_bps"], (false, false)),
    ] {
        lab.patch(direction, mask, once.clone()).await.unwrap();
        let apply = lab.fake.state().applies.last().unwrap().clone();
        assert_eq!((apply.arm[0], apply.arm[1]), armed, "{direction:?} {mask:?}");
        assert!(!apply.restart);
    }
    assert_eq!((forward(&lab.in_force()).drop_run, back(&lab.in_force()).drop_run), (run, run));
}

#[tokio::test]
async fn an_aqm_replaces_the_others_and_takes_the_marks_with_it() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    let codel = pb::CoDel { target_ns: 30_000_000, interval_ns: 600_000_000 };
    let red = pb::Red {
        min_bytes: 6_000_000,
        max_bytes: 18_000_000,
        probability_at_max: 0.1,
        weight: 0.002,
        packet_bytes: 1_000,
        gentle: true,
    };
    let both = pb::Queue { codel: Some(codel), red: Some(red), ecn: true, ..Default::default() };
    let pipe = pb::Pipe { queue: Some(both), ..Default::default() };
    let limit_bytes = 36_000_000;
    lab.patch(Forward, &["queue.codel", "queue.ecn"], pipe.clone()).await.unwrap();
    let expected = pb::Queue { limit_bytes, red: None, ..both };
    assert_eq!(forward(&lab.in_force()).queue, Some(expected));
    lab.patch(Forward, &["queue.red"], pipe.clone()).await.unwrap();
    let expected = pb::Queue { limit_bytes, codel: None, ..both };
    assert_eq!(forward(&lab.in_force()).queue, Some(expected));
    let status =
        lab.patch(Forward, &["queue.limit_bytes"], queue(10_000_000, None)).await.unwrap_err();
    assert!(status.message().contains("current threshold of RED, 18 MB"), "{}", status.message());
    let status = lab.patch(Forward, &["queue.codel", "queue.red"], pipe).await.unwrap_err();
    assert_eq!(fields(&status), ["forward.queue.codel"]);
    lab.patch(Forward, &["queue.red"], pb::Pipe::default()).await.unwrap();
    let tail = pb::Queue { limit_bytes, ..Default::default() };
    assert_eq!(forward(&lab.in_force()).queue, Some(tail));
}

#[tokio::test]
async fn a_varying_delay_is_patched_by_itself() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    let before = back(&lab.in_force()).delay.clone().unwrap();
    let body = pb::Body { correlation_ns: 80_000_000, quantiles_ns: vec![0, 400_000, 3_000_000] };
    let delay = pb::Delay { body: Some(body), ..Default::default() };
    let pipe = pb::Pipe { delay: Some(delay.clone()), ..Default::default() };
    lab.patch(Return, &["delay.body"], pipe).await.unwrap();
    let expected = pb::Delay { body: delay.body, ..before.clone() };
    assert_eq!(back(&lab.in_force()).delay, Some(expected));
    lab.patch(Return, &["delay.body"], pb::Pipe::default()).await.unwrap();
    assert_eq!(back(&lab.in_force()).delay, Some(before));
}

#[tokio::test]
async fn a_patched_link_is_not_what_was_fitted() {
    let mut lab = Lab::new();
    let mut profile = profile::Catalog::built_in().get("viasat2").unwrap().as_proto().clone();
    profile.name = "fitted".into();
    profile.provenance = Some(pb::Provenance { source: "pings.csv".into(), ..Default::default() });
    let request = pb::SetProfileRequest {
        profile: Some(pb::set_profile_request::Profile::Inline(profile.clone())),
        ..Default::default()
    };
    lab.client.set_profile(request).await.unwrap();
    assert_eq!(lab.in_force(), profile);
    lab.patch(Forward, &["packet_loss"], pb::Pipe::default()).await.unwrap();
    assert_eq!(lab.in_force().name, "fitted*");
    assert_eq!(lab.in_force().provenance, None);
}

#[tokio::test]
async fn traces_at_their_limit_are_taken() {
    let mut lab = Lab::new();
    let mut profile = profile::Catalog::built_in().get("viasat2-pings").unwrap().as_proto().clone();
    profile.name = "traced".into();
    for pipe in [&mut profile.forward_pipe, &mut profile.return_pipe] {
        let pipe = pipe.as_mut().unwrap();
        pipe.rate_bps = None;
        let rates_bps = vec![400_000_000_000; *profile::RATE_TRACE_RATES_BPS_ITEMS.end()];
        pipe.rate_trace =
            Some(pb::RateTrace { step_ns: 1_000_000, rates_bps, ..Default::default() });
    }
    let request = pb::SetProfileRequest {
        profile: Some(pb::set_profile_request::Profile::Inline(profile.clone())),
        ..Default::default()
    };
    lab.client.set_profile(request).await.unwrap();
    assert_eq!(lab.in_force(), profile);
    lab.patch(Return, &["packet_loss"], pb::Pipe::default()).await.unwrap();
}

#[tokio::test]
async fn a_limit_below_the_threshold_wants_both() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    let status =
        lab.patch(Forward, &["queue.limit_bytes"], queue(10_000_000, None)).await.unwrap_err();
    assert_eq!(fields(&status), ["forward.queue.limit"]);
    assert!(
        status.message().contains("10 MB is below the current threshold"),
        "{}",
        status.message()
    );
    assert!(status.message().contains("set both"));
    lab.patch(Forward, &["queue.limit_bytes"], queue(20_000_000, None)).await.unwrap();
    assert!(forward(&lab.in_force()).queue.unwrap().random_drop.is_some());
    let both = ["queue.limit_bytes", "queue.random_drop"];
    lab.patch(Forward, &both, queue(10_000_000, None)).await.unwrap();
    assert_eq!(forward(&lab.in_force()).queue, queue(10_000_000, None).queue);
    assert_eq!(back(&lab.in_force()).queue.unwrap().limit_bytes, 36_000_000);
    let drop = pb::RandomDrop {
        threshold_bytes: 5_000_000,
        probability_at_threshold: 0.0,
        probability_at_limit: 1.0,
        ..Default::default()
    };
    lab.patch(Forward, &["queue.random_drop"], queue(0, Some(drop))).await.unwrap();
    assert_eq!(forward(&lab.in_force()).queue, queue(10_000_000, Some(drop)).queue);
}

#[tokio::test]
async fn a_patch_that_is_wrong_changes_nothing() {
    let mut lab = Lab::new();
    let status = lab.patch(Forward, &["rate_bps"], rate(50_000)).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("set one first"));
    lab.set("viasat2").await.unwrap();
    for (paths, pipe, field, message) in [
        (&["rate"][..], rate(50_000), "mask.paths[0]", "the nearest is \"rate_bps\""),
        (&["queue.limt"], rate(50_000), "mask.paths[0]", "the nearest is \"queue.limit_bytes\""),
        (&[], rate(50_000), "mask", "names nothing"),
        (&["queue.limit_bytes"], rate(50_000), "pipe.queue", "missing"),
        (&["queue"], rate(50_000), "forward.queue", "missing"),
        (&["rate_bps"], rate(5), "forward.rate", "5 bit/s is below"),
    ] {
        let status = lab.patch(Unspecified, paths, pipe).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(fields(&status)[0], field);
        assert!(status.message().contains(message), "{}", status.message());
    }
    let mut request =
        pb::PatchLinkRequest { mask: Some(mask(&["rate_bps"])), ..Default::default() };
    let status = lab.client.patch_link(request.clone()).await.unwrap_err();
    assert_eq!(fields(&status), ["pipe"]);
    request.pipe = Some(rate(50_000));
    request.direction = 9;
    let status = lab.client.patch_link(request).await.unwrap_err();
    assert_eq!(fields(&status), ["direction"]);
    assert_eq!(lab.fake.state().generation, 1);
}

#[tokio::test]
async fn patch_is_merged_into_the_link_of_another_change() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    {
        let mut state = lab.fake.state();
        state.plan.as_mut().unwrap().profile.as_mut().unwrap().name = "other".into();
        state.generation = 7;
    }
    let change = lab.patch(Forward, &["rate_bps"], rate(50_000)).await.unwrap();
    assert_eq!(change.applied.unwrap().generation, 8);
    assert_eq!(change.profile.unwrap().name, "other*");
}

#[tokio::test]
async fn an_expected_generation_is_held_to() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    let mut request = pb::PatchLinkRequest {
        pipe: Some(rate(50_000)),
        mask: Some(mask(&["rate_bps"])),
        expected_generation: Some(9),
        ..Default::default()
    };
    let status = lab.client.patch_link(request.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.message().contains("generation 9 was expected and 1 is current"));
    assert_eq!(lab.fake.state().generation, 1);
    request.expected_generation = Some(1);
    lab.fake.state().interlopers = 1;
    let status = lab.client.patch_link(request.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    request.expected_generation = Some(2);
    lab.client.patch_link(request).await.unwrap();
}

#[tokio::test]
async fn concurrent_patches_all_take() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    let patches: Vec<_> = (0..40_u64)
        .map(|i| {
            let mut client = lab.client.clone();
            let request = pb::PatchLinkRequest {
                pipe: Some(rate(50_000 + i)),
                mask: Some(mask(&["rate_bps"])),
                ..Default::default()
            };
            tokio::spawn(async move { client.patch_link(request).await })
        })
        .collect();
    for patch in patches {
        patch.await.unwrap().unwrap();
    }
    assert_eq!(lab.fake.state().generation, 41);
}

#[tokio::test]
async fn a_dead_dataplane_is_named_and_found_again() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    lab.running = None;
    for _ in 0..3 {
        let status = lab.client.get_link(pb::GetLinkRequest {}).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        let path = lab.dataplane().display().to_string();
        let expected =
            format!("no dataplane at {path}: start linkd-dataplane, or give --dataplane");
        assert_eq!(status.message(), expected);
    }
    assert_eq!(lab.set("viasat2").await.unwrap_err().code(), Code::Unavailable);
    lab.running = Some(lab.fake.serve(&lab.dataplane()).unwrap());
    let link = lab.client.get_link(pb::GetLinkRequest {}).await.unwrap().into_inner();
    assert_eq!(link.profile.unwrap().name, "viasat2");
    // Replaced between two calls: the second does not see the broken connection. (A change that
    // meets it is not repeated, because its result is unknown.)
    lab.running = Some(lab.fake.serve(&lab.dataplane()).unwrap());
    lab.client.get_link(pb::GetLinkRequest {}).await.unwrap();
    lab.set("geo-600").await.unwrap();
    lab.client.list_profiles(pb::ListProfilesRequest::default()).await.unwrap();
}

#[tokio::test]
async fn what_the_dataplane_refuses_passes_as_it_is() {
    let mut lab = Lab::new();
    lab.fake.state().refuse = Some(tonic::Status::resource_exhausted("needs 9 GB, there are 2"));
    let status = lab.set("viasat2").await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "needs 9 GB, there are 2");
}

#[tokio::test]
async fn statistics_are_read_marked_and_watched() {
    let mut lab = Lab::new();
    lab.fake.state().stats.emulator_drops = 5;
    let stats = lab.client.get_stats(pb::GetStatsRequest { mark: true }).await.unwrap();
    assert_eq!(stats.into_inner().emulator_drops, 5);
    assert_eq!(lab.fake.state().marks, 1);
    let watch = |interval_ns| pb::WatchStatsRequest { interval_ns };
    let mut stream = lab.client.watch_stats(watch(10_000_000)).await.unwrap().into_inner();
    for _ in 0..3 {
        assert_eq!(stream.message().await.unwrap().unwrap().emulator_drops, 5);
    }
    lab.running = None;
    let status = loop {
        match stream.message().await {
            Ok(snapshot) => assert!(snapshot.is_some()),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::Unavailable);
    for interval in [1, 9_999_999, 3_600_000_000_001, u64::MAX] {
        let status = lab.client.watch_stats(watch(interval)).await.unwrap_err();
        assert_eq!(fields(&status), ["interval_ns"]);
    }
}

#[tokio::test]
async fn shutdown_ends_streams_and_removes_the_socket() {
    let mut lab = Lab::new();
    let request = pb::WatchStatsRequest { interval_ns: 3_600_000_000_000 };
    let mut stream = lab.client.watch_stats(request).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    drop(lab.stop.take());
    let status = stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    tokio::time::timeout(Duration::from_secs(30), lab.server).await.unwrap().unwrap();
    assert!(!lab.directory.path().join("linkd.sock").exists());
    assert!(!lab.directory.path().join("linkd.sock.lock").exists());
}

#[tokio::test]
async fn a_link_outside_of_the_envelope_is_taken_on_an_explicit_flag_only() {
    let mut lab = Lab::new();
    lab.fake.state().excess = Some("needs 9.6 GB, 4 GB reserved".into());
    let refused = lab.set("viasat2").await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("9.6 GB"), "{refused}");
    // The numbers pass as they are.
    let info = refused.get_details_error_info().unwrap();
    assert_eq!(
        (info.reason.as_str(), info.metadata["needed_bytes"].as_str()),
        ("OUTSIDE_ENVELOPE", "9600")
    );

    let profile = Some(pb::set_profile_request::Profile::Name("viasat2".into()));
    let request = pb::SetProfileRequest { profile, lossy: true, ..Default::default() };
    let taken = lab.client.set_profile(request).await.unwrap().into_inner();
    assert!(taken.applied.unwrap().lossy);
    assert_eq!(taken.remarks, ["needs 9.6 GB, 4 GB reserved"]);
    let link = lab.client.get_link(pb::GetLinkRequest {}).await.unwrap().into_inner();
    assert!(link.applied.unwrap().lossy);
    assert_eq!(link.remarks, taken.remarks);
    let stats = lab.client.get_stats(pb::GetStatsRequest { mark: false }).await.unwrap();
    assert!(stats.into_inner().lossy);

    // A patch does not inherit the leave.
    let refused = lab.patch(pb::Direction::Forward, &["rate_bps"], rate(1_000_000)).await;
    assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
    let request = pb::PatchLinkRequest {
        pipe: Some(rate(1_000_000)),
        mask: Some(mask(&["rate_bps"])),
        lossy: true,
        ..Default::default()
    };
    let taken = lab.client.patch_link(request).await.unwrap().into_inner();
    assert!(taken.applied.unwrap().lossy);
    let asked: Vec<_> = lab.fake.state().applies.iter().map(|a| (a.restart, a.lossy)).collect();
    let patches = [(false, false), (false, true)];
    assert_eq!(asked, [&[(true, false), (true, true)][..], &patches].concat());
}

#[tokio::test]
async fn what_there_is_to_hold_a_link_with_is_the_dataplanes_answer() {
    let mut lab = Lab::new();
    // One that does not say is an older one.
    let unknown = lab.client.get_room(pb::GetRoomRequest {}).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unimplemented);
    assert!(unknown.message().contains("older"), "{unknown}");
    let room = pb::Room {
        clients: 16,
        port_bps: 10_000_000_000,
        frame_bytes: 1_514,
        memory_bytes: 3 << 30,
        workers: 1,
        shim_bytes: 32,
        pair_bytes: 0,
    };
    lab.fake.state().room = Some(room);
    let answer = lab.client.get_room(pb::GetRoomRequest {}).await.unwrap().into_inner();
    assert_eq!(answer, room);
    lab.running = None;
    let gone = lab.client.get_room(pb::GetRoomRequest {}).await.unwrap_err();
    assert_eq!(gone.code(), Code::Unavailable);
}

#[tokio::test]
async fn a_run_is_judged_by_the_limits_of_the_request_or_the_usual_ones() {
    let lab = Lab::new();
    let mut client = CertificatesClient::new(lab.linkd());
    let status = client.get_certificate(pb::GetCertificateRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "no span: {status}");

    let count = |packets| Some(pb::Count { packets, bytes: 100 * packets });
    let span = pb::Span { sent: count(6), received: count(9), overload: 3, ..Default::default() };
    lab.fake.state().stats = pb::Stats { span: Some(span), ..Default::default() };
    let usual = client.get_certificate(pb::GetCertificateRequest::default()).await.unwrap();
    let usual = usual.into_inner();
    assert!(!usual.holds);
    let failed: Vec<_> = usual.criteria.iter().filter(|c| !c.holds).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].text, "emulator_drops 3 packets, at most 0 packets");
    let json: serde_json::Value = serde_json::from_str(&usual.json).unwrap();
    assert_eq!(json["verdict"], "fail");
    assert_eq!(lab.fake.state().marks, 0);

    let wide =
        pb::GetCertificateRequest { emulator_drops: Some(3), mark: true, ..Default::default() };
    assert!(client.get_certificate(wide).await.unwrap().into_inner().holds);
    assert_eq!(lab.fake.state().marks, 1);

    // A run has one entry for each set of limits; a mark ends it.
    client.get_certificate(pb::GetCertificateRequest::default()).await.unwrap();
    let listed = async |client: &mut CertificatesClient<tonic::transport::Channel>| {
        let request = pb::ListCertificatesRequest {};
        let all = client.list_certificates(request).await.unwrap().into_inner().certificates;
        let holds = |it: &pb::ListedCertificate| it.certificate.as_ref().unwrap().holds;
        all.iter().map(|it| (it.marked, holds(it))).collect::<Vec<_>>()
    };
    assert_eq!(listed(&mut client).await, [(false, false), (true, true)]);
    let mut main = lab.client.clone();
    main.get_stats(pb::GetStatsRequest { mark: true }).await.unwrap();
    main.get_stats(pb::GetStatsRequest::default()).await.unwrap();
    assert_eq!(listed(&mut client).await, [(true, false), (true, true)]);
    for _ in 0..100 {
        main.get_stats(pb::GetStatsRequest { mark: true }).await.unwrap();
    }
    assert_eq!(listed(&mut client).await, [(true, false); 100]);

    let wrong = pb::GetCertificateRequest { memory_percent: Some(101), ..Default::default() };
    let status = client.get_certificate(wrong).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(fields(&status), ["memory_percent"]);
}
