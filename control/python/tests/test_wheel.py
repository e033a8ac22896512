# SPDX-License-Identifier: Apache-2.0
"""The wheel, built from a clean copy of the sources and installed without them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROTOS = sorted(path.stem for path in (ROOT / "proto/linkemu/v1").glob("*.proto"))
assert PROTOS
USER = "test_user.py"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Output of a program that succeeds, and does not see the sources."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(*arguments: str | Path) -> None:
    """A pip that has no index."""
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments)


def build(directory: Path) -> Path:
    """The wheel of a copy of the sources, without what was generated in them."""
    generated = shutil.ignore_patterns("__pycache__", "v1", "_sync", ".*_cache", "tests")
    shutil.copytree(ROOT / "control/python", directory / "control/python", ignore=generated)
    shutil.copytree(ROOT / "proto/linkemu", directory / "proto/linkemu")
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", directory)
    pip("wheel", *options, directory / "control/python")
    (wheel,) = directory.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the wheel, and the dependencies of this one."""
    directory = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", directory)
    python = directory / "bin/python"
    pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    # A path file does not read those of the directory that it names, which name the sources.
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """Another project, with one test file."""
    shutil.copy(Path(__file__).with_name("typed_user.py"), tmp_path / USER)
    return tmp_path


def test_wheel_is_pure_and_complete(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = (ROOT / "control/python/src/linkemu").glob("*.py")
    wanted = {"py.typed", *(path.name for path in sources)}
    wanted |= {f"v1/{name}_pb2.{ending}" for name in PROTOS for ending in ("py", "pyi")}
    wanted |= {f"{package}/_box.py" for package in ("aio", "_sync")}
    assert {f"linkemu/{name}" for name in wanted} <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"linkemu"}


def test_same_sources_give_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    assert build(tmp_path).read_bytes() == wheel.read_bytes()


def test_installed_plugin_collects_tests_of_another_project(python: Path, user: Path) -> None:
    found = run(python, "-c", "import linkemu; print(linkemu.__file__)", cwd=user)
    assert Path(found).is_relative_to(python.parents[1])
    options = ("-p", "no:cacheprovider", "-p", "no:labgrid", "--strict-markers")
    listed = run(python, "-m", "pytest", *options, "--collect-only", "-q", USER, cwd=user)
    assert f"{USER}::test_links[viasat2-both.rate=5Mbit/s]" in listed


def test_types_of_another_project_are_checked(python: Path, user: Path) -> None:
    options = ("--strict", "--cache-dir", os.devnull, "--python-executable", python)
    run(sys.executable, "-m", "mypy", *options, USER, cwd=user)
