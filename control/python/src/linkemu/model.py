# SPDX-License-Identifier: Apache-2.0
"""Answers of calls, where a class is more convenient than the message.

Profiles, statistics, events, clients and scenarios stay messages of `linkemu.v1`: their protos
document each field. Units are in the names, as there: nanoseconds, bit/s, bytes. Times are aware
`datetime`s in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from linkemu import v1


@dataclass(frozen=True)
class Link:
    """The current link."""

    name: str
    """Of the profile, with a trailing "*" after a patch; empty: none is in force."""
    profile: v1.Profile
    """All that it does."""
    seed: int
    """Of its random processes."""
    generation: int
    """Of the configuration; each change counts it up."""
    effective_ns: int
    """When it took effect, on the dataplane's clock."""
    effective: datetime | None
    """The same by the wall clock."""
    lossy: bool
    """It was accepted although it can lose packets for want of memory or time."""
    remarks: tuple[str, ...]
    """What it says and will not do, in words."""


@dataclass(frozen=True)
class Change(Link):
    """A change of the link, and the resulting link."""

    repeated: bool
    """The same request had been carried out before."""


@dataclass(frozen=True)
class Holder:
    """Holder of the lease."""

    holder: str
    """Who they say they are."""
    purpose: str
    """What for."""
    who: str
    """Who they are, as linkd knows them."""
    acquired: datetime | None
    """Since when."""
    expires: datetime | None
    """When the lease ends unless it is renewed."""
    ttl: float
    """Its time to live, in seconds."""
    return_to: str
    """The profile that is set when it ends; empty: the link stays."""


@dataclass(frozen=True)
class Criterion:
    """A figure of a run and its limit."""

    name: str
    """Such as "emulator_drops"."""
    value: int
    """The figure."""
    limit: int
    """Its limit."""
    at_least: bool
    """The figure has to be the limit or more; else the limit or less."""
    unit: str
    """"packets", "ns", "bytes", "pipes", "changes" or "faults"."""
    holds: bool
    """Whether it is."""
    text: str
    """In words."""


@dataclass(frozen=True)
class Certificate:
    """Was the emulator itself the bottleneck since the last mark?"""

    holds: bool
    """It was not: all criteria hold."""
    criteria: tuple[Criterion, ...]
    """What was compared."""
    remarks: tuple[str, ...]
    """What the reader should know beside."""
    json: str
    """The whole, as `linkctl -o json certificate` prints it."""

    @property
    def failed(self) -> tuple[Criterion, ...]:
        """The criteria that do not hold."""
        return tuple(c for c in self.criteria if not c.holds)

    def to_json(self) -> str:
        """All of it as JSON, for a file beside the results."""
        return self.json


def utc(stamp: Timestamp) -> datetime | None:
    """A time; none if it is not set."""
    return stamp.ToDatetime(tzinfo=UTC) if stamp.ListFields() else None


def link(answer: v1.Link) -> Link:
    """From a message."""
    return Link(answer.profile.name, answer.profile, answer.seed, *_applied(answer))


def change(answer: v1.ChangeResponse) -> Change:
    """From a message."""
    profile = answer.profile
    return Change(profile.name, profile, answer.seed, *_applied(answer), answer.repeated)


def _applied(
    answer: v1.Link | v1.ChangeResponse,
) -> tuple[int, int, datetime | None, bool, tuple[str, ...]]:
    applied = answer.applied
    return (
        applied.generation,
        applied.effective_ns,
        utc(applied.effective_utc),
        applied.lossy,
        tuple(answer.remarks),
    )


def holder(lease: v1.Lease) -> Holder:
    """From a message."""
    return Holder(
        lease.holder,
        lease.purpose,
        lease.who,
        utc(lease.acquired),
        utc(lease.expires),
        lease.ttl_ns / 1e9,
        lease.return_profile,
    )


def certificate(answer: v1.Certificate) -> Certificate:
    """From a message."""
    criteria = tuple(
        Criterion(c.name, c.value, c.limit, c.at_least, c.unit, c.holds, c.text)
        for c in answer.criteria
    )
    return Certificate(answer.holds, criteria, tuple(answer.remarks), answer.json)
