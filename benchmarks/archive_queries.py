"""Questions to an archive of 10³ to 10⁶ trials, beside reading the runs' ledgers whole.

Archives one synthetic run of up to 10,000 trials again and again under another name and month, until there are as many
trials as wanted; then asks in a fresh process each, for time and peak memory.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmark import BenchmarkError, Outcome, figure, main, progress, spread
from report_scale import make_run

_MOST_IN_A_RUN = 10_000
_MEASURE = "timer_cost.p50"

QUESTIONS = {
    "median by platform": f"""
        SELECT arm, median(value) FROM trials
        WHERE suite = 'timing' AND measure = '{_MEASURE}' GROUP BY arm ORDER BY arm""",
    "p99 by platform and load": """
        SELECT arm, json_extract_string(factors, '$.load'), quantile_cont(value, 0.99) FROM trials
        WHERE suite = 'timing' AND measure = 'sleep_lateness.p99' GROUP BY ALL ORDER BY ALL""",
    "a filter: one run's slowest trials": f"""
        SELECT trial_id, arm, value FROM trials
        WHERE suite = 'timing' AND measure = '{_MEASURE}' AND run = 'run-0' AND arm = 'guest-7'
        ORDER BY value DESC LIMIT 20""",
}
_LEDGERS = "the first one, from the ledgers whole"
_REPORT = "the report of what changed, as a page"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=5, help="of each question")
    parser.add_argument("--ledger-repeats", type=int, default=1, help="of reading the ledgers, which takes long")
    parser.add_argument("--ask", nargs=4, help=argparse.SUPPRESS, metavar=("QUESTION", "PLACE", "RUN", "TIMES"))


def measure(arguments: argparse.Namespace) -> Outcome:
    if arguments.ask:
        name, place, run, times = arguments.ask
        _ask(name, place, Path(run), int(times))
        sys.exit()
    sizes = [1_000, 10_000] if arguments.quick else arguments.trials
    repeats = 1 if arguments.quick else arguments.repeats
    rows, values = [], {}
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as scratch:
        for wanted in sizes:
            folder = Path(scratch) / str(wanted)
            progress(f"writing a run of {min(wanted, _MOST_IN_A_RUN)} trials")
            own = make_run(folder / "run", min(wanted, _MOST_IN_A_RUN))
            times = max(round(wanted / own), 1)
            took, size_mb = _archive(folder, times)
            progress(f"{own * times} trials archived in {took:.1f} s")
            found: dict[str, list[dict[str, float]]] = {}
            for question in (*QUESTIONS, _REPORT, _LEDGERS):
                asked = arguments.ledger_repeats if question == _LEDGERS else repeats
                found[question] = [_child(question, folder, times) for _ in range(asked)]
                seconds, peak = (spread([one[key] for one in found[question]]) for key in ("seconds", "peak_mib"))
                rows.append([f"{own * times:,} trials: {question}", seconds, peak])
                progress(f"{question}: {seconds} s, {peak} MiB")
            if (
                len({json.dumps(one["answer"]) for name in (next(iter(QUESTIONS)), _LEDGERS) for one in found[name]})
                > 1
            ):
                raise BenchmarkError("the archive and the ledgers do not say the same")
            rows.append([f"{own * times:,} trials: archiving, {figure(size_mb)} MB of Parquet", figure(took), ""])
            values[str(own * times)] = {"archive_s": took, "archive_mb": size_mb, "runs": times, "questions": found}
    return Outcome(
        columns=("question", "time, s", "peak memory, MiB"),
        rows=rows,
        meaning="Asking an archive of Parquet by DuckDB, from the first import to the answer, beside reading every "
        "ledger with Python.",
        peers={"SQLite ledgers": f"sqlite3 {sqlite3.sqlite_version}, by virtgauge's own reader"},
        notes=[
            f"A synthetic run of at most {_MOST_IN_A_RUN:,} trials (10 arms × 18 cells, ten measures a trial) is "
            "archived under other names and months until there are enough; of ledgers, the one is read as often.",
            f"Each question in a fresh process, {repeats} times (the ledgers {arguments.ledger_repeats}): median and "
            "range. Files are in the page cache, for both.",
            "Both give the same medians, or the benchmark fails.",
        ],
        values=values,
    )


def _archive(folder: Path, times: int) -> tuple[float, float]:
    """Archive the run so many times under other names; seconds, and megabytes of what is there then."""
    from virtgauge.exchange.archive import archive_run
    from virtgauge.exchange.place import open_place
    from virtgauge.ledger.store import Ledger

    place, took = open_place(str(folder / "archive")), 0.0
    for number in range(times):
        with Ledger.open(folder / "run") as ledger:
            manifest = ledger.manifest()
        month = f"{2025 + number // 12 % 2}-{1 + number % 12:02}-01T10:00:00.000+00:00"
        _rename(folder / "run", dataclasses.asdict(manifest) | {"run_id": f"run-{number}", "created_at": month})
        began = time.perf_counter()
        with Ledger.open(folder / "run") as ledger:
            archive_run(place, ledger)
        took += time.perf_counter() - began
    size = sum(path.stat().st_size for path in (folder / "archive").rglob("*.parquet"))
    return took, size / 1e6


def _rename(folder: Path, manifest: dict[str, Any]) -> None:
    with sqlite3.connect(folder / "ledger.sqlite") as ledger:
        ledger.execute("UPDATE manifest SET value = ?", (json.dumps(manifest),))
    ledger.close()


def _child(question: str, folder: Path, times: int) -> dict[str, Any]:
    words = ["--ask", question, str(folder / "archive"), str(folder / "run"), str(times)]
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"{question}: {done.stderr.strip()[-500:]}")
    return dict(json.loads(done.stdout))


def _ask(name: str, place: str, run: Path, times: int) -> None:
    began = time.perf_counter()
    answer: object = _report(place) if name == _REPORT else None
    answer = answer or (_from_ledgers(run, times) if name == _LEDGERS else _from_archive(name, place))
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "peak_mib": _peak_mib(), "answer": answer}))


def _peak_mib() -> float:
    """Of this program; getrusage would count what the process was before it began."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _from_archive(name: str, place: str) -> list[list[Any]]:
    from virtgauge.exchange.place import open_place
    from virtgauge.exchange.query import Limits, ask

    return [list(row) for row in ask(open_place(place), Limits(), QUESTIONS[name]).rows]


def _report(place: str) -> dict[str, int]:
    """How many series and runs it has, and bytes."""
    from virtgauge.exchange.archive_page import archive_document
    from virtgauge.exchange.archive_series import find_archive_series
    from virtgauge.exchange.place import open_place
    from virtgauge.specs.suites import headline_measures

    found = find_archive_series(open_place(place), headline_measures(), 0.05)
    return {"series": len(found.series), "runs": len(found.runs), "bytes": len(archive_document(found).html())}


def _from_ledgers(run: Path, times: int) -> list[list[Any]]:
    from virtgauge.ledger.store import Ledger
    from virtgauge.results.table import ResultTable
    from virtgauge.specs.suites import find_measure

    by_arm: dict[str, list[float]] = {}
    for _ in range(times):
        with Ledger.open(run) as ledger:
            table, measure = ResultTable(ledger), find_measure("timing", _MEASURE)
            for cell, arm in itertools.product(table.cells("timing"), table.trials.arms):
                by_arm.setdefault(arm, []).extend(table.values(measure, cell, arm).values())
    return [[arm, statistics.median(values)] for arm, values in sorted(by_arm.items())]


if __name__ == "__main__":
    main(measure, __doc__, options)
