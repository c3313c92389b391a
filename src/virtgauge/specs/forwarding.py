"""The forwarding suite: what virtual routers carry without loss, how late, and where lost frames went."""

from __future__ import annotations

from collections.abc import Iterable

from virtgauge.results.columns import Cell
from virtgauge.results.formatting import count
from virtgauge.results.quantities import DURATION, FRAME_RATE, SHARE
from virtgauge.specs import forwarding_insights as insights
from virtgauge.specs import forwarding_paper as paper
from virtgauge.specs.context import Context
from virtgauge.specs.forwarding_measures import AT_THROUGHPUT, LOADS, forwarding_measures
from virtgauge.specs.model import Computed, Factor, Figures, HeadlineSpec, SectionSpec, SuiteSpec, TableSpec

_MOST_GUESTS = 256
FACTORS = (
    Factor("design", text=str, of=insights.design_of),
    Factor("jain", "J", text=lambda level: f"J {float(level):.3g}" if level else ""),
    Factor("vector", "load vector", tuple(f"k={strong}" for strong in range(1, _MOST_GUESTS + 1))),
    Factor("frame_bytes", "frame size", text=lambda level: f"{level} B"),
    *(
        Factor(name, text=lambda level: "") for name in ("guests", "switch", "cpu_limit", "search")
    ),  # a design says them
)

GLANCE = TableSpec(
    "",
    (Figures("ndr_bits", "NDR", compared=True, note=insights.bounds),),
    where={"jain": lambda level: bool(level)},
    across=("frame_bytes", "jain"),
    ends=("jain",),
    rows=("design",),
    caption="The highest total load that every guest forwards without loss (NDR, no-drop rate), its interval over "
    "independent searches, and its ratio to the reference in the same block. Coloured ratios differ by more than "
    "identical arms (A/A) do; grey ones were not shown to. At J 1 all guests are loaded alike, at the lowest nearly "
    "one alone. Emulated platforms show that the method works, and are never ranked.",
)
DETAIL = TableSpec(
    "",
    (
        Figures("ndr_bits", "NDR in bits", compared=True, note=insights.bounds),
        Figures(AT_THROUGHPUT, "L_tot at 100 %"),
        Figures("ndr", "NDR"),
        Figures("pdr", "PDR 0.5 %"),
        Figures("maximum_receive_rate", "maximum received"),
        *(Figures(f"latency_at_{load:g}.weighted_mean", f"L_tot at {load:g} %") for load in LOADS[:-1]),
        Figures("latency_at_100.p99", "p99 at 100 %"),
        Figures("back_to_back.burst", "back-to-back frames"),
        Figures("back_to_back.buffer", "buffer"),
        Figures("soak.loss", "lost in the soak"),
        Figures("soak.loss_high", "at most (95 %)"),
        Figures("soak.critical_rate", "critical rate, 10⁻⁷"),
        Figures("soak.critical_rate_low", "at least (95 %)"),
        Figures("soak.critical_rate_high", "at most (95 %)"),
        Figures("search.trials", "trials of a search"),
        Figures("search.offered", "load offered"),
        Computed("J", insights.jain, text=False),
        Computed("RFC 2544", insights.rfc2544),
        Computed("flags", insights.flags),
    ),
    split=("frame_bytes", "design"),
    caption="Medians over independent searches. L_tot: the guests’ mean latencies weighted by their share of the load. "
    "PDR: the highest rate of which no guest loses more than 0.5 %; maximum received: the highest that came back at "
    "all.",
)
TESTER = TableSpec(
    "The tester on its bare loop",
    (
        Computed("limit", insights.tester("limit", "limit_pps", FRAME_RATE), text=False),
        Computed("latency", insights.tester("latency.mean", "latency_mean_ns", DURATION), text=False),
        Computed("highest latency", insights.tester("latency.max", "latency_max_ns", DURATION), text=False),
        Computed("sent late", insights.tester("late_share", "late_share", SHARE, 100.0), text=False),
        Computed("through the switches", insights.tester("switch_limit", "switch_pps", FRAME_RATE), text=False),
        Computed("port", insights.ports),
    ),
    caption="The limit is the highest rate that it sends as asked and receives whole; latencies are its own at half of "
    "that rate. Through the switches: the same by Open vSwitch with no guest. Of all trials, valid or not.",
    folded="all",
)


