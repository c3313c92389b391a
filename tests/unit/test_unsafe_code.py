"""Unsafe Rust is counted, so that more of it is a decision; clippy refuses a block that no SAFETY comment explains."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
CEILINGS = {
    "agent": 39,
    "bandwidth": 20,
    "failure": 0,
    "flushlab": 67,
    "fuzz": 5,
    "hptime": 21,
    "hptime-bench": 4,
    "hptime-c": 5,
    "hptime-preload": 56,
    "interpose": 11,
    "kernels": 19,
    "packets": 44,
    "sensorstore": 41,
    "uml-registers": 3,
}
"""Unsafe blocks and implementations below each crate's ``src``, tests included.  Lower one that is too high."""

_UNSAFE = re.compile(r"\bunsafe\s*\{|\bunsafe\s+impl\b")
_NO_CODE = re.compile(r'//[^\n]*|"(?:\\.|[^"\\])*"', re.DOTALL)


def unsafe_in(source: str) -> int:
    """Blocks and implementations that are unsafe; comments and texts have none."""
    return len(_UNSAFE.findall(_NO_CODE.sub("", source)))


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("let a = unsafe { read(b) };", 1),
        ("unsafe\n{ read(b) }", 1),
        ("unsafe impl Send for A {}", 1),
        ("// unsafe { read(b) }", 0),
        ('let a = "unsafe { \\" }";', 0),
        ("#[unsafe(no_mangle)] pub unsafe extern fn a() {}", 0),
    ],
)
def test_what_counts(source: str, count: int) -> None:
    assert unsafe_in(source) == count


def test_no_crate_has_more_unsafe_code_than_its_ceiling() -> None:
    for crate, ceiling in CEILINGS.items():
        sources = list((NATIVE / crate / "src").rglob("*.rs"))
        assert sources, crate
        assert sum(unsafe_in(path.read_text()) for path in sources) <= ceiling, crate


def test_every_crate_has_a_ceiling_and_the_workspaces_lints() -> None:
    workspace = tomllib.loads((NATIVE / "Cargo.toml").read_text())["workspace"]
    assert workspace["lints"]["clippy"]["undocumented_unsafe_blocks"] in ("warn", "deny")
    assert set(workspace["members"]) == set(CEILINGS)
    for crate in workspace["members"]:
        assert tomllib.loads((NATIVE / crate / "Cargo.toml").read_text()).get("lints") == {"workspace": True}, crate


def test_a_crate_that_needs_no_unsafe_code_forbids_it() -> None:
    needless = [crate for crate, ceiling in CEILINGS.items() if ceiling == 0]
    assert [one for one in needless if "#![forbid(unsafe_code)]" not in (NATIVE / one / "src/lib.rs").read_text()] == []
