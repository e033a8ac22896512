# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all tests: the test bed that `bed` has made around this pytest."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
from xdist.scheduler import LoadScopeScheduling

import linkemu
from inner import Inner
from void import Void

pytest_plugins = ["pytester"]
T = TypeVar("T")


@dataclass(frozen=True)
class Bed:
    """Two hosts and the emulator between them."""

    directory: Path
    socket: str
    client: str
    wan_ip: str

    def ping_command(self, count: int = 3) -> list[str]:
        """Ten pings a second."""
        inside = ["ip", "netns", "exec", self.client]
        return [*inside, "ping", "-q", "-c", str(count), "-i", "0.1", self.wan_ip]

    def ping(self, count: int = 3) -> None:
        """Pings the server from the client."""
        subprocess.run(self.ping_command(count), check=True, capture_output=True, timeout=60)

    def pid(self, name: str) -> int:
        """Process id of "linkd" or "dataplane"."""
        return int((self.directory / f"{name}.pid").read_text())

    def restart_linkd(self) -> None:
        """Kills linkd; the bed restarts it."""
        before = self.pid("linkd")
        os.kill(before, signal.SIGKILL)
        until("a new linkd", lambda: self.pid("linkd") != before or None)


def until(what: str, condition: Callable[[], T | None], limit: float = 30.0) -> T:
    """Waits until a condition returns a value."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        found = condition()
        if found is not None:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {limit} s")


_VOID = "VOID: "
_TRIES = 2


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Repeats a void test once. Its fixtures are kept."""
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    reasons: list[str] = []
    while len(reasons) < _TRIES:
        try:
            pyfuncitem.obj(**arguments)
        except Void as void:
            reasons.append(str(void))
        else:
            return True
    pytest.skip(f"{_VOID}{'; repeated: '.join(reasons)}")
    return False


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Counts the void tests."""
    skipped = terminalreporter.stats.get("skipped", [])
    void = sum(_VOID in str(report.longrepr) for report in skipped)
    terminalreporter.write_line(f"python: {void} void tests")


class OneWorkerForBed(LoadScopeScheduling):  # type: ignore[misc]
    """Runs each file in one worker of pytest-xdist, and all files that use `bed` in the same one.

    `--dist loadgroup` does not: pytest 9.2 ignores the node ids that pytest-xdist 3.8 makes for
    it.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return (
            "bed"
            if file.endswith(
                ("test_box.py", "test_marks.py", "test_plugin.py", "test_plugin_box.py")
            )
            else file
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneWorkerForBed | None:
    """For `--dist loadscope`."""
    return OneWorkerForBed(config, log) if config.getvalue("dist") == "loadscope" else None


def until_renewed(box: linkemu.Box) -> None:
    """Waits until the current lease is renewed, after a third of its time to live."""

    def expires() -> datetime:
        holder = box.lease_holder()
        if holder is None or holder.expires is None:
            raise Void("a lease ended, as its holder was late to renew it")
        return holder.expires

    before = expires()
    until("a renewal", lambda: True if expires() > before else None)


@pytest.fixture(scope="session")
def bed() -> Bed:
    env = os.environ
    if "BED_DIR" not in env:
        lack = "there is no test bed: run `make python`, or bed -- pytest"
        if env.get("CI") in ("true", "1"):
            pytest.fail(lack)
        pytest.skip(lack)
    return Bed(Path(env["BED_DIR"]), env["LINKEMU_SOCKET"], env["BED_CLIENT_NS"], env["BED_WAN_IP"])


@pytest.fixture
def box(bed: Bed) -> Iterator[linkemu.Box]:
    """A box without a lease before and after the test."""
    with linkemu.Box(f"unix:{bed.socket}") as box:
        until("no lease", lambda: True if box.lease_holder() is None else None)
        yield box
        until("no lease", lambda: True if box.lease_holder() is None else None)


@pytest.fixture
def inner(
    bed: Bed, box: linkemu.Box, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Inner:
    """A pytest inside a test, which gets the socket of linkd as an option."""
    for name in ("LINKEMU_SERVER", "LINKEMU_SOCKET", "CI"):
        monkeypatch.delenv(name, raising=False)
    return Inner(pytester, box, bed.socket)
