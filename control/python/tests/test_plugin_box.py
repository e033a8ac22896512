# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin, with the real programs: how it finds and leases its box.

Each test runs another pytest: in this process, or in a child if the process, its environment, its
plugins or its death matter.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

import linkemu
from conftest import Bed, until, until_renewed
from inner import ALONE, HEADER, Inner
from linkemu import v1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the retries for boxes that do not exist."""
    # The default is bound already.
    monkeypatch.setitem(linkemu.Box.__init__.__kwdefaults__ or {}, "patience", 0.1)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("missing", "outcomes"), [("error", "errors"), ("skip", "skipped")])
def test_missing_box_is_error_unless_skip_is_configured(
    missing: str, outcomes: str, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\nlinkemu_missing = {missing}\nlinkemu_socket = /none/linkd.sock\n")
    pytester.makepyfile(
        "def test_one(linkemu_link): pass\ndef test_two(linkemu_link): pass\ndef test_three(): pass"
    )
    result = pytester.runpytest_inprocess("-rs", *ALONE)
    result.assert_outcomes(**{outcomes: 2, "passed": 1})
    result.stdout.fnmatch_lines(["*no box: cannot reach linkd at unix:/none/linkd.sock*"])


def test_address_without_certificates_is_error_with_remedy(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LINKEMU_SERVER", "LINKEMU_CA", "LINKEMU_CERT", "LINKEMU_KEY"):
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile("def test_one(linkemu_link): pass")
    result = pytester.runpytest_inprocess("--linkemu-address=box:8443", *ALONE)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no box: *needs LINKEMU_CA, LINKEMU_CERT, LINKEMU_KEY too*"])


def test_environment_of_linkctl_is_sufficient(box: linkemu.Box, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HEADER + "@pytest.mark.linkemu_link(**patient)\ndef test_one(linkemu_link): ping()"
    )
    result = pytester.runpytest_subprocess(timeout=60)
    result.assert_outcomes(passed=1)


def test_session_with_link_of_its_own_leaves_main_alone(box: linkemu.Box, inner: Inner) -> None:
    def run() -> pytest.RunResult:
        return inner.run(
            """
def test_one(linkemu_link, linkemu_box):
    assert linkemu_box.link_name.startswith("pytest-")
    ping()
    assert linkemu_link.box.client_states()
""",
            "--linkemu-link=own",
            "--linkemu-prefix=10.77.0.10/32",
            "--linkemu-memory=32MiB",
            "--linkemu-wait=1 s",
        )

    generation = box.link().generation
    run().assert_outcomes(passed=1)
    assert box.link().generation == generation
    # Its memory and packets would be those of the other job.
    with box.lease("another job"):
        refused = run()
    refused.assert_outcomes(errors=1)
    refused.stdout.fnmatch_lines(["*the link is leased to another job*"])
    assert [link.name for link in box.links()] == ["links/main"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--linkemu-ttl=5 m", '*--linkemu-ttl 5 m: "m" in "5 m" is not a unit of time: write min*'),
        ("--linkemu-wait=soon", '*--linkemu-wait soon: "soon" does not begin with a number*'),
    ],
)
def test_wrong_quantity_of_option_is_error_with_remedy(
    option: str, message: str, inner: Inner
) -> None:
    result = inner.run("def test_one(linkemu_link): pass", option)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])


def test_xdist_workers_take_turns(inner: Inner) -> None:
    result = inner.run(
        """
@pytest.mark.parametrize("n", range(4))
@pytest.mark.linkemu_link(**patient)
def test_one(linkemu_link, n):
    before = linkemu_link.box.link().generation
    ping()
    assert linkemu_link.box.link().generation == before == linkemu_link.change.generation
