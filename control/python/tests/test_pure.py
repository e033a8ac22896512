# SPDX-License-Identifier: Apache-2.0
"""Tests without linkd: addresses, requests, deadlines, errors."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from types import UnionType
from typing import Any

import grpc
import pcapng
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2
from pcapng import blocks

import linkemu
from linkemu import _calls, _fields, aio, errors, v1
from linkemu._pcapng import Writer
from linkemu._terms import Terms, reached_end
from linkemu._wire import Attempts, Place


def test_missing_address_means_default_socket() -> None:
    assert Place.of(None, None).target == "unix:/run/linkemu/linkd.sock"
    assert Place.from_env({}).target == "unix:/run/linkemu/linkd.sock"


def test_server_precedes_socket_in_environment() -> None:
    files = {"LINKEMU_CA": "a", "LINKEMU_CERT": "b", "LINKEMU_KEY": "c"}
    env = {"LINKEMU_SOCKET": "/s", "LINKEMU_SERVER": "box:8443", **files}
    place = Place.from_env(env)
    assert place.target == "box:8443"
    assert place.tls == linkemu.Tls("a", "b", "c")


@pytest.mark.parametrize(
    "address", ["", "box", "box:", ":8443", "box:0", "box:65536", "box:http", "box:-1"]
)
def test_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="no address of linkd"):
        Place.of(address, linkemu.Tls("a", "b", "c"))


def test_server_without_certificates_is_refused() -> None:
    with pytest.raises(ValueError, match="needs `tls`"):
        linkemu.Box("box:8443")
    with pytest.raises(ValueError, match="LINKEMU_CERT, LINKEMU_KEY"):
        Place.from_env({"LINKEMU_SERVER": "box:8443", "LINKEMU_CA": "a"})


def test_missing_certificate_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    with pytest.raises(linkemu.LinkemuError, match=r"ca\.pem: No such file"):
        linkemu.Box("box:8443", tls=linkemu.Tls(missing, missing, missing))


def test_unix_socket_has_valid_http2_authority() -> None:
    assert ("grpc.default_authority", "localhost") in Place.of("/s", None).options()


def test_call_is_retried_until_patience_is_over() -> None:
    now = 0.0
    attempts = Attempts(1.0, True, lambda: now)
    gone = errors.Unavailable("gone", code="UNAVAILABLE")
    pauses = []
    with pytest.raises(errors.Unavailable):
        while True:
            pauses.append(attempts.pause(gone))
            now += pauses[-1]
    assert 1.0 <= sum(pauses) < 1.5
    assert pauses == sorted(pauses)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (errors.Unavailable("gone", code="UNAVAILABLE"), False),
        (errors.TimedOut("late", code="DEADLINE_EXCEEDED"), True),
        (errors.Refused("no", code="FAILED_PRECONDITION"), True),
    ],
)
def test_call_is_not_retried_if(error: linkemu.LinkemuError, again: bool) -> None:
    with pytest.raises(type(error)):
        Attempts(10.0, again).pause(error)


def test_patch_mask_names_changed_fields_only() -> None:
    pipe, mask = _fields.pipe_and_mask(
        {"rate_bps": 72_000_000, "delay": {"base_ns": 5, "body": None}, "outages": [], "fade": None}
    )
    assert mask == ["rate_bps", "delay.base_ns", "delay.body", "outages", "fade"]
    assert pipe == v1.Pipe(rate_bps=72_000_000, delay=v1.Delay(base_ns=5))


def test_message_patches_whole_part() -> None:
    _, mask = _fields.pipe_and_mask({"queue": v1.Queue(limit_bytes=9)})
    assert mask == ["queue"]


def test_quantities_with_units_are_sent_as_text() -> None:
    fields = {"rate": "72 Mbit/s", "delay": {"base": "280 ms", "body": None}, "outages": []}
    request = _calls.pipe_update("forward", fields)
    assert tomllib.loads(request.toml) == {
        "rate": "72 Mbit/s",
        "delay": {"base": "280 ms", "body": "none"},
        "outages": [],
    }
    assert not request.HasField("pipe")
    assert not request.HasField("mask")
    text = _calls.pipe_update("both", 'rate = "1 Mbit/s"')
    assert text.toml == 'rate = "1 Mbit/s"'


def test_fields_with_text_are_sent_as_keys_with_units() -> None:
    fields = {
        "rate_bps": "72Mbit/s",
        "overhead_bytes": -4,
        "packet_loss": 1e-07,
        "link_layer": v1.LINK_LAYER_ATM,
        "queue": {"limit_bytes": 36_000_000, "random_drop": None},
        "delay": {"base": "280ms", "slot_ns": 43_000_000},
        "outages": [{"interval": "1 h", "duration_ns": 5, "law": v1.DURATION_LAW_FIXED}],
        "rate_trace": {"step_ns": 1_000_000, "rates_bps": [0, 5000]},
        "drop_run": {"pass_packets": 9, "drop_packets": 1, "once": True},
    }
    request = _calls.pipe_update("forward", fields)
    assert tomllib.loads(request.toml) == {
        "rate": "72Mbit/s",
        "overhead": "-4 B",
        "packet_loss": "1e-5 %",
        "link_layer": "atm",
        "queue": {"limit": "36000000 B", "random_drop": "none"},
        "delay": {"base": "280ms", "slot": "43000000 ns"},
        "outages": [{"interval": "1 h", "duration": "5 ns", "law": "fixed"}],
        "rate_trace": {"step": "1000000 ns", "rates": ["down", "5000 bit/s"]},
        "drop_run": {"pass": 9, "drop": 1, "once": True},
    }


def test_field_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="'rate_bps' is given twice, as 'rate' too"):
        _calls.pipe_update("both", {"rate": "1 Mbit/s", "rate_bps": 5})


def test_message_beside_text_is_refused() -> None:
    fields = {"rate": "1 Mbit/s", "queue": v1.Queue(limit_bytes=9)}
    with pytest.raises(ValueError, match="queue: write a mapping, not a message of Queue"):
        _calls.pipe_update("both", fields)


def test_profile_is_name_path_text_or_message(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n')
    for given, toml in ((file, None), (str(file), None), (None, 'name = "mine"\n')):
        request = _calls.profile_update(given, toml, None).profile
        assert request.WhichOneof("profile") == "toml"
        assert request.toml == 'name = "mine"\n'
        put: Any = _calls.put_profile(given, toml, False).request
        assert put.toml == 'name = "mine"\n'
        run: Any = _calls.run_scenario(given, toml, None, None, False, False).request
        assert run.toml == 'name = "mine"\n'
    named = _calls.profile_update("viasat2", None, None).profile
    assert named.name == "viasat2"
    inline = _calls.profile_update(v1.Profile(name="mine"), None, None).profile
    assert inline.inline.name == "mine"
    with pytest.raises(ValueError, match="is a name: give the path"):
        _calls.put_profile("viasat2", None, False)
    with pytest.raises(ValueError, match="give a name or a file, or its text"):
        _calls.profile_update(v1.Profile(name="mine"), "x", None)
    with pytest.raises(FileNotFoundError):
        _calls.profile_update("./none.toml", None, None)


@pytest.mark.parametrize("fields", [{"rate": 1}, {"rate_bps": -1}])
def test_unknown_pipe_field_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"a pipe has rate_bps.*words of a profile"):
        _fields.pipe_and_mask(fields)


def test_empty_patch_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to change"):
        _calls.pipe_updates(None, {}, None)


def test_each_change_has_unique_request_id() -> None:
    calls: Any = [_calls.update(v1.LinkUpdate(), None, False) for _ in range(100)]
    names = {call.request.request_id for call in calls}
    assert len(names) == 100
    assert all(0 < len(name) <= 128 for name in names)


def test_omitted_arguments_are_not_sent() -> None:
    update = _calls.profile_update("viasat2", None, None)
    assert not update.profile.HasField("seed")
    assert not update.HasField("expected_generation")
    assert _calls.profile_update("viasat2", None, 0).profile.HasField("seed")


def test_mark_and_scenario_calls_are_not_retried() -> None:
    once: list[_calls.Call[Any]] = [
        _calls.stats(True),
        _calls.certificate(True, {}),
        _calls.pause_scenario(),
        _calls.resume_scenario(),
        _calls.stop_scenario(False),
    ]
    assert not any(call.again for call in once)


@pytest.mark.parametrize("seconds", [-1.0, 1e9, float("nan"), float("inf")])
def test_invalid_durations_are_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="give seconds"):
        _calls.acquire("me", "", seconds, None, False)


def test_scenario_is_name_file_or_text(tmp_path: Path) -> None:
    file = tmp_path / "fade.toml"
    file.write_text("of the file")
    assert _run(given="rain-fade").name == "rain-fade"
    assert _run(given=file).toml == "of the file"
    assert _run(toml="text").toml == "text"
    for both in ({}, {"given": "a", "toml": "b"}):
        with pytest.raises(ValueError, match="name or a file"):
            _run(**both)


def _run(given: Any = None, toml: str | None = None) -> Any:
    return _calls.run_scenario(given, toml, None, None, False, False).request


class _Status:
    def __init__(self, code: grpc.StatusCode, words: str, metadata: object = ()) -> None:
        self._answer = (code, words, metadata)

    def code(self) -> grpc.StatusCode:
        return self._answer[0]

    def details(self) -> str:
        return self._answer[1]

    def trailing_metadata(self) -> object:
        return self._answer[2]


def test_error_has_message_and_fields_of_server() -> None:
    bad = AnyMessage()
    field = error_details_pb2.BadRequest.FieldViolation(field="forward.rate", description="no")
    bad.Pack(error_details_pb2.BadRequest(field_violations=[field]))
    info = AnyMessage()
    info.Pack(error_details_pb2.ErrorInfo(reason="X", metadata={"needed_bytes": "7"}))
    status = status_pb2.Status(details=[bad, info]).SerializeToString()
    metadata = (("grpc-status-details-bin", status),)
    told = errors.from_status(
        _Status(grpc.StatusCode.INVALID_ARGUMENT, "refused", metadata), "unix:/s", 1.0
    )
    assert isinstance(told, linkemu.InvalidRequest)
    assert str(told) == "refused"
    assert told.violations == (linkemu.Violation("forward.rate", "no"),)
    assert told.numbers == {"needed_bytes": "7"}


@pytest.mark.parametrize("details", [b"\xff\xff", b"", "text", b"\x0a\xff"])
def test_damaged_details_leave_message(details: object) -> None:
    metadata = (("grpc-status-details-bin", details),)
    told = errors.from_status(_Status(grpc.StatusCode.NOT_FOUND, "gone", metadata), "a", None)
    assert isinstance(told, linkemu.NotFound)
    assert str(told) == "gone"


def test_every_status_maps_to_error_of_package() -> None:
    for code in grpc.StatusCode:
        told = errors.from_status(_Status(code, ""), "unix:/s", None)
        assert isinstance(told, linkemu.LinkemuError)
        assert told.message
        assert told.code == code.name


def _terms(now: list[float], wait: float = 0.0) -> Terms:
    return Terms("me", "", 9.0, None, wait, False, now=lambda: now[0])


HELD = linkemu.Holder("you", "", "", None, None, 9.0, "")


def test_lease_wait_ends_at_its_limit() -> None:
    now = [0.0]
    terms = _terms(now, wait=2.0)
    terms.request()
    refused = linkemu.Refused("taken", code="FAILED_PRECONDITION")
    with pytest.raises(linkemu.LeaseHeld, match="waited for 2 s") as told:
        while True:
            now[0] += terms.refused(refused, HELD)
    assert told.value.holder == "you"
    assert 2.0 <= now[0] < 2.5


def test_refusal_without_lease_is_raised_unchanged() -> None:
    terms = _terms([0.0], wait=100.0)
    terms.request()
    refused = linkemu.Refused("never", code="FAILED_PRECONDITION")
    assert terms.refused(refused, None) == 0.0
    assert terms.refused(refused, None) == 0.0
    with pytest.raises(linkemu.Refused, match="never"):
        terms.refused(refused, None)


def test_unrenewed_lease_is_lost_at_expiry() -> None:
    now = [0.0]
    terms = _terms(now)
    terms.request()
    terms.acquired(v1.AcquireLeaseResponse(token="t"))
    gone = errors.Unavailable("gone", code="UNAVAILABLE")
    while (pause := terms.not_renewed(gone)) is not None:
        assert pause > 0
        now[0] += pause
    assert now[0] == pytest.approx(9.0)
    with pytest.raises(linkemu.LeaseLost, match="ended before it was released"):
        terms.valid_token()


def test_missing_lease_is_lost_immediately() -> None:
    terms = _terms([0.0])
    terms.request()
    terms.acquired(v1.AcquireLeaseResponse(token="t"))
    assert terms.not_renewed(linkemu.NotFound("stolen", code="NOT_FOUND")) is None
    with pytest.raises(linkemu.LeaseLost, match="stolen"):
        terms.valid_token()


def test_run_ends_at_its_own_end_only() -> None:
    state = v1.ScenarioState
    assert not reached_end(3, "x", state(run=3, phase=v1.SCENARIO_PHASE_WAITING))
    assert reached_end(3, "x", state(run=3, phase=v1.SCENARIO_PHASE_FINISHED))
    stopped = state(run=3, phase=v1.SCENARIO_PHASE_STOPPED, message="by root")
    with pytest.raises(linkemu.ScenarioStopped, match="by root"):
        reached_end(3, "x", stopped)
    for other in (state(run=4, phase=v1.SCENARIO_PHASE_FINISHED), state()):
        with pytest.raises(linkemu.ScenarioStopped, match="no longer runs"):
            reached_end(3, "x", other)


@pytest.mark.parametrize("name", ["Box", "Lease", "Run", "Capture"])
def test_generated_client_has_the_names_and_arguments_of_aio(name: str) -> None:
    def public(kind: type) -> dict[str, Any]:
        members = {n: m for n, m in vars(kind).items() if not n.startswith("_")}
        return {n: _signature(m) for n, m in members.items()}

    assert public(getattr(linkemu, name)) == public(getattr(aio, name))
    assert _signature(getattr(linkemu, name).__init__) == _signature(getattr(aio, name).__init__)


def _signature(member: Any) -> object:
    if isinstance(member, property):
        return "property"
    function = getattr(member, "__func__", member)
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_public_names_are_documented() -> None:
    for name in linkemu.__all__:
        thing = getattr(linkemu, name)
        if isinstance(thing, (str, UnionType)) or thing is v1:
            continue
        assert thing.__doc__, name
        for member, value in vars(thing).items():
            if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                assert value.__doc__, f"{name}.{member}"


def test_capture_of_group_has_each_box_and_states_lost_one(tmp_path: Path) -> None:
    start = v1.CaptureStart(time_ns=10**9, snaplen=64, profile="geo", boxes=["b1", "b2"])
    start.utc.FromNanoseconds(1_790_000_000_000_000_000)

    def chunk(place: int, at_ns: int, bound_ns: int) -> v1.CaptureChunk:
        point = v1.CAPTURE_POINT_INGRESS
        packet = v1.CapturedPacket(
            time_ns=10**9 + at_ns,
            number=place + 1,
            direction=v1.DIRECTION_FORWARD,
            point=point,
            length=9,
            data=b"x" * 9,
        )
        missed = v1.CaptureMissed(direction=v1.DIRECTION_FORWARD, point=point, copies=place)
        return v1.CaptureChunk(
            clients=["10.0.0.2"],
            packets=[packet],
            missed=[missed],
            box_index=place,
            clock_error_ns=bound_ns,
            time_ns=10**9,
        )

    file = tmp_path / "run.pcapng"
    writer = Writer(file, "both")
    writer.take(v1.CaptureChunk(start=start))
    writer.take(chunk(1, 500, 80_000))
    writer.take(chunk(0, 300, 70_000))
    lost = v1.CaptureLost(time_ns=2 * 10**9, message="no answer")
    assert writer.lost == ""
    writer.take(v1.CaptureChunk(box_index=1, lost=lost))
    assert writer.lost == "packets of box b2 are missing from 1.000 s after the start on: no answer"
    writer.close()
    with file.open("rb") as stream:
        read = list(pcapng.FileScanner(stream))
    names = [b.options["if_name"] for b in read if isinstance(b, blocks.InterfaceDescription)]
    assert (len(names), names[0], names[-1]) == (16, "forward-in.b1", "return-mark.b2")
    packets = [b for b in read if isinstance(b, blocks.EnhancedPacket)]
    assert [names[packet.interface_id] for packet in packets] == ["forward-in.b1", "forward-in.b2"]
    ends = [b.options for b in read if isinstance(b, blocks.InterfaceStatistics)]
    assert (ends[0]["isb_ifdrop"], ends[8]["isb_ifdrop"]) == (0, 1)
    assert ends[0]["opt_comment"] == "times of box b1: within 70000 ns of the group's clock"
    assert ends[8]["opt_comment"].endswith(writer.lost)
