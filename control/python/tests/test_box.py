# SPDX-License-Identifier: Apache-2.0
"""The client against the real programs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pcapng
import pytest
from pcapng import blocks

import linkemu
from conftest import Bed, until, until_renewed
from linkemu import aio, v1
from void import Void

FADE = """
name = "fade"
description = "Two rates."
source = "A test."
[[step]]
both.rate = "72 Mbit/s"
[[step]]
at = "300 ms"
both.rate = "12 Mbit/s"
"""
ENDLESS = FADE + '[[step]]\nafter = "1 h"\nboth.rate = "1 Mbit/s"\n'


def test_lease_sets_patches_and_restores_link(box: linkemu.Box) -> None:
    with box.lease("me", purpose="a test", return_to="transparent") as lease:
        held = box.lease_holder()
        assert held is not None
        assert (held.holder, held.purpose, held.return_to) == ("me", "a test", "transparent")
        change = lease.set_profile("viasat2", seed=7)
        link = box.link()
        assert (link.name, link.seed, link.generation) == ("viasat2", 7, change.generation)
        assert link.effective is not None
        patched = lease.patch(
            forward={"rate_bps": 72_000_000}, return_={"delay": {"base_ns": 300_000_000}}
        )
        assert patched.generation == change.generation + 1
        profile = box.link().profile
        assert profile.forward_pipe.rate_bps == 72_000_000
        assert profile.forward_pipe.delay.base_ns == 275_000_000
        assert profile.return_pipe.delay.base_ns == 300_000_000
        lease.patch(forward={"rate": "12 Mbit/s", "delay": {"base": "20 ms"}})
        pipe = box.link().profile.forward_pipe
        assert (pipe.rate_bps, pipe.delay.base_ns) == (12_000_000, 20_000_000)
        lease.patch(forward={"rate_bps": "9Mbit/s", "packet_loss": 0.07, "delay": {"slot_ns": 3}})
        pipe = box.link().profile.forward_pipe
        assert (pipe.rate_bps, pipe.packet_loss) == (9_000_000, 0.07)
        assert (pipe.delay.slot_ns, pipe.delay.base_ns) == (3, 20_000_000)
        with pytest.raises(linkemu.InvalidRequest, match='the nearest is "rate"'):
            lease.patch(forward={"rat": "12 Mbit/s"})
        with pytest.raises(linkemu.InvalidRequest, match=r'"Mbit" .*the nearest is "Mbit/s"'):
            lease.patch(forward={"rate_bps": "12 Mbit"})
    assert box.link().name == "transparent"
    assert box.lease_holder() is None


def test_refusal_has_message_of_server(box: linkemu.Box) -> None:
    with box.lease("me", return_to="transparent") as lease:
        with pytest.raises(linkemu.NotFound, match='nearest is "viasat2"'):
            lease.set_profile("viasat3")
        lease.set_profile("viasat2")
        with pytest.raises(linkemu.InvalidRequest, match="threshold") as told:
            lease.patch(forward={"queue": {"limit_bytes": 0}})
        assert [v.path for v in told.value.violations] == ["forward.queue.limit"]
        with pytest.raises(linkemu.Conflict, match="somebody else changed"):
            lease.patch(both={"duplicate": 0.1}, expected_generation=1 << 40)
        with pytest.raises(linkemu.Refused, match="too little memory") as told_numbers:
            lease.patch(both={"rate_bps": 10_000_000_000, "delay": {"base_ns": 9_000_000_000}})
        assert told_numbers.value.numbers
    with pytest.raises(linkemu.InvalidRequest), box.lease(""):
        pass
    with pytest.raises(linkemu.InvalidRequest), box.lease("me", ttl=0.1):
        pass


def test_profiles_are_stored_and_removed(box: linkemu.Box) -> None:
    mine = v1.Profile()
    mine.CopyFrom(box.profile("viasat2"))
    mine.name = "mine"
    mine.forward_pipe.rate_bps = 50_000_000
    assert box.validate_profile(mine) == ()
    assert not box.put_profile(mine)
    try:
        assert "mine" in {profile.name for profile in box.profiles()}
        mine.forward_pipe.rate_bps = 60_000_000
        with pytest.raises(linkemu.AlreadyExists):
            box.put_profile(mine)
        assert box.put_profile(mine, replace=True)
        with box.lease("me", return_to="transparent") as lease:
            assert lease.set_profile("mine").profile.forward_pipe.rate_bps == 60_000_000
    finally:
        box.delete_profile("mine")
    with pytest.raises(linkemu.NotFound):
        box.profile("mine")


def test_scenario_wait_returns_at_its_end(box: linkemu.Box) -> None:
    with box.lease("me", return_to="transparent") as lease:
        lease.set_profile("viasat2")
        run = lease.run_scenario(toml=FADE)
        with pytest.raises(linkemu.TimedOut, match="fade did not end"):
            run.wait(0.05)
        assert run.wait("0.5 min").phase == v1.SCENARIO_PHASE_FINISHED
        assert box.link().profile.forward_pipe.rate_bps == 12_000_000
        steps = [e for e in box.events(after=0, once=True) if e.scenario_run == run.number]
        assert [e.kind for e in steps][-1] == v1.EVENT_KIND_SCENARIO_FINISHED


def test_stopped_scenario_raises_scenario_stopped(box: linkemu.Box) -> None:
    with box.lease("me", return_to="transparent") as lease:
        lease.set_profile("viasat2")
        run = lease.run_scenario(toml=ENDLESS)
        assert run.pause().phase == v1.SCENARIO_PHASE_PAUSED
        assert run.resume().phase == v1.SCENARIO_PHASE_RUNNING
        assert run.stop(restore=True).phase == v1.SCENARIO_PHASE_STOPPED
        with pytest.raises(linkemu.ScenarioStopped, match="stopped"):
            run.wait(30)
        assert box.link().profile.forward_pipe.rate_bps == 144_000_000


def test_rules_name_clients(bed: Bed, box: linkemu.Box) -> None:
    rules = v1.Clients(clients=[v1.Client(name="alice", prefixes=["10.77.0.10/32"])])
    with box.lease("me", return_to="transparent") as lease:
        lease.set_profile("transparent")
        lease.set_clients(rules)
        try:
            assert box.clients() == rules
            bed.ping()
            alice = next(c for c in box.client_states() if c.client == "alice")
            assert alice.return_account.received.packets >= 3
        finally:
            lease.set_clients(v1.Clients())


def test_links_have_leases_and_statistics_of_their_own(bed: Bed, box: linkemu.Box) -> None:
    added = box.add_link("lab1", memory=32 << 20, clients=4)
    try:
        assert (added.name, added.memory_bytes, added.clients) == ("links/lab1", 32 << 20, 4)
        with box.on("lab1") as lab, lab.lease("job-b") as lease:
            lease.assign(prefixes=["10.77.0.10/32"])
            with box.lease("job-a", return_to="transparent") as other:
                other.set_profile("transparent")
                lease.set_profile("transparent", seed=9)
                with pytest.raises(linkemu.Refused, match="leased to job-a"):
                    lease.assign(prefixes=["10.77.0.0/24"])
                bed.ping()
                assert lab.link().seed == 9
                assert "10.77.0.10" in {c.client for c in lab.stats().clients}
                before = next(c for c in lab.client_states() if c.client == "10.77.0.10")
                assert before.return_account.received.packets >= 3
                holder = box.lease_holder()
                assert holder is not None
                assert holder.holder == "job-a"
            with pytest.raises(linkemu.LinkemuError, match="job-b"):
                box.remove_link("lab1")
            assert {link.holder for link in box.links()} == {"", "job-b"}
            lease.assign()
            assert not box.link_rules().rules
    finally:
        box.remove_link("lab1")
    with box.on("lab1") as lab, pytest.raises(linkemu.NotFound, match="lab1"):
        lab.link()


def test_capture_is_pcapng_file(bed: Bed, box: linkemu.Box, tmp_path: Path) -> None:
    file = tmp_path / "run.pcapng"
    with box.lease("me", return_to="transparent") as lease:
        lease.set_profile("transparent")
        with box.capture(file, client="10.77.0.10", snaplen=64) as capture:
            bed.ping(5)
            with pytest.raises(linkemu.Busy), box.capture(tmp_path / "second.pcapng"):
                pass
            until(
                "all copies", lambda: capture.counts.missed or capture.counts.received >= 10 or None
            )
    if capture.counts.missed:
        raise Void(f"linkd was too late for {capture.counts.missed} copies of 20")
    # 5 requests and 5 replies, received and sent.
    assert capture.counts.received == 10
    with file.open("rb") as stream:
        read = list(pcapng.FileScanner(stream))
    section = read[0]
    assert section.options["opt_comment"].startswith("linkemu: profile transparent")
    names = [b.options["if_name"] for b in read if isinstance(b, blocks.InterfaceDescription)]
    assert len(names) == 8
    packets = [b for b in read if isinstance(b, blocks.EnhancedPacket)]
    assert len(packets) == capture.counts.received + capture.counts.sent
    times = [packet.timestamp for packet in packets]
    assert times == sorted(times)
    assert abs(times[0] - time.time()) < 600
    said = subprocess.run(
        ["tcpdump", "-n", "-r", str(file), "icmp"], capture_output=True, text=True, check=True
    )
    assert said.stdout.count("ICMP echo re") == len(packets)


def test_watch_stats_yields_snapshots(box: linkemu.Box) -> None:
    seen = []
    for stats in box.watch_stats(0.05):
        seen.append(stats.time_ns)
        if len(seen) == 3:
            break
    assert seen == sorted(set(seen))
    assert box.room().frame_bytes > 0
    assert box.version()


def test_certificate_covers_run_since_mark(bed: Bed, box: linkemu.Box) -> None:
    patient = {"lateness_p99_ns": 10**10, "stall_ns": 10**10}
    with box.lease("me", return_to="transparent") as lease:
        lease.set_profile("transparent")
        lease.mark()
        bed.ping()
        held = box.certificate(**patient)  # type: ignore[arg-type]
        assert held.holds, held
        assert held.failed == ()
        assert '"holds":true' in held.to_json().replace(" ", "")
        failed = box.certificate(stall_ns=0, packets=10**9)
    assert not failed.holds
    assert {criterion.name for criterion in failed.failed} >= {"packets"}
    assert all(criterion.text for criterion in failed.criteria)


def test_waiting_client_acquires_released_lease(bed: Bed, box: linkemu.Box) -> None:
    served = []

    def serve(name: str) -> None:
        with linkemu.Box(bed.socket) as own, own.lease(name, wait=60.0):
            served.append(name)
            holder = own.lease_holder()
            assert holder is not None
            served.append(holder.holder)

    with box.lease("me"):
        threads = [threading.Thread(target=serve, args=(name,)) for name in ("you", "they")]
        for thread in threads:
            thread.start()
        with pytest.raises(linkemu.LeaseHeld, match="`wait`") as told, box.lease("we"):
            pass
        assert told.value.holder == "me"
        assert told.value.expires is not None
        assert served == []
    for thread in threads:
        thread.join(60)
    assert sorted(served) == ["they", "they", "you", "you"]
    assert served[0] == served[1]


def test_lease_and_change_survive_killed_linkd(bed: Bed, box: linkemu.Box) -> None:
    with box.lease("me", ttl=9.0, return_to="transparent") as lease:
        before = lease.set_profile("viasat2", seed=3)
        bed.restart_linkd()
        # Sent while linkd starts; the client retries.
        after = lease.patch(forward={"rate_bps": 10_000_000})
        assert after.generation > before.generation
        # With the new linkd.
        until_renewed(box)
        lease.patch(forward={"rate_bps": 20_000_000})
    assert box.link().name == "transparent"


def test_stalled_linkd_raises_timeout(bed: Bed) -> None:
    pid = bed.pid("linkd")
    os.kill(pid, signal.SIGSTOP)
    try:
        with (
            linkemu.Box(bed.socket, timeout="500 ms") as box,
            pytest.raises(linkemu.TimedOut, match="did not answer within"),
        ):
            box.link()
    finally:
        os.kill(pid, signal.SIGCONT)


def test_admin_steals_lease_and_holder_gets_lease_lost(bed: Bed, box: linkemu.Box) -> None:
    lost = box.lease("me").acquire()
    with linkemu.Box(bed.socket) as other, other.lease("you", steal=True):
        with pytest.raises(linkemu.LeaseLost):
            lost.set_profile("viasat2")
        with pytest.raises(linkemu.LeaseLost):
            lost.release()


def test_role_decides_over_tcp(bed: Bed) -> None:
    server = os.environ.get("LINKEMU_SERVER")
    if server is None:
        pytest.skip("the bed was made without --tls")
    with linkemu.Box.from_env() as box:
        assert box.address == server
        with box.lease("me", return_to="transparent") as lease:
            lease.set_profile("viasat2")
    env = os.environ
    viewer = linkemu.Tls(env["LINKEMU_CA"], env["BED_VIEWER_CERT"], env["BED_VIEWER_KEY"])
    with linkemu.Box(server, tls=viewer) as box:
        assert box.link().name == "transparent"
        with pytest.raises(linkemu.PermissionDenied), box.lease("me"):
            pass
    # The server certificate of linkd is not valid for a client.
    wrong = linkemu.Tls(env["LINKEMU_CERT"], env["LINKEMU_CERT"], env["LINKEMU_KEY"])
    with (
        linkemu.Box(server, tls=wrong, patience=0.1) as box,
        pytest.raises(linkemu.Unavailable, match="certificates valid"),
    ):
        box.version()


def test_aio_client_behaves_like_sync_client(bed: Bed, tmp_path: Path) -> None:
    def renewed() -> None:
        with linkemu.Box(bed.socket) as other:
            until_renewed(other)

    async def run() -> None:
        async with aio.Box(bed.socket) as box:
            async with box.lease("me", ttl=3.0, return_to="transparent") as lease:
                await lease.set_profile("viasat2", seed=7)
                await lease.patch(both={"delay": {"base_ns": 1_000_000}})
                await lease.mark()
                async with box.capture(tmp_path / "a.pcapng") as capture:
                    ping = await asyncio.create_subprocess_exec(
                        *bed.ping_command(), stdout=subprocess.DEVNULL
                    )
                    assert await ping.wait() == 0
                    while capture.counts.received < 6:
                        await asyncio.sleep(0.02)
                with pytest.raises(linkemu.LeaseHeld):
                    async with box.lease("you", wait=0.3):
                        pass
                # In the background, while a thread waits.
                await asyncio.to_thread(renewed)
                scenario = await lease.run_scenario(toml=FADE)
                assert (await scenario.wait(30)).phase == v1.SCENARIO_PHASE_FINISHED
                async for stats in box.watch_stats(0.05):
                    assert stats.generation
                    break
                assert await box.client_states()
                assert [event async for event in box.events(after=0, once=True)]
            assert (await box.link()).name == "transparent"
            assert await box.lease_holder() is None

    asyncio.run(asyncio.wait_for(run(), 60))
    with (tmp_path / "a.pcapng").open("rb") as stream:
        assert len(list(pcapng.FileScanner(stream))) > 10


def test_links_change_together_or_not_at_all(box: linkemu.Box) -> None:
    box.add_link("lab1", memory=32 << 20, clients=4)
    box.add_link("lab2", memory=32 << 20, clients=4)
    try:
        with box.on("lab1").lease("me") as lease:
            changed = box.update_links(profiles={"lab1": "lte", "lab2": "lte"}, leases=[lease])
            assert set(changed) == {"lab1", "lab2"}
            assert {change.generation for change in changed.values()} == {1}
            assert box.on("lab2").link().name == "lte"
            patches: dict[str, dict[str, object]] = {"lab1": {"rate": "5 Mbit/s"}}
            patches["lab2"] = {"rate_bps": 5_000_000}
            with pytest.raises(linkemu.Refused, match="link `lab1`"):
                box.update_links(patches=patches)
            with pytest.raises(linkemu.Conflict, match="link `lab2`"):
                box.update_links(patches=patches, leases=[lease], expected_generations={"lab2": 7})
            assert box.on("lab1").link().generation == 1
            box.update_links(patches=patches, direction="forward", leases=[lease])
            for link in ("lab1", "lab2"):
                profile = box.on(link).link().profile
                assert profile.forward_pipe.rate_bps == 5_000_000 != profile.return_pipe.rate_bps
        with pytest.raises(ValueError, match="no change of lab3"):
            box.update_links(profiles={"lab1": "lte"}, expected_generations={"lab3": 1})
    finally:
        box.remove_link("lab1")
        box.remove_link("lab2")
