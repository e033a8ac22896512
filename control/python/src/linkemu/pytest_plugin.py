# SPDX-License-Identifier: Apache-2.0
"""Tests over a link: fixtures and markers for pytest.

    @pytest.mark.linkemu_link(profile="viasat2", seed=7)
    def test_download(linkemu_link): ...

    @pytest.mark.parametrize("linkemu_link", ["lte", {"profile": "geo-600"}], indirect=True)
    def test_upload(linkemu_link): ...

    @pytest.mark.linkemu_link(profile="viasat2", capture=True)
    @pytest.mark.linkemu_scenario("rain-fade")
    def test_survives_rain(linkemu_link, linkemu_scenario):
        ...
        linkemu_scenario.wait()

Each test with the fixture `linkemu_link` has exclusive use of a link of the box: a lease, for which
other tests wait. The marker, or the parameter of the fixture, sets the link. At the end of the test
the link returns to the profile of `--linkemu-return-to`, at the latest when the lease expires.

The certificate of the run is attached to the report. If the emulator itself was the bottleneck,
the result is not valid: the test is an *error* in the phase of setup, even if its body passed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import hashlib
import importlib
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from linkemu import _calls
from linkemu._calls import is_path
from linkemu._marks import (
    LINK,
    OLD,
    SCENARIO,
    check_parametrization,
    fail,
    link_mark,
    marker,
    parameter_id,
)
from linkemu._quantity import option_seconds, option_size
from linkemu._sync import Box, Lease, Run
from linkemu._terms import reached_end
from linkemu._under_test import SEED
from linkemu._under_test import LinkMark as LinkMark
from linkemu._under_test import LinkUnderTest as LinkUnderTest
from linkemu._wire import Place, Tls
from linkemu.errors import InvalidRequest, LinkemuError, ScenarioStopped, Unavailable
from linkemu.model import Certificate, Change

T = TypeVar("T")

_TEXT_CHARS = 200
"""Limit of a lease's purpose."""
_OWN = "own"
"""The link of a session that adds one."""
_SAFE = re.compile(r"[^A-Za-z0-9._-]+")
_OPTIONS: tuple[tuple[str, str, str | None], ...] = (
    ("address", "linkd at HOST:PORT (with TLS) or unix:PATH; by default as linkctl finds it", None),
    ("socket", "linkd's unix socket", None),
    ("ca", "with HOST:PORT: the authority that signed linkd's certificate", None),
    ("cert", "with HOST:PORT: your certificate", None),
    ("key", "with HOST:PORT: the key of your certificate", None),
    ("link", "the box's link; `own`: one that this session adds, and removes at its end", None),
    (
        "prefix",
        "with link = own: addresses of its clients, such as 10.1.0.0/24,2001:db8::/48",
        None,
    ),
    (
        "memory",
        "with link = own: memory for its packets: bytes, or 1GB; 0: an eighth of the box's",
        "0",
    ),
    ("holder", "name of the holder in leases (user@host)", None),
    ("ttl", "time until the lease of a killed pytest expires: seconds, or 1min", "30"),
    ("wait", "time to wait for the lease: seconds, or 10min", "600"),
    ("return-to", "profile of the link after a test", "transparent"),
    ("out", "directory for certificates and captures", "linkemu-report"),
)
_CHOICES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("missing", "outcome of a test if no box can be reached", ("error", "skip")),
    (
        "capture",
        "captures to keep of tests without a `capture` argument",
        ("never", "failed", "always"),
    ),
)

