# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio. `linkemu` has the same names for programs with threads.

Calls are awaited, streams are asynchronous iterators, and a box, a lease and a capture support
`async with`.

`generate.py` generates `linkemu._sync` from this package: it removes `async` and `await`, and
replaces `_tasks` by `_threads`.
"""

from linkemu.aio._box import Box
from linkemu.aio._capture import Capture
from linkemu.aio._lease import Lease, Run

__all__ = ["Box", "Capture", "Lease", "Run"]
