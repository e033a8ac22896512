# SPDX-License-Identifier: Apache-2.0
"""Leases, sets and judges a link emulator.

    import linkemu

    with linkemu.Box() as box, box.lease("me", return_to="transparent") as lease:
        lease.set_profile("viasat2", seed=7)
        lease.mark()
        ...  # the experiment
        assert box.certificate().holds

`linkemu.aio` has the same for asyncio, `linkemu.pytest_plugin` fixtures for tests, and
`linkemu.v1` the messages of linkd's API.
"""

from linkemu import v1
from linkemu._pcapng import Counts
from linkemu._quantity import Duration, Size
from linkemu._sync import Box, Capture, Lease, Run
from linkemu._wire import Tls
from linkemu.errors import (
    AlreadyExists,
    Busy,
    Conflict,
    DataLost,
    Failed,
    InvalidRequest,
    LeaseHeld,
    LeaseLost,
    LinkemuError,
    NotFound,
    PermissionDenied,
    Refused,
    ScenarioStopped,
    TimedOut,
    Unavailable,
    Unsupported,
    Violation,
)
from linkemu.model import Certificate, Change, Criterion, Holder, Link

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "Box",
    "Busy",
    "Capture",
    "Certificate",
    "Change",
    "Conflict",
    "Counts",
    "Criterion",
    "DataLost",
    "Duration",
    "Failed",
    "Holder",
    "InvalidRequest",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "Link",
    "LinkemuError",
    "NotFound",
    "PermissionDenied",
    "Refused",
    "Run",
    "ScenarioStopped",
    "Size",
    "TimedOut",
    "Tls",
    "Unavailable",
    "Unsupported",
    "Violation",
    "__version__",
    "v1",
]
