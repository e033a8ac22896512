# SPDX-License-Identifier: Apache-2.0
"""Releases places of labgrid with a job that has ended.

    python -m linkemu.labgrid_sweep --coordinator labgrid:20408 --grace 300

A place of labgrid stays acquired until a user releases it, even if the job that acquired it was
killed. The lease of its link does not: it expires. So a place is released when none of its links
was leased for a whole `--grace`. That must be longer than the time of a job between acquiring the
place and leasing the link. Leases of other links of the same box have no effect.

A box that does not answer is no evidence: its place is left alone. Places without a box are never
touched, nor is a lease. The sweeper needs a certificate with the role `viewer`.

Times are in seconds, on the monotonic clock; options also take text such as "5 min".
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from labgrid.remote.client import start_session
from labgrid.remote.generated import labgrid_coordinator_pb2 as pb2

import linkemu
from linkemu._quantity import option_seconds
from linkemu.labgrid import LinkemuBox

#: How long a box may take to answer.
ANSWER = 5.0

log = logging.getLogger("linkemu.labgrid_sweep")


@dataclass(frozen=True)
class Idle:
    """An acquired place with links that are not leased."""

    #: Holder, and time of the last change at the coordinator: both differ after the place was
    #: released and acquired again.
    held: tuple[str, float]
    #: Time of the first observation.
    since: float


class Sweep:
    """State of the sweeper."""

    def __init__(
        self, session: Any, grace: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.session = session
        self.grace = grace
        self.clock = clock
        self.idle: dict[str, Idle] = {}

    def look(self) -> list[str]:
        """Checks all places once. Returns the names of released places."""
        self._listen(0.1)
        released = []
        for name, place in list(self.session.places.items()):
            held = (place.acquired, place.changed)
            if not place.acquired or not self._is_idle(place):
                self.idle.pop(name, None)
                continue
            idle = self.idle.get(name)
            if idle is None or idle.held != held:
                self.idle[name] = Idle(held, self.clock())
            elif self.clock() - idle.since >= self.grace:
                self._release(place)
                del self.idle[name]
                released.append(name)
        for name in self.idle.keys() - self.session.places.keys():
            del self.idle[name]
        return released

    def wait(self, seconds: float) -> None:
        """Waits, and processes updates of the coordinator."""
        self._listen(seconds)

    def _listen(self, seconds: float) -> None:
        self.session.loop.run_until_complete(asyncio.sleep(seconds))
        if self.session.stopping.is_set():
            raise ConnectionError(f"the coordinator at {self.session.address} is gone")

    def _is_idle(self, place: Any) -> bool:
        """Whether it has links, and none of them is leased."""
        boxes = [path for path in place.acquired_resources if path[2] == LinkemuBox.__name__]
        return bool(boxes) and all(self._is_free(*path) for path in boxes)

    def _is_free(self, exporter: str, group: str, _cls: str, name: str) -> bool:
        try:
            arguments = self.session.resources[exporter][group][name].args
            with LinkemuBox.unbound(arguments).connect(timeout=ANSWER, patience=ANSWER) as box:
                return box.lease_holder() is None
        except (KeyError, TypeError, ValueError, linkemu.LinkemuError) as error:
            log.warning("%s/%s: cannot read the lease of the link: %s", exporter, group, error)
            return False

    def _release(self, place: Any) -> None:
        """Releases it unless another user has acquired it, and cancels its reservation."""
        call = self.session.loop.run_until_complete
        stub = self.session.stub
        log.warning(
            "%s: released from %s: its links had no lease for %g s",
            place.name,
            place.acquired,
            self.grace,
        )
        reservation = place.reservation
        call(
            stub.ReleasePlace(
                pb2.ReleasePlaceRequest(placename=place.name, fromuser=place.acquired)
            )
        )
        if reservation:
            # Otherwise the place is reserved for the dead job for another minute.
            try:
                call(stub.CancelReservation(pb2.CancelReservationRequest(token=reservation)))
            except grpc.aio.AioRpcError as error:
                log.info("%s: reservation %s: %s", place.name, reservation, error.details())


def _seconds(text: str) -> float:
    try:
        return option_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main() -> None:
    """Runs until it is stopped, or the coordinator is gone."""
    arguments = argparse.ArgumentParser(
        prog="python -m linkemu.labgrid_sweep", description=(__doc__ or "").splitlines()[0]
    )
    arguments.add_argument(
        "--coordinator",
        default=os.environ.get("LG_COORDINATOR", "127.0.0.1:20408"),
        metavar="HOST:PORT",
        help="labgrid's coordinator (LG_COORDINATOR)",
    )
    arguments.add_argument(
        "--grace",
        type=_seconds,
        default=300.0,
        metavar="TIME",
        help="release a place after its links had no lease for this time (300)",
    )
    arguments.add_argument(
        "--every", type=_seconds, default=10.0, metavar="TIME", help="look so often (10)"
    )
    options = arguments.parse_args()
    if not options.grace >= 0 or not options.every > 0:
        arguments.error("--grace is not negative, --every above zero")
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    session = start_session(options.coordinator)
    sweep = Sweep(session, options.grace)
    while True:
        sweep.look()
        sweep.wait(options.every)


if __name__ == "__main__":
    main()
