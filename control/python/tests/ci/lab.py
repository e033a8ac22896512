# SPDX-License-Identifier: Apache-2.0
"""A pool on loopback: boxes, labgrid's coordinator and exporter, and their jobs.

All of them are real processes that are ended by id, with ports chosen by the kernel. Waits are on
conditions, with deadlines that are only reached in failures.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
from labgrid.remote.common import ReservationState
from labgrid.remote.generated import labgrid_coordinator_pb2 as messages
from labgrid.remote.generated.labgrid_coordinator_pb2_grpc import CoordinatorStub

import linkemu

REPOSITORY = Path(__file__).parents[4]
CI = REPOSITORY / "ci"
#: Where labgrid's programs are: beside the Python that runs this.
PROGRAMS = Path(sys.executable).parent
#: Where linkemu's programs are.
BIN = Path(os.environ.get("LINKEMU_BIN", REPOSITORY / "target" / "debug"))
#: Longer than anything takes that works, on two busy cores.
DEADLINE = 120.0

T = TypeVar("T")

#: What the tests inherit, without what says where a box or a coordinator is.
INHERITED = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("LINKEMU_", "BED_", "LAB_", "LG_"))
}


def until(what: str, condition: Callable[[], T], within: float = DEADLINE) -> T:
    """Waits until a condition returns a true value, and returns it."""
    end = time.monotonic() + within
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"after {within:g} s not yet: {what}")
        time.sleep(0.05)
    return value


#: Of an operator.
CERTIFICATE = ("LINKEMU_CA", "LINKEMU_CERT", "LINKEMU_KEY")


def on_all_processors() -> None:
    """Undoes the restriction of processors by an outer bed: the beds here have workers, too."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))


