"""What `--help` shows: every word that was written, values with names, and an example."""

from __future__ import annotations

import functools
import inspect
import re
import shlex
from typing import Any

import pytest
import typer.main
from typer import rich_utils
from typer.testing import CliRunner

from virtgauge import cli


def commands(command: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    below = getattr(command, "commands", {})
    return [(path, command), *(entry for name, one in below.items() for entry in commands(one, (*path, name)))]


ALL = commands(typer.main.get_command(cli.app))
LEAVES = [(path, command) for path, command in ALL if not hasattr(command, "commands")]
named = pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) or "virtgauge" for path, _ in ALL])
leaf = pytest.mark.parametrize(("path", "command"), LEAVES, ids=[" ".join(path) for path, _ in LEAVES])


@functools.cache
def shown(path: tuple[str, ...]) -> str:
    result = CliRunner().invoke(cli.app, [*path, "--help"], env={"COLUMNS": "400", "TERMINAL_WIDTH": "400"})
    assert result.exit_code == 0
    return result.stdout


def words(text: str) -> list[str]:
    return re.sub(r"[│╭╮╰╯─]", " ", text).split()


def written(command: Any) -> list[str]:
    """The docstring and the help text of each option, as they stand in the source."""
    function = inspect.unwrap(command.callback)
    hints = inspect.get_annotations(function, eval_str=True)
    infos = [info for hint in hints.values() for info in getattr(hint, "__metadata__", ())]
    return [inspect.cleandoc(function.__doc__ or ""), *(info.help for info in infos if info.help)]


@leaf
def test_every_option_can_be_read_on_a_terminal_of_80_columns(path, command, monkeypatch):
    monkeypatch.setattr(rich_utils, "MAX_WIDTH", 80)
    shown_at_80 = CliRunner().invoke(cli.app, [*path, "--help"], env={"COLUMNS": "80"}).stdout
    assert max(map(len, shown_at_80.splitlines())) <= 80
    for parameter in command.params:
        for name in parameter.opts if parameter.name != "help" else ():
            assert name in shown_at_80 or not name.startswith("--"), name


@leaf
def test_every_word_of_a_help_text_is_shown(path, command):
    texts = written(command)
    assert texts[0]
    output = " ".join(words(shown(path)))
    for text in texts:
        assert " ".join(words(text)) in output


@named
def test_no_type_of_python_is_shown(path, command):
    assert re.findall(r"<[^>\n]*>|\b(?:list|tuple|dict)\[|\b(?:Path|bool|str|int|float)\b", shown(path)) == []


@leaf
def test_every_command_has_an_example_of_itself_that_its_parser_takes(path, command):
    output = " ".join(words(shown(path)))
    call = re.compile(rf"(?:sudo )?virtgauge {' '.join(path)}\b[^,·>]*")
    assert re.search(rf"Examples?: {call.pattern}", output)
    example = call.search(command.epilog)
    assert example is not None
    _, _, given = example[0].partition(f"virtgauge {' '.join(path)}")
    given = given.partition(" Example:")[0].partition("\n")[0]
    command.make_context("virtgauge", shlex.split(given.replace("\\[", "[")))


def test_words_in_brackets_are_shown_as_such():
    assert "a section [fleet]" in shown(("fleet", "run"))
    assert "[[require]] tables" in shown(("import",))


def test_the_exit_codes_that_are_documented_are_those_there_are():
    from virtgauge.errors import ExitCode

    told = re.search(r"Exit codes: (.*?)\n\s*\n", shown(()) + "\n\n", re.S)
    assert told is not None
    assert {int(code) for code in re.findall(r"(?:^|; )(\d+) ", " ".join(words(told[1])))} == {int(c) for c in ExitCode}
