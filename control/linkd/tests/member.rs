// SPDX-License-Identifier: Apache-2.0
//! A linkd of a box of a group: what it lets pass to the dataplane, and what it refuses.

use crate::common::pki::{Ask, Authority, channel};
use crate::common::{Lab, only, to_profile};
use linkd::{Listen, Reload, Security};
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::dataplane_client::DataplaneClient;
use proto::linkemu::v1 as pb;
use serde_json::Value;
use std::net::SocketAddr;
use tonic::transport::Channel;
use tonic::{Code, Request};

pub struct Member {
    pub lab: Lab,
    pub authority: Authority,
    pub address: SocketAddr,
    pub reload: Reload,
}

impl Member {
    pub fn new(member: bool) -> Self {
        let authority = Authority::new();
        let server = authority.sign(&Ask::server());
        let (lab, address, reload) = Lab::with(|directory| Security {
            listen: Some(Listen {
                address: "127.0.0.1:0".parse().unwrap(),
                tls: authority.files(directory, &server),
            }),
            audit: Some(directory.join("audit.jsonl")),
            member,
            ..Security::default()
        });
        Self { lab, authority, address: address.unwrap(), reload }
    }

    fn dataplane(&self, name: &str, role: &str) -> DataplaneClient<Channel> {
        let role = format!("linkemu:role:{role}");
        let pair = self.authority.sign(&Ask::client(name, &[&role]));
        let channel = channel(self.authority.client(Some(&pair)), self.address, "linkemu.lab");
        DataplaneClient::new(channel)
    }

    pub fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.lab.directory.path().join("audit.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn set() -> dp::ApplyRequest {
    let profile = profile::Catalog::built_in().get("viasat2").unwrap().as_proto().clone();
    let change = dp::Change { profile: Some(profile), ..Default::default() };
    dp::LinkChange { change: Some(change), ..Default::default() }.into()
}

#[tokio::test]
async fn calls_of_an_admin_pass_to_the_dataplane_and_changes_are_audited() {
    let member = Member::new(true);
    let mut group = member.dataplane("group", "admin");
    let control = dp::ControlRequest { name: "linkd-group at b1".into() };
    let mut tokens = group.control(control).await.unwrap().into_inner();
    let token = tokens.message().await.unwrap().unwrap().token;
    // Its stream stays open, and answers pass back with their details.
    let tokened = |message| {
        let mut request = Request::new(message);
        request.metadata_mut().insert("linkemu-token", token.to_string().parse().unwrap());
        request
    };
    let made = group.apply(tokened(set())).await.unwrap().into_inner().into_one();
    assert_eq!(made.applied.unwrap().generation, 1);
    let mut wrong = set();
    wrong.changes[0].change.as_mut().unwrap().profile.as_mut().unwrap().forward_pipe = None;
    let refused = group.apply(tokened(wrong)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(!refused.details().is_empty());
    for _ in 0..5 {
        let plan = group.get_plan(dp::GetPlanRequest {}).await.unwrap().into_inner();
        assert_eq!(plan.applied.unwrap().generation, 1);
    }
    // Changes of this linkd itself are refused, with the controller's name; it shows the link.
    let mut own = member.lab.client.clone();
    let refused = own.update_links(only(to_profile("starlink"))).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("--member"), "{}", refused.message());
    assert!(refused.message().contains("linkd-group at b1"), "{}", refused.message());
    let link = own.get_link(pb::GetLinkRequest::default()).await.unwrap().into_inner();
    assert_eq!(link.applied.unwrap().generation, 1);
    let audit = member.audit();
    let of = |method: &str, event: &str| -> Vec<&Value> {
        let is = |line: &&Value| line["method"] == method && line["event"] == event;
        audit.iter().filter(is).collect()
    };
    let asked = of("dataplane.v1.Dataplane/Apply", "asked");
    assert_eq!(asked.len(), 2);
    assert_eq!((&asked[0]["who"], asked[0].get("request")), (&"group".into(), None));
    assert_eq!(of("dataplane.v1.Dataplane/Apply", "answered").len(), 2);
    assert_eq!(of("dataplane.v1.Dataplane/Control", "asked").len(), 1);
    assert!(of("dataplane.v1.Dataplane/GetPlan", "asked").is_empty());
    // The stream ends with its caller.
    drop((tokens, group));
    let mut another = member.dataplane("group", "admin");
    member
        .lab
        .until("the dataplane has no controller", |_| {
            let state = member.lab.fake.state();
            state.controllers.check(&Request::new(())).is_ok()
        })
        .await;
    let control = dp::ControlRequest { name: "another".into() };
    another.control(control).await.unwrap();
}

#[tokio::test]
async fn others_do_not_reach_the_dataplane() {
    let member = Member::new(true);
    for role in ["viewer", "operator"] {
        let mut client = member.dataplane("eve", role);
        let refused = client.get_plan(dp::GetPlanRequest {}).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{role}");
        let refused = client.control(dp::ControlRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{role}");
    }
    let ordinary = Member::new(false);
    let mut client = ordinary.dataplane("group", "admin");
    let refused = client.get_plan(dp::GetPlanRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

#[tokio::test]
async fn member_without_a_dataplane_says_so() {
    let mut member = Member::new(true);
    member.lab.running = None;
    let mut client = member.dataplane("group", "admin");
    let refused = client.get_plan(dp::GetPlanRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("start linkd-dataplane"), "{}", refused.message());
}
