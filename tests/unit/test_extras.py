"""What is no part of a plain installation: nothing else needs it, and its absence is said with the remedy."""

import os
import re
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
import sys
for name in {BLOCKED!r}:
    sys.modules[name] = None
sys.argv[0] = "virtgauge"
from virtgauge.cli import main
main()
"""
"""The command where only the plain dependencies can be imported."""


def plain(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"VIRTGAUGE_STATE": str(folder / "state"), "NO_COLOR": "1", "COLUMNS": "200"}
    argv = [sys.executable, "-c", PLAIN, *map(str, arguments)]
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


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


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["plan", "check", "quick"], ["measures"], ["fleet", "run", "--help"], ["query", "--help"]],
    ids=" ".join,
)
def test_a_plain_installation_has_the_commands(tmp_path, arguments):
    done = plain(tmp_path, *arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_plain_installation_measures_and_reports(tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'name = "plain"\nseed = 1\naa = false\nrepetitions = 2\nreference = "a"\n'
        '[[platform]]\nname = "a"\nkind = "simulated"\n[[platform]]\nname = "b"\nkind = "simulated"\n'
        '[[suite.timing]]\ntimers = ["rdtsc"]\nsleeps = []\nloads = ["idle"]\nreads = 2000\nreservoir = 10\n'
    )
    ran = plain(tmp_path, "run", plan, "--out", "run", "--quiet")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "vegaEmbed" in (tmp_path / "run" / "report.html").read_text()
    assert plain(tmp_path, "report", "run", "--format", "json").returncode == 0


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


@pytest.mark.parametrize(
    ("extra", "arguments", "plan"),
    [
        ("attach", ["attach", "prepare", "--listen", "127.0.0.1:7443"], ""),
        ("attach", ["doctor", "--plan", "plan.toml"], ATTACHED),
        ("fleet", ["fleet", "run", "plan.toml"], FLEET),
        ("fleet", ["fleet", "resume", "run"], ""),
        ("fleet", ["fleet", "worker", "--scheduler", "tls://127.0.0.1:1", "--name", "a", "--ca", "a", "--certificate",
                   "b", "--key", "c"], ""),
        ("query", ["query", "archive", "--sql", "SELECT 1"], ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)  # fmt: skip
def test_what_needs_an_extra_ends_at_once_with_the_command_that_installs_it(tmp_path, extra, arguments, plan):
    (tmp_path / "plan.toml").write_text(plan)
    (tmp_path / "archive").mkdir()
    done = plain(tmp_path, *arguments)
    assert done.returncode == ExitCode.UNAVAILABLE, done.stdout + done.stderr
    assert f"pip install 'virtgauge[{extra}]'" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
