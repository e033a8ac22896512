# SPDX-License-Identifier: Apache-2.0
"""The parts of `linkemu.aio` that need asyncio. `linkemu._threads` has the same for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import grpc.aio

from linkemu._wire import Place

Event = asyncio.Event
RpcError = grpc.aio.AioRpcError
sleep = asyncio.sleep


def open_channel(place: Place) -> grpc.aio.Channel:
    """Must be called in the event loop that uses the channel."""
    options = list(place.options())
    if place.tls is None:
        return grpc.aio.insecure_channel(place.target, options)
    return grpc.aio.secure_channel(place.target, place.tls.credentials(), options)


async def close_channel(channel: grpc.aio.Channel) -> None:
    """Cancels its calls, too."""
    await channel.close(None)


def cancelled_here(_: RpcError) -> bool:
    """Whether this process cancelled the call: asyncio reports that as `CancelledError`."""
    return False


async def happens(event: Event, timeout: float) -> bool:
    """Waits for an event; false if it does not happen within `timeout` seconds."""
    try:
        await asyncio.wait_for(event.wait(), timeout)
    except TimeoutError:
        return False
    return True


class Background:
    """A task that runs `work` until it returns or is stopped."""

    def __init__(self, work: Callable[[Background], Coroutine[object, object, None]], name: str):
        self._task = asyncio.create_task(work(self), name=name)

    def on_stop(self, cancel: Callable[[], object]) -> None:
        """Cancellation of the task ends its calls, so there is nothing to register."""

    async def sleep(self, seconds: float) -> bool:
        """False if it was stopped."""
        await asyncio.sleep(seconds)
        return True

    async def wait(self, timeout: float | None = None) -> bool:
        """Whether it ended within `timeout` seconds."""
        done, _ = await asyncio.wait({self._task}, timeout=timeout)
        return bool(done)

    async def stop(self) -> None:
        """Ends it, and waits for its end."""
        self._task.cancel()
        await self.wait()
