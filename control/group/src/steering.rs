// SPDX-License-Identifier: Apache-2.0
//! Limits of a group: the switch steers a client to its box by its address, prefix, VLAN or MAC
//! alone, and nothing is shared by clients of different boxes.

use profile::Violations;
use proto::linkemu::v1 as pb;

/// Checks that clients can be distributed over boxes.
///
/// # Errors
/// Each place that needs one box, with the remedy.
pub fn check(clients: &pb::Clients) -> Result<(), Violations> {
    let mut found = Violations::default();
    for (place, client) in clients.clients.iter().enumerate() {
        if !client.matches.is_empty() {
            found.push(
                format!("client[{place}].match"),
                format!(
                    "client {:?}: the switch cannot steer to the boxes of a group by matches: give \
                     prefixes, vlans or macs, or use one box",
                    client.name
                ),
            );
        }
    }
    if !clients.beams.is_empty() {
        found.push(
            "beam",
            format!(
                "{} beams: clients of different boxes cannot share a rate: give each client its own \
                 rate, or use one box",
                clients.beams.len()
            ),
        );
    }
    if let Some(automatic) = &clients.automatic {
        if let Some(limit) = automatic.limit {
            found.push(
                "automatic.limit",
                format!(
                    "{limit}: boxes of a group do not count their automatic clients together: \
                     remove it, set memory.max_clients in the file of each box, or use one box"
                ),
            );
        }
        if !automatic.beam.is_empty() {
            let why = "clients of different boxes cannot share a rate: remove it, or use one box";
            found.push("automatic.beam", why);
        }
    }
    found.into_result()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_one_box_is_refused_with_the_place() {
        let plain = pb::Client { name: "a".into(), vlans: vec![7], ..Default::default() };
        let matched = pb::Client {
            name: "b".into(),
            matches: vec![pb::Match { protocol: "tcp".into(), ..Default::default() }],
            ..Default::default()
        };
        let automatic = pb::Automatic { limit: Some(0), beam: "x".into(), weight: 0 };
        let clients = pb::Clients {
            clients: vec![plain.clone(), matched],
            automatic: Some(automatic),
            beams: vec![pb::Beam { name: "x".into(), ..Default::default() }],
        };
        let found = check(&clients).unwrap_err();
        let paths: Vec<_> = found.iter().map(|it| it.path.clone()).collect();
        assert_eq!(paths, ["client[1].match", "beam", "automatic.limit", "automatic.beam"]);
        assert!(found.iter().all(|it| it.message.contains("use one box")));
        let plain = pb::Clients { clients: vec![plain], ..Default::default() };
        assert!(check(&plain).is_ok());
        let automatic = Some(pb::Automatic::default());
        assert!(check(&pb::Clients { automatic, ..plain }).is_ok());
    }
}
