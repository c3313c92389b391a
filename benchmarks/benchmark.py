"""What every benchmark shares: a table as its outcome, the conditions in which it was measured, a command line.

A benchmark is a script of its own.  It measures, returns an :class:`Outcome`, and ends with ``main(measure, …)``,
which gives it ``--quick`` and ``--json``.  One line in :mod:`registry` makes it part of ``run.py`` and RESULTS.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a benchmark found.

    Attributes:
        columns, rows: the table, as text.
        meaning: one sentence for the reader of the table.
        peers: what stands beside virtgauge in the table, with its version.
        notes: how the columns were measured, and what is missing and why.
        values: the single figures behind the table, for who wants to reckon anew; JSON-able.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    meaning: str
    peers: dict[str, str] = dataclasses.field(default_factory=dict)
    notes: Sequence[str] = ()
    values: dict[str, Any] = dataclasses.field(default_factory=dict)


class BenchmarkError(Exception):
    """The benchmark cannot be measured here; the message says why."""


Measure = Callable[[argparse.Namespace], Outcome]


def main(measure: Measure, description: str, options: Callable[[argparse.ArgumentParser], None]) -> None:
    """Command line of one benchmark: measure, print the table, write the record that was asked for.

    Args:
        options: adds the benchmark's own; what repeats is an option whose name ``--quick`` may overrule.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--quick", action="store_true", help="as few repeats as show that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write table, single figures and conditions here")
    arguments = parser.parse_args()
    before = conditions()
    began = time.monotonic()
    try:
        outcome = measure(arguments)
    except BenchmarkError as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")
    taken = {"command": command_line(sys.argv), "took_s": round(time.monotonic() - began, 1)}
    if arguments.json:
        record = dataclasses.asdict(outcome) | before | taken
        arguments.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(markdown_table(outcome.columns, outcome.rows))
    print(f"\n{outcome.meaning}")
    for note in outcome.notes:
        print(f"- {note}")


def progress(text: str) -> None:
    """A line about what is going on, apart from the results."""
    print(f"  {text}", file=sys.stderr, flush=True)


# -- figures -------------------------------------------------------------------------------------------------------


def spread(values: Sequence[float], *, scale: float = 1.0, unit: str = "") -> str:
    """Median and range: ``12.3 (11.8–15.1) ms``; a single value stands alone."""
    suffix = f" {unit}" if unit else ""
    scaled = [value * scale for value in values]
    if len(scaled) == 1:
        return f"{figure(scaled[0])}{suffix}"
    return f"{figure(statistics.median(scaled))} ({figure(min(scaled))}–{figure(max(scaled))}){suffix}"


def figure(value: float) -> str:
    """Three significant digits, without an exponent, and at most four decimals."""
    if value == 0:
        return "0"
    digits = 0
    while abs(value) * 10**digits < 99.95 and digits < 4:
        digits += 1
    return f"{value:.{digits}f}"


def ratios(ours: Sequence[float], peers: Sequence[float]) -> list[float]:
    """Ours over the peer's, pair by pair."""
    return [mine / theirs for mine, theirs in zip(ours, peers, strict=True)]


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that can be read as text too: the first column to the left, figures to the right."""
    cells = [list(columns), *map(list, rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [cells[0], rule, *cells[1:]]
    return "\n".join(f"| {' | '.join(_aligned(row, widths))} |" for row in lines)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]


# -- conditions -------------------------------------------------------------------------------------------------


def conditions() -> dict[str, Any]:
    """Machine, moment, commit and load: what has to be the same for two tables to be compared."""
    return {
        "machine": machine(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def machine() -> str:
    """This machine in words: ``AMD EPYC, 2 processors, 23.5 GiB, kernel 6.1.0, Debian …, Python 3.11.7, virtual``."""
    from virtgauge.host.machine import fingerprint

    found = fingerprint()
    identity, context = found["identity"], found["context"]
    memory = context["memory_bytes"]
    words = [
        identity["cpu_model"],
        f"{identity['cpu_count']} processors",
        f"{memory / 2**30:.1f} GiB" if memory else "unknown memory",
        f"kernel {identity['kernel_release']}",
        context["distribution"],
        f"Python {context['python']}",
        {True: "virtual", False: "physical", None: "virtual or not"}[context["hypervisor"]["present"]],
    ]
    return ", ".join(map(str, words))


def commit() -> str:
    """The commit that was measured, and whether the sources differed from it."""
    name = said("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD")
    if name is None:
        return "unknown (no git checkout)"
    sources = ("src", "native", "benchmarks/*.py", "benchmarks/*.c")
    changed = said("git", "-C", str(ROOT), "status", "--porcelain", "--", *sources)
    return f"{name} with uncommitted changes" if changed else name


def command_line(argv: Sequence[str]) -> str:
    """The command to type in the project's folder, less where its record goes."""
    script = Path(argv[0]).resolve()
    words = ["python", str(script.relative_to(ROOT) if script.is_relative_to(ROOT) else script)]
    rest = iter(argv[1:])
    for word in rest:
        if word == "--json":
            next(rest, None)
        elif not word.startswith("--json="):
            words.append(word)
    return shlex.join(words)


def said(*argv: str) -> str | None:
    """What a program prints; None when it is missing or fails."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
