# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin, with the real programs.

Each test runs another pytest: in this process, or in a child if the process, its environment, its
plugins or its death matter.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pcapng
import pytest

import linkemu
from conftest import Bed, Void, until, until_renewed
from linkemu import v1

PATIENT = "limits={'lateness_p99_ns': 10**10, 'stall_ns': 10**10}"
HEADER = f"""
import os, signal, subprocess, time
import pytest

def ping(count=3):
    subprocess.run(
        ["ip", "netns", "exec", os.environ["BED_CLIENT_NS"], "ping", "-q", "-c", str(count),
         "-i", "0.1", os.environ["BED_WAN_IP"]], check=True)

patient = dict({PATIENT})
"""


@pytest.fixture
def socket(bed: Bed, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> str:
    """Socket of linkd, for a pytest that gets it as an option."""
    for name in ("LINKEMU_SERVER", "LINKEMU_SOCKET", "CI"):
        monkeypatch.delenv(name, raising=False)
    return bed.socket


# The plugins of the outer pytest are loaded again by an inner one in the same process, which
# labgrid refuses.
ALONE = ("-p", "no:cacheprovider", "-p", "no:labgrid")
BOTTLENECK = "the emulator was the bottleneck: "


def run(
    pytester: pytest.Pytester, socket: str, body: str, *more: str, stalls: bool = False
) -> pytest.RunResult:
    """Runs tests with pytest in this process. Void if the emulator stalls."""
    pytester.makepyfile(HEADER + body)
    result = pytester.runpytest_inprocess("--linkemu-socket", socket, *ALONE, *more)
    if not stalls:
        for line in result.outlines:
            if BOTTLENECK in line:
                raise Void(line)
    return result


def test_marker_sets_link_and_restores_it(
    box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    result = run(
        pytester,
        socket,
        """
@pytest.mark.link(profile="viasat2", seed=7, forward={"rate_bps": 72_000_000}, **patient)
def test_one(link):
    now = link.box.link()
    assert (now.name, now.seed, now.generation) == ("viasat2*", 7, link.change.generation)
    assert now.profile.forward_pipe.rate_bps == 72_000_000
    held = link.box.lease_holder()
    assert held.purpose.endswith("::test_one") and held.holder == "ci-7" and held.ttl == 25.0
    ping()

@pytest.mark.link(**patient)
def test_marker_requests_no_fixture():
    ping()

def test_no_link():
    pass
""",
        "--linkemu-holder=ci-7",
        "--linkemu-ttl=25",
        "-v",
    )
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        ["*= linkemu =*", "*::test_one: viasat2[*]: the certificate holds*"]
    )
    assert box.link().name == "transparent"
    assert box.lease_holder() is None


def test_certificate_and_capture_are_beside_report(
    box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    result = run(
        pytester,
        socket,
        """
@pytest.mark.link(profile="viasat2", seed=7, capture={"snaplen": 64}, **patient)
def test_one(link):
    ping()
""",
        "--junitxml=junit.xml",
        "--html=report.html",
        "--linkemu-out=out",
    )
    result.assert_outcomes(passed=1)
    case = ET.parse(pytester.path / "junit.xml").getroot().find(".//testcase")
    assert case is not None
    properties = {p.get("name"): p.get("value") for p in case.iter("property")}
    assert properties["linkemu_profile"] == "viasat2"
    assert properties["linkemu_seed"] == "7"
    assert properties["linkemu_certificate"] == "holds"
    certificate = Path(properties["linkemu_certificate_file"] or "")
    assert json.loads(certificate.read_text())["verdict"] == "pass"
    assert certificate.parent == pytester.path / "out"
    with Path(properties["linkemu_capture"] or "").open("rb") as stream:
        assert len(list(pcapng.FileScanner(stream))) > 10
    html = (pytester.path / "report.html").read_text()
    assert "certificate" in html
    assert ".pcapng" in html


def test_capture_of_passed_test_is_kept_on_request_only(
    box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    result = run(
        pytester,
        socket,
        """
@pytest.mark.link(**patient)
def test_passes(link): ping()

@pytest.mark.link(**patient)
def test_fails(link): ping(); assert False

@pytest.mark.link(capture=False, **patient)
def test_none(link): ping(); assert False
""",
        "--linkemu-capture=failed",
    )
    result.assert_outcomes(passed=1, failed=2)
    kept = sorted(path.name for path in (pytester.path / "linkemu-report").glob("*.pcapng"))
    assert len(kept) == 1
    assert "test_fails" in kept[0]


def test_emulator_fault_is_error_and_no_failure(
    bed: Bed, box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    result = run(
        pytester,
        socket,
        f"""
pid = {bed.pid("dataplane")}

def stall():
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.3)
    os.kill(pid, signal.SIGCONT)

@pytest.mark.link(limits={{"lateness_p99_ns": 10**10}})
def test_passes(link):
    ping(); stall(); ping()

@pytest.mark.link(limits={{"lateness_p99_ns": 10**10}})
def test_fails(link):
    ping(); stall(); assert 2 + 2 == 5

@pytest.mark.link(certificate=False)
def test_is_not_judged(link):
    stall()

@pytest.mark.link(limits={{"packets": 10**9}})
@pytest.mark.xfail
def test_is_expected_to_fail(link):
    assert False
""",
        "--junitxml=junit.xml",
        "-rA",
        stalls=True,
    )
    result.assert_outcomes(passed=1, errors=3)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "the emulator was the bottleneck: stall *at most*",
            "*its body passed*",
            "*its body failed*",
            "*2 + 2 == 5*",
        ]
    )
    cases = {c.get("name"): c for c in ET.parse(pytester.path / "junit.xml").iter("testcase")}
    for name in ("test_passes", "test_fails"):
        assert cases[name].find("failure") is None
        error = cases[name].find("error")
        assert error is not None
        assert "bottleneck" in (error.get("message") or "")


def test_restarted_dataplane_makes_test_error(
    bed: Bed, box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    result = run(
        pytester,
        socket,
        f"""
from pathlib import Path

PID = Path({str(bed.directory / "dataplane.pid")!r})

def crash(link):
    before = PID.read_text()
    os.kill(int(before), signal.SIGKILL)
    end = time.monotonic() + 60
    while PID.read_text() == before or link.box.stats().span.marked:
        assert time.monotonic() < end
        time.sleep(0.1)

@pytest.mark.link(**patient)
def test_passes(link):
    crash(link); ping()

@pytest.mark.link(certificate=False)
def test_fails(link):
    crash(link); assert False

@pytest.mark.link(**patient)
def test_that_comes_next(link):
    ping()
""",
    )
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(
        ["the dataplane was started anew *", "*its body passed*", "*its body failed*"]
    )


def test_scenario_stopped_by_others_makes_test_error(
    box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    result = run(
        pytester,
        socket,
        """
import linkemu
from linkemu import _calls

def stop(link):
    with linkemu.Box(link.box.address) as other:
        other._ask(_calls.stop_scenario(False), link.lease.token)

@pytest.mark.link(**patient)
@pytest.mark.scenario("rain-fade")
def test_passes(link, scenario):
    ping(); stop(link)

@pytest.mark.link(**patient)
@pytest.mark.scenario("rain-fade")
def test_waits(link, scenario):
    ping(); stop(link); scenario.wait(60)

@pytest.mark.link(**patient)
def test_waits_for_its_own(link):
    ping(); mine = link.run_scenario("rain-fade"); stop(link); mine.wait(60)

@pytest.mark.link(**patient)
@pytest.mark.scenario("rain-fade")
def test_stops_it(link, scenario):
    ping(); scenario.stop()

@pytest.mark.link(**patient)
@pytest.mark.scenario("rain-fade")
def test_runs_another(link, scenario):
    ping(); scenario.stop(); link.run_scenario("rain-fade")

@pytest.mark.link(**patient)
@pytest.mark.scenario("rain-fade")
def test_waits_too_short(link, scenario):
    ping(); scenario.wait(0.1)
""",
    )
    result.assert_outcomes(passed=2, failed=1, errors=3)
    result.stdout.fnmatch_lines(["scenario rain-fade was stopped: *"])


def test_unanswered_call_makes_test_error(
    box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    result = run(
        pytester,
        socket,
        """
import linkemu

@pytest.mark.link(**patient)
def test_one(link):
    ping()
    with linkemu.Box("/none/linkd.sock", patience=0) as gone:
        gone.version()
""",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["the box could not be reached: *"])


def test_invalid_limits_are_errors_and_end_no_session(
    box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    result = run(
        pytester,
        socket,
        """
@pytest.mark.link(limits={"stal_ns": 5})
def test_name(link): pass

@pytest.mark.link(limits={"stall_ns": -1})
def test_value(link): pass

@pytest.mark.link(limits={"mark": True})
def test_no_limit(link): pass

@pytest.mark.link(limits=5)
def test_number(link): pass

def test_none(): pass
""",
    )
    result.assert_outcomes(passed=1, errors=4)
    result.stdout.fnmatch_lines(["*limits: *stal_ns*: they are packets, *"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_unwritable_directory_is_error_and_ends_no_session(
    box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    (pytester.path / "file").touch()
    body = "@pytest.mark.link(**patient)\ndef test_one(link): ping()\ndef test_two(): pass\n"
    result = run(pytester, socket, body, "--linkemu-out=file")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*what the box says of the test cannot be kept: *"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_marker_of_one_instance_is_not_shared(
    box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    result = run(
        pytester,
        socket,
        """
fading = pytest.mark.scenario("rain-fade")

@pytest.mark.link(**patient)
@pytest.mark.parametrize("n", [pytest.param(0, marks=fading), 1])
def test_one(request, n):
    ping()
    assert ("scenario" in request.node.fixturenames) == (n == 0)
""",
    )
    result.assert_outcomes(passed=2)


def test_each_test_has_separate_files(
    box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    result = run(
        pytester,
        socket,
        """
@pytest.mark.link(**patient)
@pytest.mark.parametrize("sign", ["+", "=", "x" * 200, "y" + "x" * 200])
def test_one(link, sign): ping()
""",
    )
    result.assert_outcomes(passed=4)
    assert len(list((pytester.path / "linkemu-report").glob("*.certificate.json"))) == 4


def test_scenario_runs_during_test_and_is_stopped_after(
    box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    (pytester.path / "endless.toml").write_text(
        'name = "endless"\ndescription = "x"\nsource = "x"\n'
        '[[step]]\nboth.rate = "72 Mbit/s"\n[[step]]\nafter = "1 h"\nboth.rate = "1 Mbit/s"\n'
    )
    result = run(
        pytester,
        socket,
        """
from pathlib import Path

@pytest.mark.link(profile="viasat2", **patient)
@pytest.mark.scenario(Path("endless.toml"), seed=3)
def test_endless(scenario):
    assert scenario.name == "endless"
    ping()

@pytest.mark.link(profile="viasat2", **patient)
@pytest.mark.scenario("rain-fade")
def test_by_name(link, scenario):
    assert link.box.scenario_state().name == "rain-fade"
    ping()

@pytest.mark.scenario("rain-fad")
def test_wrong_name(scenario): pass

def test_no_marker(scenario): pass
""",
    )
    result.assert_outcomes(passed=2, errors=2)
    result.stdout.fnmatch_lines(["*no scenario: *rain-fade*", "*`scenario` needs a marker*"])
    assert box.scenario_state().phase == v1.SCENARIO_PHASE_STOPPED
    assert box.link().name == "transparent"


def test_refused_setting_is_error_with_message_of_server(
    box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    result = run(
        pytester,
        socket,
        """
@pytest.mark.link(profile="viasat3")
def test_profile(link): pass

@pytest.mark.link(profil="viasat2")
def test_keyword(link): pass

@pytest.mark.link(both={"rate": 5})
def test_field(link): pass
""",
    )
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(
        ['*nearest is "viasat2"*', "*it takes profile, seed*", "*a pipe has rate_bps*"]
    )
    assert "_InactiveRpcError" not in result.stdout.str()
    assert box.lease_holder() is None
    assert box.link().name == "transparent"


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
        "def test_one(link): pass\ndef test_two(link): pass\ndef test_three(): pass"
    )
    result = pytester.runpytest_inprocess("-rs", *ALONE)
    result.assert_outcomes(**{outcomes: 2, "passed": 1})
    result.stdout.fnmatch_lines(["*no box: cannot reach linkd at unix:/none/linkd.sock*"])


def test_address_without_certificates_is_error_with_remedy(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LINKEMU_SERVER", "LINKEMU_CA", "LINKEMU_CERT", "LINKEMU_KEY"):
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile("def test_one(link): pass")
    result = pytester.runpytest_inprocess("--linkemu-address=box:8443", *ALONE)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no box: *needs LINKEMU_CA, LINKEMU_CERT, LINKEMU_KEY too*"])


def test_environment_of_linkctl_is_sufficient(box: linkemu.Box, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(HEADER + "@pytest.mark.link(**patient)\ndef test_one(link): ping()")
    result = pytester.runpytest_subprocess(timeout=60)
    result.assert_outcomes(passed=1)


def test_xdist_workers_take_turns(box: linkemu.Box, socket: str, pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        socket,
        """
@pytest.mark.parametrize("n", range(4))
@pytest.mark.link(**patient)
def test_one(link, n):
    before = link.box.link().generation
    ping()
    assert link.box.link().generation == before == link.change.generation
""",
        "-n2",
        "-v",
        "--junitxml=junit.xml",
        "--linkemu-holder=turns",
    )
    result.assert_outcomes(passed=4)
    lines = [line for line in result.outlines if "the certificate holds" in line]
    assert len(lines) == 4
    properties = list(ET.parse(pytester.path / "junit.xml").iter("property"))
    assert sum(p.get("name") == "linkemu_certificate_file" for p in properties) == 4
    # The events of linkd: each lease ended before the next one began.
    kinds = (v1.EVENT_KIND_LEASE_ACQUIRED, v1.EVENT_KIND_LEASE_RELEASED)
    events = [e for e in box.events(after=0, once=True) if e.subject == "turns"]
    assert [e.kind for e in events if e.kind in kinds] == [*kinds] * 4


def test_xdist_workers_are_refused_single_box_of_labgrid(
    box: linkemu.Box,
    socket: str,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts = "wan: x, wan_ip: 10.0.0.1, client: x, client_ip: 10.0.0.2"
    (pytester.path / "environment.yaml").write_text(
        "targets:\n  main:\n    resources:\n"
        f"      LinkemuBox: {{address: 'unix:{socket}', {hosts}}}\n"
        "    drivers:\n      LinkemuDriver: {wait: 600}\nimports: [linkemu.labgrid]\n"
    )
    monkeypatch.setenv("LG_ENV", str(pytester.path / "environment.yaml"))
    pytester.makepyfile(
        HEADER
        + """
@pytest.mark.link(**patient)
@pytest.mark.scenario("rain-fade")
def test_one(link, scenario):
    assert link.box.lease_holder().purpose == "labgrid"
    ping()

@pytest.mark.link(**patient)
def test_two(link):
    assert link.lease._run._stopped
    # Scenario that the test leaves running.
    link.run_scenario("rain-fade")
    ping()

@pytest.mark.link(**patient)
def test_three(link):
    assert link.box.scenario_state().message.startswith("stopped by")
    ping()
"""
    )
    options = ["-p", "no:cacheprovider"]
    result = pytester.runpytest_subprocess(*options, timeout=120)
    result.assert_outcomes(passed=3)
    result = pytester.runpytest_subprocess("-n1", *options, timeout=120)
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(["*pytest-xdist cannot share: run without -n*"])


def test_lease_timeout_is_error_that_names_holder(
    box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    with box.lease("somebody else"):
        result = run(pytester, socket, "def test_one(link): pass", "--linkemu-wait=0.3")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no link: the link is leased to somebody else*0.3 s in vain*"])


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)]
)
def test_lease_of_killed_pytest_expires(
    box: linkemu.Box, socket: str, pytester: pytest.Pytester, how: signal.Signals
) -> None:
    path = pytester.makepyfile(
        HEADER + '@pytest.mark.link(profile="viasat2", capture=True, **patient)\n'
        "def test_one(link): ping(); open('there', 'w').close(); time.sleep(600)\n"
    )
    command = [sys.executable, "-m", "pytest", str(path), *ALONE, "--linkemu-socket", socket]
    victim = subprocess.Popen(
        [*command, "--linkemu-ttl=4"], stdout=subprocess.DEVNULL, cwd=pytester.path
    )
    try:
        there = pytester.path / "there"
        until("the test", lambda: True if there.exists() else None, 60)
        assert box.link().name == "viasat2"
        until_renewed(box)
    finally:
        victim.send_signal(how)
        victim.wait(30)
    until("the end of the lease", lambda: True if box.lease_holder() is None else None)
    assert box.link().name == "transparent"
    # Nor a capture, which is limited to one at a time.
    with box.lease("next"), box.capture(pytester.path / "next.pcapng"):
        pass


def test_stolen_lease_makes_test_error(
    bed: Bed, box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    result = run(
        pytester,
        socket,
        """
import linkemu

def test_one(link):
    ping()
    with linkemu.Box(link.box.address) as other, other.lease("thief", steal=True):
        pass
""",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the box did not last through the test: *lease*"])


def test_linkd_restart_during_test_is_tolerated(
    bed: Bed, box: linkemu.Box, socket: str, pytester: pytest.Pytester
) -> None:
    result = run(
        pytester,
        socket,
        f"""
@pytest.mark.link(profile="viasat2", **patient)
def test_one(link):
    ping()
    os.kill({bed.pid("linkd")}, signal.SIGKILL)
    link.patch(forward={{"rate_bps": 20_000_000}})
    ping()
""",
    )
    result.assert_outcomes(passed=1)
    assert box.link().name == "transparent"
