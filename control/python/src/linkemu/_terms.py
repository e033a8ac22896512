# SPDX-License-Identifier: Apache-2.0
"""State of a lease and of a scenario's run, independent of how calls are made. Pure.

A lease is renewed three times in its time to live. A lease that is not released expires after that
time, so a killed process leaves no lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from linkemu import _calls, model, v1
from linkemu.errors import (
    LeaseHeld,
    LeaseLost,
    LinkemuError,
    NotFound,
    Refused,
    ScenarioStopped,
    TimedOut,
)

LOOK = 0.25
"""Seconds between two attempts to acquire a lease."""
_ENDS = (v1.SCENARIO_PHASE_FINISHED, v1.SCENARIO_PHASE_STOPPED)


@dataclass
class Terms:
    """Arguments and state of a lease."""

    holder: str
    purpose: str
    ttl: float
    return_to: str | None
    wait: float
    steal: bool
    token: str | None = None
    info: model.Holder | None = None
    lost: LeaseLost | None = None
    now: Callable[[], float] = time.monotonic
    _waits_until: float | None = None
    _renewed: float = 0.0
    _missing: int = field(default=0, repr=False)

    def request(self) -> _calls.Call[v1.AcquireLeaseResponse]:
        """The request to acquire it. The same request is repeated while the caller waits."""
        if self.token is not None:
            raise LinkemuError("this lease is already acquired: make a new one")
        self._waits_until = self.now() + self.wait
        return _calls.acquire(self.holder, self.purpose, self.ttl, self.return_to, self.steal)

    def acquired(self, answer: v1.AcquireLeaseResponse) -> None:
        """Stores the acquired lease."""
        self.token = answer.token
        self.info = model.holder(answer.lease)
        self.lost = None
        self._renewed = self.now()

    def refused(self, error: Refused, held: model.Holder | None) -> float:
        """Seconds until the next attempt. Raises after the maximum wait."""
        if held is None:
            # It has ended since, or was not the reason; the next attempt shows which.
            self._missing += 1
            if self._missing > 2:
                raise error
            return 0.0
        self._missing = 0
        if self.now() >= (self._waits_until or 0.0):
            waited = f" for {self.wait:g} s without success" if self.wait else ""
            hint = "" if self.wait else "; `wait` has you wait for your turn"
            raise LeaseHeld(
                f"{error.message}{hint}{f' (waited{waited})' if waited else ''}",
                holder=held.holder,
                expires=held.expires,
            ) from error
        return LOOK

    @property
    def pause(self) -> float:
        """Seconds between two renewals."""
        return self.ttl / 3

    @property
    def remaining(self) -> float:
        """Seconds until it expires without a renewal."""
        return self._renewed + self.ttl - self.now()

    def renewed(self, info: model.Holder, began: float) -> None:
        """Extends it, at least from the begin of the call."""
        self.info = info
        self._renewed = began

    def not_renewed(self, error: LinkemuError) -> float | None:
        """Seconds until the next attempt. None if the lease is lost."""
        if isinstance(error, NotFound) or self.remaining <= 0:
            self.lose(error)
            return None
        return min(LOOK, self.remaining)

    def lose(self, error: LinkemuError) -> None:
        """Records that it ended before its release."""
        self.lost = LeaseLost(
            f"the lease of {self.holder} ended before it was released: {error.message}",
            code=error.code,
        )

    def valid_token(self) -> str:
        """The token for a call. Raises if there is none."""
        if self.lost is not None:
            raise self.lost
        if self.token is None:
            raise LinkemuError("this lease is not acquired: use it in a `with` statement")
        return self.token


def not_begun(address: str, timeout: float) -> TimedOut:
    """The error of a capture that linkd did not start."""
    return TimedOut(
        f"linkd at {address} did not begin the capture within {timeout:g} s: is it overloaded or "
        "stopped?",
        code=grpc.StatusCode.DEADLINE_EXCEEDED.name,
    )


def reached_end(run: int, name: str, state: v1.ScenarioState) -> bool:
    """Whether a run has finished. Raises if it was stopped."""
    if state.run != run:
        raise ScenarioStopped(
            f"scenario {name} no longer runs: linkd was restarted, or another one was run "
            "after it; see `linkctl events`",
            state,
        )
    if state.phase == v1.SCENARIO_PHASE_STOPPED:
        why = state.message or "linkd gives no reason"
        raise ScenarioStopped(f"scenario {name} was stopped: {why}", state)
    return state.phase in _ENDS
