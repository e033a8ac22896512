// SPDX-License-Identifier: Apache-2.0
//! Leases: during a lease, only requests with its token change the link.
//!
//! A lease ends when it is released, stolen, or not renewed within its time to live, so that a
//! crashed holder blocks nobody. It then returns the link to the profile that it names. Meanwhile
//! only the holder can replace or delete that profile.
//!
//! Its time is counted by CLOCK_BOOTTIME (clock_gettime(2)), which is independent of steps of the
//! wall clock and continues during suspension. The wall clock shows its end to people, and gives
//! the remaining time after a restart of linkd. While linkd stands still the time does not run: the
//! holder's renewals wait in its sockets.

use crate::caller::Caller;
use crate::refusal;
use crate::stalls::{Clocks, Stalls};
use prost_types::Timestamp;
use proto::linkd::v1::State;
use proto::linkemu::v1 as pb;
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};
use tonic::Status;

/// Times to live: 1 s to 24 h.
const TTL_NS: RangeInclusive<u64> = 1_000_000_000..=86_400_000_000_000;
/// Longest name of a holder, and longest purpose.
const TEXT_CHARS: usize = 200;
/// A difference between both clocks that is a step of the wall clock.
const STEP: Duration = Duration::from_secs(1);

/// Both clocks at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Since the boot, suspension included.
    pub boot: Duration,
    pub wall: SystemTime,
    /// Time for which linkd stood still ([`Stalls::total`]).
    pub stalled: Duration,
}

impl Now {
    pub fn read(stalls: &Stalls) -> Self {
        let Clocks { boot, wall } = stalls.clocks();
        Self { boot: boot(), wall: wall(), stalled: stalls.total() }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub lease: pb::Lease,
    pub token: String,
    /// The caller and the name of the request that it was acquired by, if that had one.
    pub request: Option<(String, String)>,
    /// Since the boot; later by the time for which linkd has stood still since `stalled`.
    pub ends: Duration,
    /// As of [`Now`] when it was acquired or renewed.
    pub stalled: Duration,
}

impl Held {
    /// Zero when the lease has expired.
    fn left(&self, now: Now) -> Duration {
        (self.ends + now.stalled.saturating_sub(self.stalled)).saturating_sub(now.boot)
    }
}

/// The lease that runs, if one does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases(pub Option<Held>);

impl Leases {
    /// As it was when linkd ended.
    pub fn from_state(state: &State, now: Now) -> Self {
        let Some(lease) = state.lease.clone() else { return Self(None) };
        let left = lease.expires.and_then(|expires| SystemTime::try_from(expires).ok());
        let left = left.and_then(|at| at.duration_since(now.wall).ok());
        // A clock that was set back does not make it longer.
        let left = left.unwrap_or_default().min(Duration::from_nanos(lease.ttl_ns));
        let ends = now.boot + left;
        let request = Some(&state.lease_request).filter(|name| !name.is_empty());
        let request = request.map(|name| (lease.who.clone(), name.clone()));
        let (token, stalled) = (state.token.clone(), now.stalled);
        Self(Some(Held { lease, token, request, ends, stalled }))
    }

    /// Writes it into the state.
    pub fn to_state(&self, state: &mut State) {
        state.lease = self.0.as_ref().map(|held| held.lease.clone());
        state.token = self.0.as_ref().map(|held| held.token.clone()).unwrap_or_default();
        let request = self.0.as_ref().and_then(|held| held.request.clone());
        state.lease_request = request.map(|(_, name)| name).unwrap_or_default();
    }

    /// Token of the active lease; empty: there is none.
    pub fn token(&self) -> String {
        self.0.as_ref().map(|held| held.token.clone()).unwrap_or_default()
    }

    /// Whether a caller may change the link.
    pub fn check(&self, caller: &Caller) -> Result<(), Status> {
        match (&self.0, &caller.lease) {
            (None, None) => Ok(()),
            (Some(held), Some(_)) if caller.has_token(&held.token) => Ok(()),
            (None, Some(_)) => Err(Status::failed_precondition(
                "your lease has ended: acquire another one (`linkctl lease acquire`), and look at \
                 the link before you change it",
            )),
            (Some(held), given) => {
                let ended = if given.is_some() { "your lease has ended, and " } else { "" };
                Err(Status::failed_precondition(format!("{ended}{}", taken(&held.lease))))
            }
        }
    }

