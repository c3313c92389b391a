"""Each platform in one sentence: how such sentences are ordered, and what all suites say alike in them."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Sequence

from virtgauge.analysis.comparison import Comparison, Judgement
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.words import ratio, ratio_interval


class Tone(enum.StrEnum):
    """How a headline is to be taken."""

    REFERENCE = "reference"
    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"  # no difference shown
    EMULATED = "emulated"  # figures that must not be ranked
    MISSING = "missing"


@dataclasses.dataclass(frozen=True)
class Headline:
    """One arm in one sentence."""

    arm: str
    label: str
    tone: Tone
    text: str


@dataclasses.dataclass(frozen=True)
class Said:
    """What a suite says of one arm.

    Attributes:
        text: without its full stop.
        tone: beside the reference: ``SLOWER``, ``FASTER`` or ``SAME``; ``MISSING`` when ``text`` is why there are no
            valid figures.
    """

    text: str
    tone: Tone


def headlines(arms: Sequence[ArmRecord], say: Callable[[ArmRecord, str], Said]) -> tuple[Headline, ...]:
    """One sentence per arm of the plan (not the A/A arm), the reference first, emulated and skipped ones last.

    Args:
        arms: of the manifest.
        say: what is said of a usable arm; its second argument is what to call the reference, empty where figures are
            not to be compared with it: of the reference itself and of emulated arms.
    """
    reference = next((arm for arm in arms if arm.role == "reference"), None)
    made = [_headline(arm, reference, say) for arm in arms if arm.role != "aa"]
    order = {tone: 0 for tone in Tone} | {Tone.REFERENCE: -1, Tone.EMULATED: 1, Tone.MISSING: 2}
    return tuple(sorted(made, key=lambda headline: order[headline.tone]))


def _headline(arm: ArmRecord, reference: ArmRecord | None, say: Callable[[ArmRecord, str], Said]) -> Headline:
    if not arm.usable:
        return Headline(arm.name, arm.label, Tone.MISSING, f"not measured: {arm.reason.rstrip('.')}.")
    apart = reference is None or arm.role == "reference" or arm.emulated
    said = say(arm, "" if apart or reference is None else reference_name(reference))
    tone, text = said.tone, said.text
    if tone is Tone.MISSING:
        text = f"no valid figures: {text.rstrip('.')}"
    elif arm.role == "reference":
        tone = Tone.REFERENCE
    elif arm.emulated:
        tone, text = Tone.EMULATED, f"not ranked: {text}"
    return Headline(arm.name, arm.label, tone, f"{text}.")


def reference_name(reference: ArmRecord) -> str:
    """What the reference is called within a sentence."""
    return "the host" if reference.kind == "host" else reference.label


def compared(comparison: Comparison, name: str) -> str:
    """``0.42× the host, 0.40–0.44×``, ``1.01× the host, 0.99–1.02×, no difference shown``.

    Args:
        comparison: with the reference.
        name: of the reference with a space before it; empty where it was named already.
    """
    change = comparison.ratio
    if change.point is None:
        return change.method
    interval = f", {ratio_interval(change)}" if change.has_interval else ""
    # Without an A/A pair nothing is proven; that is said once for all, beside the headlines.
    examined = change.has_interval and (comparison.band is not None or not change.excludes(1))
    shown = ", no difference shown" if examined and not comparison.distinguishable else ""
    return f"{ratio(change)}{name}{interval}{shown}"


def tone_of(comparisons: Iterable[Comparison | None], *, better: Judgement) -> Tone:
    """Slower when anything is judged worse, else faster when anything is better, else the same.

    Args:
        comparisons: with the reference; those that do not exist say nothing.
        better: ``HIGHER`` for rates, ``LOWER`` for durations.
    """
    judgements = {one.judgement for one in comparisons if one is not None} - {Judgement.INCONCLUSIVE}
    if judgements - {better}:
        return Tone.SLOWER
    return Tone.FASTER if judgements else Tone.SAME
