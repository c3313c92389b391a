"""The catalogue of faults: simulated guests to which something happens, and what a report makes of it.

Each file of ``tests/faults/catalogue`` is a scenario: a plan, a fault (settings of the simulated platform over those
of the plan), the figures that are true of the guest, and the words by which the report is to name what happened.  The
same plan without the fault is the control: what it says too names nothing.
"""

from __future__ import annotations

import dataclasses
import enum
import html
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shown import shown
from suites import bandwidth_runs, forwarding_runs, isolation_runs, storage_runs
from suites.simulated_runs import execute, plan_of, report_of, simulated

from virtgauge.report import Report
from virtgauge.report.page import render_html
from virtgauge.specs.blocks import Value

FOLDER = Path(__file__).parent / "faults/catalogue"
TIMERS = {"timers": ["rdtsc"], "sleeps": [], "loads": ["idle"], "reads": 2000, "reservoir": 10}
BASES: dict[str, dict[str, Any]] = {
    "timing": TIMERS,
    "storage": storage_runs.QUICK | {"operations": ["single-write"]},
    "forwarding": forwarding_runs.QUICK | {"k": [3], "latency_loads": [50]},
    "isolation": isolation_runs.QUICK,
    "bandwidth": bandwidth_runs.QUICK,
}
REFERENCE, TEST = "reference", "test"


class Outcome(enum.StrEnum):
    """What a report made of a fault."""

    RIGHT = "right"  # what happened is named, or no figure is claimed, or all figures are true all the same
    MISSED = "missed"  # no figure is wrong, but what happened should be named and is not
    WRONG = "wrong"  # a figure is wrong, and nothing tells


@dataclasses.dataclass(frozen=True)
class Judged:
    """A report beside what it should be."""

    outcome: Outcome
    unsaid: tuple[str, ...]  # expected words that it has not, or that it would have without the fault
    false: tuple[str, ...]  # figures that it claims and that are not true
    claimed: int  # figures that it claims of those that the scenario knows


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One file."""

    path: Path
    told: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Scenario:
        return cls(path, tomllib.loads(path.read_text()))

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def expected(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.told["expect"]
        return found

    @property
    def outcome(self) -> Outcome:
        """What it is known to lead to; anything but ``right`` says in ``bound`` what can be relied on all the same."""
        return Outcome(self.expected.get("outcome", Outcome.RIGHT))

    @property
    def knows_figures(self) -> bool:
        """Whether it says which figures are true."""
        return bool(self.expected.get("figure"))

    def execute(self, folder: Path, *, fault: bool) -> Report:
        """The report of the run, with what happens in it or without."""
        suite, given = self.told["suite"], self.told.get("platform", {})
        changed = merged(given, self.told["fault"]) if fault else given
        platforms = [simulated(TEST, **{"seed": 2} | changed)]
        if "reference" in self.told:
            of_reference = self.told.get("reference_fault", {}) if fault else {}
            platforms.insert(0, simulated(REFERENCE, **{"seed": 3} | merged(self.told["reference"], of_reference)))
        design = BASES[suite] | self.told.get("design", {})
        known = {"repetitions": 6, "attempts": 1} | self.told.get("plan", {})
        execute(plan_of(*platforms, suite={suite: [design]}, **known), folder)
        return report_of(folder)

    def judge(self, faulty: Report, control: Report) -> Judged:
        """What the report of a run with the fault is, beside the one without."""
        said, anyway = words_of(faulty), words_of(control)
        unsaid = tuple(word for word in self.expected.get("says", ()) if not _says(said, word) or _says(anyway, word))
        figures = [one for figure in self.expected.get("figure", ()) for one in self._claims(faulty, figure)]
        false = tuple(text for text, true in figures if not true)
        named = bool(self.expected.get("says")) and not unsaid
        must_not = any("none" in figure for figure in self.expected.get("figure", ()))
        outcome = Outcome.RIGHT
        if false and (must_not or not named):
            outcome = Outcome.WRONG
        elif unsaid:
            outcome = Outcome.MISSED
        return Judged(outcome, unsaid, false, len(figures))

    def _claims(self, report: Report, figure: Mapping[str, Any]) -> list[tuple[str, bool]]:
        """Each figure of a measure that the report claims, and whether it is true."""
        suite, arm = self.told["suite"], figure.get("arm", TEST)
        found = shown(report, suite, figure["measure"], arm, *figure.get("levels", ()))
        claims = []
        for value in found:
            if not isinstance(value, Value):
                continue
            estimate = value.compared.ratio if figure.get("ratio") and value.compared else value.estimate
            if estimate.point is None:
                continue
            true = not figure.get("none", False) and _holds(estimate, figure["truth"], figure.get("within", 0.03))
            claims.append((f"{figure['measure']} = {estimate.point:.6g}, and not {figure.get('truth', 'any')}", true))
        return claims


def _says(text: str, words: str) -> bool:
    """Whether a text has these words whole: ``stalls_per_s`` of the plan or of the kernel's words tells no stall."""
    end = r"(?!\w)" if words[-1].isalnum() else ""
    return re.search(rf"(?<!\w){re.escape(words)}{end}", text) is not None


