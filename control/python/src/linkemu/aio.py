# SPDX-License-Identifier: Apache-2.0
"""The same as `linkemu.Box` and what it makes, for asyncio: the same names and arguments.

What answers is awaited, streams are asynchronous iterators, and a box, a lease and a capture
are for `async with`. Docstrings are those of the other one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

import grpc
import grpc.aio

from linkemu import _calls, model, v1
from linkemu._calls import Call, Direction, Fields, Given
from linkemu._pcapng import Counts, Writer
from linkemu._terms import Terms, not_begun, reached_end
from linkemu._wire import PATIENCE, TIMEOUT, Attempts, Place, Tls
from linkemu.errors import LinkemuError, NotFound, Refused, TimedOut, from_status

T = TypeVar("T")
_TOKEN = "linkemu-lease"


class Box:
    """As `linkemu.Box`; to be made where the event loop runs."""

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
        options = list(place.options())
        self._channel = (
            grpc.aio.insecure_channel(place.target, options)
            if place.tls is None
            else grpc.aio.secure_channel(place.target, place.tls.credentials(), options)
        )

    @classmethod
    def from_env(cls, *, timeout: float = TIMEOUT, patience: float = PATIENCE) -> Self:
        box = cls.__new__(cls)
        box._open(Place.from_env(), timeout, patience)
        return box

    @property
    def address(self) -> str:
        return self._place.target

    async def close(self) -> None:
        await self._channel.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # How calls are made.

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
            except grpc.aio.AioRpcError as status:
                error = from_status(status, self.address, timeout)
            if call.removes and attempts.removed(error):
                return call.read(call.answer())
            await asyncio.sleep(attempts.pause(error))

    async def _stream(
        self,
        call: Call[T],
        timeout: float | None = None,
    ) -> AsyncIterator[T]:
        method = self._channel.unary_stream(
            call.method,
            request_serializer=type(call.request).SerializeToString,
            response_deserializer=call.answer.FromString,
        )
        answers = method(call.request, timeout=timeout)
        try:
            async for answer in answers:
                yield call.read(answer)
        except grpc.aio.AioRpcError as status:
            raise from_status(status, self.address, timeout) from status
        finally:
            answers.cancel()

    # What there is to see.

    async def version(self) -> str:
        return await self._ask(_calls.version())

    async def profiles(self) -> tuple[v1.Profile, ...]:
        found: list[v1.Profile] = []
        more = True
        while more:
            page = await self._ask(_calls.profiles(found[-1].name if found else ""))
            found += page.profiles
            more = page.more
        return tuple(found)

    async def profile(self, name: str) -> v1.Profile:
        return await self._ask(_calls.profile(name))

    async def put_profile(
        self, profile: Given | None = None, *, toml: str | None = None, replace: bool = False
    ) -> bool:
        return await self._ask(_calls.put_profile(profile, toml, replace))

    async def delete_profile(self, name: str) -> None:
        await self._ask(_calls.delete_profile(name))

    async def validate_profile(
        self, profile: Given | None = None, *, toml: str | None = None
    ) -> tuple[v1.Violation, ...]:
        return await self._ask(_calls.validate_profile(profile, toml))

    async def link(self) -> model.Link:
        return await self._ask(_calls.link())

    async def stats(self, *, mark: bool = False) -> v1.Stats:
        return await self._ask(_calls.stats(mark))

    def watch_stats(self, interval: float = 1.0) -> AsyncIterator[v1.Stats]:
        return self._stream(_calls.watch_stats(interval))

    async def room(self) -> v1.Room:
        return await self._ask(_calls.room())

    async def clients(self) -> v1.Clients:
        return await self._ask(_calls.clients())

    async def client_states(self) -> tuple[v1.ClientState, ...]:
        parts = self._stream(_calls.client_states(), self._timeout)
        return tuple([client async for part in parts for client in part])

    async def scenarios(self) -> tuple[v1.Scenario, ...]:
        return await self._ask(_calls.scenarios())

    async def scenario(self, name: str) -> v1.Scenario:
        return await self._ask(_calls.scenario(name))

    async def scenario_state(self) -> v1.ScenarioState:
        return await self._ask(_calls.scenario_state())

    def events(self, *, after: int | None = None, once: bool = False) -> AsyncIterator[v1.Event]:
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
        which = [*clients, *([client] if client else [])]
        return Capture(
            self, path, _calls.capture(which, direction, snaplen, count, duration), direction
        )


class Lease:
    """The link for oneself, for a while: what `Box.lease` makes."""

    def __init__(self, box: Box, terms: Terms) -> None:
        self._box = box
        self._terms = terms
        self._renewing: asyncio.Task[None] | None = None

    @property
    def box(self) -> Box:
        return self._box

    @property
    def token(self) -> str:
        return self._terms.valid_token()

    @property
    def info(self) -> model.Holder | None:
        return self._terms.info

    async def acquire(self) -> Self:
        request = self._terms.request()
        while True:
            try:
                self._terms.acquired(await self._box._ask(request))
                break
            except Refused as error:
                if type(error) is not Refused:
                    raise
                pause = self._terms.refused(error, await self._box.lease_holder())
            await asyncio.sleep(pause)
        self._renewing = asyncio.create_task(self._renew_on(), name="linkemu-lease")
        return self

    async def renew(self) -> model.Holder:
        call = _calls.renew(self.token)
        began = self._terms.now()
        try:
            # One that is not answered leaves time for another.
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

    async def _renew_on(self) -> None:
        pause: float | None = self._terms.pause
        while pause is not None:
            await asyncio.sleep(pause)
            try:
                await self.renew()
                pause = self._terms.pause
            except LinkemuError as error:
                if self._terms.lost is not None:
                    return
                pause = self._terms.not_renewed(error)

    async def release(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing
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
        # What went wrong first is what is told; the lease ends by itself at the latest.
        with contextlib.suppress(LinkemuError):
            await self.release()

    async def _change(self, call: Call[T]) -> T:
        try:
            return await self._box._ask(call, self.token)
        except Refused as error:
            if type(error) is Refused:
                # Of both reasons that linkd gives, a lost lease is the one to be told.
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
        return await self._change(_calls.set_clients(clients, expected_generation, lossy))

    async def mark(self) -> v1.Stats:
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
        call = _calls.run_scenario(
            scenario, toml, seed, expected_generation, tolerate_changes, lossy
        )
        return Run(self, await self._change(call))


class Run:
    """A scenario that was started: what `Lease.run_scenario` answers."""

    def __init__(self, lease: Lease, state: v1.ScenarioState) -> None:
        self._lease = lease
        self._box = lease.box
        self._started = state

    @property
    def name(self) -> str:
        return self._started.name

    @property
    def number(self) -> int:
        return self._started.run

    async def state(self) -> v1.ScenarioState:
        return await self._box.scenario_state()

    async def watch(self, timeout: float | None = None) -> AsyncIterator[v1.ScenarioState]:
        async for state in self._box._stream(_calls.watch_scenario(), timeout):
            yield state
            if reached_end(self.number, self.name, state):
                return

    async def wait(self, timeout: float | None = None) -> v1.ScenarioState:
        until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        attempts = Attempts(self._box._patience, True)
        while True:
            remaining = None if until is None else until - asyncio.get_running_loop().time()
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
                await asyncio.sleep(attempts.pause(error))

    async def pause(self) -> v1.ScenarioState:
        return await self._lease._change(_calls.pause_scenario())

    async def resume(self) -> v1.ScenarioState:
        return await self._lease._change(_calls.resume_scenario())

    async def stop(self, *, restore: bool = False) -> v1.ScenarioState:
        return await self._lease._change(_calls.stop_scenario(restore))


class Capture:
    """Packets that are being written to a file: what `Box.capture` makes."""

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
        self._begun = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._error: BaseException | None = None

    @property
    def path(self) -> str | os.PathLike[str]:
        return self._path

    @property
    def counts(self) -> Counts:
        return self._writer.counts if self._writer is not None else Counts()

    async def start(self) -> Self:
        self._writer = Writer(self._path, self._direction)
        self._writing = asyncio.create_task(self._write(), name="linkemu-capture")
        try:
            await asyncio.wait_for(self._begun.wait(), self._box._timeout)
        except BaseException as error:
            with contextlib.suppress(LinkemuError, OSError):
                await self.stop()
            if isinstance(error, TimeoutError):
                raise not_begun(self._box.address, self._box._timeout) from None
            raise
        if self._error is not None:
            await self.stop()
        return self

    async def _write(self) -> None:
        assert self._writer is not None
        try:
            async for chunk in self._box._stream(self._call):
                self._writer.take(chunk)
                self._begun.set()
        except Exception as error:
            self._error = error
        finally:
            self._begun.set()

    async def wait(self, timeout: float | None = None) -> bool:
        if self._writing is None:
            return True
        done, _ = await asyncio.wait({self._writing}, timeout=timeout)
        return bool(done)

    async def stop(self) -> Counts:
        if self._writing is not None:
            self._writing.cancel()
        await self.wait()
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
