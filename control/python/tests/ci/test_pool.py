# SPDX-License-Identifier: Apache-2.0
"""Jobs share boxes through a real labgrid coordinator, whatever becomes of the jobs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import CI, Box, Pool, until
from labgrid.remote.client import start_session

from linkemu.labgrid_sweep import Sweep

JOB = Path(__file__).with_name("job.py")
TTL = 8


class Job:
    """A CI job: the shipped script, with a test that lasts until it is let go."""

    def __init__(self, pool: Pool, name: str, environment: Path, **more: str) -> None:
        self.name = f"ci/{name}"
        self.directory = pool.directory / name
        self.directory.mkdir()
        self.process = pool.start(
            name,
            ["sh", CI / "test-in-pool.sh", "-p", "no:cacheprovider"],
            LG_USERNAME=name,
            LG_ENV=str(environment),
            TESTS=str(JOB),
            RESULTS=str(self.directory / "results"),
            JOB=str(self.directory),
            **more,
        )

    def has_begun(self) -> bool:
        """Whether its test has its box."""
        code = self.process.running.poll()
        assert code is None, f"{self.name} ended ({code}): {self.process.log()}"
        return (self.directory / "began").exists()

    def begins(self) -> None:
        """Waits until it has its box."""
        until(f"{self.name} begins", self.has_begun)

    def passes(self) -> None:
        """Lets it go, and waits for its end."""
        (self.directory / "go").touch()
        assert self.process.wait() == 0, self.process.log()
        assert 'tests="1"' in (self.directory / "results" / "junit.xml").read_text()


@pytest.fixture(scope="module")
def boxes(bed: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Box]]:
    """Two boxes, where the one around these tests says that there can be some."""
    made: dict[str, Box] = {}
    try:
        for name in ("sat-a", "sat-b"):
            made[name] = Box(name, tmp_path_factory.mktemp(name))
        yield made
    finally:
        for box in made.values():
            box.process.end()


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The environment that is shipped, with a time to live for tests."""
    shipped = (CI / "labgrid" / "environment.yaml").read_text()
    short = shipped.replace("ttl: 60", f"ttl: {TTL}")
    assert short != shipped
    path = tmp_path / "environment.yaml"
    path.write_text(short)
    return path


@pytest.fixture
def pool(tmp_path: Path, boxes: dict[str, Box]) -> Iterator[Pool]:
    """A pool of the two boxes, without places."""
    pool = Pool(tmp_path / "pool", boxes["sat-a"], boxes["sat-b"])
    try:
        yield pool
    finally:
        pool.end()


def test_two_jobs_at_one_box_are_served_in_turn(
    pool: Pool, boxes: dict[str, Box], environment: Path
) -> None:
    pool.add_place("sat-a", "box=linkemu")
    first = Job(pool, "first", environment)
    first.begins()
    second = Job(pool, "second", environment)
    until("the second waits for its turn", lambda: pool.waiting() == 1)
    assert pool.holder("sat-a") == first.name
    assert not second.has_begun()
    first.passes()
    second.begins()
    assert pool.holder("sat-a") == second.name
    second.passes()
    assert pool.holder("sat-a") == ""
    # As linkd saw it: nobody had the box twice, and the second came after the first.
    assert boxes["sat-a"].leases(first.name, second.name) == [
        ("LEASE_ACQUIRED", first.name),
        ("LEASE_RELEASED", first.name),
        ("LEASE_ACQUIRED", second.name),
        ("LEASE_RELEASED", second.name),
    ]
    assert boxes["sat-a"].profile() == "transparent"


def test_two_boxes_of_one_tag_serve_two_jobs_side_by_side(
    pool: Pool, boxes: dict[str, Box], environment: Path
) -> None:
    pool.add_place("sat-a", "box=linkemu")
    pool.add_place("sat-b", "box=linkemu")
    left = Job(pool, "left", environment)
    right = Job(pool, "right", environment)
    # Neither is let go before both have a box.
    left.begins()
    right.begins()
    assert {pool.holder("sat-a"), pool.holder("sat-b")} == {left.name, right.name}
    left.passes()
    right.passes()
    one = boxes["sat-a"].leases(left.name, right.name)
    other = boxes["sat-b"].leases(left.name, right.name)
    assert [len(one), len(other)] == [2, 2]
    assert {holder for _, holder in one} | {holder for _, holder in other} == {
        left.name,
        right.name,
    }


