"""Time and size of the report over 10,000 trials.

Usage: python benchmarks/report_scale.py [--suite timing] [--trials 10000] [--keep FOLDER] [--json]

Writes a synthetic run of a suite (timing: 10 arms × the 18 cells of the full suite, a million reads a trial; beyond
10,000 trials those are repeated as later repetitions), then makes its report in a fresh process, as ``virtgauge report
RUN --format html`` would, and prints wall time, peak memory and size; with ``--json`` those of the JSON, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virtgauge.ledger.store import Ledger

_MOST_DRAWN = 10_000

TESTS = Path(__file__).resolve().parent.parent / "tests"


def _timing(folder: Path, blocks: int) -> Ledger:
    from synthetic import SyntheticArm, arm_record, cells, synthetic_ledger

    arms = [
        SyntheticArm(arm_record("host", "host", "Host", "reference")),
        SyntheticArm(arm_record("host-aa", "host", "Host (A/A)", "aa")),
        *(SyntheticArm(arm_record(f"guest-{n}", "oci", f"Guest {n}"), 1 + n / 2, 1 + n / 8) for n in range(8)),
    ]
    return synthetic_ledger(folder, arms, blocks, list(cells()), invalid_share=0.02)


def _isolation(folder: Path, blocks: int) -> Ledger:
    """A benchmark of each resource beside loads of each kind, with a policy and without."""
    from isolation_results import FULL, isolation_ledger

    policies = ("none", "limit+reservation")
    design = dataclasses.replace(FULL, cores=("1",), policies=policies, on=("tested",), shares=(50,))
    return isolation_ledger(folder, designs=[design], blocks=blocks)


def _storage(folder: Path, blocks: int) -> Ledger:
    """Three databases: single and many values, knees, mixed loads and crashes."""
    from storage_results import Design, storage_ledger

    design = Design(operations=(*Design.operations, "knee", "mixed"), crashes=("server",))
    return storage_ledger(folder, designs=[design], blocks=blocks)


def _forwarding(folder: Path, blocks: int) -> Ledger:
    """Twelve guests, three load vectors and three frame sizes."""
    from forwarding_results import forwarding_ledger

    return forwarding_ledger(folder, blocks=blocks)


SUITES = {"timing": _timing, "isolation": _isolation, "storage": _storage, "forwarding": _forwarding}


def make_run(folder: Path, trials: int, suite: str = "timing") -> int:
    """Write a suite's run of about so many trials; returns how many it has."""
    sys.path.insert(0, str(TESTS))
    with tempfile.TemporaryDirectory() as scratch, SUITES[suite](Path(scratch) / "one", 1) as ledger:
        each = len({one.key for one in ledger.attempts()})
    blocks = -(-min(trials, _MOST_DRAWN) // each)
    with SUITES[suite](folder, blocks) as ledger:
        drawn = len(ledger.attempts())
    times = max(round(trials / drawn), 1)
    if times > 1:
        _repeat(folder / "ledger.sqlite", times, blocks)
    return drawn * times


def _repeat(ledger: Path, times: int, blocks: int) -> None:
    """Add the trials that are there again and again as later repetitions, until they are there so many times."""
    with sqlite3.connect(ledger) as database:
        columns = [str(row[1]) for row in database.execute("PRAGMA table_info(trials)")]
        (last,) = database.execute("SELECT max(trial_id) FROM trials").fetchone()
        changed = {"trial_id": "trial_id + :n * :last", "key": "key || '@' || :n", "block": "block + :n * :blocks"}
        trials = ", ".join(changed.get(column, column) for column in columns)
        for n in range(1, times):
            values = {"n": n, "last": last, "blocks": blocks}
            database.execute(f"INSERT INTO trials SELECT {trials} FROM trials WHERE trial_id <= :last", values)
            database.execute(
                "INSERT INTO histograms SELECT trial_id + :n * :last, measure, unit, bins, minimum, maximum, mean "
                "FROM histograms WHERE trial_id <= :last",
                values,
            )
            told = [str(row[1]) for row in database.execute("PRAGMA table_info(summaries)")][1:]
            names = ", ".join(f'"{name}"' for name in told)
            database.execute(
                f"INSERT INTO summaries SELECT trial_id + :n * :last, {names} FROM summaries WHERE trial_id <= :last",
                values,
            )
    database.close()


def report(folder: Path, json: bool) -> None:
    """Make the page of a run as the command does, and say how long each part took; then the JSON, if asked for."""
    began = time.perf_counter()
    from virtgauge import cli, report
    from virtgauge.console.reports import ReportFormat, build_report, write_report
    from virtgauge.ledger.read_only import ReadOnlyLedger

    imported = time.perf_counter()
    with ReadOnlyLedger.for_command(folder) as ledger:
        built = build_report(ledger)
        analysed = time.perf_counter()
        page = write_report(built, folder, ReportFormat.HTML, None)
        rendered, cpu = time.perf_counter(), time.process_time()
        # Of this program: getrusage would count what the process was before it began, which had written the run.
        peak_mib = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
        print(f"imports           {imported - began:6.2f} s, of {cli.__name__} and {report.__name__}")
        print(f"analysis          {analysed - imported:6.2f} s")
        print(f"page              {rendered - analysed:6.2f} s   {page.stat().st_size / 1e6:.2f} MB")
        print(f"report.html total {rendered - began:6.2f} s   (CPU time of the process so far {cpu:.2f} s)")
        print(f"peak memory       {peak_mib:6.0f} MiB")
        if json:
            from virtgauge.exchange import tidy
            from virtgauge.results.table import ResultTable

            began = time.perf_counter()
            with (folder / "run.json").open("w", encoding="utf-8") as text:
                tidy.write(ResultTable(ledger), text)
            size_mb = (folder / "run.json").stat().st_size / 1e6
            print(f"JSON besides      {time.perf_counter() - began:6.2f} s   {size_mb:.2f} MB")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=SUITES, default="timing", help="whose trials")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="write the run here and keep it")
    parser.add_argument("--of", type=Path, help="only make the report of this run")
    parser.add_argument("--json", action="store_true", help="make the JSON, too")
    arguments = parser.parse_args()
    if arguments.of:
        report(arguments.of, arguments.json)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch) / "run"
        trials = make_run(folder, arguments.trials, arguments.suite)
        print(f"trials            {trials:6d}", flush=True)
        subprocess.run([sys.executable, __file__, "--of", str(folder), *["--json"] * arguments.json], check=True)


if __name__ == "__main__":
    main()
