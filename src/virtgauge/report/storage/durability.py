"""What each level of durability costs, whether it holds, and how much of the databases' ranking it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import paired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.storage.durability_share import durability_share, spread
from virtgauge.ledger.records import ArmRecord, TrialStatus
from virtgauge.report.storage.model import CrashFigures, DurabilityRow, DurabilityShare, Key, SpreadLevel
from virtgauge.report.storage.results import Results, settings_of
from virtgauge.report.storage.vocabulary import (
    CRASH,
    LEVELS,
    PAPER_LEVELS,
    SHORT_LEVELS,
    SINGLE_WRITE,
    database_title,
    device_words,
    strength_of,
)
from virtgauge.report.trial_results import why_missing
from virtgauge.report.words import ratio, ratio_interval, share

MIXED_LEVELS = "mixed"


def durability_rows(results: Results, arms: Sequence[ArmRecord], nominal: float) -> tuple[DurabilityRow, ...]:
    """Every level that was tried, the weakest of a database first."""
    rows: list[DurabilityRow] = []
    for arm in (arm for arm in arms if arm.usable and arm.role != "aa"):
        own = [key for key in results.keys if results.tried(key, arm.name) and (key.writes or key.operation == CRASH)]
        for database in dict.fromkeys(key.database for key in own):
            for flushes in dict.fromkeys(key.flushes for key in own if key.database == database):
                keys = [key for key in own if (key.database, key.flushes) == (database, flushes)]
                rows += _levels_of(results, arm.name, keys, nominal)
    return tuple(rows)


def _levels_of(results: Results, arm: str, keys: Sequence[Key], nominal: float) -> Iterator[DurabilityRow]:
    below = ""
    rates_below: dict[int, float] = {}
    for level in sorted({key.durability for key in keys}, key=strength_of):
        of_level = [key for key in keys if key.durability == level]
        writing = _usual_write(results, arm, of_level)
        rates = results.rates(writing, arm) if writing else {}
        if not any(results.counted(key, arm) for key in of_level):
            continue  # named once, with the reason, under what was not measured
        audited = [trial for key in of_level for trial in results.counted(key, arm).items()]
        price = paired_ratio(rates, rates_below, nominal) if below else Estimate.missing("ratio", "the weakest level")
        flushes, flush_ns = (
            results.scalar(writing, arm, field) if writing else {}
            for field in ("flushes_per_operation", "mean_flush_ns")
        )
        yield DurabilityRow(
            arm=arm,
            database=of_level[0].database,
            durability=level,
            flushes=of_level[0].flushes,
            operation=writing.operation if writing else "",
            settings=settings_of(dict(audited)),
            flushes_per_operation=median_estimate(list(flushes.values()), "flushes", nominal),
            mean_flush_ns=median_estimate(list(flush_ns.values()), "ns", nominal)
            if flush_ns
            else Estimate.missing("ns", "no flush was timed"),
            server=_crashes(results, arm, of_level, "server"),
            machine=_crashes(results, arm, of_level, "machine"),
            rate=median_estimate(list(rates.values()), writing.unit if writing else "", nominal),
            below=below,
            price=price,
        )
        if rates:
            below, rates_below = level, rates


def _usual_write(results: Results, arm: str, keys: Sequence[Key]) -> Key | None:
    """Single writes by the fewest clients, else many at once."""
    having = [key for key in keys if key.writes and key.usual and results.tried(key, arm)]
    return min(having, key=lambda key: (key.operation != SINGLE_WRITE, key.clients), default=None)


def _crashes(results: Results, arm: str, keys: Sequence[Key], of: str) -> CrashFigures:
    """All audits after a kind of crash together."""
    chosen = [key for key in keys if key.operation == CRASH and (key.of or "server") == of]
    tried = [trial for key in chosen for trial in results.tried(key, arm)]
    audits = [trial.result for trial in tried if trial.status is TrialStatus.VALID]
    if not audits:
        return CrashFigures(0, 0, 0, 0, None, why_missing(tried, "audit") if tried else "not asked for")

    def total(field: str) -> int:
        return sum(int(audit.get(field) or 0) for audit in audits)

    ages = [float(age) for audit in audits if (age := audit.get("newest_lost_ms")) is not None]
    return CrashFigures(
        crashes=len(audits),
        acknowledged=total("acknowledged_rows"),
        missing=total("missing_rows"),
        wrong=total("wrong_rows"),
        newest_lost_ns=max(ages) * 1e6 if ages else None,
        reason="",
    )


def ranking_shares(results: Results, arms: Sequence[ArmRecord], nominal: float) -> tuple[DurabilityShare, ...]:
    """How much of the paper's ranking is durability, for every arm and flush profile where it can be told.

    An emulated processor ranks nothing, and so explains no ranking.
    """
    found = []
    for arm in (arm for arm in arms if arm.usable and arm.role != "aa" and not arm.emulated):
        keys = [
            key
            for key in results.keys
            if key.operation == SINGLE_WRITE and key.usual and key.clients == 1 and results.rates(key, arm.name)
        ]
        for flushes in dict.fromkeys(key.flushes for key in keys):
            placed = {(database_title(key.database), key.durability): key for key in keys if key.flushes == flushes}
            one = _share_of(results, arm.name, flushes, placed, nominal)
            if one is not None:
                found.append(one)
    return tuple(found)


def _share_of(
    results: Results, arm: str, flushes: str, placed: Mapping[tuple[str, str], Key], nominal: float
) -> DurabilityShare | None:
    mixture = {name: level for name, level in PAPER_LEVELS.items() if (name, level) in placed}
    if len(mixture) < 2:
        return None

    def rates_at(levels: Mapping[str, str]) -> dict[str, dict[int, float]]:
        return {name: results.rates(placed[name, level], arm) for name, level in levels.items()}

    mixed = _spread(MIXED_LEVELS, mixture, rates_at(mixture), None, nominal)
    equal = []
    for level in reversed(LEVELS):
        same = {name: level for name in mixture if (name, level) in placed}
        if len(same) == len(mixture):
            equal.append(_spread(level, same, rates_at(same), mixed.spread.point, nominal))
    sentence = _sentence(mixed, equal, flushes)
    return DurabilityShare(arm, flushes, mixed, tuple(equal), sentence)


def _spread(
    name: str,
    levels: Mapping[str, str],
    rates: Mapping[str, Mapping[int, float]],
    mixed: float | None,
    nominal: float,
) -> SpreadLevel:
    """The spread is formed within each repetition, so that what its databases have in common cancels."""
    blocks = sorted(set.intersection(*(set(one) for one in rates.values())))
    by_block = [[one[block] for one in rates.values()] for block in blocks]
    spreads = [spread(one) for one in by_block if min(one) > 0]
    found = median_estimate(spreads, "ratio", nominal)
    middles = {
        database: median_estimate(list(one.values()), "", nominal).point or 0.0 for database, one in rates.items()
    }
    share_taken = None if mixed is None or found.point is None else durability_share(mixed, found.point)
    fastest, slowest = (choose(middles, key=lambda one: middles[one]) for choose in (max, min))
    return SpreadLevel(name, dict(levels), fastest, slowest, found, share_taken)


def _sentence(mixed: SpreadLevel, equal: Sequence[SpreadLevel], flushes: str) -> str:
    """How much of the ranking is durability, at the strongest level that all have in common."""
    own = ", ".join(f"{name} {SHORT_LEVELS[level]}" for name, level in mixed.levels.items())
    device = device_words(flushes)
    text = (
        f"At the paper’s levels ({own}{device}) {mixed.fastest} stores {_times(mixed.spread)} as many single values a "
        f"second as {mixed.slowest}"
    )
    if not equal:
        return f"{text}; they have no level in common here, so how much of that is durability cannot be told."
    best = equal[0]
    text += f"; all {SHORT_LEVELS[best.durability]}, the spread is {_times(best.spread)}"
    return f"{text}: durability is {share(best.share)} of that ranking." if best.share is not None else f"{text}."


def _times(estimate: Estimate) -> str:
    interval = f" ({ratio_interval(estimate)})" if estimate.has_interval else ""
    return f"{ratio(estimate)}{interval}"
