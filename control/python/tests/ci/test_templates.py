# SPDX-License-Identifier: Apache-2.0
"""The templates of ci/ are valid for GitHub, GitLab and Jenkins, and run tested commands."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import templates
import yaml
from templates import CI, GITHUB, GITLAB, IN_POOL, INSTALL, JENKINS, ON_BOX

SCRIPTS = sorted(CI.glob("*.sh"))


def schema(name: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Validates a file with a schema of check-jsonschema."""
    return subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", name]
        + (["--data-transform", "gitlab-ci"] if name == "vendor.gitlab-ci" else [])
        + [str(path)],
        capture_output=True,
        text=True,
        check=False,
    )


def shellcheck(text: str) -> subprocess.CompletedProcess[str]:
    """Findings in a fragment of sh."""
    program = Path(sys.executable).with_name("shellcheck")
    return subprocess.run(
        [str(program), "-s", "sh", "-"], input=text, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("name", "path"), [("vendor.github-workflows", GITHUB), ("vendor.gitlab-ci", GITLAB)]
)
def test_template_meets_its_schema(name: str, path: Path) -> None:
    held = schema(name, path)
    assert held.returncode == 0, held.stdout


def without_hidden_jobs(text: str, path: Path) -> Path:
    """Writes GitLab's template with resolved `extends`."""
    path.write_text(yaml.safe_dump(templates.resolved(yaml.safe_load(text))))
    return path


def test_gitlab_jobs_with_their_bases_meet_schema(tmp_path: Path) -> None:
    held = schema(
        "vendor.gitlab-ci", without_hidden_jobs(GITLAB.read_text(), tmp_path / "whole.yml")
    )
    assert held.returncode == 0, held.stdout


def test_schema_refuses_template_with_mistake(tmp_path: Path) -> None:
    right = GITHUB.read_text()
    wrong = right.replace("runs-on:", "runs:")
    assert wrong != right
    broken = tmp_path / "broken.yml"
    broken.write_text(wrong)
    assert schema("vendor.github-workflows", broken).returncode != 0

    right = GITLAB.read_text()
    wrong = right.replace("when: always", "when: whenever")
    assert wrong != right
    assert schema("vendor.gitlab-ci", without_hidden_jobs(wrong, broken)).returncode != 0


def test_jenkinsfile_is_declarative_pipeline() -> None:
    assert not templates.groovy(JENKINS.read_bytes()).has_error
    # Jenkins requires `agent` and `stages`; `post` publishes.
    assert {"agent", "stages", "post"} <= set(templates.sections())
    assert set(templates.sections()) <= {
        "agent",
        "environment",
        "options",
        "parameters",
        "post",
        "stages",
        "tools",
        "triggers",
    }


def test_jenkinsfile_with_mistake_is_no_groovy() -> None:
    source = JENKINS.read_bytes()
    assert templates.groovy(source.replace(b"stages {", b"stages {{")).has_error
    assert templates.groovy(source.replace(b"sh 'sh", b"sh sh")).has_error


@pytest.mark.parametrize("jobs", [templates.github(), templates.gitlab()], ids=["github", "gitlab"])
def test_job_runs_tested_commands(jobs: dict[str, list[str]]) -> None:
    assert jobs.keys() == {"one-box", "pool"}
    for name, test in [("one-box", ON_BOX), ("pool", IN_POOL)]:
        commands = [command for command in jobs[name] if "CERT" not in command]
        assert commands == [INSTALL, test]


def test_jenkins_stage_runs_tested_commands() -> None:
    stages = templates.jenkins()
    assert stages == {
        "Install": ["rm -rf results", INSTALL],
        "One box": [ON_BOX],
        "Pool": [IN_POOL],
    }


def test_shell_fragments_pass_shellcheck() -> None:
    fragments = {path.name: path.read_text() for path in SCRIPTS}
    jobs = {**templates.github(), **templates.gitlab(), **templates.jenkins()}
    for name, commands in jobs.items():
        for number, command in enumerate(commands):
            # In GitHub and GitLab a command that fails ends the job.
            fragments[f"{name} {number}"] = "set -e\n" + command
    assert {"install.sh", "test-in-pool.sh", "test-on-box.sh"} <= fragments.keys()
    for name, text in fragments.items():
        syntax = subprocess.run(["sh", "-n"], input=text, text=True, check=False)
        assert syntax.returncode == 0, name
        checked = shellcheck(text)
        assert checked.returncode == 0, f"{name}\n{checked.stdout}"


def test_shellcheck_finds_mistake() -> None:
    assert shellcheck("rm -rf $1/*\n").returncode != 0


def test_published_paths_are_paths_of_results() -> None:
    for job in yaml.safe_load(GITHUB.read_text())["jobs"].values():
        upload = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
        assert [step["with"]["path"] for step in upload] == [job["env"]["RESULTS"]]
        # The capture of a failed test must be published.
        assert upload[0]["if"] == "always()"
    hardware = yaml.safe_load(GITLAB.read_text())[".hardware"]
    results = hardware["variables"]["RESULTS"]
    assert hardware["artifacts"]["when"] == "always"
    assert hardware["artifacts"]["paths"] == [f"{results}/"]
    assert hardware["artifacts"]["reports"]["junit"] == f"{results}/junit.xml"
    jenkins = JENKINS.read_text()
    for line in (
        "RESULTS = 'results'",
        "junit testResults: 'results/junit.xml', allowEmptyResults: true",
        "archiveArtifacts artifacts: 'results/**', allowEmptyArchive: true",
    ):
        assert line in jenkins


def test_key_from_secret_is_readable_by_owner_only(tmp_path: Path) -> None:
    for commands in templates.github().values():
        (fragment,) = (command for command in commands if "CERT" in command)
        variables = tmp_path / "variables"
        variables.unlink(missing_ok=True)
        secrets = {name: f"{name} in PEM" for name in ("CA", "CERT", "KEY")}
        subprocess.run(
            ["sh", "-e"],
            input=fragment,
            text=True,
            check=True,
            env={
                **os.environ,
                **secrets,
                "RUNNER_TEMP": str(tmp_path),
                "GITHUB_ENV": str(variables),
            },
        )
        for line in variables.read_text().splitlines():
            name, _, path = line.partition("=")
            secret = secrets[name.removeprefix("LINKEMU_")]
            assert Path(path).read_text() == f"{secret}\n"
            assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
            Path(path).unlink()


def test_install_without_client_fails_before_registry(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "LINKEMU_PACKAGE"}
    ran = subprocess.run(
        ["sh", str(CI / "install.sh")],
        cwd=tmp_path,
        env={**environment, "VENV": str(tmp_path / "venv"), "PIP_NO_INDEX": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode != 0
    assert "LINKEMU_PACKAGE: set it to the wheel" in ran.stderr
    assert not (tmp_path / "venv").exists()


def test_github_passes_hosts_of_one_box() -> None:
    job = yaml.safe_load(GITHUB.read_text())["jobs"]["one-box"]
    for name in ("LINKEMU_SERVER", "LAB_WAN", "LAB_WAN_IP", "LAB_CLIENT", "LAB_CLIENT_IP"):
        assert job["env"][name] == f"${{{{ vars.{name} }}}}"
        if name != "LINKEMU_SERVER":
            assert f"string(name: '{name}'" in JENKINS.read_text()
