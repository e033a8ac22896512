// SPDX-License-Identifier: Apache-2.0
//! The P4 switch between the hosts and the box, as the box's file describes it.
//!
//! The dataplane never talks to it. It takes and gives shims ([`shim`]) because there is
//! one, and tells linkd, which controls it, where it is and what it may do.

use boxfile::{Stage, Switch, Target};
use proto::dataplane::v1 as pb;
use shim::Tick;

fn target(target: Target) -> pb::SwitchTarget {
    match target {
        Target::Bmv2 => pb::SwitchTarget::Bmv2,
        Target::Swx => pb::SwitchTarget::Swx,
        Target::Tofino => pb::SwitchTarget::Tofino,
    }
}

/// The unit of a switch's clock.
pub(crate) fn tick(target: pb::SwitchTarget) -> Tick {
    match target {
        pb::SwitchTarget::Bmv2 | pb::SwitchTarget::Swx => Tick::Microsecond,
        pb::SwitchTarget::Tofino | pb::SwitchTarget::Unspecified => Tick::Nanosecond,
    }
}

/// The unit of this switch's clock.
#[must_use]
pub fn tick_of(switch: &Switch) -> Tick {
    tick(target(switch.target))
}

/// A switch as `Describe` says it.
#[must_use]
pub fn describe(switch: &Switch) -> pb::Switch {
    let may = |stage| switch.stages.contains(&stage);
    let [box_wan_port, box_client_port] = switch.to_box;
    pb::Switch {
        address: switch.address.clone(),
        device: switch.device,
        target: target(switch.target).into(),
        election: switch.election.get(),
        box_wan_port,
        box_client_port,
        wan_ports: switch.wan.clone(),
        client_ports: switch.client.clone(),
        classifies: may(Stage::Classification),
        loses: may(Stage::Loss),
        marks: may(Stage::Marking),
        program: switch.program.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use boxfile::SwitchFile;

    #[test]
    fn switch_is_described() {
        let text = "target = \"tofino\"\naddress = \"http://[::1]:50051\"\ndevice = 0\n\
                    election = 7\nbox_wan = 510\nbox_client = 64\nwan = [1, 2, 3]\nclient = [4]\n\
                    stages = [\"loss\"]\nprogram = \"/usr/share/linkemu\"";
        let file: SwitchFile = toml::from_str(text).unwrap();
        let switch = Switch::new(&file).unwrap();
        let expected = pb::Switch {
            address: "http://[::1]:50051".into(),
            device: 0,
            target: pb::SwitchTarget::Tofino.into(),
            election: 7,
            box_wan_port: 510,
            box_client_port: 64,
            wan_ports: vec![1, 2, 3],
            client_ports: vec![4],
            classifies: false,
            loses: true,
            marks: false,
            program: "/usr/share/linkemu".into(),
        };
        assert_eq!(describe(&switch), expected);
        assert_eq!(tick_of(&switch), Tick::Nanosecond);
        let all = Switch {
            target: Target::Bmv2,
            stages: vec![Stage::Classification, Stage::Loss, Stage::Marking],
            ..switch
        };
        let told = describe(&all);
        assert!(told.classifies && told.loses && told.marks);
        assert_eq!(tick_of(&all), Tick::Microsecond);
    }
}