_LINK = pytest.StashKey[LinkUnderTest]()
_RUN = pytest.StashKey[Run]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Each option exists in the ini file as well, with `_` for `-`."""
    group = parser.getgroup("linkemu", "a link emulator")
    for name, text, default in _OPTIONS:
        group.addoption(f"--linkemu-{name}", metavar=name.upper(), help=text)
        parser.addini(_ini(name), f"{text}: --linkemu-{name}", default=default or "")
    for name, text, choices in _CHOICES:
        group.addoption(f"--linkemu-{name}", choices=choices, help=f"{text} ({choices[0]})")
        parser.addini(_ini(name), f"{text}: --linkemu-{name}", default=choices[0])


def _ini(name: str) -> str:
    return f"linkemu_{name.replace('-', '_')}"


def _option(config: pytest.Config, name: str) -> str:
    given = config.getoption(_ini(name))
    value = str(given) if given is not None else str(config.getini(_ini(name)))
    for known, _, choices in _CHOICES:
        if known == name and value not in choices:
            raise pytest.UsageError(f"{_ini(name)} = {value}: write one of {', '.join(choices)}")
    return value


def _quantity_option(config: pytest.Config, name: str, parse: Callable[[str], T]) -> T:
    text = _option(config, name)
    try:
        return parse(text)
    except ValueError as error:
        raise pytest.UsageError(f"--linkemu-{name} {text}: {error}") from None


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers."""
    fields = ", ".join(f"{field.name}=" for field in dataclasses.fields(LinkMark))
    for line in (
        f"{LINK}({fields}): the link of a test, from a box",
        f"{SCENARIO}(name_or_path, seed=, toml=, …): a scenario that runs during a test",
        *(f"{old}(…): old name of {name}" for name, old in OLD.items()),
    ):
        config.addinivalue_line("markers", line)
    config.pluginmanager.register(_Summary(), "linkemu-summary")
    if not hasattr(config, "workerinput"):
        # Relative to the directory of pytest, as for its own files. xdist's workers receive it.
        out = Path(config.invocation_params.dir, _option(config, "out"))
        config.option.linkemu_out = str(out)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Adds the fixture of a marker."""
    names = getattr(item, "fixturenames", None)
    if names is None:
        return
    for name in (SCENARIO, LINK):
        if marker(item, name) is not None and name not in names:
            # All instances of a parametrized test share the list, but not their markers.
            names = item.fixturenames = [name, *names]  # type: ignore[attr-defined]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Checks the parameters of fixtures."""
    check_parametrization(metafunc.definition)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Readable ids for links."""
    return parameter_id(val) if argname == LINK else None


@pytest.fixture(scope="session")
def linkemu_box(request: pytest.FixtureRequest) -> Iterator[Box]:
    """The box: from the options, from labgrid's target if there is one, or as linkctl finds it."""
    config = request.config
    driver = _labgrid_driver(request)
    if driver is not None:
        yield driver.box
        return
    try:
        box = _box(config)
    except (ValueError, LinkemuError) as error:
        fail(f"no box: {error}")
    with box:
        try:
            box.version()
        except Unavailable as error:
            lack = (
                f"no box: {error}. Name one with --linkemu-socket or --linkemu-address, or in "
                "LINKEMU_SOCKET or LINKEMU_SERVER"
            )
            if _option(config, "missing") == "skip":
                pytest.skip(lack)
            fail(f"{lack}; --linkemu-missing=skip leaves such tests out")
        name = _option(config, "link")
        if name != _OWN:
            yield box
            return
        with _own_link(config, box) as own:
            yield own


@contextlib.contextmanager
def _own_link(config: pytest.Config, box: Box) -> Iterator[Box]:
    """A link that the session adds, with its traffic, and removes at its end."""
    prefixes = [p.strip() for p in _option(config, "prefix").split(",") if p.strip()]
    if not prefixes:
        fail("--linkemu-link=own needs --linkemu-prefix too: which addresses are its clients?")
    name = f"pytest-{secrets.token_hex(4)}"
    try:
        box.add_link(name, memory=_quantity_option(config, "memory", option_size))
    except LinkemuError as error:
        fail(f"no link: {error}")
    try:
        with box.on(name) as own:
            try:
                own._ask(_calls.assign(prefixes, (), (), ()))
            except LinkemuError as error:
                fail(f"no link: {error}")
            yield own
    finally:
        with contextlib.suppress(LinkemuError):
            box.remove_link(name)


