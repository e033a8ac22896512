# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin, with the real programs: markers, certificates, captures, scenarios.

Each test runs another pytest in this process.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pcapng
import pytest

from conftest import Bed
from inner import Inner
from linkemu import v1


def test_marker_sets_link_and_restores_it(inner: Inner) -> None:
    result = inner.run(
        """
@pytest.mark.linkemu_link(profile="viasat2", seed=7, forward={"rate_bps": 72_000_000}, **patient)
def test_one(linkemu_link):
    now = linkemu_link.box.link()
    assert (now.name, now.seed, now.generation) == ("viasat2*", 7, linkemu_link.change.generation)
    assert now.profile.forward_pipe.rate_bps == 72_000_000
    held = linkemu_link.box.lease_holder()
    assert held.purpose.endswith("::test_one") and held.holder == "ci-7" and held.ttl == 25.0
    ping()

@pytest.mark.linkemu_link(**patient)
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
    assert inner.box.link().name == "transparent"
    assert inner.box.lease_holder() is None


def test_without_seed_follows_no_other_test(inner: Inner) -> None:
    result = inner.run("""
@pytest.mark.linkemu_link(profile="viasat2", seed=7, certificate=False)
def test_one(linkemu_link):
    assert linkemu_link.box.link().seed == 7
    linkemu_link.set_profile("viasat2", seed=8)

@pytest.mark.linkemu_link(profile="viasat2", certificate=False)
def test_two(linkemu_link):
    assert linkemu_link.box.link().seed == 1

@pytest.mark.linkemu_link(profile="viasat2", seed=0, certificate=False)
def test_three(linkemu_link):
    assert linkemu_link.box.link().seed == 0
""")
    result.assert_outcomes(passed=3)


def test_certificate_and_capture_are_beside_report(inner: Inner) -> None:
    result = inner.run(
        """
@pytest.mark.linkemu_link(profile="viasat2", seed=7, capture={"snaplen": 64}, **patient)
def test_one(linkemu_link):
    ping()
""",
        "--junitxml=junit.xml",
        "--html=report.html",
        "--linkemu-out=out",
    )
    result.assert_outcomes(passed=1)
    case = ET.parse(inner.path / "junit.xml").getroot().find(".//testcase")
    assert case is not None
    properties = {p.get("name"): p.get("value") for p in case.iter("property")}
    assert properties["linkemu_profile"] == "viasat2"
    assert properties["linkemu_seed"] == "7"
    assert properties["linkemu_certificate"] == "holds"
    certificate = Path(properties["linkemu_certificate_file"] or "")
    assert json.loads(certificate.read_text())["holds"] is True
    assert certificate.parent == inner.path / "out"
    with Path(properties["linkemu_capture"] or "").open("rb") as stream:
        assert len(list(pcapng.FileScanner(stream))) > 10
    html = (inner.path / "report.html").read_text()
    assert "certificate" in html
    assert ".pcapng" in html


def test_capture_of_passed_test_is_kept_on_request_only(inner: Inner) -> None:
    result = inner.run(
        """
@pytest.mark.linkemu_link(**patient)
def test_passes(linkemu_link): ping()

@pytest.mark.linkemu_link(**patient)
def test_fails(linkemu_link): ping(); assert False

@pytest.mark.linkemu_link(capture=False, **patient)
def test_none(linkemu_link): ping(); assert False
""",
        "--linkemu-capture=failed",
    )
    result.assert_outcomes(passed=1, failed=2)
    kept = sorted(path.name for path in (inner.path / "linkemu-report").glob("*.pcapng"))
    assert len(kept) == 1
    assert "test_fails" in kept[0]


def test_emulator_fault_is_error_and_no_failure(bed: Bed, inner: Inner) -> None:
    result = inner.run(
        f"""
pid = {bed.pid("dataplane")}

def stall():
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.3)
    os.kill(pid, signal.SIGCONT)

@pytest.mark.linkemu_link(limits={{"lateness_p99_ns": 10**10}})
def test_passes(linkemu_link):
    ping(); stall(); ping()

@pytest.mark.linkemu_link(limits={{"lateness_p99_ns": 10**10}})
def test_fails(linkemu_link):
    ping(); stall(); assert 2 + 2 == 5

