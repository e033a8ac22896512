# SPDX-License-Identifier: Apache-2.0
"""A box, and the calls that need no lease."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self, TypeVar

from linkemu import _calls, model, v1
from linkemu._calls import Call, Direction, Given
from linkemu._fields import Fields
from linkemu._quantity import Duration, Nanoseconds, Percent, Size, seconds
from linkemu._tasks import (
    Background,
    RpcError,
    cancelled_here,
    close_channel,
    open_channel,
    sleep,
)
from linkemu._terms import Terms
from linkemu._wire import PATIENCE, TIMEOUT, Attempts, Place, Tls, metadata
from linkemu.aio._capture import Capture
from linkemu.aio._lease import Lease
from linkemu.errors import NotFound, from_status

T = TypeVar("T")


class Box:
    """A box: linkd, and one of the links that it emulates.

    All calls are about `link`, without it about the link main. `address` is "unix:/path" or
    "/path" of a socket (linkd's usual one without it), or "host:port" with `tls`. Each call ends
    after `timeout`. While linkd cannot be reached, because it restarts for example, calls that can
    be repeated are repeated for `patience`. Both are seconds, or text such as "5 s". Close it, or
    use it in `async with`. Several threads can use one `linkemu.Box`; a `linkemu.aio.Box` belongs
    to the event loop in which it was made.
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None = None,
        *,
        tls: Tls | None = None,
        link: str | None = None,
        timeout: Duration = TIMEOUT,
        patience: Duration = PATIENCE,
    ) -> None:
        self._open(Place.of(address, tls, link), timeout, patience)

    def _open(self, place: Place, timeout: Duration, patience: Duration) -> None:
        self._place = place
        self._timeout = seconds(timeout, "timeout")
        self._patience = seconds(patience, "patience")
        self._channel = open_channel(place)

    @classmethod
    def from_env(cls, *, timeout: Duration = TIMEOUT, patience: Duration = PATIENCE) -> Self:
        """The box that linkctl would use: from LINKEMU_SERVER, _CA, _CERT and _KEY, or from
        LINKEMU_SOCKET, or the local one; and its link, from LINKEMU_LINK.
        """
        box = cls.__new__(cls)
        box._open(Place.from_env(), timeout, patience)
        return box

    @property
    def address(self) -> str:
        """Address of the box."""
        return self._place.target

    @property
    def link_name(self) -> str:
        """Name of the link that calls are about."""
        return self._place.link or "main"

    def on(self, link: str) -> Self:
        """The same box, for another of its links, over a separate connection."""
        box = type(self).__new__(type(self))
        place = Place.of(self._place.target, self._place.tls, link)
        box._open(place, self._timeout, self._patience)
        return box

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
        request = self._place.about(call.request)
        attempts = Attempts(self._patience, call.again)
        while True:
            try:
                return call.read(await method(request, timeout=timeout, metadata=metadata(token)))
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
        answers = method(self._place.about(call.request), timeout=timeout)
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
        page = await self._ask(_calls.profiles(""))
        found = list(page.profiles)
        while page.next_page_token:
            page = await self._ask(_calls.profiles(page.next_page_token))
            found += page.profiles
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

    def watch_stats(self, interval: Duration = 1.0) -> AsyncIterator[v1.Stats]:
        """A snapshot now, then one every `interval` (seconds, or "500 ms"), without end."""
        return self._stream(_calls.watch_stats(interval))

    async def links(self) -> tuple[v1.NamedLink, ...]:
        """All links of the box."""
        return await self._ask(_calls.links())

    async def add_link(
        self,
        name: str,
        *,
        memory: Size = 0,
        clients: int = 0,
        scheduler: Literal["fifo", "drr"] | None = None,
        via: str = "",
        weight: int = 0,
    ) -> v1.NamedLink:
        """Adds a link with `memory` (bytes, or "512 MiB") for packets and up to `clients` clients.
        Zero: an eighth of the box's memory, and 16. It passes everything at once, and has no
        traffic yet.

        A link with a `scheduler` can be passed by others. Packets of a link with `via` also pass
        that link, with `weight` (zero: 1) if its scheduler is `drr`.
        """
        room = (memory, clients)
        return await self._ask(_calls.add_link(name, room, scheduler, (via, weight)))

    async def remove_link(self, name: str) -> None:
        """Removes a link and its rules. It must hold no packet, and not be leased by another."""
        await self._ask(_calls.remove_link(name))

    async def update_links(
        self,
        *,
        profiles: Mapping[str, Given] | None = None,
        patches: Mapping[str, Fields] | None = None,
        direction: Direction = "both",
        leases: Iterable[Lease] = (),
        expected_generations: Mapping[str, int] | None = None,
        lossy: bool = False,
    ) -> dict[str, model.Change]:
        """Changes several links at one instant, or none of them. Answers the change of each.

        `profiles` has whole links by name, as `Lease.set_profile`; `patches` has new values of
        `direction`, as `Lease.patch`; of a link that is in both, the profile is set first.
        `leases` are those of the links that have one. If a change is refused, the error names the
        link. Works on any `Box` of the box, whatever its link is.
        """
        call = _calls.update_links(
            profiles or {}, patches or {}, direction, expected_generations or {}, lossy
        )
        return await self._ask(call, ",".join(lease.token for lease in leases) or None)

    async def link_rules(self) -> v1.LinkRules:
        """The rules that assign traffic to links."""
        return await self._ask(_calls.link_rules())

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
        lateness_p99_ns: Nanoseconds | None = None,
        stall_ns: Nanoseconds | None = None,
        memory_percent: Percent | None = None,
        changes: int | None = None,
        strict: bool | None = None,
    ) -> model.Certificate:
        """Judges the run since the last mark: was the emulator itself the bottleneck?

        Omitted limits are those of `linkctl certificate`: those of lateness and stall follow from
        the link, or with `strict` are 1 ms and 10 ms. A limit is a number in the unit of its
        name, or text such as "300 ms" or "90 %". With `mark` the next run begins.
        """
        limits: dict[str, str | int | None] = {
            "packets": packets,
            "emulator_drops": emulator_drops,
            "lateness_p99_ns": lateness_p99_ns,
            "stall_ns": stall_ns,
            "memory_percent": memory_percent,
            "changes": changes,
            "strict": strict,
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
        ttl: Duration = 60.0,
        return_to: str | None = None,
        wait: Duration = 0.0,
        steal: bool = False,
    ) -> Lease:
        """A lease, for `async with`. While it is active, no other client can change the link.

        It is renewed in the background. It expires `ttl` (1 s to 24 h) after this process was
        killed. At its end, the link returns to the profile `return_to`, if given. If another lease
        is active, the call waits for up to `wait` and retries four times a second; waiting clients
        are not queued. Times are seconds, or text such as "1 min". `steal` revokes the other lease,
        as an admin.
        """
        times = seconds(ttl, "ttl"), seconds(wait, "wait")
        return Lease(self, Terms(holder, purpose, times[0], return_to, times[1], steal))

    def capture(
        self,
        path: str | os.PathLike[str],
        *,
        client: str | None = None,
        clients: Sequence[str] = (),
        direction: Direction = "both",
        snaplen: Size = 128,
        count: int = 0,
        duration: Duration = 0.0,
    ) -> Capture:
        """Writes packets to a pcapng file, within `async with`.

        It captures all clients, or `client` and `clients`, and `snaplen` (bytes, or "64 B") of each
        packet. It ends with `async with`, or earlier after `count` copies or `duration` (seconds,
        or "1 min").
        """
        which = [*clients, *([client] if client else [])]
        return Capture(
            self, path, _calls.capture(which, direction, snaplen, count, duration), direction
        )