def _box(config: pytest.Config) -> Box:
    address = _option(config, "address") or _option(config, "socket")
    link = _option(config, "link")
    link = "" if link == _OWN else link
    if not address:
        box = Box.from_env()
        return box.on(link) if link else box
    files = {name: _option(config, name) for name in ("ca", "cert", "key")}
    missing = [name for name, value in files.items() if not value]
    if len(missing) == len(files):
        return Box(address, tls=_tls_of_environment(address), link=link)
    if missing:
        raise ValueError(f"--linkemu-{missing[0]} is missing beside the others")
    return Box(address, tls=Tls(**files), link=link)


def _tls_of_environment(address: str) -> Tls | None:
    if address.startswith(("unix:", "/")):
        return None
    return Place.from_env({**os.environ, "LINKEMU_SERVER": address}).tls


def _labgrid_driver(request: pytest.FixtureRequest) -> Any:
    """The driver for a box in labgrid's target. None without labgrid, or without a box."""
    config = request.config
    named = config.getoption("lg_env", None) or os.environ.get("LG_ENV")
    if not config.pluginmanager.hasplugin("labgrid") or not named:
        return None
    importlib.import_module("linkemu.labgrid")  # Registers the driver.
    from labgrid.exceptions import NoDriverFoundError, NoResourceFoundError

    target = request.getfixturevalue("target")
    try:
        target.get_driver("LinkemuDriver", activate=False)
    except (NoDriverFoundError, NoResourceFoundError):
        return None
    if hasattr(config, "workerinput"):
        # Each worker would hold the lease of the only box until its end, and the others would wait
        # in vain.
        fail(
            "no box: labgrid's one box is leased for the whole session, which workers of "
            "pytest-xdist cannot share: run without -n, or as a job for each box"
        )
    return target.get_driver("LinkemuDriver")


@pytest.fixture
def linkemu_link(request: pytest.FixtureRequest, linkemu_box: Box) -> Iterator[LinkUnderTest]:
    """A link for the exclusive use of this test, set by its marker or its parameter."""
    item, config = request.node, request.config
    mark = link_mark(item, getattr(request, "param", None))
    driver = _labgrid_driver(request)
    home = _option(config, "return-to")
    lease = (
        driver.lease
        if driver is not None
        else linkemu_box.lease(
            _option(config, "holder") or f"{_user()}@{socket.gethostname()}",
            purpose=_purpose(item.nodeid),
            ttl=_quantity_option(config, "ttl", option_seconds),
            return_to=home,
            wait=_quantity_option(config, "wait", option_seconds),
        )
    )
    try:
        if driver is None:
            lease.acquire()
        change = _set_profile(lease, mark, home)
        if mark.forward or mark.return_ or mark.both:
            change = lease.patch(
                forward=mark.forward, return_=mark.return_, both=mark.both, lossy=mark.lossy
            )
        path = Path(_option(config, "out"), _file_name(item.nodeid))
        kept: Any = _option(config, "capture")
        made = LinkUnderTest(linkemu_box, lease, change, mark, path, kept)
        lease.mark()
        made._begin_capture()
    except (LinkemuError, TypeError, ValueError) as error:
        _give_back(lease, driver, home)
        fail(f"no link: {error}")
    except BaseException:
        _give_back(lease, driver, home)
        raise
    item.stash[_LINK] = made
    try:
        yield made
    finally:
        del item.stash[_LINK]
        try:
            made._end_capture(failed=True)
        finally:
            _give_back(lease, driver, home)


@pytest.fixture
def link(linkemu_link: LinkUnderTest) -> LinkUnderTest:
    """Old name of `linkemu_link`."""
    return linkemu_link


