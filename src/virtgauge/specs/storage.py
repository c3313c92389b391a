"""The storage suite: databases, what they store and read at which durability, and what explains it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from virtgauge.results.columns import Cell
from virtgauge.results.measure import Better, Measure, durations, field, measures
from virtgauge.results.quantities import COUNT, DURATION, FLUSH_RATE, FLUSHES, OPERATION_RATE, ROW_RATE, SHARE, SIZE
from virtgauge.specs import storage_formatting as labels
from virtgauge.specs import storage_insights as insights
from virtgauge.specs import storage_paper as paper
from virtgauge.specs.context import Context
from virtgauge.specs.model import ChartSpec, Computed, Figures, HeadlineSpec, SectionSpec, SuiteSpec, TableSpec
from virtgauge.specs.storage_formatting import LEVELS, MULTI, PLAIN, QUERIES, SINGLE, SINGLE_WRITE, USUAL

_OPERATIONS, _KNEE = frozenset({"operations", "mixed"}), frozenset({"knee"})
_DISK = "flushes that the disk completes by itself,"


def storage_measures() -> Iterator[Measure]:
    """Rates, latencies, what a crash lost, and what was counted beside."""
    higher, lower, neither = Better.HIGHER, Better.LOWER, Better.NEITHER
    asked = "flushes that the server asked for, per operation"
    limit = "what this client reaches against a server that stores nothing"
    stored = "what the files of tables and indexes grow by for each reading, after a checkpoint and without the log"
    late = "rows written that are older than one of an earlier statement, of all that are"
    yield from measures(
        *("storage", _OPERATIONS),
        ("throughput", OPERATION_RATE, higher, "operations that succeeded", field("operations_per_s")),
        ("rows", ROW_RATE, higher, "rows written or read", field("rows_per_s")),
        ("server_cpu", DURATION, lower, "CPU time of the server per operation", field("server_cpu_ns_per_operation")),
        ("client_cpu", DURATION, lower, "CPU time of the client per operation", field("client_cpu_ns_per_operation")),
        ("flushes_per_operation", FLUSHES, neither, asked, field("flushes_per_operation")),
        ("mean_flush", DURATION, neither, "how long one flush took", field("mean_flush_ns")),
        ("client_limit", OPERATION_RATE, neither, limit, field("client_limit_per_s")),
        ("server_cpus", COUNT, neither, "processors that the server may use", field("server_cpus")),
        ("late_across", SHARE, neither, late, field("late_across", factor=100.0)),
        headline=("throughput",),
    )
    yield from measures(
        *("storage", _OPERATIONS),
        ("bytes_per_reading", SIZE, lower, stored, field("bytes_per_reading")),
        lacking="the files of an existing server are not seen, few readings are less than what a database extends its "
        "files by, and earlier tables may have left files: more readings, and a plan without other writes, would help",
    )
    objective = field("objective_ms", factor=1e6)
    yield from measures(
        *("storage", _KNEE),
        ("knee", OPERATION_RATE, higher, "the highest rate within the latency objective", field("knee_per_s")),
        ("knee.objective", DURATION, neither, "what 99 % of the responses have to meet", objective),
        headline=("knee",),
    )
    recovered = "from the new start of a server, or of its machine, after a crash to its answer"
    yield from measures(
        *("storage", frozenset({"crash"})),
        ("lost_rows", COUNT, lower, "acknowledged rows that a killed server had lost", field("missing_rows")),
        ("recovery", DURATION, lower, recovered, field("recovery_ns")),
        headline=("lost_rows",),
    )
    both = _OPERATIONS | _KNEE
    yield from measures(
        *("storage", both),
        ("disk_flushes.before", FLUSH_RATE, neither, f"{_DISK} before the load", field("disk_before_per_s")),
        ("disk_flushes.after", FLUSH_RATE, neither, f"{_DISK} after the load", field("disk_after_per_s")),
    )
    for time, clause in (
        ("service", "the time from sending a request to its answer"),
        ("response", "the time from when a request was due to its answer"),
    ):
        yield from durations("storage", time, clause, both, time, "p99")
    for stream in insights.STREAMS:
        for time, clause in (("service", "from sending to the answer"), ("response", "from when it was due")):
            meaning = f"a {stream}'s time in a mixed load, {clause}"
            told = *("storage", f"{time}_of_{stream}s", meaning, frozenset({"mixed"})), f"{time}/{stream}"
            yield from durations(*told, statistics=insights.SHOWN)


_RATES = tuple(
    Figures(measure, title, True, {"operation": operations}, insights.client_limited, insights.limit_hint)
    for measure, title, operations in (("throughput", "rate", (*SINGLE, *QUERIES)), ("rows", "rate in rows", MULTI))
)
_COUNTED = (
    Figures("server_cpu", "CPU of server"),
    Figures("client_cpu", "CPU of client"),
    Figures("client_limit", "client’s limit"),
    Figures("flushes_per_operation", "flushes an operation"),
    Figures("mean_flush", "one flush takes"),
    Figures("disk_flushes.before", "disk’s flushes before"),
    Figures("disk_flushes.after", "and after"),
    Figures("bytes_per_reading", "stored per reading"),
    Figures("late_across", "rows late across statements"),
)
_SERVICE = tuple(Figures(f"service.{name}", name) for name in insights.SHOWN)
_TIMES = tuple(
    Figures(f"{time}.{name}", f"{time} {name}") for time in ("service", "response") for name in insights.SHOWN
)


def _version(context: Context, cells: list[Cell]) -> str:
    results = (context.table.last_result(cell, arm.name) for cell in cells for arm in context.arms)
    return str(next(filter(None, (one.get("database") for one in results)), ""))


GLANCE = TableSpec(
    "",
    _RATES,
    where=USUAL,
    split=("durability", "flushes", "commit_log"),
    across=("operation", "clients"),
    ends=("clients",),
    rows=("database",),
    head=_version,
    ranked="database",
    caption="Operations per second of all clients together (multiple writes and reads: rows per second), their "
    "interval over repetitions, and the ratio to the reference in the same block. Coloured ratios differ by more than "
    "identical arms (A/A) do; grey ones were not shown to. A number ranks databases on one platform at this level of "
    "durability; across levels nothing is ranked. Emulated platforms are never ranked.",
)
DETAIL = TableSpec(
    "",
    (*_RATES, *_SERVICE, *_COUNTED, Computed("limit", insights.limit)),
    where={"operation": PLAIN, "loop": labels.CLOSED},
    split=("operation", "durability", "flushes", "commit_log"),
    ranked="database",
    caption="Service times are from sending to the answer. CPU is the time of one operation, of all of the server and "
    "of the client. The disk is probed before and after by flushes of its own. Stored per reading: what the "
    "files of tables and indexes have grown by since there was no table, brought to rest and without the log, over "
    "the readings in the table.",
)
OPEN = TableSpec(
    "At offered rates",
    (*_RATES, *_TIMES),
    where={"operation": PLAIN, "loop": lambda level: level.startswith("open:")},
)
BESIDE = TableSpec(
    "What was counted beside these loads",
    _COUNTED,
    where={"operation": (*PLAIN, "mixed", "knee"), "loop": lambda level: level not in labels.CLOSED},
    folded="all",
)
KNEES = TableSpec(
    "Knees",
    (
        Figures("knee", "knee", compared=False),
        Figures("knee.objective", "objective"),
        *_TIMES,
        Computed("rates tried", insights.rates_tried),
    ),
    where={"operation": ("knee",)},
    caption="The highest offered rate at which 99 % of the responses meet the objective.",
)
_PLACE = ("database", "durability", "flushes", "commit_log")
RECOVERY = TableSpec(
    "Recovery after a kill -9",
    (
        Figures("recovery", "from the new start to the server’s answer", compared=True),
        Figures("lost_rows", "acknowledged rows lost"),
    ),
    where={"operation": ("crash",)},
    rows=(*_PLACE, "of"),
    folded="none",
)


def _one_level(context: Context, cells: list[Cell]) -> list[Cell]:
    """Reads wait for no flush, so of each database at one level: where most cells were tried."""
    reads = [cell for cell in cells if context.level(cell, "operation") not in labels.WRITES]
    found = [cell for cell in cells if cell not in reads]
    for group in context.groups(reads, ("database",)).values():
        places = context.groups(group, ("durability", "flushes", "commit_log"))
        most: list[Cell] = max(places.values(), key=len)
        found += most
    return [cell for cell in cells if cell in found]


def _fewest_clients(context: Context, cells: list[Cell]) -> list[Cell]:
    chosen = _one_level(context, cells)
    groups = context.groups(chosen, _PLACE).values()
    return [min(group, key=lambda cell: insights.clients_of(context, cell)) for group in groups]


def _charts() -> Iterator[ChartSpec]:
    """In the paper's order (van der Veen et al. 2012, figures 3 to 12), then ours."""
    one = ("1", "")
    rates = {operation: ("rows", "throughput") if operation in MULTI else ("throughput",) for operation in PLAIN}
    beside = {operation: f" In the manner of the paper’s Figure {{}}.{_PUBLISHED}" for operation in labels.PAPERS}
    for operation, counted in rates.items():
        yield ChartSpec(
            *("dots", f"{labels.OPERATION_TEXTS[operation].capitalize()} with and without an index"),
            "One client." + " In the manner of the paper’s Figures 3 and 4." * (operation in labels.PAPERS),
            counted,
            rows="index",
            panels=_PLACE,
            where={**USUAL, "index": ("yes", "no"), "operation": (operation,), "clients": one},
            least=2,
        )
    for number, (operation, counted) in enumerate(rates.items()):
        yield ChartSpec(
            *("dots", f"One client, {labels.OPERATION_TEXTS[operation]}"),
            "A panel for each level of durability." + beside.get(operation, "").format(5 + number),
            counted[:1],
            rows="database",
            panels=("durability", "flushes", "commit_log"),
            where={**USUAL, "operation": (operation,), "clients": one},
            choose=_one_level,
            published=paper.published_dots,
        )
    for number, (operation, counted) in enumerate(rates.items()):
        yield ChartSpec(
            *("lines", f"Many clients, {labels.OPERATION_TEXTS[operation]}"),
            "Of all clients together." + beside.get(operation, "").format(9 + number),
            counted[:1],
            x="clients",
            panels=_PLACE,
            where={**USUAL, "operation": (operation,)},
            choose=_one_level,
            published=paper.published_lines,
            least=2,
        )
    yield ChartSpec(
        *("dots", "What durability costs"),
        *("Single writes of one client at every level of durability.", ("throughput",)),
        rows="durability",
        panels=("database", "flushes", "commit_log"),
        where={**USUAL, "operation": (SINGLE_WRITE,), "clients": one},
        least=2,
    )
    for operation in PLAIN:
        yield ChartSpec(
            *("ccdf", f"Service time, {labels.OPERATION_TEXTS[operation]}: distribution"),
            "How often a statement takes longer than the time below, from sending to the answer; fewest clients.",
            ("service",),
            panels=_PLACE,
            where={**USUAL, "operation": (operation,)},
            choose=_fewest_clients,
        )


