"""JSON results of TRex and of tools that drive it: a trial for each search, fixed load and timed load.

Sources: ``ndr_testbed.py`` and ``STLClient.get_stats`` of trex-core (27e0153b), ``traffic_client.py`` of NFVbench
(8ecfd4c8), ``test_case.schema.yaml`` of FD.io's CSIT (model 1.5.1).  Rates are of both directions together.
"""

from __future__ import annotations

import datetime
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from hdrh.codec import HdrCookieException, HdrHistogramSettingsException, HdrLengthException
from hdrh.histogram import HdrHistogram
from pydantic import AliasPath, BaseModel, BeforeValidator, Field

from virtgauge.exchange.imports.foreign_trial import (
    Count,
    ForeignTrial,
    NotNegative,
    Repetition,
    histogram_of_bins,
    moment,
    read_document,
    refused,
    undated,
    validated,
)
from virtgauge.ledger.records import Histogram

PROBE = "trex"
REMEDY = "give the JSON of TRex's `ndr --stl -o FILE` or get_stats(), of `nfvbench --json FILE`, or of a CSIT test case"

_NOTHING_FOUND = "no load was found that meets the search's criteria"


def _at(*path: str) -> Any:
    return Field(validation_alias=AliasPath(*path))


class _Group(BaseModel):
    """Latency of a packet group in µs: by lower edges of TRex's own bins; with ``--hdrh`` to three digits."""

    total_min: NotNegative
    total_max: NotNegative
    histogram: dict[Count, Count] = {}
    hdrh: str = ""


class _Bench(BaseModel):
    title: Annotated[str, _at("results", "title")]
    tx_pps: Annotated[NotNegative, _at("results", "tx_pps")]
    rate_percent: Annotated[NotNegative, _at("results", "rate_p")]
    lost_percent: Annotated[NotNegative, _at("results", "drop_rate_percentage")]
    valid_latency: Annotated[bool, _at("results", "valid_latency")] = True
    groups: Annotated[dict[str, _Group], _at("results", "latency")] = {}
    elapsed_s: Annotated[NotNegative, _at("results", "Elapsed Time")]
    allowed_percent: Annotated[NotNegative, _at("config", "pdr")]
    bi_dir: Annotated[bool, _at("config", "bi_dir")] = False


class _GroupStats(BaseModel):
    latency: _Group | None = None  # the entry "global" has none


class _Stats(BaseModel):
    sent: Annotated[int, Field(gt=0), _at("total", "opackets")]
    came: Annotated[Count, _at("total", "ipackets")]
    latency: dict[str, _GroupStats] = {}


class _Search(BaseModel):
    rate_pps: NotNegative
    elapsed_s: Annotated[NotNegative, _at("time_taken_sec")] = 0.0
    lost_percent: Annotated[NotNegative, _at("stats", "overall", "drop_percentage")]
    min_us: Annotated[NotNegative, _at("stats", "overall", "min_delay_usec")]
    max_us: Annotated[NotNegative, _at("stats", "overall", "max_delay_usec")]
    mean_us: Annotated[NotNegative, _at("stats", "overall", "avg_delay_usec")]
    hdrh: Annotated[str | int, _at("stats", "overall", "hdrh")] = ""  # 0 where nothing was found


class _FrameSize(BaseModel):
    ndr: _Search | None = None
    pdr: _Search | None = None
    offered_pps: Annotated[NotNegative | None, _at("run_config", "direction-total", "orig", "rate_pps")] = None
    received_pps: Annotated[NotNegative | None, _at("run_config", "direction-total", "rx", "rate_pps")] = None
    lost_percent: Annotated[NotNegative | None, _at("stats", "overall", "drop_rate_percent")] = None
    hdrh: Annotated[str, _at("stats", "overall", "hdrh")] = ""


def _without_warning(sizes: Any) -> Any:
    return {size: one for size, one in sizes.items() if size != "warning"} if isinstance(sizes, dict) else sizes


class _Chain(BaseModel):
    flows: Annotated[Count, _at("result", "flow_count")]
    chains: Annotated[Count, _at("result", "service_chain_count")]
    sizes: Annotated[dict[str, _FrameSize], BeforeValidator(_without_warning), _at("result", "result")]


class _Nfvbench(BaseModel):
    date: datetime.datetime
    version: Annotated[str, _at("nfvbench_version")]
    duration_s: Annotated[NotNegative, _at("config", "duration_sec")] = 0.0
    allowed: Annotated[dict[str, float], _at("config", "measurement")] = {}
    chains: Annotated[dict[str, _Chain], _at("benchmarks", "network", "service_chain")]


