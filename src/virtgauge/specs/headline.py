"""Each platform in one sentence: how such sentences are ordered, and what all suites say alike in them."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Sequence

from virtgauge.analysis.comparison import COARSE, Comparison, Difference, Judgement, Resolution, resolution
from virtgauge.ledger.records import ArmRecord
from virtgauge.results.formatting import is_slight, ratio, ratio_interval
from virtgauge.results.measure import Better


class Tone(enum.StrEnum):
    """How a headline is to be taken."""

    REFERENCE = "reference"
    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"  # no difference shown
    EMULATED = "emulated"  # figures that must not be ranked
    ELSEWHERE = "elsewhere"  # nor those of another computer than the reference's
    MISSING = "missing"


@dataclasses.dataclass(frozen=True)
class HeadlineFigure:
    """One figure that a headline rests on, in words for a line of its own."""

    name: str  # ``usleep``
    value: str  # with its unit: ``wakes 62.1 µs``
    _: dataclasses.KW_ONLY
    change: str = ""  # beside the reference: ``wakes 12.6× later (11.3–14.1×)``; empty where it is not compared
    judgement: Judgement | None = None  # of the comparison; None where there is none
    resolution: Resolution | None = None  # what the comparison could have shown; None where there is none
    unit: str = "ratio"  # of the resolution: ``ratio``, or that of a difference
    probe: str = ""  # that measured it, where a suite's figures are of several
    # whether it is worse or better than the reference's; ``SAME`` where that was not shown, or neither is better
    tone: Tone = Tone.SAME
    slight: bool = False  # whether it is by so little that it seldom matters
    weight: float = 0.0  # what leads: how large a difference that was shown surely is, and how certain; 0 of any other

    @property
    def shown(self) -> bool:
        """Whether a difference from the reference was shown."""
        return self.judgement not in (None, Judgement.INCONCLUSIVE)

    @property
    def unresolved(self) -> bool:
        """Whether no difference was shown, and one of :data:`COARSE` had less than an even chance."""
        if self.judgement is not Judgement.INCONCLUSIVE or self.resolution is None:
            return False
        return self.smallest is None or (self.unit == "ratio" and self.smallest > COARSE)

    @property
    def smallest(self) -> float | None:
        """The smallest difference that could have been shown; None where none could, or nothing is compared."""
        return None if self.resolution is None else self.resolution.smallest


@dataclasses.dataclass(frozen=True)
class Headline:
    """One arm in one sentence, and the figures that it rests on: what differs most, and surely, first."""

    arm: str
    label: str
    tone: Tone
    text: str
    figures: tuple[HeadlineFigure, ...] = ()
    mark: str = "emulated"  # where ``tone`` is of figures that must not be ranked: the word for it


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a suite says of one arm."""

    text: str  # without its full stop
    # beside the reference: ``SLOWER``, ``FASTER`` or ``SAME``; ``MISSING`` when ``text`` is why there are no valid
    # figures
    tone: Tone
    figures: tuple[HeadlineFigure, ...] = ()  # that it rests on


def figure(
    name: str,
    value: str,
    found: Difference | None = None,
    change: str = "",
    known: Resolution | None = None,
    probe: str = "",
    better: Better = Better.LOWER,
) -> HeadlineFigure:
    """One figure of a headline, ``found`` beside the reference; ``known`` is the resolution beside anything else."""
    if found is None:
        return HeadlineFigure(name, value, resolution=known, probe=probe)
    said = better.says(found.judgement is Judgement.HIGHER) if found.distinguishable else ""
    return HeadlineFigure(
        name,
        value,
        change="" if found.estimate.point is None else change,
        judgement=found.judgement,
        resolution=resolution(found),
        unit=found.estimate.unit,
        probe=probe,
        tone={"worse": Tone.SLOWER, "better": Tone.FASTER}.get(said, Tone.SAME),
        slight=is_slight(found),
        weight=_weight(found),
    )


def _weight(found: Difference) -> float:
    """Of a difference that was shown: the end of its interval nearest to none, the less the wider that interval is.

    Of ratios on a logarithmic scale: 12.5× (11 to 14×) leads 59× (48 to 3280×), and that leads 1.009× (1.008 to 1.01×).
    """
    low, high = found.estimate.low, found.estimate.high
    if not found.distinguishable or low is None or high is None:
        return 0.0
    if isinstance(found, Comparison):
        low, high = math.log(low), math.log(high)
    return min(abs(low), abs(high)) / (1 + high - low)


def headlines(arms: Sequence[ArmRecord], say: Callable[[ArmRecord, str], Summary]) -> tuple[Headline, ...]:
    """One sentence per arm of the manifest (not the A/A arm), the reference first, emulated and skipped ones last.

    The second argument of ``say`` is what to call the reference: empty where figures are not to be compared with it, of
    the reference itself, of emulated arms, and of those on another computer.
    """
    reference = next((arm for arm in arms if arm.role == "reference"), None)
    made = [_headline(arm, reference, say) for arm in arms if arm.role != "aa"]
    order = {tone: 0 for tone in Tone} | {Tone.REFERENCE: -1, Tone.EMULATED: 1, Tone.MISSING: 2}
    return tuple(sorted(made, key=lambda headline: order[headline.tone]))


def _headline(arm: ArmRecord, reference: ArmRecord | None, say: Callable[[ArmRecord, str], Summary]) -> Headline:
    if not arm.usable:
        return Headline(arm.name, arm.label, Tone.MISSING, f"not measured: {arm.reason.rstrip('.')}.")
    elsewhere = reference is not None and arm.processor != reference.processor
    beside = None if arm.role == "reference" or arm.emulated or elsewhere else reference  # that it is compared with
    said = say(arm, "" if beside is None else "the host" if beside.kind == "host" else beside.label)
    tone, text = _taken(said, arm, elsewhere)
    own = sorted(said.figures, key=lambda one: -one.weight)
    if beside is None:
        own = [dataclasses.replace(one, change="", judgement=None, resolution=None) for one in own]
    return Headline(arm.name, arm.label, tone, f"{text}.", tuple(own), arm.mark)


def _taken(said: Summary, arm: ArmRecord, elsewhere: bool) -> tuple[Tone, str]:
    """How what is said of an arm is to be taken, and the sentence that says so, without its full stop."""
    if said.tone is Tone.MISSING:
        return said.tone, f"no valid figures: {said.text.rstrip('.')}"
    if arm.role == "reference":
        return Tone.REFERENCE, said.text
    if arm.emulated:
        return Tone.EMULATED, f"not ranked: {said.text}"
    if elsewhere:
        return Tone.ELSEWHERE, f"on another computer: {said.text}"
    return said.tone, said.text


def compared(comparison: Comparison, name: str) -> str:
    """``0.42× the host, 0.40–0.44×``, ``1.01× the host, 0.99–1.02×, no difference shown``.

    ``name`` is the reference's with a space before it; empty where it was named already.
    """
    change = comparison.ratio
    if change.point is None:
        return change.method
    interval = f", {ratio_interval(change)}" if change.has_interval else ""
    # Without an A/A pair nothing is proven; that is said once for all, beside the headlines.
    examined = change.has_interval and (comparison.band is not None or not change.excludes(1))
    shown = ", no difference shown" if examined and not comparison.distinguishable else ""
    return f"{ratio(change)}{name}{interval}{shown}"


def tone_of(found: Iterable[HeadlineFigure]) -> Tone:
    """Slower when any figure is worse than the reference's, else faster when any is better, else the same."""
    tones = {one.tone for one in found}
    return next((tone for tone in (Tone.SLOWER, Tone.FASTER) if tone in tones), Tone.SAME)
