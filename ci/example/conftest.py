# SPDX-License-Identifier: Apache-2.0
"""The two hosts at either side of the box, and the commands to run programs on them.

A host is a command prefix and an address. In a pool they come from labgrid
(ci/labgrid/exporter.yaml). With one box the job sets them: `LAB_WAN="ssh server1"`,
`LAB_WAN_IP=10.77.0.1`, and the same for `LAB_CLIENT`. In `bed` they are network namespaces.
Programs and python3 must have the same paths on the hosts as here.
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
        """Command that runs a program of this directory on the host."""
        return [*self.run, "python3", str(HERE / program), *arguments]


@pytest.fixture(scope="session")
def resource(request: pytest.FixtureRequest) -> Any:
    """Description of the box and its hosts in labgrid; none without `--lg-env` or `LG_ENV`."""
    known = request.config.pluginmanager.hasplugin("labgrid")
    if not known or not (request.config.getoption("lg_env") or os.environ.get("LG_ENV")):
        return None
    return request.getfixturevalue("target").get_resource("LinkemuBox")


def host(side: str, resource: Any) -> Host:
    """The host at one side of the box: from labgrid, from the job, or from `bed`."""
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
    """The host behind the link, which runs the receiver."""
    return host("WAN", resource)


@pytest.fixture(scope="session")
def client(resource: Any) -> Host:
    """The host before the link, which runs the device's program."""
    return host("CLIENT", resource)


@dataclass
class Receiver:
    """A receiver on the wan host, and the readings that it has stored."""

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
        """Reads its output, so that the pipe never fills."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    @property
    def place(self) -> str:
        """URL for the device's program."""
        return f"{self.host.address}:{self.port}"

    def numbers(self, wanted: int, within: float = 10.0) -> list[int]:
        """Numbers of all readings after `wanted` readings or the time limit.

        Readings in flight at the end of the device's program can arrive slightly later.
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
        """Longest time between two readings, in seconds."""
        instants = [float(str(stored["at"])) for stored in self.stored]
        return max(b - a for a, b in itertools.pairwise(instants))


@pytest.fixture
def receiver(wan: Host) -> Iterator[Receiver]:
    """A receiver for one test. It ends when its standard input closes."""
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
