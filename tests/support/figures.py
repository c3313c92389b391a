"""All figures of a run as lines of text that can be compared: before a change of the report, and after it.

    python tests/support/figures.py of RUN > before.txt       every figure of a run's folder, or of a recording
    python tests/support/figures.py compare before.txt after.txt [--except GLOB …]
    python tests/support/figures.py check RUN …               build each report anew, compare with RUN.figures.txt
    python tests/support/figures.py record RUN > run.sql      a run's folder as text, as in tests/data/recorded
    python tests/support/figures.py restore run.sql FOLDER    the run's folder again

The format
----------
One figure a line, thirteen columns with a tab between, sorted; the first line names the columns.  The first six are the
key: what the figure is of, in the terms of the plan and the catalogue of measures, never those of a class.

suite      ``timing`` …; ``run`` for what is of no suite.
measure    of ``virtgauge measures`` where it is there, without the suite: ``sleep_lateness.p99``, ``throughput``.  What
           is not in the catalogue is named alike: lower case, a dot before what is a part of it: ``knee.objective``.
           ``requirement:NAME``, ``claim:NAME``, ``headline:NAME`` and ``flag:NAME`` have the name after a colon.
cell       the probe, then the levels of the trial's factors, exactly as the ledger has them, sorted by factor, and not
           ``jain`` (which follows from the vector): ``timer_cost;function=rdtscp;load=idle``.  Of a figure over several
           cells the levels that it fixes, after ``*`` instead of the probe: ``*;through=shim;timing=hptime``; an empty
           cell for all.  A part of a cell is one level more, and its name begins with a plus: ``+guest=0``,
           ``+stream=read``, ``+host=north``, ``+block=2``.
arm        the platform's name in the plan, the A/A arm's too; empty for what is of no arm.
against    what it is compared with: empty for the figure itself; ``reference``; another cell of the same arm, by the
           levels that differ: ``timing=system``; ``paper``; ``arm=NAME`` of what ``virtgauge compare`` says of two arms
           (its parts are ``ratio``, ``difference``, ``band``, ``p``, ``p_adjusted`` and ``needed``).
part       of a figure itself: empty.  Of a comparison ``ratio`` or ``difference``; ``band`` is what identical arms
           differ by (A/A), a factor, or a difference in the measure's unit; ``resolution.higher`` and
           ``resolution.lower`` the smallest difference that could have been shown.  Of a requirement ``margin`` and
           ``more``; of a ranking ``rank``.  ``exported`` is what exports say where the report shows another figure.

The other seven say what it is:

estimate, low, high
           in the unit of the last column; an end without an interval is empty.
confidence that the interval really has; empty without one.
n          independent repetitions behind it; empty for counts and for what is of one repetition.
verdict    ``higher``, ``lower``, ``inconclusive`` of a comparison, on its line ``ratio`` (``difference`` where there is
           no ratio); ``pass``, ``fail``, ``inconclusive`` of a requirement; ``confirmed`` … of a claim; ``yes`` or
           ``no``; else empty.
unit       the catalogue's base unit: ``ns``, ``bit/s``, ``frames/s``, ``op/s``, ``rows/s``, ``units/s``, ``B``, ``%``;
           ``ratio`` of comparisons; empty for counts.

A figure that is missing has no line, and neither has a comparison without a figure: a missing figure is not zero.  Why
it is missing shows in the lines of ``trials``: how many trials of a cell and arm there are, by ``status``.

A new producer makes :class:`Figure` objects of the new model and gives them to :func:`write`.  Units of the report are
brought to base units there (:data:`BASE_UNITS`), so that 0.05 as a share and 5 % are the same figure.

The comparison takes numbers as equal within a relative 1e-9; n, verdict and unit have to be the same.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fnmatch
import json
import math
import sqlite3
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

KEY = ("suite", "measure", "cell", "arm", "against", "part")
NUMBERS = ("estimate", "low", "high", "confidence")
COLUMNS = (*KEY, *NUMBERS, "n", "verdict", "unit")
TOLERANCE = 1e-9
BASE_UNITS: Mapping[str, tuple[str, float]] = {
    "Mbit/s": ("bit/s", 1e6),
    "share": ("%", 100.0),
    "MB/s": ("B/s", 1e6),
    "bytes": ("B", 1.0),
    "/s": ("1/s", 1.0),
    "ops/s": ("op/s", 1.0),
    "operations/s": ("op/s", 1.0),
    "row/s": ("rows/s", 1.0),
    "frames": ("", 1.0),
    "s": ("ns", 1e9),
}
"""By unit of a report: the base unit, and how many of these it has."""


@dataclasses.dataclass(frozen=True)
class Figure:
    """One line; see the module.  A key's parts hold no tab, and a figure has an estimate or a verdict."""

    suite: str
    measure: str
    cell: str = ""
    arm: str = ""
    against: str = ""
    part: str = ""
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    n: int | None = None
    verdict: str = ""
    unit: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What it is of."""
        return tuple(" ".join(getattr(self, part).split()) for part in KEY)

    @property
    def line(self) -> str:
        """In base units, floats in full."""
        unit, factor = BASE_UNITS.get(self.unit, (self.unit, 1.0))
        numbers = [_number(value, factor) for value in (self.estimate, self.low, self.high)]
        numbers += [_number(self.confidence, 1.0), "" if self.n is None else str(self.n)]
        return "\t".join([*self.key, *numbers, " ".join(self.verdict.split()), unit])


def _number(value: float | None, factor: float) -> str:
    return "" if value is None else repr(float(value) * factor)


def cell_of(probe: str, factors: Mapping[str, str], **parts: object) -> str:
    """A cell as the format has it."""
    levels = [f"{factor}={level}" for factor, level in sorted(factors.items()) if factor != "jain"]
    return ";".join([probe, *levels, *(f"+{name}={level}" for name, level in parts.items())])


def write(figures: Iterable[Figure]) -> str:
    """The text of some figures.

    Raises:
        ValueError: two figures have the same key and say different things.
    """
    lines: dict[tuple[str, ...], str] = {}
    for figure in figures:
        if figure.estimate is None and not figure.verdict:
            continue
        if lines.setdefault(figure.key, figure.line) != figure.line:
            raise ValueError(f"one key, two figures:\n{lines[figure.key]}\n{figure.line}")
    return "\n".join(["\t".join(COLUMNS), *(lines[key] for key in sorted(lines)), ""])


Row = Mapping[str, str]


def read(text: str) -> dict[tuple[str, ...], Row]:
    """The lines of a text by their keys.

    Raises:
        ValueError: its columns are not those of the format.
    """
    header, *lines = text.splitlines()
    if tuple(header.split("\t")) != COLUMNS:
        raise ValueError(f"the first line is not {' '.join(COLUMNS)}")
    rows = [dict(zip(COLUMNS, line.split("\t"), strict=True)) for line in lines]
    return {tuple(row[part] for part in KEY): row for row in rows}


def differences(before: str, after: str, excepted: Sequence[str] = ()) -> Iterator[str]:
    """What differs between two texts of figures, a line each: missing, new and changed ones.

    Args:
        before, after: as :func:`write` makes them.
        excepted: patterns of keys (their parts with a blank between) that may differ.
    """
    old, new = read(before), read(after)
    for key in sorted(old.keys() | new.keys()):
        named = " ".join(key)
        if any(fnmatch.fnmatchcase(named, pattern) for pattern in excepted):
            continue
        if key not in new:
            yield f"missing  {' | '.join(key)}: {_said(old[key])}"
        elif key not in old:
            yield f"new      {' | '.join(key)}: {_said(new[key])}"
        elif told := [_change(name, old[key], new[key]) for name in _differing(old[key], new[key])]:
            yield f"changed  {' | '.join(key)}: {'; '.join(told)}"


def _differing(old: Row, new: Row) -> Iterator[str]:
    for name in COLUMNS[len(KEY) :]:
        equal = old[name] == new[name]
        if not equal and name in NUMBERS and old[name] and new[name]:
            equal = math.isclose(float(old[name]), float(new[name]), rel_tol=TOLERANCE)
        if not equal:
            yield name


def _change(name: str, old: Row, new: Row) -> str:
    return f"{name} {old[name] or '–'} → {new[name] or '–'}"


def _said(row: Row) -> str:
    return " ".join(f"{name}={row[name]}" for name in COLUMNS[len(KEY) :] if row[name])


# -- recordings ----------------------------------------------------------------------------------------------


UNRECORDED = frozenset(("boot_id", "cmdline", "hostname", "machine_id", "mitigations", "product_uuid"))
"""What a machine says of itself that names it or is long; no figure is made of it."""


def record(run: Path) -> str:
    """A run's folder as SQL: its ledger without :data:`UNRECORDED`, its plan, and its raw samples as rows."""
    from virtgauge.ledger.read_only import ReadOnlyLedger

    with ReadOnlyLedger.for_command(run) as ledger:
        source = ledger._db
        (version,) = source.execute("PRAGMA user_version").fetchone()
        copy = sqlite3.connect(":memory:")
        source.backup(copy)
        for table, column in (("manifest", "value"), ("guests", "facts")):
            for number, text in copy.execute(f"SELECT rowid, {column} FROM {table}").fetchall():
                kept = json.dumps(_without(json.loads(text)))
                copy.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (kept, number))
        copy.execute("CREATE TABLE recorded_plan (text TEXT NOT NULL)")
        plan = run / "plan.toml"
        copy.execute("INSERT INTO recorded_plan VALUES (?)", (plan.read_text() if plan.exists() else "",))
        copy.execute("CREATE TABLE recorded_samples (trial_id INTEGER, series TEXT, numbers TEXT)")
        for trial in ledger.trials():
            for series, values in ledger.samples_of(trial.trial_id).items():
                numbers = ",".join(map(str, values))
                copy.execute("INSERT INTO recorded_samples VALUES (?, ?, ?)", (trial.trial_id, series, numbers))
        copy.commit()
    return "\n".join([f"PRAGMA user_version = {version};", *copy.iterdump(), ""])


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without(one) for key, one in value.items() if key not in UNRECORDED}
        return kept | ({"flags": []} if isinstance(kept.get("flags"), list) else {})
    return [_without(one) for one in value] if isinstance(value, list) else value