_PUBLISHED = (
    " Crosses: the paper’s physical server, diamonds: its virtual one, both at the paper’s level of durability and on "
    "other hardware."
)

_SAYS = {"throughput": ("stores", "single values", "at"), "rows": ("reads", "rows", "at")}


def _highlights(context: Context) -> list[tuple[str, Cell]]:
    """Of the fewest clients, at the strongest level, with the flush profile that most have: writes, then reads."""
    plain = context.where({**USUAL, "commit_log": ("same",)}) or context.where(USUAL)
    measured = [cell for cell in plain if any(context.measured(cell, arm.name) for arm in context.arms)] or plain
    if not measured:
        return []
    fewest = min(insights.clients_of(context, cell) for cell in measured)
    own = [cell for cell in measured if insights.clients_of(context, cell) == fewest]
    levels = {context.level(cell, "durability") for cell in own}
    strongest = next((level for level in reversed(LEVELS) if level in levels), "")
    own = [cell for cell in own if context.level(cell, "durability") == strongest] or own
    profiles = Counter(context.level(cell, "flushes") for cell in own)
    own = [cell for cell in own if context.level(cell, "flushes") == max(profiles, key=profiles.__getitem__)]
    told = [cell for cell in own if context.level(cell, "operation") in (SINGLE_WRITE, labels.MULTI_READ)] or own
    return [("rows" if context.level(cell, "operation") in MULTI else "throughput", cell) for cell in told]


