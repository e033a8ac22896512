# SPDX-License-Identifier: Apache-2.0
"""Generates the messages of linkd's API from its protos, as `linkemu.v1`.

A hook of hatchling; `python build_stubs.py` does the same in the source tree alone. Only
messages are generated: the calls are few, and `linkemu._calls` names them.
"""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # Run as a program.
    BuildHookInterface = object  # type: ignore[assignment, misc]

ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "src" / "linkemu" / "v1"
HEADER = "# SPDX-License-Identifier: Apache-2.0\n"


class StubsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Generates before every build, editable ones included."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Is called by hatchling."""
        generate()


def protos() -> Path:
    """Where the protos are: in an unpacked source distribution, or in the repository."""
    for place in (ROOT / "proto", ROOT.parent.parent / "proto"):
        if (place / "linkemu" / "v1").is_dir():
            return place
    raise SystemExit(f"no proto/linkemu/v1 beside or above {ROOT}: build from a whole checkout")


def generate() -> None:
    """Replaces what is in `src/linkemu/v1`."""
    from grpc_tools import protoc

    place = protos()
    files = sorted((place / "linkemu" / "v1").glob("*.proto"))
    shutil.rmtree(PACKAGE, ignore_errors=True)
    PACKAGE.mkdir(parents=True)
    out = ROOT / "src"
    well_known = resources.files("grpc_tools") / "_proto"
    code = protoc.main(
        ["protoc", f"-I{place}", f"-I{well_known}", f"--python_out={out}", f"--pyi_out={out}"]
        + [str(file) for file in files]
    )
    if code != 0:
        raise SystemExit(f"protoc ended with {code}: its message is above")
    modules = [f"{file.stem}_pb2" for file in files]
    lines = [f"from linkemu.v1.{module} import *\n" for module in modules]
    doc = '"""The messages of linkd\'s API, as its protos have them: generated."""\n\n'
    (PACKAGE / "__init__.py").write_text(HEADER + doc + "".join(lines))


if __name__ == "__main__":
    generate()
