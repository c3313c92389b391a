"""What is really of storage: what limits a rate, what durability costs and whether it holds, and the offered rates."""

from __future__ import annotations

import dataclasses
import itertools
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from virtgauge.analysis import resources
from virtgauge.analysis.comparison import paired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.resources import Explanation, Limit, Load
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import count, duration, interval_text, share
from virtgauge.results.quantities import DURATION, FLUSHES, OPERATION_RATE, RATIO, SHARE, significant
from virtgauge.results.table import Blocks
from virtgauge.specs import storage_formatting as labels
from virtgauge.specs.blocks import Axis, Block, Column, Finding, Place, Row, Shown, Value, chart_of, table_of
from virtgauge.specs.context import Context
from virtgauge.specs.storage_formatting import CLOSED, LEVELS, MULTI, PLAIN, SHORT_LEVELS, SINGLE_WRITE, WRITES

STREAMS = ("write", "read")  # Of a mixed load
SHOWN = ("p50", "p99", "p99.9", "max")  # Of a distribution, in tables
_UNACKNOWLEDGED = re.compile(r"\bw ?:? ?0\b|unacknowledged")
_SERVES_SEVERAL = 1.5  # Operations that a flush serves, from which on it is called a group commit


def clients_of(context: Context, cell: Cell) -> int:
    """One, where a cell does not say how many."""
    return int(context.level(cell, "clients") or 1)


def rate_measure(context: Context, cell: Cell) -> str:
    """What counts an operation: rows of statements with many values, else operations."""
    return "rows" if context.level(cell, "operation") in MULTI else "throughput"


def rates(context: Context, cell: Cell, arm: str) -> Blocks:
    """The rate of each repetition."""
    return context.values(rate_measure(context, cell), cell, arm)


def per_second(value: float | None) -> str:
    """``1.20 kop/s`` of a rate of operations."""
    return OPERATION_RATE.text(value).replace(" op/s", "/s").replace("kop/s", "k/s").replace("Mop/s", "M/s")


def client_limited(context: Context, cell: Cell, arm: str) -> str:
    """A note where any result lies near what the client reaches by itself."""
    return "client-limited" if context.table.endings.flags([cell], arm, counted=True).get("client-limited") else ""


def server_cpus(context: Context, cell: Cell, arm: str) -> float | None:
    """Processors that the server of a cell may use; None where nothing says."""
    found = context.values("server_cpus", cell, arm)
    told = statistics.median(found.values()) if found else (context.facts.get(arm, {}).get("cpu") or {}).get("count")
    return None if told is None else float(told)


def most(context: Context, cell: Cell, arm: str) -> Blocks:
    """What each repetition of a read would reach at most with any other client.

    The asymptotic bound (Lazowska et al. 1984, "Quantitative System Performance", chapter 5): processors that can be
    used ÷ CPU time per operation, if an operation costs no less than beside any number of clients in the repetition.
    Empty of writes, beside which a server does other work, of virtual machines, whose CPU time is their monitor's with
    its polling, and where the CPU was not counted.
    """
    cpus, own = server_cpus(context, cell, arm), rates(context, cell, arm)
    if cpus is None or context.level(cell, "operation") in WRITES or context.arm(arm).is_virtual:
        return {}
    apart = [one.name for one in context.spec.factors if one.name != "clients"]
    alike = (one for one in context.cells if all(context.level(one, of) == context.level(cell, of) for of in apart))
    costs = [context.values("server_cpu", one, arm) for one in alike]
    per_s, cpu_ns = (context.values(name, cell, arm) for name in ("throughput", "server_cpu"))
    least_ns = {block: min((of[block] for of in costs if block in of), default=0.0) for block in own}
    if not all(least_ns[block] and per_s.get(block) for block in own):
        return {}
    # A client that waits for its answer keeps one processor busy, unless more than that were.
    clients = clients_of(context, cell)
    alone = all(cpu_ns.get(block, 0.0) * per_s[block] <= 1e9 * clients for block in own)
    usable_ns = 1e9 * (min(cpus, clients) if alone else cpus)
    return {block: rate * max(usable_ns / (least_ns[block] * per_s[block]), 1.0) for block, rate in own.items()}