def _highlights(context: Context) -> list[tuple[str, Cell]]:
    """The smallest and the largest frames at the highest and at the lowest J."""
    cells = insights.first_look(context)
    sizes = [int(context.level(cell, "frame_bytes")) for cell in cells]
    ends = {str(min(sizes)), str(max(sizes))} if sizes else set()
    return [("ndr_bits", cell) for cell in cells if context.level(cell, "frame_bytes") in ends]


def _remark(context: Context, cells: Iterable[Cell], arm: str) -> str:
    """``2 attempts limited by the tester``."""
    flags = context.table.endings.flags(context.cells, arm)
    said = [f"{count(flags[name], 'attempt')} {what}" for name, what in insights.NOTABLE_FLAGS.items() if name in flags]
    return ", ".join([*said, *insights.losses_within(context, arm)])


FORWARDING = SuiteSpec(
    "forwarding",
    "Packet forwarding",
    FACTORS,
    tuple(forwarding_measures()),
    HeadlineSpec(
        {"ndr_bits": ("carries", "", "")},
        {"ndr_bits": ("more", "less", "")},
        _highlights,
        lambda context, cell: f"{cell.factors['frame_bytes']} B frames at J {insights.jain_of(context, cell):.3g}",
        most=4,
        remark=_remark,
    ),
    summary=(GLANCE,),
    sections=(
        SectionSpec("figures", "Figures", (paper.charts, insights.curves), folded=True),
        SectionSpec(
            *("interfaces", "Para-virtual against fully emulated interfaces", (insights.interfaces,)),
            "Two platforms that differ in their network interfaces alone, in the same block: how many times as much "
            "the para-virtual ones carry, and how their latency at the throughput compares.",
        ),
        SectionSpec("tables", "Every result", (DETAIL, TESTER)),
        SectionSpec(
            *("latency", "Latency and loss at parts of the throughput", (insights.latencies,)),
            "L_tot weights every guest’s mean with its share of the load; p50 and p99 are of all frames together.",
            folded=True,
        ),
        SectionSpec(
            *("guests", "Each guest’s own figures", (insights.guests,)),
            "At the highest and the lowest J. Dropped are frames, over all trials of the searches, at places through "
            "which this guest’s flow alone passes; what was lost at shared places stands under lost frames.",
            folded=True,
        ),
        SectionSpec(
            *("losses", "Where lost frames went", (insights.losses,)),
            "In all trials of all searches, most of which load a platform beyond its throughput on purpose. Each lost "
            "frame is set against a counter that admits to have dropped it; a result whose account does not close is "
            "invalid, and counted here all the same.",
        ),
        SectionSpec(
            *("published", "Beside the published figures", (paper.published,)),
            "Measured on other hardware and by other hypervisors, years apart: for orientation, not a target. Ours are "
            "of the platform with the same kind of interfaces; from the smallest to the largest of the medians.",
            folded=True,
        ),
    ),
    agreement=(Figures("ndr_bits"),),
    claims=paper.claims,
    missing=("frame_bytes", "jain", "vector"),
    glossary={
        "NDR, throughput (T)": "The no-drop rate: the highest total load of which no guest loses a frame, as one "
        "independent search on a fresh laboratory found it. By MLRsearch it is that of RFC 9971; the throughput of RFC "
        "2544 only where a result says so. Bits are those of frames with their check sequence.",
        "J": "Jain’s fairness index of the load’s distribution over the guests: 1 when all carry the same, 1/N when "
        "one carries everything. T|J is the throughput at that distribution.",
        "PDR, maximum receive rate": "The load of which no guest loses more than 0.5 %; the highest rate at which "
        "frames came back in any trial, whatever was lost.",
        "L_tot": "Every guest’s mean latency weighted with its share of the load (Batalla et al. 2016, equation 7).",
        "Generator-limited, stretched, late": "The result lies within a tenth of the tester’s own limit on a bare "
        "loop, so that the device carries at least that (invalid where the tester cannot send even the lowest load); "
        "the load could not be sent in its time, which counts as loss; frames left later than they should, which makes "
        "a result invalid.",
        "Loss accounting": "Every lost frame is set against a counter that admits to have dropped it. A result "
        "whose account does not close is invalid.",
    },
)
