# SPDX-License-Identifier: Apache-2.0
"""Quantities as text: the grammar, and the arguments that take them."""

from __future__ import annotations

import argparse
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

import linkemu
from linkemu import _calls, _quantity, labgrid_sweep, v1

TABLE = tomllib.loads(
    (Path(__file__).parents[3] / "proto/profile/tests/quantities.toml").read_text("utf-8")
)
PARSERS = {
    "duration": _quantity.duration_ns,
    "size": _quantity.size_bytes,
    "probability": _quantity.probability,
}
ERRORS = {
    "no number": "does not begin with a number",
    "no unit": "has no unit: write a unit",
    "unknown unit": "is not a unit of ",
    "negative": "is negative",
    "inexact": "is not a whole number of",
    "too large": "is more than the largest",
}


@pytest.mark.parametrize("kind", PARSERS)
def test_texts_of_the_table_have_its_values_and_errors(kind: str) -> None:
    for text, wanted in TABLE[kind]:
        if wanted in ERRORS:
            with pytest.raises(ValueError, match=ERRORS[wanted]):
                pytest.fail(f"{text!r} was parsed as {PARSERS[kind](text)}")
        elif kind == "probability":
            assert PARSERS[kind](text) == float(wanted), text
        else:
            assert PARSERS[kind](text) == int(wanted), text


@pytest.mark.parametrize("parse", PARSERS.values())
def test_long_text_is_refused_with_a_short_message(parse: Any) -> None:
    for text in ("9" * 10_000 + " s", "5 " + "s" * 10_000, "1e" + "9" * 10_000 + " %"):
        with pytest.raises(ValueError, match="…") as told:
            parse(text)
        assert len(str(told.value)) < 300


def test_errors_name_the_argument_the_value_and_the_remedy() -> None:
    for call, message in (
        (lambda: _quantity.seconds("5 m", "ttl"), 'ttl: "m" in "5 m" is not a unit of time: write'),
        (lambda: _quantity.seconds("5", "ttl"), 'ttl: 5 has no unit: write a unit, such as "5 ms"'),
        (lambda: _quantity.size("5 Mb", "memory"), "memory: .*that is bits"),
        (lambda: _quantity.size("5 mb", "memory"), 'memory: .*the nearest is "MB"'),
        (lambda: _quantity.percent("7", "memory_percent"), 'memory_percent: .*such as "7 %"'),
        (lambda: _quantity.percent("0.5 %", "memory_percent"), "whole number of percent"),
        (lambda: _quantity.percent("101 %", "memory_percent"), 'up to "100 %"'),
        (lambda: _quantity.percent("1e400 %", "memory_percent"), 'up to "100 %"'),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("value", [0.1, 0.07, 1 / 3, 5e-324, 1e-7, 0.0, 1.0, 1, 0, math.pi])
def test_probability_text_is_parsed_to_the_same_value(value: float) -> None:
    assert _quantity.probability(_quantity.probability_text(value)) == value


def test_arguments_take_text_and_numbers_alike() -> None:
    for a, b in (
        (_calls.acquire("me", "", "1 min", None, False), _calls.acquire("me", "", 60, None, False)),
        (_calls.watch_stats("250ms"), _calls.watch_stats(0.25)),
        (
            _calls.capture([], "both", "64 B", 0, "1.5 s"),
            _calls.capture([], "both", 64, 0, 1.5),
        ),
        (
            _calls.add_link("a", ("32 MiB", 1), None, ("", 0)),
            _calls.add_link("a", (32 << 20, 1), None, ("", 0)),
        ),
        (
            _calls.certificate(False, {"stall_ns": "300ms", "memory_percent": "7%"}),
            _calls.certificate(False, {"stall_ns": 300_000_000, "memory_percent": 7}),
        ),
    ):
        for request in (a.request, b.request):
            if isinstance(request, v1.AcquireLeaseRequest):
                request.request_id = ""
        assert a.request == b.request


def test_text_without_unit_or_of_another_quantity_is_refused() -> None:
    calls: list[Any] = [
        lambda: _calls.watch_stats("1 MB"),
        lambda: _calls.capture([], "both", "64 ms", 0, 0),
        lambda: _calls.certificate(False, {"stall_ns": "300"}),
        lambda: _calls.certificate(False, {"packets": "300 ms"}),
        lambda: linkemu.Box("/none", timeout="5"),
        lambda: linkemu.Box("/none").lease("me", wait=math.nan),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError)):
            call()


def test_options_of_programs_take_numbers_as_text() -> None:
    assert _quantity.option_seconds("30") == _quantity.option_seconds("0.5 min") == 30.0
    assert _quantity.option_size("33554432") == _quantity.option_size("32 MiB") == 32 << 20
    with pytest.raises(argparse.ArgumentTypeError, match="30 m"):
        labgrid_sweep._seconds("30 m")
