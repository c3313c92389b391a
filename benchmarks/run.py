"""Measure virtgauge's own performance, and write RESULTS.md.

Examples:
  python benchmarks/run.py                      every benchmark, then RESULTS.md (some ten minutes)
  python benchmarks/run.py --list               their names
  python benchmarks/run.py --only agent-ready   one of them; the others keep their last figures
  python benchmarks/run.py --quick              a few repeats, printed only: does everything still work?
  python benchmarks/run.py --render             only write RESULTS.md anew

Each benchmark is a script of its own, with options of its own: python benchmarks/agent_ready.py --help
The machine should have nothing else to do meanwhile.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmark import FOLDER, ROOT, machine
from registry import BENCHMARKS, Benchmark
from results_page import of_machine, results_page

RECORDS = FOLDER / "results"
PAGE = FOLDER / "RESULTS.md"


def main() -> int:
    arguments = _arguments()
    if arguments.list:
        for benchmark in BENCHMARKS:
            print(f"{benchmark.name:16} {benchmark.title}")
        return 0
    if importlib.util.find_spec("virtgauge") is None:
        print("virtgauge is not installed in this Python: run `make setup`, then .venv/bin/python benchmarks/run.py")
        return 2
    chosen = [benchmark for benchmark in BENCHMARKS if not arguments.only or benchmark.name in arguments.only]
    failed = [] if arguments.render else _measure(chosen, quick=arguments.quick)
    if not arguments.quick:
        _write_page()
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    parser.add_argument(
        "--only", action="append", metavar="NAME", choices=[b.name for b in BENCHMARKS], help="may be repeated"
    )
    parser.add_argument("--quick", action="store_true", help="few repeats; keeps no figures")
    parser.add_argument("--render", action="store_true", help="measure nothing; write RESULTS.md from the records")
    return parser.parse_args()


def _measure(benchmarks: list[Benchmark], *, quick: bool) -> list[str]:
    """Run the scripts one after another; returns the names of those that failed, which keep their last record."""
    from virtgauge.agent.binary import ENVIRONMENT_VARIABLE, find_agent

    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as folder:
        # one agent for the whole run, though the checkout should be built anew meanwhile
        agent = shutil.copy(find_agent().path, folder)
        return _run_scripts(benchmarks, os.environ | {ENVIRONMENT_VARIABLE: str(agent)}, quick=quick)


def _run_scripts(benchmarks: list[Benchmark], environment: dict[str, str], *, quick: bool) -> list[str]:
    RECORDS.mkdir(exist_ok=True)
    failed = []
    for number, benchmark in enumerate(benchmarks, 1):
        print(f"\n[{number}/{len(benchmarks)}] {benchmark.name}: {benchmark.title}", flush=True)
        keep = ["--quick"] if quick else ["--json", str(_record(benchmark))]
        command = [sys.executable, str(FOLDER / benchmark.script), *keep]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
        if done.returncode:
            failed.append(benchmark.name)
    return failed


def _write_page() -> None:
    here = machine()
    found = {
        benchmark.name: json.loads(_record(benchmark).read_text(encoding="utf-8"))
        for benchmark in BENCHMARKS
        if _record(benchmark).is_file()
    }
    records = of_machine(found, here)
    for name in found.keys() - records.keys():
        print(f"{name} was last measured on another machine, and is left out")
    PAGE.write_text(results_page(BENCHMARKS, records, here), encoding="utf-8")
    print(f"\nwrote {PAGE.relative_to(ROOT)}: {len(records)} of {len(BENCHMARKS)} benchmarks")


def _record(benchmark: Benchmark) -> Path:
    return RECORDS / f"{benchmark.name}.json"


if __name__ == "__main__":
    sys.exit(main())
