"""The storage paper's conclusions, tested on its own Tables IV and V and on this run's figures by the same tests.

A run's figure with its interval over repetitions agrees when the whole interval lies within what the conclusion says,
and contradicts when the whole interval lies outside; else it does not decide.  The paper's tables have one figure a
cell, which is taken as it is.  Emulated processors decide nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from virtgauge.analysis.comparison import unpaired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.reference import storage_claims as claims
from virtgauge.reference.storage_claims import Claim
from virtgauge.report.storage.claim_figures import Figures, OurFigures, PaperFigures, Place, grouped_ratio
from virtgauge.report.storage.model import StorageClaim
from virtgauge.report.storage.paper_cells import Places
from virtgauge.report.storage.results import Results
from virtgauge.report.storage.vocabulary import SHORT_LEVELS
from virtgauge.report.verdicts import Evidence, ExaminedClaim, verdict_of, within
from virtgauge.report.words import ratio, ratio_interval


def examined_claims(places: Places, results: Results, nominal: float) -> tuple[StorageClaim, ...]:
    """Every conclusion of the paper, in its order."""
    paper = PaperFigures()
    run = OurFigures(places, results, nominal)
    level = next(places.equal_levels(), None)
    equal = OurFigures(places, results, nominal, level) if level else None
    return tuple(
        StorageClaim(
            paper=_examined(claim, paper),
            run=_examined(claim, run),
            equal=_examined(claim, equal) if equal and claim.ranking else None,
            level=SHORT_LEVELS[level] if level else "",
        )
        for claim in claims.storage_claims()
    )


def on_paper() -> tuple[ExaminedClaim, ...]:
    """Every conclusion, on Tables IV and V."""
    figures = PaperFigures()
    return tuple(_examined(claim, figures) for claim in claims.storage_claims())


def _examined(claim: Claim, figures: Figures) -> ExaminedClaim:
    evidence: dict[str, Evidence] = {}
    deciding: list[Evidence] = []
    for test in claim.tests:
        heard = {one.text: one for one in _hear(test, figures)}
        evidence |= heard
        # What holds of one server is not left open for want of the other; a comparison of the two is.
        deciding += [one for one in heard.values() if one.text not in figures.lacking] or list(heard.values())
    found = tuple(evidence.values())
    return ExaminedClaim(claim.name, claim.place, claim.text, claim.note, verdict_of(deciding), found)


def _hear(test: claims.Test, figures: Figures) -> Iterator[Evidence]:
    match test:
        case claims.Untestable():
            yield Evidence.none(test.reason)
        case claims.Order():
            yield from _order(test, figures)
        case claims.Ratio():
            yield from _ratio(test, figures)
        case claims.Spread():
            yield from _spread(test, figures)
        case claims.Alike():
            yield from _alike(test, figures)
        case claims.Effect():
            yield _effect(test, figures)
        case claims.Peak():
            yield from _peak(test, figures)
        case claims.NoSingleBest():
            yield from _no_single_best(test, figures)
        case claims.Index():
            yield from _index(test, figures)
        case claims.IndexInteraction():
            yield from _index_interaction(test, figures)
        case claims.QuickFlushes():
            yield _quick_flushes(test, figures)


# -- tests -------------------------------------------------------------------------------------------


def _order(test: claims.Order, figures: Figures) -> Iterator[Evidence]:
    pairs = [(test.databases[0], other) for other in test.databases[1:]]
    if not test.first:
        pairs = list(itertools.pairwise(test.databases))
    for place in _places(test, without="database"):
        for faster, slower in pairs:
            yield _judged(place.at(database=faster), place.at(database=slower), figures, 1.0, None, "database")


def _ratio(test: claims.Ratio, figures: Figures) -> Iterator[Evidence]:
    judged = [
        _judged(
            place.at(**{test.factor: test.of}), place.at(**{test.factor: test.to}), figures, *_bounds(test), test.factor
        )
        for place in _places(test, without=test.factor)
    ]
    if test.count == "all":
        yield from judged
        return
    known = [one for one in judged if one.measured]
    if not known:
        yield judged[0]
        return
    agreeing, open_ones = (sum(one.agrees is verdict for one in known) for verdict in (True, None))
    text = f"in {agreeing} of {len(known)} cells" + (f", {open_ones} undecided" if open_ones else "")
    needed = len(known) / 2 if test.count == "most" else 0
    agrees = True if agreeing > needed else None if agreeing + open_ones > needed else False
    yield Evidence(f"{text} {_wanted(*_bounds(test))}", agrees)


def _spread(test: claims.Spread, figures: Figures) -> Iterator[Evidence]:
    for place in _places(test, without="database"):
        found = figures.spread(place, test.databases)
        text = f"{place.words('database')}, fastest over slowest"
        if test.than is not None:
            other = figures.spread(place.at(operation=test.than), test.databases)
            found, text = unpaired_ratio(found, other), f"{text}, over that of {test.than}s"
        if found.point is None:
            yield Evidence.none(found.method)
        else:
            yield Evidence(f"{text}: {_figure(found)}", within(found, test.at_least, test.at_most))


def _alike(test: claims.Alike, figures: Figures) -> Iterator[Evidence]:
    of, to = _levels_of(test.factor)
    for place in _places(test, without="database", and_without=test.factor):
        changes = {}
        for database in test.databases:
            at = place.at(database=database)
            changes[database] = figures.ratio(at.at(**{test.factor: of}), at.at(**{test.factor: to}))
        missing = next((one.method for one in changes.values() if one.point is None), None)
        if missing:
            yield Evidence.none(missing)
            continue
        told = ", ".join(f"{name} {_figure(one)}" for name, one in changes.items())
        lows = [one.low for one in changes.values() if one.low]
        highs = [one.high for one in changes.values() if one.high]
        agrees = None
        if len(lows) == len(highs) == len(changes):
            widest, least = max(highs) / min(lows), max(lows) / min(highs)
            agrees = True if widest <= test.at_most else False if least > test.at_most else None
        yield Evidence(f"{place.words(test.factor)}: {told}", agrees)


def _effect(test: claims.Effect, figures: Figures) -> Evidence:
    """How strongly the factor acts: the mean of |log ratio| over all places where every database has both figures."""
    of, to = _levels_of(test.factor)
    sizes: dict[str, list[Estimate]] = {name: [] for name in test.databases}
    for place in _places(test, without="database", and_without=test.factor):
        found = {
            name: figures.ratio(
                place.at(database=name, **{test.factor: of}), place.at(database=name, **{test.factor: to})
            )
            for name in test.databases
        }
        if all(one.point for one in found.values()):
            for name, one in found.items():
                sizes[name].append(one)
    if not sizes[test.database]:
        return Evidence.none("no figures of all databases at both levels")
    means = {name: grouped_ratio(of_one) for name, of_one in sizes.items()}
    told = ", ".join(f"{name} {_figure(one)}" for name, one in means.items())
    own = means[test.database]
    agreement = [
        _above(other, own) if test.smaller else _above(own, other)
        for name, other in means.items()
        if name != test.database
    ]
    agrees = False if False in agreement else None if None in agreement else True
    cells = len(sizes[test.database])
    return Evidence(f"changed, up or down, by {told} over {cells} cell{'s' * (cells != 1)}", agrees)


def _above(one: Estimate, other: Estimate) -> bool | None:
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return None
    return True if one.low > other.high else False if one.high < other.low else None


def _peak(test: claims.Peak, figures: Figures) -> Iterator[Evidence]:
    for place in _places(test, without="clients"):
        rises, falls = figures.around(place, test.at_clients)
        if rises.point is None or falls.point is None:
            yield Evidence.none((rises if rises.point is None else falls).method)
            continue
        agreement = [within(rises, 1, None, strictly=True), within(falls, None, 1, strictly=True)]
        agrees = False if False in agreement else None if None in agreement else True
        text = f"{place.words('clients')}: {_figure(rises)} up to {test.at_clients} clients, {_figure(falls)} beyond"
        yield Evidence(text, agrees)


def _no_single_best(test: claims.NoSingleBest, figures: Figures) -> Iterator[Evidence]:
    for server, clients in itertools.product(test.servers, test.clients):
        if server in figures.lacking.values():
            continue
        best = {}
        for operation in test.operations:
            place = Place("", operation, server, clients)
            rates = {name: figures.middle(place.at(database=name)) for name in test.databases}
            known = {name: value for name, value in rates.items() if value is not None}
            if len(known) == len(rates):
                best[operation] = max(known, key=lambda name: known[name])
        where = f"{server}, {_clients(clients)}"
        if len(best) < len(test.operations):
            yield Evidence.none(f"{where}: not every database was measured in both")
        else:
            told = ", ".join(f"{name} at {operation}s" for operation, name in best.items())
            yield Evidence(f"{where}: {told}", len(set(best.values())) > 1)


def _index(test: claims.Index, figures: Figures) -> Iterator[Evidence]:
    for place in (place for place in _places(test) if place.clients == "1"):
        found = figures.with_index(place)
        if found.point is None:
            yield Evidence.none(found.method)
        else:
            yield Evidence(f"{place.words()}, with ÷ without: {_figure(found)}", within(found, *_bounds(test)))


def _index_interaction(test: claims.IndexInteraction, figures: Figures) -> Iterator[Evidence]:
    for place in (place for place in _places(test, without="server") if place.clients == "1"):
        with_index, without = figures.server_effects_by_index(place)
        if with_index.point is None or without.point is None:
            missing = with_index if with_index.point is None else without
            yield Evidence.none(missing.method)
            continue
        text = f"{place.words('server')}: virtual ÷ physical {_figure(with_index)} with, {_figure(without)} without"
        yield Evidence(text, _above(grouped_ratio([with_index]), grouped_ratio([without])))


def _quick_flushes(test: claims.QuickFlushes, figures: Figures) -> Evidence:
    found, what = figures.quick_flushes(Place(test.databases[0], test.operations[0], "physical", "1"))
    if found.point is None:
        return Evidence.none(found.method)
    return Evidence(f"{what}: {_figure(found)}", within(found, *_bounds(test)))


# -- places and words --------------------------------------------------------------------------------


def _places(
    test: claims.Order
    | claims.Ratio
    | claims.Spread
    | claims.Alike
    | claims.Effect
    | claims.Peak
    | claims.Index
    | claims.IndexInteraction,
    without: str = "",
    and_without: str = "",
) -> list[Place]:
    """Every combination of the test's levels; of a factor that is left out, the first alone."""

    def levels(name: str, all_levels: Sequence[str]) -> Sequence[str]:
        return all_levels[:1] if name in (without, and_without) else all_levels

    return [
        Place(database, operation, server, clients)
        for operation in levels("operation", test.operations)
        for clients in levels("clients", test.clients)
        for server in levels("server", test.servers)
        for database in levels("database", test.databases)
    ]


