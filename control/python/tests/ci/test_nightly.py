# SPDX-License-Identifier: Apache-2.0
"""The templates of ci/nightly/ run each part of scripts/soak.sh, and keep its results."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import templates
import yaml
from templates import REPOSITORY

NIGHTLY = REPOSITORY / "ci" / "nightly"
GITHUB = NIGHTLY / "github-actions.yml"
GITLAB = NIGHTLY / "gitlab-ci.yml"
JENKINS = NIGHTLY / "Jenkinsfile"
SOAK = REPOSITORY / "scripts" / "soak.sh"

RUN = 'make soak PART="$PART"'


def soak(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs scripts/soak.sh."""
    return subprocess.run(
        [str(SOAK), *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def parts() -> list[str]:
    """Names of all parts."""
    return [line.split()[0] for line in soak("list").stdout.splitlines()[1:]]


@pytest.mark.parametrize(
    ("name", "path"), [("vendor.github-workflows", GITHUB), ("vendor.gitlab-ci", GITLAB)]
)
def test_nightly_template_meets_its_schema(name: str, path: Path) -> None:
    arguments = ["--data-transform", "gitlab-ci"] if name == "vendor.gitlab-ci" else []
    held = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", name, *arguments, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert held.returncode == 0, held.stdout


def test_nightly_jenkinsfile_is_declarative_pipeline() -> None:
    assert not templates.groovy(JENKINS.read_bytes()).has_error
    # `agent none` is not among the sections, because it has neither a block nor parentheses.
    assert set(templates.sections(JENKINS)) == {"triggers", "options", "stages"}
    assert "    agent none\n" in JENKINS.read_text()


def test_nightly_templates_run_every_part_of_soak() -> None:
    job = yaml.safe_load(GITHUB.read_text())["jobs"]["soak"]
    assert job["strategy"]["matrix"]["part"] == parts()
    assert [step["run"] for step in job["steps"] if "run" in step] == [RUN]
    assert job["env"]["PART"] == "${{ matrix.part }}"
    job = yaml.safe_load(GITLAB.read_text())["soak"]
    assert job["parallel"]["matrix"] == [{"PART": parts()}]
    assert job["script"] == [RUN]
    text = JENKINS.read_text()
    values = re.search(r"values\((.*?)\)", text, re.DOTALL)
    assert values is not None
    assert re.findall(r"'([^']+)'", values[1]) == parts()
    assert f"sh '{RUN}'" in text


def test_nightly_templates_publish_results_of_failed_parts() -> None:
    upload = yaml.safe_load(GITHUB.read_text())["jobs"]["soak"]["steps"][-1]
    assert (upload["with"]["path"], upload["if"]) == ("build/soak", "always()")
    artifacts = yaml.safe_load(GITLAB.read_text())["soak"]["artifacts"]
    assert artifacts == {"when": "always", "paths": ["build/soak/"]}
    assert "archiveArtifacts artifacts: 'build/soak/**'" in JENKINS.read_text()


def test_soak_part_that_does_not_exist_is_refused_with_the_parts() -> None:
    ran = soak("nonesuch")
    assert ran.returncode == 1
    assert "there is no part `nonesuch`" in ran.stderr
    for part in parts():
        assert part in ran.stderr


@pytest.mark.parametrize("script", [SOAK, REPOSITORY / "hw-configs" / "veth-dev" / "box.sh"])
def test_scripts_pass_shellcheck(script: Path) -> None:
    program = Path(sys.executable).with_name("shellcheck")
    line = [str(program), str(script)]
    checked = subprocess.run(line, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
