"""The isolation suite: what a noisy neighbour costs on each platform, and what a policy saves.

A cell is one benchmark in the tested guest beside one load in the loading guest, on some cores, under one policy: the
4-level array of Rzecki et al. 2014, section 5.4.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from virtgauge.results.columns import Cell
from virtgauge.results.measure import STATISTICS
from virtgauge.specs import isolation_formatting as labels
from virtgauge.specs import isolation_insights as insights
from virtgauge.specs import isolation_paper as paper
from virtgauge.specs.context import Context, validity
from virtgauge.specs.isolation_formatting import Policy, Resource
from virtgauge.specs.isolation_work import is_alone, isolation_measures
from virtgauge.specs.model import ChartSpec, Computed, Figures, SectionSpec, SuiteSpec, TableSpec

_HALF = 50.0


def _of(*resources: Resource) -> Callable[[str], bool]:
    return lambda level: labels.resource_of(level) in resources


_TITLE = ("benchmark", "cores")

ARRAY = TableSpec(
    "",
    (
        Computed("absolute", insights.absolute, text=False),
        Figures("work", "units of work"),
        Figures("relative_work", "relative", compared=True),
        Figures("q", "q"),
        Figures("entitlement", "q_share"),
        Figures("q_rate", "q_rate"),
        Figures("work_beside_load", "beside the load"),
        Figures("kept", "of the rate"),
        Figures("kept_of_promised", "of what is promised"),
        Computed("validity", validity),
    ),
    split=_TITLE,
    caption="Every cell as measured, beside the reference without load and policy (v / v_ref), and by the declared "
    "share: q ≈ q_share · q_rate where the reference received what the guest is entitled to. The ratio below "
    "is to the reference under the same load and policy, coloured where "
    "it differs by more than identical arms (A/A) do.",
)
ACCOUNT = TableSpec(
    "",
    (
        Figures("received_cpus", "received"),
        Figures("entitled_cpus", "entitled"),
        Figures("guest_seen_cpus", "seen inside"),
        Figures("loading_cpus", "loading guest"),
        Figures("neighbour_work", "its work"),
        Figures("stopped_share", "stopped"),
        Figures("steal_seen_share", "seen stolen", note=insights.blind),
        Figures("throttled_share", "throttled"),
        Figures("io_wait_share", "I/O wait"),
        Figures("frequency_ratio", "clock after ÷ before"),
    ),
    split=_TITLE,
    folded="all",
)
SLICES = TableSpec(
    "From one tenth of a second to the next",
    tuple(Computed(f"{100 * at:g} %", insights.slice_of(at), text=False) for at in insights.SLICE_SHARES),
    split=_TITLE,
    caption="Rates of 100 ms, of the reference’s rate without load and policy: quantiles over all repetitions.",
    folded="all",
)
LATENCIES = TableSpec(
    "",
    tuple(Figures(f"{name}.{statistic}", statistic) for name in ("wake", "disk") for statistic in STATISTICS),
    where={"benchmark": _of(Resource.WAKE, Resource.DISK)},
    split=_TITLE,
)
CONSERVATION = TableSpec(
    "Work conservation: is what nobody else uses given away?",
    (
        Figures("conservation.given", "work of that without the policy"),
        Figures("conservation.unused", "cores idle"),
        Computed("conserving", insights.conserving),
    ),
    where={
        "benchmark": _of(*labels.OF_THE_CORES),
        "load": (labels.NOTHING,),
        "policy": lambda level: level not in (labels.NOTHING, Policy.DISK_LIMIT),
    },
    rows=("benchmark", "cores", "policy", "share", "on"),
    caption="A policy, and a neighbour that does nothing. With the policy on the tested guest a limit leaves cores "
    "idle and a weight does not; with it on the loading guest the tested one should get everything. Conserving: "
    f"{insights.CONSERVING:.0%} or more.".replace("%", " %"),
    folded="none",
)

_PUBLISHED = " Crosses: what the paper states, measured on other hardware; diamonds with energy saving."


def _all_told(context: Context, cells: list[Cell]) -> list[Cell]:
    """A bound for the disk is told of where a disk is measured; the tables have the rest."""
    return [
        cell for cell in cells if cell.factors["policy"] != Policy.DISK_LIMIT or labels.about(cell) is Resource.DISK
    ]


def _near_half(context: Context, cells: list[Cell]) -> list[Cell]:
    """Of every policy the share nearest to a half: enough to see what it is for."""
    found = []
    for group in context.groups(_all_told(context, cells), ("policy", "on")).values():
        nearest = min((float(cell.factors["share"]) for cell in group), key=lambda share: abs(share - _HALF))
        found += [cell for cell in group if float(cell.factors["share"]) == nearest]
    return found


def _strongest(context: Context, cells: list[Cell]) -> list[Cell]:
    """Of every policy the share nearest to a half, beside the strongest of each load."""
    chosen = [cell for cell in _near_half(context, cells) if not is_alone(cell)]
    # Intensities ascend, so that of each load the last one stays.
    strongest = {key[0]: key[1] for key in context.groups(chosen, ("load", "intensity"))}
    return [cell for cell in chosen if strongest[cell.factors["load"]] == cell.factors["intensity"]]


def _q_of_share(context: Context, cells: list[Cell]) -> list[Cell]:
    """Nobody else being there, what is left beside the loading guest's share is not all that may be had."""
    return [cell for cell in _all_told(context, cells) if cell.factors["on"] != labels.LOADING or not is_alone(cell)]


