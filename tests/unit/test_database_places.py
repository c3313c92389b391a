"""A database is named by its own module, the registry, and what provides it: nothing else repeats the list."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import virtgauge
from virtgauge.suites.storage.databases import DATABASES

SOURCE = Path(virtgauge.__file__).parent
TELLING = ("report", "reference")
"""What the papers' figures are about is named there."""
MOST = 4


@pytest.mark.slow
def test_a_database_takes_four_files_at_most() -> None:
    places: defaultdict[str, set[str]] = defaultdict(set)
    modules = {f"{name}.py" for name in DATABASES}
    servers = {name: type(product).__name__ for name, product in DATABASES.items() if product.schemes}
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] in TELLING:
            continue
        nodes = list(ast.walk(ast.parse(path.read_text())))
        words = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        words |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
        for name, title in servers.items():
            others = path.name in modules and path.name != f"{name}.py"  # it may speak another one's protocol
            if {name, title} & words and not others:
                places[name].add(str(path.relative_to(SOURCE)))
    assert places.keys() == servers.keys()
    assert {name: sorted(found) for name, found in places.items() if len(found) > MOST} == {}