def _levels_of(factor: str) -> tuple[str, str]:
    return ("virtual", "physical") if factor == "server" else ("many", "1")


def _judged(
    of: Place, to: Place, figures: Figures, at_least: float | None, at_most: float | None, factor: str
) -> Evidence:
    found = figures.ratio(of, to)
    where = of.words(factor)
    if found.point is None:
        return Evidence.none(found.method)
    strictly = (at_least, at_most) in ((1, None), (None, 1))
    named = f"{of.level(factor)} ÷ {to.level(factor)}"
    return Evidence(f"{where}, {named}: {_figure(found)}", within(found, at_least, at_most, strictly=strictly))


def _bounds(
    test: claims.Ratio | claims.Spread | claims.Index | claims.QuickFlushes,
) -> tuple[float | None, float | None]:
    return test.at_least, test.at_most


def _wanted(at_least: float | None, at_most: float | None) -> str:
    said = [f"above {at_least:g}×"] if at_least is not None else []
    return " and ".join(said + ([f"below {at_most:g}×"] if at_most is not None else []))


def _clients(clients: str) -> str:
    return "1 client" if clients == "1" else "many clients"


def _figure(estimate: Estimate) -> str:
    if estimate.low is None or estimate.low == estimate.high:
        return ratio(estimate)
    return f"{ratio(estimate)} ({ratio_interval(estimate)})"