@pytest.mark.linkemu_link(certificate=False)
def test_is_not_judged(linkemu_link):
    stall()

@pytest.mark.linkemu_link(limits={{"packets": 10**9}})
@pytest.mark.xfail
def test_is_expected_to_fail(linkemu_link):
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
            "the emulator may have been the bottleneck: stall *at most*",
            "*its body passed*",
            "*its body failed*",
            "*2 + 2 == 5*",
        ]
    )
    cases = {c.get("name"): c for c in ET.parse(inner.path / "junit.xml").iter("testcase")}
    for name in ("test_passes", "test_fails"):
        assert cases[name].find("failure") is None
        error = cases[name].find("error")
        assert error is not None
        assert "bottleneck" in (error.get("message") or "")


def test_restarted_dataplane_makes_test_error(bed: Bed, inner: Inner) -> None:
    result = inner.run(
        f"""
from pathlib import Path

PID = Path({str(bed.directory / "dataplane.pid")!r})

def crash(linkemu_link):
    before = PID.read_text()
    os.kill(int(before), signal.SIGKILL)
    end = time.monotonic() + 60
    while PID.read_text() == before or linkemu_link.box.stats().span.marked:
        assert time.monotonic() < end
        time.sleep(0.1)

@pytest.mark.linkemu_link(**patient)
def test_passes(linkemu_link):
    crash(linkemu_link); ping()

@pytest.mark.linkemu_link(certificate=False)
def test_fails(linkemu_link):
    crash(linkemu_link); assert False

@pytest.mark.linkemu_link(**patient)
def test_that_comes_next(linkemu_link):
    ping()
""",
    )
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(
        ["the dataplane was restarted *", "*its body passed*", "*its body failed*"]
    )


def test_scenario_stopped_by_others_makes_test_error(inner: Inner) -> None:
    result = inner.run(
        """
import linkemu
from linkemu import _calls

def stop(linkemu_link):
    with linkemu.Box(linkemu_link.box.address) as other:
        other._ask(_calls.stop_scenario(False), linkemu_link.lease.token)

@pytest.mark.linkemu_link(**patient)
@pytest.mark.linkemu_scenario("rain-fade")
def test_passes(linkemu_link, linkemu_scenario):
    ping(); stop(linkemu_link)

@pytest.mark.linkemu_link(**patient)
@pytest.mark.linkemu_scenario("rain-fade")
def test_waits(linkemu_link, linkemu_scenario):
    ping(); stop(linkemu_link); linkemu_scenario.wait(60)

@pytest.mark.linkemu_link(**patient)
def test_waits_for_its_own(linkemu_link):
    ping(); mine = linkemu_link.run_scenario("rain-fade"); stop(linkemu_link); mine.wait(60)

@pytest.mark.linkemu_link(**patient)
@pytest.mark.linkemu_scenario("rain-fade")
def test_stops_it(linkemu_link, linkemu_scenario):
    ping(); linkemu_scenario.stop()

@pytest.mark.linkemu_link(**patient)
@pytest.mark.linkemu_scenario("rain-fade")
def test_runs_another(linkemu_link, linkemu_scenario):
    ping(); linkemu_scenario.stop(); linkemu_link.run_scenario("rain-fade")

@pytest.mark.linkemu_link(**patient)
@pytest.mark.linkemu_scenario("rain-fade")
def test_waits_too_short(linkemu_link, linkemu_scenario):
    ping(); linkemu_scenario.wait(0.1)
""",
    )
    result.assert_outcomes(passed=2, failed=1, errors=3)
    result.stdout.fnmatch_lines(["scenario rain-fade was stopped: *"])


def test_unanswered_call_makes_test_error(inner: Inner) -> None:
    result = inner.run(
        """
import linkemu

@pytest.mark.linkemu_link(**patient)
def test_one(linkemu_link):
    ping()
    with linkemu.Box("/none/linkd.sock", patience=0) as gone:
        gone.version()
""",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["the box could not be reached: *"])


