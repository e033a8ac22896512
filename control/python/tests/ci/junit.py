# SPDX-License-Identifier: Apache-2.0
"""JUnit's report of a pytest that ran the example."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

from void import Void


def results(directory: Path) -> dict[str, ET.Element]:
    """Each test of a JUnit report."""
    report = ET.parse(directory / "junit.xml").getroot()
    return {str(case.get("name")): case for case in report.iter("testcase")}


def properties(case: ET.Element) -> dict[str, str]:
    """Properties that the plugin attached to a test."""
    return {str(p.get("name")): str(p.get("value")) for p in case.iter("property")}


def check_or_void(ran: subprocess.CompletedProcess[str], cases: dict[str, ET.Element]) -> None:
    """Raises unless all tests passed: `Void` for an error that the emulator caused.

    As in docs/ci.md, such an error is repeated on a shared machine, and a failure never.
    """
    if ran.returncode == 0:
        return
    failed = [name for name, case in cases.items() if case.find("failure") is not None]
    assert not failed, ran.stdout + ran.stderr
    for name, case in cases.items():
        error = case.find("error")
        if error is not None and "the emulator may have been the bottleneck" in str(
            error.get("message")
        ):
            raise Void(f"{name}: {error.get('message')}")
    raise AssertionError(ran.stdout + ran.stderr)