def explained(context: Context, cell: Cell, arm: str) -> tuple[Load, Explanation] | None:
    """What explains the rate of a cell on one arm; None where nothing was measured, or nothing of that kind."""
    operation, clients = context.level(cell, "operation"), clients_of(context, cell)

    def middle(measure: str) -> float | None:
        found = context.values(measure, cell, arm)
        return statistics.median(found.values()) if found else None

    per_s = middle("throughput")
    if operation not in PLAIN or context.level(cell, "loop") not in CLOSED or per_s is None:
        return None
    writes = operation in WRITES
    settings = context.table.last_result(cell, arm).get("settings") or {}
    named = settings.values() if isinstance(settings, Mapping) else (settings,)
    load = Load(
        operations_per_s=per_s,
        clients=clients,
        acknowledged=not (writes and any(_UNACKNOWLEDGED.search(str(value).lower()) for value in named)),
        flushes_per_operation=middle("flushes_per_operation") if writes else None,
        flush_limit_per_s=resources.flush_limit_per_s(context.level(cell, "flushes"), middle("disk_flushes.before")),
        client_limit_per_s=middle("client_limit"),
        server_cpu_ns=middle("server_cpu"),
        client_cpu_ns=middle("client_cpu"),
        server_cpus=server_cpus(context, cell, arm),
        service_ns=middle("service.mean"),
    )
    return load, resources.explain(load)


def limit(context: Context, cell: Cell, arm: str) -> Shown:
    """The limit of a rate, its explanation, and how many trials have which flag."""
    found = explained(context, cell, arm)
    if found is None:
        return None
    flags = {name: n for name, n in context.table.endings.flags([cell], arm).items() if name != "client-limited"}
    note = ", ".join(f"{name}: {number}" for name, number in flags.items())
    text = " ".join(reasons(context, cell, *found))
    return Finding("limit", context.place(cell, arm), found[1].limit.value, note, text)


def limit_hint(context: Context, cell: Cell, arm: str) -> str:
    """The limit of a rate, beside the rate."""
    found = explained(context, cell, arm)
    return found[1].limit.value if found else ""


def cached_flushes(context: Context, cells: Iterable[Cell], arm: str) -> Iterator[str]:
    """That the disk which is there flushes faster, one block after another, than a medium that keeps it could."""
    own = (cell for cell in cells if not labels.flush_text(context.level(cell, "flushes")))
    per_s = [value for cell in own for value in context.values("disk_flushes.before", cell, arm).values()]
    if per_s and (at := statistics.median(per_s)) > resources.FASTEST_FLASH_PER_S:
        yield (
            f"the disk completes {per_second(at)} flushes, sooner than flash stores a page: from a cache or memory, "
            "and only cutting the power tells a protected one from a volatile one"
        )


def limits(context: Context) -> Iterator[Block]:
    """Of each rate what was counted, how near that is to its limit, and what follows."""
    rows = []
    for cell in context.where({"operation": PLAIN, "loop": CLOSED}):
        for arm in context.arms:
            if (found := explained(context, cell, arm.name)) is None:
                continue
            place, explanation = context.place(cell, arm.name), found[1]
            used = {name: explanation.shares.get(name) for name in ("flushes", "client", "server CPU")}
            near = context.table.endings.flags([cell], arm.name, counted=True).get("client-limited", 0)
            shown = (
                limit(context, cell, arm.name),
                *(Value.count(f"limit.share:{of}", place, part and 100 * part, SHARE) for of, part in used.items()),
                Value.count("client_limited", place, near),
                Value.count("limit.operations_per_flush", place, explanation.operations_per_flush),
                " ".join(reasons(context, cell, *found)),
            )
            rows.append(Row((context.spec.cell_name(cell),), arm.name, shown))
    used_of = (Column(name, "share of its limit that is used") for name in ("flushes", "client", "server’s CPU"))
    counts = ("repetitions near the client’s limit", "operations to a flush")
    yield from table_of("", ("Of",), (Column("limit", text=True), *used_of, *counts, Column("why", text=True)), rows)