def restore(recording: str, folder: Path) -> Path:
    """The run's folder again, that can be reported, compared and exported; returns it."""
    import numpy as np

    from virtgauge.ledger.files import write_raw_values
    from virtgauge.ledger.store import LEDGER_NAME, Ledger

    folder.mkdir(parents=True)
    (folder / "samples").mkdir()
    with contextlib.closing(sqlite3.connect(folder / LEDGER_NAME)) as db:
        db.executescript(recording)
        (plan,) = db.execute("SELECT text FROM recorded_plan").fetchone()
        samples = db.execute("SELECT trial_id, series, numbers FROM recorded_samples").fetchall()
        db.executescript("DROP TABLE recorded_plan; DROP TABLE recorded_samples")
    (folder / "plan.toml").write_text(plan)
    by_trial: dict[int, dict[str, np.ndarray]] = {}
    for trial_id, series, numbers in samples:
        by_trial.setdefault(trial_id, {})[series] = np.array(numbers.split(","), dtype=np.int64)
    with Ledger.open(folder) as ledger:
        for trial_id, own in by_trial.items():
            write_raw_values(ledger.samples_path(trial_id), own)
    return folder


def figures_text(run: Path) -> str:
    """The figures of a run's folder, or of a recording (a file with SQL)."""
    from support.report_figures import figures_of_run

    if run.is_dir():
        return write(figures_of_run(run))
    with tempfile.TemporaryDirectory() as place:
        return write(figures_of_run(restore(run.read_text(), Path(place) / run.stem)))


