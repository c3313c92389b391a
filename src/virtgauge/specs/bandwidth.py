"""The bandwidth suite: what estimates of available bandwidth are worth, and what timing does for them."""

from __future__ import annotations

from virtgauge.specs import bandwidth_insights as insights
from virtgauge.specs.bandwidth_figures import bandwidth_measures
from virtgauge.specs.bandwidth_formatting import (
    ESTIMATORS,
    INSIDE,
    NO_TRAFFIC,
    THROUGH,
    TIMINGS,
    cross_of,
    link_of,
    path_of,
    path_words,
    timed_of,
    timed_words,
    traffic_of,
)
from virtgauge.specs.model import ChartSpec, Factor, Figures, SectionSpec, SuiteSpec, TableSpec, Told


def _silent(level: str) -> str:
    """Of a factor whose levels are named together with others'."""
    return ""


def _number(name: str) -> Factor:
    return Factor(name, words=_silent, of=lambda cell: f"{float(cell.factors.get(name, 0)):g}")


FACTORS = (
    Factor("estimator", levels=ESTIMATORS),
    Factor("timed", "timing", tuple(f"{one}|{how}" for how in THROUGH for one in TIMINGS), "", timed_words, timed_of),
    Factor("timing", words=_silent),
    Factor("through", usual=INSIDE, words=_silent),
    Factor("pacing", "sent by", usual="auto", words=lambda level: "" if level == "auto" else level),
    *map(_number, ("capacity_mbps", "delay_ms", "loss")),
    Factor("traffic", levels=(NO_TRAFFIC,), words=_silent, of=traffic_of),
    Factor("cross_mbps", "cross traffic", words=_silent, of=cross_of),
    Factor("link", words=_silent, of=link_of),
    Factor("path", words=path_words, of=path_of),
)
_EACH = ("estimator", "timed", "pacing")

DETAIL = TableSpec(
    "",
    (
        Figures("truth", "truth"),
        Figures("estimate", "estimate", note=insights.at_least),
        Figures("signed_error", "signed error"),
        Figures("error", "error", compared=True),
        Figures("searches.half_iqr", "half the IQR"),
        Figures("searches.mad", "MAD"),
        Told("outliers", insights.beyond_fences, text=False),
        Figures("max_paced", "paced up to", note=insights.cannot_pace),
        Figures("carried", "path carried"),
        Figures("bytes_sent", "sent"),
        Figures("duration", "took"),
        Told("sent, stamped by", insights.sent_and_stamped),
        Told("validity", insights.validity),
    ),
    split=_EACH,
    rows=("path",),
    caption="Medians over repetitions of each trial’s figures, with their intervals; outliers of all searches "
    "together. Below an error is its difference from the reference’s on the same path, in percentage points.",
)
COUNTS = TableSpec(
    "Counted",
    (
        Told("searches", insights.searches, text=False),
        Told("hold the truth", insights.counted("intervals.covered"), text=False),
        Told("of intervals", insights.intervals, text=False),
        Told("not paced", insights.counted("refused"), text=False),
        Told("lower bounds", insights.counted("bounds"), text=False),
        Told("trains repeated", insights.counted("discarded"), text=False),
        Told("foreign packets", insights.counted("foreign_packets"), text=False),
    ),
    rows=(*_EACH, "path"),
    caption="In all trials of a cell that count.",
    folded="all",
)
ERRORS = ChartSpec(
    "dots",
    "Signed error against the counted truth",
    "Per cent of what was available, with its interval over repetitions; right of 0 is too much. Beyond 1 % the axis "
    "is logarithmic.",
    ("signed_error",),
    rows="path",
    panels=_EACH,
    signed=True,
)

BANDWIDTH = SuiteSpec(
    "bandwidth",
    "Available bandwidth",
    FACTORS,
    tuple(bandwidth_measures()),
    None,
    summary=(insights.accuracy,),
    sections=(
        SectionSpec(
            *("timing", "Does precise timing help?", (insights.timing,)),
            "One timing against the other on the same path and in the same repetition: the error without its sign, "
            "below it what the timing changes it by, in percentage points (less is better); half the interquartile "
            "range of the instant estimates, and below it how many times as wide they lie. Coloured where identical "
            "arms (A/A) differ by less.",
        ),
        SectionSpec(
            *("figures", "Figures"),
            (insights.against_cross, insights.strips, ERRORS, insights.effects_chart, insights.curves),
            folded=True,
        ),
        SectionSpec(
            *("pacing", "Pacing: what is sent on time", (insights.pacing,)),
            "The highest rate that was paced by way of sending, the achieved gap between bursts in times of the "
            "planned one, and how late bursts leave; over all trials sent so. A trial that could not pace what the "
            "path still carried gives no estimate.",
        ),
        SectionSpec(
            *("paths", "The paths, and what was true on them", (insights.paths,)),
            "What was left, of IP packets: what estimates are held against. Capacity as measured and cross traffic as "
            "counted are as the shaper counts (1514 B for a packet of 1500); a dash where the flood that measures the "
            "capacity did not fill the path: the truth is of the declared one.",
        ),
        SectionSpec("tables", "Every estimate", (DETAIL, COUNTS), folded=True),
        SectionSpec(
            *("published", "Beside the published figures", (insights.published,)),
            "Measured on other hardware, years apart: for orientation, not a target. Ours are of the estimator that "
            "follows the paper’s (Yaz: yaz-original), with the same timing, capacity and cross traffic.",
            folded=True,
        ),
    ),
    agreement=(Figures("estimate"),),
    missing=("estimator", "timed", "path"),
    absent=insights.absent,
    glossary={
        "Available bandwidth": "What a path still carries without queueing: the least over its hops of capacity − "
        "cross traffic. All rates are of IP packets; a shaper counts 1514 B, and Ethernet 1538, where these are 1500.",
        "Estimate, truth, error": "A trial makes several searches, each an instant estimate; their median is the "
        "trial’s. The truth is the declared capacity less the cross traffic that was counted meanwhile. The error is "
        "median ÷ truth − 1; an answer that is a lower bound below the truth is right, and has no error.",
        "Half the IQR": "Half the interquartile range of a trial’s instant estimates, which Kirova et al. 2019 call "
        "MAD and draw as the variance. MAD here is the usual one, the median of the distances from the median.",
        "Holds the truth": "Of the intervals that the estimator itself gives, those in which the counted truth lies; "
        "as many as its confidence says should.",
        "Built in, by the shim": "Timing is swapped within the estimator (clock and sleep), or by preloading hptime’s "
        "library to a program of plain system calls, as the paper did; “without the shim” is that program as it is.",
        "Helps, hurts": "Errors without their signs, one timing less the other in the same repetition. It helps or "
        "hurts where the interval excludes 0 and the difference exceeds what identical arms (A/A) differ by; it makes "
        "it possible where the other timing cannot pace the rate at all.",
        "Cannot pace": "The sender refused to report: the path carried all that it sends on time. The highest rate "
        "that was paced is the one that it kept within 1 %, with at most one of 100 bursts late.",
    },
    prefix="Bandwidth: ",
)
