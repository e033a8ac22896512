# SPDX-License-Identifier: Apache-2.0
"""The parts of `linkemu._sync` that need threads. `linkemu._tasks` has the same for asyncio."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import grpc

from linkemu._wire import Place

Event = threading.Event
RpcError = grpc.RpcError
sleep = time.sleep


def open_channel(place: Place) -> grpc.Channel:
    """Several threads can use the channel."""
    options = list(place.options())
    if place.tls is None:
        return grpc.insecure_channel(place.target, options)
    return grpc.secure_channel(place.target, place.tls.credentials(), options)


def close_channel(channel: grpc.Channel) -> None:
    """Cancels its calls, too."""
    channel.close()


def cancelled_here(status: RpcError) -> bool:
    """Whether this process cancelled the call, from another thread."""
    return status.code() is grpc.StatusCode.CANCELLED


def happens(event: Event, timeout: float) -> bool:
    """Waits for an event; false if it does not happen within `timeout` seconds."""
    return event.wait(timeout)


class Background:
    """A daemon thread that runs `work` until it returns or is stopped."""

    def __init__(self, work: Callable[[Background], None], name: str):
        self._stopped = threading.Event()
        self._cancel: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=work, args=(self,), name=name, daemon=True)
        self._thread.start()

    def on_stop(self, cancel: Callable[[], object]) -> None:
        """Has `stop` cancel a call that this thread waits for."""
        self._cancel = cancel
        if self._stopped.is_set():
            cancel()

    def sleep(self, seconds: float) -> bool:
        """False if it was stopped."""
        return not self._stopped.wait(seconds)

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it ended within `timeout` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Ends it, and waits for its end."""
        self._stopped.set()
        self._cancel()
        self.wait()