def figures_path(run: Path) -> Path:
    """Where the figures of a recording, or a run's folder, are kept: beside it."""
    return run.with_name(f"{run.stem if run.is_file() else run.name}.figures.txt")


# -- the commands --------------------------------------------------------------------------------------------


def main() -> int:
    """Carry out a command; 1 when figures differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("of", "record"):
        commands.add_parser(name).add_argument("run", type=Path)
    restored = commands.add_parser("restore")
    restored.add_argument("recording", type=Path)
    restored.add_argument("folder", type=Path)
    compared = commands.add_parser("compare")
    compared.add_argument("before", type=Path)
    compared.add_argument("after", type=Path)
    checked = commands.add_parser("check")
    checked.add_argument("runs", type=Path, nargs="+")
    for parser_of in (compared, checked):
        parser_of.add_argument("--except", dest="excepted", nargs="+", default=[], metavar="GLOB")
    asked = parser.parse_args()
    if asked.command == "of":
        sys.stdout.write(figures_text(asked.run))
    elif asked.command == "record":
        sys.stdout.write(record(asked.run))
    elif asked.command == "restore":
        restore(asked.recording.read_text(), asked.folder)
    elif asked.command == "compare":
        return _compare(asked.before.name, asked.before.read_text(), asked.after.read_text(), asked.excepted)
    else:
        return max(
            _compare(run.name, figures_path(run).read_text(), figures_text(run), asked.excepted) for run in asked.runs
        )
    return 0


def _compare(name: str, before: str, after: str, excepted: Sequence[str]) -> int:
    found = list(differences(before, after, excepted))
    sys.stdout.writelines(f"{line}\n" for line in found)
    print(f"{name}: {len(found)} of {len(read(before))} figures differ", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main())