    /// Whether a caller may change links, given by name: no other caller has a lease of one, and each
    /// token of the caller is the one of a link.
    pub fn check_links(links: &[(&str, &Self)], caller: &Caller) -> Result<(), Status> {
        if let [(_, leases)] = links {
            return leases.check(caller);
        }
        for (name, leases) in links {
            // No token is needed for a link without a lease.
            let held = leases.0.as_ref().map_or(Ok(()), |_| leases.check(caller));
            held.map_err(|status| owner::of_link(name, &status))?;
        }
        let has = |token: &str| {
            let mut held = links.iter().filter_map(|(_, leases)| leases.0.as_ref());
            held.any(|held| held.token == token)
        };
        match caller.tokens().all(has) {
            true => Ok(()),
            false => Err(Status::failed_precondition(
                "a lease of yours has ended, or is of a link that is not changed: acquire another \
                 one (`linkctl lease acquire`), or leave its token out",
            )),
        }
    }

    /// As [`Self::check`], for a change that may need the leases of other links as well: tokens of any of
    /// `all` are valid.
    pub fn check_among<'a>(
        &self,
        all: impl Iterator<Item = &'a Self> + Clone,
        caller: &Caller,
    ) -> Result<(), Status> {
        let known = |token| all.clone().any(|it| it.0.as_ref().is_some_and(|h| h.token == token));
        match &self.0 {
            None if caller.tokens().all(known) => Ok(()),
            _ => self.check(caller),
        }
    }

    /// Whether a caller may take packets or memory of the link, or add to its packets. `what` says what it
    /// would do.
    pub fn check_taking(
        &self,
        caller: &Caller,
        what: impl FnOnce() -> String,
    ) -> Result<(), Status> {
        match &self.0 {
            Some(held) if !caller.has_token(&held.token) => {
                let message = format!("{}, and {}", what(), taken(&held.lease));
                Err(Status::failed_precondition(message))
            }
            _ => Ok(()),
        }
    }

    /// Whether a caller may replace or delete a stored profile.
    pub fn check_profile(&self, caller: &Caller, name: &str) -> Result<(), Status> {
        match &self.0 {
            Some(held) if held.lease.return_profile == name => self.check_taking(caller, || {
                format!("the link returns to the profile {name:?} when the lease ends")
            }),
            _ => Ok(()),
        }
    }

    /// Remaining time of the active lease.
    pub fn left(&self, now: Now) -> Option<Duration> {
        self.0.as_ref().map(|held| held.left(now))
    }

    /// Corrects the displayed end of the lease if the wall clock was set meanwhile; true if it was.
    pub fn correct(&mut self, now: Now) -> bool {
        let Some(held) = &mut self.0 else { return false };
        let expires = now.wall + held.left(now);
        let told = held.lease.expires.and_then(|at| SystemTime::try_from(at).ok());
        let is_right = told.is_some_and(|told| {
            told.duration_since(expires).unwrap_or_else(|early| early.duration()) < STEP
        });
        if !is_right {
            held.lease.expires = Some(expires.into());
        }
        !is_right
    }

    pub fn with(&mut self, token: &str) -> Result<&mut Held, Status> {
        match &mut self.0 {
            Some(held) if held.token == token => Ok(held),
            _ => Err(Status::not_found(
                "no lease with this token runs: it was released, has expired or was stolen",
            )),
        }
    }
}

/// The message for callers without the lease.
pub(crate) fn taken(lease: &pb::Lease) -> String {
    let until = lease.expires.map_or(String::new(), |at| format!(" until {at}"));
    let purpose = match lease.purpose.as_str() {
        "" => String::new(),
        purpose => format!(" for {}", refusal::clip(purpose)),
    };
    format!(
        "the link is leased to {}{purpose}{until}: wait, or ask them; with their token, give \
         --lease",
        refusal::clip(&lease.holder)
    )
}