def test_invalid_limits_are_errors_and_end_no_session(inner: Inner) -> None:
    result = inner.run(
        """
@pytest.mark.linkemu_link(limits={"stal_ns": 5})
def test_name(linkemu_link): pass

@pytest.mark.linkemu_link(limits={"stall_ns": -1})
def test_value(linkemu_link): pass

@pytest.mark.linkemu_link(limits={"mark": True})
def test_no_limit(linkemu_link): pass

@pytest.mark.linkemu_link(limits={"link": "a"})
def test_link(linkemu_link): pass

@pytest.mark.linkemu_link(limits=5)
def test_number(linkemu_link): pass

def test_none(): pass
""",
    )
    result.assert_outcomes(passed=1, errors=5)
    result.stdout.fnmatch_lines(["*limits: *stal_ns*: they are packets, *"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_unwritable_directory_is_error_and_ends_no_session(inner: Inner) -> None:
    (inner.path / "file").touch()
    result = inner.run(
        """
@pytest.mark.linkemu_link(**patient)
def test_one(linkemu_link): ping()

def test_two(): pass
""",
        "--linkemu-out=file",
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*results of the box cannot be written: *"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_marker_of_one_instance_is_not_shared(inner: Inner) -> None:
    result = inner.run(
        """
fading = pytest.mark.linkemu_scenario("rain-fade")

@pytest.mark.linkemu_link(**patient)
@pytest.mark.parametrize("n", [pytest.param(0, marks=fading), 1])
def test_one(request, n):
    ping()
    assert ("linkemu_scenario" in request.node.fixturenames) == (n == 0)
""",
    )
    result.assert_outcomes(passed=2)


def test_each_test_has_separate_files(inner: Inner) -> None:
    result = inner.run(
        """
@pytest.mark.linkemu_link(**patient)
@pytest.mark.parametrize("sign", ["+", "=", "x" * 200, "y" + "x" * 200])
def test_one(linkemu_link, sign): ping()
""",
    )
    result.assert_outcomes(passed=4)
    assert len(list((inner.path / "linkemu-report").glob("*.certificate.json"))) == 4


def test_scenario_runs_during_test_and_is_stopped_after(inner: Inner) -> None:
    (inner.path / "endless.toml").write_text(
        'name = "endless"\ndescription = "x"\nsource = "x"\n'
        '[[step]]\nboth.rate = "72 Mbit/s"\n[[step]]\nafter = "1 h"\nboth.rate = "1 Mbit/s"\n'
    )
    result = inner.run(
        """
from pathlib import Path

@pytest.mark.linkemu_link(profile="viasat2", **patient)
@pytest.mark.linkemu_scenario(Path("endless.toml"), seed=3)
def test_endless(linkemu_scenario):
    assert linkemu_scenario.name == "endless"
    ping()

@pytest.mark.linkemu_link(profile="viasat2", **patient)
@pytest.mark.linkemu_scenario("rain-fade")
def test_by_name(linkemu_link, linkemu_scenario):
    assert linkemu_link.box.scenario_state().name == "rain-fade"
    ping()

@pytest.mark.linkemu_scenario("rain-fad")
def test_wrong_name(linkemu_scenario): pass

def test_no_marker(linkemu_scenario): pass
""",
    )
    result.assert_outcomes(passed=2, errors=2)
    result.stdout.fnmatch_lines(
        ["*no scenario: *rain-fade*", "*`linkemu_scenario` needs a marker*"]
    )
    assert inner.box.scenario_state().phase == v1.SCENARIO_PHASE_STOPPED
    assert inner.box.link().name == "transparent"


def test_refused_setting_is_error_with_message_of_server(inner: Inner) -> None:
    result = inner.run(
        """
@pytest.mark.linkemu_link(profile="viasat3")
def test_profile(linkemu_link): pass

@pytest.mark.linkemu_link(profil="viasat2")
def test_keyword(linkemu_link): pass

@pytest.mark.linkemu_link(both={"rate": 5})
def test_field(linkemu_link): pass
""",
    )
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(
        ['*nearest is "viasat2"*', "*it takes profile, seed*", "*a pipe has rate_bps*"]
    )
    assert "_InactiveRpcError" not in result.stdout.str()
    assert inner.box.lease_holder() is None
    assert inner.box.link().name == "transparent"
