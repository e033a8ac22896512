# SPDX-License-Identifier: Apache-2.0
"""A lease with the calls that need one, and the run of a scenario."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from linkemu import _calls, model, v1
from linkemu._calls import Call, Given
from linkemu._fields import Fields
from linkemu._quantity import Duration, seconds
from linkemu._tasks import Background, sleep
from linkemu._terms import Terms, reached_end
from linkemu._wire import Attempts
from linkemu.errors import LinkemuError, NotFound, Refused, TimedOut

if TYPE_CHECKING:
    from linkemu.aio._box import Box

T = TypeVar("T")


class Lease:
    """An exclusive right to change the link, made by `Box.lease`."""

    def __init__(self, box: Box, terms: Terms) -> None:
        self._box = box
        self._terms = terms
        self._renewing: Background | None = None
        self._run: Run | None = None

    @property
    def box(self) -> Box:
        """The box of the link."""
        return self._box

    @property
    def token(self) -> str:
        """The token, for LINKEMU_LEASE of linkctl. A secret."""
        return self._terms.valid_token()

    @property
    def info(self) -> model.Holder | None:
        """The last description by linkd."""
        return self._terms.info

    async def acquire(self) -> Self:
        """Acquires the lease, and renews it in the background. `async with` calls it."""
        request = self._terms.request()
        while True:
            try:
                self._terms.acquired(await self._box._ask(request))
                break
            except Refused as error:
                if type(error) is not Refused:
                    raise
                pause = self._terms.refused(error, await self._box.lease_holder())
            await sleep(pause)
        self._renewing = Background(self._renew_on, "linkemu-lease")
        return self

    async def renew(self) -> model.Holder:
        """Extends the lease by its time to live. It is called in the background."""
        call = _calls.renew(self.token)
        began = self._terms.now()
        try:
            # Leaves time for another attempt.
            timeout = min(self._box._timeout, self._terms.pause)
            info = await self._box._ask(call, timeout=timeout)
        except NotFound as error:
            self._terms.lose(error)
            return self._lost()
        self._terms.renewed(info, began)
        return info

    def _lost(self) -> model.Holder:
        self._terms.valid_token()
        raise AssertionError("a lost lease has no token")

    async def _renew_on(self, background: Background) -> None:
        pause: float | None = self._terms.pause
        while pause is not None and await background.sleep(pause):
            try:
                await self.renew()
                pause = self._terms.pause
            except LinkemuError as error:
                if self._terms.lost is not None:
                    return
                pause = self._terms.not_renewed(error)

    async def release(self) -> None:
        """Releases the lease. Raises `LeaseLost` if it ended before."""
        if self._renewing is not None:
            await self._renewing.stop()
            self._renewing = None
        token = self._terms.valid_token()
        self._terms.token = None
        try:
            await self._box._ask(_calls.release(token))
        except NotFound as error:
            self._terms.lose(error)
            self._lost()

    async def __aenter__(self) -> Self:
        return await self.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.release()
            return
        # The first error is raised. The lease expires anyway.
        with contextlib.suppress(LinkemuError):
            await self.release()

    async def _change(self, call: Call[T]) -> T:
        try:
            return await self._box._ask(call, self.token)
        except Refused as error:
            if type(error) is Refused:
                # linkd reports two reasons alike; a lost lease takes precedence.
                await self.renew()
            raise

    async def set_profile(
        self,
        profile: Given | None = None,
        *,
        toml: str | None = None,
        seed: int | None = None,
        expected_generation: int | None = None,
        lossy: bool = False,
    ) -> model.Change:
        """Replaces the whole link by a profile and restarts its random processes.

        `profile` is the name of a profile in linkd, a message, or the path of a file (a `Path`, or
        text with a '/' or ending in ".toml"); `toml` is the text of such a file. `seed` is the
        seed of all random processes; the default is the current one. `expected_generation` refuses
        the change if the current generation differs. `lossy` accepts a profile that does not fit
        into the box.
        """
        update = _calls.profile_update(profile, toml, seed)
        return await self._change(_calls.update(update, expected_generation, lossy))

    async def patch(
        self,
        *,
        forward: Fields | None = None,
        return_: Fields | None = None,
        both: Fields | None = None,
        expected_generation: int | None = None,
        lossy: bool = False,
    ) -> model.Change:
        """Changes parts of the link; the other parts continue.

        Each argument has new values of a pipe. Keys of a profile take text, as in a profile:
        `forward={"rate": "72 Mbit/s", "delay": {"base": "280 ms"}}`. Fields of `linkemu.v1.Pipe`
        take a number in the unit of their name, or text: `forward={"rate_bps": 72_000_000, "delay":
        {"base_ns": "280 ms"}}`. None removes a part. Parts of `queue` and `delay` are changed
        one by one. All directions change at one instant.
        """
        update = _calls.pipe_updates(forward, return_, both)
        return await self._change(_calls.update(update, expected_generation, lossy))

    async def set_clients(
        self,
        clients: v1.Clients,
        *,
        expected_generation: int | None = None,
        lossy: bool = False,
    ) -> model.Change:
        """Replaces all rules for clients. The profile does not change."""
        update = v1.LinkUpdate(clients=clients)
        return await self._change(_calls.update(update, expected_generation, lossy))

    async def assign(
        self,
        *,
        prefixes: Sequence[str] = (),
        vlans: Sequence[int] = (),
        macs: Sequence[str] = (),
        matches: Sequence[v1.Match] = (),
    ) -> v1.LinkRules:
        """Replaces the rules that assign traffic to the link of this lease; without any, it gets
        none. Answers those of all links.
        """
        return await self._change(_calls.assign(prefixes, vlans, macs, matches))

    async def mark(self) -> v1.Stats:
        """Begins a run: `Box.certificate` judges it."""
        return await self._box._ask(_calls.stats(True), self.token)

    async def run_scenario(
        self,
        scenario: str | os.PathLike[str] | None = None,
        *,
        toml: str | None = None,
        seed: int | None = None,
        expected_generation: int | None = None,
        tolerate_changes: bool = False,
        lossy: bool = False,
    ) -> Run:
        """Starts a scenario: by its name, by the `Path` of its file, or as TOML.

        Values in TOML have units: `[[step]]` / `both.rate = "72 Mbit/s"`.
        """
        call = _calls.run_scenario(
            scenario, toml, seed, expected_generation, tolerate_changes, lossy
        )
        self._run = Run(self, await self._change(call))
        return self._run


class Run:
    """A scenario that was started by `Lease.run_scenario`."""

    def __init__(self, lease: Lease, state: v1.ScenarioState) -> None:
        self._lease = lease
        self._box = lease.box
        self._started = state
        self._stopped = False

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self._started.name

    @property
    def number(self) -> int:
        """Number of the run, as in events."""
        return self._started.run

    async def state(self) -> v1.ScenarioState:
        """The current state."""
        return await self._box.scenario_state()

    async def watch(self, timeout: Duration | None = None) -> AsyncIterator[v1.ScenarioState]:
        """The state now and after each change, until the end."""
        limit = None if timeout is None else seconds(timeout, "timeout")
        async for state in self._box._stream(_calls.watch_scenario(), limit):
            yield state
            if reached_end(self.number, self.name, state):
                return

    async def wait(self, timeout: Duration | None = None) -> v1.ScenarioState:
        """Waits for the end. Raises `ScenarioStopped` if the scenario is stopped, and `TimedOut`
        after `timeout` (seconds, or text such as "1 min"); the scenario continues then.
        """
        limit = None if timeout is None else seconds(timeout, "timeout")
        until = None if limit is None else time.monotonic() + limit
        attempts = Attempts(self._box._patience, True)
        while True:
            remaining = None if until is None else until - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise TimedOut(f"scenario {self.name} did not end within {limit:g} s")
            try:
                async for state in self.watch(remaining):
                    if reached_end(self.number, self.name, state):
                        return state
                    attempts = Attempts(self._box._patience, True)
            except TimedOut:
                continue
            except LinkemuError as error:
                await sleep(attempts.pause(error))

    async def pause(self) -> v1.ScenarioState:
        """Pauses the timeline. The link stays as it is."""
        return await self._lease._change(_calls.pause_scenario())

    async def resume(self) -> v1.ScenarioState:
        """Resumes the timeline."""
        return await self._lease._change(_calls.resume_scenario())

    async def stop(self, *, restore: bool = False) -> v1.ScenarioState:
        """Stops the scenario. `restore` restores the link from before it."""
        self._stopped = True
        return await self._lease._change(_calls.stop_scenario(restore))
