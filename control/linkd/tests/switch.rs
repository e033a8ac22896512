// SPDX-License-Identifier: Apache-2.0
//! A P4 switch before the dataplane: what linkd has it do, and that nothing needs it.

use crate::common::pki::{Ask, Authority};
use crate::common::{Lab, rate, until};
use fake::declared_switch;
use p4runtime::Count;
use p4server::Fake;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::certificates_client::CertificatesClient;
use proto::linkemu::v1::events_client::EventsClient;
use proto::linkemu::v1::leases_client::LeasesClient;
use proto::linkemu::v1::scenarios_client::ScenariosClient;
use proto::linkemu::v1::switch_client::SwitchClient;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;
use tonic::Code;
use tonic::transport::Channel;

/// Longer than linkd takes between two looks.
const LOOKS: Duration = Duration::from_millis(1_500);

/// The next dataplane of the lab has this switch.
fn declare(lab: &mut Lab, switch: Option<dp::Switch>, instance: u64) {
    lab.fake.state().switch = switch;
    lab.start_dataplane_anew(instance);
}

fn client(lab: &Lab) -> SwitchClient<Channel> {
    SwitchClient::new(lab.linkd())
}

async fn state(lab: &Lab) -> Result<pb::SwitchState, tonic::Status> {
    client(lab).get_switch(pb::GetSwitchRequest {}).await.map(tonic::Response::into_inner)
}

async fn gate(lab: &Lab, name: &str, closed: bool) -> Result<(), tonic::Status> {
    let gate = Some(pb::Gate { client: name.into(), direction: 0 });
    client(lab).set_gate(pb::SetGateRequest { gate, closed }).await.map(drop)
}

async fn mirror(lab: &Lab, mirror: pb::Mirror) -> Result<(), tonic::Status> {
    client(lab).set_mirror(pb::SetMirrorRequest { mirror: Some(mirror) }).await.map(drop)
}

async fn events(lab: &Lab) -> Vec<pb::Event> {
    let request = pb::WatchEventsRequest { after: Some(0), once: true };
    let mut events =
        EventsClient::new(lab.linkd()).watch_events(request).await.unwrap().into_inner();
    let mut all = Vec::new();
    while let Some(event) = events.message().await.unwrap() {
        all.push(event);
    }
    all
}

async fn of_kind(lab: &Lab, kind: pb::EventKind) -> Vec<pb::Event> {
    events(lab).await.into_iter().filter(|event| event.kind() == kind).collect()
}

/// Waits for so many events of a kind.
async fn until_event(lab: &Lab, kind: pb::EventKind, count: usize) -> Vec<pb::Event> {
    let what = kind.as_str_name();
    until(what, async || Some(of_kind(lab, kind).await).filter(|it| it.len() >= count)).await
}

/// A lab with a switch that has never answered.
async fn lost() -> (Lab, Fake) {
    let switch = Fake::start(1).await.unwrap();
    switch.down(true);
    let mut lab = Lab::new();
    declare(&mut lab, Some(declared_switch(&switch.address())), 2);
    until_event(&lab, pb::EventKind::SwitchLost, 1).await;
    (lab, switch)
}

/// A lab with a switch that is ready, and a link that loses nothing.
async fn ready() -> (Lab, Fake) {
    let switch = Fake::start(1).await.unwrap();
    let mut lab = Lab::new();
    declare(&mut lab, Some(declared_switch(&switch.address())), 2);
    until_event(&lab, pb::EventKind::SwitchReady, 1).await;
    lab.set("transparent").await.unwrap();
    lab.until("the switch is used", |lab| offload(lab).is_some()).await;
    (lab, switch)
}

fn losing(p: f64) -> pb::Pipe {
    pb::Pipe { packet_loss: p, ..Default::default() }
}

async fn lose(lab: &mut Lab, p: f64) -> Option<dp::Offload> {
    lab.patch(pb::Direction::Forward, &["packet_loss"], losing(p)).await.unwrap();
    offload(lab)
}

/// The slots in the switch.
fn slots(switch: &Fake) -> Vec<u32> {
    let entries = switch.entries("linkemu.loss");
    let slot = |entry: &p4runtime::Entry| {
        let text = entry.to_string();
        let (_, rest) = text.split_once("slot=0x").unwrap();
        u32::from_str_radix(rest.split_once(']').unwrap().0, 16).unwrap()
    };
    entries.iter().map(slot).collect()
}