def reasons(context: Context, cell: Cell, load: Load, found: Explanation) -> list[str]:
    """The explanation of a rate, in sentences."""
    said = []
    writes, flushes = context.level(cell, "operation") in WRITES, found.shares.get("flushes")
    profile = context.level(cell, "flushes")
    disk = f"a device with {labels.flush_text(profile)}" if labels.flush_text(profile) else "the disk"
    per_s = (load.flushes_per_operation or 0.0) * load.operations_per_s
    match found.limit:
        case Limit.SENDING:
            said.append("No answer is awaited: this is the rate of sending, not of storing")
        case Limit.FLUSHES:
            said.append(f"{per_second(per_s)} flushes of {per_second(load.flush_limit_per_s)} that {disk} completes")
        case Limit.CLIENT:
            said.append(
                f"{share(found.shares['client'])} of what this client reaches against a server that stores nothing "
                f"({per_second(load.client_limit_per_s)}): the client’s own limit is near"
            )
        case Limit.SERVER_CPU:
            said.append(f"the server’s CPU time ({duration(load.server_cpu_ns)} an operation) fills what it may use")
        case Limit.ROUND_TRIP:
            said.append(f"one client waits {duration(load.service_ns)} for each answer: {_parts(load)}")
        case Limit.NONE_FOUND:
            busy = ", ".join(f"{name} {share(used)}" for name, used in found.shares.items())
            said.append(f"nothing that was counted is at its limit{f' ({busy})' if busy else ''}")
    if found.limit is not Limit.CLIENT and found.shares.get("client", 0) >= resources.CLIENT_NEAR:
        said.append(f"also {share(found.shares['client'])} of the client’s own limit")
    if writes and found.operations_per_flush:
        said.append(_group(found.operations_per_flush, context, cell))
    elif writes and load.flushes_per_operation == 0:
        said.append("no flush was counted")
    if found.limit is not Limit.FLUSHES and flushes is not None and flushes >= 0.01:
        said.append(f"flushes use {share(flushes)} of what {disk} completes")
    return [f"{sentence[0].upper()}{sentence[1:]}." for sentence in said]


def _group(per_flush: float, context: Context, cell: Cell) -> str:
    what = "statements" if context.level(cell, "operation") in MULTI else "writes"
    if per_flush >= _SERVES_SEVERAL:
        grouped = clients_of(context, cell) > 1 and context.level(cell, "durability") == "flushed"
        how = "group commit" if grouped else "flushed later, together"
        return f"{significant(per_flush)} {what} to a flush ({how})"
    return f"{significant(1 / per_flush)} flushes to a {what[:-1]}"


def _parts(load: Load) -> str:
    named = {
        "flush": "flushing",
        "server CPU": "the server’s CPU",
        "client CPU": "the client’s CPU",
        "rest": "network, waking up and locks",
    }
    parts = sorted(resources.round_trip_parts(load).items(), key=lambda part: -part[1])
    return ", ".join(f"{named[name]} {share(used)}" for name, used in parts)


def durability(context: Context) -> Iterator[Block]:
    """For each arm every level that was tried, the weakest of a database first: its price, and what crashes lost."""
    crashes = ("rows lost", "of", "wrong", "newest lost", "crashes")
    columns: tuple[Column | str, ...] = (
        *("flushes an operation", "one flush takes"),
        *(Column(title, f"{of} killed") for of in ("server", "machine") for title in crashes),
        *("single writes", "price", Column("settings", text=True)),
    )
    folded = False
    for arm in (one.name for one in context.own_arms):
        own = [cell for cell in context.where({"operation": (*WRITES, "crash")}) if context.table.tried(cell, arm)]
        groups = context.groups(own, ("database", "flushes", "commit_log")).values()
        rows = [row for cells in groups for row in _levels_of(context, arm, cells)]
        yield from table_of(context.arm(arm).label, ("Database", "Level"), columns, rows, folded=folded)
        folded = folded or bool(rows)


