"""Time, memory and size of a report over 10³ to 10⁶ trials, and of other suites: report_scale.py over each run."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmark import FOLDER, BenchmarkError, Outcome, main, progress, spread

_SCRIPT = FOLDER / "report_scale.py"
_AIM_TRIALS = (10_000, 1_000_000)
_SUITES = ("isolation", "storage", "forwarding")  # Beside timing
_MOST_REPEATED = 100_000
"""Trials; the report of a larger run takes minutes, and is made once."""

_FIGURES = {
    "total_s": re.compile(r"^report\.html total +([\d.]+) s", re.M),
    "imports_s": re.compile(r"^imports +([\d.]+) s", re.M),
    "analysis_s": re.compile(r"^analysis +([\d.]+) s", re.M),
    "page_s": re.compile(r"^page +([\d.]+) s", re.M),
    "size_mb": re.compile(r"^page .* ([\d.]+) MB", re.M),
    "peak_mib": re.compile(r"^peak memory +([\d.]+) MiB", re.M),
}


_ROWS = (
    ("report.html, s", "total_s", "≤ 2.5", "≤ 30"),
    ("of that: imports, s", "imports_s", "", ""),
    ("of that: analysis, s", "analysis_s", "", ""),
    ("of that: page and figures, s", "page_s", "", ""),
    ("report.html, MB", "size_mb", "≤ 5", "≤ 5"),
    ("peak memory, MiB", "peak_mib", "≤ 191", "≤ 954"),
)
"""Title, figure, and the aims at the numbers of trials above (200 MB and 1 GB of memory)."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--suites", nargs="*", choices=_SUITES, default=_SUITES, help="a run of each, of 10,000 trials")
    parser.add_argument("--repeats", type=int, default=5, help="of each report of up to 100,000 trials; one beyond")


def measure(arguments: argparse.Namespace) -> Outcome:
    repeats = 1 if arguments.quick else arguments.repeats
    sizes = arguments.trials[:2] if arguments.quick else arguments.trials
    runs = [("timing", wanted) for wanted in sizes]
    runs += [(suite, sizes[0] if arguments.quick else _AIM_TRIALS[0]) for suite in arguments.suites]
    found = dict(_measured(*run, repeats) for run in runs)
    return Outcome(
        columns=("figure", *found, *(f"aim, {size:,} trials" for size in _AIM_TRIALS)),
        rows=[[title, *(spread(own[name]) for own in found.values()), *aims] for title, name, *aims in _ROWS],
        meaning="A report from the first import to the written page, by the number of trials.",
        notes=[
            f"Synthetic runs of 10 arms × 18 cells, a million reads a trial; {repeats} reports of each, each in a "
            f"fresh process, beyond {_MOST_REPEATED:,} trials one. Beyond 10,000 trials those are repeated as later "
            "repetitions. Of other suites 3 to 5 arms. No peer: the aim stands beside it.",
        ],
        values=found,
    )


def _measured(suite: str, wanted: int, repeats: int) -> tuple[str, dict[str, list[float]]]:
    """What trials the run has in the end, as ``10,284 trials``, ``10,250 of isolation``, and its reports' figures."""
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as scratch:
        folder = Path(scratch) / "run"
        progress(f"writing a run of {wanted:,} trials of {suite}, and its first report")
        # its report warms caches up
        output = _script("--suite", suite, "--trials", str(wanted), "--keep", str(folder))
        trials = re.search(r"^trials +(\d+)", output, re.M)
        if trials is None:
            raise BenchmarkError(f"report_scale.py does not say how many trials it made: {output}")
        title = f"{int(trials[1]):,} {'trials' if suite == 'timing' else f'of {suite}'}"
        if wanted > _MOST_REPEATED:
            return title, {name: [value] for name, value in report_figures(output).items()}
        found: dict[str, list[float]] = {name: [] for name in _FIGURES}
        for repeat in range(1, repeats + 1):
            for name, value in report_figures(_script("--of", str(folder))).items():
                found[name].append(value)
            progress(f"{repeat}/{repeats}: {found['total_s'][-1]:.2f} s, {found['size_mb'][-1]:.2f} MB")
    return title, found


def report_figures(output: str) -> dict[str, float]:
    """The figures of report_scale.py's output.

    Raises:
        BenchmarkError: one is missing, as when the script has come to print otherwise.
    """
    found = {name: pattern.search(output) for name, pattern in _FIGURES.items()}
    if missing := [name for name, match in found.items() if match is None]:
        raise BenchmarkError(f"report_scale.py no longer prints {', '.join(missing)}: {output}")
    return {name: float(match[1]) for name, match in found.items() if match is not None}


def _script(*words: str) -> str:
    command = [sys.executable, str(_SCRIPT), *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"report_scale.py failed: {done.stderr.strip()[-500:]}")
    return done.stdout


if __name__ == "__main__":
    main(measure, __doc__, options)
