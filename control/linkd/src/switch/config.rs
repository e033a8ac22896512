// SPDX-License-Identifier: Apache-2.0
//! The configuration of a session, from the box file's description of the switch.

use proto::dataplane::v1 as dp;
use std::path::{Path, PathBuf};
use switch::{Config, Format, MAX_BOXES, Program, Sides, Target, Tls};

fn format(declared: &dp::Switch) -> Result<Option<Format>, String> {
    match dp::SwitchFormat::try_from(declared.format) {
        Ok(dp::SwitchFormat::Unspecified) => Ok(None),
        Ok(dp::SwitchFormat::Stratum) => Ok(Some(Format::Stratum)),
        Ok(dp::SwitchFormat::BfSwitchd) => Ok(Some(Format::BfSwitchd)),
        Err(_) => Err("the dataplane names an unknown format: it is of another version".into()),
    }
}

pub(super) fn config(declared: &dp::Switch) -> Result<Config, String> {
    let target = match declared.target() {
        dp::SwitchTarget::Bmv2 => Target::Bmv2,
        dp::SwitchTarget::Swx => Target::Swx,
        dp::SwitchTarget::Tofino => Target::Tofino,
        dp::SwitchTarget::Unspecified => {
            return Err("the dataplane does not say what it is: it is of another version".into());
        }
    };
    let program = match (declared.program.as_str(), target) {
        ("", Target::Bmv2) => Program::embedded(p4src::BMV2_JSON, p4src::BMV2_P4INFO),
        ("", Target::Swx) => Program::embedded(p4src::SWX_SPEC, p4src::SWX_P4INFO),
        ("", Target::Tofino) => {
            return Err("linkd brings no program for a Tofino: name the directory of yours as \
                 `program` in the box's file"
                .into());
        }
        (directory, target) => Program::read(Path::new(directory), target, format(declared)?)
            .map_err(|error| format!("{error}; see `program` in the box's file"))?,
    };
    let dp::Switch { address, device, election, boxes, .. } = declared;
    if boxes.is_empty() || boxes.len() > MAX_BOXES {
        let boxes = boxes.len();
        return Err(format!("{boxes} boxes are behind it: there can be 1 to {MAX_BOXES}"));
    }
    let port = |port: &u32| u16::try_from(*port).unwrap_or(u16::MAX);
    let ports = |ports: &[u32]| ports.iter().map(port).collect();
    let tls = declared.tls.as_ref().map(|tls| {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let path = |text| given(text).map(PathBuf::from);
        Tls {
            ca: PathBuf::from(&tls.ca),
            own: path(&tls.cert).zip(path(&tls.key)),
            server_name: given(&tls.server_name),
        }
    });
    Ok(Config {
        address: address.clone(),
        tls,
        device: *device,
        election: *election,
        target,
        boxes: boxes
            .iter()
            .map(|of| Sides { wan: port(&of.wan_port), client: port(&of.client_port) })
            .collect(),
        host_ports: Sides {
            wan: ports(&declared.wan_ports),
            client: ports(&declared.client_ports),
        },
        mirror_port: declared.mirror_port.as_ref().map(port),
        stages: switch::Stages {
            classifies: declared.classifies,
            loses: declared.loses,
            marks: declared.marks,
        },
        program,
    })
}
