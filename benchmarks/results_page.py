"""RESULTS.md from the records that the benchmarks wrote.  Nobody edits a figure by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmark import markdown_table
from registry import Benchmark

Record = Mapping[str, Any]

_HEAD = """# Benchmarks

Written by `python benchmarks/run.py` from the records in `benchmarks/results/`; not edited. A figure is a median, with
the smallest and the largest in brackets. Ratios are ours over the peer's, made pair by pair from measurements that took
turns; below 1 virtgauge is faster.
"""


def results_page(benchmarks: Sequence[Benchmark], records: Mapping[str, Record], machine: Mapping[str, str]) -> str:
    """The page.

    Args:
        benchmarks: in the order of the page.
        records: by the benchmark's name; one from another machine must not be among them (:func:`of_machine`).
        machine: that all records are from.
    """
    parts = [_HEAD, markdown_table(("machine", ""), list(machine.items())) + "\n"]
    parts += [_section(benchmark, records[benchmark.name]) for benchmark in benchmarks if benchmark.name in records]
    return "\n".join(parts)


def of_machine(records: Mapping[str, Record], machine: Mapping[str, str]) -> dict[str, Record]:
    """The records of one machine: figures of two machines do not stand on one page."""
    return {name: record for name, record in records.items() if record["machine"] == machine}


def _section(benchmark: Benchmark, record: Record) -> str:
    lines = [f"## {benchmark.title}", "", record["meaning"], ""]
    lines += [markdown_table(record["columns"], record["rows"]), ""]
    lines += [f"- {note}" for note in record["notes"]]
    if record["peers"]:
        lines.append("- Peers: " + "; ".join(f"{name} {version}" for name, version in record["peers"].items()) + ".")
    lines.append(
        f"- `{record['command']}` · {record['date']} · commit {record['commit']} · "
        f"load average {record['load_before']:g} when it began · took {record['took_s']:.0f} s"
    )
    return "\n".join(lines) + "\n"
