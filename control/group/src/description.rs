// SPDX-License-Identifier: Apache-2.0
//! The boxes as one dataplane: what `Describe` answers, and whether the boxes fit together.
//!
//! | field | of the group |
//! |---|---|
//! | ports | those of all boxes, as `wan.b1` |
//! | max_clients, memory | the sum |
//! | longest frame | the least |
//! | room | the least of each figure: any client may be on any box, and each box holds the whole plan, with a slot for every named client |
//! | switch | that of the boxes, with the ports of all |

use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use shim::{Numbers, Tick};

/// A box that has been described.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    pub name: &'a str,
    pub box_: &'a dp::DescribeResponse,
}

/// The ports of the switch that lead to a box.
fn box_ports(switch: &dp::Switch) -> Vec<u32> {
    switch.boxes.iter().flat_map(|it| [it.wan_port, it.client_port]).collect()
}

/// Why a box cannot be in a group of this size.
#[must_use]
pub fn unfit(it: Described<'_>, group: usize) -> Option<String> {
    let name = it.name;
    let Some(switch) = &it.box_.switch else {
        return Some(format!(
            "box {name} has no P4 switch: describe it under [switch] in its box file"
        ));
    };
    let boxes = switch.boxes.len();
    if boxes != 1 {
        return Some(format!(
            "box {name} says that {boxes} boxes are behind its switch: is it a group itself?"
        ));
    }
    let sharing = usize::try_from(switch.sharing.max(1)).unwrap_or(usize::MAX);
    (sharing != group).then(|| {
        format!(
            "box {name} numbers its clients for {sharing} boxes and the group has {group}: set \
             switch.boxes = {group} in its box file"
        )
    })
}

/// Why two boxes cannot be in one group: key, both values and remedy.
#[must_use]
pub fn disagreement(one: Described<'_>, other: Described<'_>, group: usize) -> Option<String> {
    if let Some(unfit) = unfit(one, group).or_else(|| unfit(other, group)) {
        return Some(unfit);
    }
    let (a, b) = (one.box_.switch.as_ref()?, other.box_.switch.as_ref()?);
    let stages = |it: &dp::Switch| {
        let all = [("classification", it.classifies), ("loss", it.loses), ("marking", it.marks)];
        let named = all.into_iter().filter(|(_, does)| *does).map(|(name, _)| name);
        format!("[{}]", named.collect::<Vec<_>>().join(", "))
    };
    let workers = |it: Described<'_>| it.box_.room.unwrap_or_default().workers.to_string();
    let list = |ports: &[u32]| format!("{ports:?}");
    let mirror = |it: &dp::Switch| it.mirror_port.map_or("absent".to_owned(), |it| it.to_string());
    let target = |it: &dp::Switch| it.target().as_str_name().to_lowercase();
    let values = [
        ("switch.address", a.address.clone(), b.address.clone()),
        ("switch.device", a.device.to_string(), b.device.to_string()),
        ("switch.target", target(a), target(b)),
        ("switch.wan", list(&a.wan_ports), list(&b.wan_ports)),
        ("switch.client", list(&a.client_ports), list(&b.client_ports)),
        ("switch.mirror", mirror(a), mirror(b)),
        ("switch.stages", stages(a), stages(b)),
        ("switch.program", a.program.clone(), b.program.clone()),
        ("the number of workers", workers(one), workers(other)),
    ];
    let differs = values.into_iter().find(|(_, mine, theirs)| mine != theirs);
    if let Some((key, mine, theirs)) = differs {
        return Some(format!(
            "{key} is {mine} at box {} and {theirs} at box {}: give both box files the same value",
            one.name, other.name
        ));
    }
    let mine = box_ports(a);
    let twice = box_ports(b).into_iter().find(|port| mine.contains(port))?;
    Some(format!(
        "port {twice} of the switch leads to box {} and to box {}: each box has its own \
         switch.box_wan and switch.box_client",
        one.name, other.name
    ))
}

/// The answer for all boxes, in the order of the file.
#[must_use]
pub fn merge(boxes: &[Described<'_>], instance: u64) -> dp::DescribeResponse {
    let all = || boxes.iter().map(|it| it.box_);
    let rooms = || all().filter_map(|it| it.room);
    let least = |of: fn(&pb::Room) -> u32| rooms().map(|it| of(&it)).min().unwrap_or_default();
    let least_wide = |of: fn(&pb::Room) -> u64| rooms().map(|it| of(&it)).min().unwrap_or_default();
    let most = |of: fn(&pb::Room) -> u32| rooms().map(|it| of(&it)).max().unwrap_or_default();
    let ports = boxes.iter().flat_map(|it| {
        it.box_.ports.iter().map(|port| {
            let name = format!("{}.{}", port.name, it.name);
            dp::Port { name, ..port.clone() }
        })
    });
    let switch = all().find_map(|it| it.switch.as_ref()).map(|switch| {
        let boxes = all().filter_map(|it| it.switch.as_ref()).flat_map(|it| it.boxes.clone());
        dp::Switch { boxes: boxes.collect(), ..switch.clone() }
    });
    dp::DescribeResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        dpdk: all().map(|it| it.dpdk.clone()).next().unwrap_or_default(),
        ports: ports.collect(),
        max_clients: all().map(|it| it.max_clients).fold(0, u32::saturating_add),
        memory_bytes: all().map(|it| it.memory_bytes).fold(0, u64::saturating_add),
        max_frame_bytes: all().map(|it| it.max_frame_bytes).min().unwrap_or_default(),
        room: Some(pb::Room {
            clients: least(|it| it.clients),
            port_bps: least_wide(|it| it.port_bps),
            frame_bytes: least(|it| it.frame_bytes),
            memory_bytes: least_wide(|it| it.memory_bytes),
            workers: least(|it| it.workers),
            shim_bytes: most(|it| it.shim_bytes),
            pair_bytes: most(|it| it.pair_bytes),
        }),
        instance,
        switch,
    }
}

