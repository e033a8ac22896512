# SPDX-License-Identifier: Apache-2.0
"""Jobs share boxes through a real labgrid coordinator, even if jobs are killed."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from junit import check_or_void, results
from lab import CI, INHERITED, REPOSITORY, Box, Pool, until
from labgrid import target_factory
from labgrid.remote.client import start_session
from templates import IN_POOL

import linkemu
import linkemu.labgrid  # Registers the driver.
from linkemu.labgrid_sweep import Sweep

JOB = Path(__file__).with_name("job.py")
# Seconds. The lease is renewed three times in this time.
TTL = 4


class Job:
    """A CI job: the shipped script, with a test that runs until it is released."""

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
        """Releases it, and waits for its end."""
        (self.directory / "go").touch()
        assert self.process.wait() == 0, self.process.log()
        assert 'tests="1"' in (self.directory / "results" / "junit.xml").read_text()


def _box(name: str, factory: pytest.TempPathFactory) -> Iterator[Box]:
    box = Box(name, factory.mktemp(name))
    try:
        yield box
    finally:
        box.process.end()


# `bed` fails or skips if a test bed cannot be built.
@pytest.fixture(scope="session")
def sat_a(bed: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    yield from _box("sat-a", tmp_path_factory)


@pytest.fixture(scope="session")
def sat_b(bed: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    yield from _box("sat-b", tmp_path_factory)


@pytest.fixture(scope="session")
def lasting_pool(sat_a: Box, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Pool of the session, for `pool`."""
    pool = Pool(tmp_path_factory.mktemp("pool") / "pool", sat_a, sat_a)
    try:
        yield pool
    finally:
        pool.end()


@pytest.fixture
def pool(lasting_pool: Pool) -> Iterator[Pool]:
    """A pool without places. Both groups of its exporter have the same box."""
    try:
        yield lasting_pool
    finally:
        lasting_pool.clear()


@pytest.fixture
def own_pool(sat_a: Box, tmp_path: Path) -> Iterator[Pool]:
    """Like `pool`, for one test that breaks it."""
    pool = Pool(tmp_path / "pool", sat_a, sat_a)
    try:
        yield pool
    finally:
        pool.end()


@pytest.fixture
def pool_of_two(sat_a: Box, sat_b: Box, tmp_path: Path) -> Iterator[Pool]:
    """A pool without places, and two boxes."""
    pool = Pool(tmp_path / "pool", sat_a, sat_b)
    try:
        yield pool
    finally:
        pool.end()


@pytest.fixture
def lab1(sat_a: Box) -> Iterator[str]:
    """A second link of the box."""
    sat_a.linkctl(
        "link", "add", "lab1", "--memory", "224MiB", "--clients", "1", "--prefix", "10.99.0.0/24"
    )
    yield "lab1"
    sat_a.linkctl("link", "remove", "lab1")


