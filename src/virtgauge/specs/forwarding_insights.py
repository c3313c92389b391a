"""What is really of forwarding: where lost frames went, each guest's own flow, the tester, and kinds of interfaces."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import amount
from virtgauge.results.quantities import BIT_RATE, DURATION, RATIO, SHARE, Quantity
from virtgauge.specs.blocks import Block, Column, Finding, Row, Shown, Text, Value, table_of
from virtgauge.specs.context import Context
from virtgauge.specs.forwarding_measures import AT_THROUGHPUT, LIMITS, at_load, quantile

_OWN_PLACE = re.compile(r"guest (\d+)\b|(?:port|from) (?:in|out)(\d+)$")
_NUMBER = re.compile(r"(guest |in|out)\d+")
_MOST_PLACES = 24  # That have columns of their own; of more, places of one kind are told together
NOTABLE_FLAGS = {
    "generator-limited": "limited by the tester",
    "switch-limited": "limited by the switch",
    "no-throughput": "in which even the lowest load lost frames",
    "search-failed": "whose search did not end",
    "stretched": "with stretched trials",
    "late": "sent late",
    "late-losses": "with losses that may be the tester’s own",
    "unaccounted-loss": "with losses that nothing explains",
    "unclosed-ledger": "with losses that nothing explains",  # as runs of before have it
    "cpu-limit-unbound": "without the guests’ CPU limit in force",
    "shared-processors": "from guests that share processors, so that nothing is concluded about J",
    "few-frames": "with too few frames to judge each guest’s loss: NDR, and latency near it, decide no conclusion",
    "without-latency": "whose L_tot leaves out guests of which no frame came back",
}
"""What a reader must know of results, by the flag's name."""
_SEARCHES = {
    "mlrsearch": "MLRsearch (RFC 9971)",
    "rfc2544": "bisection (RFC 2544)",
    "tst009": "verified bisection (ETSI TST 009)",
}


def two_level(vector: str) -> bool:
    """Whether a load vector is one of the paper's: so many guests loaded strongly, the others weakly."""
    return vector.startswith("k=") and vector[2:].isdigit()


def search_of(cell: Cell) -> str:
    """``MLRsearch (RFC 9971)``."""
    search = cell.factors.get("search", "")
    return _SEARCHES.get(search, search)


def design_of(cell: Cell) -> str:
    """What all cells of one laboratory have in common: ``12 guests of 0.25 CPU, openvswitch, MLRsearch (RFC 9971)``."""
    guests, limit = cell.factors.get("guests", ""), cell.factors.get("cpu_limit", "none")
    limited = {"none": "", "fair": " with a fair share of the CPUs each"}.get(limit, f" of {limit} CPU")
    plural = "" if guests == "1" else "s"
    switch = cell.factors.get("switch", "")
    laboratory = "a machine between two ports" if switch == "none" else f"{guests} guest{plural}{limited}, {switch}"
    return f"{laboratory}, {search_of(cell)}"


_DURATIONS = "rfc2544_durations", "rfc2544_complete"
"""What a result calls it to have the durations and repetitions of RFC 2544; the second before, though it is not all."""