""",
        "-n2",
        "-v",
        "--junitxml=junit.xml",
        "--linkemu-holder=turns",
    )
    result.assert_outcomes(passed=4)
    lines = [line for line in result.outlines if "the certificate holds" in line]
    assert len(lines) == 4
    properties = list(ET.parse(inner.path / "junit.xml").iter("property"))
    assert sum(p.get("name") == "linkemu_certificate_file" for p in properties) == 4
    # The events of linkd: each lease ended before the next one began.
    kinds = (v1.EVENT_KIND_LEASE_ACQUIRED, v1.EVENT_KIND_LEASE_RELEASED)
    events = [e for e in inner.box.events(after=0, once=True) if e.subject == "turns"]
    assert [e.kind for e in events if e.kind in kinds] == [*kinds] * 4


def test_xdist_workers_are_refused_single_box_of_labgrid(
    inner: Inner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts = "wan: x, wan_ip: 10.0.0.1, client: x, client_ip: 10.0.0.2"
    (inner.path / "environment.yaml").write_text(
        "targets:\n  main:\n    resources:\n"
        f"      LinkemuBox: {{address: 'unix:{inner.socket}', {hosts}}}\n"
        "    drivers:\n      LinkemuDriver: {wait: 600}\nimports: [linkemu.labgrid]\n"
    )
    monkeypatch.setenv("LG_ENV", str(inner.path / "environment.yaml"))
    inner.pytester.makepyfile(
        HEADER
        + """
@pytest.mark.linkemu_link(**patient)
@pytest.mark.linkemu_scenario("rain-fade")
def test_one(linkemu_link, linkemu_scenario):
    assert linkemu_link.box.lease_holder().purpose == "labgrid"
    ping()

@pytest.mark.linkemu_link(**patient)
def test_two(linkemu_link):
    assert linkemu_link.lease._run._stopped
    # Scenario that the test leaves running.
    linkemu_link.run_scenario("rain-fade")
    ping()

@pytest.mark.linkemu_link(**patient)
def test_three(linkemu_link):
    assert linkemu_link.box.scenario_state().message.startswith("stopped by")
    ping()
"""
    )
    options = ["-p", "no:cacheprovider"]
    result = inner.pytester.runpytest_subprocess(*options, timeout=120)
    result.assert_outcomes(passed=3)
    result = inner.pytester.runpytest_subprocess("-n1", *options, timeout=120)
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(["*pytest-xdist cannot share: run without -n*"])


def test_lease_timeout_is_error_that_names_holder(inner: Inner) -> None:
    with inner.box.lease("somebody else"):
        result = inner.run("def test_one(linkemu_link): pass", "--linkemu-wait=0.3")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*no link: the link is leased to somebody else*0.3 s without success*"]
    )


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)]
)
def test_lease_of_killed_pytest_expires(inner: Inner, how: signal.Signals) -> None:
    path = inner.pytester.makepyfile(
        HEADER + '@pytest.mark.linkemu_link(profile="viasat2", capture=True, **patient)\n'
        "def test_one(linkemu_link): ping(); open('there', 'w').close(); time.sleep(600)\n"
    )
    command = [sys.executable, "-m", "pytest", str(path), *ALONE, "--linkemu-socket", inner.socket]
    victim = subprocess.Popen(
        [*command, "--linkemu-ttl=4"], stdout=subprocess.DEVNULL, cwd=inner.path
    )
    try:
        there = inner.path / "there"
        until("the test", lambda: True if there.exists() else None, 60)
        assert inner.box.link().name == "viasat2"
        until_renewed(inner.box)
    finally:
        victim.send_signal(how)
        victim.wait(30)
    until("the end of the lease", lambda: True if inner.box.lease_holder() is None else None)
    assert inner.box.link().name == "transparent"
    # Nor a capture, which is limited to one at a time.
    with inner.box.lease("next"), inner.box.capture(inner.path / "next.pcapng"):
        pass


def test_stolen_lease_makes_test_error(bed: Bed, inner: Inner) -> None:
    result = inner.run(
        """
import linkemu

def test_one(linkemu_link):
    ping()
    with linkemu.Box(linkemu_link.box.address) as other, other.lease("thief", steal=True):
        pass
""",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the box did not last through the test: *lease*"])


def test_linkd_restart_during_test_is_tolerated(bed: Bed, inner: Inner) -> None:
    result = inner.run(
        f"""
@pytest.mark.linkemu_link(profile="viasat2", **patient)
def test_one(linkemu_link):
    ping()
    os.kill({bed.pid("linkd")}, signal.SIGKILL)
    linkemu_link.patch(forward={{"rate_bps": 20_000_000}})
    ping()
""",
    )
    result.assert_outcomes(passed=1)
    assert inner.box.link().name == "transparent"
