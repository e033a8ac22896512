// SPDX-License-Identifier: Apache-2.0
//! Changes of several links at one instant, or of none.

use dataplane::dataplane::Dataplane;
use dataplane::links::Links;
use dataplane::service::Service;
use owner::{Changes, Link, Terms};
use proto::dataplane::v1 as pb;
use proto::dataplane::v1::dataplane_server::Dataplane as _;
use proto::linkemu::v1 as model;

use crate::apply::{block_on, change, dataplane, plan};

type LinkChange = owner::LinkChange<Dataplane>;

/// Runs a test with the links `main`, `a` and `b`; `b` has little memory.
fn with_links<F: Future<Output = ()>>(test: impl FnOnce(Links) -> F) {
    let (main, thread) = dataplane(1 << 40);
    block_on(async {
        let links = Links::new(main.clone());
        for (name, memory_bytes) in [("a", 1 << 30), ("b", 1 << 20)] {
            let name = proto::link_name(name);
            let wanted = model::NamedLink { name, memory_bytes, clients: 2, ..Default::default() };
            links.add(&wanted).await.unwrap();
        }
        test(links).await;
        main.stop().await.unwrap();
    });
    thread.join().unwrap();
}

fn of(links: &Links, name: &str, change: pb::Change, terms: Terms) -> LinkChange {
    LinkChange { link: links.get(name).unwrap().link, change, terms }
}

fn to(links: &Links, name: &str, profile: &str) -> LinkChange {
    of(links, name, change(profile), Terms::default())
}

async fn state(link: &Dataplane) -> (u64, u64, pb::Plan) {
    let current = link.plan().await.unwrap();
    let executed = link.stats(false).await.unwrap().generation;
    (current.applied.generation, executed, current.plan)
}

#[test]
fn links_change_at_one_instant_in_the_order_of_the_request() {
    with_links(|links| async move {
        let main = links.main().link.clone();
        main.apply(change("lte"), Terms::default()).await.unwrap();
        let changes = vec![
            to(&links, "b", "transparent"),
            to(&links, "main", "geo-600"),
            to(&links, "a", "lte"),
        ];
        let made = Dataplane::apply_links(changes.clone()).await.unwrap();
        let generations: Vec<_> = made.iter().map(|made| made.applied.generation).collect();
        assert_eq!(generations, [1, 2, 1]);
        let at: Vec<_> = made.iter().map(|made| made.applied.effective_ns).collect();
        // A thread that was held up is allowed, if the answer says so.
        let one = at.iter().all(|at| *at == made[0].applied.effective_ns);
        let said = made.iter().all(|made| made.remarks.iter().any(|it| it.contains("was late")));
        assert!(one != said, "{at:?}, {:?}", made[0].remarks);
        for (change, profile) in changes.iter().zip(["transparent", "geo-600", "lte"]) {
            let (generation, executed, now) = state(&change.link).await;
            assert_eq!((generation, now.profile), (executed, plan(profile).profile));
        }
    });
}

#[test]
fn late_change_of_several_links_is_made_at_one_instant_too() {
    with_links(|links| async move {
        let main = links.main().link.clone();
        let now_ns = main.now_ns();
        let changes = vec![to(&links, "a", "lte"), to(&links, "b", "transparent")];
        let made = Dataplane::change_links(changes, Some(1)).await.unwrap();
        // The time that all workers need to hear of it.
        assert!(made.iter().all(|it| it.applied.effective_ns >= now_ns + 1_000_000), "{made:?}");
    });
}

