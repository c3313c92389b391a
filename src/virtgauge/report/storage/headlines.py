"""Each platform in one sentence: what sensors need, single values written, and what analyses need, many values read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from virtgauge.analysis.comparison import Judgement
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.headline import Headline, Tone
from virtgauge.report.storage.model import Cell, Key, Series
from virtgauge.report.storage.vocabulary import (
    LEVELS,
    MULTI_READ,
    PLAIN,
    SHORT_LEVELS,
    SINGLE_WRITE,
    clients_words,
    database_title,
    device_words,
    rate,
)
from virtgauge.report.words import ratio, ratio_interval

_MOST_DATABASES = 3
_VERBS = {SINGLE_WRITE: "stores", MULTI_READ: "reads"}
_NOUNS = {SINGLE_WRITE: "single values", MULTI_READ: "rows"}


def highlights(cells: Sequence[Cell]) -> list[Cell]:
    """The cells for a first look: of one client, at the strongest level, with the flush profile that most have."""
    plain = [cell for cell in cells if cell.key.operation in PLAIN and cell.key.usual]
    measured = [cell for cell in plain if any(series.missing is None for series in cell.series)] or plain
    if not measured:
        return []
    fewest = min(cell.key.clients for cell in measured)
    own = [cell for cell in measured if cell.key.clients == fewest]
    level = next((level for level in reversed(LEVELS) if any(cell.key.durability == level for cell in own)), "")
    of_level = [cell for cell in own if cell.key.durability == level] or own
    profiles = Counter(cell.key.flushes for cell in of_level)
    flushes = max(profiles, key=profiles.__getitem__)
    return [cell for cell in of_level if cell.key.flushes == flushes]


def headlines(arms: Sequence[ArmRecord], cells: Sequence[Cell]) -> tuple[Headline, ...]:
    """One sentence per arm of the plan (not the A/A arm), the reference first, emulated and skipped ones last."""
    chosen = highlights(cells)
    told = [cell for cell in chosen if cell.key.operation in _VERBS] or chosen
    reference = next((arm for arm in arms if arm.role == "reference"), None)
    made = [_headline(arm, reference, told, cells) for arm in arms if arm.role != "aa"]
    order = {tone: 0 for tone in Tone} | {Tone.REFERENCE: -1, Tone.EMULATED: 1, Tone.MISSING: 2}
    return tuple(sorted(made, key=lambda headline: order[headline.tone]))


def _headline(arm: ArmRecord, reference: ArmRecord | None, told: Sequence[Cell], cells: Sequence[Cell]) -> Headline:
    def say(tone: Tone, text: str) -> Headline:
        return Headline(arm.name, arm.label, tone, f"{text}.")

    if not arm.usable:
        return say(Tone.MISSING, f"not measured: {arm.reason.rstrip('.')}")
    series = [(cell.key, own) for cell in told if (own := cell.of(arm.name)) is not None]
    measured = [(key, own) for key, own in series if own.missing is None]
    if not measured:
        tried = [own for cell in cells if (own := cell.of(arm.name)) is not None]
        reasons = [own.missing for own in tried if own.missing]
        return say(Tone.MISSING, f"no valid figures: {reasons[0].rstrip('.') if reasons else 'not measured yet'}")
    against = "" if reference is None or arm.role == "reference" or arm.emulated else _name(reference)
    text = f"{_told(measured, against)}{_circumstances(measured)}"
    if arm.role == "reference":
        return say(Tone.REFERENCE, text)
    if arm.emulated:
        return say(Tone.EMULATED, f"not ranked: {text}")
    return say(_tone([own for _, own in measured]), text)


def _name(reference: ArmRecord) -> str:
    return "the host" if reference.kind == "host" else reference.label


def _told(measured: Sequence[tuple[Key, Series]], against: str) -> str:
    """``stores 1,200/s single values (PostgreSQL, 0.91× the host, 0.90–0.93×), …; reads …``."""
    parts = []
    name = f" {against}"
    if against and len({key.database for key, _ in measured}) > _MOST_DATABASES - 1:
        return _range(measured, against)
    for operation in dict.fromkeys(key.operation for key, _ in measured):
        of_operation = [(key, series) for key, series in measured if key.operation == operation]
        said = []
        for key, series in of_operation[:_MOST_DATABASES]:
            compared = ""
            if against and series.comparison is not None:
                compared = f", {_compared(series, name)}"
                name = ""  # once is enough
            said.append(f"{rate(series.rate.point)} ({database_title(key.database)}{compared})")
        more = len(of_operation) - _MOST_DATABASES
        if more > 0:
            said.append(f"{more} more database{'s' * (more > 1)} below")
        verb, noun = _VERBS.get(operation, operation), _NOUNS.get(operation, "")
        parts.append(f"{verb} {noun}{' at ' if noun else ''}{', '.join(said)}")
    return f"{'; '.join(parts)} ({_where(measured[0][0])})"


def _where(key: Key) -> str:
    """``1 client, flushed``."""
    level = SHORT_LEVELS.get(key.durability, key.durability)
    return f"{clients_words(key.clients)}, {level}{device_words(key.flushes)}"


def _range(measured: Sequence[tuple[Key, Series]], against: str) -> str:
    """Of several databases the least and the most: ``stores 0.65× (Cassandra) to 0.76× (MongoDB) of the host’s …``."""
    parts = []
    for operation in dict.fromkeys(key.operation for key, _ in measured):
        ratios = {
            database_title(key.database): series.comparison.ratio
            for key, series in measured
            if key.operation == operation and series.comparison and series.comparison.ratio.point is not None
        }
        if ratios:
            least, most = (choose(ratios, key=lambda name: ratios[name].point or 0.0) for choose in (min, max))
            ends = f"{ratio(ratios[least])} ({least}) to {ratio(ratios[most])} ({most})"
            verb, noun = _VERBS.get(operation, operation), _NOUNS.get(operation, "")
            parts.append(f"{verb} {ends} of {against}’s {noun}")
    undecided = [key for key, series in measured if series.comparison and not series.comparison.distinguishable]
    if undecided:
        parts.append(f"no difference shown in {len(undecided)} of {len(measured)} figures")
    return f"{'; '.join(parts)} ({_where(measured[0][0])})"


def _compared(series: Series, name: str) -> str:
    assert series.comparison is not None
    change = series.comparison.ratio
    if change.point is None:
        return change.method
    interval = f", {ratio_interval(change)}" if change.has_interval else ""
    examined = change.has_interval and (series.comparison.band is not None or not change.excludes(1))
    shown = ", no difference shown" if examined and not series.comparison.distinguishable else ""
    return f"{ratio(change)}{name}{interval}{shown}"


def _circumstances(measured: Sequence[tuple[Key, Series]]) -> str:
    limited = [key for key, series in measured if series.client_limited]
    return f"; {len(limited)} of these near the client’s own limit" if limited else ""


def _tone(series: Sequence[Series]) -> Tone:
    """Slower when it stores or reads less anywhere, else faster when more anywhere, else the same."""
    judgements = {one.comparison.judgement for one in series if one.comparison is not None}
    if Judgement.LOWER in judgements:
        return Tone.SLOWER
    return Tone.FASTER if Judgement.HIGHER in judgements else Tone.SAME
