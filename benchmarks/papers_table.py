"""The tables of docs/papers-measured.md: each testable conclusion of the papers, with verdict and figures by platform.

    virtgauge export RUN --format json --out run.json
    python benchmarks/papers_table.py run.json > docs/papers-measured.md

Several runs may be given, one for each paper: a suite's section is made of the last that measured it.  With ``--keep
docs/papers-measured.md`` the sections of that page stay whose suite none of them measured.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

VERDICTS = ("confirmed", "contradicted", "undecided here", "not testable here")
"""A conclusion is contradicted if any platform contradicts it, else undecided if any is, else confirmed."""
MOST_FIGURES = 2  # of one verdict; what more there are is counted

HEAD = """\
# The papers' conclusions, measured

Made by `python benchmarks/papers_table.py` from the run that each section names; do not edit. How to read a
verdict, and what decides one: [papers.md](papers.md); which of them not to believe, and why:
[what second readers found](papers.md#what-second-readers-found). One row is what one platform says, or all of them
together where a conclusion compares them. A conclusion that no platform could test is counted and left out: a
run's report names the reason.
"""


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN.json", help="documents of `virtgauge export`")
    parser.add_argument("--keep", type=Path, metavar="PAGE", help="a page whose other sections stay as they are")
    asked = parser.parse_args()
    sections = _sections_of(asked.keep.read_text(encoding="utf-8")) if asked.keep else {}
    for run in (json.loads(path.read_text(encoding="utf-8")) for path in asked.runs):
        for suite in dict.fromkeys(claim["suite"] for claim in run["claims"]):
            if any(cell["suite"] == suite for cell in run["cells"]):
                sections[suite.capitalize()] = "\n".join(_section(suite, run))
    print(HEAD)
    print("\n\n".join(sections[name] for name in sorted(sections)))


def _sections_of(page: str) -> dict[str, str]:
    """The sections of a page by their headings."""
    return {part.split("\n", 1)[0]: f"## {part.strip()}" for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]}


def _told_run(run: dict[str, Any]) -> str:
    about, trials = run["run"], {row["trial"]: row["validity"] for row in run["rows"]}
    measured = {row["arm"] for row in run["rows"] if row["validity"] == "valid"}
    repetitions = len({row["block"] for row in run["rows"]})
    counts = Counter(trials.values())
    unsupported = f", {counts['unsupported']} not supported" if counts["unsupported"] else ""
    tried = f"{counts['valid']} of {len(trials) - counts['unsupported']} trials valid{unsupported}"
    cpu = about["fingerprint"].get("identity", {})
    arms = ", ".join(arm["label"] for arm in run["arms"] if arm["arm"] in measured and arm["role"] != "aa")
    return (
        f"`{about['plan']}`, {about['created_at'][:10]}, version {about['version']}, "
        f"{cpu.get('cpu_count', '?')} x {cpu.get('cpu_model', 'unknown processor')}: "
        f"{repetitions} repetitions, {tried}. Measured: {arms}."
    )


def _section(suite: str, run: dict[str, Any]) -> Iterable[str]:
    labels = {arm["arm"]: arm["label"] for arm in run["arms"]}
    claims: dict[str, list[dict[str, Any]]] = {}
    for claim in run["claims"]:
        if claim["suite"] == suite and not claim["at_one_level"]:
            claims.setdefault(claim["claim"], []).append(claim)
    counts = Counter(_verdict(said) for said in claims.values())
    tested = {name: said for name, said in claims.items() if _verdict(said) != VERDICTS[3]}
    yield f"## {suite.capitalize()}"
    yield ""
    yield _told_run(run)
    yield ""
    partly = sum(_verdict(said) == VERDICTS[1] and VERDICTS[2] in _verdicts(said) for said in claims.values())
    of_these = {VERDICTS[1]: f" ({partly} of these undecided on other platforms)" if partly else ""}
    told = ", ".join(f"{counts[one]} {one}{of_these.get(one, '')}" for one in VERDICTS)
    yield f"{len(claims)} conclusions: {told}."
    if tested:
        yield ""
        yield "| conclusion | where | platform | verdict | figures | the paper's own |"
        yield "|---|---|---|---|---|---|"
    for said in tested.values():
        first = True
        for one in (one for one in said if one["verdict"] != VERDICTS[3]):
            said_there = f"{one['text']} *{one['note']}*" if one["note"] else one["text"]
            conclusion = (_cell(said_there), _cell(one["place"])) if first else ("", "")
            arm = labels.get(one["arm"], one["arm"]) or "all"
            on_paper = one["verdict_on_paper"].removesuffix(" here")
            row = (*conclusion, arm, f"**{one['verdict']}**", _figures(one["evidence"]), on_paper)
            yield "| " + " | ".join(row) + " |"
            first = False


def _verdict(said: Sequence[dict[str, Any]]) -> str:
    found = _verdicts(said)
    return next((VERDICTS[at] for at in (1, 2, 0) if VERDICTS[at] in found), VERDICTS[3])


def _verdicts(said: Sequence[dict[str, Any]]) -> set[str]:
    return {one["verdict"] for one in said}


def _figures(evidence: Sequence[str]) -> str:
    more = len(evidence) - MOST_FIGURES
    return "<br>".join(map(_cell, evidence[:MOST_FIGURES])) + (f"<br>and {more} more" if more > 0 else "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    main()
