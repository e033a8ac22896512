# SPDX-License-Identifier: Apache-2.0
"""Every call of the API as a value: its request, and how to read its answer. Pure.

`linkemu.Box` and `linkemu.aio.Box` differ only in how they make calls and wait.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from google.protobuf.message import Message

from linkemu import _fields, _quantity, model, v1
from linkemu._fields import Fields
from linkemu._quantity import Duration, Size
from linkemu._wire import LINKS

T = TypeVar("T")
Direction = Literal["both", "forward", "return"]
Given = str | os.PathLike[str] | v1.Profile
"""A profile: a name, the path of a file, or a message."""

_DIRECTIONS = {"both": 0, "forward": 1, "return": 2}


@dataclass(frozen=True)
class Call(Generic[T]):
    """A call with one answer, or a stream of answers."""

    method: str
    """Such as "/linkemu.v1.Linkemu/GetLink"."""
    request: Message
    answer: type[Message]
    read: Callable[[Any], T]
    """Converts the answer."""
    again: bool = True
    """It can be repeated if the connection broke and its outcome is unknown."""
    removes: bool = False
    """If a repetition finds nothing, the attempt before was carried out."""


def _same(answer: Any) -> Any:
    return answer


def _linkemu(
    method: str, request: Message, answer: type[Message], read: Callable[[Any], T], **more: bool
) -> Call[T]:
    return Call(f"/linkemu.v1.Linkemu/{method}", request, answer, read, **more)


def _direction(name: str) -> int:
    if name not in _DIRECTIONS:
        raise ValueError(f"{name!r} is no direction: write 'both', 'forward' or 'return'")
    return _DIRECTIONS[name]


def _request_id() -> str:
    return uuid.uuid4().hex


def _given(**fields: object) -> dict[str, Any]:
    """Arguments that are not none. linkd has defaults for the others."""
    return {name: value for name, value in fields.items() if value is not None}


# The link.


def version() -> Call[str]:
    """Version of linkd."""
    answer = v1.GetVersionResponse
    return _linkemu("GetVersion", v1.GetVersionRequest(), answer, lambda a: str(a.version))


def profiles(token: str) -> Call[v1.ListProfilesResponse]:
    """A page of profiles, in the order of their names."""
    request = v1.ListProfilesRequest(page_token=token)
    return _linkemu("ListProfiles", request, v1.ListProfilesResponse, _same)


def profile(name: str) -> Call[v1.Profile]:
    """One profile."""
    return _linkemu("GetProfile", v1.GetProfileRequest(name=name), v1.Profile, _same)


def is_path(given: str) -> bool:
    """Whether a text is the path of a file and not a name, as in linkctl."""
    return "/" in given or given.endswith(".toml")


def _source(given: Given | None, toml: str | None) -> dict[str, Any]:
    """The source of a profile or scenario as a field of the request."""
    if (given is None) == (toml is None) or isinstance(given, v1.Profile):
        raise ValueError("give a name or a file, or its text as `toml`")
    if toml is not None:
        return {"toml": toml}
    if isinstance(given, str) and not is_path(given):
        return {"name": given}
    return {"toml": Path(given or "").read_text(encoding="utf-8")}


def _whole(given: Given | None, toml: str | None) -> dict[str, Any]:
    """A profile as a field of the request: as a message, or as text."""
    if isinstance(given, v1.Profile) and toml is None:
        return {"profile": given}
    source = _source(given, toml)
    if "name" in source:
        raise ValueError(f"{given!r} is a name: give the path of a file, such as './{given}.toml'")
    return source


def put_profile(given: Given | None, toml: str | None, replace: bool) -> Call[bool]:
    """Answers whether a profile was replaced."""
    request = v1.PutProfileRequest(**_whole(given, toml), replace=replace)
    answer = v1.PutProfileResponse
    # A retry would find the profile of the first attempt and report a conflict.
    return _linkemu("PutProfile", request, answer, lambda a: bool(a.replaced), again=False)


def delete_profile(name: str) -> Call[None]:
    """Deletes a stored profile."""
    request = v1.DeleteProfileRequest(name=name)
    answer = v1.DeleteProfileResponse
    return _linkemu("DeleteProfile", request, answer, lambda _: None, again=False)


def validate_profile(given: Given | None, toml: str | None) -> Call[tuple[v1.Violation, ...]]:
    """Answers the violations of a profile."""
    request = v1.ValidateProfileRequest(**_whole(given, toml))
    answer = v1.ValidateProfileResponse
    return _linkemu("ValidateProfile", request, answer, lambda a: tuple(a.violations))


def link() -> Call[model.Link]:
    """The current link."""
    return _linkemu("GetLink", v1.GetLinkRequest(), v1.Link, model.link)


def profile_update(given: Given | None, toml: str | None, seed: int | None) -> v1.LinkUpdate:
    """The replacement of the whole link."""
    inline = isinstance(given, v1.Profile) and toml is None
    which: dict[str, Any] = {"inline": given} if inline else _source(given, toml)
    return v1.LinkUpdate(profile=v1.ProfileUpdate(**which, **_given(seed=seed)))


def pipe_update(direction: Direction, fields: Fields) -> v1.PipeUpdate:
    """New values of the named fields of a pipe."""
    update = v1.PipeUpdate(direction=_direction(direction))  # type: ignore[arg-type]
    _fields.set_fields(update, fields)
    return update


def pipe_updates(forward: Fields | None, back: Fields | None, both: Fields | None) -> v1.LinkUpdate:
    """New values for each given direction."""
    given: tuple[tuple[Direction, Fields | None], ...] = (
        ("both", both),
        ("forward", forward),
        ("return", back),
    )
    pipes = [pipe_update(direction, fields) for direction, fields in given if fields]
    if not pipes:
        raise ValueError("nothing to change: give `forward`, `return_` or `both`")
    return v1.LinkUpdate(pipes=pipes)


def update(
    change: v1.LinkUpdate, expected_generation: int | None, lossy: bool
) -> Call[model.Change]:
    """Changes the link."""
    if expected_generation is not None:
        change.expected_generation = expected_generation
    change.lossy = lossy
    request = v1.UpdateLinksRequest(updates=[change], request_id=_request_id())

    def read(answer: v1.UpdateLinksResponse) -> model.Change:
        return model.change(answer.links[0], answer.repeated)

    return _linkemu("UpdateLinks", request, v1.UpdateLinksResponse, read)


def update_links(
    profiles: Mapping[str, Given],
    patches: Mapping[str, Fields],
    direction: Direction,
    expected_generations: Mapping[str, int],
    lossy: bool,
) -> Call[dict[str, model.Change]]:
    """Changes several links at one instant, or none. Answers the change of each link."""
    updates = {link: profile_update(given, None, None) for link, given in profiles.items()}
    for link, fields in patches.items():
        updates.setdefault(link, v1.LinkUpdate()).pipes.append(pipe_update(direction, fields))
    unknown = set(expected_generations) - set(updates)
    if unknown:
        raise ValueError(f"expected_generations: no change of {', '.join(sorted(unknown))}")
    for link, change in updates.items():
        change.link, change.lossy = link, lossy
        if link in expected_generations:
            change.expected_generation = expected_generations[link]
    request = v1.UpdateLinksRequest(updates=updates.values(), request_id=_request_id())

    def read(answer: v1.UpdateLinksResponse) -> dict[str, model.Change]:
        return {
            link.name.removeprefix(LINKS): model.change(link, answer.repeated)
            for link in answer.links
        }

    return _linkemu("UpdateLinks", request, v1.UpdateLinksResponse, read)


def stats(mark: bool) -> Call[v1.Stats]:
    """A snapshot."""
    # A second mark would begin another span.
    return _linkemu("GetStats", v1.GetStatsRequest(mark=mark), v1.Stats, _same, again=not mark)


def watch_stats(interval: Duration) -> Call[v1.Stats]:
    """A stream of snapshots."""
    request = v1.WatchStatsRequest(
        interval_ns=_quantity.nanoseconds_of_seconds(interval, "interval")
    )
    return _linkemu("WatchStats", request, v1.Stats, _same)


def room() -> Call[v1.Room]:
    """Memory and time that the box has for a link."""
    return _linkemu("GetRoom", v1.GetRoomRequest(), v1.Room, _same)


def clients() -> Call[v1.Clients]:
    """The current rules."""
    answer = v1.GetClientsResponse
    return _linkemu("GetClients", v1.GetClientsRequest(), answer, lambda a: a.clients)


def client_states() -> Call[tuple[v1.ClientState, ...]]:
    """A stream of clients, several in each message."""
    answer = v1.ListClientsResponse
    return _linkemu("ListClients", v1.ListClientsRequest(), answer, lambda a: tuple(a.clients))


# Links.


def links() -> Call[tuple[v1.NamedLink, ...]]:
    """All links of the box."""
    request = v1.ListLinksRequest()
    return _links("ListLinks", request, v1.ListLinksResponse, lambda a: tuple(a.links))


SCHEDULERS = {
    None: v1.SCHEDULER_UNSPECIFIED,
    "fifo": v1.SCHEDULER_FIFO,
    "drr": v1.SCHEDULER_DRR,
}


def add_link(
    name: str, room: tuple[Size, int], scheduler: str | None, via: tuple[str, int]
) -> Call[v1.NamedLink]:
    """It is not repeated: the second attempt would find the name in use. `room` is bytes and
    clients, `via` a link and the weight there.
    """
    link = v1.NamedLink(
        memory_bytes=_quantity.size(room[0], "memory"),
        clients=room[1],
        scheduler=SCHEDULERS[scheduler],
        via=f"{LINKS}{via[0]}" if via[0] else "",
        weight=via[1],
    )
    request = v1.CreateLinkRequest(link_id=name, link=link)
    return _links("CreateLink", request, v1.NamedLink, _same, again=False)


def remove_link(name: str) -> Call[None]:
    """Removes a link and its rules."""
    request = v1.DeleteLinkRequest(name=f"{LINKS}{name}")
    return _links("DeleteLink", request, v1.DeleteLinkResponse, lambda _: None, removes=True)


def link_rules() -> Call[v1.LinkRules]:
    """Those of all links."""
    return _links("GetLinkRules", v1.GetLinkRulesRequest(), v1.LinkRules, _same)


def assign(
    prefixes: Iterable[str], vlans: Iterable[int], macs: Iterable[str], matches: Iterable[v1.Match]
) -> Call[v1.LinkRules]:
    """Replaces the rules of the link that the call is about."""
    rule = v1.LinkRule(prefixes=prefixes, vlans=vlans, macs=macs, matches=matches)
    rules = [rule] if rule.ListFields() else []
    return _links("SetLinkRules", v1.SetLinkRulesRequest(rules=rules), v1.LinkRules, _same)


def _links(
    method: str, request: Message, answer: type[Message], read: Callable[[Any], T], **more: bool
) -> Call[T]:
    return Call(f"/linkemu.v1.Links/{method}", request, answer, read, **more)


# Leases.


def acquire(
    holder: str, purpose: str, ttl: Duration, return_to: str | None, steal: bool
) -> Call[v1.AcquireLeaseResponse]:
    """Answers the token."""
    request = v1.AcquireLeaseRequest(
        holder=holder,
        purpose=purpose,
        ttl_ns=_quantity.nanoseconds_of_seconds(ttl, "ttl"),
        return_profile=return_to or "",
        steal=steal,
        request_id=_request_id(),
    )
    return Call("/linkemu.v1.Leases/AcquireLease", request, v1.AcquireLeaseResponse, _same)


def renew(token: str) -> Call[model.Holder]:
    """Extends the lease by its time to live."""
    request = v1.RenewLeaseRequest(token=token)
    return Call("/linkemu.v1.Leases/RenewLease", request, v1.Lease, model.holder)


def release(token: str) -> Call[None]:
    """Ends the lease."""
    request = v1.ReleaseLeaseRequest(token=token)
    answer = v1.ReleaseLeaseResponse
    method = "/linkemu.v1.Leases/ReleaseLease"
    return Call(method, request, answer, lambda _: None, removes=True)


def lease_holder() -> Call[model.Holder]:
    """Not found if there is no lease."""
    return Call("/linkemu.v1.Leases/GetLease", v1.GetLeaseRequest(), v1.Lease, model.holder)


# Scenarios.


def scenarios() -> Call[tuple[v1.Scenario, ...]]:
    """All scenarios."""
    answer = v1.ListScenariosResponse
    request = v1.ListScenariosRequest()
    return _scenarios("ListScenarios", request, answer, lambda a: tuple(a.scenarios))


def scenario(name: str) -> Call[v1.Scenario]:
    """One scenario."""
    return _scenarios("GetScenario", v1.GetScenarioRequest(name=name), v1.Scenario, _same)


def run_scenario(
    given: str | os.PathLike[str] | None,
    toml: str | None,
    seed: int | None,
    expected_generation: int | None,
    tolerate_changes: bool,
    lossy: bool,
) -> Call[v1.ScenarioState]:
    """Runs a scenario by its name, its file, or its text."""
    request = v1.RunScenarioRequest(
        **_source(given, toml),
        **_given(seed=seed, expected_generation=expected_generation),
        tolerate_changes=tolerate_changes,
        lossy=lossy,
        request_id=_request_id(),
    )
    return _scenarios("RunScenario", request, v1.RunScenarioResponse, lambda a: a.state)


def pause_scenario() -> Call[v1.ScenarioState]:
    """Pauses the running scenario."""
    return _control(v1.SCENARIO_ACTION_PAUSE)


def resume_scenario() -> Call[v1.ScenarioState]:
    """Resumes the paused scenario."""
    return _control(v1.SCENARIO_ACTION_RESUME)


def stop_scenario(restore: bool) -> Call[v1.ScenarioState]:
    """Stops the running scenario."""
    return _control(v1.SCENARIO_ACTION_STOP, restore)


def _control(action: v1.ScenarioAction, restore: bool = False) -> Call[v1.ScenarioState]:
    request = v1.ControlScenarioRequest(action=action, restore=restore)
    return _scenarios("ControlScenario", request, v1.ScenarioState, _same, again=False)


def scenario_state() -> Call[v1.ScenarioState]:
    """State of the current or last scenario."""
    return _scenarios("GetScenarioState", v1.GetScenarioStateRequest(), v1.ScenarioState, _same)


def watch_scenario() -> Call[v1.ScenarioState]:
    """A stream of states."""
    return _scenarios("WatchScenario", v1.WatchScenarioRequest(), v1.ScenarioState, _same)


def _scenarios(
    method: str, request: Message, answer: type[Message], read: Callable[[Any], T], **more: bool
) -> Call[T]:
    return Call(f"/linkemu.v1.Scenarios/{method}", request, answer, read, **more)


# The others.


def events(after: int | None, once: bool) -> Call[v1.Event]:
    """A stream of events."""
    request = v1.WatchEventsRequest(**_given(after=after), once=once)
    return Call("/linkemu.v1.Events/WatchEvents", request, v1.Event, _same)


def certificate(mark: bool, limits: Mapping[str, str | int | None]) -> Call[model.Certificate]:
    """Certificate of the run since the last mark. Limits with a unit may be text."""
    given = {name: _limit(name, limit) for name, limit in limits.items()}
    request = v1.GetCertificateRequest(mark=mark, link="", **_given(**given))
    answer = v1.Certificate
    method = "/linkemu.v1.Certificates/GetCertificate"
    return Call(method, request, answer, model.certificate, again=not mark)


def _limit(name: str, limit: str | int | None) -> object:
    if name.endswith("_ns") and isinstance(limit, str):
        return _quantity.nanoseconds(limit, name)
    if name.endswith("_percent") and isinstance(limit, str):
        return _quantity.percent(limit, name)
    return limit


def capture(
    clients: Iterable[str], direction: Direction, snaplen: Size, count: int, duration: Duration
) -> Call[v1.CaptureChunk]:
    """A stream of copies of packets."""
    request = v1.CaptureRequest(
        clients=list(clients),
        direction=_direction(direction),  # type: ignore[arg-type]
        snaplen=_quantity.size(snaplen, "snaplen"),
        count=count,
        duration_ns=_quantity.nanoseconds_of_seconds(duration, "duration"),
    )
    return Call("/linkemu.v1.Captures/Capture", request, v1.CaptureChunk, _same, again=False)
