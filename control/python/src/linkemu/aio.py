# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio. `linkemu` has the same names for programs with threads.

Calls are awaited, streams are asynchronous iterators, and a box, a lease and a capture support
`async with`.

`generate.py` generates `linkemu._sync` from this file: it removes `async` and `await`, and
replaces `_tasks` by `_threads`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

from linkemu import _calls, model, v1
from linkemu._calls import Call, Direction, Fields, Given
from linkemu._pcapng import Counts, Writer
from linkemu._tasks import (
    Background,
    Event,
    RpcError,
    cancelled_here,
    close_channel,
    happens,
    open_channel,
    sleep,
)
from linkemu._terms import Terms, not_begun, reached_end
from linkemu._wire import PATIENCE, TIMEOUT, Attempts, Place, Tls
from linkemu.errors import LinkemuError, NotFound, Refused, TimedOut, from_status

T = TypeVar("T")
_TOKEN = "linkemu-lease"


class Box:
    """A box: linkd, and the link that it emulates.

    `address` is "unix:/path" or "/path" of a socket (linkd's usual one without it), or
    "host:port" with `tls`. Each call ends after `timeout` seconds. While linkd cannot be
    reached, because it restarts for example, calls that can be repeated are repeated for
    `patience` seconds. Close it, or use it in `async with`. Several threads can use one
    `linkemu.Box`; a `linkemu.aio.Box` belongs to the event loop in which it was made.
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None = None,
        *,
        tls: Tls | None = None,
        timeout: float = TIMEOUT,
        patience: float = PATIENCE,
    ) -> None:
        self._open(Place.of(address, tls), timeout, patience)

    def _open(self, place: Place, timeout: float, patience: float) -> None:
        self._place = place
        self._timeout = timeout
        self._patience = patience
        self._channel = open_channel(place)

    @classmethod
    def from_env(cls, *, timeout: float = TIMEOUT, patience: float = PATIENCE) -> Self:
        """The box that linkctl would use: from LINKEMU_SERVER, _CA, _CERT and _KEY, or from
        LINKEMU_SOCKET, or the local one.
        """
        box = cls.__new__(cls)
        box._open(Place.from_env(), timeout, patience)
        return box

    @property
    def address(self) -> str:
        """Address of the box."""
        return self._place.target

    async def close(self) -> None:
        """Closes the connection."""
        await close_channel(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # Calls.

    async def _ask(
        self, call: Call[T], token: str | None = None, timeout: float | None = None
    ) -> T:
        timeout = self._timeout if timeout is None else timeout
        method = self._channel.unary_unary(
            call.method,
            request_serializer=type(call.request).SerializeToString,
            response_deserializer=call.answer.FromString,
        )
        metadata = ((_TOKEN, token),) if token else ()
        attempts = Attempts(self._patience, call.again)
        while True:
            try:
                return call.read(await method(call.request, timeout=timeout, metadata=metadata))
            except RpcError as status:
                error = from_status(status, self.address, timeout)
            if call.removes and attempts.removed(error):
                return call.read(call.answer())
            await sleep(attempts.pause(error))

    async def _stream(
        self,
        call: Call[T],
        timeout: float | None = None,
        background: Background | None = None,
    ) -> AsyncIterator[T]:
        method = self._channel.unary_stream(
            call.method,
            request_serializer=type(call.request).SerializeToString,
            response_deserializer=call.answer.FromString,
        )
        answers = method(call.request, timeout=timeout)
        if background is not None:
            background.on_stop(answers.cancel)
        try:
            async for answer in answers:
                yield call.read(answer)
        except RpcError as status:
            if cancelled_here(status):
                return
            raise from_status(status, self.address, timeout) from status
        finally:
            answers.cancel()

    # Queries.

    async def version(self) -> str:
        """Version of linkd, such as "0.1.0"."""
        return await self._ask(_calls.version())

    async def profiles(self) -> tuple[v1.Profile, ...]:
        """All profiles that can be set by name."""
        found: list[v1.Profile] = []
        more = True
        while more:
            page = await self._ask(_calls.profiles(found[-1].name if found else ""))
            found += page.profiles
            more = page.more
        return tuple(found)

    async def profile(self, name: str) -> v1.Profile:
        """A profile by name. The error for a wrong name suggests the closest one."""
        return await self._ask(_calls.profile(name))

    async def put_profile(
        self, profile: Given | None = None, *, toml: str | None = None, replace: bool = False
    ) -> bool:
        """Stores a profile under its name. True if it replaced a stored profile.

        The profile is a message or the path of a file, or the text of a file in `toml`.
        """
        return await self._ask(_calls.put_profile(profile, toml, replace))

    async def delete_profile(self, name: str) -> None:
        """Deletes a stored profile. The link does not change."""
        await self._ask(_calls.delete_profile(name))

    async def validate_profile(
        self, profile: Given | None = None, *, toml: str | None = None
    ) -> tuple[v1.Violation, ...]:
        """Violations in a profile, given as in `put_profile`. Empty if it is valid."""
        return await self._ask(_calls.validate_profile(profile, toml))

    async def link(self) -> model.Link:
        """The current link."""
        return await self._ask(_calls.link())

    async def stats(self, *, mark: bool = False) -> v1.Stats:
        """A snapshot of the statistics. With `mark`, the next span and the next run begin after
        it.
        """
        return await self._ask(_calls.stats(mark))

    def watch_stats(self, interval: float = 1.0) -> AsyncIterator[v1.Stats]:
        """A snapshot now, then one every `interval` seconds, without end."""
        return self._stream(_calls.watch_stats(interval))

    async def room(self) -> v1.Room:
        """Memory and time that the box has for a link."""
        return await self._ask(_calls.room())

    async def clients(self) -> v1.Clients:
        """The rules that assign frames to clients."""
        return await self._ask(_calls.clients())

    async def client_states(self) -> tuple[v1.ClientState, ...]:
        """All clients at one point in time."""
        parts = self._stream(_calls.client_states(), self._timeout)
        return tuple([client async for part in parts for client in part])

    async def scenarios(self) -> tuple[v1.Scenario, ...]:
        """All scenarios that can be run by name."""
        return await self._ask(_calls.scenarios())

    async def scenario(self, name: str) -> v1.Scenario:
        """A scenario by name."""
        return await self._ask(_calls.scenario(name))

    async def scenario_state(self) -> v1.ScenarioState:
        """State of the current or last scenario."""
        return await self._ask(_calls.scenario_state())

    def events(self, *, after: int | None = None, once: bool = False) -> AsyncIterator[v1.Event]:
        """Events from now on, or after the event with the number `after` (0: all that linkd has
        stored). With `once` it ends after the stored events.
        """
        return self._stream(_calls.events(after, once), self._timeout if once else None)

    async def certificate(
        self,
        *,
        mark: bool = False,
        packets: int | None = None,
        emulator_drops: int | None = None,
        lateness_p99_ns: int | None = None,
        stall_ns: int | None = None,
        memory_percent: int | None = None,
        changes: int | None = None,
    ) -> model.Certificate:
        """Judges the run since the last mark: was the emulator itself the bottleneck?

        Omitted limits are those of `linkctl certificate`. With `mark` the next run begins.
        """
        limits = {
            "packets": packets,
            "emulator_drops": emulator_drops,
            "lateness_p99_ns": lateness_p99_ns,
            "stall_ns": stall_ns,
            "memory_percent": memory_percent,
            "changes": changes,
        }
        return await self._ask(_calls.certificate(mark, limits))

    async def lease_holder(self) -> model.Holder | None:
        """The holder of the lease, or none."""
        try:
            return await self._ask(_calls.lease_holder())
        except NotFound:
            return None

    def lease(
        self,
        holder: str,
        *,
        purpose: str = "",
        ttl: float = 60.0,
        return_to: str | None = None,
        wait: float = 0.0,
        steal: bool = False,
    ) -> Lease:
        """A lease, for `async with`. While it is active, no other client can change the link.

        It is renewed in the background. It expires `ttl` seconds (1 s to 24 h) after this process
        was killed. At its end, the link returns to the profile `return_to`, if given. If another
        lease is active, the call waits for up to `wait` seconds and retries four times a second;
        waiting clients are not queued. `steal` revokes the other lease, as an admin.
        """
        return Lease(self, Terms(holder, purpose, ttl, return_to, wait, steal))

    def capture(
        self,
        path: str | os.PathLike[str],
        *,
        client: str | None = None,
        clients: Sequence[str] = (),
        direction: Direction = "both",
        snaplen: int = 128,
        count: int = 0,
        duration: float = 0.0,
    ) -> Capture:
        """Writes packets to a pcapng file, within `async with`.

        It captures all clients, or `client` and `clients`, and `snaplen` bytes of each packet. It
        ends with `async with`, or earlier after `count` copies or `duration` seconds.
        """
        which = [*clients, *([client] if client else [])]
        return Capture(
            self, path, _calls.capture(which, direction, snaplen, count, duration), direction
        )


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
        return await self._change(
            _calls.set_profile(profile, toml, seed, expected_generation, lossy)
        )

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

        Each argument has new values of a pipe, with the keys and units of a profile:
        `forward={"rate": "72 Mbit/s", "delay": {"base": "280 ms"}}`, or as fields of
        `linkemu.v1.Pipe`, in the units of their names: `forward={"rate_bps": 72_000_000, "delay":
        {"base_ns": 280_000_000}}`. None removes a part. Parts of `queue` and `delay` are changed
        one by one. Several directions are several changes; the last one is returned.
        """
        for direction, fields in _calls.patches(forward, return_, both):
            call = _calls.patch(direction, fields, expected_generation, lossy)
            change = await self._change(call)
            if expected_generation is not None:
                expected_generation = change.generation
        return change

    async def set_clients(
        self,
        clients: v1.Clients,
        *,
        expected_generation: int | None = None,
        lossy: bool = False,
    ) -> model.Change:
        """Replaces all rules for clients. The profile does not change."""
        return await self._change(_calls.set_clients(clients, expected_generation, lossy))

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

    async def watch(self, timeout: float | None = None) -> AsyncIterator[v1.ScenarioState]:
        """The state now and after each change, until the end."""
        async for state in self._box._stream(_calls.watch_scenario(), timeout):
            yield state
            if reached_end(self.number, self.name, state):
                return

    async def wait(self, timeout: float | None = None) -> v1.ScenarioState:
        """Waits for the end. Raises `ScenarioStopped` if the scenario is stopped, and `TimedOut`
        after `timeout` seconds; the scenario continues then.
        """
        until = None if timeout is None else time.monotonic() + timeout
        attempts = Attempts(self._box._patience, True)
        while True:
            remaining = None if until is None else until - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise TimedOut(f"scenario {self.name} did not end within {timeout:g} s")
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


