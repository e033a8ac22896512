# SPDX-License-Identifier: Apache-2.0
"""Markers and parameters of the pytest plugin.

Fixtures and markers had names without a prefix. Those names remain for tests in which they are not
the project's: a project can define a fixture of an old name, and then its marker of that name is
its own, too.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

from linkemu import _calls, v1
from linkemu._under_test import LinkMark

LINK = "linkemu_link"
SCENARIO = "linkemu_scenario"
OLD = {LINK: "link", SCENARIO: "scenario"}
"""Old names of fixtures and markers."""
PLUGIN = "linkemu.pytest_plugin"
_ID_CHARS = 80
_FIELDS = tuple(field.name for field in dataclasses.fields(LinkMark))
_FORMS = (
    "write the name of a profile, the path of a TOML file, a linkemu.v1.Profile, or a dict such as "
    '{"profile": "viasat2", "both": {"rate": "5 Mbit/s"}}'
)


def marker(item: pytest.Item, name: str) -> pytest.Mark | None:
    """The closest marker with this name or its old name."""
    names = (name, OLD[name]) if is_ours(item, OLD[name]) else (name,)
    return next((mark for mark in item.iter_markers() if mark.name in names), None)


def is_ours(item: pytest.Item, name: str) -> bool:
    """Whether the fixture `name` of this test is the plugin's, or one on top of it."""
    new_names = [new for new, old in OLD.items() if old == name]
    info = getattr(item, "_fixtureinfo", None)
    definitions = info.name2fixturedefs.get(name) if info is not None else None
    if definitions is None:
        definitions = item.session._fixturemanager.getfixturedefs(name, item)
    for definition in reversed(definitions or ()):
        is_alias = any(new in definition.argnames for new in new_names)
        if is_alias or getattr(definition.func, "__module__", "") == PLUGIN:
            return True
        if name not in definition.argnames:
            return False
    return False


def check_parametrization(item: pytest.Item) -> None:
    """Refuses parameters that would replace the link by a plain value, or have no effect."""
    for mark in item.iter_markers("parametrize"):
        for name, is_indirect in _parametrized(mark):
            if name == LINK and not is_indirect and is_ours(item, name):
                fail(f'@pytest.mark.parametrize("{name}", …) needs indirect=True')
            if name == SCENARIO and is_ours(item, name):
                fail(
                    f"{name} takes no parameters: write pytest.param(…, "
                    f'marks=pytest.mark.{SCENARIO}("rain-fade")) for a parameter of the test'
                )
            if name in OLD.values() and is_indirect and is_ours(item, name):
                fail(f"{name!r} takes no parameters: parametrize {LINK!r}")


def _parametrized(mark: pytest.Mark) -> Iterator[tuple[str, bool]]:
    """Names of the arguments, and whether they are parameters of fixtures."""
    given: dict[str, Any] = dict(
        zip(("argnames", "argvalues", "indirect"), mark.args, strict=False)
    )
    given |= mark.kwargs
    names, indirect = given.get("argnames", ()), given.get("indirect", False)
    for name in names.split(",") if isinstance(names, str) else names:
        name = str(name).strip()
        yield name, indirect if isinstance(indirect, bool) else name in indirect


def link_mark(item: pytest.Item, parameter: Any = None) -> LinkMark:
    """Setting of the link: the parameter of the fixture, and the marker for all else."""
    mark = _of_marker(marker(item, LINK))
    mark = dataclasses.replace(mark, **_of_parameter(parameter))
    is_text = isinstance(mark.profile, str) and mark.profile.strip()
    if not is_text and not isinstance(mark.profile, (os.PathLike, v1.Profile, type(None))):
        fail(f"profile={mark.profile!r} is no profile: {_FORMS}")
    try:
        _calls.certificate(False, mark.limits)
    except (AttributeError, TypeError, ValueError) as error:
        names = v1.GetCertificateRequest.DESCRIPTOR.fields_by_name
        known = ", ".join(name for name in names if name not in ("mark", "link"))
        fail(
            f"@pytest.mark.{LINK}: limits: {error}: they are {known}: whole numbers from 0, or "
            'text such as "300 ms"'
        )
    return mark


def _of_marker(mark: pytest.Mark | None) -> LinkMark:
    if mark is None:
        return LinkMark()
    try:
        return LinkMark(*mark.args, **mark.kwargs)
    except TypeError as error:
        fail(f"@pytest.mark.{mark.name}: {error}: it takes {', '.join(_FIELDS)}")


def _of_parameter(parameter: Any) -> Mapping[str, Any]:
    """Arguments of the marker that a parameter of the fixture stands for."""
    if parameter is None:
        return {}
    if isinstance(parameter, (str, os.PathLike, v1.Profile)):
        return {"profile": parameter}
    if not isinstance(parameter, Mapping):
        fail(f"{LINK}: {parameter!r} is no link: {_FORMS}")
    for name in parameter:
        if name in _FIELDS:
            continue
        near = difflib.get_close_matches(str(name), _FIELDS, n=1)
        hint = f"the nearest is {near[0]!r}" if near else f"they are {', '.join(_FIELDS)}"
        fail(
            f"{LINK}: {name!r} in {parameter!r} is no argument of @pytest.mark.{LINK}: {hint}; "
            "changes of the link are given in `both`, `forward` or `return_`"
        )
    return parameter


def parameter_id(parameter: object) -> str | None:
    """Id of a parameter of the fixture: "viasat2", "mine" of a file, or with changes
    "viasat2-both.rate=5Mbit/s". None: as pytest makes it.
    """
    if isinstance(parameter, v1.Profile):
        return parameter.name or None
    if isinstance(parameter, os.PathLike) or (
        isinstance(parameter, str) and _calls.is_path(parameter)
    ):
        return Path(parameter).stem
    if not isinstance(parameter, Mapping) or not parameter:
        return None
    profile = parameter.get("profile")
    parts = [parameter_id(profile) or str(profile)] if profile is not None else []
    parts += [
        part
        for name, value in parameter.items()
        if name != "profile"
        for part in _id_parts(str(name), value)
    ]
    text = "-".join(parts)
    return text if len(text) <= _ID_CHARS else f"{text[:_ID_CHARS]}..."


def _id_parts(name: str, value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for part, inner in value.items():
            yield from _id_parts(f"{name}.{part}", inner)
    elif isinstance(value, (str, int, float)) or value is None:
        yield f"{name}={''.join(str(value).split())}"
    else:
        yield name


def fail(message: str) -> NoReturn:
    """Ends a fixture or a collection with a message and without a traceback."""
    raise pytest.fail.Exception(message, pytrace=False) from None
