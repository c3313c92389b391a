"""The timing suite: what reading a clock costs, how late sleeps wake, why, and what determines it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from virtgauge.analysis.distribution import samples_needed
from virtgauge.analysis.rare_events import cluster_peaks
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import exact_duration
from virtgauge.results.measure import Better, Derived, Measure, Watch, Watched, durations, field, measures
from virtgauge.results.quantities import COUNT, DURATION, SHARE
from virtgauge.specs import timing_insights as insights
from virtgauge.specs import timing_paper as paper
from virtgauge.specs.context import Context
from virtgauge.specs.model import ChartSpec, Computed, Factor, Figures, HeadlineSpec, SectionSpec, SuiteSpec, TableSpec
from virtgauge.specs.timing_causes import why
from virtgauge.specs.timing_factors import what_matters
from virtgauge.specs.timing_insights import PROBES, load_label, probe_title
from virtgauge.specs.timing_settings import what_settings_buy
from virtgauge.specs.timing_spikes import late_causes

_LEAST = samples_needed(0.5)
_MISSED = Derived((field("missed"), field("cycles")), lambda missed, cycles: 100 * missed / (missed + cycles))


def timing_measures() -> Iterator[Measure]:
    """Clock reads, sleeps and cycles; those of cycles that may be required over hours know how."""
    for one in _measures():
        yield dataclasses.replace(one, watch=_WATCHES.get(one.name))


def _measures() -> Iterator[Measure]:
    for probe, (_, meaning) in PROBES.items():
        yield from durations("timing", probe, meaning, frozenset({probe}), probe, "p50 p99", least=_LEAST)
    resolution, overhead = (field(f"{name}_ps", factor=1e-3) for name in ("resolution", "overhead"))
    lower, neither, taken_off = Better.LOWER, Better.NEITHER, "what measuring costs, which was taken off"
    still, zero = "reads between which the clock did not step", field("zero_share", factor=100)
    found = measures(
        *("timing", None),
        ("timer_cost.resolution", DURATION, lower, "the smallest step of a clock that was seen", resolution),
        ("timer_cost.overhead", DURATION, neither, taken_off, overhead),
        ("timer_cost.zero_share", SHARE, neither, still, zero),
        ("sleep_lateness.cpu_per_sleep", DURATION, lower, "CPU time of one sleep", field("cpu_ns_per_sleep")),
        ("sleep_lateness.early", SHARE, lower, "sleeps that ended too early", field("early_share", factor=100)),
        ("cycle.missed", SHARE, lower, "deadlines that passed before the cycle before was over", _MISSED),
        ("cycle.missed_count", COUNT, lower, "how many deadlines did", field("missed")),
        ("cycle.longest_missed", COUNT, lower, "most deadlines missed in a row", field("longest_missed")),
        ("cycle.own", DURATION, neither, "what counting a cycle takes of its period at worst", field("own_ns")),
    )
    # None is missed, as a rule, and to that there is no ratio.
    yield from (dataclasses.replace(one, by_difference="missed" in one.name) for one in found)
    yield from insights.ACHIEVED.values()


def watched(period_ns: Any, cycles: Any, missed: Any, threads: Any, worst: Any, usage: Any) -> Watched:
    """For how long a trial of cycles watched, the clusters of its misses, and of its latest cycles.

    A cycle that is late by periods has missed as many deadlines.  What was missed otherwise, by work that took too
    long or by cycles that are not among the worst, came at times that nobody knows: together, or each by itself.
    """
    late = [(one["monotonic_ns"] / 1e9, float(one["late_ns"])) for one in worst]
    seconds = (cycles + (missed or 0)) * period_ns / 1e9 / len(threads)
    if missed is None:  # by threads that never sleep
        seconds = usage["elapsed_ns"] / 1e9
    late_enough = [(at, ns) for at, ns in late if missed is not None and ns >= period_ns]
    known, number = len(cluster_peaks(late_enough)), missed or 0
    unknown = max(number - sum(int(ns // period_ns) for _, ns in late_enough), 0)
    floor = min((ns for _, ns in late), default=0.0)
    least = max(known - unknown, min(number, 1))  # one whose time is not known may join two clusters to one
    return Watched(seconds, least, known + unknown, tuple(cluster_peaks(late)), floor)


_PARTS = ("period_ns", "cycles", "missed", "threads", "worst", "usage")


def watched_in(result: Mapping[str, Any]) -> Watched:
    """The same of a whole result. Raises LookupError, TypeError, ValueError or ArithmeticError: it is none."""
    return watched(*(result[part] for part in _PARTS))


def _watched(*parts: Any) -> Watched:
    """The same of a run from anywhere: what is no such result has watched for no time, and kept no size."""
    try:
        return watched(*parts)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return Watched(0.0, 0, 0, (), math.inf)


_SIZE = Watch(tuple((part,) for part in _PARTS), _watched, "size")
_WATCHES = {
    "cycle.max": _SIZE,
    "cycle.longest_missed": dataclasses.replace(_SIZE, figure="largest"),
    "cycle.missed_count": dataclasses.replace(_SIZE, figure="number"),
}
FACTORS = (
    Factor("probe", "", tuple(PROBES), text=probe_title),
    Factor(
        "function",
        levels=(
            *("rdtsc", "rdtscp", "hptime", "clock_gettime", "clock_gettime_syscall", "gettimeofday"),
            *("usleep", "nanosleep", "clock_nanosleep", "highpertimer", "spin", "cycle", "stall"),
        ),
    ),
    Factor("target_ns", "sleep of", text=lambda level: exact_duration(float(level)) if level.isdigit() else level),
    Factor("period_ns", "period of", text=lambda level: exact_duration(float(level)) if level.isdigit() else level),
    Factor(
        "slack",
        "timer slack",
        ("default", "own", "minimal"),
        "default",
        lambda level: "" if level == "own" else f"{level} slack",
    ),
    Factor(
        "policy", "scheduling class", ("other", "fifo", "deadline"), "other", lambda level: f"SCHED_{level.upper()}"
    ),
    Factor("idle_states", levels=("default",), usual="default", text=lambda level: f"{level} idle states"),
    Factor("trace", levels=("off", "on"), usual="off", text=lambda level: "traced" if level == "on" else ""),
    Factor("load", levels=("idle", "cpu", "io"), text=load_label),
)
_FUNCTION = ("function", "target_ns", "period_ns", "slack", "policy", "idle_states", "trace")
_ALL = ("p50", "half_iqr", "mad", "p90", "p99", "p99.9", "p99.99", "min", "max", "mean")
_OWN = {
    "timer_cost": ("resolution", "overhead", "zero_share"),
    "sleep_lateness": ("cpu_per_sleep", "early"),
    "cycle": ("missed", "missed_count", "longest_missed", "own"),
}
_SHORT = {"p50": "median", "half_iqr": "half IQR", "mad": "MAD"}


def _tables() -> Iterator[TableSpec]:
    for probe in PROBES:
        own = _OWN[probe]
        yield TableSpec(
            PROBES[probe][0],
            (
                *(Computed(_SHORT.get(name, name), insights.statistic(name), text=False) for name in _ALL),
                Computed("smallest of all", insights.extreme("min"), text=False),
                Computed("largest of all", insights.extreme("max"), text=False),
                Computed("mean of all values", insights.mean_of_all, text=False),
                Computed("samples", insights.samples, text=False),
                *(Figures(f"{probe}.{name}", name.replace("_", " ")) for name in own),
                Computed("method", insights.method),
            ),
            where={"probe": (probe,)},
            split=("load",),
            caption="Half IQR is what Kirova et al. 2019 call MAD; MAD here is the median absolute deviation. Where a "
            "clock is seen to advance in steps, median and half IQR are interpolated within the steps that hold them. "
            "Every figure is the median over repetitions, of the minimum and the maximum too; a tail that is "
            "too rare for any repetition is of the values of many together, and has neither interval nor ratio.",
        )


_CURVES = {
    "timer_cost": "How often reading the clock takes longer than the time below.",
    "sleep_lateness": "How often a sleep wakes later after its deadline than the time below.",
    "cycle": "How often a cycle begins later after its deadline than the time below.",
}


def _charts() -> Iterator[ChartSpec]:
    """In the manner of Kirova et al. 2019, figures 4, 6, 8 … 14 (values) and 5, 7, 9 … 15 (distributions)."""
    for probe, (title, _) in PROBES.items():
        where = {"probe": (probe,)}
        yield ChartSpec(
            *("dots", f"{title}: medians"),
            "Median over repetitions with its interval. Crosses: published medians of the same function and load, "
            "measured on other hardware.",
            (f"{probe}.p50",),
            rows="load",
            panels=_FUNCTION,
            where=where,
            published=paper.published_dots,
        )
        yield ChartSpec(
            *("ccdf", f"{title}: distribution"),
            f"{_CURVES[probe]} Further left is better; a long tail to the right is what a deadline meets. Dashed "
            "vertical rules stand at the means.",
            (probe,),
            panels=("load", *_FUNCTION),
            where=where,
        )
        yield ChartSpec(
            *("strips", f"{title}: values"),
            "Raw values of one typical repetition: some drawn at random, the smallest and the largest that were kept. "
            "Bold lines are the medians over all repetitions; side to side means nothing.",
            ("reservoir",),
            panels=("load", *_FUNCTION),
            where=where,
            middle=f"{probe}.p50",
            factor=1e-3,
        )


def _name(context: Context, cell: Cell) -> str:
    """``usleep``, ``usleep under CPU load``."""
    load = context.level(cell, "load")
    return context.level(cell, "function") + (f" under {load_label(load)}" if load not in ("idle", "") else "")


TIMING = SuiteSpec(
    "timing",
    "Timing",
    FACTORS,
    tuple(timing_measures()),
    HeadlineSpec(
        {
            "timer_cost.p50": ("reads", "the clock", "in"),
            "sleep_lateness.p50": ("wakes", "late", "by"),
            "cycle.p50": ("begins", "a cycle late", "by"),
        },
        {
            "timer_cost.p50": ("slower", "faster", ""),
            "sleep_lateness.p50": ("later", "earlier", "late"),
            "cycle.p50": ("later", "earlier", "late"),
        },
        insights.highlights,
        _name,
        most=8,
        told=insights.news,
    ),
    summary=(insights.glance,),
    sections=(
        SectionSpec(
            *("causes", "Why, and what would help", (why,)),
            "The first thing to do on each platform, by measured effect; below it, what each guest says of itself, "
            "what the figures say about that, and the effect of a remedy where this run measured both with and without "
            "it: time saved, paired by block, with its interval. Where it did not, what a plan must hold for it.",
        ),
        SectionSpec(
            *("bought", "What settings buy", (what_settings_buy,)),
            "Each setting beside the same guest and cell without it, in pairs within a block. What helps is ranked by "
            "the ratio of the first figure shown to be lower (p99, max, median). “Not shown” is not “nothing”; "
            "a difference counts if its interval excludes none and it exceeds what identical arms (A/A) differ by. "
            "Emulated platforms are neither judged nor ranked.",
        ),
        SectionSpec(
            *("spikes", "Why the worst cycles were late", (late_causes,)),
            "Of the worst cycles of each trial that was traced. A cause is named if it explains at least half of the "
            "lateness; tracing itself takes a little of each event's time.",
        ),
        SectionSpec(
            *("factors", "Which factors matter", (what_matters,)),
            "Kirova et al. 2019 ask which of function, platform and load determine the median, the half IQR (their "
            "MAD), the maximum and the minimum; so do these tests, on one value for each repetition of each cell. "
            "“Not shown” is not “none”.",
        ),
        SectionSpec("figures", "Figures", tuple(_charts()), folded=True),
        SectionSpec(
            *("loads", "What the loads achieved", (insights.loads,)),
            "Beside every probe, by the guest’s own count; medians over repetitions. The share is of all its "
            "processors. “Not told” is what the guest does not count.",
            folded=True,
        ),
        SectionSpec("tables", "Every result", tuple(_tables()), folded=True),
        SectionSpec(
            *("published", "Beside the published figures", (paper.published,)),
            "Measured on other hardware, years apart: for orientation, not a target. Same function, load and kind of "
            "platform.",
            folded=True,
        ),
    ),
    agreement=tuple(Figures(f"{probe}.p50") for probe in PROBES),
    claims=paper.claims,
    missing=("function", "load"),
    glossary={
        "Distribution figures": "The height of a line says how often a value larger than the one below occurs. They "
        "hold the valid repetitions together, or of very many a sample, which the caption then says. Dashed lines "
        "are emulated platforms, dotted the A/A arm; vertical rules are means of all. A wake-up before its deadline is "
        "negative and has no place on a logarithmic axis; the tables count it.",
        "Factors": "Guests are the units. Platforms: Kruskal–Wallis of each guest’s mean rank over its cells; ε² is "
        "the share of the ranks’ variance that the platform explains. Function and load: Friedman’s test, of the "
        "levels’ mean ranks within each guest; Kendall’s W is that share. An interaction (×): whether one factor’s "
        "effect depends on another, by aligned ranks of the logarithms; its error is how much guests of one platform "
        "differ in it, η² is its share beside that, and it counts as shown only if the ordinary analysis of variance "
        "shows it too, for ranks alone are misled where cells vary unequally. Where its function or load has more than "
        "two levels, such cells mislead both, so p is that of fewer degrees of freedom than are shown (Greenhouse and "
        "Geisser’s ε). All p are two-sided, as they are "
        "and adjusted by Holm; the adjusted one decides. Pairs: p by Dunn’s test on the same ranks, exact within "
        "guests and for up to 36 guests of all platforms (of two, 100), else by the normal distribution. "
        "Cliff’s δ compares like with like, where all other factors have the same level: +1 when the first of the pair "
        "is always the larger (slower), −1 when always the smaller, 0 when neither.",
    },
)
