# SPDX-License-Identifier: Apache-2.0
"""Parser of the templates in ci/: the commands that they run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tree_sitter
import tree_sitter_groovy
import yaml

REPOSITORY = Path(__file__).parents[4]
CI = REPOSITORY / "ci"
GITHUB = CI / "github-actions.yml"
GITLAB = CI / "gitlab-ci.yml"
JENKINS = CI / "Jenkinsfile"

#: What every template does; the tests beside this run the same.
INSTALL = "sh ci/install.sh"
ON_BOX = "sh ci/test-on-box.sh"
IN_POOL = "sh ci/test-in-pool.sh"


def github(path: Path = GITHUB) -> dict[str, list[str]]:
    """Commands of each job."""
    jobs = yaml.safe_load(path.read_text())["jobs"]
    return {
        name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()
    }


def resolved(text: dict[str, Any]) -> dict[str, Any]:
    """A GitLab file with resolved `extends`, because hidden jobs satisfy any schema."""
    jobs = {}
    for name, job in text.items():
        base = text[job["extends"]] if isinstance(job, dict) and "extends" in job else {}
        if not name.startswith("."):
            jobs[name] = {**base, **job} if isinstance(job, dict) else job
            if "variables" in base and "variables" in job:
                jobs[name]["variables"] = {**base["variables"], **job["variables"]}
            if isinstance(job, dict):
                jobs[name].pop("extends", None)
    return jobs


def gitlab(path: Path = GITLAB) -> dict[str, list[str]]:
    """Commands of each job."""
    return {
        name: [*job.get("before_script", []), *job["script"]]
        for name, job in resolved(yaml.safe_load(path.read_text())).items()
        if "script" in job
    }


def groovy(source: bytes) -> tree_sitter.Node:
    """The syntax tree of a Jenkinsfile."""
    language = tree_sitter.Language(tree_sitter_groovy.language())
    return tree_sitter.Parser(language).parse(source).root_node


def _calls(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """All calls below a node, in the order of the text."""
    if node.type in ("method_invocation", "juxt_function_call"):
        yield node
    for child in node.children:
        yield from _calls(child)


def _name(call: tree_sitter.Node) -> str:
    name = call.child_by_field_name("name")
    return "" if name is None or name.text is None else name.text.decode()


def _text(node: tree_sitter.Node) -> list[str]:
    """String arguments of a call, unchanged."""
    texts = []
    for kind in ("arguments", "args"):
        arguments = node.child_by_field_name(kind)
        texts += [
            (child.text or b"").decode()[1:-1]
            for child in (arguments.children if arguments else [])
            if child.type in ("character_literal", "string_literal")
        ]
    return texts


def jenkins(path: Path = JENKINS) -> dict[str, list[str]]:
    """Commands of each stage."""
    stages = {}
    for call in _calls(groovy(path.read_bytes())):
        if _name(call) == "stage":
            commands = [text for sh in _calls(call) if _name(sh) == "sh" for text in _text(sh)]
            stages[_text(call)[0]] = commands
    return stages


def sections(path: Path = JENKINS) -> list[str]:
    """Sections directly in `pipeline { … }`."""
    calls = list(_calls(groovy(path.read_bytes())))
    pipeline = next(call for call in calls if _name(call) == "pipeline")
    body = pipeline.child_by_field_name("body")
    return (
        []
        if body is None
        else [
            _name(call)
            for statement in body.children
            for call in ([statement, *statement.children])
            if call.type in ("method_invocation", "juxt_function_call")
        ]
    )
