"""The measures of the forwarding suite: rates, loss and latency of virtual routers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

from virtgauge.results.columns import Cell
from virtgauge.results.measure import Across, Better, Derived, Field, Measure, Statistic, durations, field, measures
from virtgauge.results.quantities import BIT_RATE, COUNT, DURATION, FRAME_RATE, SHARE
from virtgauge.results.table import Blocks, ResultTable

_THROUGHPUT = frozenset({"throughput"})
LOADS = (10.0, 50.0, 90.0, 100.0)
"""Per cent of the throughput at which every plan measures latency, unless it says otherwise."""
LIMITS = frozenset({"medium-limited", "generator-limited", "switch-limited"})
"""Flags of results whose NDR something limited which is not the device: it may be faster."""
_BY_TESTER = LIMITS - {"medium-limited"}
"""Of these those by which parts of the NDR are loads too low, and so latency and loss at them; a medium has no more."""
AT_THROUGHPUT = "latency_at_100.weighted_mean"  # Where the paper states its latencies


def forwarding_measures() -> Iterator[Measure]:
    """Of searches for the throughput, latency at parts of it, and bursts."""
    higher, neither = Better.HIGHER, Better.NEITHER
    found_by = "the no-drop rate by the search that the factor names: mlrsearch finds RFC 9971’s conditional throughput"
    longest = "the longest burst at the tester's rate of which no frame was lost (RFC 9004)"
    received = "the highest rate that came back in any trial of the search"
    buffer = field("back_to_back", "corrected_buffer_s", factor=1e9)
    offered, allowed = field("measuring_s", factor=1e9), field("pdr", "rate_pps")
    lost = functools.partial(field, "soak", "loss_ratio", factor=100)
    least, most = "lower end of its 95 % interval", "upper end of its 95 % interval"
    loss, rate = "frames lost in a soak at one load", "the rate at which one frame of 10⁷ is lost (PLRsearch)"
    found = measures(
        *("forwarding", _THROUGHPUT),
        ("ndr", FRAME_RATE, higher, found_by, field("throughput_pps")),
        ("ndr_bits", BIT_RATE, higher, "the same in bits, check sequence included", field("throughput_bps")),
        ("pdr", FRAME_RATE, higher, "the partial-drop rate: the highest with 0.5 % of loss in no guest", allowed),
        ("maximum_receive_rate", FRAME_RATE, higher, received, field("maximum_receive_pps")),
        ("back_to_back.burst", COUNT, higher, longest, field("back_to_back", "bursts")),
        ("back_to_back.buffer", DURATION, higher, "the corrected buffer time of that burst", buffer),
        ("search.trials", COUNT, neither, "trials of a search", field("trials")),
        ("search.offered", DURATION, neither, "how long a search offered load", offered),
        ("soak.loss", SHARE, Better.LOWER, loss, lost("point")),
        ("soak.loss_high", SHARE, Better.LOWER, f"{loss}: {most}", lost("high")),
        ("soak.critical_rate", FRAME_RATE, higher, rate, _of_every_soak("point")),
        ("soak.critical_rate_low", FRAME_RATE, higher, f"{rate}: {least}", _of_every_soak("low")),
        ("soak.critical_rate_high", FRAME_RATE, higher, f"{rate}: {most}", _of_every_soak("high")),
        headline=("ndr",),
    )
    bounded = dict.fromkeys(("ndr", "ndr_bits"), LIMITS) | dict.fromkeys(("soak.loss", "soak.loss_high"), _BY_TESTER)
    bounded |= {"pdr": LIMITS | {"pdr-limited"}, "maximum_receive_rate": LIMITS | {"pdr-limited", "received-limited"}}
    none = frozenset[str]()
    for one in found:
        below, lacking = none, one.lacking
        if one.name in ("ndr", "ndr_bits"):
            below, lacking = frozenset({"no-throughput"}), "their searches did not end within budget_s"
        yield dataclasses.replace(one, bounded_by=bounded.get(one.name, none), below_by=below, lacking=lacking)
    for percent in LOADS:
        yield from at_load(percent).values()
        name, meaning = f"latency_at_{percent:g}", f"a frame's latency {_load(percent)}"
        first = "p99" if percent == 50 else ""
        found = durations("forwarding", name, meaning, _THROUGHPUT, f"latency@{percent:g}%", first)
        yield from (dataclasses.replace(one, bounded_by=_BY_TESTER) for one in found)


def _of_soak(*path: str) -> Measure:
    return Measure("forwarding", ".".join(path), FRAME_RATE, Better.NEITHER, "", _THROUGHPUT, field("soak", *path))


_SOAKS = _of_soak("loss_ratio", "point")
_CRITICAL = {end: _of_soak("critical_pps", end) for end in ("point", "low", "high")}


def _of_every_soak(end: str) -> Across:
    """Of the critical rate, if all soaks of a cell have it.

    Those that lack it lie beyond the loads that were tried, and a median of the others would lean to one side.
    """

    def function(table: ResultTable, cell: Cell, arm: str) -> Blocks | str:
        table.read((_SOAKS, *_CRITICAL.values()))
        found, soaks = table.values(_CRITICAL[end], cell, arm), table.values(_SOAKS, cell, arm)
        lacking = len(soaks) - len(found)
        return f"{lacking} of {len(soaks)} soaks cannot tell it from the loads tried" if lacking else found

    return Across(function)


def _load(percent: float) -> str:
    return f"at {percent:g} % of the throughput"


@functools.cache
def at_load(percent: float) -> dict[str, Measure]:
    """The measures at a part of the throughput that are no statistics of a histogram, by what they are."""

    def entry(item: str, factor: float = 1.0) -> Field:
        return Field(("latency",), factor, where=("load_percent", percent), item=item)

    load, at, lower = _load(percent), f"_at_{percent:g}", Better.LOWER
    offered = Derived((entry("rate_pps"), field("frame_bytes")), lambda frames, size: frames * (8 * size))
    worst, total = f"frames lost of the flow that lost most, {load}", "the guests’ means by their shares"
    found = measures(
        *("forwarding", _THROUGHPUT),
        (f"offered{at}", BIT_RATE, Better.NEITHER, f"what was offered {load}", offered),
        (f"latency{at}.weighted_mean", DURATION, lower, f"latency {load}: {total}", entry("total_ns")),
        (f"loss{at}", SHARE, lower, f"frames lost {load}", entry("loss_ratio", 100)),
        (f"worst_loss{at}", SHARE, lower, worst, entry("worst_loss_ratio", 100)),
    )
    bounded = (dataclasses.replace(one, bounded_by=_BY_TESTER) for one in found)
    return dict(zip(("offered", "latency", "loss", "worst_loss"), bounded, strict=True))


@functools.cache
def quantile(percent: float, name: str, guest: int | None = None) -> Measure:
    """A statistic of the latency at a part of the throughput, of all frames or of one guest's."""
    whose, of = ("", "") if guest is None else (f"/guest{guest}", f"guest{guest}.")
    meaning = f"{name} of a frame's latency {_load(percent)}"
    source = Statistic(f"latency@{percent:g}%{whose}", name)
    named = f"{of}latency_at_{percent:g}.{name}"
    return Measure("forwarding", named, DURATION, Better.LOWER, meaning, _THROUGHPUT, source, bounded_by=_BY_TESTER)
