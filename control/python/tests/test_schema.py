# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of profiles accepts and refuses the same files as linkctl."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

PROFILES = sorted((Path(__file__).parents[3] / "proto/profile/profiles").glob("*.toml"))
assert PROFILES
LINKCTL = Path(os.environ.get("LINKEMU_BIN", "/usr/bin")) / "linkctl"


@pytest.fixture(scope="module", name="schema")
def _schema() -> jsonschema.Draft202012Validator:
    text = subprocess.run(
        [LINKCTL, "profile", "schema"], check=True, capture_output=True, text=True
    ).stdout
    schema = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_built_in_profiles_match_schema(
    schema: jsonschema.Draft202012Validator, path: Path
) -> None:
    """Each built-in profile, as it is written."""
    schema.validate(tomllib.loads(path.read_text(encoding="utf-8")))


def test_schema_lists_have_separate_descriptions(schema: jsonschema.Draft202012Validator) -> None:
    """Editors show them."""
    pipe = schema.schema["properties"]["forward"]["properties"]
    rates = pipe["rate_trace"]["properties"]["rates"]["description"]
    assert "down" in rates
    assert pipe["outages"]["description"] != rates


def test_profiles_that_linkctl_refuses_do_not_match_schema(
    schema: jsonschema.Draft202012Validator, tmp_path: Path
) -> None:
    """Unknown keys, other types, missing tables."""
    good = tomllib.loads(next(p for p in PROFILES if p.stem == "viasat2").read_text("utf-8"))

    def broken(change: str, value: Any) -> dict[str, Any]:
        profile = copy.deepcopy(good)
        *parents, last = change.split(".")
        table: Any = profile
        for parent in parents:
            table = table[int(parent)] if parent.isdigit() else table[parent]
        if value is None:
            del table[last]
        else:
            table[last] = value
        return profile

    changes: list[tuple[str, Any]] = [
        ("forward.rat", "1 Mbit/s"),
        ("forward.rate", 144),
        ("forward.rate", "fast"),
        ("forward.queue", None),
        ("return", None),
        ("forward.queue.limit", 36),
        ("forward.queue.ecn", "yes"),
        ("forward.link_layer", "ethernet"),
        ("forward.outages.0.law", "normal"),
        ("forward.outages.0.interval", None),
        ("forward.outages", [{}] * 9),
        ("forward.delay.body", {"correlation": "1 s", "quantiles": ["1 ms"]}),
        ("forward.reconfiguration", {"period": "15 s", "phase": "12 s", "clock": "utc"}),
        ("forward.packet_loss", 0.5),
    ]
    import tomli_w

    for change, value in changes:
        profile = broken(change, value)
        assert not schema.is_valid(profile), change
        file = tmp_path / "broken.toml"
        file.write_text(tomli_w.dumps(profile), encoding="utf-8")
        done = subprocess.run([LINKCTL, "profile", "check", file], capture_output=True, check=False)
        assert done.returncode == 4, (change, done.stdout)