/// Client numbers of each box in the switch, for this number of boxes.
#[must_use]
pub fn numbers(switch: Option<&dp::Switch>, boxes: usize) -> u32 {
    let tick = match switch.map(dp::Switch::target) {
        Some(dp::SwitchTarget::Bmv2 | dp::SwitchTarget::Swx) => Tick::Microsecond,
        _ => Tick::Nanosecond,
    };
    let boxes = u32::try_from(boxes).unwrap_or(u32::MAX);
    Numbers::of_first(tick, 1).shared_by(boxes).room
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(box_wan: u32) -> dp::DescribeResponse {
        let boxes = vec![dp::SwitchBox { wan_port: box_wan, client_port: box_wan + 1 }];
        let switch =
            dp::Switch { boxes, sharing: 2, ..fake::declared_switch("http://127.0.0.1:9559") };
        dp::DescribeResponse {
            ports: vec![dp::Port { name: "wan".into(), ..Default::default() }],
            max_clients: 16,
            memory_bytes: 1 << 30,
            max_frame_bytes: 1514,
            room: Some(pb::Room {
                clients: 16,
                port_bps: u64::from(box_wan) * 1_000_000_000,
                memory_bytes: 1 << 30,
                workers: 2,
                ..Default::default()
            }),
            switch: Some(switch),
            ..Default::default()
        }
    }

    #[test]
    fn boxes_are_one_dataplane_with_the_room_of_the_least() {
        let (one, other) = (described(10), described(1));
        let boxes = [Described { name: "b1", box_: &one }, Described { name: "b2", box_: &other }];
        assert_eq!(disagreement(boxes[0], boxes[1], 2), None);
        let merged = merge(&boxes, 7);
        let ports: Vec<_> = merged.ports.iter().map(|port| &*port.name).collect();
        assert_eq!(ports, ["wan.b1", "wan.b2"]);
        assert_eq!((merged.max_clients, merged.memory_bytes, merged.instance), (32, 2 << 30, 7));
        let room = merged.room.unwrap();
        assert_eq!((room.clients, room.port_bps, room.workers), (16, 1_000_000_000, 2));
        let boxes: Vec<_> = merged.switch.iter().flat_map(box_ports).collect();
        assert_eq!(boxes, [10, 11, 1, 2]);
        assert_eq!(numbers(merged.switch.as_ref(), 3), 1024);
    }

    #[test]
    fn boxes_of_different_switches_are_refused_with_both_values() {
        type Spoil = fn(&mut dp::DescribeResponse);
        let spoil: [(&str, Spoil); 9] = [
            ("numbers its clients for 3 boxes and the group has 2", |it| switch(it).sharing = 3),
            ("switch.address is", |it| switch(it).address = "http://x:1".into()),
            ("switch.device is 1 at box b1 and 2 at box b2", |it| switch(it).device = 2),
            ("switch.target is", |it| switch(it).target = dp::SwitchTarget::Swx as i32),
            ("switch.wan is [3] at box b1 and [5]", |it| switch(it).wan_ports = vec![5]),
            ("switch.mirror is 5 at box b1 and absent", |it| switch(it).mirror_port = None),
            ("switch.stages is", |it| switch(it).loses = false),
            ("the number of workers is 2 at box b1 and 4 at box b2", |it| {
                it.room.get_or_insert_default().workers = 4;
            }),
            ("box b2 has no P4 switch", |it| it.switch = None),
        ];
        let one = described(10);
        fn named<'a>(name: &'a str, box_: &'a dp::DescribeResponse) -> Described<'a> {
            Described { name, box_ }
        }
        for (words, spoil) in spoil {
            let mut other = described(20);
            spoil(&mut other);
            let told = disagreement(named("b1", &one), named("b2", &other), 2).unwrap();
            assert!(told.contains(words), "{told}");
        }
        let told = disagreement(named("b1", &one), named("b2", &described(11)), 2).unwrap();
        assert!(told.contains("port 11 of the switch leads to box b1 and to box b2"), "{told}");
    }

    fn switch(it: &mut dp::DescribeResponse) -> &mut dp::Switch {
        it.switch.get_or_insert_default()
    }
}