@dataclasses.dataclass
class ResultDetails:
    """What the results of an arm in a cell say that no measure has."""

    # of lost frames, of all results, valid or not: see :data:`_ACCOUNT`
    account: Counter[str] = dataclasses.field(default_factory=Counter)
    places: Counter[str] = dataclasses.field(default_factory=Counter)  # these frames by the place that dropped them
    # its calibration, by block, of all results
    tester: dict[int, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    # parts of the throughput at which latency was measured, in per cent; from here on of results that count
    loads: set[float] = dataclasses.field(default_factory=set)
    shares: list[float] = dataclasses.field(default_factory=list)  # of the load, by guest
    # a guest's latency by guest, load and block
    means: dict[tuple[int, float], dict[int, float]] = dataclasses.field(default_factory=dict)
    # frames at places through which one guest's flow alone passes, by guest
    dropped: Counter[int] = dataclasses.field(default_factory=Counter)
    # the trials of the searches: rate in frames/s, share lost, share that the worst guest lost, stretched
    curve: list[tuple[float, float, float, bool]] = dataclasses.field(default_factory=list)
    # of those that were sent in their time at no more than the no-drop rate: how many, and how many lost frames
    carried: Counter[str] = dataclasses.field(default_factory=Counter)
    rfc2544: bool = True  # whether every result has its durations and repetitions
    own_processors: bool = True  # whether in every result each guest had a processor of its own
    enough_frames: bool = True  # whether in every result each guest carried enough frames for its loss to show

    def tried(self, block: int, result: Mapping[str, Any]) -> None:
        """Any result."""
        self.account["sent"] += result.get("frames_sent", 0)
        if "calibration" in result:
            self.tester[block] = result["calibration"]
        if (account := result.get("loss_accounting")) is not None:
            self.account.update({"trials": 1, "unclosed": int(not account["closed"])})
            self.account.update({name: account[name] for name in ("lost", "unattributed", "excess")})
            self.places.update(account["places"])

    def counted(self, block: int, result: Mapping[str, Any]) -> None:
        """A result that counts."""
        self.shares = self.shares or result["shares"]
        self.rfc2544 &= any(result.get(name) is True for name in _DURATIONS)
        self.own_processors &= result.get("own_processors") is True
        self.enough_frames &= not result.get("few_frames")
        for entry in result.get("latency", ()):
            self.loads.add(float(entry["load_percent"]))
            for guest, mean in enumerate(entry["guest_mean_ns"]):
                if mean is not None:
                    self.means.setdefault((guest, float(entry["load_percent"])), {})[block] = float(mean)
        for place, frames in result["loss_accounting"]["places"].items():
            if own := _OWN_PLACE.search(place):
                self.dropped[int(own[1] or own[2])] += frames
        for one in result.get("loss_curve", ()):
            self.curve.append((one["rate_pps"], one["loss_ratio"], one["worst_loss_ratio"], one["stretched"]))
            if one["rate_pps"] <= result["throughput_pps"] and not one["stretched"]:
                self.carried.update(trials=1, losing=int(one["loss_ratio"] > 0))


class Results(NamedTuple):
    """By cell and arm what results say, and each cell's fairness, as found where the vector itself is a finding."""

    told: defaultdict[tuple[Cell, str], ResultDetails]
    jain: dict[Cell, float]


def results(context: Context) -> Results:
    """Read once, for all insights."""
    return context.once(_read)


def _read(context: Context) -> Results:
    found = Results(defaultdict(ResultDetails), {})
    for cell, arm, block, counts, result in context.table.attempted_results(context.spec.name):
        own = found.told[cell, arm]
        own.tried(block, result)
        if result.get("jain") is not None:
            found.jain.setdefault(cell, float(result["jain"]))
        if counts and result.get("throughput_pps") is not None:
            own.counted(block, result)
    for cell in context.cells:
        if known := cell.factors.get("jain"):  # as the plan has it, in three decimals
            found.jain.setdefault(cell, float(known))
    return found


def jain_of(context: Context, cell: Cell) -> float | None:
    """The fairness of a cell's load; None of a vector that was searched for and not found."""
    return results(context).jain.get(cell)


def counted(context: Context, cell: Cell, arm: str) -> ResultDetails | None:
    """What the results of an arm in a cell say; None without one that counts."""
    return results(context).told[cell, arm] if context.values("ndr", cell, arm) else None


def loads(context: Context, cells: Iterable[Cell]) -> list[float]:
    """The parts of the throughput at which latency was measured anywhere in some cells, ascending."""
    told = results(context).told
    return sorted(set[float]().union(*(told[cell, arm.name].loads for cell in cells for arm in context.arms)))


def jain(context: Context, cell: Cell, arm: str) -> Shown:
    """The fairness of a cell's load."""
    return Value.count("jain", context.place(cell), jain_of(context, cell))


def rfc2544(context: Context, cell: Cell, arm: str) -> Shown:
    """Whether every result has RFC 2544's durations and repetitions; its section 23 none has in full."""
    told = counted(context, cell, arm)
    words = "durations and repetitions, without learning frames and rests" if told and told.rfc2544 else "no"
    return Finding("rfc2544_durations", context.place(cell, arm), words)


def flags(context: Context, cell: Cell, arm: str) -> Shown:
    """How many attempts have which flag."""
    counts = sorted(context.table.endings.flags([cell], arm).items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{name}: {number}" for name, number in counts) or None


def bounds(context: Context, cell: Cell, arm: str) -> str:
    """A note on results that say that a device carries so much at least, not even the lowest load, or none."""
    found, of = context.table.endings.flags([cell], arm, counted=True), len(context.table.numbers(cell, arm))
    lead = "at least that: " if context.table.may_be_higher(context.spec.measure("ndr"), cell, arm) else ""
    limits = {name: lead + name for name in sorted(LIMITS)}
    limits |= {"no-throughput": "nothing carried", "search-failed": "search without end"}
    return ", ".join(f"{words} in {found[name]} of {of}" for name, words in limits.items() if name in found)


def ports(context: Context, cell: Cell, arm: str) -> Shown:
    """How the tester sent and received."""
    return ", ".join(sorted({str(one["port"]) for one in results(context).told[cell, arm].tester.values()})) or None


def tester(name: str, field: str, quantity: Quantity, factor: float = 1.0) -> Callable[[Context, Cell, str], Shown]:
    """A figure of the tester on its bare loop, in all trials that calibrated it, valid or not."""

    def say(context: Context, cell: Cell, arm: str) -> Shown:
        known = results(context).told[cell, arm].tester
        values = [factor * float(one[field]) for one in known.values() if one.get(field) is not None]
        return context.of(f"tester.{name}", context.place(cell, arm), context.median(values, quantity), quantity)

    return say


def latencies(context: Context) -> Iterator[Block]:
    """Latency and loss at every part of the throughput that was measured."""
    columns = (
        *("offered", Column("L_tot", hint="mean over the guests by their share of the load")),
        *("p50", "p99", "lost", "lost by the worst guest"),
    )
    for number, ((design, size), cells) in enumerate(context.groups(context.cells, ("design", "frame_bytes")).items()):
        rows = []
        for cell in cells:
            for percent in loads(context, [cell]):
                entry = at_load(percent)
                quantiles = (quantile(percent, name) for name in ("p50", "p99"))
                asked = [entry["offered"], entry["latency"], *quantiles, entry["loss"], entry["worst_loss"]]
                for arm in context.arms:
                    if percent in results(context).told[cell, arm.name].loads:
                        shown = tuple(context.value(one, cell, arm.name) for one in asked)
                        name = context.spec.cell_name(cell, ("design", "frame_bytes"))
                        rows.append(Row((name, f"{percent:g} %"), arm.name, shown))
        heads = ("Load vector", "Of the throughput")
        yield from table_of(f"{size} B frames, {design}", heads, columns, rows, folded=number > 0)


def first_look(context: Context) -> list[Cell]:
    """The cells for a first look, in the first design: every frame size at the highest J, then at the lowest."""
    designs = [cell for cell in context.cells if two_level(context.level(cell, "vector"))] or context.cells
    own = [cell for cell in designs if context.level(cell, "design") == context.level(designs[0], "design")]
    fairness = {cell: found for cell in own if (found := jain_of(context, cell)) is not None}
    ends = [max(fairness.values()), min(fairness.values())] if fairness else []
    return [cell for end in dict.fromkeys(ends) for cell in own if fairness.get(cell) == end]


def guests(context: Context) -> Iterator[Block]:
    """Each guest's own figures, in the cells of a first look."""
    for number, cell in enumerate(first_look(context)):
        percents = loads(context, [cell])
        rows = []
        for arm in context.arms:
            told = counted(context, cell, arm.name)
            for guest, share in enumerate(told.shares if told else ()):
                assert told is not None
                place = context.place(cell, arm.name, guest=guest)
                shown: list[Shown] = [Value.count("guest.share", place, 100 * share, SHARE)]
                for percent in percents:
                    mean = told.means.get((guest, percent), {})
                    shown.append(context.middle(f"guest.latency_mean_at_{percent:g}", place, mean, DURATION))
                for name in ("p50", "p99"):
                    one = context.value(quantile(100, name, guest), cell, arm.name)
                    shown.append(dataclasses.replace(one, measure=f"guest.latency.{name}", place=place))
                shown.append(Value.count("guest.dropped", place, told.dropped[guest]))
                rows.append(Row((f"guest {guest}",), arm.name, tuple(shown)))
        means = (f"mean at {percent:g} %" for percent in percents)
        columns = ("share of the load", *means, "p50 at 100 %", "p99 at 100 %", "dropped")
        yield from table_of(context.spec.cell_name(cell, ("design",)), ("Guest",), columns, rows, folded=number > 0)


_ACCOUNT = {
    "trials": "results",
    "unclosed": "results not closed",
    "sent": "frames sent",
    "lost": "lost",
    "unattributed": "no counter explains",
    "excess": "counted as dropped, but nobody misses",
}


def losses(context: Context) -> Iterator[Block]:
    """Each arm's lost frames in all trials of all searches, by the place that dropped them, and by cell."""
    everything = {arm.name: ResultDetails() for arm in context.arms}
    for (_, name), told in results(context).told.items():
        everything[name].account.update(told.account)
        everything[name].places.update(told.places)
    arms = [arm for arm in context.arms if everything[arm.name].account["trials"]]
    if not arms:
        return
    kinds = list(dict.fromkeys(kind for arm in arms for kind in _kinds(everything[arm.name].places)))
    places = list(dict.fromkeys(place for arm in arms for place in everything[arm.name].places))
    at = places if len(places) <= _MOST_PLACES else kinds
    columns = tuple(_ACCOUNT.values())
    rows = [Row(("all cells",), arm.name, _account(context, "", arm.name, everything[arm.name], ())) for arm in arms]
    yield from table_of("Frames", ("Of",), columns, rows)
    dropped, exact = [], []
    for arm in arms:
        told, place = everything[arm.name], context.place("", arm.name)
        for kind, frames in _kinds(told.places).most_common():
            share = Value.count(f"loss.share:{kind}", place, 100 * frames / max(told.account["lost"], 1), SHARE)
            dropped.append(Row((kind,), arm.name, (Value.count(f"loss.dropped:{kind}", place, frames), share)))
        for name, frames in told.places.most_common():
            if name not in kinds:
                exact.append(Row((name,), arm.name, (Value.count(f"loss.dropped:{name}", place, frames),)))
    yield from table_of("Dropped at", ("Place",), ("frames", "of the lost"), dropped)
    yield from table_of("Place by place", ("Place",), ("frames",), exact, folded=True)
    rows = [
        Row((context.spec.cell_name(cell),), arm.name, _account(context, cell, arm.name, own, at))
        for cell in context.cells
        for arm in arms
        if (own := results(context).told.get((cell, arm.name))) is not None
    ]
    dropped_at = (Column(one, "dropped at") for one in at)
    yield from table_of("By load", ("Of",), (*columns, *dropped_at), rows, folded=True)


def _kinds(places: Mapping[str, int]) -> Counter[str]:
    """Frames by the kind of place: ``guest … IP layer``."""
    found = Counter[str]()
    for place, frames in places.items():
        found[_NUMBER.sub(r"\1…", place)] += frames
    return found


def _account(context: Context, cell: Cell | str, arm: str, told: ResultDetails, at: Sequence[str]) -> tuple[Shown, ...]:
    place, own = context.place(cell, arm), _kinds(told.places) | told.places
    notes = {"unclosed": "does not close", "unattributed": "unexplained", "excess": "nobody misses"}
    counts = [(name, told.account[name]) for name in _ACCOUNT]
    shown = [Value.count(f"loss.{name}", place, n, note=notes.get(name, "") if n else "") for name, n in counts]
    return (*shown, *(Value.count(f"loss.dropped:{one}", place, own.get(one)) for one in at))


def losses_within(context: Context, arm: str) -> Iterator[str]:
    """``3 of 14 trials at no more than the no-drop rate lost frames: …``, of the cell with the largest such share.

    A limit of the rate takes none there; what comes and goes does, and a search that forgives trials leaves it out.
    """
    found = [told.carried for cell in context.cells if (told := counted(context, cell, arm))]
    worst = max(found, key=lambda one: one["losing"] / max(one["trials"], 1), default=Counter())
    if worst["losing"]:
        yield (
            f"{worst['losing']} of {worst['trials']} trials at no more than the no-drop rate lost frames: stalls or "
            "bursts, which this search forgives"
        )


Interfaces = Literal["emulated", "paravirtual"]
_MODELS: dict[str, Interfaces] = {
    **dict.fromkeys(("virtio", "vmxnet3", "netvsc", "xen", "vector"), "paravirtual"),
    "e1000": "emulated",
}
"""Of the models that platforms name (``describe``); ``vector`` is User Mode Linux's."""
INTERFACES: dict[Interfaces, str] = {"paravirtual": "para-virtual interfaces", "emulated": "fully emulated interfaces"}
_SIMULATED = (
    "The processor of both is simulated in software, which slows driver and device alike: the ratio is not a "
    "hypervisor’s."
)


def interfaces_of(arm: ArmRecord) -> Interfaces | None:
    """By the model that a platform names; None where its guests share the host's kernel, or nothing names one."""
    return _MODELS.get(str(arm.settings.get("nic_model")))


def hides_interfaces(arm: ArmRecord) -> bool:
    """Whether its guests have interfaces of their own, of which nothing says what they are: an attached machine's."""
    return interfaces_of(arm) is None and not arm.is_bare and (arm.is_virtual or "ports" in arm.settings)


def settings_of(arm: ArmRecord) -> dict[str, object]:
    """A platform's settings but for its interfaces."""
    return {name: value for name, value in arm.settings.items() if name not in ("nic_model", "found")}


def pairs(arms: Iterable[ArmRecord]) -> list[tuple[ArmRecord, ArmRecord]]:
    """Arms that differ in their interfaces alone: the para-virtual one, then the emulated one."""
    usable = [arm for arm in arms if arm.usable and arm.role != "aa"]
    return [
        (first, second)
        for first, second in itertools.product(usable, repeat=2)
        if (interfaces_of(first), interfaces_of(second)) == ("paravirtual", "emulated")
        and first.kind == second.kind
        and settings_of(first) == settings_of(second)
    ]


def throughput_ratios(context: Context, first: ArmRecord, second: ArmRecord) -> dict[Cell, Estimate]:
    """How many times as much the first of two arms carries, in every cell that both carry anything in."""
    measure = context.spec.measure("ndr_bits")
    found = {cell: context.table.ratio(measure, (cell, first.name), (cell, second.name)) for cell in context.cells}
    return {cell: ratio for cell, ratio in found.items() if ratio.point is not None}


def interfaces(context: Context) -> Iterator[Block]:
    """Para-virtual against fully emulated interfaces, cell by cell."""
    groups = {"ndr_bits": "NDR", AT_THROUGHPUT: "latency (L_tot)"}
    columns = [Column(one, group) for group in groups.values() for one in ("para-virtual", "emulated", "ratio")]
    for first, second in pairs(context.all_arms):
        rows = []
        ratios = throughput_ratios(context, first, second)
        for cell in ratios:
            shown: list[Shown] = []
            for name in groups:
                ratio = context.table.ratio(context.spec.measure(name), (cell, first.name), (cell, second.name))
                place = context.place(cell, first.name, f"arm={second.name}")
                shown += [context.value(name, cell, arm.name) for arm in (first, second)]
                shown.append(context.of("ndr" if name == "ndr_bits" else name, place, ratio, RATIO))
            rows.append(Row((context.spec.cell_name(cell),), "", tuple(shown)))
        caption = _SIMULATED if first.emulated or second.emulated else ""
        yield from table_of(f"{first.label} against {second.label}", ("Of",), columns, rows, caption)
        if points := [ratio.point for ratio in ratios.values() if ratio.point is not None]:
            span = f"{amount(min(points))} to {amount(max(points))}× the throughput over {len(points)} cells"
            yield Text((f"{first.name} / {second.name}, {span}",), "para-virtual / emulated interfaces", "finding")


def curves(context: Context) -> Iterator[Block]:
    """The trials of all searches, summed up; the loss curve draws them."""
    rows = []
    for cell, arm in itertools.product(context.cells, context.arms):
        told = counted(context, cell, arm.name)
        if told is None or not told.curve:
            continue
        place, number = context.place(cell, arm.name), len(told.curve)
        rates, lost, worst, stretched = zip(*told.curve, strict=True)
        highest = max(rates) * 8 * int(context.level(cell, "frame_bytes"))
        shown = (
            Value.count("loss_curve.points", place, number),
            Value.count("loss_curve.stretched", place, sum(stretched)),
            Value.count("loss_curve.highest_offered", place, highest, BIT_RATE),
            Value.count("loss_curve.mean_loss", place, 100 * sum(lost) / number, SHARE),
            Value.count("loss_curve.mean_worst_loss", place, 100 * sum(worst) / number, SHARE),
        )
        rows.append(Row((context.spec.cell_name(cell),), arm.name, shown))
    titles = ("trials", "stretched", "highest offered", "lost on average", "by the worst guest")
    yield from table_of("What the searches tried", ("Of",), titles, rows, folded=True)