/// When a lease ends, by both clocks.
pub(crate) fn from_now(ttl_ns: u64, now: Now) -> (Duration, Timestamp) {
    let ttl = Duration::from_nanos(ttl_ns);
    (now.boot + ttl, Timestamp::from(now.wall + ttl))
}

/// 128 random bits.
pub(crate) fn new_token() -> Result<String, Status> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Status::internal(format!("cannot draw a token: {error}")))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

pub(crate) fn checked(request: &pb::AcquireLeaseRequest) -> Result<(), Status> {
    let pb::AcquireLeaseRequest { holder, purpose, ttl_ns, request_id, .. } = request;
    for (path, text) in [("holder", holder), ("purpose", purpose)] {
        if text.chars().count() > TEXT_CHARS {
            let message = format!("longer than {TEXT_CHARS} characters: shorten it");
            return Err(refusal::field(path, message));
        }
        if text.chars().any(char::is_control) {
            return Err(refusal::field(path, "has control characters: leave them out"));
        }
    }
    if holder.is_empty() {
        return Err(refusal::field("holder", "missing: say who you are, such as a job's name"));
    }
    if !TTL_NS.contains(ttl_ns) {
        let message = format!(
            "{} is outside of 1 s to 24 h: give one within, and renew it",
            profile::format_duration(*ttl_ns)
        );
        return Err(refusal::field("ttl_ns", message));
    }
    refusal::check_request_id(request_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000_000;

    fn request(ttl_ns: u64) -> pb::AcquireLeaseRequest {
        pb::AcquireLeaseRequest { holder: "ci".into(), ttl_ns, ..Default::default() }
    }

    fn held(token: &str, expires: SystemTime) -> Leases {
        let expires = Some(expires.into());
        let lease = pb::Lease {
            holder: "ci 7".into(),
            who: "job".into(),
            ttl_ns: MINUTE,
            expires,
            ..Default::default()
        };
        let ends = Now::read(&Stalls::default()).boot + Duration::from_nanos(MINUTE);
        let request = Some(("job".into(), "again".into()));
        let stalled = Duration::ZERO;
        Leases(Some(Held { lease, token: token.into(), request, ends, stalled }))
    }

    fn caller(lease: Option<&str>) -> Caller {
        Caller { lease: lease.map(str::to_owned), ..Caller::linkd() }
    }

    const START: Now = Now {
        boot: Duration::from_secs(500),
        wall: SystemTime::UNIX_EPOCH,
        stalled: Duration::ZERO,
    };

    /// So long after the start, with the wall clock so far ahead of it.
    fn after(seconds: u64, wall_seconds: u64) -> Now {
        let wall = START.wall + Duration::from_secs(wall_seconds);
        Now { boot: START.boot + Duration::from_secs(seconds), wall, ..START }
    }

    #[test]
    fn lease_ends_one_ttl_from_now_on_both_clocks() {
        let (ends, expires) = from_now(MINUTE, START);
        assert_eq!(ends, START.boot + Duration::from_secs(60));
        assert_eq!(expires, Timestamp::from(after(0, 60).wall));
    }

    #[test]
    fn lease_keeps_its_time_when_the_wall_clock_is_set() {
        const HOUR: u64 = 3_600;
        for set_to in [0, 11 * HOUR] {
            // It was acquired at ten.
            let mut leases = held("secret", after(0, 11 * HOUR).wall);
            leases.0.as_mut().unwrap().ends = after(HOUR, 0).boot;
            assert!(!leases.correct(after(60, 10 * HOUR + 60)));
            assert!(leases.correct(after(60, set_to)));
            let left = Duration::from_secs(HOUR - 60);
            assert_eq!(leases.left(after(60, set_to)), Some(left));
            let expires = leases.0.as_ref().unwrap().lease.expires;
            assert_eq!(expires, Some((after(0, set_to).wall + left).into()));
            assert!(!leases.correct(after(61, set_to + 1)));
            assert_eq!(leases.left(after(HOUR, set_to)), Some(Duration::ZERO));
        }
    }

    #[test]
    fn lease_lasts_longer_by_the_time_for_which_linkd_stood_still() {
        let mut leases = held("secret", after(0, 60).wall);
        let own = leases.0.as_mut().unwrap();
        (own.ends, own.stalled) = (after(60, 0).boot, Duration::from_secs(7));
        let now = |seconds, stalled| Now {
            stalled: Duration::from_secs(stalled),
            ..after(seconds, seconds)
        };
        assert_eq!(leases.left(now(59, 7)), Some(Duration::from_secs(1)));
        assert_eq!(leases.left(now(70, 27)), Some(Duration::from_secs(10)));
        assert_eq!(leases.left(now(80, 27)), Some(Duration::ZERO));
        // The displayed end moves as well.
        assert!(leases.correct(now(70, 27)));
        let expires = leases.0.unwrap().lease.expires;
        assert_eq!(expires, Some(after(0, 80).wall.into()));
    }

    #[test]
    fn tokens_are_128_bits_and_differ() {
        let (first, second) = (new_token().unwrap(), new_token().unwrap());
        assert_ne!(first, second);
        for token in [first, second] {
            assert_eq!(token.len(), 32);
            assert!(token.chars().all(|digit| digit.is_ascii_hexdigit()), "{token}");
        }
    }

    #[test]
    fn request_at_its_limits_is_accepted_and_beyond_refused() {
        for ttl_ns in [*TTL_NS.start(), *TTL_NS.end()] {
            checked(&request(ttl_ns)).unwrap();
        }
        for ttl_ns in [0, TTL_NS.start() - 1, TTL_NS.end() + 1] {
            assert!(checked(&request(ttl_ns)).unwrap_err().message().contains("ttl_ns"));
        }
        let named = |chars| pb::AcquireLeaseRequest {
            holder: "\u{e9}".repeat(chars),
            purpose: "x".repeat(chars),
            ..request(MINUTE)
        };
        checked(&named(TEXT_CHARS)).unwrap();
        assert!(checked(&named(TEXT_CHARS + 1)).unwrap_err().message().contains("holder"));
        let good = || request(MINUTE);
        for (wrong, field) in [
            (pb::AcquireLeaseRequest { holder: String::new(), ..good() }, "holder"),
            (pb::AcquireLeaseRequest { holder: "a\u{7}b".into(), ..good() }, "holder"),
            (pb::AcquireLeaseRequest { purpose: "x".repeat(TEXT_CHARS + 1), ..good() }, "purpose"),
            (pb::AcquireLeaseRequest { request_id: "x".repeat(201), ..good() }, "request_id"),
        ] {
            let status = checked(&wrong).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            assert!(status.message().contains(field), "{}", status.message());
        }
    }

    #[test]
    fn restored_lease_keeps_token_holder_and_request() {
        let before = held("secret", after(0, 60).wall);
        let mut state = State::default();
        before.to_state(&mut state);
        // Another boot.
        let now = Now { boot: Duration::from_secs(3), ..after(0, 20) };
        let restored = Leases::from_state(&state, now);
        assert_eq!(restored.left(now), Some(Duration::from_secs(40)));
        let (restored, before) = (restored.0.unwrap(), before.0.unwrap());
        assert_eq!((restored.lease, restored.token), (before.lease, before.token));
        assert_eq!(restored.request, before.request);
    }

    #[test]
    fn restored_lease_of_an_unnamed_request_has_no_request() {
        let mut leases = held("secret", START.wall);
        leases.0.as_mut().unwrap().request = None;
        let mut state = State::default();
        leases.to_state(&mut state);
        assert_eq!(Leases::from_state(&state, START).0.unwrap().request, None);
    }

    #[test]
    fn restored_lease_lasts_no_longer_than_its_ttl_after_the_clock_was_set_back() {
        let mut state = State::default();
        held("secret", after(0, 86_400).wall).to_state(&mut state);
        let left = Leases::from_state(&state, START).left(START);
        assert_eq!(left, Some(Duration::from_nanos(MINUTE)));
    }

    #[test]
    fn only_the_token_of_the_lease_changes_the_link() {
        let leases = held("secret", START.wall);
        leases.check(&caller(Some("secret"))).unwrap();
        assert_eq!((&*leases.token(), &*Leases::default().token()), ("secret", ""));
        let without = leases.check(&caller(None)).unwrap_err();
        assert!(without.message().starts_with("the link is leased to"), "{}", without.message());
        assert!(without.message().contains("ci 7"), "{}", without.message());
        let other = leases.check(&caller(Some("guessed"))).unwrap_err();
        assert!(other.message().starts_with("your lease has ended, and the link is leased"));
        Leases::default().check(&caller(None)).unwrap();
        let late = Leases::default().check(&caller(Some("secret"))).unwrap_err();
        assert!(late.message().starts_with("your lease has ended: acquire another one"));
    }

    #[test]
    fn change_of_several_links_needs_each_lease_and_no_other_token() {
        let (one, two, none) = (held("one", START.wall), held("two", START.wall), Leases(None));
        for (links, tokens, refusal) in [
            (&[("a", &one), ("b", &two)][..], Some("one, two"), ""),
            (&[("a", &one), ("b", &none)], Some("one"), ""),
            (&[("a", &none)], None, ""),
            (&[("a", &one), ("b", &two)], None, "link `a`: the link is leased to ci 7"),
            (&[("a", &one), ("b", &two)], Some("one"), "link `b`: your lease has ended, and"),
            (&[("a", &none), ("b", &none)], Some("one"), "a lease of yours has ended, or is of a"),
            (&[("a", &none)], Some("one"), "your lease has ended: acquire another one"),
            // As for each change of one link: tokens of other links may come along.
            (&[("a", &one)], Some("one, two"), ""),
        ] {
            let checked = Leases::check_links(links, &caller(tokens));
            match checked {
                Ok(()) => assert_eq!(refusal, "", "{tokens:?}"),
                Err(status) => {
                    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
                    let message = status.message();
                    assert!(!refusal.is_empty() && message.starts_with(refusal), "{message}");
                }
            }
        }
    }

    #[test]
    fn token_of_another_link_is_valid_among_them_and_takes_nothing_from_a_leased_one() {
        let (one, two, none) = (held("one", START.wall), held("two", START.wall), Leases(None));
        let among = |own: &Leases, token| {
            own.check_among([&one, &two, &none].into_iter(), &caller(token)).is_ok()
        };
        assert!(among(&none, None) && among(&none, Some("two")) && among(&one, Some("one")));
        assert!(!among(&none, Some("three")) && !among(&one, Some("two")) && !among(&one, None));
        let taking = |token| one.check_taking(&caller(token), || "it takes packets".into());
        taking(Some("one")).unwrap();
        for token in [None, Some("two")] {
            let status = taking(token).unwrap_err();
            assert!(status.message().starts_with("it takes packets, and the link is leased to"));
        }
        none.check_taking(&caller(None), String::new).unwrap();
    }

    #[test]
    fn only_the_holder_replaces_or_deletes_the_profile_to_return_to() {
        let mut leases = held("secret", START.wall);
        leases.0.as_mut().unwrap().lease.return_profile = "mine".into();
        leases.check_profile(&caller(Some("secret")), "mine").unwrap();
        leases.check_profile(&caller(None), "other").unwrap();
        Leases::default().check_profile(&caller(None), "mine").unwrap();
        for other in [None, Some("guessed")] {
            let status = leases.check_profile(&caller(other), "mine").unwrap_err();
            assert_eq!(status.code(), tonic::Code::FailedPrecondition);
            assert!(status.message().contains("leased to ci 7"), "{}", status.message());
        }
    }

    #[test]
    fn only_the_token_of_the_lease_renews_or_releases_it() {
        let mut leases = held("secret", START.wall);
        assert_eq!(leases.with("secret").unwrap().token, "secret");
        let other = leases.with("guessed").unwrap_err();
        assert_eq!(other.code(), tonic::Code::NotFound);
        let none = Leases::default().with("secret").unwrap_err().code();
        assert_eq!(none, tonic::Code::NotFound);
    }
}