def _holds(estimate: Any, truth: float, within: float) -> bool:
    """The truth is in the interval, or so near the figure that it makes no difference."""
    if abs(estimate.point - truth) <= within * abs(truth):
        return True
    return estimate.low is not None and estimate.high is not None and bool(estimate.low <= truth <= estimate.high)


def words_of(report: Report) -> str:
    """What a reader of the page can read."""
    page = re.sub(r"<(script(?! type)|style)\b.*?</(script|style)>", " ", render_html(report), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Tables within tables of both; the second's values hold."""
    both = dict(first) | dict(second)
    for name in first.keys() & second.keys():
        if isinstance(first[name], Mapping) and isinstance(second[name], Mapping):
            both[name] = merged(first[name], second[name])
    return both


def scenarios() -> list[Scenario]:
    """All, by number."""
    return [Scenario.read(path) for path in sorted(FOLDER.glob("*.toml"))]


TABLE = """# Faults, and what a report makes of them

Made by `python tests/fault_catalogue.py > docs/faults.md`; do not edit. Each row is a scenario of
`tests/faults/catalogue`: simulated guests to which something happens, measured, recorded and reported as real
ones. The same plan without the fault is the control, and what its report says too does not count as naming the fault.

**Right**: the report names what happened, or claims no figure, or all its figures are true all the same. **Missed**: no
figure is wrong, but what happened is not named. **Wrong**: a figure is not true, and nothing tells.

A figure is true where it is within its tolerance of what the simulation was told (3 % unless a scenario says other), or
its interval holds that. A figure that is not true counts as right where the report names the fault, unless the
scenario forbids any figure.

The counts are of faults that were chosen, and of words that were settled after reading the reports: they are no
estimate of how often an unknown fault is named. The level of the test of a run's order is 5 %: of 3,600 simulated
runs each of exchangeable repetitions, of one measure or three (normal, heavy-tailed or with ties), it spoke in 3.3 %
(8 repetitions), 4.2 % (12) and 5.1 % (24). Of repetitions that follow one another (slow waves) it speaks more often:
they are not in random order either. A volatile cache is told where it completes more than 20,000 flushes a second, one
after another; a slower one looks like a disk, and only cutting the power tells.

"""


def table() -> str:
    """The page of the documentation."""
    found = scenarios()
    lines = ["| suite | right | missed | wrong |", "|---|--:|--:|--:|"]
    for suite in (*BASES, "all"):
        own = [one.outcome for one in found if suite in (one.told["suite"], "all")]
        lines.append(f"| {suite} | " + " | ".join(str(own.count(outcome)) for outcome in Outcome) + " |")
    lines += ["", "| | what happens | suite | outcome | the report says | what stays |", "|--:|---|---|---|---|---|"]
    for one in found:
        says = ", ".join(f"“{word}”" for word in one.expected.get("says", ())) if one.outcome is Outcome.RIGHT else ""
        bound = one.expected.get("bound", "")
        lines.append(
            f"| {int(one.name[:2])} | {one.told['title']} | {one.told['suite']} | {one.outcome} | {says} | {bound} |"
        )
    return TABLE + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