#[test]
fn refusal_of_one_link_names_it_and_leaves_all_as_they_are() {
    with_links(|links| async move {
        let [a, b] = ["a", "b"].map(|name| links.get(name).unwrap().link);
        a.apply(change("lte"), Terms::default()).await.unwrap();
        let before = (state(&a).await, state(&b).await);
        let stale = Terms { expected: Some(7), ..Terms::default() };
        let unknown = pb::Part { direction: 9, ..pb::Part::default() };
        let invalid = pb::Change { parts: vec![unknown], ..pb::Change::default() };
        let large = plan("geo-600").profile.map(|mut profile| {
            for pipe in [&mut profile.forward_pipe, &mut profile.return_pipe] {
                pipe.as_mut().unwrap().queue.as_mut().unwrap().limit_bytes = 1 << 28;
            }
            profile
        });
        let large = pb::Change { profile: large, restart: true, ..Default::default() };
        for (bad, why) in [
            (of(&links, "b", change("lte"), stale), "generation 7 was expected and 0 is current"),
            (of(&links, "b", invalid, Terms::default()), "the patch is refused"),
            (of(&links, "b", large, Terms::default()), "memory"),
        ] {
            // The link that is refused is checked last, and first.
            for changes in
                [vec![to(&links, "a", "geo-600"), bad.clone()], vec![bad, to(&links, "a", "lte")]]
            {
                let error = Dataplane::apply_links(changes).await.unwrap_err();
                let message = error.message();
                assert!(message.starts_with("link `b`: ") && message.contains(why), "{message}");
                assert_eq!((state(&a).await, state(&b).await), before);
            }
        }
        // The first link by name refuses, after nothing was done to the second.
        let stale = Terms { expected: Some(0), ..Terms::default() };
        let changes =
            vec![of(&links, "a", change("geo-600"), stale), to(&links, "b", "transparent")];
        Dataplane::apply_links(changes).await.unwrap_err();
        assert_eq!((state(&a).await, state(&b).await), before);
    });
}

#[test]
fn link_named_twice_none_at_all_and_removed_link_are_refused() {
    with_links(|links| async move {
        let service = Service::new(links.clone());
        let with_key = |link: &str, key: String| {
            let change = Some(change("lte"));
            pb::LinkChange { link: link.into(), change, key, ..Default::default() }
        };
        let one = |link: &str| with_key(link, String::new());
        for (asked, why) in [
            (vec![one("a"), one("links/a")], "link `a` is named twice"),
            (Vec::new(), "0 changes are not 1 to 64"),
            (vec![with_key("a", "k".repeat(129))], "a key or fingerprint of 129 bytes"),
        ] {
            let request = tonic::Request::new(pb::ApplyRequest { changes: asked });
            let error = service.apply(request).await.unwrap_err();
            assert!(error.message().contains(why), "{error}");
        }
        let changes = vec![to(&links, "a", "lte"), to(&links, "b", "transparent")];
        links.remove("b").await.unwrap();
        let error = Dataplane::apply_links(changes).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::NotFound);
        assert_eq!(state(&links.get("a").unwrap().link).await.0, 0);
    });
}

#[test]
fn link_that_a_scenario_changes_is_in_use() {
    with_links(|links| async move {
        let main = links.main();
        for (name, why) in [("c", "no link `c`"), ("main", "own link")] {
            let refused = links.for_scenario(&main.link, &[name.to_owned()]).await.map(drop);
            let refused = refused.unwrap_err();
            assert!(refused.message().contains(why), "{refused:?}");
        }
        let step = pb::Step {
            at_ns: 3_600_000_000_000,
            what: Some(pb::step::What::Change(change("lte"))),
            links: vec![pb::StepLink { link: "b".into(), change: Some(change("lte")) }],
            ..Default::default()
        };
        let named = links.for_scenario(&main.link, &["b".to_owned()]).await.unwrap();
        main.scenarios.run(crate::scenario::request(vec![step]), named).await.unwrap();
        // No other scenario may change it, and it cannot be removed.
        let why = "runs on `main` changes `b`";
        let refused = links.remove("b").await.unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
        let b = links.get("b").unwrap();
        let refused = links.for_scenario(&b.link, &[]).await.map(drop).unwrap_err();
        assert!(refused.message().contains(why), "{refused:?}");
    });
}
