"""One answer for each platform and suite: the figure that decides it, and whether it could have been resolved."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from virtgauge.analysis.comparison import COARSE, Resolution
from virtgauge.report.model import Report
from virtgauge.results.formatting import EVEN_CHANCE, NONE, even_chance, factor, joined, printable
from virtgauge.specs.headline import Headline, HeadlineFigure, Tone


@dataclasses.dataclass(frozen=True)
class Answer:
    """What one suite says of one platform."""

    platform: str  # its name in the plan
    suite: str  # its name
    tone: Tone  # how the platform stands beside the reference
    clauses: tuple[str, ...]  # the answer, the most important clause first: a line takes as many as it has room for
    # what the run could not tell and why, one clause each; empty where everything was resolved
    unresolved: tuple[str, ...]
    seen: str = ""  # of which difference there was an even chance in all other figures; empty where that is not known
    # the figure that the first clause rests on; None where nothing is compared with the reference
    decisive: HeadlineFigure | None = None
    proves: bool = True  # whether it could have shown any difference; not of too few repetitions, or without A/A

    @property
    def sentence(self) -> str:
        """All clauses: ``worse: usleep wakes 12.6× later (11.3–14.1×); no difference shown: clock_gettime (…)``."""
        return "; ".join(self.clauses)

    @property
    def smallest(self) -> str:
        """The smallest difference that could be shown, and where it could not; a dash of no comparison."""
        return "; ".join(filter(None, (self.seen, *(f"not resolved: {one}" for one in self.unresolved)))) or NONE

    def fitted(self, width: int) -> str:
        """The clauses that fit in so many columns; a first one that does not is cut."""
        text = self.sentence
        for number in range(len(self.clauses) - 1, 0, -1):
            if len(text) <= width:
                break
            text = f"{'; '.join(self.clauses[:number])}; …"
        return text if len(text) <= width else f"{text[: width - 1].rstrip(' ;')}…"


def answers(report: Report) -> list[Answer]:
    """One for every platform (not the A/A arm) in every suite, in the report's order; none of one that was skipped."""
    usable = {arm.record.name for arm in report.arms if arm.record.usable}
    return [
        _answer(suite.suite, headline, report.decisions.required_probes(suite.suite, headline.arm))
        for suite in report.suites
        for headline in suite.headlines
        if headline.arm in usable
    ]


@dataclasses.dataclass(frozen=True)
class IdenticalArms:
    """What the A/A pair allows this run to tell."""

    # identical arms agree, and beside them no headline figure is coarse; without any, the widest band of all cells is
    # no wider than :data:`COARSE`
    good: bool
    text: str  # in a few words, the smallest difference among them
    # headline figures whose A/A band is not known or above :data:`COARSE`, or of which no difference was shown and
    # one of that size had less than an even chance
    coarse: int
    figures: int  # of all that are ratios
    uncounted: int  # headline figures that are compared in a unit of their own


def identical_arms(report: Report) -> IdenticalArms:
    """For the badge of the page and the line in the terminal."""
    compared = [
        figure
        for suite in report.suites
        for headline in suite.headlines
        for figure in headline.figures
        if figure.resolution is not None
    ]
    found = [figure for figure in compared if figure.unit == "ratio"]
    coarse, uncounted, agreement = sum(map(_is_coarse, found)), len(compared) - len(found), report.agreement

    def said(good: bool, text: str) -> IdenticalArms:
        beside = f" ({uncounted} in points not counted)" if uncounted and agreement.ok else ""
        return IdenticalArms(good, text + beside, coarse, len(found), uncounted)

    if agreement.ok is None:
        return said(False, "A/A: not available")
    if not agreement.ok:
        return said(False, f"A/A differs in {agreement.excluding} of {agreement.cells} cells")
    widest = agreement.widest or 1.0
    if not found:
        return said(
            widest <= COARSE, f"A/A agrees within {factor(widest)}; no headline figure is compared by its ratio"
        )
    if coarse:
        none = sum(_is_coarse(one) and one.smallest is None for one in found)
        alone = sum(one.resolution is not None and one.resolution.band is None for one in found)
        if none == coarse == len(found):
            few = "too few repetitions to show any difference"
            why = "no headline figure has an interval of identical arms" if alone == none else few
            return said(False, f"A/A agrees within {factor(widest)}; {why}")
        reasons = ["too noisy", *["of too few repetitions"] * (none > alone)]
        reasons += ["without an interval of identical arms"] * (alone > 0)
        why = f"{joined(reasons, ', or ')}," if len(reasons) > 1 else reasons[0]
        text = f"A/A: {coarse} of {len(found)} headline figures {why} to show {factor(COARSE)}"
        return said(False, text)
    still_open = [one for one in found if _is_open(one)]
    if not still_open:  # all headline figures differ
        bands = [one.resolution.band for one in found if one.resolution is not None]
        return said(True, f"A/A ok, identical arms seem apart by at most {factor(max(filter(None, bands)))}")
    return said(True, f"A/A ok, {EVEN_CHANCE} {even_chance(_least(still_open))}")


def _least(figures: Sequence[HeadlineFigure]) -> Resolution:
    """What each of some figures resolves, in both directions."""
    found = [one.resolution for one in figures if one.resolution is not None]
    return Resolution(max(one.higher or 0.0 for one in found), max(one.lower or 0.0 for one in found), None, "")


