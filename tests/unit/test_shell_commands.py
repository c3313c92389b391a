"""No shell command is built at run time: what a guest or a plan says is at most an argument of a constant script."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parents[2] / "src/virtgauge"
SHELLS = {"sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/sh", "/usr/bin/bash"}
THROUGH_A_SHELL = {"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"}
QUOTED = "platforms/attached/remote_shell.py"  # ssh joins words for a shell there; tests/platforms say how it quotes


def constants_of(tree: ast.Module) -> dict[str, str]:
    """The module's names that are text."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = (
                    zip(target.elts, node.value.elts, strict=False)  # starred ones are no text
                    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                    else [(target, node.value)]
                )
                for name, value in pairs:
                    if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                        found[name.id] = value.value
    return found


def is_constant(script: ast.expr, tree: ast.Module, within: ast.AST | None) -> bool:
    """Whether a script is text of the module, or a parameter of which every call in the module gives such text."""
    constants = constants_of(tree)
    if isinstance(script, ast.Constant):
        return True
    if not isinstance(script, ast.Name):
        return False
    if isinstance(within, ast.FunctionDef | ast.AsyncFunctionDef) and within.name.startswith("_"):
        names = [one.arg for one in within.args.args]
        if script.id in names:
            calls = [
                call
                for call in ast.walk(tree)
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == within.name
            ]
            place = names.index(script.id)
            return bool(calls) and all(
                len(call.args) > place and is_constant(call.args[place], tree, None) for call in calls
            )
    return script.id in constants


def built_commands(text: str) -> Iterator[int]:
    """Lines in which a shell gets a script that is not constant."""
    tree = ast.parse(text)
    constants = constants_of(tree)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in THROUGH_A_SHELL or any(
                one.arg == "shell" and getattr(one.value, "value", True) for one in node.keywords
            ):
                yield node.lineno
        elif isinstance(node, ast.JoinedStr) and re.search(r"\bsh -c", ast.unparse(node)):
            yield node.lineno
        elif isinstance(node, ast.List | ast.Tuple):
            words = [constants.get(one.id) if isinstance(one, ast.Name) else None for one in node.elts]
            words = [getattr(one, "value", word) for one, word in zip(node.elts, words, strict=True)]
            for place in range(len(words) - 2):
                if words[place] in SHELLS and words[place + 1] == "-c":
                    within = next(
                        (one for one in functions if one.lineno <= node.lineno <= (one.end_lineno or 0)), None
                    )
                    if not is_constant(node.elts[place + 2], tree, within):
                        yield node.lineno


def test_no_shell_gets_a_script_that_was_built() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).as_posix() != QUOTED
        for line in built_commands(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.system(said)",
        "run(said, shell=True)",
        "argv = ['sh', '-c', f'kill {said}']",
        "S = '/bin/sh'\nargv = [S, '-c', 'kill ' + said]",
        "def _do(script):\n    return ['sh', '-c', script]\n_do(said)",
        "command = f'exec sh -c {said}'",
    ],
)
def test_one_that_was_built_is_found(text: str) -> None:
    assert [*built_commands(text)]


def test_a_constant_script_with_arguments_is_none() -> None:
    assert not [*built_commands("S = 'kill \"$1\"'\nargv = ['sh', '-c', S, 'sh', said]")]
