// SPDX-License-Identifier: Apache-2.0
//! linkd-group and its boxes over TLS: two linkd with `--member`, each with its own certificate authority.

use crate::common::pki::{Ask, Authority, Pair};
use crate::member::Member;
use fake::declared_switch;
use group::file::GroupFile;
use group::group::Group;
use owner::{Changes, Terms};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);
const ADMIN: &[&str] = &["linkemu:role:admin"];

/// The group's files for a box.
struct Files {
    directory: PathBuf,
    name: String,
}

impl Files {
    fn path(&self, end: &str) -> PathBuf {
        self.directory.join(format!("{}.{end}", self.name))
    }

    fn ca(&self, authority: &Authority) {
        std::fs::write(self.path("ca"), &authority.pem).unwrap();
    }

    fn own(&self, pair: &Pair) {
        // linkd-group reads them at any time: a key and the certificate of another are refused.
        std::fs::write(self.path("pem"), &pair.pem).unwrap();
        std::fs::write(self.path("key"), &pair.key).unwrap();
        std::fs::set_permissions(self.path("key"), Permissions::from_mode(0o600)).unwrap();
    }

    fn entry(&self, member: &Member) -> String {
        let at = |end: &str| self.path(end).display().to_string();
        format!(
            "[[box]]\nname = \"{}\"\ndataplane = \"https://{}\"\nca = \"{}\"\ncert = \"{}\"\n\
             key = \"{}\"\n",
            self.name,
            member.address,
            at("ca"),
            at("pem"),
            at("key")
        )
    }
}

struct Bed {
    _directory: TempDir,
    members: Vec<Member>,
    files: Vec<Files>,
    group: Group,
}

impl Bed {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (mut members, mut files, mut text) = (Vec::new(), Vec::new(), String::new());
        for place in 0..2 {
            let member = Member::new(true);
            {
                let mut state = member.lab.fake.state();
                state.instance = 100 + u64::from(place);
                state.room = Some(pb::Room { clients: 16, workers: 1, ..Default::default() });
                let boxes =
                    vec![dp::SwitchBox { wan_port: 10 + 2 * place, client_port: 11 + 2 * place }];
                let switch = declared_switch("http://127.0.0.1:9559");
                state.switch = Some(dp::Switch { boxes, sharing: 2, ..switch });
            }
            let own = Files { directory: directory.path().to_owned(), name: name(place) };
            own.ca(&member.authority);
            own.own(&admin(&member.authority));
            text += &own.entry(&member);
            members.push(member);
            files.push(own);
        }
        let file = GroupFile::parse(&text, Path::new("group.toml")).unwrap();
        let group = Group::new(file, 7);
        let keeping = group.clone();
        tokio::spawn(async move { keeping.keep("test").await });
        Self { _directory: directory, members, files, group }
    }

    /// Waits until a box satisfies a condition, and returns its state.
    async fn until(&self, place: usize, is: impl Fn(&dp::Box) -> bool) -> dp::Box {
        let mut last = Vec::new();
        let wait = async {
            loop {
                let box_ = self.group.boxes().swap_remove(place);
                if is(&box_) {
                    return box_;
                }
                last.push(box_.message);
                last.dedup();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, wait).await;
        found.unwrap_or_else(|_| panic!("not within {PATIENCE:?}; messages: {last:#?}"))
    }

    /// Waits until the second box is down with these words. The first one is not affected.
    async fn refused(&self, words: &str) {
        let down = self.until(1, |it| !it.up && it.message.contains(words)).await;
        println!("{}: {}", down.name, down.message);
        self.until(0, |it| it.up).await;
    }
}

fn name(place: u32) -> String {
    format!("b{}", place + 1)
}

fn admin(authority: &Authority) -> Pair {
    authority.sign(&Ask::client("group", ADMIN))
}

fn change(profile: &str) -> dp::Change {
    let profile = profile::Catalog::built_in().get(profile).unwrap().as_proto().clone();
    dp::Change { profile: Some(profile), ..Default::default() }
}

/// The statistics of a box that forwarded so many packets of a client.
fn stats(packets: u64) -> pb::Stats {
    let sent = Some(pb::Count { packets, bytes: 100 * packets });
    let pipe = pb::PipeStats { received: sent, sent, ..Default::default() };
    let client = pb::ClientStats {
        client: "10.0.0.2".into(),
        forward_pipe: Some(pipe),
        return_pipe: Some(pb::PipeStats::default()),
        ..Default::default()
    };
    pb::Stats { clients: vec![client], ..Default::default() }
}

