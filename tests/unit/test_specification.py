"""SPECIFICATION.md names tests that exist, each promise once, and counts them rightly."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "SPECIFICATION.md"
_NAMED = re.compile(r"`([\w./-]+\.(?:py|rs))::(\w+)`")
_RUST_TEST = re.compile(
    r"#\[(?:\w+::)?test[^\]]*\]"  # also `tokio::test`
    r"(?:\s*(?:#\[[^\]]*\]|//[^\n]*))*"
    r"\s*(?:pub\s+)?(?:async\s+)?fn\s+(\w+)"
)


def promises(page: str) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    """Each promise with the files and names of its tests; none where the page says so. A row that is neither fails."""
    found = []
    for row in re.findall(r"^\| .* \|$", page, re.MULTILINE):
        if row == "| promise | kept by |":
            continue
        cells = row.strip("| ").split(" | ")
        assert len(cells) == 2, row
        tests = () if cells[1] == "no test" else tuple(_NAMED.findall(cells[1]))
        assert cells[1] == (", ".join(f"`{file}::{name}`" for file, name in tests) or "no test"), row
        found.append((cells[0], tests))
    return found


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    """Names of the tests that pytest or cargo would find in a file; none if there is no such file."""
    if not path.is_file():
        return frozenset()
    text = path.read_text()
    if path.suffix == ".rs":
        return frozenset(_RUST_TEST.findall(text))
    functions = (one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(one.name for one in functions if one.name.startswith("test_"))


def missing(page: str) -> list[str]:
    named = [test for _, tests in promises(page) for test in tests]
    return [f"{file}::{name}" for file, name in named if name not in names_in(ROOT / file)]


def counted(page: str) -> bool:
    """Whether the counts at the top are those of the rows."""
    told = re.search(r"There are (\d+) promises: (\d+) have a test, (\d+) have\s+none", page)
    kept = [bool(tests) for _, tests in promises(page)]
    return told is not None and [int(one) for one in told.groups()] == [len(kept), sum(kept), kept.count(False)]


@pytest.mark.slow
def test_every_named_test_exists() -> None:
    assert missing(PAGE.read_text()) == []


def test_no_promise_stands_twice_and_each_has_at_most_two_tests() -> None:
    found = promises(PAGE.read_text())
    assert [promise for promise, times in Counter(promise.lower() for promise, _ in found).items() if times > 1] == []
    assert [promise for promise, tests in found if len(set(tests)) != len(tests) or len(tests) > 2] == []


def test_the_counts_at_the_top_are_true() -> None:
    assert counted(PAGE.read_text())


@pytest.mark.parametrize(
    ("file", "name", "there"),
    [
        ("tests/unit/test_specification.py", "test_every_named_test_exists", True),
        ("tests/unit/test_specification.py", "promises", False),
        ("tests/unit/test_no_such_file.py", "test_every_named_test_exists", False),
        ("native/packets/src/frame.rs", "one_flipped_bit_never_passes", True),
        ("native/packets/src/frame.rs", "parse", False),
    ],
)
def test_what_is_no_test_is_noticed(file: str, name: str, there: bool) -> None:
    page = f"There are 2 promises: 1 have a test, 1 have none\n| a | `{file}::{name}` |\n| b | no test |\n"
    assert missing(page) == ([] if there else [f"{file}::{name}"])
    assert counted(page)
    assert not counted(page + "| c | no test |\n")


def test_a_row_that_names_nothing_is_refused() -> None:
    with pytest.raises(AssertionError):
        promises("| a | some test |\n")