def test_a_job_asks_for_tags_and_gets_a_box_that_has_them(
    pool: Pool, boxes: dict[str, Box], environment: Path
) -> None:
    pool.add_place("sat-a", "box=linkemu", "site=lab1")
    pool.add_place("sat-b", "box=linkemu", "site=lab2")
    job = Job(pool, "choosy", environment, LINKEMU_TAGS="box=linkemu site=lab2")
    job.begins()
    assert (pool.holder("sat-a"), pool.holder("sat-b")) == ("", job.name)
    job.passes()


def test_the_box_of_a_job_that_was_killed_serves_the_next(
    pool: Pool, boxes: dict[str, Box], environment: Path
) -> None:
    pool.add_place("sat-a", "box=linkemu")
    killed = Job(pool, "killed", environment)
    killed.begins()
    assert boxes["sat-a"].profile() == "viasat2"
    killed.process.kill()
    until("the lease is over", lambda: boxes["sat-a"].holder() is None)
    assert boxes["sat-a"].leases(killed.name)[-1] == ("LEASE_EXPIRED", killed.name)
    assert boxes["sat-a"].profile() == "transparent"
    # labgrid still believes in it.
    assert pool.holder("sat-a") == killed.name
    sweep = pool.start(
        "sweep", [sys.executable, "-m", "linkemu.labgrid_sweep", "--grace", "1", "--every", "0.2"]
    )
    until("the place is given back", lambda: pool.holder("sat-a") == "")
    # So little grace would take it from the next job before that has leased the box.
    sweep.end()
    following = Job(pool, "following", environment)
    following.begins()
    following.passes()
    assert boxes["sat-a"].leases(following.name) == [
        ("LEASE_ACQUIRED", following.name),
        ("LEASE_RELEASED", following.name),
    ]


def test_the_sweep_leaves_a_living_job_its_place(
    pool: Pool, boxes: dict[str, Box], environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in pool.environment.items():
        monkeypatch.setenv(name, value)
    pool.add_place("sat-a", "box=linkemu")
    now = [0.0]
    session = start_session(pool.environment["LG_COORDINATOR"])
    try:
        sweep = Sweep(session, grace=300, clock=lambda: now[0])
        job = Job(pool, "living", environment)
        job.begins()
        for _ in range(3):
            assert sweep.look() == []
            now[0] += 1000
        # From here on it is dead.
        job.process.kill()
        until("the lease is over", lambda: boxes["sat-a"].holder() is None)
        assert sweep.look() == []
        now[0] += 299
        assert sweep.look() == []
        now[0] += 1
        assert sweep.look() == ["sat-a"]
        assert pool.holder("sat-a") == ""
        assert pool.client("reservations") == ""
    finally:
        session.loop.run_until_complete(session.stop())
        session.loop.run_until_complete(session.close())


def test_a_box_that_does_not_answer_keeps_its_place(
    pool: Pool, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.add_place("sat-a", "box=linkemu")
    for name, value in pool.environment.items():
        monkeypatch.setenv(name, value)
    # A key that is none: the box cannot be asked.
    monkeypatch.setenv("LINKEMU_KEY", str(environment))
    pool.client("--place", "sat-a", "acquire")
    now = [0.0]
    session = start_session(pool.environment["LG_COORDINATOR"])
    try:
        sweep = Sweep(session, grace=0, clock=lambda: now[0])
        for _ in range(2):
            assert sweep.look() == []
            now[0] += 1000
    finally:
        session.loop.run_until_complete(session.stop())
        session.loop.run_until_complete(session.close())
    assert pool.holder("sat-a") == "ci/admin"


def test_a_job_that_is_told_to_end_gives_its_place_back(
    pool: Pool, boxes: dict[str, Box], environment: Path
) -> None:
    pool.add_place("sat-a", "box=linkemu")
    told = Job(pool, "told", environment)
    told.begins()
    # As a CI system does: all processes of the job.
    os.killpg(told.process.running.pid, signal.SIGTERM)
    assert told.process.wait() == 143
    assert pool.holder("sat-a") == ""
    assert pool.client("reservations") == ""
    until("the lease is over", lambda: boxes["sat-a"].holder() is None)


def test_a_job_that_runs_does_without_exporter_and_coordinator(
    pool: Pool, boxes: dict[str, Box], environment: Path
) -> None:
    pool.add_place("sat-a", "box=linkemu")
    job = Job(pool, "alone", environment)
    job.begins()
    pool.end_all_but(job.process)
    job.passes()
    assert boxes["sat-a"].leases(job.name)[-1] == ("LEASE_RELEASED", job.name)
