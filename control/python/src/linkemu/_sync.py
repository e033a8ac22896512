# SPDX-License-Identifier: Apache-2.0
"""The client for programs with threads. `linkemu.aio` has the same names for asyncio."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

import grpc

from linkemu import _calls, model, v1
from linkemu._calls import Call, Direction, Fields, Given
from linkemu._pcapng import Counts, Writer
from linkemu._terms import Terms, not_begun, reached_end
from linkemu._wire import PATIENCE, TIMEOUT, Attempts, Place, Tls
from linkemu.errors import LinkemuError, NotFound, Refused, TimedOut, from_status

T = TypeVar("T")
_TOKEN = "linkemu-lease"


class Box:
    """A box: linkd, and the link that it makes.

    `address` is "unix:/path" or "/path" of a socket (linkd's usual one without it), or
    "host:port" with `tls`. Each call ends after `timeout` seconds. If linkd cannot be
    reached, because it is being restarted for example, a call that can be repeated is
    repeated for `patience` seconds. Safe to be used by several threads; to be closed, or
    used in a `with` statement.
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
        options = list(place.options())
        self._channel = (
            grpc.insecure_channel(place.target, options)
            if place.tls is None
            else grpc.secure_channel(place.target, place.tls.credentials(), options)
        )

    @classmethod
    def from_env(cls, *, timeout: float = TIMEOUT, patience: float = PATIENCE) -> Self:
        """The box that linkctl would use: of LINKEMU_SERVER, _CA, _CERT and _KEY, or of
        LINKEMU_SOCKET, or this machine's.
        """
        box = cls.__new__(cls)
        box._open(Place.from_env(), timeout, patience)
        return box

    @property
    def address(self) -> str:
        """Where it is."""
        return self._place.target

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # How calls are made.

    def _ask(self, call: Call[T], token: str | None = None, timeout: float | None = None) -> T:
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
                return call.read(method(call.request, timeout=timeout, metadata=metadata))
            except grpc.RpcError as status:
                error = from_status(status, self.address, timeout)
            if call.removes and attempts.removed(error):
                return call.read(call.answer())
            time.sleep(attempts.pause(error))

    def _stream(
        self,
        call: Call[T],
        timeout: float | None = None,
        started: Callable[[Callable[[], object]], None] | None = None,
    ) -> Iterator[T]:
        method = self._channel.unary_stream(
            call.method,
            request_serializer=type(call.request).SerializeToString,
            response_deserializer=call.answer.FromString,
        )
        answers = method(call.request, timeout=timeout)
        if started is not None:
            started(answers.cancel)
        try:
            for answer in answers:
                yield call.read(answer)
        except grpc.RpcError as status:
            if status.code() is grpc.StatusCode.CANCELLED:
                return
            raise from_status(status, self.address, timeout) from status
        finally:
            answers.cancel()  # type: ignore[no-untyped-call]

    # What there is to see.

    def version(self) -> str:
        """Of linkd, such as "0.1.0"."""
        return self._ask(_calls.version())

    def profiles(self) -> tuple[v1.Profile, ...]:
        """All profiles that can be set by name."""
        found: list[v1.Profile] = []
        more = True
        while more:
            page = self._ask(_calls.profiles(found[-1].name if found else ""))
            found += page.profiles
            more = page.more
        return tuple(found)

    def profile(self, name: str) -> v1.Profile:
        """One of them; the error of a wrong name has the nearest."""
        return self._ask(_calls.profile(name))

    def put_profile(
        self, profile: Given | None = None, *, toml: str | None = None, replace: bool = False
    ) -> bool:
        """Stores a profile under its name; true if it took a stored one's place.

        It is a message or the path of a file, or as `toml` the text of one.
        """
        return self._ask(_calls.put_profile(profile, toml, replace))

    def delete_profile(self, name: str) -> None:
        """Removes a stored profile. The link does not change."""
        self._ask(_calls.delete_profile(name))

    def validate_profile(
        self, profile: Given | None = None, *, toml: str | None = None
    ) -> tuple[v1.Violation, ...]:
        """What is wrong with a profile, given as to `put_profile`; nothing if it is valid."""
        return self._ask(_calls.validate_profile(profile, toml))

    def link(self) -> model.Link:
        """The link in force."""
        return self._ask(_calls.link())

    def stats(self, *, mark: bool = False) -> v1.Stats:
        """A snapshot of the statistics; with `mark` the next span, and run, begin after it."""
        return self._ask(_calls.stats(mark))

    def watch_stats(self, interval: float = 1.0) -> Iterator[v1.Stats]:
        """A snapshot at once, then one every `interval` seconds, without end."""
        return self._stream(_calls.watch_stats(interval))

    def room(self) -> v1.Room:
        """What the box has to hold a link with."""
        return self._ask(_calls.room())

    def clients(self) -> v1.Clients:
        """The rules that say which frames are whose."""
        return self._ask(_calls.clients())

    def client_states(self) -> tuple[v1.ClientState, ...]:
        """Every client there is, of one instant."""
        parts = self._stream(_calls.client_states(), self._timeout)
        return tuple(client for part in parts for client in part)

    def scenarios(self) -> tuple[v1.Scenario, ...]:
        """All scenarios that can be run by name."""
        return self._ask(_calls.scenarios())

    def scenario(self, name: str) -> v1.Scenario:
        """One of them."""
        return self._ask(_calls.scenario(name))

    def scenario_state(self) -> v1.ScenarioState:
        """Of the scenario that runs, or ran last."""
        return self._ask(_calls.scenario_state())

    def events(self, *, after: int | None = None, once: bool = False) -> Iterator[v1.Event]:
        """What happens from now on, or after the event of the number `after` (0: all that
        linkd still has). With `once` it ends after what there is.
        """
        return self._stream(_calls.events(after, once), self._timeout if once else None)

    def certificate(
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
        """Judges what happened since the last mark: was the emulator itself the bottleneck?

        Limits that are not given are as for `linkctl certificate`. With `mark` the next run
        begins.
        """
        limits = {
            "packets": packets,
            "emulator_drops": emulator_drops,
            "lateness_p99_ns": lateness_p99_ns,
            "stall_ns": stall_ns,
            "memory_percent": memory_percent,
            "changes": changes,
        }
        return self._ask(_calls.certificate(mark, limits))

    def lease_holder(self) -> model.Holder | None:
        """Whose the link is; none if it is nobody's."""
        try:
            return self._ask(_calls.lease_holder())
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
        """A lease, for a `with` statement; while it runs, only it changes the link.

        It is renewed in the background. `ttl` seconds (1 s to 24 h) after this process was
        killed it ends by itself. However it ends, the link returns to the profile
        `return_to`, if there is one. If another lease runs, it is waited for `wait` seconds;
        who waits is served as soon as it looks first, four times a second. `steal` takes it,
        as an admin.
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
        """Writes packets to a pcapng file, in a `with` statement and while it lasts.

        Of all clients, or of `client` and `clients`; `snaplen` bytes of each; until its end,
        or that of the `with` statement, or `count` copies or `duration` seconds before.
        """
        which = [*clients, *([client] if client else [])]
        return Capture(
            self, path, _calls.capture(which, direction, snaplen, count, duration), direction
        )


class Lease:
    """The link for oneself, for a while: what `Box.lease` makes."""

    def __init__(self, box: Box, terms: Terms) -> None:
        self._box = box
        self._terms = terms
        self._over = threading.Event()
        self._renewing: threading.Thread | None = None
        self._run: Run | None = None

    @property
    def box(self) -> Box:
        """Whose link it is."""
        return self._box

    @property
    def token(self) -> str:
        """For LINKEMU_LEASE of linkctl. A secret."""
        return self._terms.valid_token()

    @property
    def info(self) -> model.Holder | None:
        """As linkd last described it."""
        return self._terms.info

    def acquire(self) -> Self:
        """Acquires it, and renews it from then on. A `with` statement does so."""
        request = self._terms.request()
        while True:
            try:
                self._terms.acquired(self._box._ask(request))
                break
            except Refused as error:
                if type(error) is not Refused:
                    raise
                pause = self._terms.refused(error, self._box.lease_holder())
            time.sleep(pause)
        self._over.clear()
        self._renewing = threading.Thread(target=self._renew_on, name="linkemu-lease", daemon=True)
        self._renewing.start()
        return self

    def renew(self) -> model.Holder:
        """Lets it run for its time to live from now on. It is done by itself."""
        call = _calls.renew(self.token)
        began = self._terms.now()
        try:
            # One that is not answered leaves time for another.
            timeout = min(self._box._timeout, self._terms.pause)
            info = self._box._ask(call, timeout=timeout)
        except NotFound as error:
            self._terms.lose(error)
            return self._lost()
        self._terms.renewed(info, began)
        return info

    def _lost(self) -> model.Holder:
        self._terms.valid_token()
        raise AssertionError("a lost lease has no token")

    def _renew_on(self) -> None:
        pause: float | None = self._terms.pause
        while pause is not None and not self._over.wait(pause):
            try:
                self.renew()
                pause = self._terms.pause
            except LinkemuError as error:
                if self._terms.lost is not None:
                    return
                pause = self._terms.not_renewed(error)

    def release(self) -> None:
        """Ends it; the link returns as it says. Raises `LeaseLost` if it ended before."""
        self._over.set()
        if self._renewing is not None:
            self._renewing.join()
            self._renewing = None
        token = self._terms.valid_token()
        self._terms.token = None
        try:
            self._box._ask(_calls.release(token))
        except NotFound as error:
            self._terms.lose(error)
            self._lost()

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.release()
            return
        # What went wrong first is what is told; the lease ends by itself at the latest.
        with contextlib.suppress(LinkemuError):
            self.release()

    def _change(self, call: Call[T]) -> T:
        try:
            return self._box._ask(call, self.token)
        except Refused as error:
            if type(error) is Refused:
                # Of both reasons that linkd gives, a lost lease is the one to be told.
                self.renew()
            raise

    def set_profile(
        self,
        profile: Given | None = None,
        *,
        toml: str | None = None,
        seed: int | None = None,
        expected_generation: int | None = None,
        lossy: bool = False,
    ) -> model.Change:
        """Replaces the whole link by a profile and starts its random processes anew.

        `profile` is the name of one that linkd has, a message, or the path of a file (a `Path`,
        or text with a '/' or ending in ".toml"); `toml` is the text of such a file.
        `seed` is that of all of them; without it the one in force. `expected_generation`
        refuses the change if another one is in force. `lossy` takes a profile that does not
        fit into the box.
        """
        return self._change(_calls.set_profile(profile, toml, seed, expected_generation, lossy))

    def patch(
        self,
        *,
        forward: Fields | None = None,
        return_: Fields | None = None,
        both: Fields | None = None,
        expected_generation: int | None = None,
        lossy: bool = False,
    ) -> model.Change:
        """Changes parts of the link; all else goes on.

        Each is the new values of a pipe, in the words of a profile, with units:
        `forward={"rate": "72 Mbit/s", "delay": {"base": "280 ms"}}`, or as fields of
        `linkemu.v1.Pipe`, in the units of their names:
        `forward={"rate_bps": 72_000_000, "delay": {"base_ns": 280_000_000}}`. None takes a
        part away. Parts of `queue` and `delay` are changed one by one. Several directions
        are several changes; the last one is answered.
        """
        for direction, fields in _calls.patches(forward, return_, both):
            call = _calls.patch(direction, fields, expected_generation, lossy)
            change = self._change(call)
            if expected_generation is not None:
                expected_generation = change.generation
        return change

    def set_clients(
        self,
        clients: v1.Clients,
        *,
        expected_generation: int | None = None,
        lossy: bool = False,
    ) -> model.Change:
        """Replaces all that is said of the clients; the profile stays."""
        return self._change(_calls.set_clients(clients, expected_generation, lossy))

    def mark(self) -> v1.Stats:
        """Begins a run: `Box.certificate` judges what happens from now on."""
        return self._box._ask(_calls.stats(True), self.token)

    def run_scenario(
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
        self._run = Run(self, self._change(call))
        return self._run


class Run:
    """A scenario that was started: what `Lease.run_scenario` answers."""

    def __init__(self, lease: Lease, state: v1.ScenarioState) -> None:
        self._lease = lease
        self._box = lease.box
        self._started = state
        self._stopped = False

    @property
    def name(self) -> str:
        """Of the scenario."""
        return self._started.name

    @property
    def number(self) -> int:
        """Of the run, as events have it."""
        return self._started.run

    def state(self) -> v1.ScenarioState:
        """Where it is."""
        return self._box.scenario_state()

    def watch(self, timeout: float | None = None) -> Iterator[v1.ScenarioState]:
        """Its state at once, then whenever it changes, up to the end."""
        for state in self._box._stream(_calls.watch_scenario(), timeout):
            yield state
            if reached_end(self.number, self.name, state):
                return

    def wait(self, timeout: float | None = None) -> v1.ScenarioState:
        """Waits for its end; `ScenarioStopped` if it comes to none, `TimedOut` after
        `timeout` seconds, while it goes on.
        """
        until = None if timeout is None else time.monotonic() + timeout
        attempts = Attempts(self._box._patience, True)
        while True:
            remaining = None if until is None else until - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise TimedOut(f"scenario {self.name} did not end within {timeout:g} s")
            try:
                for state in self.watch(remaining):
                    if reached_end(self.number, self.name, state):
                        return state
                    attempts = Attempts(self._box._patience, True)
            except TimedOut:
                continue
            except LinkemuError as error:
                time.sleep(attempts.pause(error))

    def pause(self) -> v1.ScenarioState:
        """The link stays as it is; the rest of the timeline comes later."""
        return self._lease._change(_calls.pause_scenario())

    def resume(self) -> v1.ScenarioState:
        """After a pause."""
        return self._lease._change(_calls.resume_scenario())

    def stop(self, *, restore: bool = False) -> v1.ScenarioState:
        """Stops it; with `restore` the link of before comes back."""
        self._stopped = True
        return self._lease._change(_calls.stop_scenario(restore))


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
        self._cancel: Callable[[], object] | None = None
        self._begun = threading.Event()
        self._writing: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def path(self) -> str | os.PathLike[str]:
        """The file."""
        return self._path

    @property
    def counts(self) -> Counts:
        """How many copies were written, and how many missed."""
        return self._writer.counts if self._writer is not None else Counts()

    def start(self) -> Self:
        """Begins, and waits until it has begun. A `with` statement does so."""
        self._writer = Writer(self._path, self._direction)
        self._writing = threading.Thread(target=self._write, name="linkemu-capture", daemon=True)
        self._writing.start()
        if not self._begun.wait(self._box._timeout):
            with contextlib.suppress(LinkemuError, OSError):
                self.stop()
            raise not_begun(self._box.address, self._box._timeout)
        if self._error is not None:
            self.stop()
        return self

    def _write(self) -> None:
        assert self._writer is not None
        try:
            for chunk in self._box._stream(self._call, None, self._started):
                self._writer.take(chunk)
                self._begun.set()
        except BaseException as error:
            self._error = error
        finally:
            self._begun.set()

    def _started(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for its own end, by `count` or `duration`; whether it came."""
        if self._writing is not None:
            self._writing.join(timeout)
        return self._writing is None or not self._writing.is_alive()

    def stop(self) -> Counts:
        """Ends it, and completes the file."""
        if self._cancel is not None:
            self._cancel()
        self.wait()
        if self._writer is not None:
            self._writer.close()
        if self._error is not None:
            raise self._error
        return self.counts

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.stop()
            return
        with contextlib.suppress(LinkemuError, OSError):
            self.stop()


__all__ = ["Box", "Capture", "Lease", "Run"]
