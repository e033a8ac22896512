# SPDX-License-Identifier: Apache-2.0
"""A link of a box in labgrid: the resource `LinkemuBox` and the driver `LinkemuDriver`.

labgrid's coordinator assigns the links of a pool; the lease enforces it. While the driver is
active, its link is leased under the name of the place's holder. The place of a killed job stays
acquired, because labgrid does not check if its clients are alive. But its lease expires, and
`linkemu.labgrid_sweep` then releases the place.

labgrid-exporter does not know this resource and passes it on unchanged. So it does not need this
package, and does not report whether the box is reachable.

Addresses are as in `linkemu.Box`. Times are seconds, or text such as "1 min".
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import attr
from labgrid import target_factory
from labgrid.driver.common import Driver
from labgrid.resource.common import Resource
from labgrid.resource.remote import RemotePlace

import linkemu
from linkemu._quantity import Duration, option_seconds

_TEXT = attr.validators.instance_of(str)


def _seconds(value: Duration) -> float:
    return option_seconds(str(value))


@target_factory.reg_resource
@attr.s(eq=False)
class LinkemuBox(Resource):
    """A box, one of its links, and the hosts at its ports.

    Of the certificate it has only file names, because labgrid shows resources to all users.
    Omitted names come from the environment (LINKEMU_CA, LINKEMU_CERT, LINKEMU_KEY).
    """

    #: `HOST:PORT`, or `unix:PATH`.
    address: str = attr.ib(validator=_TEXT)
    #: Name of the link. The box must have it.
    link: str = attr.ib(default="main", validator=_TEXT)
    #: The authority that signed the box's certificate; our certificate; its key.
    ca: str = attr.ib(default="", validator=_TEXT)
    cert: str = attr.ib(default="", validator=_TEXT)
    key: str = attr.ib(default="", validator=_TEXT)
    #: The command before a command for the host at this port, such as `ssh server1`.
    wan: str = attr.ib(default="", validator=_TEXT)
    client: str = attr.ib(default="", validator=_TEXT)
    #: Those hosts' addresses on the link.
    wan_ip: str = attr.ib(default="", validator=_TEXT)
    client_ip: str = attr.ib(default="", validator=_TEXT)

    @classmethod
    def unbound(cls, arguments: Mapping[str, Any]) -> LinkemuBox:
        """A resource without a target, as an exporter describes it."""
        make: Any = cls
        return cast(LinkemuBox, make(None, None, **arguments))

    def connect(self, **options: Duration) -> linkemu.Box:
        """A client of the box, for the link. The options are `timeout` and `patience`."""
        return linkemu.Box(self.address, tls=self.tls(), link=self.link, **options)

    def tls(self) -> linkemu.Tls | None:
        """The certificate, or none for a unix socket."""
        if self.address.startswith(("unix:", "/")):
            return None
        return linkemu.Tls(*(self._file(name) for name in ("ca", "cert", "key")))

    def _file(self, name: str) -> str:
        variable = f"LINKEMU_{name.upper()}"
        path = getattr(self, name) or os.environ.get(variable)
        if not path:
            raise ValueError(
                f"no {name} for {self.address}: set {variable} to a file in PEM, or `{name}` of "
                "the resource"
            )
        return str(path)

    def holder(self) -> tuple[str, str]:
        """Holder and name of the place in labgrid; without a place, the user on this machine."""
        place = self.get_managed_parent()
        if isinstance(place, RemotePlace):
            known = place.manager.session.get_place(place.name)
            return str(known.acquired), str(known.name)
        return f"{socket.gethostname()}/{getpass.getuser()}", ""


@target_factory.reg_driver
@attr.s(eq=False)
class LinkemuDriver(Driver):
    """Leases the link while it is active.

    `box` is the client and `lease` the lease; use them for everything else.
    """

    bindings: ClassVar = {"resource": LinkemuBox}

    #: The lease outlives a job that was killed by this.
    ttl: float = attr.ib(default=60.0, converter=_seconds)
    #: How long to wait for who holds the link without labgrid.
    wait: float = attr.ib(default=120.0, converter=_seconds)
    #: The profile that the link returns to.
    return_to: str = attr.ib(default="transparent", validator=_TEXT)

    box: linkemu.Box
    lease: linkemu.Lease

    def on_activate(self) -> None:
        """Leases the link."""
        holder, place = self.resource.holder()
        self.box = self.resource.connect()
        try:
            self.lease = self.box.lease(
                holder=holder,
                purpose=f"labgrid place {place}" if place else "labgrid",
                ttl=self.ttl,
                return_to=self.return_to,
                wait=self.wait,
            ).acquire()
        except BaseException:
            self.box.close()
            raise

    def on_deactivate(self) -> None:
        """Releases the link."""
        try:
            self.lease.release()
        finally:
            self.box.close()

    @Driver.check_active
    def set_profile(
        self, profile: str | os.PathLike[str] | linkemu.v1.Profile, *, seed: int | None = None
    ) -> None:
        """Replaces the whole link by a profile."""
        self.lease.set_profile(profile, seed=seed)

    @Driver.check_active
    def run_scenario(self, scenario: str | os.PathLike[str]) -> linkemu.Run:
        """Starts a scenario by its name, or by the path of its file."""
        return self.lease.run_scenario(scenario)

    @Driver.check_active
    def mark(self) -> None:
        """Begins a run for the certificate."""
        self.lease.mark()

    @Driver.check_active
    def certificate(self) -> linkemu.Certificate:
        """Certificate of the run since the last mark."""
        return self.box.certificate()
