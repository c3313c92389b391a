"""The measures of the forwarding suite: rates, loss and latency of virtual routers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from virtgauge.results.measure import Better, Column, Derived, Field, Measure, Statistic, field
from virtgauge.results.quantities import BIT_RATE, COUNT, DURATION, FRAME_RATE, SHARE, Quantity
from virtgauge.specs.measures import durations

_THROUGHPUT = frozenset({"throughput"})
LOADS = (10.0, 50.0, 90.0, 100.0)
"""Per cent of the throughput at which every plan measures latency, unless it says otherwise."""
AT_THROUGHPUT = "latency_at_100.weighted_mean"
"""Where the paper states its latencies."""


def _measure(
    name: str, quantity: Quantity, better: Better, meaning: str, source: Field | Statistic | Derived, **more: Any
) -> Measure:
    return Measure("forwarding", name, quantity, better, meaning, _THROUGHPUT, source, **more)


def forwarding_measures() -> Iterator[Measure]:
    """Of searches for the throughput, latency at parts of it, and bursts."""
    higher, neither = Better.HIGHER, Better.NEITHER
    yield _measure(
        *("throughput", FRAME_RATE, higher, "the no-drop rate, found by the plan’s search", field("throughput_pps")),
        headline=True,
    )
    yield _measure(
        *("throughput_bits", BIT_RATE, higher, "the same in bits, check sequence included", field("throughput_bps"))
    )
    meaning = "the highest rate with the loss that is allowed"
    yield _measure("partial_drop_rate", FRAME_RATE, higher, meaning, field("pdr", "rate_pps"))
    meaning = "the highest rate that came back in any trial of the search"
    yield _measure("maximum_receive_rate", FRAME_RATE, higher, meaning, field("maximum_receive_pps"))
    meaning = "the longest burst at the tester's rate of which no frame was lost (RFC 9004)"
    yield _measure("back_to_back.burst", COUNT, higher, meaning, field("back_to_back", "bursts"))
    buffer = field("back_to_back", "corrected_buffer_s", factor=1e9)
    yield _measure("back_to_back.buffer", DURATION, higher, "the corrected buffer time of that burst", buffer)
    yield _measure("search.trials", COUNT, neither, "trials of a search", field("trials"))
    offered = field("measuring_s", factor=1e9)
    yield _measure("search.offered", DURATION, neither, "how long a search offered load", offered)
    for percent in LOADS:
        yield from at_load(percent).values()
        yield from durations(
            *("forwarding", f"latency_at_{percent:g}", f"a frame's latency {_load(percent)}", _THROUGHPUT),
            *(f"latency@{percent:g}%", "p99" if percent == 50 else ""),
        )


def _bits(frames: Column, size: Column) -> Column:
    return frames * (8 * size)


def _load(percent: float) -> str:
    return f"at {percent:g} % of the throughput"


@functools.cache
def at_load(percent: float) -> dict[str, Measure]:
    """The measures at a part of the throughput that are no statistics of a histogram, by what they are."""

    def entry(item: str, factor: float = 1.0) -> Field:
        return Field(("latency",), factor, where=("load_percent", percent), item=item)

    load, lower = _load(percent), Better.LOWER
    offered = Derived((entry("rate_pps"), field("frame_bytes")), _bits)
    worst = f"frames lost of the flow that lost most, {load}"
    return {
        "offered": _measure(f"offered_at_{percent:g}", BIT_RATE, Better.NEITHER, f"what was offered {load}", offered),
        "latency": _measure(
            *(
                f"latency_at_{percent:g}.weighted_mean",
                DURATION,
                lower,
                f"latency {load}: the guests’ means by their shares",
            ),
            entry("total_ns"),
        ),
        "loss": _measure(f"loss_at_{percent:g}", SHARE, lower, f"frames lost {load}", entry("loss_ratio", 100)),
        "worst_loss": _measure(f"worst_loss_at_{percent:g}", SHARE, lower, worst, entry("worst_loss_ratio", 100)),
    }


@functools.cache
def quantile(percent: float, name: str, guest: int | None = None) -> Measure:
    """A statistic of the latency at a part of the throughput, of all frames or of one guest's."""
    whose, of = ("", "") if guest is None else (f"/guest{guest}", f"guest{guest}.")
    meaning = f"{name} of a frame's latency {_load(percent)}"
    source = Statistic(f"latency@{percent:g}%{whose}", name)
    return _measure(f"{of}latency_at_{percent:g}.{name}", DURATION, Better.LOWER, meaning, source)