class _Rate(BaseModel):
    value: NotNegative
    unit: Literal["pps"]


class _Timed(BaseModel):
    hdrh: str
    unit: Literal["us"]


class _Case(BaseModel):
    version: str
    test_name_long: str
    passed: bool
    message: str = ""
    tg_type: str
    tg_version: str
    start_time: datetime.datetime
    duration: NotNegative
    ndr: Annotated[_Rate | None, _at("result", "ndr", "lower", "rate")] = None
    pdr: Annotated[_Rate | None, _at("result", "pdr", "lower", "rate")] = None
    soak: Annotated[_Rate | None, _at("result", "critical_rate", "lower", "rate")] = None
    received_pps: Annotated[NotNegative | None, _at("result", "receive_rate", "rate", "avg")] = None
    received_unit: Annotated[Literal["pps"], _at("result", "receive_rate", "rate", "unit")] = "pps"
    forward: Annotated[dict[str, _Timed], _at("result", "latency_forward")] = {}
    reverse: Annotated[dict[str, _Timed], _at("result", "latency_reverse")] = {}


def read_trex(path: Path) -> Repetition:
    """One result. Raises UsageError: it is none, or holds no figure."""
    document, source = read_document(path, REMEDY)
    readers = {"results": _testbed, "total": _stats, "benchmarks": _nfvbench, "test_id": _csit}
    for field, read in readers.items():
        if isinstance(document, dict) and field in document:
            tool, trials = read(path, document)
            if not trials:
                raise refused(path, "holds no rate, loss or latency", REMEDY)
            return Repetition(tool, (source,), tuple(trials))
    raise refused(path, f"has none of the fields {', '.join(readers)}", REMEDY)


def _testbed(path: Path, document: Any) -> tuple[str, list[ForeignTrial]]:
    found = validated(path, document, _Bench, REMEDY)
    factors = _search(found.title, "pdr" if found.allowed_percent else "ndr", found.allowed_percent)
    factors["direction"] = "both" if found.bi_dir else "one"
    started = undated(path, found.elapsed_s)
    # Where no rate met the criteria, the figures are those of the last one tried.
    if not found.rate_percent or found.lost_percent > found.allowed_percent or not found.valid_latency:
        return "TRex", [_trial(factors, {}, started, found.elapsed_s, error=_NOTHING_FOUND)]
    result = {"throughput_pps": found.tx_pps, "lost_percent": found.lost_percent}
    histogram = _of_groups(path, "results.latency", found.groups)
    return "TRex", [_trial(factors, result, started, found.elapsed_s, histogram)]


def _stats(path: Path, document: Any) -> tuple[str, list[ForeignTrial]]:
    found = validated(path, document, _Stats, REMEDY)
    groups = {name: one.latency for name, one in found.latency.items() if one.latency is not None}
    result = {"lost_percent": 100 * max(found.sent - found.came, 0) / found.sent}
    return "TRex", [_trial({"test": "get_stats"}, result, undated(path, 0), 0, _of_groups(path, "latency", groups))]


def _nfvbench(path: Path, document: Any) -> tuple[str, list[ForeignTrial]]:
    found = validated(path, document, _Nfvbench, REMEDY)
    started = moment(found.date.replace(tzinfo=datetime.UTC).timestamp())  # it is written without a zone
    trials = []
    for name, chain in found.chains.items():
        for size, one in chain.sizes.items():
            where = f"benchmarks.network.service_chain.{name}.result.result.{size}"
            shared = {"frame": size, "flows": f"{chain.flows}", "chains": f"{chain.chains}"}
            for kind, search in (("ndr", one.ndr), ("pdr", one.pdr)):
                if search is not None:
                    factors = _search(name, kind, found.allowed.get(kind.upper())) | shared
                    trials.append(_of_search(path, f"{where}.{kind}", factors, search, started))
            if one.offered_pps is not None:
                factors = {"test": name, "offered_pps": f"{one.offered_pps:.0f}"} | shared
                result = {"received_pps": one.received_pps, "lost_percent": one.lost_percent}
                histogram = _histogram(_hdr_bins(path, f"{where}.stats.overall.hdrh", one.hdrh))
                trials.append(_trial(factors, result, started, found.duration_s, histogram))
    return f"NFVbench {found.version}", trials


