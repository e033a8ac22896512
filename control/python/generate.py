# SPDX-License-Identifier: Apache-2.0
"""Generates `linkemu.v1` from the protos and `linkemu._sync` from `linkemu.aio`.

It is a hook of hatchling; `python generate.py` does the same in the source tree. Of the protos
only messages are generated: `linkemu._calls` has the few calls.
"""

from __future__ import annotations

import re
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # Run as a program.
    BuildHookInterface = object  # type: ignore[assignment, misc]

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "src" / "linkemu"
PACKAGE = SOURCES / "v1"
HEADER = "# SPDX-License-Identifier: Apache-2.0\n"

SYNC_DOC = '"""Part of the client for programs with threads, generated from `linkemu.aio`."""'
# In this order.
TO_SYNC = (
    (r'\A(.*?)""".*?"""', rf"\1{SYNC_DOC}"),
    (r"\blinkemu\.aio\._", "linkemu._sync._"),
    (r"\b(async|await) ", ""),
    (r"\b_tasks\b", "_threads"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\b__a(enter|exit)__", r"__\1__"),
)


class GenerateHook(BuildHookInterface):  # type: ignore[type-arg]
    """Generates before every build, editable ones included."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling."""
        generate()


def protos() -> Path:
    """Directory of the protos: in an unpacked source distribution, or in the repository."""
    for place in (ROOT / "proto", ROOT.parent.parent / "proto"):
        if (place / "linkemu" / "v1").is_dir():
            return place
    raise SystemExit(f"no proto/linkemu/v1 beside or above {ROOT}: build from a whole checkout")


def generate() -> None:
    """Replaces `src/linkemu/v1` and `src/linkemu/_sync`."""
    generate_messages()
    shutil.rmtree(SOURCES / "_sync", ignore_errors=True)
    (SOURCES / "_sync").mkdir()
    for file in (SOURCES / "aio").glob("*.py"):
        (SOURCES / "_sync" / file.name).write_text(to_sync(file.read_text()))


def to_sync(text: str) -> str:
    """Turns code for asyncio into code for threads."""
    for pattern, replacement in TO_SYNC:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    return text


def generate_messages() -> None:
    """Replaces the contents of `src/linkemu/v1`."""
    from grpc_tools import protoc

    place = protos()
    files = sorted((place / "linkemu" / "v1").glob("*.proto"))
    shutil.rmtree(PACKAGE, ignore_errors=True)
    PACKAGE.mkdir(parents=True)
    well_known = resources.files("grpc_tools") / "_proto"
    code = protoc.main(
        [
            "protoc",
            f"-I{place}",
            f"-I{well_known}",
            f"--python_out={SOURCES.parent}",
            f"--pyi_out={SOURCES.parent}",
        ]
        + [str(file) for file in files]
    )
    if code != 0:
        raise SystemExit(f"protoc ended with {code}: its message is above")
    for stub in PACKAGE.glob("*.pyi"):
        # protoc writes this for an extension, too, where it is not valid: outside a class.
        text = re.sub(r"^(\w+): _ClassVar\[int\]$", r"\1: int", stub.read_text(), flags=re.M)
        stub.write_text(text)
    modules = [f"{file.stem}_pb2" for file in files]
    lines = [f"from linkemu.v1.{module} import *\n" for module in modules]
    doc = '"""The messages of linkd\'s API, as its protos have them: generated."""\n\n'
    (PACKAGE / "__init__.py").write_text(HEADER + doc + "".join(lines))


if __name__ == "__main__":
    generate()
