# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, each with the server's own words.

A message says what is wrong and what to do about it; programs look at the class, at
`violations` (which field, what is wrong with it) and at `numbers` (of a link that does not
fit: what it needs and what there is).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    from linkemu import v1

_DETAILS = "grpc-status-details-bin"


@dataclass(frozen=True)
class Violation:
    """A field that cannot be as it is."""

    path: str
    """Such as "forward.queue.limit"."""
    message: str
    """What is wrong, and the remedy."""


class LinkemuError(Exception):
    """The base of all errors of this package."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        violations: Sequence[Violation] = (),
        numbers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        """In words, with the remedy."""
        self.code = code
        """gRPC's name of the status, such as "FAILED_PRECONDITION"; empty: it is not linkd's."""
        self.violations = tuple(violations)
        """Of a request that cannot be, field by field."""
        self.numbers = dict(numbers or {})
        """What linkd added for programs, by name."""


class Unavailable(LinkemuError):
    """Linkd, or the dataplane behind it, cannot be reached."""


class TimedOut(Unavailable):
    """It did not answer in time. Whether a change was made is not known."""


class Refused(LinkemuError):
    """What was asked for cannot be done as things are."""


class InvalidRequest(Refused):
    """It can never be done; `violations` has the fields."""


class NotFound(Refused):
    """There is nothing of that name; the message has the nearest."""


class AlreadyExists(Refused):
    """Something else has that name."""


class Conflict(Refused):
    """Somebody else has changed the link since the expected generation."""


class Busy(Refused):
    """As many as can be are there already: captures, or streams."""


class PermissionDenied(Refused):
    """The certificate, or its role, does not permit it."""


class Unsupported(Refused):
    """This linkd does not know the call: it is older than this package."""


class LeaseHeld(Refused):
    """Another one has the lease."""

    def __init__(self, message: str, *, holder: str, expires: datetime | None) -> None:
        super().__init__(message, code=grpc.StatusCode.FAILED_PRECONDITION.name)
        self.holder = holder
        """Whose the link is."""
        self.expires = expires
        """When it ends unless they renew it."""


class LeaseLost(Refused):
    """The lease ended before it was released: it expired, or somebody took it."""


class DataLost(LinkemuError):
    """The caller read a stream so slowly that some of it is gone."""


class ScenarioStopped(LinkemuError):
    """A scenario did not come to its end."""

    def __init__(self, message: str, state: v1.ScenarioState) -> None:
        super().__init__(message)
        self.state = state
        """The last that is known of it."""


class Failed(LinkemuError):
    """An error that none of the others is."""


_CLASSES: dict[grpc.StatusCode, type[LinkemuError]] = {
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: TimedOut,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.FAILED_PRECONDITION: Refused,
    grpc.StatusCode.ABORTED: Conflict,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Busy,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.UNAUTHENTICATED: PermissionDenied,
    grpc.StatusCode.UNIMPLEMENTED: Unsupported,
    grpc.StatusCode.DATA_LOSS: DataLost,
}


class Status(Protocol):
    """What gRPC's errors have in common, with asyncio or without."""

    def code(self) -> grpc.StatusCode | None: ...  # noqa: D102
    def details(self) -> str | None: ...  # noqa: D102
    def trailing_metadata(self) -> object: ...  # noqa: D102


def from_status(status: Status, address: str, timeout: float | None) -> LinkemuError:
    """The exception for gRPC's error of a call to `address`."""
    code = status.code() or grpc.StatusCode.UNKNOWN
    words = (status.details() or "").strip()
    violations, numbers = _details(status.trailing_metadata())
    if code is grpc.StatusCode.UNAVAILABLE:
        words = f"cannot reach linkd at {address}: {words or 'no answer'}. {_remedy(address)}"
    elif code is grpc.StatusCode.DEADLINE_EXCEEDED:
        within = "in time" if timeout is None else f"within {timeout:g} s"
        words = f"linkd at {address} did not answer {within}: is it overloaded or stopped?"
    elif code is grpc.StatusCode.UNIMPLEMENTED:
        words = f"linkd at {address} does not know this call: update it ({words})"
    elif not words:
        words = f"linkd at {address} answered {code.name} without a word"
    kind = _CLASSES.get(code, Failed)
    return kind(words, code=code.name, violations=violations, numbers=numbers)


def _remedy(address: str) -> str:
    if address.startswith("unix:"):
        return "Is it running, and may you open its socket? See `linkctl doctor`"
    return "Is it running with --listen there, and are both sides' certificates valid?"


def _details(metadata: object) -> tuple[list[Violation], dict[str, str]]:
    violations: list[Violation] = []
    numbers: dict[str, str] = {}
    pairs = metadata if isinstance(metadata, tuple | list) else list(metadata or ())  # type: ignore[call-overload]
    for key, value in pairs:
        if key != _DETAILS or not isinstance(value, bytes):
            continue
        try:
            for detail in status_pb2.Status.FromString(value).details:
                bad = error_details_pb2.BadRequest()
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(bad):
                    fields = bad.field_violations
                    violations += [Violation(v.field, v.description) for v in fields]
                elif detail.Unpack(info):
                    numbers.update(info.metadata)
        except DecodeError:
            # The message alone will do.
            continue
    return violations, numbers
