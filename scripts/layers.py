#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that dependencies point down: `control/` may use `dataplane/`, and both may use `proto/`.

Dependencies of tests and build scripts are exempt: tests of an upper layer use fakes of a lower one, and
`tests/` may use everything.
"""

import json
import subprocess
import sys
from pathlib import Path

# The lowest first. `p4src` has the compiled P4 programs.
LAYERS = {"proto": 1, "p4src": 1, "dataplane": 2, "control": 3, "tests": 4}


def main() -> int:
    """Prints each dependency that points up; fails if there is one."""
    command = ["cargo", "metadata", "--format-version=1", "--no-deps", "--offline"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    root = Path(metadata["workspace_root"])
    folders = {
        package["name"]: Path(package["manifest_path"]).parent.relative_to(root)
        for package in metadata["packages"]
    }
    status = 0
    for package in metadata["packages"]:
        folder = folders[package["name"]]
        layer = LAYERS.get(folder.parts[0])
        if layer is None:
            print(f"lint: {folder}: no layer: add its folder to LAYERS in scripts/layers.py")
            status = 1
            continue
        for dependency in package["dependencies"]:
            other = folders.get(dependency["name"])
            if other is None or dependency["kind"] is not None:
                continue
            if LAYERS.get(other.parts[0], 0) > layer:
                print(f"lint: {folder} depends on {other}, which is a layer above it")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
