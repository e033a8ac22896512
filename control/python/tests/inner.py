# SPDX-License-Identifier: Apache-2.0
"""Runs pytest with the plugin inside a test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import linkemu
from void import Void

PATIENT = "limits={'lateness_p99_ns': 10**10, 'stall_ns': 10**10}"
HEADER = f"""
import os, signal, subprocess, time
import pytest

def ping(count=3):
    subprocess.run(
        ["ip", "netns", "exec", os.environ["BED_CLIENT_NS"], "ping", "-q", "-c", str(count),
         "-i", "0.1", os.environ["BED_WAN_IP"]], check=True)

patient = dict({PATIENT})
"""
# The plugins of the outer pytest are loaded again by an inner one in the same process, which
# labgrid refuses.
ALONE = ("-p", "no:cacheprovider", "-p", "no:labgrid")
BOTTLENECK = "the emulator may have been the bottleneck: "


@dataclass
class Inner:
    """An inner pytest, and the box that its tests use."""

    pytester: pytest.Pytester
    box: linkemu.Box
    socket: str

    @property
    def path(self) -> Path:
        """The directory of the inner tests."""
        return self.pytester.path

    def run(self, body: str, *more: str, stalls: bool = False) -> pytest.RunResult:
        """Runs tests in this process. Void if the emulator stalls."""
        self.pytester.makepyfile(HEADER + body)
        result = self.pytester.runpytest_inprocess("--linkemu-socket", self.socket, *ALONE, *more)
        if not stalls:
            for line in result.outlines:
                # A test that fails before it sends a packet is no fault of the emulator.
                reasons = line.partition(BOTTLENECK)[2].split("; ")
                if any(reason and not reason.startswith("packets ") for reason in reasons):
                    raise Void(line)
        return result
