# SPDX-License-Identifier: Apache-2.0
"""Names and parameters of the pytest plugin, with the real programs where a link is set."""

from __future__ import annotations

from pathlib import Path

import pytest

import linkemu
from inner import ALONE, Inner
from linkemu import v1
from linkemu._marks import parameter_id

MINE = """
name = "mine"
[forward]
rate = "7 Mbit/s"
queue.limit = "1 MB"
delay.base = "3 ms"
[return]
rate = "6 Mbit/s"
queue.limit = "1 MB"
delay.base = "3 ms"
"""


@pytest.fixture
def no_box(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A pytest in which each use of the plugin's link is an error."""
    monkeypatch.delenv("LINKEMU_SERVER", raising=False)
    monkeypatch.setenv("LINKEMU_SOCKET", "/none/linkd.sock")
    monkeypatch.setitem(linkemu.Box.__init__.__kwdefaults__ or {}, "patience", 0.1)
    monkeypatch.setitem(linkemu.Box.from_env.__kwdefaults__ or {}, "patience", 0.1)
    return pytester


def test_old_names_give_the_same_objects_without_a_warning(inner: Inner) -> None:
    result = inner.run(
        """
@pytest.mark.link(profile="viasat2", seed=7, **patient)
@pytest.mark.scenario("rain-fade")
def test_old(link, scenario, linkemu_link, linkemu_scenario):
    assert link is linkemu_link and scenario is linkemu_scenario
    assert (link.change.name, link.change.seed) == ("viasat2", 7)
    ping()

@pytest.mark.link(profile="viasat2", **patient)
def test_marker_alone(request):
    assert request.getfixturevalue("link").box.link().name == "viasat2"
    ping()

@pytest.mark.link(profile="viasat2")
class TestClass:
    @pytest.mark.linkemu_link(profile="geo-600", **patient)
    def test_closest_marker(self, link):
        assert link.change.name == "geo-600"
        ping()
""",
        "-Werror",
        "--strict-markers",
    )
    result.assert_outcomes(passed=3)


def test_fixtures_and_markers_of_a_project_with_old_names_are_its_own(
    no_box: pytest.Pytester,
) -> None:
    no_box.makeconftest("""
import pytest

@pytest.fixture
def link(): return "https://project.example"

@pytest.fixture(params=["a", "b"])
def scenario(request): return request.param
""")
    no_box.makepyfile("""
import pytest

@pytest.mark.link("https://tracker.example/7", severity=3)
@pytest.mark.scenario("a", 1, 2, unknown=4)
def test_markers(request):
    assert "linkemu_link" not in request.node.fixturenames

@pytest.mark.link("https://tracker.example/7")
def test_fixtures(link, scenario):
    assert link.startswith("https") and scenario in "ab"

@pytest.mark.parametrize("link", ["a", "b"])
def test_parameters(link):
    assert link in "ab"

class TestClass:
    @pytest.fixture
    def scenario(self): return 5

    def test_of_class(self, scenario): assert scenario == 5
""")
    no_box.runpytest_inprocess("-Werror", *ALONE).assert_outcomes(passed=6)


def test_plain_parameter_with_old_name_is_of_the_project(no_box: pytest.Pytester) -> None:
    no_box.makepyfile("""
import pytest

@pytest.mark.link("https://tracker.example/7")
@pytest.mark.parametrize("link", ["a", "b"])
def test_one(link):
    assert link in "ab"
""")
    no_box.runpytest_inprocess("-Werror", *ALONE).assert_outcomes(passed=2)


@pytest.mark.parametrize("name", ["link", "linkemu_link"])
def test_marker_with_old_name_sets_link_below_fixture_of_a_project(name: str, inner: Inner) -> None:
    inner.pytester.makeconftest(f"""
import pytest

@pytest.fixture
def link({name}):
    {name}.patch(both={{"rate": "5 Mbit/s"}})
    return {name}
""")
    result = inner.run("""
@pytest.mark.link(profile="viasat2", **patient)
def test_one(link, linkemu_link):
    assert link is linkemu_link
    assert link.box.link().name == "viasat2*"
    assert link.box.link().profile.forward_pipe.rate_bps == 5_000_000
    ping()
""")
    result.assert_outcomes(passed=1)


def test_parameter_sets_the_link_for_its_test(inner: Inner) -> None:
    (inner.path / "mine.toml").write_text(MINE)
    result = inner.run(
        """
import tomllib
from pathlib import Path
from linkemu import v1

PIPE = v1.Pipe(rate_bps=9_000_000, queue=v1.Queue(limit_bytes=10**6), delay=v1.Delay())
@pytest.mark.linkemu_link(seed=7, **patient)
@pytest.mark.parametrize(("linkemu_link", "wanted"), [
    ("viasat2", ("viasat2", 144_000_000, 7)),
    ("./mine.toml", ("mine", 7_000_000, 7)),
    (Path("mine.toml").absolute(), ("mine", 7_000_000, 7)),
    (v1.Profile(name="own", forward_pipe=PIPE, return_pipe=PIPE), ("own", 9_000_000, 7)),
    ({"profile": "viasat2", "both": {"rate": "5Mbit/s"}, "seed": 8}, ("viasat2*", 5_000_000, 8)),
    ({"profile": "./mine.toml", "forward": {"rate_bps": 4_000_000}}, ("mine*", 4_000_000, 7)),
    (None, ("transparent", 0, 7)),
    pytest.param("viasat2", ("viasat2", 144_000_000, 7), id="named"),
], indirect=["linkemu_link"])
def test_one(linkemu_link, wanted):
    now = linkemu_link.box.link()
    assert (now.name, now.profile.forward_pipe.rate_bps, now.seed) == wanted
    ping()

@pytest.mark.linkemu_link(profile="viasat2", both={"rate": "1 Mbit/s"}, **patient)
@pytest.mark.parametrize("n", [1])
@pytest.mark.parametrize(
    "linkemu_link", [{"both": {"rate": "2 Mbit/s"}}], indirect=["linkemu_link"]
)
def test_parameter_replaces_argument_of_marker(linkemu_link, n):
    pipe = linkemu_link.box.link().profile.forward_pipe
    assert (pipe.rate_bps, pipe.delay.base_ns) == (2_000_000, 275_000_000)
    ping()
""",
        "-v",
    )
    result.assert_outcomes(passed=9)
    for name in (
        "viasat2-wanted0",
        "mine-wanted1",
        "mine-wanted2",
        "own-wanted3",
        "viasat2-both.rate=5Mbit/s-seed=8-wanted4",
        "mine-forward.rate_bps=4000000-wanted5",
        "None-wanted6",
        "named",
    ):
        assert f"::test_one[{name}] PASSED" in result.stdout.str()
    assert inner.box.link().name == "transparent"
    assert inner.box.lease_holder() is None


def test_wrong_parameter_is_error_with_value_and_remedy(inner: Inner) -> None:
    (inner.path / "broken.toml").write_text(MINE.replace("7 Mbit/s", "7 Mbit"))
    result = inner.run(
        """
@pytest.mark.linkemu_link(**patient)
@pytest.mark.parametrize("linkemu_link", [
    "viasat3", "./none.toml", "broken.toml", 5, "", {"profile": 6}, {"rate": "5 Mbit/s"},
    {"profil": "viasat2"}, {"both": {"rate": "5 MB"}}, {"limits": {"stall_ns": "5 m"}},
], indirect=True)
def test_one(linkemu_link): pass
"""
    )
    result.assert_outcomes(errors=10)
    for line in (
        '*"viasat3"*nearest is "viasat2"*',
        "*cannot read ./none.toml: No such file*a relative path starts at *",
        '*no link: broken.toml: *7 Mbit*nearest is "Mbit/s"*',
        "linkemu_link: 5 is no link: write the name of a profile, the path *",
        "profile='' is no profile: write the name *",
        "profile=6 is no profile: write the name *",
        "linkemu_link: 'rate' in {'rate': '5 Mbit/s'} is no argument *`both`, `forward` *",
        "linkemu_link: 'profil' in *the nearest is 'profile'*",
        "*no link: *5 MB*",
        '*limits: stall_ns: "m" in "5 m" *write min (minutes) or ms*',
    ):
        result.stdout.fnmatch_lines([line])
    assert inner.box.lease_holder() is None
    assert inner.box.link().name == "transparent"


@pytest.mark.parametrize(
    ("decorator", "message"),
    [
        ('("linkemu_link", ["viasat2"])', '*"linkemu_link", …) needs indirect=True'),
        ('("n, linkemu_link", [(1, "lte")], ["n"])', '*"linkemu_link", …) needs indirect=True'),
        (
            '("link", ["viasat2"], indirect=True)',
            "'link' takes no parameters: parametrize 'linkemu",
        ),
        ('("linkemu_scenario", ["x"], indirect=True)', "linkemu_scenario takes no parameters*"),
    ],
)
def test_parameter_without_effect_is_refused_at_collection(
    decorator: str, message: str, no_box: pytest.Pytester
) -> None:
    no_box.makepyfile(f"""
import pytest

@pytest.fixture
def n(): return 1

@pytest.mark.parametrize{decorator}
def test_one(request, link, linkemu_link, linkemu_scenario, n): pass
""")
    result = no_box.runpytest_inprocess(*ALONE)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{message}*"])


def test_fixture_of_a_project_with_new_name_takes_any_parameter(no_box: pytest.Pytester) -> None:
    no_box.makepyfile("""
import pytest

@pytest.fixture
def linkemu_link(): pass

@pytest.mark.parametrize("linkemu_link", ["a"])
def test_one(linkemu_link): assert linkemu_link == "a"
""")
    no_box.runpytest_inprocess("-Werror", *ALONE).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("viasat2", None),
        (None, None),
        (5, None),
        ({}, None),
        (Path("a/b.toml"), "b"),
        ("b.toml", "b"),
        (v1.Profile(), None),
        (v1.Profile(name="own"), "own"),
        ({"seed": 7, "profile": "lte"}, "lte-seed=7"),
        (
            {"both": {"delay": {"base": "3 ms", "body": None}}},
            "both.delay.base=3ms-both.delay.body=None",
        ),
        ({"both": {"outages": [{"interval": "1 s"}]}}, "both.outages"),
        ({"both": {"x" * 99: 1}}, "both." + "x" * 75 + "..."),
    ],
)
def test_ids_are_readable(value: object, wanted: str | None) -> None:
    assert parameter_id(value) == wanted
