# SPDX-License-Identifier: Apache-2.0
"""Code blocks of the documentation in Python and YAML. The crate `pages` covers all others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "control/python/README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[tuple[str, str]]:
    """Page and text of each block."""
    fence = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [(page.name, text) for page in PAGES for text in fence.findall(page.read_text("utf-8"))]


@pytest.mark.parametrize(("page", "text"), blocks("python"))
def test_python_block_compiles(page: str, text: str) -> None:
    compile(text, page, "exec")


@pytest.mark.parametrize(("page", "text"), blocks("yaml"))
def test_yaml_block_is_yaml(page: str, text: str) -> None:
    assert all(isinstance(part, dict | list) for part in yaml.safe_load_all(text)), page
