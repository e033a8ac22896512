# SPDX-License-Identifier: Apache-2.0
"""The job of the pool's tests: it reports that it has its box, and keeps it for a while."""

from __future__ import annotations

import os
import time
from pathlib import Path

from labgrid import Target

DIRECTORY = Path(os.environ["JOB"])


def test_link_is_unchanged_during_job(target: Target) -> None:
    driver = target.get_driver("LinkemuDriver")
    driver.set_profile("viasat2", seed=7)
    change = driver.box.link().generation
    (DIRECTORY / "began").touch()
    end = time.monotonic() + 300
    while not (DIRECTORY / "go").exists():
        assert time.monotonic() < end, "nobody let this job go"
        time.sleep(0.05)
    # As each test of a job does.
    assert target.get_driver("LinkemuDriver") is driver
    # The link has not changed meanwhile.
    assert driver.box.link().name == "viasat2"
    assert driver.box.link().generation == change