def _conditions(context: Context, cells: list[Cell]) -> str:
    """``1 client, flushed``."""
    said = (context.text(cells[0], name) for name in ("clients", "durability", "flushes", "commit_log"))
    return ", ".join(filter(None, said))


def _remark(context: Context, cells: list[Cell], arm: str) -> str:
    limited = sum(bool(insights.client_limited(context, cell, arm)) for cell in cells)
    said = [f"{limited} of these near the client’s own limit"] if limited else []
    return ", ".join([*said, *insights.cached_flushes(context, cells, arm)])


STORAGE = SuiteSpec(
    "storage",
    "Sensor-data storage",
    labels.FACTORS,
    tuple(storage_measures()),
    HeadlineSpec(
        _SAYS,
        dict.fromkeys(_SAYS, ("faster", "slower", "")),
        _highlights,
        lambda context, cell: context.text(cell, "database"),
        _conditions,
        remark=_remark,
    ),
    summary=(paper.first_ranking, GLANCE),
    sections=(
        SectionSpec(
            *("durability", "What durability costs, and whether it holds"),
            (paper.ranking_shares, insights.durability, RECOVERY),
            "Levels as they were set, verified by counting flushes and by killing the server (or the whole machine) in "
            "the midst of writes and looking for every acknowledged row after the restart. Price: the rate over that "
            "at the next weaker level, in the same block.",
        ),
        SectionSpec("figures", "Figures", (*_charts(), insights.offered), folded=True),
        SectionSpec("replay", "The paper’s Tables IV and V beside this run", (paper.replay,), paper.NOTE, folded=True),
        SectionSpec("limits", "What limits each rate", (insights.limits,), folded=True),
        SectionSpec("tables", "Every result", (DETAIL,), folded=True),
        SectionSpec(
            *("latency", "Latency of open loops", (insights.mixed, OPEN, KNEES, insights.steps, BESIDE)),
            "Operations are due at times of their own, whatever becomes of those before. Service is from sending to "
            "the answer; response from the moment at which an operation was due.",
        ),
    ),
    agreement=(
        Figures("throughput", where={"operation": (*SINGLE, *QUERIES), "loop": labels.CLOSED}),
        Figures("rows", where={"operation": MULTI, "loop": labels.CLOSED}),
    ),
    claims=paper.claims,
    missing=("database", "durability", "commit_log"),
    absent=insights.absent,
    glossary={
        "Levels of durability": "What an acknowledged write has outlived. None: it may be lost with the server’s "
        "process. In the OS: the process, not the machine. Periodic: it is flushed within a set time. Flushed: it was "
        "flushed to the device before the acknowledgement. Rates are compared and ranked within a level only.",
        "Single, multiple": "A statement of one reading, and of many (the plan’s values), whose rows are counted as in "
        "the paper’s Table V.",
        "Last values, windows": "A statement that finds a sensor’s newest reading, and one that reckons count, mean, "
        "minimum and maximum of as many readings as the plan’s values, by the database itself.",
        "Service and response time": "From sending to the answer, and, in an open loop, from the moment at which the "
        "operation was meant to start: an operation that waits for others before it counts with its wait.",
        "Knee": "The highest offered rate at which 99 % of the responses meet the objective.",
        "Client-limited": "The rate lies within half of what the same client reaches against a server that stores "
        "nothing: the server may be able to do more.",
        "Flushes": "Counted at the server’s calls (fsync and its kin). A flush profile replaces the device: a rotating "
        "disk without seeks completes a flush at its next revolution, one with seeks after a seek and half a "
        "revolution on average.",
        "Limit": "What a rate is the rate of, reckoned from what was counted: flushes near what the device completes; "
        "CPU time near what the server may use; one client waiting for each answer (round trip).",
    },
)
