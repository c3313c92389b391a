"""What is no part of a plain installation: nothing else needs it, and its absence is said with the remedy."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from virtgauge.errors import ExitCode, UnavailableError
from virtgauge.extras import EXTRAS, require

ROOT = Path(__file__).parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
BLOCKED = tuple(sorted({module for modules in EXTRAS.values() for module in modules} | {"dask", "vl_convert"}))
PLAIN = f"""
import contextlib, io, json, sys
for name in {BLOCKED!r}:
    sys.modules[name] = None
from virtgauge.cli import main
done = []
for arguments in json.load(sys.stdin):
    sys.argv = ["virtgauge", *arguments]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    done.append((code, out.getvalue(), err.getvalue()))
json.dump(done, sys.stdout)
"""
"""Commands, one after the other, where only the plain dependencies can be imported."""


def plain(folder: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    """Status, output and errors of each command."""
    environment = os.environ | {"VIRTGAUGE_STATE": str(folder / "state"), "NO_COLOR": "1", "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN],
        input=json.dumps(commands),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_that_is_checked_is_declared_with_the_libraries_of_its_modules(extra):
    declared = {re.match(r"[\w.-]+", requirement)[0] for requirement in DECLARED[extra]}
    assert set(EXTRAS[extra]) == declared


def test_a_missing_library_is_named_with_the_command_that_installs_its_extra(monkeypatch):
    require("query", "asking an archive")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(UnavailableError) as raised:
        require("query", "asking an archive")
    assert str(raised.value) == "asking an archive needs duckdb, not installed here\n  → pip install 'virtgauge[query]'"


@pytest.mark.slow
def test_a_plain_installation_has_the_commands_measures_and_reports(tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'name = "plain"\nseed = 1\naa = false\nrepetitions = 2\nreference = "a"\n'
        '[[platform]]\nname = "a"\nkind = "simulated"\n[[platform]]\nname = "b"\nkind = "simulated"\n'
        '[[suite.timing]]\ntimers = ["rdtsc"]\nsleeps = []\nloads = ["idle"]\nreads = 2000\nreservoir = 10\n'
    )
    commands = [["--help"], ["plan", "check", "quick"], ["measures"], ["fleet", "run", "--help"], ["query", "--help"]]
    run = [["run", "plan.toml", "--out", "run", "--quiet"], ["report", "run", "--format", "json"]]
    *plainly, ran, reported = plain(tmp_path, *commands, *run)
    assert [(code, errors) for code, _, errors in plainly] == [(0, "")] * len(commands)
    assert ran[0] == reported[0] == 0, (ran, reported)
    assert "vegaEmbed" in (tmp_path / "run" / "report.html").read_text()


SUITE = '[[suite.timing]]\nloads = ["idle"]\n'
FLEET = f"""name = "many"
reference = "a"
{SUITE}
[[platform]]
name = "a"
kind = "simulated"
[fleet]
workers = "here"
hosts = [{{ name = "one" }}]
"""
ATTACHED = f"""name = "far"
reference = "far"
{SUITE}
[[platform]]
name = "far"
kind = "attached"
via = "ssh"
host = "192.0.2.1"
"""


NEEDY = [
    ("attach", "attach prepare --listen 127.0.0.1:7443"),
    ("attach", "doctor --plan attached.toml"),
    ("fleet", "fleet run fleet.toml"),
    ("fleet", "fleet resume run"),
    ("fleet", "fleet worker --scheduler tls://127.0.0.1:1 --name a --ca a --certificate b --key c"),
    ("query", "query archive --sql 'SELECT 1'"),
]


@pytest.mark.slow
def test_what_needs_an_extra_ends_at_once_with_the_command_that_installs_it(tmp_path):
    (tmp_path / "attached.toml").write_text(ATTACHED)
    (tmp_path / "fleet.toml").write_text(FLEET)
    (tmp_path / "archive").mkdir()
    ended = plain(tmp_path, *(shlex.split(words) for _, words in NEEDY))
    for (extra, words), (code, output, errors) in zip(NEEDY, ended, strict=True):
        assert code == ExitCode.UNAVAILABLE, (words, output, errors)
        assert f"pip install 'virtgauge[{extra}]'" in output + errors
        assert "Traceback" not in errors
    assert not (tmp_path / "runs").exists()
