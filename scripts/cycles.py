#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds cycles between the top-level modules of each crate, and fails for unknown ones.

An edge is a path `crate::MODULE` outside of comments and `#[cfg(test)]`. `KNOWN` must match
exactly: when a cycle is removed or becomes smaller, update it.
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

KNOWN = {
}


def code(path: Path) -> str:
    """Code of a file, without comments and tests."""
    text = path.read_text(encoding="utf-8").split("#[cfg(test)]\nmod tests", maxsplit=1)[0]
    return re.sub(r"//[^\n]*", "", text)


def edges(source: Path) -> dict[str, set[str]]:
    """Modules of a crate, each with the modules that it names."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path in source.rglob("*.rs"):
        module, *_ = path.relative_to(source).with_suffix("").parts
        if module not in ("main", "lib", "bin") and "tests" not in path.with_suffix("").parts:
            modules[module].append(code(path))
    root = code(source / "lib.rs") if (source / "lib.rs").exists() else ""
    exported = {
        name: match[1]
        for match in re.finditer(r"pub(?:\(crate\))? use (\w+)::(\{[^}]*\}|\w+)", root)
        for name in re.findall(r"\w+", match[2])
    }
    named: dict[str, set[str]] = {}
    for module, texts in modules.items():
        names = set()
        for match in re.finditer(r"crate::(?:\{([^;]*?)\};|(\w+))", "".join(texts)):
            inside = re.sub(r"\{[^{}]*\}", "", match[1] or "")
            names |= {match[2]} if match[2] else set(re.findall(r"(?:^|,)\s*(\w+)", inside))
        targets = {name if name in modules else exported.get(name, "") for name in names}
        named[module] = (targets & modules.keys()) - {module}
    return named


def cycles(named: dict[str, set[str]]) -> list[str]:
    """Groups of modules that all reach each other."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for other in named[todo.pop()] - seen:
                seen.add(other)
                todo.append(other)
        return seen

    reached = {module: reach(module) for module in named}
    groups = {
        " ".join(sorted({m for m in reached[module] if module in reached[m]} | {module}))
        for module in named
        if module in reached[module]
    }
    return sorted(groups)


def main() -> int:
    """Compares the cycles of all crates with `KNOWN`."""
    listed = subprocess.run(
        ["git", "ls-files", "*Cargo.toml"], check=True, capture_output=True, text=True
    )
    status = 0
    for manifest in map(Path, listed.stdout.split()):
        crate = manifest.parent
        found = "; ".join(cycles(edges(crate / "src"))) if (crate / "src").is_dir() else ""
        known = KNOWN.get(str(crate), "")
        if found != known:
            print(f"lint: {crate}: module cycles: {found or 'none'}")
            print(f"lint: known in scripts/cycles.py: {known or 'none'}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
