# SPDX-License-Identifier: Apache-2.0
"""The templates run the example, and it has the results that it describes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from junit import check_or_void, properties, results
from lab import BIN, INHERITED, PROGRAMS, REPOSITORY, on_all_processors
from templates import INSTALL, ON_BOX

TESTS = 6


def run_on_one_box(directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs the commands of the templates beside a bed."""
    return subprocess.run(
        [BIN / "bed", "--tls", "--", *shlex.split(ON_BOX), "-p", "no:cacheprovider"],
        cwd=REPOSITORY,
        env={
            **INHERITED,
            "LINKEMU_BIN": str(BIN),
            "RESULTS": str(directory),
            "VENV": str(PROGRAMS.parent),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        preexec_fn=on_all_processors,
    )


def test_example_passes_on_one_box(bed: object, tmp_path: Path) -> None:
    ran = run_on_one_box(tmp_path)
    cases = results(tmp_path)
    check_or_void(ran, cases)
    assert len(cases) == TESTS
    # The bug was found, and was expected; all other tests passed.
    odd = [name for name, case in cases.items() if case.find("skipped") is not None]
    assert odd == ["test_each_reading_is_stored_once_over_a_satellite[uplink_v1.py]"]
    for name, case in cases.items():
        said = properties(case)
        assert said["linkemu_certificate"] == "holds", name
        assert Path(said["linkemu_certificate_file"]).is_relative_to(tmp_path)
        assert Path(said["linkemu_certificate_file"]).exists()
    captured = properties(cases["test_no_reading_is_lost_in_an_outage"])["linkemu_capture"]
    assert Path(captured).stat().st_size > 0


def test_install_makes_python_with_client(tmp_path: Path) -> None:
    # A wheel without its dependencies, which pip finds.
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*build, "--wheel-dir", str(tmp_path), str(REPOSITORY / "control" / "python")],
        check=True,
        capture_output=True,
        timeout=300,
    )
    (wheel,) = tmp_path.glob("linkemu-*.whl")
    environment = tmp_path / "venv"
    subprocess.run(
        shlex.split(INSTALL),
        cwd=REPOSITORY,
        env={
            **os.environ,
            "LINKEMU_PACKAGE": str(wheel),
            "PIP_NO_DEPS": "1",
            "PIP_NO_INDEX": "1",
            "VENV": str(environment),
        },
        check=True,
        capture_output=True,
        timeout=300,
    )
    where = "import importlib.util as u; print(u.find_spec('linkemu').origin)"
    found = subprocess.run(
        [environment / "bin" / "python", "-c", where], check=True, capture_output=True, text=True
    )
    assert Path(found.stdout.strip()).is_relative_to(environment)