def _charts() -> Iterator[ChartSpec]:
    """Performance and efficiency against the declared share in the paper's form (figures 1 to 4), then ours."""
    manner = "In the manner of the paper’s Figures 1 to 4."
    for policy, on in itertools.product(Policy, (labels.TESTED, labels.LOADING)):
        fall = " The line falls to what the loading guest leaves." if on == labels.LOADING else ""
        for title, caption, measure, choose, published in (
            ("Performance", f"{fall} Dotted: what was declared.", "relative_work", _all_told, paper.guides_of_work),
            ("Efficiency q", " Dotted: as declared.", "q", _q_of_share, paper.guides_of_q),
        ):
            yield ChartSpec(
                *("lines", f"{title} against the declared share: {labels.policy_text(policy)} on the {on} guest"),
                f"{manner}{caption}{_PUBLISHED}",
                (measure,),
                x="share",
                panels=("benchmark", "load", "cores"),
                where={"policy": (policy,), "on": (on,), "intensity": labels.FULL_TIME},
                choose=choose,
                published=published,
                least=2,
            )
    yield ChartSpec(
        *("heat_map", "What a neighbour costs"),
        "What the benchmark on the left keeps, beside the load above, of what it does without it; of CPU time, memory "
        "and caches under a policy, of no more than the share that is meant for it.",
        ("kept_of_promised",),
        x="load",
        rows="benchmark",
        panels=("policy", "share", "on", "cores"),
        choose=_strongest,
    )
    yield ChartSpec(
        *("lines", "Under growing pressure"),
        "What the benchmark keeps of what it does without the load, as the load works more of the time.",
        ("work_beside_load",),
        x="intensity",
        panels=("benchmark", "load", "policy", "share", "on", "cores"),
        where={"load": lambda level: level != labels.NOTHING},
        least=2,
    )
    for title, measure, resource in (
        ("Lateness under load: the median", "wake.p50", Resource.WAKE),
        ("Lateness under load: the p99", "wake.p99", Resource.WAKE),
        ("Operations of the disk under load: the median", "disk.p50", Resource.DISK),
        ("Operations of the disk under load: the p99", "disk.p99", Resource.DISK),
        ("Memory latency under load", "memory_latency", Resource.CACHE),
    ):
        yield ChartSpec(
            *("dots", title, "Beside loads that work all the time, and beside none. Logarithmic.", (measure,)),
            rows="load",
            panels=("benchmark", "policy", "share", "on", "cores"),
            where={"benchmark": _of(resource), "intensity": labels.FULL_TIME},
            choose=_near_half,
        )


