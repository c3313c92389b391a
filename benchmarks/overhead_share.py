"""Share of a run's wall time that is not measurement, by what its ledger says.

Examples:
  python benchmarks/overhead_share.py                            run `quick` on host and runc, and take it apart
  python benchmarks/overhead_share.py --run runs/timing-2019-…   take a finished run apart, measure nothing
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark import BenchmarkError, Outcome, figure, main, progress
from run_time import Activity, run_time, seconds

from virtgauge.ledger.records import GuestRecord, TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger


@dataclasses.dataclass(frozen=True)
class Anatomy:
    """A run taken apart.

    Attributes:
        name: heading of its columns.
        parts: seconds by activity, which add up to the run.
        tally: how many trials and guests there were, and what went wrong with them, in words.
        outside: seconds of the command before the ledger's first event and after its last; None for a run of old.
    """

    name: str
    parts: dict[Activity, float]
    tally: str
    outside: dict[str, float] | None = None

    @property
    def total_s(self) -> float:
        """The run's wall time, from 'started' to its last event."""
        return sum(self.parts.values())

    def share(self, *activities: Activity) -> float:
        """Of the run's wall time."""
        return sum(self.parts[activity] for activity in activities) / self.total_s

    @property
    def outside_trials(self) -> float:
        """Share in which no trial was under way."""
        return 1 - self.share(Activity.MEASURING, Activity.AROUND)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", type=Path, action="append", metavar="RUN", help="a finished run; may be repeated")
    parser.add_argument("--repetitions", type=int, default=3, help="of the run that is made")


def measure(arguments: argparse.Namespace) -> Outcome:
    runs = [anatomy(folder) for folder in arguments.run or ()]
    if not runs:
        runs = [_fresh_run(1 if arguments.quick else arguments.repetitions)]
    return Outcome(
        columns=("part of the run", *(column for run in runs for column in (f"{run.name}, s", "share"))),
        rows=_rows(runs),
        meaning="; ".join(
            f"{run.name}: {_percent(1 - run.share(Activity.MEASURING))} of the run is not spent in a probe's loop, "
            f"{_percent(run.outside_trials)} not in a trial"
            for run in runs
        )
        + ".",
        notes=[
            "From the ledger's event 'started' to its last; every moment in between belongs to one part. No peer: the "
            "figure is a share of its own run.",
            *(f"{run.name}: {run.tally}." for run in runs),
        ],
        values={
            run.name: {"parts_s": {part.name.lower(): s for part, s in run.parts.items()}, "outside_s": run.outside}
            for run in runs
        },
    )


def anatomy(folder: Path, name: str | None = None, command: tuple[float, float] | None = None) -> Anatomy:
    """Take a run apart.

    Args:
        name: instead of the run's own.
        command: beginning and end of the whole command, seconds since the epoch, where they are known.

    Raises:
        UsageError: there is no run.
    """
    with Ledger.open(folder) as ledger:
        events, guests, trials = ledger.events(), ledger.guests(), ledger.trials()
    outside = None
    if command is not None:
        outside = {
            "command, before: start, probing the platforms": seconds(events[0].at) - command[0],
            "command, after: writing the report": command[1] - seconds(events[-1].at),
        }
    return Anatomy(name or folder.name, run_time(events, guests, trials), _tally(guests, trials), outside)


def _tally(guests: Sequence[GuestRecord], trials: Sequence[TrialRecord]) -> str:
    valid = sum(trial.status is TrialStatus.VALID for trial in trials)
    text = f"{len(trials)} trials, {valid} of them valid (the others count as measuring too), on {len(guests)} guests"
    errors = {f"{guest.arm}: {guest.error}".splitlines()[0] for guest in guests if guest.error}
    return text + (f"; launches failed ({'; '.join(sorted(errors))})" if errors else "")


def _fresh_run(repetitions: int) -> Anatomy:
    if os.geteuid() != 0:
        raise BenchmarkError("containers need root: run this as root (sudo), or give a finished run (--run)")
    words = ["run", "quick", "--platform", "runc", "--repetitions", str(repetitions), "--seed", "1"]
    progress(f"virtgauge {' '.join(words)}")
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as scratch:
        folder = Path(scratch) / "run"
        began = time.time()
        command = [sys.executable, "-m", "virtgauge.cli", *words, "--out", str(folder), "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        ended = time.time()
        if not (folder / "ledger.sqlite").is_file():
            raise BenchmarkError(f"the run did not begin: {done.stderr.strip()}")
        return anatomy(folder, f"quick on host and runc, {repetitions}×", (began, ended))


def _rows(runs: list[Anatomy]) -> list[list[str]]:
    def row(label: str, values: list[tuple[float, float]]) -> list[str]:
        return [label, *(cell for value, share in values for cell in (figure(value), _percent(share)))]

    rows = [
        row(activity.value, [(run.parts[activity], run.share(activity)) for run in runs])
        for activity in Activity
        if any(run.parts[activity] for run in runs)
    ]
    rows.append(row("the run", [(run.total_s, 1.0) for run in runs]))
    outsides: list[dict[str, Any]] = [run.outside or {} for run in runs]
    for label in outsides[0]:
        if all(label in outside for outside in outsides):
            pairs = zip(runs, outsides, strict=True)
            rows.append(row(label, [(outside[label], outside[label] / run.total_s) for run, outside in pairs]))
    return rows


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


if __name__ == "__main__":
    main(measure, __doc__, options)
