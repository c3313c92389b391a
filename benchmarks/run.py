"""Measure virtgauge's own performance, and write RESULTS.md.

Examples:
  python benchmarks/run.py                      every benchmark, then RESULTS.md (some ten minutes)
  python benchmarks/run.py --list               their names
  python benchmarks/run.py --only agent-ready   one of them; the others keep their last figures
  python benchmarks/run.py --quick              a few repeats, printed only: does everything still work?

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
from typing import Any

from benchmark import FOLDER, ROOT
from registry import BENCHMARKS, Benchmark
from results_page import results_page

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
    failed = _measure(chosen, quick=arguments.quick)
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
    return parser.parse_args()


def _measure(benchmarks: list[Benchmark], *, quick: bool) -> list[str]:
    """Run the scripts one after another; returns the names of those that failed, which keep their last figures."""
    from virtgauge.agent import ENVIRONMENT_VARIABLE, find_agent

    failed = []
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as folder:
        # one agent for the whole run, though the checkout should be built anew meanwhile
        agent = shutil.copy(find_agent().path, folder)
        record = Path(folder, "record.json")
        for number, benchmark in enumerate(benchmarks, 1):
            print(f"\n[{number}/{len(benchmarks)}] {benchmark.name}: {benchmark.title}", flush=True)
            keep = ["--quick"] if quick else ["--json", str(record)]
            command = [sys.executable, str(FOLDER / benchmark.script), *keep]
            done = subprocess.run(command, cwd=ROOT, env=os.environ | {ENVIRONMENT_VARIABLE: str(agent)}, check=False)
            if done.returncode:
                failed.append(benchmark.name)
            elif not quick:
                _put(benchmark, json.loads(record.read_text(encoding="utf-8")))
    return failed


def _put(benchmark: Benchmark, record: dict[str, Any]) -> None:
    """At once, so that nothing measured is lost when a later benchmark is interrupted."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    PAGE.write_text(results_page(BENCHMARKS, page, {benchmark.name: record}), encoding="utf-8")
    print(f"\nput into {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
