"""Commands that messages advise: they exist, and are named in full."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest
import typer.main

import virtgauge
from virtgauge import cli
from virtgauge.errors import UnavailableError
from virtgauge.extras import find_native
from virtgauge.platforms.oci.platform import OciPlatform
from virtgauge.provision.parts import GROUPS, PARTS

pytestmark = pytest.mark.slow

PACKAGE = Path(virtgauge.__file__).parent


@functools.cache
def texts() -> list[tuple[str, str]]:
    """Every string of the source, with its place."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append((f"{path.relative_to(PACKAGE)}:{node.lineno}", node.value))
    return found


def test_no_message_advises_make_which_only_a_checkout_has():
    assert [place for place, text in texts() if re.search(r"`make\b|\bmake (setup|run|agent)\b", text)] == []


def test_every_part_that_a_message_advises_to_provision_is_one():
    known = {*PARTS, *GROUPS}
    named = [(place, part) for place, text in texts() for part in re.findall(r"virtgauge provision ([a-z]+)", text)]
    assert len(named) > 5
    assert [(place, part) for place, part in named if part not in known] == []


def test_every_command_of_virtgauge_that_a_message_names_exists():
    root = typer.main.get_command(cli.app)
    unknown, known = [], 0
    for place, text in texts():
        # in backticks, or what a remedy begins with
        pattern = r"`virtgauge ([a-z-]+)(?: ([a-z]+))?|^virtgauge (attach|fleet|image|plan|resume) ?([a-z]*)"
        for groups in re.findall(pattern, text):
            first, second = [group for group in groups if group] + [""] * (2 - sum(map(bool, groups)))
            command = root.commands.get(first)
            below = getattr(command, "commands", None)
            known += 1
            if command is None or (below is not None and second and second not in below):
                unknown.append((place, first, second))
    assert known > 20
    assert unknown == []


async def test_what_is_missing_is_provided_by_a_command_that_every_installation_has(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gvisor = await OciPlatform(OciPlatform.Settings(runtime="runsc")).probe()
    assert not gvisor.usable
    assert "virtgauge provision gvisor" in (gvisor.fix or "")


def test_a_missing_program_is_answered_for_an_installation_and_for_a_source_tree(monkeypatch, tmp_path):

    monkeypatch.setenv("SOME_PROGRAM", str(tmp_path / "none"))
    with pytest.raises(
        UnavailableError, match="reinstall the package, or in a source tree: virtgauge provision agent;"
    ):
        find_native("x", "SOME_PROGRAM", "the program", "a built one", "agent")
