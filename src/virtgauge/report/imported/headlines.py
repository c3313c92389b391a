"""Each platform in one sentence: the headline figures of its imported trials, beside the reference."""

from __future__ import annotations

from collections.abc import Sequence

from virtgauge.analysis.comparison import Judgement
from virtgauge.ledger.records import ArmRecord, TrialRecord
from virtgauge.report import headline
from virtgauge.report.headline import Headline, Measured, Said, Tone, compared, tone_of
from virtgauge.report.imported.formatting import point
from virtgauge.report.imported.model import Figure, Series
from virtgauge.report.trial_results import why_missing
from virtgauge.results.formatting import ratio_with_interval

_MOST_FIGURES = 3


def headlines(
    arms: Sequence[ArmRecord], figures: Sequence[Figure], trials: Sequence[TrialRecord]
) -> tuple[Headline, ...]:
    """One sentence for each arm; see :func:`virtgauge.report.headline.headlines`."""
    return headline.headlines(arms, lambda arm, against: _said(arm, against, figures, trials))


def _said(arm: ArmRecord, against: str, figures: Sequence[Figure], trials: Sequence[TrialRecord]) -> Said:
    own = [
        (figure, series)
        for figure in figures
        if figure.headline and (series := figure.of(arm.name)) is not None and series.estimate.point is not None
    ]
    if not own:
        tried = [trial for trial in trials if trial.arm == arm.name]
        return Said(why_missing(tried, "headline figure") if tried else "nothing was imported", Tone.MISSING)
    parts, name = [], f" {against}"
    for figure, series in own[:_MOST_FIGURES]:
        beside = ""
        if against and series.comparison is not None:
            beside = f", {compared(series.comparison, name)}"
            name = ""  # once is enough
        parts.append(f"{figure.measure} {point(figure, series.estimate)} ({figure.cell}{beside})")
    more = len(own) - _MOST_FIGURES
    if more > 0:
        parts.append(f"{more} more figure{'s' * (more > 1)} below")
    by_better = {
        better: tone_of((series.comparison for figure, series in own if figure.better == word), better=better)
        for word, better in (("lower", Judgement.LOWER), ("higher", Judgement.HIGHER))
    }
    tones = set(by_better.values())
    tone = next((one for one in (Tone.SLOWER, Tone.FASTER) if one in tones), Tone.SAME)
    return Said("; ".join(parts), tone, headline.figures(_measured(figure, series) for figure, series in own))


def _measured(figure: Figure, series: Series) -> Measured:
    """``completion.p99 1.20 ms``, ``completion.p99 1.31× (1.28–1.35×)``."""
    comparison = series.comparison

    def change() -> str:
        return ratio_with_interval(comparison.ratio) if comparison else ""

    return Measured(figure.measure, point(figure, series.estimate), comparison, change)
