"""Time, memory and size of a report over 10,000 trials: report_scale.py several times over the same run."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmark import FOLDER, BenchmarkError, Outcome, main, progress, spread

_SCRIPT = FOLDER / "report_scale.py"
_AIM_S = 5.0
_AIM_MB = 5.0

_FIGURES = {
    "total_s": re.compile(r"^report\.html total +([\d.]+) s", re.M),
    "imports_s": re.compile(r"^imports +([\d.]+) s", re.M),
    "analysis_s": re.compile(r"^analysis +([\d.]+) s", re.M),
    "page_s": re.compile(r"^page +([\d.]+) s", re.M),
    "size_mb": re.compile(r"^page .* ([\d.]+) MB", re.M),
    "peak_mib": re.compile(r"^peak memory +([\d.]+) MiB", re.M),
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", type=int, default=10_000, help="in the synthetic run")
    parser.add_argument("--repeats", type=int, default=5, help="of the report, each in a fresh process")


def measure(arguments: argparse.Namespace) -> Outcome:
    repeats = 1 if arguments.quick else arguments.repeats
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as scratch:
        folder = Path(scratch) / "run"
        progress(f"writing a run of {arguments.trials} trials, and its first report")
        output = _script("--trials", str(arguments.trials), "--keep", str(folder))  # its report warms caches up
        trials = re.search(r"^trials +(\d+)", output, re.M)
        if trials is None:
            raise BenchmarkError(f"report_scale.py does not say how many trials it made: {output}")
        found: dict[str, list[float]] = {name: [] for name in _FIGURES}
        for repeat in range(1, repeats + 1):
            for name, value in report_figures(_script("--of", str(folder))).items():
                found[name].append(value)
            progress(f"{repeat}/{repeats}: {found['total_s'][-1]:.2f} s, {found['size_mb'][-1]:.2f} MB")
    return Outcome(
        columns=("figure", "ours", "aim"),
        rows=[
            ["report.html, s", spread(found["total_s"]), f"≤ {_AIM_S:g}"],
            ["of that: imports, s", spread(found["imports_s"]), ""],
            ["of that: analysis, s", spread(found["analysis_s"]), ""],
            ["of that: page and figures, s", spread(found["page_s"]), ""],
            ["report.html, MB", spread(found["size_mb"]), f"≤ {_AIM_MB:g}"],
            ["peak memory, MiB", spread(found["peak_mib"]), ""],
        ],
        meaning=f"A report over {int(trials[1])} trials, from the first import to the written page.",
        notes=[
            f"Synthetic run of 10 arms × 18 cells, a million reads a trial; {repeats} reports, each in a fresh "
            "process. No peer: the aim stands beside it.",
        ],
        values=found,
    )


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