ISOLATION = SuiteSpec(
    "isolation",
    "Performance isolation",
    labels.FACTORS,
    tuple(isolation_measures()),
    insights.said,
    summary=(insights.glance,),
    sections=(
        SectionSpec(
            *("resources", "Is it isolated? By how much?"),
            (insights.resources,),
            "One sentence for each resource and platform: the worst that was measured, where policies were tried, "
            "under that which protects the tested guest best.",
        ),
        SectionSpec("figures", "Figures", tuple(_charts()), folded=True),
        SectionSpec(
            *("latency", "Latency under load", (LATENCIES,)),
            "How late the tested guest wakes up, and how long its disk’s operations take, without a load and beside "
            "it.",
            folded=True,
        ),
        SectionSpec("shares", "What a share brings", (insights.smallest, CONSERVATION)),
        SectionSpec(
            *("policies", "Policies: declared, in force, without effect", (insights.policies,)),
            "What was asked for, and what the kernel or the hypervisor said afterwards, by the knob’s own name. Every "
            "guest has a weight and its cores, for a weight counts only among guests that have one.",
            folded=True,
        ),
        SectionSpec(
            *("accounting", "The account from outside", (insights.blind_guests, ACCOUNT, SLICES)),
            "CPU time as the host counts it, in whole CPUs: what each guest received, what the tested one was entitled "
            "to, and what its own kernel believes. Stopped is the part of the time in which its threads wanted to run "
            "and did not; stolen, what it sees of that. Throttled are the periods of its quota in which it was "
            "stopped.",
        ),
        SectionSpec("tables", "The array: environment × benchmark × load × cores", (ARRAY,), folded=True),
        SectionSpec(
            *("published", "Beside the published figures", (paper.published,)),
            "Measured on other hardware and by another hypervisor (Hyper-V), years apart: for orientation, not a "
            "target. Ours are efficiencies of the same kind of benchmark and load at the same share, with limit and "
            "reservation; of several, the lowest, or the highest where the paper states an upper end.",
            folded=True,
        ),
    ),
    agreement=(Figures("effort"),),
    claims=paper.claims,
    missing=("benchmark", "policy", "on", "cores", "load"),
    absent=insights.left_out,
    glossary={
        "Tested and loading guest": "Two guests of one platform with the same virtual processors and memory, each with "
        "a disk of its own. The benchmark runs in the tested one, the load in the loading one.",
        "Isolated, partly, not": "By what the tested guest keeps under the load that costs most, of what it was "
        "promised: of all loads, shares and numbers of cores. Where policies were tried with a benchmark on such "
        "cores, under that which protects it best: with a reservation, a weight, a limit, in this order; of a disk, "
        f"with a bound for it. Isolated: the interval lies above {insights.ISOLATED_FROM:.0%}, or the median does and "
        f"no difference was shown. Not decided: the median lies below, and no difference was shown. Not isolated: the "
        f"median is {insights.FAIR_SHARE:.0%} or less, or the interval lies below {insights.FAIR_INTERVAL:.0%}, which "
        "is little more than a fair share that a guest has without any policy. Partly: all between. The interval is "
        "the one that has the confidence for all figures together of which the worst was chosen.".replace("%", " %"),
        "Kept": "Work under the load over work without it, in the same block. Where a policy promises a share of the "
        "cores, over no more than that share: losing idle time of a neighbour is no lack of isolation. A share of the "
        "cores promises nothing of disks and of waking up; there it is the work without the load.",
        "Relative": "v / v_ref: work beside that of the reference platform without load and policy on as many cores, "
        "in the same block. Of latencies the inverse, so that more is always better; of waking up, of the p99 of its "
        "lateness, or of the p90 or the median where a trial has fewer than a thousand wake-ups, or a hundred.",
        "q": "Efficiency, v / (v_ref · s) with the declared share s (Rzecki et al. 2014, equation 1). Where the "
        "loading guest has the policy, s is what is left for the tested one. Where the "
        "reference received what it is entitled to, q ≈ q_share · q_rate: CPU time received "
        "of that entitled to (the scheduler), and work per second of CPU time beside the reference’s (frequency, "
        "caches, memory, the cost of virtualization).",
        "Entitled": "By limits, weights and what each guest would use, by water-filling: what one guest leaves unused "
        "goes to the other, up to its limit. Platforms without reservations get a weight instead.",
        "Blind": "The guest was stopped for more than 3 % of the time, seen from outside, and its own kernel sees "
        "less than half of that. Its own counters show more of a core than it had.",
    },
)