/// Changes of a table that were asked of the switch.
fn changes(switch: &Fake, table: &str) -> usize {
    switch.log().iter().filter(|line| line.contains(table)).count()
}

fn offload(lab: &Lab) -> Option<dp::Offload> {
    lab.fake.state().plan.as_ref().and_then(|plan| plan.offload)
}

#[tokio::test]
async fn an_encrypted_switch_is_used_once_its_certificate_is_believed() {
    let directory = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::named("lab"), Authority::named("other"));
    let files = authority.files(directory.path(), &authority.sign(&Ask::server()));
    let config = tls::server::Keys::read(&files).unwrap().config().unwrap();
    let (_sender, keys) = tokio::sync::watch::channel(Arc::new(config));
    let switch = Fake::start_with(1, Some(keys)).await.unwrap();
    let linkd = authority.sign(&Ask::client("linkd", &[]));
    let at = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let tls = dp::SwitchTls {
        ca: at("switch-ca.pem", &other.pem),
        cert: at("linkd.pem", &linkd.pem),
        key: at("linkd.key", &linkd.key),
        server_name: "linkemu.lab".into(),
    };
    let ca = tls.ca.clone();
    let mut lab = Lab::new();
    let declared = dp::Switch { tls: Some(tls), ..declared_switch(&switch.address()) };
    declare(&mut lab, Some(declared), 2);
    let lost = until_event(&lab, pb::EventKind::SwitchLost, 1).await;
    let words = format!("its certificate is not signed by an authority of {ca}, `ca` of [switch]");
    assert!(lost[0].message.contains(&words), "{}", lost[0].message);
    // linkd reads the files for each connection.
    at("switch-ca.pem", &authority.pem);
    until_event(&lab, pb::EventKind::SwitchReady, 1).await;
    assert_eq!(switch.pushes(), 1);
}

#[tokio::test]
async fn without_a_switch_plans_are_whole_and_the_api_says_why() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    assert_eq!(offload(&lab), None);
    for status in [state(&lab).await.unwrap_err(), gate(&lab, "", true).await.unwrap_err()] {
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("[switch]"), "{}", status.message());
    }
}

