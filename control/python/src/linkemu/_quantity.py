# SPDX-License-Identifier: Apache-2.0
"""Quantities as text with a unit, by the grammar of profiles and of linkctl. Pure.

A number is a decimal without a sign; a percentage may have an exponent. It is converted exactly or
refused. The grammar is that of `proto/units`; both are tested with the table
`proto/profile/tests/quantities.toml`. Quantities in profiles, patches and scenarios are not parsed
here: linkd receives their text.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

T = TypeVar("T", int, float)

Duration: TypeAlias = str | int | float
"""A time: text such as "600 ms" or "3 h 3 min", or a number of seconds."""
Nanoseconds: TypeAlias = str | int
"""A time: text as for `Duration`, or a number of nanoseconds."""
Size: TypeAlias = str | int
"""A size: text such as "36 MB" or "64 KiB", or a number of bytes."""
Percent: TypeAlias = str | int
"""A share: text such as "90 %", or a number of percent."""

_LARGEST = (1 << 64) - 1
_FRACTION_DIGITS = 18
_EXPONENT = 1 << 31
_SHOWN = 60
# White_Space of Unicode. `str.strip` removes \x1c to \x1f as well.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_NUMBER = re.compile(r"([0-9]+)(?:\.([0-9]+))?")
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]*)?)(?:[eE]([+-]?)0*([0-9]+))?")
_S = 1_000_000_000


@dataclass(frozen=True)
class _Kind:
    """A quantity, and its units by name."""

    of: str
    smallest: str
    example: str
    units: Mapping[str, int]
    hints: Mapping[str, str]


def _named(factor: int, *names: str) -> dict[str, int]:
    return dict.fromkeys(names, factor)


_BITS = 'that is bits; sizes are in bytes, such as "36 MB"'
_KILO = "write kB (1000 bytes) or KiB (1024 bytes)"
_DURATION = _Kind(
    "time",
    "nanoseconds",
    "275 ms",
    {"ns": 1}
    | _named(1_000, "us", "\u00b5s", "\u03bcs")
    | {"ms": 1_000_000}
    | _named(_S, "s", "sec", "second", "seconds")
    | _named(60 * _S, "min", "minute", "minutes")
    | _named(3_600 * _S, "h", "hour", "hours")
    | _named(86_400 * _S, "d", "day", "days")
    | _named(7 * 86_400 * _S, "w", "week", "weeks"),
    {"m": "write min (minutes) or ms (milliseconds)"},
)
_SIZE = _Kind(
    "size",
    "bytes",
    "36 MB",
    {
        "B": 1,
        "kB": 10**3,
        "MB": 10**6,
        "GB": 10**9,
        "TB": 10**12,
        "KiB": 1 << 10,
        "MiB": 1 << 20,
        "GiB": 1 << 30,
        "TiB": 1 << 40,
    },
    dict.fromkeys(("KB", "K", "k"), _KILO)
    | dict.fromkeys(("b", "bit", "kb", "kbit", "Mb", "Mbit", "Gb", "Gbit"), _BITS),
)


def seconds(value: Duration, what: str) -> float:
    """A time in seconds. A number is not checked further: callers have different limits."""
    if isinstance(value, str):
        return _of(what, duration_ns, value) / _S
    if math.isnan(value):
        raise ValueError(f'{what}={value!r}: write seconds, or text such as "600 ms"')
    return value


def nanoseconds(value: Nanoseconds, what: str) -> int:
    """A time in nanoseconds, of an argument in nanoseconds."""
    return _of(what, duration_ns, value) if isinstance(value, str) else value


def nanoseconds_of_seconds(value: Duration, what: str) -> int:
    """A time in nanoseconds, of an argument in seconds."""
    if isinstance(value, str):
        return _of(what, duration_ns, value)
    if not 0 <= value < _S:
        raise ValueError(f'{what}={value!r}: give seconds, from 0, or text such as "600 ms"')
    return round(value * _S)


def size(value: Size, what: str) -> int:
    """A size in bytes."""
    return _of(what, size_bytes, value) if isinstance(value, str) else value


def percent(value: Percent, what: str) -> int:
    """A share in whole percent."""
    if not isinstance(value, str):
        return value
    share = _of(what, probability, value)
    whole = round(share * 100) if share <= 1 else -1
    if not math.isclose(whole, share * 100):
        raise ValueError(f'{what}={value!r}: write a whole number of percent up to "100 %"')
    return whole


def option_seconds(text: str) -> float:
    """A time of the command line or of a configuration file: "1 min", or seconds as a number."""
    try:
        return float(text)
    except ValueError:
        return duration_ns(text) / _S


def option_size(text: str) -> int:
    """A size of the command line or of a configuration file: "1 GB", or a number of bytes."""
    return int(text) if text.isascii() and text.isdecimal() else size_bytes(text)


def probability_text(value: float) -> str:
    """A probability as text, which is parsed to the same value."""
    mantissa, _, exponent = repr(float(value)).partition("e")
    return f"{mantissa}e{int(exponent or 0) + 2} %"


def _of(what: str, parse: Callable[[str], T], text: str) -> T:
    """The value of an argument, whose name begins the error."""
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def duration_ns(text: str) -> int:
    """Nanoseconds of one or more terms."""
    total = 0
    left = text
    while True:
        whole, fraction, rest = _head(_DURATION, text, left)
        end = next((i for i, c in enumerate(rest) if not c.isalpha()), len(rest))
        unit, rest = rest[:end], rest[end:]
        total = _within(text, total + _value(_DURATION, text, whole, fraction, unit or rest))
        left = rest.strip(_SPACE)
        if not left:
            return total


def size_bytes(text: str) -> int:
    """Bytes."""
    whole, fraction, rest = _head(_SIZE, text, text)
    return _value(_SIZE, text, whole, fraction, rest.rstrip(_SPACE))


def probability(text: str) -> float:
    """A probability, from percent. The decimal point is moved in the text, not by a division."""
    trimmed = text.strip(_SPACE)
    number = trimmed.removesuffix("%")
    if number == trimmed:
        if _is_number(trimmed):
            raise ValueError(f'{_shown(text)} has no unit: write a unit, such as "{trimmed} %"')
        raise _no_number(text, "10 %")
    if number.startswith("-"):
        raise _negative(text)
    found = _PERCENT.fullmatch(number.rstrip(_SPACE))
    digits = (found[3] or "0") if found else ""
    exponent = int(f"{found[2] or ''}{digits}") if found and len(digits) <= 10 else _EXPONENT
    if not found or not -_EXPONENT <= exponent < _EXPONENT:
        raise _no_number(text, "10 %")
    return float(f"{found[1]}e{exponent - 2}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and "_" not in text


def _head(kind: _Kind, text: str, left: str) -> tuple[str, str, str]:
    """Splits `left` into the digits of its number and the rest. `text` is for messages."""
    left = left.lstrip(_SPACE)
    found = _NUMBER.match(left)
    if found is None or (found[2] is None and left[found.end() :].startswith(".")):
        is_negative = left.startswith(("-", "\u2212"))
        raise _negative(text) if is_negative else _no_number(text, kind.example)
    rest = left[found.end() :].lstrip(_SPACE)
    return found[1], (found[2] or "").rstrip("0"), rest


def _value(kind: _Kind, text: str, whole: str, fraction: str, unit: str) -> int:
    """Number times factor of the unit."""
    factor = _factor(kind, text, unit)
    # int refuses thousands of digits with an error that says nothing about quantities.
    digits = whole.lstrip("0") or "0"
    value = _within(text, int(digits) * factor if len(digits) <= 20 else _LARGEST + 1)
    if len(fraction) > _FRACTION_DIGITS:
        raise _inexact(kind, text)
    part, left_over = divmod(int(fraction or "0") * factor, 10 ** len(fraction))
    if left_over:
        raise _inexact(kind, text)
    return _within(text, value + part)


def _factor(kind: _Kind, text: str, unit: str) -> int:
    if not unit:
        example = f"{_shown(text)} {kind.example.partition(' ')[2]}"
        raise ValueError(f'{_shown(text)} has no unit: write a unit, such as "{example}"')
    if unit in kind.units:
        return kind.units[unit]
    hint = kind.hints.get(unit)
    if hint is None:
        lower = {name.lower(): name for name in kind.units}
        near = difflib.get_close_matches(unit[:_SHOWN].lower(), lower, n=1, cutoff=0.6)
        hint = (
            f'the nearest is "{lower[near[0]]}"'
            if near
            else f"write one of {', '.join(kind.units)}"
        )
    raise ValueError(f'"{_shown(unit)}" in "{_shown(text)}" is not a unit of {kind.of}: {hint}')


def _within(text: str, value: int) -> int:
    if value > _LARGEST:
        raise ValueError(f'"{_shown(text)}" is more than the largest representable: write less')
    return value


def _inexact(kind: _Kind, text: str) -> ValueError:
    return ValueError(
        f'"{_shown(text)}" is not a whole number of {kind.smallest}: write it with fewer decimals'
    )


def _negative(text: str) -> ValueError:
    return ValueError(f'"{_shown(text)}" is negative: write zero or more')


def _no_number(text: str, example: str) -> ValueError:
    return ValueError(f'"{_shown(text)}" does not begin with a number: write it as "{example}"')


def _shown(text: str) -> str:
    text = text.strip(_SPACE)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
