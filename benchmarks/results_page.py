"""RESULTS.md: a section for each benchmark, as its script wrote it.  Nobody edits a figure by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmark import markdown_table
from registry import Benchmark

Record = Mapping[str, Any]

_HEAD = """# Benchmarks

Written by `python benchmarks/run.py`; not edited. A figure is a median, with the smallest and the largest in brackets.
Ratios are ours over the peer's, made pair by pair from measurements that took turns; below 1 virtgauge is faster. The
last line of a section says where and when it was measured: figures of two machines are not to be compared, their ratios
are.
"""


def results_page(benchmarks: Sequence[Benchmark], page: str, records: Mapping[str, Record]) -> str:
    """The page with new sections in the place of old ones.

    Args:
        benchmarks: in the order of the page; sections of others are dropped.
        page: as it was; empty for none.
        records: what was measured anew, by the benchmark's name.
    """
    sections = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)+)", page, re.MULTILINE))
    sections |= {each.title: _section(records[each.name]) for each in benchmarks if each.name in records}
    told = [f"## {each.title}\n{sections[each.title].rstrip()}\n" for each in benchmarks if each.title in sections]
    return "\n".join([_HEAD, *told])


def _section(record: Record) -> str:
    lines = ["", record["meaning"], "", markdown_table(record["columns"], record["rows"]), ""]
    lines += [f"- {note}" for note in record["notes"]]
    if record["peers"]:
        lines.append("- Peers: " + "; ".join(f"{name} {version}" for name, version in record["peers"].items()) + ".")
    lines.append(
        f"- `{record['command']}` · {record['date']} · commit {record['commit']} · "
        f"load average {record['load_before']:g} when it began · took {record['took_s']:.0f} s · {record['machine']}"
    )
    return "\n".join(lines) + "\n"