#[tokio::test]
async fn a_switch_that_is_not_there_is_one_event_and_all_else_works() {
    let mut lab = Lab::new();
    // A closed port.
    let nowhere = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    declare(&mut lab, Some(declared_switch(&nowhere)), 2);
    lab.set("viasat2").await.unwrap();
    let lost = until_event(&lab, pb::EventKind::SwitchLost, 1).await;
    assert_eq!((lost[0].subject.as_str(), lost[0].who.as_str()), (nowhere.as_str(), ""));
    lab.patch(pb::Direction::Forward, &["rate_bps"], rate(7_000_000)).await.unwrap();
    assert_eq!(offload(&lab), None);
    lab.client.get_stats(pb::GetStatsRequest { mark: true, ..Default::default() }).await.unwrap();
    let shown = state(&lab).await.unwrap();
    assert_eq!(shown.phase(), pb::SwitchPhase::Lost);
    assert!(shown.stages.iter().all(|stage| stage.place() == pb::StagePlace::Dataplane));
    assert_eq!(gate(&lab, "", true).await.unwrap_err().code(), Code::Unavailable);
    tokio::time::sleep(LOOKS).await;
    assert_eq!(of_kind(&lab, pb::EventKind::SwitchLost).await.len(), 1);
    assert_eq!(of_kind(&lab, pb::EventKind::LinkChanged).await.len(), 2);
    // A dataplane that was started with another file has none.
    declare(&mut lab, None, 3);
    lab.until("the link is back", |lab| lab.fake.state().generation == 1).await;
    lab.until("there is no switch", |lab| lab.fake.state().plan.is_some()).await;
    assert_eq!(state(&lab).await.unwrap_err().code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_program_that_cannot_be_read_is_told_with_the_remedy() {
    let mut lab = Lab::new();
    let program = lab.directory.path().join("nothing").display().to_string();
    let switch = dp::Switch { program: program.clone(), ..declared_switch("http://127.0.0.1:1") };
    declare(&mut lab, Some(switch), 2);
    let lost = until_event(&lab, pb::EventKind::SwitchLost, 1).await;
    assert!(lost[0].message.contains(&program), "{}", lost[0].message);
    lab.set("viasat2").await.unwrap();
    assert!(state(&lab).await.unwrap().message.contains(&program));
    assert_eq!(gate(&lab, "", true).await.unwrap_err().code(), Code::Unavailable);
    let tofino = dp::Switch {
        target: dp::SwitchTarget::Tofino as i32,
        ..declared_switch("http://127.0.0.1:1")
    };
    declare(&mut lab, Some(tofino), 3);
    let lost = until_event(&lab, pb::EventKind::SwitchLost, 2).await;
    assert!(lost[1].message.contains("`program`"), "{}", lost[1].message);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_switch_does_of_each_plan_what_it_does_exactly() {
    let (mut lab, switch) = ready().await;
    let first = lose(&mut lab, 0.25).await.unwrap();
    assert!(first.epoch > 0 && first.forward_loss > 0 && first.return_loss == 0, "{first:?}");
    assert!(!first.marks);
    assert!(slots(&switch).contains(&first.forward_loss));
    // A change without a new slot sends nothing to the switch.
    switch.clear_log();
    lab.patch(pb::Direction::Forward, &["rate_bps"], rate(7_000_000)).await.unwrap();
    assert_eq!(offload(&lab), Some(first));
    let second = lose(&mut lab, 0.5).await.unwrap();
    assert_eq!(changes(&switch, "linkemu.loss"), 1, "{:?}", switch.log());
    assert_eq!(lose(&mut lab, 0.25).await, Some(first));
    assert_eq!(changes(&switch, "linkemu.loss"), 1, "{:?}", switch.log());
    assert!(second.epoch == first.epoch && second.forward_loss != first.forward_loss);
    let both = [first.forward_loss, second.forward_loss];
    assert!(both.iter().all(|slot| slots(&switch).contains(slot)));
    // Where packets are reordered, the dataplane loses.
    let reorder = Some(pb::Reorder { probability: 0.5, by_ns: 1_000_000 });
    let pipe = pb::Pipe { reorder, ..Default::default() };
    lab.patch(pb::Direction::Forward, &["reorder"], pipe).await.unwrap();
    assert_eq!(offload(&lab).unwrap().forward_loss, 0);
    let stages = state(&lab).await.unwrap().stages;
    let loss = |direction: pb::Direction| {
        stages.iter().find(|s| s.name == "loss" && s.direction() == direction).unwrap()
    };
    assert_eq!(loss(pb::Direction::Forward).place(), pb::StagePlace::Dataplane);
    assert!(loss(pb::Direction::Forward).reason.contains("reordering"));
    // Only requested changes were made.
    let own = of_kind(&lab, pb::EventKind::LinkChanged).await;
    assert!(own.iter().all(|event| !event.who.is_empty()), "{own:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_that_becomes_ready_takes_its_part_of_the_link_in_force() {
    let (mut lab, switch) = lost().await;
    lab.set("transparent").await.unwrap();
    assert_eq!(lose(&mut lab, 0.25).await, None);
    let (link, generation) = (lab.in_force(), lab.fake.state().generation);
    switch.down(false);
    lab.until("the switch is used", |lab| offload(lab).is_some()).await;
    assert_eq!(lab.in_force(), link);
    let found = offload(&lab).unwrap();
    assert!(slots(&switch).contains(&found.forward_loss));
    let set = *lab.fake.state().offloads.last().unwrap();
    assert_eq!((set.expected_generation, set.expected_instance), (generation, 2));
    let told = until_event(&lab, pb::EventKind::SwitchOffloaded, 1).await;
    assert_eq!((told[0].generation, told[0].who.as_str()), (Some(generation), ""));
    let message = &told[0].message;
    assert!(
        message.contains("the switch is ready and does classification, loss (forward)"),
        "{message}"
    );
    let events = until_event(&lab, pb::EventKind::SwitchReady, 1).await;
    let message = &events.last().unwrap().message;
    assert!(message.contains("ready after") && message.contains("its program"), "{message}");
    // Once.
    tokio::time::sleep(LOOKS).await;
    assert_eq!(lab.fake.state().generation, generation);
    assert_eq!(of_kind(&lab, pb::EventKind::SwitchOffloaded).await.len(), 1);
    let shown = state(&lab).await.unwrap();
    assert_eq!(shown.phase(), pb::SwitchPhase::Ready);
    assert!(shown.entries > 0 && shown.restored_ns > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_that_is_lost_changes_nothing_until_the_next_change() {
    let (mut lab, switch) = ready().await;
    let before = lose(&mut lab, 0.25).await;
    let generation = lab.fake.state().generation;
    switch.down(true);
    until_event(&lab, pb::EventKind::SwitchLost, 1).await;
    tokio::time::sleep(LOOKS).await;
    assert_eq!((offload(&lab), lab.fake.state().generation), (before, generation));
    let shown = state(&lab).await.unwrap();
    assert_eq!(shown.phase(), pb::SwitchPhase::Lost);
    lab.patch(pb::Direction::Forward, &["rate_bps"], rate(7_000_000)).await.unwrap();
    // The box loses the packets; the client numbers of the switch stay valid.
    let epoch = before.unwrap().epoch;
    assert_eq!(offload(&lab), Some(dp::Offload { epoch, ..Default::default() }));
    switch.down(false);
    lab.until("the switch is used again", |lab| offload(lab).unwrap().forward_loss > 0).await;
    assert_eq!(lab.fake.state().generation, generation + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dataplane_that_was_started_anew_has_an_epoch_of_its_own() {
    let (mut lab, switch) = ready().await;
    let before = lose(&mut lab, 0.25).await.unwrap();
    lab.start_dataplane_anew(7);
    lab.until("the link is back with the switch", |lab| offload(lab).is_some()).await;
    let after = offload(&lab).unwrap();
    assert_ne!(after.epoch, before.epoch);
    assert!(slots(&switch).contains(&after.forward_loss));
    assert_eq!(lab.fake.state().offloads.last().unwrap().expected_instance, 7);
    assert_eq!(switch.pushes(), 1);
    // One that is started with another file has no switch, and the link is whole.
    declare(&mut lab, None, 8);
    lab.until("the link is back", |lab| lab.fake.state().generation == 1).await;
    assert_eq!(offload(&lab), None);
    assert_eq!(state(&lab).await.unwrap_err().code(), Code::FailedPrecondition);
}

fn count(packets: u64) -> Option<pb::Count> {
    Some(pb::Count { packets, bytes: 100 * packets })
}

/// Clients with numbers from 1, each with a thousand frames in both directions.
fn numbered(lab: &Lab, names: &[&str]) {
    let pipe =
        || Some(pb::PipeStats { received: count(1_000), sent: count(1_000), ..Default::default() });
    let client = |(name, number): (&&str, u32)| pb::ClientStats {
        client: (*name).into(),
        forward_pipe: pipe(),
        return_pipe: pipe(),
        number,
        ..Default::default()
    };
    lab.fake.state().stats.clients = names.iter().zip(1..).map(client).collect();
}

/// Lets the switch count frames of 100 bytes that came back from the box.
fn counted(switch: &Fake, number: u64, direction: u64, fate: u64, packets: u64) {
    let bytes = packets * 132;
    switch.count("linkemu.fates", (number << 1 | direction) << 3 | fate, Count { packets, bytes });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_switch_lost_is_in_one_account_with_all_else() {
    let (mut lab, switch) = ready().await;
    numbered(&lab, &["bypass", "default", "10.0.0.3", "10.0.0.4"]);
    lab.until("the clients are known", |_| switch.entries("linkemu.prefixes4").len() > 6).await;
    counted(&switch, 3, 0, 3, 30);
    counted(&switch, 3, 0, 4, 4);
    counted(&switch, 4, 1, 3, 7);
    let mut merged = pb::Stats::default();
    for _ in 0..200 {
        let stats = lab.client.get_stats(pb::GetStatsRequest::default()).await.unwrap();
        merged = stats.into_inner();
        assert!(merged.conservation().exact);
        if merged.conservation().sent == 7_959 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    use pb::DropReason::{Loss, Outage};
    let three = merged.clients[2].forward();
    let found = [three.sent(), three.dropped_for(Loss), three.dropped_for(Outage)];
    let packets = |packets| pb::Count { packets, bytes: 100 * packets };
    assert_eq!(found, [966, 30, 4].map(packets));
    assert_eq!(merged.clients[3].back().dropped_for(Loss), packets(7));
    // So they are where clients are listed, and watched.
    let request = pb::ListClientsRequest::default();
    let mut list = lab.client.list_clients(request).await.unwrap().into_inner();
    let clients = list.message().await.unwrap().unwrap().clients;
    let account = clients[2].forward_account.unwrap();
    assert_eq!((account.sent, account.dropped), (count(966), count(34)));
    let request = pb::WatchStatsRequest { interval_ns: 10_000_000, ..Default::default() };
    let mut watch = lab.client.watch_stats(request).await.unwrap().into_inner();
    for _ in 0..20 {
        let sums = watch.message().await.unwrap().unwrap().conservation();
        assert_eq!((sums.sent, sums.exact), (7_959, true));
    }
    let counts = state(&lab).await.unwrap().counts;
    let lost = counts.iter().find(|count| count.fate == "lost").unwrap();
    assert_eq!((lost.forward_count, lost.return_count), (count(30), count(7)));
    // A switch that does not answer has lost what it had.
    switch.down(true);
    until_event(&lab, pb::EventKind::SwitchLost, 1).await;
    let stats = lab.client.get_stats(pb::GetStatsRequest::default()).await.unwrap();
    assert_eq!(stats.into_inner().conservation().sent, 7_959);
}

/// Criteria of the switch that do not hold, with their values.
async fn failed_outside(lab: &Lab, mark: bool) -> Vec<(String, u64)> {
    let request = pb::GetCertificateRequest { mark, ..Default::default() };
    let mut certificates = CertificatesClient::new(lab.linkd());
    let found = certificates.get_certificate(request).await.unwrap().into_inner();
    let outside = |c: &&pb::Criterion| c.name.starts_with("switch_");
    // Without the one for stalls, if nobody has asked the switch for them.
    let count = found.criteria.iter().filter(outside).count();
    assert!((9..=10).contains(&count), "{:?}", found.criteria);
    let failed = found.criteria.into_iter().filter(|c| outside(&c) && !c.holds);
    failed.map(|c| (c.name, c.value)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_lost_between_switch_and_box_fail_the_certificate() {
    let (lab, switch) = ready().await;
    numbered(&lab, &["bypass", "default", "10.0.0.3"]);
    lab.until("the client is known", |_| switch.entries("linkemu.prefixes4").len() > 5).await;
    let port = |name: &str, received, sent| pb::PortStats {
        name: name.into(),
        received: count(received),
        sent: count(sent),
        ..Default::default()
    };
    let ports = |received, sent| {
        let stats = &mut lab.fake.state().stats;
        stats.ports = vec![port("wan", received, 0), port("client", 0, sent)];
        stats.span = Some(pb::Span { since_ns: stats.time_ns, marked: true, ..Default::default() });
    };
    // Two frames that were lost before the mark are not of the run.
    counted(&switch, 3, 0, 0, 1_000);
    counted(&switch, 3, 0, 1, 1_000);
    ports(998, 1_000);
    failed_outside(&lab, true).await;
    assert_eq!(failed_outside(&lab, false).await, []);
    counted(&switch, 3, 0, 0, 500);
    counted(&switch, 3, 0, 1, 480);
    ports(1_488, 1_490);
    // Counters of the switch are read again after 100 ms.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let lost = [("switch_to_box".to_owned(), 10), ("switch_from_box".to_owned(), 10)];
    assert_eq!(failed_outside(&lab, false).await, lost);
    // A restarted switch has lost counts.
    switch.restart();
    until_event(&lab, pb::EventKind::SwitchReady, 2).await;
    let failed = failed_outside(&lab, false).await;
    assert!(failed.contains(&("switch_gaps".to_owned(), 1)), "{failed:?}");
    switch.down(true);
    until_event(&lab, pb::EventKind::SwitchLost, 2).await;
    let failed = failed_outside(&lab, false).await;
    assert!(failed.contains(&("switch_gaps".to_owned(), 1)), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_is_moved_under_the_lease_and_follows_its_client() {
    let (lab, switch) = ready().await;
    numbered(&lab, &["bypass", "default", "10.0.0.3"]);
    lab.until("the client is known", |_| switch.entries("linkemu.prefixes4").len() > 5).await;
    gate(&lab, "10.0.0.3", true).await.unwrap();
    let told = until_event(&lab, pb::EventKind::SwitchGate, 1).await;
    assert_eq!(told[0].message, "the gate of 10.0.0.3 is closed in both directions");
    assert_eq!(told[0].subject, "10.0.0.3");
    let gates = || -> Vec<String> {
        switch.entries("linkemu.gates").iter().map(ToString::to_string).collect()
    };
    assert_eq!(gates().len(), 2, "{:?}", gates());
    let shown = state(&lab).await.unwrap().gates;
    assert_eq!(shown, [pb::Gate { client: "10.0.0.3".into(), direction: 0 }]);
    let unknown = gate(&lab, "nobody", true).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    assert!(unknown.message().contains("linkctl clients list"), "{}", unknown.message());
    // Another dataplane has another number for it.
    lab.fake.state().instance = 9;
    numbered(&lab, &["bypass", "default", "10.0.0.9", "10.0.0.3"]);
    lab.until("the gate is its client's", |_| {
        gates().len() == 2 && gates().iter().all(|gate| gate.contains("client=0x4"))
    })
    .await;
    let acquire = pb::AcquireLeaseRequest {
        holder: "ci".into(),
        ttl_ns: 60_000_000_000,
        ..Default::default()
    };
    let lease = LeasesClient::new(lab.linkd()).acquire_lease(acquire).await.unwrap().into_inner();
    assert_eq!(gate(&lab, "10.0.0.3", false).await.unwrap_err().code(), Code::FailedPrecondition);
    let gate = Some(pb::Gate { client: "10.0.0.3".into(), direction: 0 });
    let mut request = tonic::Request::new(pb::SetGateRequest { gate, closed: false });
    request.metadata_mut().insert(proto::LEASE_METADATA, lease.token.parse().unwrap());
    client(&lab).set_gate(request).await.unwrap();
    assert_eq!((gates().len(), state(&lab).await.unwrap().gates.len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_are_ordered_under_the_lease_and_follow_their_clients() {
    let (lab, switch) = ready().await;
    numbered(&lab, &["bypass", "default", "10.0.0.3"]);
    lab.until("the client is known", |_| switch.entries("linkemu.prefixes4").len() > 5).await;
    let order = |clients: &[&str], at: pb::MirrorPoint| pb::Mirror {
        clients: clients.iter().map(|&name| name.into()).collect(),
        direction: pb::Direction::Forward.into(),
        at: at.into(),
        ..Default::default()
    };
    let hosts = order(&["10.0.0.3"], pb::MirrorPoint::Hosts);
    mirror(&lab, hosts.clone()).await.unwrap();
    let told = until_event(&lab, pb::EventKind::SwitchMirror, 1).await;
    let message = "frames of 10.0.0.3 are copied forward, on their way to hosts";
    assert_eq!((&*told[0].message, &*told[0].subject), (message, "10.0.0.3"));
    let copies = || -> Vec<String> {
        switch.entries("linkemu.mirrors").iter().map(ToString::to_string).collect()
    };
    let is = |copies: &[String], client: &str| matches!(copies, [one] if one.contains(client) && one.contains("to_hosts=0x1"));
    assert!(is(&copies(), "client=0x3"), "{:?}", copies());
    switch.count("linkemu.mirrored", 2, Count { packets: 9, bytes: 900 });
    switch.count("linkemu.sent", 5, Count { packets: 7, bytes: 700 });
    let shown = state(&lab).await.unwrap().mirror.unwrap();
    assert_eq!((shown.port, shown.mirror.unwrap()), (5, hosts));
    assert_eq!((shown.forward_at_hosts.unwrap().packets, shown.sent.unwrap().packets), (9, 7));
    let unknown = mirror(&lab, order(&["10.0.0.3", "nobody"], pb::MirrorPoint::Hosts)).await;
    let unknown = unknown.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    assert!(unknown.message().starts_with("there is no client \"nobody\""), "{unknown:?}");
    // Another dataplane has other numbers.
    lab.fake.state().instance = 9;
    numbered(&lab, &["bypass", "default", "10.0.0.9", "10.0.0.3"]);
    lab.until("the copies are of its number", |_| is(&copies(), "client=0x4")).await;
    let acquire = pb::AcquireLeaseRequest {
        holder: "ci".into(),
        ttl_ns: 60_000_000_000,
        ..Default::default()
    };
    let lease = LeasesClient::new(lab.linkd()).acquire_lease(acquire).await.unwrap().into_inner();
    let refused = mirror(&lab, pb::Mirror::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let mut request = tonic::Request::new(pb::SetMirrorRequest { mirror: None });
    request.metadata_mut().insert(proto::LEASE_METADATA, lease.token.parse().unwrap());
    client(&lab).set_mirror(request).await.unwrap();
    assert_eq!(copies(), Vec::<String>::new());
    assert_eq!(state(&lab).await.unwrap().mirror.unwrap().mirror, Some(pb::Mirror::default()));
}

#[tokio::test(flavor = "multi_thread")]
async fn losses_of_a_scenarios_step_are_offloaded_after_it() {
    let (mut lab, switch) = ready().await;
    let first = lose(&mut lab, 0.25).await.unwrap();
    let generation = lab.fake.state().generation;
    run(&lab, "name = \"it\"\n[[step]]\nforward.packet_loss = \"50 %\"\n").await;
    lab.until("the switch has the new loss", |lab| {
        offload(lab)
            .is_some_and(|found| found.forward_loss > 0 && found.forward_loss != first.forward_loss)
    })
    .await;
    let found = offload(&lab).unwrap();
    assert!(slots(&switch).contains(&found.forward_loss) && found.epoch == first.epoch);
    assert_eq!(lab.fake.state().generation, generation + 1);
    let state = lab.scenario().await;
    assert_eq!(state.phase(), pb::ScenarioPhase::Finished, "{state:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scenario_goes_on_when_the_switch_takes_its_part() {
    let (mut lab, switch) = lost().await;
    lab.set("transparent").await.unwrap();
    let toml = "name = \"it\"\n[[step]]\nrepeat = \"forever\"\n[[step.step]]\nboth.rate = \"1 Mbit/s\"\n\
                [[step.step]]\nafter = \"3 s\"\n";
    let scenario = Some(pb::run_scenario_request::Scenario::Toml(toml.into()));
    let request = pb::RunScenarioRequest { scenario, ..Default::default() };
    let mut scenarios = ScenariosClient::new(lab.linkd());
    scenarios.run_scenario(request).await.unwrap();
    until_event(&lab, pb::EventKind::ScenarioStep, 1).await;
    switch.down(false);
    let told = until_event(&lab, pb::EventKind::SwitchOffloaded, 1).await;
    assert!(told[0].message.contains("the switch is ready"), "{}", told[0].message);
    let steps = of_kind(&lab, pb::EventKind::ScenarioStep).await.len();
    until_event(&lab, pb::EventKind::ScenarioStep, steps + 3).await;
    let state = lab.scenario().await;
    assert_eq!(state.phase(), pb::ScenarioPhase::Running, "{state:?}");
    assert!(offload(&lab).is_some());
}

/// Runs a scenario, until its first step is made.
async fn run(lab: &Lab, toml: &str) {
    let scenario = Some(pb::run_scenario_request::Scenario::Toml(toml.into()));
    let request = pb::RunScenarioRequest { scenario, ..Default::default() };
    let mut scenarios = ScenariosClient::new(lab.linkd());
    scenarios.run_scenario(request).await.unwrap();
    until_event(lab, pb::EventKind::ScenarioStep, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_switch_makes_no_step_late() {
    let (mut lab, switch) = ready().await;
    lose(&mut lab, 0.25).await.unwrap();
    switch.hang(true);
    run(&lab, "name = \"it\"\n[[step]]\nafter = \"1 s\"\nforward.packet_loss = \"50 %\"\n").await;
    let steps = of_kind(&lab, pb::EventKind::ScenarioStep).await;
    let late_ns = steps[0].scenario_step.as_ref().unwrap().late_ns;
    // An answer of the switch is waited for twice as long.
    assert!(late_ns < 500_000_000, "{late_ns}");
    let applies = lab.fake.state().applies.clone();
    let step = applies.iter().find(|apply| apply.at_ns.is_some()).unwrap();
    assert_eq!(step.plan.offload.unwrap().forward_loss, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_a_silent_switch_does_not_move_holds_up_no_change() {
    let (mut lab, switch) = ready().await;
    switch.hang(true);
    let closing = Some(pb::Gate::default());
    let mut client = client(&lab);
    let moving = tokio::spawn(async move {
        client.set_gate(pb::SetGateRequest { gate: closing, closed: true }).await
    });
    lab.patch(pb::Direction::Forward, &["rate_bps"], rate(7_000_000)).await.unwrap();
    assert!(!moving.is_finished());
    assert_eq!(moving.await.unwrap().unwrap_err().code(), Code::Unavailable);
}
