// SPDX-License-Identifier: Apache-2.0
//! The P4 switch between the hosts and the box, as the box's file describes it.
//!
//! The dataplane never talks to it. It takes and gives shims ([`shim`]) because there is
//! one, and tells linkd, which controls it, where it is and what it may do.

use boxfile::{Format, Stage, Switch, SwitchTls as Tls, Target};
use proto::dataplane::v1 as pb;
use shim::{Numbers, Tick};

fn target(target: Target) -> pb::SwitchTarget {
    match target {
        Target::Bmv2 => pb::SwitchTarget::Bmv2,
        Target::Swx => pb::SwitchTarget::Swx,
        Target::Tofino => pb::SwitchTarget::Tofino,
    }
}

/// The unit of a switch's clock.
fn tick(target: pb::SwitchTarget) -> Tick {
    match target {
        pb::SwitchTarget::Bmv2 | pb::SwitchTarget::Swx => Tick::Microsecond,
        pb::SwitchTarget::Tofino | pb::SwitchTarget::Unspecified => Tick::Nanosecond,
    }
}

/// How this switch numbers the clients of several workers; those of the first one.
#[must_use]
pub fn numbers(switch: &Switch, workers: usize) -> Numbers {
    numbers_of(target(switch.target), switch.boxes, workers)
}

/// The same, as `Describe` says it.
#[must_use]
pub fn numbers_described(switch: &pb::Switch, workers: usize) -> Numbers {
    numbers_of(switch.target(), switch.sharing, workers)
}

fn numbers_of(target: pb::SwitchTarget, boxes: u32, workers: usize) -> Numbers {
    let workers = u16::try_from(workers).unwrap_or(u16::MAX);
    Numbers::of_first(tick(target), workers).shared_by(boxes)
}

fn format(format: Option<Format>) -> pb::SwitchFormat {
    match format {
        None => pb::SwitchFormat::Unspecified,
        Some(Format::Stratum) => pb::SwitchFormat::Stratum,
        Some(Format::BfSwitchd) => pb::SwitchFormat::BfSwitchd,
    }
}

fn tls(tls: &Tls) -> pb::SwitchTls {
    let Tls { ca, own, server_name } = tls;
    let (cert, key) = own.clone().unwrap_or_default();
    pb::SwitchTls { ca: ca.clone(), cert, key, server_name: server_name.clone() }
}

/// A switch as `Describe` says it.
#[must_use]
pub fn describe(switch: &Switch) -> pb::Switch {
    let may = |stage| switch.stages.contains(&stage);
    let [wan_port, client_port] = switch.to_box;
    pb::Switch {
        address: switch.address.clone(),
        device: switch.device,
        target: target(switch.target).into(),
        election: switch.election.get(),
        boxes: vec![pb::SwitchBox { wan_port, client_port }],
        wan_ports: switch.wan.clone(),
        client_ports: switch.client.clone(),
        mirror_port: switch.mirror,
        classifies: may(Stage::Classification),
        loses: may(Stage::Loss),
        marks: may(Stage::Marking),
        program: switch.program.clone(),
        sharing: switch.boxes,
        tls: switch.tls.as_ref().map(tls),
        format: format(switch.format).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use boxfile::SwitchFile;

    #[test]
    fn switch_is_described() {
        let text = "target = \"tofino\"\naddress = \"https://[::1]:50051\"\ndevice = 0\n\
                    ca = \"/a/ca.pem\"\nformat = \"bf_switchd\"\ncert = \"/a/p4.pem\"\nkey = \"/a/p4.key\"\n\
                    election = 7\nboxes = 3\nbox_wan = 510\nbox_client = 64\nwan = [1, 2, 3]\nclient = [4]\nmirror = 9\n\
                    stages = [\"loss\"]\nprogram = \"/usr/share/linkemu\"";
        let file: SwitchFile = toml::from_str(text).unwrap();
        let switch = Switch::new(&file).unwrap();
        let expected = pb::Switch {
            address: "https://[::1]:50051".into(),
            device: 0,
            target: pb::SwitchTarget::Tofino.into(),
            election: 7,
            boxes: vec![pb::SwitchBox { wan_port: 510, client_port: 64 }],
            wan_ports: vec![1, 2, 3],
            client_ports: vec![4],
            mirror_port: Some(9),
            classifies: false,
            loses: true,
            marks: false,
            program: "/usr/share/linkemu".into(),
            sharing: 3,
            tls: Some(pb::SwitchTls {
                ca: "/a/ca.pem".into(),
                cert: "/a/p4.pem".into(),
                key: "/a/p4.key".into(),
                server_name: String::new(),
            }),
            format: pb::SwitchFormat::BfSwitchd.into(),
        };
        assert_eq!(describe(&switch), expected);
        let four = Numbers::of_first(Tick::Nanosecond, 4).shared_by(3);
        assert_eq!((numbers(&switch, 4), numbers_described(&expected, 4)), (four, four));
        let all = Switch {
            target: Target::Bmv2,
            stages: vec![Stage::Classification, Stage::Loss, Stage::Marking],
            ..switch
        };
        let told = describe(&all);
        assert!(told.classifies && told.loses && told.marks);
        assert_eq!(numbers(&all, 1), Numbers::of_first(Tick::Microsecond, 1).shared_by(3));
    }
}
