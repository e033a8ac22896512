# SPDX-License-Identifier: Apache-2.0
"""Errors, with the messages of the server.

A message gives the fault and the remedy. Programs use the class, `violations` (the field and its
fault) and `numbers` (of a link that does not fit: what it needs and what the box has).
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
    """A field with an invalid value."""

    path: str
    """Such as "forward.queue.limit"."""
    message: str
    """The fault and the remedy."""


class LinkemuError(Exception):
    """Base class of all errors of this package."""

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
        """The fault and the remedy."""
        self.code = code
        """Name of the gRPC status, such as "FAILED_PRECONDITION"; empty: not from linkd."""
        self.violations = tuple(violations)
        """Invalid fields of the request."""
        self.numbers = dict(numbers or {})
        """Figures for programs, by name."""


class Unavailable(LinkemuError):
    """Linkd, or the dataplane behind it, cannot be reached."""


class TimedOut(Unavailable):
    """No answer in time. It is unknown whether a change was made."""


class Refused(LinkemuError):
    """The request is refused in the current state."""


class InvalidRequest(Refused):
    """The request is always invalid; `violations` has the fields."""


class NotFound(Refused):
    """The name does not exist; the message suggests the closest one."""


class AlreadyExists(Refused):
    """The name is in use."""


class Conflict(Refused):
    """Another client has changed the link since the expected generation."""


class Busy(Refused):
    """The limit of captures or streams is reached."""


class PermissionDenied(Refused):
    """The certificate, or its role, does not permit it."""


class Unsupported(Refused):
    """This linkd does not support the call: it is older than this package."""


class LeaseHeld(Refused):
    """Another client has the lease."""

    def __init__(self, message: str, *, holder: str, expires: datetime | None) -> None:
        super().__init__(message, code=grpc.StatusCode.FAILED_PRECONDITION.name)
        self.holder = holder
        """Holder of the lease."""
        self.expires = expires
        """When it ends unless they renew it."""


class LeaseLost(Refused):
    """The lease ended before it was released: it expired, or was revoked."""


class DataLost(LinkemuError):
    """The caller read a stream too slowly, or a box of a group stopped: parts are lost."""


class ScenarioStopped(LinkemuError):
    """A scenario was stopped before its end."""

    def __init__(self, message: str, state: v1.ScenarioState) -> None:
        super().__init__(message)
        self.state = state
        """The last that is known of it."""


class Failed(LinkemuError):
    """Any other error."""


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
    """Common interface of gRPC's errors, with asyncio and without."""

    def code(self) -> grpc.StatusCode | None: ...  # noqa: D102
    def details(self) -> str | None: ...  # noqa: D102
    def trailing_metadata(self) -> object: ...  # noqa: D102


def from_status(status: Status, address: str, timeout: float | None) -> LinkemuError:
    """The exception for a gRPC error of a call to `address`."""
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
            # The message is sufficient.
            continue
    return violations, numbers