def _levels_of(context: Context, arm: str, cells: Sequence[Cell]) -> Iterator[Row]:
    below, usual = "", {**labels.USUAL, "operation": WRITES}
    rates_below: Blocks = {}
    by_level = context.groups(cells, ("durability",))
    for (level,) in sorted(by_level, key=lambda key: LEVELS.index(key[0]) if key[0] in LEVELS else len(LEVELS)):
        of_level = by_level[(level,)]
        if not any(context.measured(cell, arm) for cell in of_level):
            continue  # named once, with the reason, under what was not measured
        # Single writes by the fewest clients, else many at once.
        writing = min(
            (one for one in of_level if context.fits(one, usual) and context.table.tried(one, arm)),
            key=lambda one: (context.level(one, "operation") != SINGLE_WRITE, clients_of(context, one)),
            default=None,
        )
        found = rates(context, writing, arm) if writing else {}
        flushes, database, log = (context.level(of_level[0], name) for name in ("flushes", "database", "commit_log"))
        of = f"*;database={database};durability={level};flushes={flushes}"
        place = context.place(of if log == "same" else f"{of};commit_log={log}", arm)
        price = Estimate.missing("ratio", "the weakest level")
        if below:
            price = paired_ratio(found, rates_below, context.table.confidence)
        named = f"of {SHORT_LEVELS.get(below, below)}" if below and price.point is not None else ""
        shown: list[Shown] = []
        for measure, quantity in (("flushes_per_operation", FLUSHES), ("mean_flush", DURATION)):
            values = context.values(measure, writing, arm) if writing else {}
            shown.append(context.middle(f"durability.{measure}", place, values, quantity))
        for of in ("server", "machine"):
            shown += _crashes(context, arm, of_level, of, place)
        counted = context.spec.measure(rate_measure(context, writing) if writing else "throughput").quantity
        shown.append(context.middle("durability.rate", place, found, counted))
        shown.append(context.of("durability.price", place, price, RATIO, hint=named))
        settings = (context.table.last_result(cell, arm).get("settings") for cell in reversed(of_level))
        shown.append(_settings_text(next(filter(None, settings), None)))
        heads = context.text(of_level[0], "database"), on_device(SHORT_LEVELS.get(level, level), flushes, log)
        yield Row(heads, arm, tuple(shown))
        if found:
            below, rates_below = level, found


def on_device(level: str, flushes: str, log: str = "same") -> str:
    """A level, and in lines of their own the device, where it is not the one that is there, and a disk of the log."""
    return "\n".join(filter(None, (level, labels.flush_text(flushes), labels.log_text(log))))


def _settings_text(settings: Any) -> str:
    if isinstance(settings, Mapping):
        return " ".join(f"{name}={value}" for name, value in settings.items())
    return f"profile={settings}" if settings else "–"


_AUDITED = (("missing_rows",), ("acknowledged_rows",), ("wrong_rows",), ("newest_lost_ms",))


def _audit(*found: Any) -> tuple[Any, ...]:
    return found


def _crashes(context: Context, arm: str, cells: Sequence[Cell], of: str, place: Place) -> Iterator[Shown]:
    """All audits after a kind of crash together: rows lost, acknowledged and wrong, and the newest that was lost."""
    crashed = [cell for cell in cells if context.level(cell, "operation") == "crash"]
    chosen = [cell for cell in crashed if (context.level(cell, "of") or "server") == of]
    audits = [audit for cell in chosen for audit in context.table.details(cell, arm, _AUDITED, _audit).values()]
    if not audits:
        tried = [cell for cell in chosen if context.table.tried(cell, arm)]
        yield from (context.table.endings.ending(tried[-1], arm) if tried else None, *(None,) * 4)
        return
    crashes = count(len(audits), "crash", "crashes")
    *counts, ages_ms = zip(*audits, strict=True)
    for name, rows in zip(("missing", "acknowledged", "wrong"), counts, strict=True):
        number = sum(int(one or 0) for one in rows)
        note = "lost" if name == "missing" and number else ""
        yield Value.count(f"crash.{of}.{name}", place, number, note=note, hint=crashes)
    ages = [float(age) * 1e6 for age in ages_ms if age is not None]
    yield Value.count(f"crash.{of}.newest_lost", place, max(ages, default=None), DURATION)
    yield Value.count(f"crash.{of}.crashes", place, len(audits))


def mixed(context: Context) -> Iterator[Block]:
    """Writes and reads of every mixed load, from sending and from the intended start."""
    rows, times = [], list(itertools.product(("service", "response"), SHOWN))
    for cell in context.where({"operation": ("mixed",)}):
        level = context.level(cell, "durability")
        at = (
            labels.LEVEL_WORDS.get(level, level or "level not known"),
            *(context.text(cell, name) for name in ("flushes", "late", "commit_log")),
        )
        named = f"{context.text(cell, 'database')}: {', '.join(filter(None, at))}"
        for arm in context.arms:
            if not context.table.tried(cell, arm.name):
                continue
            total = context.value("throughput", cell, arm.name)
            for stream in STREAMS:
                shown, place = [], context.place(cell, arm.name, stream=stream)
                for time, name in times:
                    one = context.value(f"{time}_of_{stream}s.{name}", cell, arm.name)
                    shown.append(dataclasses.replace(one, measure=f"{time}.{name}", place=place))
                rows.append(Row((named, f"{stream}s"), arm.name, (*shown, total)))
    columns = tuple(Column(name, time) for time, name in times)
    title = "Steady small writes and bursts of large reads (the paper’s Figure 1)"
    yield from table_of(title, ("Of", "Stream"), (*columns, "operations"), rows)


