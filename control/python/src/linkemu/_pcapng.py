# SPDX-License-Identifier: Apache-2.0
"""Copies of packets as a pcapng file, with the interfaces and comments of `linkctl capture`.

The dataplane knows the fate of a packet up to a second late. So a copy waits until the clock has
advanced by that time, and the file is in the order of timestamps. Timestamps are nanoseconds since
1970, with one offset from the dataplane's clock for the whole file.
"""

from __future__ import annotations

import heapq
import ipaddress
import itertools
import os
import warnings
from dataclasses import dataclass
from typing import Any, BinaryIO

import pcapng
from pcapng import blocks

from linkemu import v1

_LATE_NS = 1_000_000_000
_HELD = 1 << 18
"""Limit of waiting copies; beyond it the first copy is written."""
_ETHERNET = 1
_NANOSECONDS = b"\x09"
_POINTS = {
    v1.CAPTURE_POINT_INGRESS: ("in", "received"),
    v1.CAPTURE_POINT_EGRESS: ("out", "sent"),
    v1.CAPTURE_POINT_DROPPED: ("drop", "dropped"),
    v1.CAPTURE_POINT_MARKED: ("mark", "marked by the AQM"),
}
_DIRECTIONS = {
    v1.DIRECTION_FORWARD: ("forward", "towards the client"),
    v1.DIRECTION_RETURN: ("return", "from the client"),
}


@dataclass
class Counts:
    """Copies in both directions."""

    received: int = 0
    """Received packets."""
    sent: int = 0
    """Sent packets."""
    dropped: int = 0
    """Dropped packets."""
    marked: int = 0
    """Marked packets."""
    missed: int = 0
    """Copies that were not read in time. The file does not contain them."""


