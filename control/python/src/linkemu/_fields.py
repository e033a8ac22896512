# SPDX-License-Identifier: Apache-2.0
"""New values of a pipe: as a message with a mask, or as TOML. Pure.

Names are those of the fields of `linkemu.v1.Pipe`, or keys of a profile. If all values are numbers
they are sent as a message. Text is parsed by linkd, so a text anywhere means that all is sent as
TOML; the keys and units of fields come from the option `parameter` of `linkemu/v1/model.proto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tomli_w
from google.protobuf.message import Message

from linkemu import v1
from linkemu._quantity import probability_text

Fields = Mapping[str, object] | str
"""Fields of `linkemu.v1.Pipe`, or keys of a profile, or their TOML."""

_PARTS = ("queue", "delay")
"""Messages of a pipe with fields that can be named one by one."""
_PIPE: Any = v1.Pipe.DESCRIPTOR
_UNITS = {"bps": "bit/s", "ns": "ns", "bytes": "B", "hz": "", "packets": ""}
"""Endings of fields that their keys do not have, and the unit of the text."""


def set_fields(update: v1.PipeUpdate, fields: Fields) -> None:
    """Sets the new values of a pipe."""
    if isinstance(fields, str):
        update.toml = fields
    elif _has_text(fields):
        update.toml = tomli_w.dumps(_table(fields, _PIPE))
    else:
        pipe, mask = pipe_and_mask(fields)
        update.pipe.CopyFrom(pipe)
        update.mask.paths.extend(mask)


def pipe_and_mask(fields: Mapping[str, object]) -> tuple[v1.Pipe, list[str]]:
    """A pipe with these fields, and their names. None removes a part."""
    mask: list[str] = []
    values: dict[str, Any] = {}
    for name, value in fields.items():
        if name in _PARTS and isinstance(value, Mapping):
            mask += [f"{name}.{part}" for part in value]
            values[name] = {k: v for k, v in value.items() if v is not None}
        else:
            mask.append(name)
            if value is not None:
                values[name] = value
    try:
        return v1.Pipe(**values), mask
    except (TypeError, ValueError) as error:
        known = ", ".join(field.name for field in _PIPE.fields)
        raise ValueError(
            f"{error}: a pipe has {known}, in the units of their names; or write the words of a "
            'profile, with units: {"rate": "72 Mbit/s"}'
        ) from error


def _has_text(value: object) -> bool:
    """Whether it contains quantities with units, which must be sent as TOML."""
    if isinstance(value, Mapping):
        return any(_has_text(part) for part in value.values())
    if isinstance(value, (list, tuple)):
        return any(_has_text(part) for part in value)
    return isinstance(value, str)


def _table(fields: Mapping[str, object], known: Any) -> dict[str, Any]:
    """The same as a table of TOML. `known` is the descriptor of the message, or None; linkd refuses
    unknown names.
    """
    table: dict[str, Any] = {}
    by_key = {_key(field): field for field in known.fields} if known is not None else {}
    by_name = known.fields_by_name if known is not None else {}
    for name, value in fields.items():
        field = by_name.get(name)
        key = name if field is None else _key(field)
        if key in table:
            raise ValueError(f"{name!r} is given twice, as {key!r} too: write one of them")
        table[key] = _value(name, value, field or by_key.get(name), has_unit=field is not None)
    return table


def _value(name: str, value: object, field: Any, has_unit: bool) -> Any:
    """A value for TOML, which has no null: "none" removes a part."""
    if value is None:
        return "none"
    if isinstance(value, Message):
        kind = type(value).__name__
        raise ValueError(f"{name}: write a mapping, not a message of {kind}, beside text")
    if isinstance(value, Mapping):
        return _table(value, field.message_type if field is not None else None)
    if isinstance(value, (list, tuple)):
        return [_value(name, part, field, has_unit) for part in value]
    if field is None or not has_unit or not isinstance(value, (int, float)):
        return value
    return _with_unit(value, field)


def _with_unit(value: float, field: Any) -> Any:
    """A number in the unit of its field's name, as text; a count stays a number."""
    if field.enum_type is not None:
        return _word(int(value), field)
    if _parameter(field).probability:
        return probability_text(value)
    ending = field.name.rpartition("_")[2]
    if ending == "bps" and value == 0:
        return "down"
    unit = _UNITS.get(ending)
    return f"{value} {unit}" if unit else value


def _word(value: int, field: Any) -> Any:
    """`DURATION_LAW_FIXED` of `DurationLaw` is "fixed"."""
    values = field.enum_type.values_by_number
    if value not in values:
        return value
    prefix = values[0].name.removesuffix("UNSPECIFIED")
    return values[value].name.removeprefix(prefix).lower()


def _key(field: Any) -> str:
    """Key of a field in TOML."""
    stem, _, ending = field.name.rpartition("_")
    name = stem if stem and ending in _UNITS else field.name
    return str(_parameter(field).key or name)


def _parameter(field: Any) -> Any:
    return field.GetOptions().Extensions[v1.parameter]