@pytest.fixture
def pool_of_links(sat_a: Box, lab1: str, tmp_path: Path) -> Iterator[Pool]:
    """Two places on one box: `sat-a` is its link main, `sat-b` its link lab1."""
    pool = Pool(tmp_path / "pool", sat_a, sat_a, link=lab1)
    try:
        pool.add_place("sat-a", box="linkemu", site="lab1")
        pool.add_place("sat-b", box="linkemu", site="lab2")
        yield pool
    finally:
        pool.end()


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The shipped environment, with a shorter time to live."""
    shipped = (CI / "labgrid" / "environment.yaml").read_text()
    short = shipped.replace("ttl: 60", f"ttl: {TTL}")
    assert short != shipped
    path = tmp_path / "environment.yaml"
    path.write_text(short)
    return path


def start_two(pool: Pool, test: str, environment: Path, **more: str) -> tuple[Job, Job]:
    """Starts two jobs for one box. Returns the running job and the waiting job."""
    jobs = [Job(pool, f"{test}-{n}", environment, **more) for n in range(2)]
    until("one of them begins", lambda: any(job.has_begun() for job in jobs))
    until("the other waits for its turn", lambda: pool.waiting() == 1)
    first, second = sorted(jobs, key=lambda job: not job.has_begun())
    return first, second


@pytest.mark.soak
def test_two_jobs_on_one_box_run_in_turn(pool: Pool, sat_a: Box, environment: Path) -> None:
    pool.add_place("sat-a", box="linkemu")
    first, second = start_two(pool, "turns", environment)
    assert pool.holder("sat-a") == first.name
    assert not second.has_begun()
    first.passes()
    second.begins()
    assert pool.holder("sat-a") == second.name
    second.passes()
    assert pool.holder("sat-a") == ""
    # The events of linkd: each lease ended before the next one began.
    assert sat_a.leases(first.name, second.name) == [
        ("LEASE_ACQUIRED", first.name),
        ("LEASE_RELEASED", first.name),
        ("LEASE_ACQUIRED", second.name),
        ("LEASE_RELEASED", second.name),
    ]
    assert sat_a.profile() == "transparent"


@pytest.mark.soak
def test_jobs_with_tags_run_side_by_side_on_matching_boxes(
    pool_of_two: Pool, sat_a: Box, sat_b: Box, environment: Path
) -> None:
    pool = pool_of_two
    pool.add_place("sat-a", box="linkemu", site="lab1")
    pool.add_place("sat-b", box="linkemu", site="lab2")
    left = Job(pool, "left", environment, LINKEMU_TAGS="box=linkemu site=lab2")
    right = Job(pool, "right", environment, LINKEMU_TAGS="box=linkemu site=lab1")
    # Neither may finish before both have a box.
    left.begins()
    right.begins()
    assert pool.places() == {"sat-a": right.name, "sat-b": left.name}
    left.passes()
    right.passes()
    for box, mine, other in ((sat_a, right, left), (sat_b, left, right)):
        assert box.leases(mine.name, other.name) == [
            ("LEASE_ACQUIRED", mine.name),
            ("LEASE_RELEASED", mine.name),
        ]


def test_box_of_killed_job_serves_next_job(pool: Pool, sat_a: Box, environment: Path) -> None:
    pool.add_place("sat-a", box="linkemu", site="lab1")
    # It is free but does not match.
    pool.add_place("sat-b", box="linkemu", site="lab2")
    tags = "box=linkemu site=lab1"
    killed, following = start_two(pool, "dies", environment, LINKEMU_TAGS=tags)
    assert pool.places() == {"sat-a": killed.name, "sat-b": ""}
    assert not following.has_begun()
    assert sat_a.profile() == "viasat2"
    # It starts while the lease of the dead job expires.
    sweep = [sys.executable, "-m", "linkemu.labgrid_sweep", "--grace", "2", "--every", "0.2"]
    process = pool.start("sweep", sweep)
    killed.process.kill()
    sat_a.until_free()
    assert sat_a.profile() == "transparent"
    # The place, and then its reservation.
    until(
        "the dead job has no reservation",
        lambda: killed.name not in {reservation.owner for reservation in pool.reservations()},
    )
    # With such a short grace, the place could be taken from the next job before it has leased the
    # box.
    process.kill()
    following.begins()
    assert pool.places() == {"sat-a": following.name, "sat-b": ""}
    following.passes()
    assert pool.holder("sat-a") == ""
    assert pool.reservations() == []
    # The events of linkd: the first lease ended before the next one began.
    assert sat_a.leases(killed.name, following.name) == [
        ("LEASE_ACQUIRED", killed.name),
        ("LEASE_EXPIRED", killed.name),
        ("LEASE_ACQUIRED", following.name),
        ("LEASE_RELEASED", following.name),
    ]


def test_places_of_one_box_are_held_side_by_side(
    pool_of_links: Pool, sat_a: Box, environment: Path
) -> None:
    pool = pool_of_links
    left = Job(pool, "left-link", environment, LINKEMU_TAGS="box=linkemu site=lab2")
    right = Job(pool, "right-link", environment, LINKEMU_TAGS="box=linkemu site=lab1")
    # Neither may finish before both have a link.
    left.begins()
    right.begins()
    assert pool.places() == {"sat-a": right.name, "sat-b": left.name}
    assert (sat_a.holder("main"), sat_a.holder("lab1")) == (right.name, left.name)
    left.passes()
    # What the end of one job did to its link. The other one checks its own.
    assert (sat_a.profile("lab1"), sat_a.profile("main")) == ("transparent", "viasat2")
    assert (sat_a.holder("main"), sat_a.holder("lab1")) == (right.name, "")
    right.passes()
    assert sat_a.profile("main") == "transparent"


def test_link_that_box_lacks_is_refused_with_those_it_has(sat_a: Box, lab1: str) -> None:
    resource = {"address": sat_a.environment["LINKEMU_SOCKET"], "link": "lab9"}
    config = {"resources": {"LinkemuBox": resource}, "drivers": {"LinkemuDriver": {}}}
    target = target_factory.make_target("main", config, env=None)
    with pytest.raises(linkemu.NotFound, match=f"`lab9`: the links are main, {lab1}"):
        target.get_driver("LinkemuDriver")


@contextlib.contextmanager
def holding(pool: Pool, patch: pytest.MonkeyPatch, *places: str) -> Iterator[Any]:
    """A session of labgrid in which `ci/admin` holds places without a lease."""
    for name, value in pool.environment.items():
        patch.setenv(name, value)
    for place in places:
        pool.client("--place", place, "acquire")
    session = start_session(pool.environment["LG_COORDINATOR"])
    try:
        yield session
    finally:
        session.loop.run_until_complete(session.stop())
        session.loop.run_until_complete(session.close())


@pytest.fixture
def held_sat_a(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A session in which the place of a box is held."""
    pool.add_place("sat-a", box="linkemu")
    with holding(pool, monkeypatch, "sat-a") as session:
        yield session