def _is_open(figure: HeadlineFigure) -> bool:
    """Whether it is compared with the reference, and no difference was shown."""
    return figure.judgement is not None and not figure.shown


def _is_coarse(figure: HeadlineFigure) -> bool:
    found = figure.resolution
    limits = [found.band, *([found.smallest] if _is_open(figure) else [])] if found else []
    return any(limit is None or limit > COARSE for limit in limits)


def _answer(suite: str, headline: Headline, required: Sequence[str]) -> Answer:
    if headline.tone is Tone.MISSING or not headline.figures:
        return Answer(headline.arm, suite, headline.tone, (printable(headline.text.rstrip(".")),), ())
    places = {probe: place for place, probe in enumerate(required)}
    figures = sorted(headline.figures, key=lambda figure: places.get(figure.probe, len(places)))
    compared = [figure for figure in figures if figure.judgement is not None]
    if not compared:
        kind = f"{headline.mark}, not judged" if headline.tone is Tone.EMULATED else _KINDS[headline.tone]
        told = _after(kind, (f"{figure.name} {figure.value}" for figure in figures))
        return Answer(headline.arm, suite, headline.tone, tuple(map(printable, told)), ())
    shown = [one for one in compared if one.shown]
    coarse = [one for one in compared if one.unresolved]
    resolved = [one for one in compared if not one.shown and not one.unresolved]
    known = resolved or shown
    seen = even_chance(_least(known), known[0].unit) if known else ""
    # What is required, else what differs most; where nothing does, what was resolved least.
    same_first = compared[0].probe in places and not compared[0].shown
    first = compared[:1] if same_first else shown[:1]
    decisive = first[0] if first else max(resolved or coarse, key=_widest)
    unproven, wide = ([one for one in coarse if (one.smallest is None) is nothing] for nothing in (True, False))
    differing, alike = _differing(shown), [*_unproven(unproven), *_alike(compared, resolved, seen)]
    unresolved = [f"unresolved: {_listed(wide)}"] if wide else []
    # What is required comes first.
    if not same_first:
        clauses = [*differing, *alike, *unresolved]
    elif compared[0] in wide:
        clauses = [*unresolved, *alike, *differing]
    else:
        clauses = [*alike, *unresolved, *differing]
    unseen, proves = tuple(_unresolved(figures)), len(unproven) < len(compared)
    return Answer(headline.arm, suite, headline.tone, tuple(map(printable, clauses)), unseen, seen, decisive, proves)


def _widest(figure: HeadlineFigure) -> float:
    return math.inf if figure.resolution is None else figure.resolution.widest


_MOST_NAMES = 2  # Of figures of which no difference was shown; of more, how many they are
_KINDS = {
    # The word before figures that are not compared one by one.
    Tone.REFERENCE: "reference",
    Tone.ELSEWHERE: "on another computer, not judged",
    Tone.SLOWER: "partly worse",
    Tone.FASTER: "partly better",
    Tone.SAME: "",
}
_WORDS = {Tone.SLOWER: "worse", Tone.FASTER: "better", Tone.SAME: "different"}


def _differing(shown: Iterable[HeadlineFigure]) -> Iterator[str]:
    """Differences that were shown, in the order of the headline; each kind after the word for it."""
    for word, some in itertools.groupby(shown, lambda one: f"{'slightly ' * one.slight}{_WORDS[one.tone]}"):
        yield from _after(word, (f"{one.name} {one.change}" for one in some))


def _unproven(found: Sequence[HeadlineFigure]) -> Iterator[str]:
    """What can show nothing: of too few repetitions, or without an A/A arm; of a first look at least the figures."""
    yield from _after("not proven", (f"{one.name} {one.change}" for one in found if one.change))
    if bare := [one for one in found if not one.change]:
        yield f"no difference shown: {_listed(bare)}"


def _alike(compared: Sequence[HeadlineFigure], resolved: Sequence[HeadlineFigure], seen: str) -> Iterator[str]:
    """Of which figures no difference was shown, and which one would have been."""
    if resolved:  # the smallest difference is of those that it is told of
        few = f": {_listed(resolved)}" if len(resolved) <= _MOST_NAMES else f" in {len(resolved)} figures"
        where = "" if len(resolved) == len(compared) else few
        yield f"no difference shown ({EVEN_CHANCE} {seen}){where}"


def _after(word: str, clauses: Iterable[str]) -> Iterator[str]:
    """Clauses of one kind, the word for it before the first."""
    for place, clause in enumerate(clauses):
        yield f"{word}: {clause}" if word and place == 0 else clause


def _listed(found: Sequence[HeadlineFigure]) -> str:
    return ", ".join(dict.fromkeys(figure.name.rstrip(":") for figure in found))


def _unresolved(figures: Iterable[HeadlineFigure]) -> Iterator[str]:
    """Those of which no difference was shown, and one of :data:`COARSE` had less than an even chance."""
    for figure in figures:
        if figure.unresolved and (found := figure.resolution) is not None:
            reason = f"({printable(found.reason)})"
            size = "" if found.smallest is None else f": {EVEN_CHANCE} {even_chance(found)}"
            yield f"{printable(figure.name.rstrip(':'))}{size} {reason}"