#[tokio::test]
async fn group_changes_and_sums_boxes_over_tls() {
    let bed = Bed::new();
    tokio::time::timeout(PATIENCE, bed.group.settle()).await.unwrap().unwrap();
    let made = bed.group.apply(change("viasat2"), Terms::default()).await.unwrap();
    for (member, packets) in bed.members.iter().zip([30, 12]) {
        assert_eq!(member.lab.in_force().name, "viasat2");
        let mut state = member.lab.fake.state();
        assert_eq!(state.generation, made.applied.generation);
        // As an instant on its own clock.
        assert!(state.applies.last().unwrap().at_ns.is_some());
        state.stats = stats(packets);
    }
    let sum = bed.group.stats(false).await.unwrap();
    let client = sum.clients.iter().find(|it| it.client == "10.0.0.2").unwrap();
    assert_eq!(client.forward_pipe.as_ref().unwrap().sent.unwrap().packets, 42);
    for member in &bed.members {
        let audit = member.audit();
        let control = audit.iter().find(|it| it["method"] == "dataplane.v1.Dataplane/Control");
        assert_eq!(control.unwrap()["who"], "group");
    }
}

#[tokio::test]
async fn box_with_a_wrong_certificate_is_down_with_the_reason() {
    let bed = Bed::new();
    tokio::time::timeout(PATIENCE, bed.group.settle()).await.unwrap().unwrap();
    bed.group.apply(change("viasat2"), Terms::default()).await.unwrap();
    let (member, files) = (&bed.members[1], &bed.files[1]);
    let (own, foreign) = (&member.authority, Authority::named("foreign"));
    let directory = member.lab.directory.path();
    let server = own.sign(&Ask::server());

    // The box does not know the authority of the group's certificate any longer.
    own.files(directory, &server);
    std::fs::write(directory.join("ca.pem"), &foreign.pem).unwrap();
    member.reload.reload().unwrap();
    bed.refused("it does not know the authority that signed your certificate").await;
    let lost = bed.group.boxes().swap_remove(1);
    assert!(lost.message.contains(&member.address.to_string()), "{}", lost.message);
    own.files(directory, &server);
    member.reload.reload().unwrap();
    bed.until(1, |it| it.up && it.current).await;

    // Again, and the group does not know that of the box's certificate.
    std::fs::write(directory.join("ca.pem"), &foreign.pem).unwrap();
    member.reload.reload().unwrap();
    bed.refused("it does not know the authority").await;
    foreign.files(directory, &foreign.sign(&Ask::server()));
    std::fs::write(directory.join("ca.pem"), &own.pem).unwrap();
    member.reload.reload().unwrap();
    bed.refused("its certificate is not signed by an authority of ca in the group file").await;

    // Certificates of the group that are no good: linkd-group reads them at each attempt.
    own.files(directory, &server);
    std::fs::remove_file(files.path("pem")).unwrap();
    member.reload.reload().unwrap();
    bed.refused("b2.pem: No such file").await;
    files.own(&own.sign(&Ask { days: (-2, -1), ..Ask::client("group", ADMIN) }));
    bed.refused("b2.pem: it expired at").await;
    files.own(&own.sign(&Ask::client("group", &["linkemu:role:operator"])));
    bed.refused("role").await;
    // A change is made without it.
    bed.group.apply(change("starlink"), Terms::default()).await.unwrap();
    assert_eq!(bed.members[0].lab.in_force().name, "starlink");

    files.own(&admin(own));
    bed.until(1, |it| it.up && it.current).await;
    assert_eq!(member.lab.in_force().name, "starlink");
}

#[tokio::test]
async fn group_waits_for_a_box_with_its_reason() {
    let bed = Bed::new();
    let other = Authority::named("another");
    bed.files[1].own(&admin(&other));
    bed.refused("it does not know the authority").await;
    let refused = bed.group.describe().unwrap_err();
    for words in ["b2 (no connection to https://", "it does not know the authority"] {
        assert!(refused.message().contains(words), "{}", refused.message());
    }
    bed.files[1].own(&admin(&bed.members[1].authority));
    tokio::time::timeout(PATIENCE, bed.group.settle()).await.unwrap().unwrap();
}
