# SPDX-License-Identifier: Apache-2.0
"""A linkd with wrong, late, or missing answers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

import linkemu
from linkemu import aio, v1

Handler = Callable[[bytes, grpc.ServicerContext], bytes]


class Server:
    """Answers calls by method name with given bytes."""

    def __init__(self, directory: Path) -> None:
        self.answers: dict[str, Handler] = {}
        self.asked: list[tuple[str, bytes]] = []
        self.silent = threading.Event()
        self.address = f"unix:{directory / 'linkd.sock'}"
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((self._Handlers(self),))
        self._server.add_insecure_port(self.address)
        self._server.start()

    def stop(self) -> None:
        self.silent.set()
        self._server.stop(None).wait()

    class _Handlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]
        def __init__(self, server: Server) -> None:
            self._server = server

        def service(self, details: Any) -> Any:
            name = details.method.rpartition("/")[2]
            server = self._server

            def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
                server.asked.append((name, request))
                return server.answers[name](request, context)

            def say_nothing(_: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
                context.add_callback(server.silent.set)
                server.silent.wait(30)
                yield from ()

            if name == "Capture":
                return grpc.unary_stream_rpc_method_handler(say_nothing)
            return grpc.unary_unary_rpc_method_handler(answer) if name in server.answers else None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.stop()


def _refuse(code: grpc.StatusCode, words: str) -> Handler:
    def answer(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(code, words)
        raise AssertionError

    return answer


def test_missing_linkd_is_reported_with_remedy(tmp_path: Path) -> None:
    with (
        linkemu.Box(f"unix:{tmp_path}/none.sock", patience=0.2) as box,
        pytest.raises(linkemu.Unavailable, match=r"none\.sock.*linkctl doctor"),
    ):
        box.version()


def test_malformed_answer_is_error(server: Server) -> None:
    server.answers["GetLink"] = lambda _, __: b"\xff\xff\xff\xff"
    with linkemu.Box(server.address) as box, pytest.raises(linkemu.LinkemuError):
        box.link()


def test_unanswered_call_ends_at_deadline(server: Server) -> None:
    let_go = threading.Event()
    server.answers["GetVersion"] = lambda _, __: (let_go.wait(30) and b"") or b""
    try:
        with (
            linkemu.Box(server.address, timeout=0.3) as box,
            pytest.raises(linkemu.TimedOut, match=r"within 0\.3 s"),
        ):
            box.version()
    finally:
        let_go.set()


def test_unknown_method_is_reported_as_unsupported(server: Server) -> None:
    with linkemu.Box(server.address) as box:
        with pytest.raises(linkemu.Unsupported, match="update it"):
            box.certificate()
        with pytest.raises(linkemu.Unsupported):
            list(box.events())


def test_retried_change_keeps_its_request_id(server: Server) -> None:
    def answer(_: bytes, context: grpc.ServicerContext) -> bytes:
        if sum(name == "UpdateLinks" for name, _ in server.asked) < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
        return v1.UpdateLinksResponse(links=[v1.Link()], repeated=True).SerializeToString()

    server.answers["UpdateLinks"] = answer
    _serve_leases(server)
    with linkemu.Box(server.address) as box, box.lease("me") as lease:
        assert lease.set_profile("viasat2").repeated
    asked = [request for name, request in server.asked if name == "UpdateLinks"]
    sent = [v1.UpdateLinksRequest.FromString(request) for request in asked]
    assert len(sent) == 3
    assert len({request.request_id for request in sent}) == 1


def test_mark_is_not_retried(server: Server) -> None:
    server.answers["GetStats"] = _refuse(grpc.StatusCode.UNAVAILABLE, "gone")
    with linkemu.Box(server.address) as box, pytest.raises(linkemu.Unavailable, match="gone"):
        box.stats(mark=True)
    assert len(server.asked) == 1


def test_put_profile_is_not_retried(server: Server) -> None:
    server.answers["PutProfile"] = _refuse(grpc.StatusCode.UNAVAILABLE, "gone")
    with linkemu.Box(server.address) as box, pytest.raises(linkemu.Unavailable, match="gone"):
        box.put_profile(v1.Profile(name="mine"))
    assert len(server.asked) == 1


def test_release_that_first_attempt_completed_succeeds(server: Server) -> None:
    def answer(_: bytes, context: grpc.ServicerContext) -> bytes:
        first = sum(name == "ReleaseLease" for name, _ in server.asked) % 2 == 1
        # The answer to the first attempt is lost.
        context.abort(
            grpc.StatusCode.UNAVAILABLE if first else grpc.StatusCode.NOT_FOUND, "no answer"
        )
        raise AssertionError

    _serve_leases(server)
    server.answers["ReleaseLease"] = answer
    with linkemu.Box(server.address) as box, box.lease("me"):
        pass

    async def run() -> None:
        async with aio.Box(server.address) as box, box.lease("me"):
            pass

    asyncio.run(run())
    assert sum(name == "ReleaseLease" for name, _ in server.asked) == 4


def test_capture_that_does_not_begin_ends_at_deadline(server: Server, tmp_path: Path) -> None:
    with (
        linkemu.Box(server.address, timeout=0.3) as box,
        pytest.raises(linkemu.TimedOut, match=r"did not begin the capture within 0\.3 s"),
    ):
        box.capture(tmp_path / "a.pcapng").start()
    # The call was cancelled.
    assert server.silent.wait(10)

    async def run() -> None:
        async with aio.Box(server.address, timeout=0.3) as box:
            with pytest.raises(linkemu.TimedOut, match=r"within 0\.3 s"):
                await box.capture(tmp_path / "b.pcapng").start()

    server.silent.clear()
    asyncio.run(run())
    assert server.silent.wait(10)


def _serve_leases(server: Server, ttl: float = 60.0) -> None:
    lease = v1.Lease(holder="me", ttl_ns=round(ttl * 1e9))
    answer = v1.AcquireLeaseResponse(lease=lease, token="t")
    server.answers["AcquireLease"] = lambda _, __: answer.SerializeToString()
    server.answers["RenewLease"] = lambda _, __: lease.SerializeToString()
    server.answers["ReleaseLease"] = lambda _, __: b""


def test_stolen_lease_is_reported_at_next_change_and_at_end(server: Server) -> None:
    _serve_leases(server)
    gone = _refuse(grpc.StatusCode.NOT_FOUND, "no lease with this token runs")
    server.answers["RenewLease"] = gone
    server.answers["ReleaseLease"] = gone
    refuse = _refuse(grpc.StatusCode.FAILED_PRECONDITION, "leased to you")
    server.answers["UpdateLinks"] = refuse
    with linkemu.Box(server.address) as box:
        lease = box.lease("me").acquire()
        with pytest.raises(linkemu.LeaseLost, match="no lease with this token"):
            lease.set_profile("viasat2")
        with pytest.raises(linkemu.LeaseLost):
            lease.release()


def test_lease_is_renewed_and_released_at_exception(
    server: Server,
) -> None:
    _serve_leases(server, ttl=3.0)

    class Wrong(Exception):
        pass

    def renewals() -> int:
        return sum(name == "RenewLease" for name, _ in server.asked)

    with linkemu.Box(server.address) as box:
        with pytest.raises(Wrong), box.lease("me", ttl=3.0):
            deadline = time.monotonic() + 60
            while renewals() < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            raise Wrong
        assert renewals() >= 2
        assert server.asked[-1][0] == "ReleaseLease"


def test_aio_client_raises_same_errors(server: Server) -> None:
    _serve_leases(server, ttl=3.0)
    server.answers["GetLink"] = _refuse(grpc.StatusCode.PERMISSION_DENIED, "look only")

    async def run() -> None:
        async with aio.Box(server.address) as box:
            with pytest.raises(linkemu.PermissionDenied, match="look only"):
                await box.link()
            async with box.lease("me", ttl=3.0):
                while sum(name == "RenewLease" for name, _ in server.asked) < 2:
                    await asyncio.sleep(0.01)
        assert server.asked[-1][0] == "ReleaseLease"

    asyncio.run(asyncio.wait_for(run(), 60))