def _set_profile(lease: Lease, mark: LinkMark, home: str) -> Change:
    profile = mark.profile or home
    # linkd would keep the seed of the test before.
    seed = SEED if mark.seed is None else mark.seed
    try:
        return lease.set_profile(profile, seed=seed, lossy=mark.lossy)
    except OSError as error:
        raise ValueError(
            f"cannot read {profile}: {error.strerror}; a relative path starts at {Path.cwd()}, so "
            "write Path(__file__).parent / … for a file beside the test"
        ) from error
    except InvalidRequest as error:
        # linkd knows the text of a file, but not its name.
        if isinstance(profile, os.PathLike) or (isinstance(profile, str) and is_path(profile)):
            raise ValueError(f"{os.fspath(profile)}: {error}") from error
        raise


def _give_back(lease: Lease, driver: Any, home: str) -> None:
    """A lost lease has restored the link already, and the test has reported the loss."""
    with contextlib.suppress(LinkemuError):
        if driver is None:
            lease.release()
        else:
            # The lease lasts beyond the test, and a scenario would change the link of the next one.
            with contextlib.suppress(LinkemuError):
                lease._change(_calls.stop_scenario(False))
            lease.set_profile(home)


@pytest.fixture
def linkemu_scenario(request: pytest.FixtureRequest, linkemu_link: LinkUnderTest) -> Iterator[Run]:
    """The run of the marker's scenario. It begins with the test and is stopped after it."""
    mark = marker(request.node, SCENARIO)
    if mark is None:
        fail(f'the fixture `{SCENARIO}` needs a marker: @pytest.mark.{SCENARIO}("rain-fade")')
    try:
        run = linkemu_link.run_scenario(*mark.args, **mark.kwargs)
    except (LinkemuError, TypeError, ValueError, OSError) as error:
        fail(f"no scenario: {error}")
    request.node.stash[_RUN] = run
    yield run
    del request.node.stash[_RUN]
    # A scenario that has ended cannot be stopped.
    with contextlib.suppress(LinkemuError):
        run.stop()


@pytest.fixture
def scenario(linkemu_scenario: Run) -> Run:
    """Old name of `linkemu_scenario`."""
    return linkemu_scenario


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _purpose(nodeid: str) -> str:
    printable = "".join(c if c.isprintable() else "?" for c in nodeid)
    return printable[-_TEXT_CHARS:]


def _file_name(nodeid: str) -> str:
    """Unique for each test; its ending is replaced."""
    # Distinguishes tests with names that differ in other characters, or at their beginning.
    digest = hashlib.sha256(nodeid.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_SAFE.sub('-', nodeid).strip('-.')[-150:]}-{digest}.x"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Attaches the certificate, and makes a run that the emulator spoiled an error."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    made = item.stash.get(_LINK, None)
    if call.when == "call" and made is not None:
        _attach(item, report, made, call.excinfo.value if call.excinfo is not None else None)
    return report  # type: ignore[return-value]


def _attach(
    item: pytest.Item,
    report: pytest.TestReport,
    made: LinkUnderTest,
    raised: BaseException | None,
) -> None:
    results = {"nodeid": item.nodeid, "body": report.outcome}
    skipped = report.skipped and not hasattr(report, "wasxfail")
    reason = ""
    certificate = None
    try:
        link_now = made.box.link()
        results |= {"profile": link_now.name, "seed": str(link_now.seed)}
        results["generation"] = str(link_now.generation)
        # Raises if the lease was lost during the test.
        made.lease.renew()
        if made._mark.certificate and not skipped:
            certificate, path = made._judge()
            results["certificate"] = "holds" if certificate.holds else "fails"
            results["certificate_file"] = str(path)
            failed = "; ".join(criterion.text for criterion in certificate.failed)
            if not certificate.holds:
                summary = certificate.summary or "the emulator may have been the bottleneck"
                reason = f"{summary}: {failed}"
        if not skipped:
            reason = _broke(item, made, raised) or reason
        kept = made._end_capture(report.failed or bool(reason))
        if kept is not None:
            results["capture"] = str(kept)
    except LinkemuError as error:
        reason = f"the box did not last through the test: {error}"
    except (OSError, TypeError, ValueError) as error:
        # An exception here would end the whole session.
        reason = f"results of the box cannot be written: {error}"
    if reason:
        results["reason"] = reason
        _make_error(report, reason)
    _publish(item, report, results, certificate)