class Writer:
    """Writes a file from the chunks of a stream."""

    def __init__(self, path: str | os.PathLike[str], direction: str) -> None:
        self.counts = Counts()
        self._file: BinaryIO | None = open(path, "wb")  # noqa: SIM115
        self._wanted = [d for d, (n, _) in _DIRECTIONS.items() if direction in ("both", n)]
        self._out: Any = None
        self._section: Any = None
        self._interfaces: dict[tuple[int, int, int], int] = {}
        self._boxes: list[str] = []
        self._clock_error_ns: dict[int, int] = {}
        self._lost: dict[int, str] = {}
        self._written: dict[int, int] = {}
        self._missed: dict[int, int] = {}
        self._offset_ns = 0
        self._start_ns = 0
        self._now_ns = 0
        self._held: list[tuple[int, int, v1.CapturedPacket, str, int]] = []
        self._taken = 0

    @property
    def lost(self) -> str:
        """Boxes of the group whose later packets are missing, with the reasons; empty: none."""
        return "; ".join(self._lost.values())

    def take(self, chunk: v1.CaptureChunk) -> None:
        """Takes a message of the stream."""
        if chunk.HasField("start"):
            self._begin(chunk.start)
        self._now_ns = max(self._now_ns, chunk.time_ns)
        if chunk.box_index < len(self._boxes):
            self._note(chunk)
        for missed in chunk.missed:
            interface = self._interfaces.get((chunk.box_index, missed.direction, missed.point))
            if interface is not None:
                self._missed[interface] = missed.copies
        self.counts.missed = sum(self._missed.values())
        for copy in chunk.packets:
            client = chunk.clients[copy.client] if copy.client < len(chunk.clients) else ""
            self._taken += 1
            heapq.heappush(self._held, (copy.time_ns, self._taken, copy, client, chunk.box_index))
        self._drain(self._now_ns - _LATE_NS)

    def _note(self, chunk: v1.CaptureChunk) -> None:
        """What a chunk says of its box."""
        known = self._clock_error_ns.get(chunk.box_index, 0)
        self._clock_error_ns[chunk.box_index] = max(known, chunk.clock_error_ns)
        if chunk.HasField("lost"):
            after = max(chunk.lost.time_ns - self._start_ns, 0) / 1e9
            self._lost[chunk.box_index] = (
                f"packets of box {self._boxes[chunk.box_index]} are missing from {after:.3f} s "
                f"after the start on: {chunk.lost.message}"
            )

    def close(self) -> None:
        """Writes waiting copies, and the blocks after the packets."""
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            if self._out is not None:
                self._drain(None)
                self._end()
        finally:
            file.close()

    def _begin(self, start: v1.CaptureStart) -> None:
        if self._out is not None or self._file is None:
            return
        self._boxes = list(start.boxes)
        whose = "group" if self._boxes else "dataplane"
        comment = (
            f"linkemu: profile {start.profile}, generation {start.generation}; began at "
            f"{start.time_ns} ns of the {whose}'s clock"
        )
        self._start_ns = self._now_ns = start.time_ns
        self._offset_ns = start.utc.ToNanoseconds() - start.time_ns
        self._section = blocks.SectionHeader(
            options={"opt_comment": comment, "shb_userappl": "linkemu for Python"}
        )
        ends = [f".{name}" for name in self._boxes] or [""]
        for (place, of), direction in itertools.product(enumerate(ends), self._wanted):
            way, towards = _DIRECTIONS[direction]
            for point, (end, fate) in _POINTS.items():
                number = len(self._interfaces)
                self._interfaces[place, direction, point] = number
                self._written[number] = 0
                self._section.new_member(
                    blocks.InterfaceDescription,
                    link_type=_ETHERNET,
                    snaplen=start.snaplen,
                    options={
                        "if_name": f"{way}-{end}{of}",
                        "if_description": f"{towards}, {fate}",
                        "if_tsresol": _NANOSECONDS,
                    },
                )
        with warnings.catch_warnings():
            # It uses the resolution of timestamps as bytes, and warns about that itself.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._out = pcapng.FileWriter(self._file, self._section)

    def _drain(self, until_ns: int | None) -> None:
        while self._held and (
            until_ns is None or self._held[0][0] <= until_ns or len(self._held) > _HELD
        ):
            _, _, copy, client, place = heapq.heappop(self._held)
            self._write(copy, client, place)

    def _write(self, copy: v1.CapturedPacket, client: str, place: int) -> None:
        interface = self._interfaces.get((place, copy.direction, copy.point))
        if self._out is None or interface is None:
            return
        block = self._section.new_member(blocks.EnhancedPacket)
        block.interface_id = interface
        nanos = self._offset_ns + copy.time_ns
        block.timestamp_high, block.timestamp_low = nanos >> 32, nanos & 0xFFFFFFFF
        block.packet_len = copy.length
        block.packet_data = copy.data
        comment = _comment(copy, client)
        if comment:
            block.options["opt_comment"] = comment
        if copy.number:
            block.options["epb_packetid"] = copy.number
        self._out.write_block(block)
        self._written[interface] += 1
        if copy.point == v1.CAPTURE_POINT_INGRESS:
            self.counts.received += 1
        elif copy.point == v1.CAPTURE_POINT_EGRESS:
            self.counts.sent += 1
        elif copy.point == v1.CAPTURE_POINT_MARKED:
            self.counts.marked += 1
        else:
            self.counts.dropped += 1

    def _end(self) -> None:
        nanos = self._offset_ns + self._now_ns
        for (place, _, _), interface in self._interfaces.items():
            written = self._written[interface]
            missed = self._missed.get(interface, 0)
            block = self._section.new_member(blocks.InterfaceStatistics)
            block.interface_id = interface
            block.timestamp_high, block.timestamp_low = nanos >> 32, nanos & 0xFFFFFFFF
            block.options["isb_ifrecv"] = written + missed
            block.options["isb_ifdrop"] = missed
            if place < len(self._boxes):
                block.options["opt_comment"] = self._said(place)
            self._out.write_block(block)

    def _said(self, place: int) -> str:
        """The comment of a box's interfaces."""
        bound = self._clock_error_ns.get(place, 0)
        text = f"times of box {self._boxes[place]}: within {bound} ns of the group's clock"
        lost = self._lost.get(place)
        return f"{text}; {lost}" if lost else text


def _comment(copy: v1.CapturedPacket, client: str) -> str:
    """Properties that the bytes do not show."""
    words = []
    if copy.point == v1.CAPTURE_POINT_DROPPED:
        reason = v1.DropReason.Name(copy.reason).removeprefix("DROP_REASON_").lower()
        words.append(f"dropped: {reason}")
    elif copy.point == v1.CAPTURE_POINT_MARKED:
        words.append("marked: congestion experienced")
    if copy.number == 0:
        words.append("received before the capture began")
    try:
        ipaddress.ip_address(client)
    except ValueError:
        if client:
            words.append(f"client: {client}")
    return "; ".join(words)