def rates_tried(context: Context, cell: Cell, arm: str) -> Shown:
    """How many rates the searches of a knee offered."""
    return str(len(_steps(context, cell, arm))) if context.measured(cell, arm) else None


_Steps = list[tuple[float, float, bool]]


def _steps(context: Context, cell: Cell, arm: str) -> _Steps:
    """What the searches of a knee offered, the p99 of the response there, and whether it met the objective."""
    return [*itertools.chain.from_iterable(context.table.details(cell, arm, (("steps",),), _steps_of).values())]


def _steps_of(steps: Sequence[Mapping[str, Any]] | None) -> _Steps:
    return [
        (float(step["rate_per_s"]), float(step["p99_ms"]) * 1e6, bool(step.get("met")))
        for step in steps or ()
        if step.get("p99_ms") is not None
    ]


def steps(context: Context) -> Iterator[Block]:
    """Every rate that was offered in search of a knee."""
    rows = []
    for cell in context.where({"operation": ("knee",)}):
        for arm in context.arms:
            for number, (at, p99, met) in enumerate(_steps(context, cell, arm.name)):
                place = context.place(cell, arm.name, step=number)
                shown = (
                    Value.count("knee.step.offered_per_s", place, at, OPERATION_RATE),
                    Value.count("knee.step.p99", place, p99, DURATION),
                    Finding("knee.step.met", place, "yes" if met else "no"),
                )
                rows.append(Row((context.spec.cell_name(cell),), arm.name, shown))
    columns = ("offered", "p99 of the response", Column("objective met", text=True))
    yield from table_of("Rates that were offered in search of knees", ("Of",), columns, rows, folded=True)


def offered(context: Context) -> Iterator[Block]:
    """Of open loops the p99 of the response; of knees what their searches offered."""
    panels: dict[str, list[dict[str, Any]]] = {}
    for cell in context.cells:
        loop, operation = context.level(cell, "loop"), context.level(cell, "operation")
        kind = operation if loop.startswith("open:") else context.level(cell, "of") if operation == "knee" else ""
        if not kind:
            continue
        rows = panels.setdefault(context.spec.cell_name(cell, ("loop", "operation", "of")) + f", {kind}", [])
        for arm in context.arms:
            base = {"arm": arm.name, "label": arm.label, "hollow": arm.role == "aa"}
            if operation == "knee":
                for at, p99, _ in _steps(context, cell, arm.name):
                    told = {"at": f"{per_second(at)} offered", "t": duration(p99), "interval": ""}
                    rows.append(base | {"kind": "other", "x": at, "y": p99} | told)
                knee = context.estimate("knee", cell, arm.name).point
                bound = context.estimate("knee.objective", cell, arm.name).point
                rows += [base | {"kind": "rule", "x": knee, "t": per_second(knee)}] if knee is not None else []
                rows += [{"kind": "bound", "y": bound, "t": duration(bound)}] if bound is not None else []
            elif context.values("response.p99", cell, arm.name):
                found = context.estimate("response.p99", cell, arm.name)
                at = float(loop.partition(":")[2])
                place = {"kind": "ours", "x": at, "y": found.point, "low": found.low, "high": found.high}
                told = {"t": duration(found.point), "interval": interval_text(found, DURATION)}
                rows.append(base | place | {"at": f"{per_second(at)} offered"} | told)
    yield from chart_of(
        *("lines", "Latency against the offered rate"),
        "p99 of the response, from the intended start, so that operations that wait for those before count with "
        "their wait. Solid rules: the knee, the highest rate at which the objective is met; dotted: the objective.",
        (Axis("operations/s offered", OPERATION_RATE), Axis("p99 of the response", DURATION)),
        panels.items(),
    )


def absent(context: Context) -> Iterator[tuple[str, str]]:
    """The paper's databases that the plan does not have."""
    planned = {context.text(cell, "database") for cell in context.cells}
    yield from (
        (name, "the plan does not have it; the paper does") for name in labels.PAPER_LEVELS if name not in planned
    )
