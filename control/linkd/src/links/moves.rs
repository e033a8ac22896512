// SPDX-License-Identifier: Apache-2.0
//! Which links lose packets to another link by a change of its rules, and which get some.
//!
//! Pure: a lease protects the packets of its link ([`Moves::from`]), and its holder is told of packets that
//! come ([`Moves::to`]). An access link and the shared link that its packets also pass are both affected.

use emu::rules::{Rule, taken};
use proto::linkemu::v1 as pb;
use proto::{MAIN_LINK, link_id};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The links that a change of the rules of another one affects, each with a rule that moves some of its
/// packets. Names are without "links/".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Moves {
    /// Those that lose packets to it.
    pub from: BTreeMap<String, Rule>,
    /// Those that get packets from it.
    pub to: BTreeMap<String, Rule>,
}

/// How packets of the links in `of` move if `rules` replace those of `link`. `links` and `before` are all
/// links and rules in force. Invalid rules are ignored: the dataplane refuses them.
pub(super) fn moves(
    link: &str,
    rules: &[pb::LinkRule],
    links: &[pb::NamedLink],
    before: &[pb::LinkRule],
    of: &BTreeSet<&str>,
) -> Moves {
    let shared: BTreeMap<&str, &str> = links
        .iter()
        .filter(|link| !link.via.is_empty())
        .map(|link| (link_id(&link.name), link_id(&link.via)))
        .collect();
    let all: Vec<(Rule, &str)> = before
        .iter()
        .flat_map(|rule| parsed(rule).into_iter().map(|it| (it, link_id(&rule.link))))
        .collect();
    let (own, others): (Vec<_>, Vec<_>) = all.iter().copied().partition(|(_, name)| *name == link);
    let wanted: Vec<Rule> = rules.iter().flat_map(parsed).collect();
    let kept: HashSet<Rule> = own.iter().map(|(rule, _)| *rule).collect();
    let new: Vec<Rule> = wanted.iter().copied().filter(|rule| !kept.contains(rule)).collect();
    let kept: HashSet<Rule> = wanted.iter().copied().collect();
    let gone: Vec<Rule> =
        own.into_iter().map(|(rule, _)| rule).filter(|rule| !kept.contains(rule)).collect();
    let after: Vec<(Rule, &str)> =
        others.into_iter().chain(wanted.iter().map(|rule| (*rule, link))).collect();
    let passes = |name: &&str| shared.get(name).is_some_and(|shared| of.contains(shared));
    let asked: BTreeSet<&str> =
        of.iter().copied().chain(shared.keys().copied().filter(passes)).collect();
    let affected = |found: BTreeMap<&str, Rule>| {
        let mut all = BTreeMap::new();
        for (name, rule) in found {
            let passed = shared.get(name).filter(|passed| shared.get(link) != Some(*passed));
            for name in [Some(&name), passed].into_iter().flatten().filter(|it| of.contains(**it)) {
                all.entry((*name).to_owned()).or_insert(rule);
            }
        }
        all
    };
    Moves {
        from: affected(taken((link, &new), &all, MAIN_LINK, &asked)),
        // As if the rules that go were added to those that follow.
        to: affected(taken((link, &gone), &after, MAIN_LINK, &asked)),
    }
}

fn parsed(rule: &pb::LinkRule) -> Vec<Rule> {
    let pb::LinkRule { prefixes, vlans, macs, matches, .. } = rule.clone();
    let client = pb::Client { prefixes, vlans, macs, matches, ..Default::default() };
    clients::rules(&client).filter_map(|(_, _, rule)| rule.ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(link: &str, prefix: &str) -> pb::LinkRule {
        let (link, prefixes) = (format!("links/{link}"), vec![prefix.to_owned()]);
        pb::LinkRule { link, prefixes, ..Default::default() }
    }

    /// Names of the links that lose packets and of those that get some.
    fn of(link: &str, rules: &[pb::LinkRule], leased: &[&str]) -> (Vec<String>, Vec<String>) {
        let links = [("main", ""), ("a", ""), ("b", "links/shared"), ("c", "links/shared")];
        let links = links.map(|(name, via)| pb::NamedLink {
            name: format!("links/{name}"),
            via: via.into(),
            ..Default::default()
        });
        let before = [rule("a", "10.1.0.0/16"), rule("b", "10.2.0.0/16"), rule("c", "10.3.0.0/16")];
        let leased = leased.iter().copied().collect();
        let moves = moves(link, rules, &links, &before, &leased);
        (moves.from.into_keys().collect(), moves.to.into_keys().collect())
    }

    const ALL: [&str; 5] = ["a", "b", "c", "main", "shared"];

    #[test]
    fn link_that_takes_packets_affects_those_that_had_them() {
        let none: Vec<String> = Vec::new();
        let new = |prefix| of("new", &[rule("new", prefix)], &ALL);
        assert_eq!(new("10.1.2.0/24"), (vec!["a".into()], none.clone()));
        assert_eq!(new("10.9.0.0/16"), (vec!["main".into()], none.clone()));
        assert_eq!(new("10.2.2.0/24"), (vec!["b".into(), "shared".into()], none.clone()));
        // Not leased.
        assert_eq!(of("new", &[rule("new", "10.1.2.0/24")], &["b", "main"]), (none.clone(), none));
    }

    #[test]
    fn packets_that_stay_on_the_shared_link_are_not_taken_from_it() {
        let more = [rule("c", "10.3.0.0/16"), rule("c", "10.2.2.0/24")];
        assert_eq!(of("c", &more, &ALL), (vec!["b".into()], vec![]));
    }

    #[test]
    fn rules_that_go_give_packets_to_main_or_to_the_rule_behind_them() {
        assert_eq!(of("a", &[], &ALL), (vec![], vec!["main".into()]));
        // The same again: nothing moves.
        assert_eq!(of("a", &[rule("a", "10.1.0.0/16")], &ALL), (vec![], vec![]));
        // A part is kept.
        let narrower = [rule("a", "10.1.1.0/24")];
        assert_eq!(of("a", &narrower, &ALL), (vec![], vec!["main".into()]));
    }

    #[test]
    fn invalid_rule_moves_nothing() {
        assert_eq!(of("new", &[rule("new", "10.1.2.0/33")], &ALL), (vec![], vec![]));
    }
}
