"""The last screen of a run: the decision, what was not resolved and why, what to type next, and where the report is.

At most :data:`ROWS` rows at any width.  What does not fit is counted, and ``virtgauge report RUN --full`` shows it.
"""

from __future__ import annotations

import dataclasses
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from virtgauge.analysis.bounds import Outcome
from virtgauge.decisions.verdicts import Verdict
from virtgauge.ledger.records import TrialStatus
from virtgauge.report.answers import Answer, answers, identical_arms
from virtgauge.report.model import Report
from virtgauge.report.requirements import OUTCOMES, margin_text, more_text
from virtgauge.results.formatting import count, printable
from virtgauge.specs.headline import Tone

ROWS = 20
COLUMNS = 80
_UNBOUNDED = 10_000

_MOST_CAVEATS = 3
_MOST_REASONS = 3
_LONGEST_NAME = 16
_LEAST_ANSWERS, _LEAST_LIMITS, _MOST_LIMITS = 4, 2, 4  # Rows of these sections, whatever others need, and at most

MARKS = {
    Tone.REFERENCE: ("●", "bold"),
    Tone.SLOWER: ("▲", "red"),
    Tone.FASTER: ("▼", "green"),
    Tone.SAME: ("=", "default"),
    Tone.EMULATED: ("~", "yellow"),
    Tone.ELSEWHERE: ("~", "default"),
    Tone.MISSING: ("✗", "dim"),
}


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a run, as one types it."""

    run: str  # its folder
    page: str  # its HTML report
    written: bool  # whether that is there already
    plan: str | None  # its plan file; None where the run cannot be repeated (its trials were imported)
    program: str = "virtgauge"  # what starts this program


def print_last_screen(report: Report, place: Place, console: Console) -> None:
    """Print it as wide as the terminal is; where it is piped, no line is wrapped or cut."""
    for line in last_screen(report, place, console.width if console.is_terminal else _UNBOUNDED):
        console.print(line, soft_wrap=True)


def last_screen(report: Report, place: Place, width: int = COLUMNS) -> list[Text]:
    """The lines, of which only the commands and the last, the report's path, may be longer than ``width`` columns."""
    width = max(width, 40)
    head = [_cut(title(report), width, "bold"), *_caveats(report, width)]
    end = [*_next_steps(report, place), Text(f"report: {place.page}")]
    room = ROWS - len(head) - sum(max(1, -(-line.cell_len // width)) for line in end)
    full = f"{place.program} report {shlex.quote(place.run)} --full"
    told, limits = answers(report), [_cut(text, width, "yellow") for text in _limits(report)]
    least = min(len(told), _LEAST_ANSWERS) + min(len(limits), _LEAST_LIMITS)
    verdicts = _verdicts(report, max(room - least, 1), width, full)
    room -= len(verdicts)
    rows = _answers(told, room - min(len(limits), _LEAST_LIMITS), width, full)
    room -= len(rows)
    limits = _folded(limits, min(room, _MOST_LIMITS), "limits", width, full)
    room -= len(limits)
    lines = list(head)
    for section in (verdicts, rows, limits, end):
        if section and room > 0:
            lines.append(Text())
            room -= 1
        lines += section
    return lines


def title(report: Report) -> str:
    """``quick: 6 repetitions, 690 of 694 trials valid (not valid: steal ×4) · 54 not supported``."""
    course = "" if report.finished else "NOT FINISHED, "
    repetitions = count(report.blocks, "repetition")
    return f"{printable(report.run.plan_name)}: {course}{repetitions}, {validity_text(report)}"


def validity_text(report: Report) -> str:
    """Of the trials that were possible how many are valid, and why others are not; then how many were not possible."""
    counts: Counter[str] = Counter()
    for trial in report.trials.invalid() if report.valid < report.possible else ():
        if trial.status != TrialStatus.UNSUPPORTED:
            counts[trial.flags[0].partition(":")[0] if trial.flags and not trial.error else trial.status] += 1
    told = [f"{printable(name)} ×{number}" for name, number in counts.most_common(_MOST_REASONS)]
    reasons = ", ".join(told + ["…"] * (len(counts) > _MOST_REASONS))
    text = f"{report.valid} of {report.possible} trials valid"
    if reasons:
        text += f" (not valid: {reasons})"
    return f"{text} · {report.unsupported} not supported" if report.unsupported else text


def _caveats(report: Report, width: int) -> list[Text]:
    """What a reader must know before the figures, two rows each at most."""
    found = [row for one in report.caveats[:_MOST_CAVEATS] for row in _wrapped(f"! {printable(one)}", width, "yellow")]
    more = len(report.caveats) - _MOST_CAVEATS
    found += [_cut(f"! … {more} more caveats", width, "yellow")] * (more > 0)
    if report.agreement.ok:
        agrees = identical_arms(report)
        found += _wrapped(agrees.text, width, "green" if agrees.good else "yellow")
    return found


def _verdicts(report: Report, room: int, width: int, full: str) -> list[Text]:
    """Of each platform how many requirements it meets, and the figure that decides."""
    by_arm: dict[str, list[Verdict]] = {}
    for verdict in report.decisions.verdicts:
        if verdict.outcome is not None:
            by_arm.setdefault(verdict.arm, []).append(verdict)
    pairs = [_verdict_lines(report, arm, own, width) for arm, own in by_arm.items()]
    unjudged = sorted({one.arm for one in report.decisions.verdicts} - by_arm.keys())
    for arm in unjudged:
        record = report.arm(arm).record
        why = record.mark or "on another computer than the reference"
        why = why if record.usable else f"skipped: {printable(record.reason)}"
        pairs.append([_cut(f"– {printable(arm)} is not judged: {why}", width)])
    if sum(map(len, pairs)) > room:
        pairs = [pair[:1] for pair in pairs]
    return _folded([line for pair in pairs for line in pair], room, "platforms", width, full)


def _verdict_lines(report: Report, arm: str, verdicts: Sequence[Verdict], width: int) -> list[Text]:
    """``✓ runc meets 6 of 6 requirements``, and below it the one that decides, or would."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    outcome = next(one for one in OUTCOMES if counts[one])
    of = count(len(verdicts), "requirement")
    said = f"{printable(arm)} meets {counts[Outcome.PASS]} of {of}"
    said += f", fails {counts[Outcome.FAIL]}" if counts[Outcome.FAIL] else ""
    said += f", {counts[Outcome.INCONCLUSIVE]} undecided" if counts[Outcome.INCONCLUSIVE] else ""
    word, style, *_ = OUTCOMES[outcome]
    deciding = [one for one in verdicts if one.outcome is outcome]
    worst = min(deciding, key=lambda one: (one.decisive.margin if one.decisive else None) or 0.0)
    telling = more_text(worst) or worst.reason if outcome is Outcome.INCONCLUSIVE else margin_text(worst.decisive)
    parts = [report.decisions.figure(worst), telling]
    closest = "closest: " if outcome is Outcome.PASS else ""
    detail = f"    {closest}{worst.requirement}: {'; '.join(part for part in parts if part and part != '–')}"
    return [_cut(f"{word[0]} {said}", width, style), _cut(printable(detail), width)]


def _answers(told: Sequence[Answer], room: int, width: int, full: str) -> list[Text]:
    """A row for each; where there is no room for all, those that say least go first."""
    kept = list(told)
    if len(kept) > room:
        never = (Tone.EMULATED, Tone.ELSEWHERE, Tone.MISSING)
        least = (Tone.REFERENCE, Tone.SAME, *never, Tone.FASTER, Tone.SLOWER)
        leaving = sorted(range(len(kept)), key=lambda place: (least.index(kept[place].tone), -place))
        gone = set(leaving[: len(kept) - max(room - 1, 0)])
        kept = [answer for place, answer in enumerate(kept) if place not in gone]
    platform = max((min(cell_len(one.platform), _LONGEST_NAME) for one in kept), default=0)
    suite = max((cell_len(one.suite) for one in kept), default=0)
    rows = []
    for one in kept:
        mark, style = MARKS[one.tone]
        name = one.platform if cell_len(one.platform) <= _LONGEST_NAME else f"{one.platform[: _LONGEST_NAME - 1]}…"
        row = Text(f"{mark} ", style=style)
        row.append(f"{printable(name):{platform}}  {one.suite:{suite}}  ", style="not bold default")
        row.append(one.fitted(width - row.cell_len))
        rows.append(row)
    return rows + _more(len(told) - len(kept), "answers", width, full) * (room > 0)


def _limits(report: Report) -> Iterator[str]:
    """What the run does not tell, and why: platforms that were skipped, and figures without resolving power."""
    for arm in report.arms:
        if not arm.record.usable and arm.record.role != "aa":
            yield f"skipped {printable(arm.record.name)}: {printable(arm.record.reason)}"
    several = len(report.suites) > 1
    for answer in answers(report):
        for clause in answer.unresolved if answer.proves else ():  # the caveats say why
            yield f"not resolved: {printable(answer.platform)}{f' {answer.suite}' * several} {clause}"


def _next_steps(report: Report, place: Place) -> list[Text]:
    """What to type next, the most helpful first; the whole report always is the last."""
    fleet = "fleet " if report.hosts else ""
    run = shlex.quote(place.run)
    steps = []
    if not report.finished:
        steps.append(f"{place.program} {fleet}resume {run}")
    elif place.plan is not None and not fleet and (wanted := _more_repetitions(report)):
        steps.append(f"{place.program} run {shlex.quote(place.plan)} --repetitions {wanted}")
    if not place.written:
        steps.append(f"{place.program} report {run} --format html")
    steps.append(f"{place.program} report {run} --full")
    return [Text(f"{'next:' if place == 0 else '     '} {step}") for place, step in enumerate(steps)]


def _more_repetitions(report: Report) -> int | None:
    """How many would decide what is undecided, or show smaller differences; None where more would not help."""
    undecided = [one for one in report.decisions.verdicts if one.outcome is Outcome.INCONCLUSIVE and one.more]
    if undecided:
        return report.blocks + max(one.more or 0 for one in undecided)
    identical = any(arm.record.role == "aa" and arm.record.usable for arm in report.arms)
    unresolved = identical and any(answer.unresolved for answer in answers(report))
    return 2 * max(report.blocks, 3) if unresolved and report.blocks else None


def _folded(lines: list[Text], room: int, what: str, width: int, full: str) -> list[Text]:
    """As many as there is room for, and how many more there are."""
    if len(lines) <= room:
        return lines
    kept = lines[: max(room - 1, 0)]
    return kept + _more(len(lines) - len(kept), what, width, full) * (room > 0)


def _more(number: int, what: str, width: int, full: str) -> list[Text]:
    if number <= 0:
        return []
    counted = f"… {number} more {what if number > 1 else what.removesuffix('s')}"
    text = f"{counted}: {full}"
    return [Text(text if cell_len(text) <= width else counted, style="dim")]


def _cut(text: str, width: int, style: str = "") -> Text:
    """A text in one row, cut where it is too long."""
    line = Text(text, style=style)
    line.truncate(width, overflow="ellipsis")
    return line


def _wrapped(text: str, width: int, style: str) -> list[Text]:
    """A text in two rows at most."""
    rows = textwrap.wrap(text, width, subsequent_indent="  ", max_lines=2, placeholder=" …")
    return [_cut(row, width, style) for row in rows]
