# SPDX-License-Identifier: Apache-2.0
"""A capture to a file."""

from __future__ import annotations

import contextlib
import os
from types import TracebackType
from typing import TYPE_CHECKING, Self

from linkemu import v1
from linkemu._calls import Call, Direction
from linkemu._pcapng import Counts, Writer
from linkemu._tasks import Background, Event, happens
from linkemu._terms import not_begun
from linkemu.errors import DataLost, LinkemuError

if TYPE_CHECKING:
    from linkemu.aio._box import Box


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
        if self._writer is not None and self._writer.lost:
            raise DataLost(self._writer.lost)
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
