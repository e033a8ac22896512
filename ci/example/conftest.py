# SPDX-License-Identifier: Apache-2.0
"""The two hosts at either side of the box, and how programs run on them.

A host is a command before the command, and an address. In a pool labgrid says which they are
(ci/labgrid/exporter.yaml). At one box the job does: `LAB_WAN="ssh server1"`,
`LAB_WAN_IP=10.77.0.1`, and the same for `LAB_CLIENT`. In `bed` they are network namespaces. What
runs there stands at the same path as here, and python3 with it.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@dataclass
class Host:
    """One of the hosts."""

    run: list[str]
    address: str

    def python(self, program: str, *arguments: str) -> list[str]:
        """The command that runs a program of this directory there."""
        return [*self.run, "python3", str(HERE / program), *arguments]


@pytest.fixture(scope="session")
def resource(request: pytest.FixtureRequest) -> Any:
    """What labgrid says of our box and its hosts; nothing without `--lg-env` or `LG_ENV`."""
    known = request.config.pluginmanager.hasplugin("labgrid")
    if not known or not (request.config.getoption("lg_env") or os.environ.get("LG_ENV")):
        return None
    return request.getfixturevalue("target").get_resource("LinkemuBox")


def host(side: str, resource: Any) -> Host:
    """The host at one side of the box: by labgrid, by the job, or by `bed`."""
    if resource is not None:
        lower = side.lower()
        return Host(shlex.split(getattr(resource, lower)), getattr(resource, f"{lower}_ip"))
    # A CI system sets unknown variables to the empty string.
    if address := os.environ.get(f"LAB_{side}_IP"):
        return Host(shlex.split(os.environ.get(f"LAB_{side}", "")), address)
    if f"BED_{side}_NS" in os.environ:
        run = ["ip", "netns", "exec", os.environ[f"BED_{side}_NS"]]
        return Host(run, os.environ[f"BED_{side}_IP"])
    pytest.fail(f"no host at the {side} side: set LAB_{side} and LAB_{side}_IP, or run in `bed`")


@pytest.fixture(scope="session")
def wan(resource: Any) -> Host:
    """The host behind the link, where the receiver runs."""
    return host("WAN", resource)


@pytest.fixture(scope="session")
def client(resource: Any) -> Host:
    """The host before the link, where the device's program runs."""
    return host("CLIENT", resource)


@dataclass
class Receiver:
    """A receiver that runs on the wan host, and what it has stored."""

    process: subprocess.Popen[str]
    host: Host
    lines: queue.Queue[str] = field(default_factory=queue.Queue)
    port: int = 0
    stored: list[dict[str, object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        threading.Thread(target=self.pump, daemon=True).start()
        word, _, port = self.lines.get(timeout=20).partition(" ")
        assert word == "listening", word
        self.port = int(port)

    def pump(self) -> None:
        """Keeps its pipe empty."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    @property
    def place(self) -> str:
        """What the device's program is told."""
        return f"{self.host.address}:{self.port}"

    def numbers(self, wanted: int, within: float = 10.0) -> list[int]:
        """The numbers of all readings so far, after `wanted` of them, or the time, or both.

        What is on its way when the device has ended may come a little later.
        """
        deadline = time.monotonic() + within
        while len(self.stored) < wanted and (left := deadline - time.monotonic()) > 0:
            try:
                self.stored.append(json.loads(self.lines.get(timeout=left)))
            except queue.Empty:
                break
        while not self.lines.empty():
            self.stored.append(json.loads(self.lines.get()))
        return [stored["reading"]["number"] for stored in self.stored]  # type: ignore[index]

    def longest_silence(self) -> float:
        """The longest time between two readings, in seconds."""
        instants = [float(str(stored["at"])) for stored in self.stored]
        return max(b - a for a, b in itertools.pairwise(instants))


@pytest.fixture
def receiver(wan: Host) -> Iterator[Receiver]:
    """A receiver that runs for one test, and ends with its input."""
    with subprocess.Popen(
        wan.python("receiver.py", wan.address),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Receiver(process, wan)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            # Before its output is closed, because a thread still reads it.
            process.wait(20)