def _of_search(path: Path, where: str, factors: dict[str, str], search: _Search, started: str) -> ForeignTrial:
    if not search.rate_pps:
        return _trial(factors, {}, started, search.elapsed_s, error=_NOTHING_FOUND)
    result: dict[str, Any] = {"throughput_pps": search.rate_pps, "lost_percent": search.lost_percent}
    if search.max_us:  # 0 where nothing was timed
        times = {"min": search.min_us, "max": search.max_us, "mean": search.mean_us}
        result["latency"] = {name: 1000 * value for name, value in times.items()}
    histogram = _histogram(_hdr_bins(path, f"{where}.stats.overall.hdrh", str(search.hdrh or "")))
    return _trial(factors, result, started, search.elapsed_s, histogram)


def _csit(path: Path, document: Any) -> tuple[str, list[ForeignTrial]]:
    case = validated(path, document, _Case, REMEDY)
    tool = f"CSIT {case.version}, {case.tg_type} {case.tg_version}"
    started, test = moment(case.start_time.timestamp()), case.test_name_long
    if not case.passed:
        return tool, [_trial({"test": test}, {}, started, case.duration, error=case.message or "the test failed")]
    # The accepted loss ratios are those of the schema's descriptions.
    searches = (("ndr", 0.0, case.ndr), ("pdr", 0.5, case.pdr), ("soak", 1e-5, case.soak))
    trials = [
        _trial(_search(test, kind, allowed), {"throughput_pps": rate.value}, started, case.duration)
        for kind, allowed, rate in searches
        if rate is not None
    ]
    if case.received_pps is not None:
        received = {"received_pps": case.received_pps}
        trials.append(_trial({"test": test, "load": "maximum"}, received, started, case.duration))
    for direction, by_load in (("forward", case.forward), ("reverse", case.reverse)):
        for load, timed in by_load.items():
            histogram = _histogram(_hdr_bins(path, f"result.latency_{direction}.{load}.hdrh", timed.hdrh))
            if histogram is not None:
                factors = {"test": test, "load": load, "direction": direction}
                trials.append(_trial(factors, {}, started, case.duration, histogram))
    return tool, trials


def _search(test: str, kind: str, allowed_percent: float | None) -> dict[str, str]:
    allowed = {} if allowed_percent is None else {"allowed_loss_percent": f"{allowed_percent:g}"}
    return {"test": test, "search": kind} | allowed


def _trial(
    factors: dict[str, str],
    result: Mapping[str, Any],
    started: str,
    elapsed_s: float,
    histogram: Histogram | None = None,
    error: str | None = None,
) -> ForeignTrial:
    histograms = {} if histogram is None else {"latency": histogram}
    return ForeignTrial(PROBE, factors, dict(result), histograms, started, round(elapsed_s * 1e9), error=error)


def _of_groups(path: Path, where: str, groups: Mapping[str, _Group]) -> Histogram | None:
    """Of all packet groups together, from the fine bins where there are any."""
    counts: Counter[int] = Counter()
    extremes: list[float] = []
    for name, group in groups.items():
        if bins := _hdr_bins(path, f"{where}.{name}.hdrh", group.hdrh) or _middles(group):
            extremes += (group.total_min, group.total_max)
            for value, count in bins:
                counts[value] += count
    return _histogram(counts.items(), extremes)


def _middles(group: _Group) -> list[tuple[int, int]]:
    """Of TRex's own bins, within what was observed: from 10 µs on they are as wide as their edge's power of ten."""
    least, most = round(group.total_min), round(group.total_max)
    return [
        (min(max(edge + (5 if edge < 10 else 10 ** (len(str(edge)) - 1) // 2), least), max(most, edge)), count)
        for edge, count in group.histogram.items()
    ]


def _hdr_bins(path: Path, where: str, encoded: str) -> list[tuple[int, int]]:
    if not encoded:
        return []
    try:
        recorded: Any = HdrHistogram.decode(encoded).get_recorded_iterator()
        return [(step.value_iterated_to, step.count_added_in_this_iter_step) for step in recorded]
    except (
        *(ValueError, TypeError, zlib.error),
        *(HdrCookieException, HdrHistogramSettingsException, HdrLengthException),
    ) as error:
        raise refused(path, f"{where} = {encoded[:40]!r}: is no HDR histogram", REMEDY) from error


def _histogram(bins: Iterable[tuple[int, int]], extremes: Iterable[float] = ()) -> Histogram | None:
    """A histogram of counts by microseconds; None without any."""
    counts = {value: count for value, count in bins if count}
    if not counts:
        return None
    mean = sum(value * count for value, count in counts.items()) / sum(counts.values())
    return histogram_of_bins(counts, "us", min([*counts, *extremes]), max([*counts, *extremes]), mean)