class Capture:
    """Packets that are written to a file, made by `Box.capture`."""

    def __init__(
        self,
        box: Box,
        path: str | os.PathLike[str],
        call: Call[v1.CaptureChunk],
        direction: Direction,
    ) -> None:
        self._box = box
        self._call = call
        self._path = path
        self._direction = direction
        self._writer: Writer | None = None
        self._begun = Event()
        self._writing: Background | None = None
        self._error: BaseException | None = None

    @property
    def path(self) -> str | os.PathLike[str]:
        """Path of the file."""
        return self._path

    @property
    def counts(self) -> Counts:
        """Number of written and missed copies."""
        return self._writer.counts if self._writer is not None else Counts()

    async def start(self) -> Self:
        """Starts, and waits until linkd has started to capture. `async with` calls it."""
        self._writer = Writer(self._path, self._direction)
        self._writing = Background(self._write, "linkemu-capture")
        try:
            if not await happens(self._begun, self._box._timeout):
                raise not_begun(self._box.address, self._box._timeout)
        except BaseException:
            with contextlib.suppress(LinkemuError, OSError):
                await self.stop()
            raise
        if self._error is not None:
            await self.stop()
        return self

    async def _write(self, background: Background) -> None:
        assert self._writer is not None
        try:
            async for chunk in self._box._stream(self._call, None, background):
                self._writer.take(chunk)
                self._begun.set()
        except Exception as error:
            self._error = error
        finally:
            self._begun.set()

    async def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end by `count` or `duration`. False after `timeout` seconds."""
        return self._writing is None or await self._writing.wait(timeout)

    async def stop(self) -> Counts:
        """Ends the capture and completes the file."""
        if self._writing is not None:
            await self._writing.stop()
        if self._writer is not None:
            self._writer.close()
        if self._error is not None:
            raise self._error
        return self.counts

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.stop()
            return
        with contextlib.suppress(LinkemuError, OSError):
            await self.stop()


__all__ = ["Box", "Capture", "Lease", "Run"]
