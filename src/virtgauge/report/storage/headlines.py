"""Each platform in one sentence: what sensors need, single values written, and what analyses need, many values read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from virtgauge.analysis.comparison import Judgement
from virtgauge.ledger.records import ArmRecord
from virtgauge.report import headline
from virtgauge.report.headline import Headline, Said, Tone, compared, tone_of
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
from virtgauge.report.words import ratio

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
    """One sentence for each arm; see :func:`virtgauge.report.headline.headlines`."""
    chosen = highlights(cells)
    told = [cell for cell in chosen if cell.key.operation in _VERBS] or chosen
    return headline.headlines(arms, lambda arm, against: _said(arm, against, told, cells))


def _said(arm: ArmRecord, against: str, told: Sequence[Cell], cells: Sequence[Cell]) -> Said:
    series = [(cell.key, own) for cell in told if (own := cell.of(arm.name)) is not None]
    measured = [(key, own) for key, own in series if own.missing is None]
    if not measured:
        tried = [own for cell in cells if (own := cell.of(arm.name)) is not None]
        reasons = [own.missing for own in tried if own.missing]
        return Said(reasons[0] if reasons else "not measured yet", Tone.MISSING)
    tone = tone_of((own.comparison for _, own in measured), better=Judgement.HIGHER)
    return Said(f"{_told(measured, against)}{_circumstances(measured)}", tone)


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
            beside = ""
            if against and series.comparison is not None:
                beside = f", {compared(series.comparison, name)}"
                name = ""  # once is enough
            said.append(f"{rate(series.rate.point)} ({database_title(key.database)}{beside})")
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


def _circumstances(measured: Sequence[tuple[Key, Series]]) -> str:
    limited = [key for key, series in measured if series.client_limited]
    return f"; {len(limited)} of these near the client’s own limit" if limited else ""
