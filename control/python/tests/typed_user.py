# SPDX-License-Identifier: Apache-2.0
"""A test file of another project. Each `type: ignore` is an error that type checkers find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import linkemu
from linkemu import aio, v1
from linkemu.pytest_plugin import LinkUnderTest

HERE = Path(__file__).parent
TTL: linkemu.Duration = "1 min"
PIPE = v1.Pipe(rate_bps=9_000_000, queue=v1.Queue(limit_bytes=10**6), delay=v1.Delay(base_ns=5))


@pytest.mark.linkemu_link(seed=7, limits={"stall_ns": "300 ms"})
@pytest.mark.parametrize(
    "linkemu_link",
    [
        "viasat2",
        HERE / "mine.toml",
        v1.Profile(name="own", forward_pipe=PIPE, return_pipe=PIPE),
        {"profile": "viasat2", "both": {"rate": "5 Mbit/s"}},
    ],
    indirect=True,
)
def test_links(linkemu_link: LinkUnderTest) -> None:
    change: linkemu.Change = linkemu_link.patch(both={"rate": "5 Mbit/s", "delay": {"base_ns": 7}})
    rate: int = change.profile.forward_pipe.rate_bps
    assert rate == 5_000_000
    linkemu_link.set_profile(HERE / "mine.toml", seed=3)
    linkemu_link.patch(forwards={})  # type: ignore[call-arg]
    linkemu_link.box.link().profile.forwards  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.linkemu_scenario("rain-fade")
def test_scenario(linkemu_scenario: linkemu.Run, linkemu_box: linkemu.Box) -> None:
    state: v1.ScenarioState = linkemu_scenario.wait("2 min")
    assert state.run == linkemu_scenario.number
    assert linkemu_box.certificate(stall_ns="300 ms", memory_percent="90 %").holds
    linkemu_box.certificate(stall_ns=1.5)  # type: ignore[arg-type]


@pytest.fixture
def leased() -> Iterator[linkemu.Lease]:
    with (
        linkemu.Box("/run/linkemu/linkd.sock", timeout="5 s") as box,
        box.lease("me", ttl=TTL, wait=0) as lease,
        box.capture("a.pcapng", snaplen="64 B", duration=1.5),
    ):
        stats: v1.Stats = lease.mark()
        assert stats.span.marked
        box.lease("me", ttl=[1])  # type: ignore[arg-type]
        box.add_link("a", memory=1.5)  # type: ignore[arg-type]
        yield lease


async def changes() -> dict[str, linkemu.Change]:
    async with aio.Box() as box:
        return await box.update_links(patches={"lab1": {"rate": "5 Mbit/s"}})
