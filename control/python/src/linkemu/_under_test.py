# SPDX-License-Identifier: Apache-2.0
"""The link of a test: what its marker requests, and what its fixture offers."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from linkemu._calls import Given
from linkemu._fields import Fields
from linkemu._sync import Box, Capture, Lease, Run
from linkemu.model import Certificate, Change

SEED = 1
"""Seed of a test that names none, as of a box that has just started."""


@dataclasses.dataclass(frozen=True)
class LinkMark:
    """Arguments of `@pytest.mark.linkemu_link`, and keys of a parameter of `linkemu_link`."""

    profile: Given | None = None
    """Profile of the test: a name, the path of a file, or a message; none: the profile to which the
    link returns.
    """
    seed: int | None = None
    """Seed of the link's random processes; the same seed gives the same losses. None: `SEED`."""
    forward: Fields | None = None
    return_: Fields | None = None
    both: Fields | None = None
    """Changes on top of the profile, as `Lease.patch` takes them."""
    lossy: bool = False
    """Accept a link that does not fit into the box."""
    certificate: bool = True
    """Whether the certificate is checked."""
    limits: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Limits for `Box.certificate`, instead of its own."""
    capture: bool | Mapping[str, Any] | None = None
    """Whether packets are captured, or options of `Box.capture`."""


@dataclasses.dataclass
class LinkUnderTest:
    """The fixture `linkemu_link`: a box for the exclusive use of this test."""

    box: Box
    """The box."""
    lease: Lease
    """The lease of the box."""
    change: Change
    """Result of the last change by the marker."""
    _mark: LinkMark = dataclasses.field(repr=False)
    _path: Path = dataclasses.field(repr=False)
    _kept: Literal["never", "failed", "always"] = dataclasses.field(repr=False)
    _capture: Capture | None = dataclasses.field(default=None, repr=False)

    def set_profile(
        self,
        profile: Given | None = None,
        *,
        toml: str | None = None,
        seed: int | None = None,
        expected_generation: int | None = None,
        lossy: bool = False,
    ) -> Change:
        """As `Lease.set_profile`."""
        return self.lease.set_profile(
            profile, toml=toml, seed=seed, expected_generation=expected_generation, lossy=lossy
        )

    def patch(
        self,
        *,
        forward: Fields | None = None,
        return_: Fields | None = None,
        both: Fields | None = None,
        expected_generation: int | None = None,
        lossy: bool = False,
    ) -> Change:
        """As `Lease.patch`."""
        return self.lease.patch(
            forward=forward,
            return_=return_,
            both=both,
            expected_generation=expected_generation,
            lossy=lossy,
        )

    def mark(self) -> None:
        """Restarts the run: the certificate covers what follows."""
        self.lease.mark()

    def run_scenario(
        self,
        scenario: str | os.PathLike[str] | None = None,
        *,
        toml: str | None = None,
        seed: int | None = None,
        expected_generation: int | None = None,
        tolerate_changes: bool = False,
        lossy: bool = False,
    ) -> Run:
        """As `Lease.run_scenario`."""
        return self.lease.run_scenario(
            scenario,
            toml=toml,
            seed=seed,
            expected_generation=expected_generation,
            tolerate_changes=tolerate_changes,
            lossy=lossy,
        )

    def _begin_capture(self) -> None:
        wanted = self._mark.capture
        if wanted is False or (wanted is None and self._kept == "never"):
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        options = dict(wanted) if isinstance(wanted, Mapping) else {}
        self._capture = self.box.capture(self._path.with_suffix(".pcapng"), **options).start()

    def _end_capture(self, failed: bool) -> Path | None:
        """Completes the file, and deletes it unless it was requested."""
        if self._capture is None:
            return None
        capture, self._capture = self._capture, None
        capture.stop()
        path = Path(capture.path)
        if self._mark.capture is None and self._kept == "failed" and not failed:
            path.unlink()
            return None
        return path

    def _judge(self) -> tuple[Certificate, Path]:
        certificate = self.box.certificate(**self._mark.limits)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        path = self._path.with_suffix(".certificate.json")
        path.write_text(certificate.to_json() + "\n", encoding="utf-8")
        return certificate, path