def _broke(item: pytest.Item, made: LinkUnderTest, raised: BaseException | None) -> str:
    """A fault during the run that is not visible at its end; empty: none."""
    if not made.box.stats().span.marked:
        # The fixture has set a mark, and only a restart of the dataplane removes it.
        return "the dataplane was restarted during the test"
    run = made.lease._run
    asked = run is not None and run._stopped
    if isinstance(raised, ScenarioStopped) and not asked:
        return str(raised)
    # Without a code, the test itself limited the wait.
    if isinstance(raised, Unavailable) and raised.code:
        return f"the box could not be reached: {raised}"
    if run is not None and run is item.stash.get(_RUN, None) and not asked:
        try:
            reached_end(run.number, run.name, run.state())
        except ScenarioStopped as error:
            return str(error)
    return ""


def _make_error(report: pytest.TestReport, reason: str) -> None:
    body = "" if report.longrepr is None else f"\n\nIts body {report.outcome}:\n{report.longrepr}"
    report.longrepr = (
        f"{reason}\nSo the result of this test is not valid; its body {report.outcome}.{body}"
    )
    report.outcome = "failed"
    # All reporters show a failed setup as an error.
    report.when = "setup"
    if hasattr(report, "wasxfail"):
        del report.wasxfail


def _publish(
    item: pytest.Item,
    report: pytest.TestReport,
    results: dict[str, str],
    certificate: Certificate | None,
) -> None:
    properties = [
        (f"linkemu_{name}", value)
        for name, value in results.items()
        if name not in ("nodeid", "body")
    ]
    # Properties of the item are in the report of its teardown, which JUnit's report uses.
    item.user_properties.extend(properties)
    report.user_properties.extend(properties)
    report.linkemu = results  # type: ignore[attr-defined]
    lines = [f"{name.removeprefix('linkemu_')}: {value}" for name, value in properties]
    if certificate is not None:
        lines += [f"  {criterion.text}" for criterion in certificate.criteria]
        lines += [f"  remark: {remark}" for remark in certificate.remarks]
        lines += [f"  remedy: {remedy}" for remedy in certificate.remedies]
    report.sections.append(("linkemu", "\n".join(lines)))
    if item.config.pluginmanager.hasplugin("html"):
        from pytest_html import extras

        own = [extras.text("\n".join(lines), name="linkemu")]
        if certificate is not None:
            own.append(extras.json(certificate.to_json(), name="certificate"))
        if "capture" in results:
            own.append(extras.url(Path(results["capture"]).as_uri(), name="capture"))
        report.extras = [*getattr(report, "extras", []), *own]  # type: ignore[attr-defined]


class _Summary:
    """All tests with a link. With xdist, it runs where the reports are collected."""

    def __init__(self) -> None:
        self._results: list[dict[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collects the lines of the summary."""
        results = getattr(report, "linkemu", None)
        if results is not None:
            self._results.append(results)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Writes a line for each test."""
        if not self._results:
            return
        terminalreporter.section("linkemu")
        for results in self._results:
            holds = results.get("certificate") == "holds"
            verdict = results.get("reason") or ("the certificate holds" if holds else "not judged")
            line = f"{results['nodeid']}: {results.get('profile', '?')}: {verdict}"
            files = [results[name] for name in ("certificate_file", "capture") if name in results]
            terminalreporter.write_line(f"{line} ({', '.join(files)})" if files else line)