def test_sweep_while_box_is_leased_leaves_place(pool: Pool, sat_a: Box, held_sat_a: Any) -> None:
    now = [0.0]
    sweep = Sweep(held_sat_a, grace=300, clock=lambda: now[0])
    with sat_a.connect() as box, box.lease("living"):
        for _ in range(3):
            assert sweep.look() == []
            now[0] += 1000
    # From here on the holder is dead.
    assert sweep.look() == []
    now[0] += 299
    assert sweep.look() == []
    assert pool.holder("sat-a") == "ci/admin"
    now[0] += 1
    assert sweep.look() == ["sat-a"]
    assert pool.holder("sat-a") == ""


@pytest.mark.parametrize(("leased", "dead"), [("main", "sat-b"), ("lab1", "sat-a")])
def test_sweep_releases_only_place_of_link_without_lease(
    pool_of_links: Pool, sat_a: Box, leased: str, dead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    with (
        holding(pool_of_links, monkeypatch, "sat-a", "sat-b") as session,
        sat_a.connect() as box,
        box.on(leased) as link,
        link.lease("living") as lease,
    ):
        sweep = Sweep(session, grace=300, clock=lambda: now[0])
        assert sweep.look() == []
        now[0] += 300
        assert sweep.look() == [dead]
        assert [name for name, by in pool_of_links.places().items() if by] == [
            "sat-a" if dead == "sat-b" else "sat-b"
        ]
        # The sweep has not touched the lease.
        lease.renew()


def test_unreachable_box_keeps_its_place(
    pool: Pool, environment: Path, held_sat_a: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The key is invalid, so the box does not answer.
    monkeypatch.setenv("LINKEMU_KEY", str(environment))
    monkeypatch.setattr("linkemu.labgrid_sweep.ANSWER", 0.2)
    now = [0.0]
    sweep = Sweep(held_sat_a, grace=0, clock=lambda: now[0])
    for _ in range(2):
        assert sweep.look() == []
        now[0] += 1000
    assert pool.holder("sat-a") == "ci/admin"


def test_terminated_job_releases_its_place(pool: Pool, environment: Path) -> None:
    pool.add_place("sat-a", box="linkemu")
    told = Job(pool, "told", environment)
    told.begins()
    # Like a CI system: all processes of the job.
    os.killpg(told.process.running.pid, signal.SIGTERM)
    assert told.process.wait() == 143
    assert pool.holder("sat-a") == ""
    assert pool.reservations() == []


def test_running_job_survives_exporter_and_coordinator(
    own_pool: Pool, sat_a: Box, environment: Path
) -> None:
    own_pool.add_place("sat-a", box="linkemu")
    job = Job(own_pool, "alone", environment)
    job.begins()
    own_pool.kill_all_but(job.process)
    job.passes()
    assert sat_a.leases(job.name)[-1] == ("LEASE_RELEASED", job.name)


def test_example_runs_in_pool_with_shipped_files(pool: Pool, tmp_path: Path) -> None:
    pool.add_place("sat-a", box="linkemu")
    # The omitted tests take longer and are the same as with one box.
    ran = subprocess.run(
        [*shlex.split(IN_POOL), "-p", "no:cacheprovider", "-k", "short_path"],
        cwd=REPOSITORY,
        env={**INHERITED, **pool.environment, "RESULTS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert (tmp_path / "junit.xml").exists(), ran.stdout + ran.stderr
    cases = results(tmp_path)
    check_or_void(ran, cases)
    assert len(cases) == 2
    assert pool.holder("sat-a") == ""
    assert pool.reservations() == []