class Process:
    """A running program with its output in a file."""

    def __init__(
        self, name: str, command: Sequence[str | Path], directory: Path, **environment: str
    ) -> None:
        self.name = name
        self.path = directory / f"{name}.log"
        with self.path.open("w") as log:
            self.running = subprocess.Popen(
                [str(word) for word in command],
                cwd=directory,
                env={**INHERITED, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A separate process group, so that its children can be killed with it.
                start_new_session=True,
                preexec_fn=on_all_processors,
            )

    def log(self) -> str:
        """Output so far."""
        return self.path.read_text()

    def says(self, word: str) -> str:
        """Waits for a line with a prefix. Returns its rest."""

        def found() -> list[str]:
            if self.running.poll() is not None:
                raise AssertionError(f"{self.name} ended ({self.running.returncode}): {self.log()}")
            return [line for line in self.log().splitlines() if line.startswith(word)]

        return until(f"{self.name} says {word!r}", found)[0].removeprefix(word).strip()

    def wait(self, within: float = DEADLINE) -> int:
        """Waits for its end. Returns its exit code."""
        return self.running.wait(within)

    def kill(self) -> None:
        """Kills it and its children, so that no program can clean up."""
        os.killpg(self.running.pid, signal.SIGKILL)
        self.running.wait()

    def end(self) -> None:
        """Ends it by SIGTERM, or by SIGKILL at the deadline."""
        if self.running.poll() is None:
            self.running.terminate()
            try:
                self.running.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


class Box:
    """A box of network namespaces, with linkd on a unix socket and on TCP."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        told = directory / f"{name}.json"
        tell = "import json, os, sys; print(json.dumps(dict(os.environ)))"
        self.process = Process(
            name,
            [
                BIN / "bed",
                "--tls",
                "--",
                "sh",
                "-c",
                '"$0" -c "$1" >"$2.new" && mv "$2.new" "$2" && exec sleep 86400',
                sys.executable,
                tell,
                told,
            ],
            directory,
            LINKEMU_BIN=str(BIN),
        )
        until(f"{name} is there", self._has(told))
        self.environment: dict[str, str] = json.loads(told.read_text())

    def _has(self, told: Path) -> Callable[[], bool]:
        def there() -> bool:
            code = self.process.running.poll()
            assert code is None, f"{self.name} ended ({code}): {self.process.log()}"
            return told.exists()

        return there

    def linkctl(self, *arguments: str) -> str:
        """Runs linkctl as an admin. Returns its output."""
        ran = subprocess.run(
            [BIN / "linkctl", "--socket", self.environment["LINKEMU_SOCKET"], *arguments],
            env=INHERITED,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def leases(self, *holders: str) -> list[tuple[str, str]]:
        """Events of the leases of these holders, from linkd."""
        events = map(json.loads, self.linkctl("-o", "json", "events").splitlines())
        return [
            (event["kind"].removeprefix("EVENT_KIND_"), event["subject"])
            for event in events
            if event["kind"].startswith("EVENT_KIND_LEASE_") and event["subject"] in holders
        ]

    def connect(self) -> linkemu.Box:
        """A client with the role of an admin."""
        return linkemu.Box(self.environment["LINKEMU_SOCKET"])

    def until_free(self) -> None:
        """Waits until the link main has no lease."""
        with self.connect() as box:
            until(f"the lease of {self.name} is over", lambda: box.lease_holder() is None)

    def profile(self, link: str = "main") -> str:
        """Name of a link's current profile."""
        return str(
            json.loads(self.linkctl("--link", link, "-o", "json", "show"))["profile"]["name"]
        )

    def holder(self, link: str) -> str:
        """Holder of a link's lease; empty without one."""
        with self.connect() as box, box.on(link) as on:
            lease = on.lease_holder()
        return lease.holder if lease else ""


class Pool:
    """labgrid's coordinator and exporter, with two boxes: one over TCP, one on its socket.

    The second one has the link `link`.
    """

    def __init__(self, directory: Path, one: Box, other: Box, *, link: str = "main") -> None:
        directory.mkdir()
        self.directory = directory
        self.processes: list[Process] = []
        #: Of every job.
        self.environment = {
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "VENV": str(PROGRAMS.parent),
            "LG_HOSTNAME": "ci",
            **{name: one.environment[name] for name in CERTIFICATE},
        }
        coordinator = self.start(
            "coordinator", [PROGRAMS / "labgrid-coordinator", "--listen", "127.0.0.1:0"]
        )
        self.environment["LG_COORDINATOR"] = coordinator.says("listening on")
        # Queries without a session: labgrid-client takes 0.5 s for each.
        self.channel = grpc.insecure_channel(self.environment["LG_COORDINATOR"])
        self.coordinator: Any = CoordinatorStub(self.channel)
        exported = {}
        for name, box in (("SAT_A", one), ("SAT_B", other)):
            for side in ("WAN", "CLIENT"):
                namespace = box.environment[f"BED_{side}_NS"]
                exported[f"{name}_{side}"] = f"ip netns exec {namespace}"
                exported[f"{name}_{side}_IP"] = box.environment[f"BED_{side}_IP"]
        exported["SAT_A"] = one.environment["LINKEMU_SERVER"]
        exported["SAT_B"] = f"unix:{other.environment['LINKEMU_SOCKET']}"
        exported["SAT_B_LINK"] = link
        self.export(exported)

    def start(self, name: str, command: Sequence[str | Path], **environment: str) -> Process:
        """Starts a program that ends with the pool."""
        process = Process(name, command, self.directory, **{**self.environment, **environment})
        self.processes.append(process)
        return process

    def export(self, exported: Mapping[str, str]) -> None:
        """Starts the exporter with the shipped file."""
        exporter = self.start(
            "exporter",
            [PROGRAMS / "labgrid-exporter", "--name", "boxes", CI / "labgrid" / "exporter.yaml"],
            **exported,
        )
        exporter.says("Exporter ready")
        until("the boxes are known", lambda: "boxes/sat-b/LinkemuBox" in self.client("resources"))
        self.lasting = len(self.processes)

    def client(self, *arguments: str) -> str:
        """Runs labgrid-client. Returns its output."""
        ran = subprocess.run(
            [str(PROGRAMS / "labgrid-client"), *arguments],
            env={**INHERITED, **self.environment, "LG_USERNAME": "admin"},
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def add_place(self, name: str, **tags: str) -> None:
        """Adds a place with the box of an exporter's group."""
        self.coordinator.AddPlace(messages.AddPlaceRequest(name=name))
        self.coordinator.SetPlaceTags(messages.SetPlaceTagsRequest(placename=name, tags=tags))
        match = f"boxes/{name}/LinkemuBox"
        self.coordinator.AddPlaceMatch(messages.AddPlaceMatchRequest(placename=name, pattern=match))

    def places(self) -> dict[str, str]:
        """Holder of each place; empty if it is free."""
        answer = self.coordinator.GetPlaces(messages.GetPlacesRequest())
        return {place.name: place.acquired for place in answer.places}

    def holder(self, place: str) -> str:
        """Holder of a place; empty if it is free."""
        return self.places()[place]

    def reservations(self) -> list[Any]:
        """All reservations of the coordinator."""
        return list(
            self.coordinator.GetReservations(messages.GetReservationsRequest()).reservations
        )

    def waiting(self) -> int:
        """Number of reservations that wait for a place."""
        return sum(r.state == ReservationState.waiting.value for r in self.reservations())

    def clear(self) -> None:
        """Ends the jobs, and removes places and reservations."""
        for process in reversed(self.processes[self.lasting :]):
            process.end()
        del self.processes[self.lasting :]
        for reservation in self.reservations():
            self.coordinator.CancelReservation(
                messages.CancelReservationRequest(token=reservation.token)
            )
        # The session of a job that was killed may end after its place was read.
        until("there are no places", self.delete_places)

    def delete_places(self) -> bool:
        """Releases and deletes all places. Whether none is left."""
        for name, holder in self.places().items():
            if holder:
                self.coordinator.ReleasePlace(messages.ReleasePlaceRequest(placename=name))
            self.coordinator.DeletePlace(messages.DeletePlaceRequest(name=name))
        return not self.places()

    def kill_all_but(self, process: Process) -> None:
        """Kills all other processes."""
        for other in self.processes:
            if other is not process:
                other.kill()

    def end(self) -> None:
        """Ends all processes, the youngest first."""
        self.channel.close()
        for process in reversed(self.processes):
            process.end()
