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

from google.protobuf.json_format import MessageToJson

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from linkemu import v1


@dataclass(frozen=True)
class Link:
    """The current link."""

    name: str
    """Name of the profile, with a trailing "*" after a patch; empty: there is no link."""
    profile: v1.Profile
    """The whole profile."""
    seed: int
    """Seed of its random processes."""
    generation: int
    """Generation of the configuration; each change increments it."""
    effective_ns: int
    """Time of effect, on the dataplane's clock."""
    effective: datetime | None
    """Time of effect, on the wall clock."""
    lossy: bool
    """It was accepted although it can lose packets for lack of memory or time."""
    remarks: tuple[str, ...]
    """Parts of the profile that have no effect, as text."""


@dataclass(frozen=True)
class Change(Link):
    """A change of the link, and the resulting link."""

    repeated: bool
    """The same request had been applied before."""


@dataclass(frozen=True)
class Holder:
    """Holder of the lease."""

    holder: str
    """Name that the holder has given."""
    purpose: str
    """Purpose that the holder has given."""
    who: str
    """Identity that linkd has verified."""
    acquired: datetime | None
    """Time of acquisition."""
    expires: datetime | None
    """Time at which the lease expires unless it is renewed."""
    ttl: float
    """Time to live, in seconds."""
    return_to: str
    """Profile that is set when the lease ends; empty: the link stays."""


@dataclass(frozen=True)
class Criterion:
    """A figure of a run and its limit."""

    name: str
    """Such as "emulator_drops"."""
    value: int
    """Measured value."""
    limit: int
    """Limit for the value."""
    at_least: bool
    """True if the limit is a minimum, otherwise it is a maximum."""
    unit: str
    """"packets", "ns", "bytes", "pipes", "changes" or "faults"."""
    holds: bool
    """Whether the value is within the limit."""
    text: str
    """Description."""
    reason: str = ""
    """Why it has this limit, such as "viasat2: 1 % of its round trip of 575 ms"."""


@dataclass(frozen=True)
class Certificate:
    """Was the emulator itself the bottleneck since the last mark?"""

    holds: bool
    """The emulator was not the bottleneck: all criteria hold."""
    criteria: tuple[Criterion, ...]
    """All compared values."""
    remarks: tuple[str, ...]
    """Further information for the reader."""
    json: str
    """All of it, in the JSON form of protobuf, which `linkctl` reads."""
    summary: str = ""
    """The verdict as a sentence."""
    remedies: tuple[str, ...] = ()
    """What to change before the run is repeated."""

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


def change(answer: v1.Link, repeated: bool) -> Change:
    """From a message."""
    profile = answer.profile
    return Change(profile.name, profile, answer.seed, *_applied(answer), repeated)


def _applied(answer: v1.Link) -> tuple[int, int, datetime | None, bool, tuple[str, ...]]:
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
        Criterion(c.name, c.value, c.limit, c.at_least, c.unit, c.holds, c.text, c.reason)
        for c in answer.criteria
    )
    remarks, remedies = tuple(answer.remarks), tuple(answer.remedies)
    json = MessageToJson(
        answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return Certificate(answer.holds, criteria, remarks, json, answer.summary, remedies)
