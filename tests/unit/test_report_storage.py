"""The storage report on hand-made results whose causes are known: figures, page, terminal and text."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair
import pytest
from rich.console import Console
from shown import shown, tables, told, value
from storage_results import KNEE_SHARE, TRUTHS, Design, StorageArm, Truth, hardware_vm, storage_arms, storage_ledger
from synthetic import arm_record

from virtgauge import report
from virtgauge.analysis.resources import Limit
from virtgauge.claims.verdicts import Verdict
from virtgauge.ledger.records import Flag
from virtgauge.report.answers import answers
from virtgauge.report.drawing import specification
from virtgauge.results.formatting import interval_text, point_text
from virtgauge.specs.blocks import Chart, Finding, Text, Value
from virtgauge.specs.headline import Tone

pytestmark = pytest.mark.slow

EVIL = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>"
DISK = "rotational:7200"
ON_DISK = f"flushes={DISK}"
SMALL: dict[str, Any] = {"clients": (1,), "operations": ("single-write",)}
SINGLE = ("operation=single-write", "clients=1")
QUICK_CLIENT = {"mongodb": dataclasses.replace(TRUTHS["mongodb"], client_limit_per_s=1e6)}
"""Beside which even MongoDB’s unacknowledged writes are the server’s."""


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    """Host, container, gVisor, an emulated machine; three databases at three levels on a turning disk."""
    designs = [
        Design(flushes=DISK, crashes=("server", "machine")),
        Design(databases=("postgresql",), levels=("flushed",), flushes="at-once", **SMALL),
        Design(databases=("postgresql",), levels=("flushed",), operations=("knee", "mixed")),
        Design(databases=("postgresql",), levels=("flushed",), loops=("open:200", "open:500"), **SMALL),
        Design(databases=("mongodb",), levels=("flushed",), operations=("single-read",), index=(True, False)),
    ]
    return report.build(storage_ledger(tmp_path_factory.mktemp("storage") / "run", designs=designs))


def printed(built: report.Report, width: int = 150) -> str:
    file = io.StringIO()
    report.render_text(built, Console(file=file, width=width, color_system=None))
    return file.getvalue()


def test_ranks_are_given_within_a_level_only_and_shared_where_nothing_differs(usual: report.Report) -> None:
    def rank(database: str, level: str, arm: str = "host") -> int | None:
        levels = (f"database={database}", f"durability={level}", *SINGLE, ON_DISK)
        return value(usual, "storage", "throughput", arm, *levels).rank

    # One turn of the disk for each of them.
    assert [rank(name, "flushed") for name in ("postgresql", "mongodb")] == [1, 1]
    assert [rank(name, "periodic") for name in ("mongodb", "postgresql", "cassandra")] == [1, 2, 3]
    assert rank("mongodb", "periodic", "qemu") is None


def test_the_share_of_durability_in_the_papers_ranking_is_nearly_all_on_a_turning_disk(usual: report.Report) -> None:
    def level(name: str, durability: str) -> Value | Finding:
        (one,) = shown(usual, "storage", f"durability_share.{name}", "host", ON_DISK, f"durability={durability}")
        return one

    fastest, slowest = level("fastest", "mixed"), level("slowest", "mixed")
    assert isinstance(fastest, Finding) and isinstance(slowest, Finding)
    assert (fastest.text, slowest.text) == ("MongoDB", "PostgreSQL")
    spread, share = level("spread", "flushed"), level("share", "flushed")
    assert isinstance(spread, Value) and isinstance(share, Value)
    assert spread.estimate.point == pytest.approx(1, abs=0.05)
    assert share.estimate.point == pytest.approx(100, abs=1)
    (sentence, *_) = [one for one in usual.suite("storage").summary if isinstance(one, Text)]
    assert "PostgreSQL flushed, Cassandra periodic, MongoDB none" in sentence.paragraphs[0]
    assert "durability is 99" in sentence.paragraphs[0]
    assert not shown(usual, "storage", "durability_share.spread", "qemu")


def test_an_answer_says_whether_it_is_of_stores_or_reads_and_in_which_direction(usual: report.Report) -> None:
    clauses = [clause for answer in answers(usual) for clause in answer.clauses]
    changes = [clause for clause in clauses if "×" in clause and "even chance" not in clause]
    assert changes
    for clause in changes:
        assert re.match(r"(\w+: )?\w+ (stores|reads) [\d.]+(×| %) (slower|faster) \(", clause), clause
    figures = [figure for one in usual.suite("storage").headlines for figure in one.figures]
    assert figures and all(figure.name.endswith((" stores", " reads")) for figure in figures)


def test_the_causes_that_results_were_made_with_are_found(usual: report.Report) -> None:
    def limit(database: str, level: str, clients: int) -> Finding:
        levels = (f"database={database}", f"durability={level}", f"clients={clients}", "operation=single-write")
        return told(usual, "storage", "limit", "host", *levels, ON_DISK, "loop=closed")

    assert limit("postgresql", "flushed", 1).text == Limit.FLUSHES
    assert limit("mongodb", "none", 1).text == Limit.SENDING
    assert limit("cassandra", "periodic", 1).text == Limit.ROUND_TRIP
    assert limit("cassandra", "periodic", 16).text == Limit.SERVER_CPU
    assert limit("mongodb", "periodic", 16).text == Limit.CLIENT
    assert "16.0 writes to a flush (group commit)" in limit("postgresql", "flushed", 16).hint


def test_all_48_cells_of_the_paper_are_replayed_or_say_why_not(usual: report.Report) -> None:
    rows = [row for table in tables(usual, "storage", "replay") for row in table.rows]
    assert len(rows) == 48

    def explained(row: Any) -> str:
        assert row.cells[-1]
        return str(row.cells[-1])

    assert all(map(explained, rows))
    first = next(row for row in rows if row.heads == ("PostgreSQL", "physical", "write, 1 client"))
    assert first.cells[2].estimate.point == pytest.approx(1, abs=0.03)
    assert "1.00 statements to a turn of its disk" in explained(first)
    assert "the same on any hardware" in explained(first)
    known = ("simulated in software", "About the paper’s figure", "the same on any hardware")
    assert all(any(words in explained(row) for words in known) for row in rows if row.heads[1] == "virtual")


def test_databases_that_were_not_measured_are_named_once_with_their_reason(tmp_path: Path) -> None:
    design = Design(databases=("postgresql", "sqlite"), levels=("flushed", "none"), **SMALL)
    built = report.build(storage_ledger(tmp_path / "run", designs=[design], blocks=2))
    (table,) = tables(built, "storage", "missing")
    rows = {(row.heads[0], row.cells[0]): row.cells[2] for row in table.rows}
    missing = {("MongoDB", "every one"), ("Cassandra", "every one")}
    assert set(rows) == {("PostgreSQL", "none"), ("SQLite", "none")} | missing
    assert "no level “none”" in str(rows["SQLite", "none"])
    levels = {row.heads for table in tables(built, "storage", "durability") for row in table.rows if row.arm == "host"}
    assert {heads[:2] for heads in levels} == {("PostgreSQL", "flushed"), ("SQLite", "flushed")}
    replayed = [row for table in tables(built, "storage", "replay") for row in table.rows if row.heads[0] == "MongoDB"]
    assert replayed[0].cells[1] is None
    assert "Not measured: MongoDB at the paper’s level (none)." in str(replayed[0].cells[-1])


def of_level(built: report.Report, measure: str, database: str, level: str) -> Value:
    name = measure if measure.startswith("crash.") else f"durability.{measure}"
    return value(built, "storage", name, "host", f"database={database}", f"durability={level}", ON_DISK)


def test_lost_rows_are_summed_by_what_was_killed(usual: report.Report) -> None:
    def lost(level: str, of: str, what: str = "missing") -> float | None:
        return of_level(usual, f"crash.{of}.{what}", "mongodb", level).estimate.point

    assert (lost("flushed", "server"), lost("flushed", "machine")) == (0, 0)
    assert (lost("periodic", "server"), lost("periodic", "machine")) == (0, 6 * 120)
    assert lost("none", "server", "acknowledged") == 6 * 12_000
    assert lost("none", "server") == 6 * 900
    assert lost("none", "server", "newest_lost") == 3.5e6


def test_what_can_be_required_of_a_crash_is_shown(usual: report.Report) -> None:
    recovery = shown(usual, "storage", "recovery", "host", "database=mongodb", "durability=flushed")
    assert recovery and all(isinstance(one, Value) and one.estimate.point for one in recovery)


def test_the_price_of_a_level_is_its_rate_over_that_of_the_next_weaker_one(usual: report.Report) -> None:
    price = of_level(usual, "price", "postgresql", "flushed")
    assert price.hint == "of periodic"
    one, other = (of_level(usual, "rate", "postgresql", level).estimate.point for level in ("flushed", "periodic"))
    assert one is not None and other is not None
    assert price.estimate.point == pytest.approx(one / other, rel=0.05)
    assert of_level(usual, "price", "mongodb", "none").estimate.method == "the weakest level"


def test_what_a_flush_took_stands_beside_how_many_an_operation_needs(usual: report.Report) -> None:
    turn = of_level(usual, "mean_flush", "postgresql", "flushed")
    assert turn.estimate.point == pytest.approx(60e9 / 7200, rel=0.02)
    assert turn.estimate.n == 6
    assert of_level(usual, "mean_flush", "postgresql", "periodic").estimate.point is None  # no write waited for one
    shown_as = f"<b>{point_text(turn.estimate, turn.quantity)}</b><small>{interval_text(turn.estimate, turn.quantity)}"
    page = report.render_html(usual)
    assert "one flush takes" in page
    assert shown_as in page


def test_knees_and_mixed_loads_are_told_with_their_objective_and_streams(usual: report.Report) -> None:
    knee = value(usual, "storage", "knee", "host", "of=single-write")
    assert knee.estimate.point == pytest.approx(KNEE_SHARE * 1e6 / (500 + 132))
    met = {one.text for one in shown(usual, "storage", "knee.step.met", "host") if isinstance(one, Finding)}
    assert met == {"yes", "no"}
    for time in ("service", "response"):
        for stream in ("write", "read"):
            assert value(usual, "storage", f"{time}.p99", "host", f"+stream={stream}").estimate.point is not None
    tail = value(usual, "storage", "service.p99.9", "host", "+stream=write").estimate
    assert tail.method == "too few values for p99.9, or none"


def test_figures_are_valid_vega_lite_and_each_panel_is_of_one_level(usual: report.Report) -> None:
    charts = [one for one in usual.suite("storage").blocks if isinstance(one, Chart)]
    titles = [chart.title for chart in charts]
    assert titles[:2] == ["Single reads with and without an index", "One client, single writes"]
    assert {"Many clients, multiple reads", "What durability costs", "Latency against the offered rate"} <= set(titles)
    for chart in charts:
        altair.LayerChart.validate(specification(chart, [arm.record for arm in usual.arms]))
        assert all(panel.rows for panel in chart.panels)
        assert chart.text
    writes = next(chart for chart in charts if chart.title == "One client, single writes")
    assert {panel.title for panel in writes.panels} == {
        *("Flushed, flushes at once", "Flushed, flushes of a 7200 rpm disk without seeks"),
        *("Periodic, flushes of a 7200 rpm disk without seeks", "None, flushes of a 7200 rpm disk without seeks"),
    }
    published = {panel.title: {row["t"] for row in panel.rows if row["kind"] == "published"} for panel in writes.panels}
    on_none, on_flushed = (
        published[f"{level}, flushes of a 7200 rpm disk without seeks"] for level in ("None", "Flushed")
    )
    assert on_none == {"MongoDB, physical: 34.0 k/s", "MongoDB, virtual: 21.0 k/s"}
    assert on_flushed == {"PostgreSQL, physical: 120/s", "PostgreSQL, virtual: 400/s"}


def test_what_ranks_at_mixed_levels_is_contradicted_at_equal_ones(usual: report.Report) -> None:
    claims = {claim.paper.name: claim for claim in usual.suite("storage").claims}
    huge = claims["single-write-huge-difference"]
    assert huge.run[0].checked.verdict is Verdict.CONFIRMED
    assert huge.at_one_level is not None and huge.at_one_level.verdict is Verdict.CONTRADICTED
    assert claims["single-read-order"].at_one_level is None


def test_an_emulated_machine_decides_nothing_about_virtual_ones(usual: report.Report) -> None:
    claims = {claim.paper.name: claim for claim in usual.suite("storage").claims}
    impact = claims["single-write-physical-wins"].run[0].checked
    assert impact.verdict is Verdict.UNTESTABLE
    assert [one.text for one in impact.evidence] == [
        "the only virtual machine of this run is emulated, which decides nothing"
    ]


def test_a_real_virtual_machine_is_judged(tmp_path: Path) -> None:
    arms = [storage_arms()[0], hardware_vm(cpu=1.3)]
    designs = [Design(), Design(flushes="at-once", **SMALL)]
    found = report.build(storage_ledger(tmp_path / "run", arms, designs, truths=QUICK_CLIENT)).suite("storage")
    claims = {claim.paper.name: claim.run[0].checked for claim in found.claims}
    assert claims["single-write-physical-wins"].verdict is Verdict.CONFIRMED
    assert claims["many-single-read-ten-times-slower"].verdict is Verdict.CONTRADICTED


def test_rates_that_the_client_may_have_limited_decide_nothing_of_two_servers(tmp_path: Path) -> None:
    """MongoDB’s unacknowledged writes are as many on either as the client sends."""
    arms = [storage_arms()[0], hardware_vm(cpu=1.3)]
    found = report.build(storage_ledger(tmp_path / "run", arms, [Design()])).suite("storage")
    claims = {claim.paper.name: claim.run[0].checked for claim in found.claims}
    wins = claims["single-write-physical-wins"]
    assert wins.verdict is Verdict.UNDECIDED
    assert {"MongoDB" in one.text: one.agrees for one in wins.evidence} == {True: None, False: True}


@pytest.mark.parametrize(
    ("profiles", "verdict", "said"),
    [
        ((DISK,), Verdict.UNTESTABLE, f"their flushes were made alike ({DISK}), which decides nothing"),
        ((DISK, "at-once"), Verdict.UNTESTABLE, f"their flushes were made alike ({DISK}), which decides nothing"),
        (("as-is",), Verdict.CONTRADICTED, "virtual ÷ physical"),
        ((DISK, "as-is"), Verdict.CONTRADICTED, "virtual ÷ physical"),
    ],
)
def test_writes_that_wait_for_a_disk_of_the_runs_making_decide_nothing_of_two_servers(
    tmp_path: Path, profiles: tuple[str, ...], verdict: Verdict, said: str
) -> None:
    """On the same disk PostgreSQL writes as fast on whatever machine it is given to, and without flushes faster."""
    arms = [storage_arms()[0], hardware_vm(cpu=1.3)]
    designs = [Design(flushes=profile, clients=(1,)) for profile in profiles]
    found = report.build(storage_ledger(tmp_path / "run", arms, designs, truths=QUICK_CLIENT)).suite("storage")
    claims = {claim.paper.name: claim.run[0].checked for claim in found.claims}
    for name in ("single-write-postgresql-virtual-faster", "postgresql-single-write-threefold"):
        assert claims[name].verdict is verdict
        assert said in claims[name].evidence[0].text
    wins, order = claims["single-write-physical-wins"], claims["single-write-order"]
    assert wins.verdict is Verdict.CONFIRMED, "at their levels MongoDB and Cassandra wait for no flush"
    assert order.verdict is Verdict.CONFIRMED, "of each server by itself"
    somewhere = claims["virtual-sometimes-higher"]  # each client's other cells are lower, and many clients lack
    assert somewhere.verdict is Verdict.UNTESTABLE, somewhere.evidence


@pytest.mark.parametrize("other", ["at-once", "as-is"])
def test_what_a_server_gains_by_clients_is_found_on_one_disk(tmp_path: Path, other: str) -> None:
    """On the one that turns: another stands beside the paper's table of the virtual server, or between the servers."""
    arms = [storage_arms()[0], hardware_vm(cpu=1.3)]
    plain: dict[str, Any] = {"databases": ("postgresql",), "levels": ("flushed",), "operations": ("single-write",)}
    designs = [Design(flushes=DISK, **plain), Design(flushes=other, **plain)]
    found = report.build(storage_ledger(tmp_path / "run", arms, designs)).suite("storage")
    claims = {claim.paper.name: claim.run[0].checked for claim in found.claims}
    told = "; ".join(one.text for one in claims["single-write-postgresql-benefits-more"].evidence)
    gains = {server: float(size) for server, size in re.findall(r"(virtual|physical): ([\d.]+)×", told)}
    assert gains == {"virtual": pytest.approx(16, rel=0.1), "physical": pytest.approx(16, rel=0.1)}


@pytest.mark.parametrize("processors", [1, 2])
def test_a_server_of_one_processor_decides_nothing_about_many_clients(tmp_path: Path, processors: int) -> None:
    arms, fields = [storage_arms()[0], hardware_vm()], {"server_cpus": processors}
    designs = [Design(operations=("single-read",), clients=(1, 8, 12, 16))]
    found = report.build(storage_ledger(tmp_path / "run", arms, designs, fields=fields)).suite("storage")
    claims = {claim.paper.name: claim.run[0].checked for claim in found.claims}
    verdicts = [claims[name].verdict for name in ("single-read-all-benefit", "single-read-cassandra-peak")]
    assert [verdict is Verdict.UNTESTABLE for verdict in verdicts] == [processors == 1] * 2
    said = "; ".join(one.text for one in claims["single-read-all-benefit"].evidence)
    assert ("has one processor, which serves one client at a time" in said) is (processors == 1)
    assert claims["single-read-order"].verdict is not Verdict.UNTESTABLE


NOT_KNOWN = (
    "PostgreSQL, single-write, virtual, 1 client was not measured at the level “flushed”, but of postgresql.kvm, "
)


@pytest.mark.parametrize(
    ("told", "writes", "reads", "said"),
    [
        ({"level": "flushed"}, Verdict.CONTRADICTED, True, "virtual"),
        ({"level": "os"}, Verdict.UNTESTABLE, True, f"{NOT_KNOWN}which writes at the level “os”"),
        (
            {"level": None},
            Verdict.UNTESTABLE,
            True,
            f"{NOT_KNOWN}which writes at a level that its settings do not tell",
        ),
        (
            {"level": "flushed", "elsewhere": "it has no address"},
            *(Verdict.UNTESTABLE, False, f"{NOT_KNOWN}which is not shown to be on that machine (it has no address)"),
        ),
        ({"level": "flushed", "database": "new"}, Verdict.UNTESTABLE, False, NOT_KNOWN.partition(", but")[0]),
    ],
)
def test_a_server_that_was_there_already_stands_for_its_product(
    tmp_path: Path, told: dict[str, Any], writes: Verdict, reads: bool, said: str
) -> None:
    """Its reads whatever its settings are, its writes at the level that these are known to amount to.

    One of a product that only another version knows is told by its own name, and stands for none.
    """
    arms = [storage_arms()[0], hardware_vm(cpu=1.3)]
    single: dict[str, Any] = {"clients": (1,), "operations": ("single-write", "single-read")}
    of_host = Design(arm="host", levels=("flushed",), existing={"level": "flushed"}, **single)
    designs = [of_host, Design(arm="kvm", levels=("flushed",), existing=told, **single)]
    found = report.build(storage_ledger(tmp_path / "run", arms, designs, truths=QUICK_CLIENT)).suite("storage")
    claims = {claim.paper.name: claim.run[0].checked for claim in found.claims}
    faster = claims["single-write-postgresql-virtual-faster"]
    assert faster.verdict is writes
    assert said in faster.evidence[0].text
    assert (claims["single-read-affected-equally"].verdict is not Verdict.UNTESTABLE) is reads


@pytest.mark.parametrize("own", [(), ("mongodb", "cassandra")])
@pytest.mark.parametrize("both", [False, True])
def test_of_two_platforms_a_server_that_was_there_already_is_compared_with_its_like_alone(
    tmp_path: Path, both: bool, own: tuple[str, ...]
) -> None:
    """The run’s own has another version, other settings and another path to its client, which are no virtualization.

    Where each database is beside its like, what they change by is compared, though one was there and another was not.
    """
    arms = [storage_arms()[0], hardware_vm(cpu=1.3)]
    alike: dict[str, Any] = {"clients": (1,), "operations": ("single-write", "single-read", "multi-write")}
    there = Design(
        [database for database in Design.databases if database not in own],
        levels=("flushed",),
        existing={"level": "flushed"},
        **alike,
    )
    designs = [Design(arm="host", **alike), dataclasses.replace(there, arm="kvm"), Design(own, arm="kvm", **alike)]
    designs += [dataclasses.replace(there, arm="host")] if both else []
    found = report.build(storage_ledger(tmp_path / "run", arms, designs, truths=QUICK_CLIENT)).suite("storage")
    claims = {claim.paper.name: claim.run[0].checked for claim in found.claims}
    said = "one server was there already, with another version, settings and path to its client"
    of_databases = ("single-read-affected-equally", *(("multi-write-cassandra-more-affected",) if own else ()))
    for name in ("single-write-postgresql-virtual-faster", *of_databases):
        assert (claims[name].verdict is Verdict.UNTESTABLE) is not both, name
        assert any(said in one.text for one in claims[name].evidence) is not both, name
    assert claims["single-read-order"].verdict is not Verdict.UNTESTABLE, "of databases on one platform"


@pytest.mark.parametrize(("clients", "found_gain"), [((1, 16), 16), ((1,), 4.4)])
@pytest.mark.parametrize("other", ["kvm", "qemu", "runc"])
def test_what_one_server_does_is_judged_by_what_the_run_set_up_or_by_what_was_there_and_not_by_both(
    tmp_path: Path, other: str, clients: tuple[int, ...], found_gain: float
) -> None:
    """The run's has a disk that sixteen clients share, as those there do not; what has more clients stands."""
    host, _, runc, _, qemu = storage_arms()
    arm = next(one for one in (hardware_vm(), qemu, runc) if one.record.name == other)
    plain: dict[str, Any] = {"databases": ("postgresql",), "operations": ("single-write",)}
    designs = [
        Design(levels=("flushed",), arm="host", clients=clients, **plain),
        Design(levels=("os",), existing={"level": "flushed"}, **plain),
    ]
    truths = {"postgresql": dataclasses.replace(TRUTHS["postgresql"], client_limit_per_s=1e6)}
    found = report.build(storage_ledger(tmp_path / "run", [host, arm], designs, truths=truths)).suite("storage")
    claims = {claim.paper.name: claim.run[0].checked for claim in found.claims}
    told = "; ".join(one.text for one in claims["single-write-postgresql-benefits-more"].evidence)
    (gain,) = re.findall(r"physical: ([\d.]+)×", told)
    assert float(gain) == pytest.approx(found_gain, rel=0.1)


def test_what_the_client_reaches_beside_a_server_that_was_there_already_may_be_what_limits_it(tmp_path: Path) -> None:
    arms = [storage_arms()[0], hardware_vm(cpu=1.3)]
    designs = [Design(databases=("postgresql",), levels=("flushed",), existing={"level": "flushed"}, **SMALL)]
    verdicts = {}
    for limit in (1e6, None):
        fields = {"client_limit_per_s": limit}
        ledger = storage_ledger(tmp_path / f"run-{limit}", arms, designs, fields=fields)
        claims = {claim.paper.name: claim.run[0].checked for claim in report.build(ledger).suite("storage").claims}
        verdicts[limit] = claims["single-write-postgresql-virtual-faster"].verdict
    assert verdicts == {1e6: Verdict.CONTRADICTED, None: Verdict.UNDECIDED}


@pytest.mark.parametrize(
    ("operation", "server_us", "counted_us", "agrees"),
    [
        # A single client keeps one processor busy: 10,000/s are the most, and many clients reach 16,000/s.
        ("single-read", 100, {}, True),
        ("single-read", 30, {}, None),  # of 33,000/s
        ("single-read", 100, {16: 50}, None),  # an operation needs half at times, so that 20,000/s are
        ("single-read", 100, {1: 130}, None),  # more than one processor was busy: 20,000/s by two
        ("single-write", 100, {}, None),  # what else the server does beside writes counts in its CPU time
    ],
)
def test_of_two_rates_of_the_client_the_servers_cpu_tells_how_much_higher_they_are_at_most(
    tmp_path: Path, operation: str, server_us: float, counted_us: Mapping[int, float], agrees: bool | None
) -> None:
    truths = {"postgresql": Truth(server_us, 12, 10, client_limit_per_s=16_000, counted_us=counted_us)}
    design = Design(databases=("postgresql",), levels=("flushed",), flushes="at-once", operations=(operation,))
    found = report.build(storage_ledger(tmp_path / "run", storage_arms()[:1], [design], truths=truths)).suite("storage")
    claims = {claim.paper.name: claim.run[0].checked for claim in found.claims}
    told = next(one for one in claims["postgresql-well-with-many-clients"].evidence if operation in one.text)
    assert told.agrees is agrees, told


def test_what_a_virtual_machines_monitor_takes_is_no_measure_of_how_fast_its_server_may_be(tmp_path: Path) -> None:
    truths = {"postgresql": Truth(100, 12, 10, client_limit_per_s=16_000)}
    design = Design(databases=("postgresql",), levels=("flushed",), operations=("single-read",))
    found = report.build(storage_ledger(tmp_path / "run", [storage_arms()[0], hardware_vm()], [design], truths=truths))
    claims = {claim.paper.name: claim.run[0].checked for claim in found.suite("storage").claims}
    gains = claims["postgresql-well-with-many-clients"].evidence
    told = {server: one for server in ("physical", "virtual") for one in gains if f"single-read, {server}" in one.text}
    assert "which is allowed for" in told["physical"].text
    assert "above" in told["virtual"].text, "what many clients reach there has no end"


def test_only_a_container_beside_the_host_is_no_virtual_machine(tmp_path: Path) -> None:
    arms = [storage_arms()[0], StorageArm(arm_record("runc", "oci", "Container (runc)"))]
    built = report.build(storage_ledger(tmp_path / "run", arms, [Design(**SMALL)], blocks=2))
    claims = {claim.paper.name: claim.run[0].checked for claim in built.suite("storage").claims}
    assert claims["single-write-physical-wins"].verdict is Verdict.UNTESTABLE
    rows = [row for table in tables(built, "storage", "replay") for row in table.rows]
    virtual = next(row for row in rows if row.heads[1] == "virtual" and row.cells[2])
    ratio = virtual.cells[2]
    assert isinstance(ratio, Value) and ratio.estimate.point is not None
    assert "container" in str(virtual.cells[-1]) or ratio.estimate.point == pytest.approx(1, abs=0.25)


def test_headlines_rank_no_emulated_platform(usual: report.Report) -> None:
    by_arm = {headline.arm: headline for headline in usual.suite("storage").headlines}
    assert by_arm["host"].tone is Tone.REFERENCE
    assert by_arm["gvisor"].tone is Tone.SLOWER
    assert "of the host’s rows" in by_arm["gvisor"].text
    assert by_arm["qemu"].tone is Tone.EMULATED
    assert by_arm["qemu"].text.startswith("not ranked: ")
    assert "host-aa" not in by_arm


def test_a_platform_that_shares_no_cell_with_the_reference_is_not_called_without_figures(tmp_path: Path) -> None:
    own = [
        Design(("postgresql",), ("flushed",), operations=("single-read",), clients=(1,), arm="host"),
        Design(("mongodb",), ("none",), operations=("single-write",), clients=(1,), arm="runc"),
    ]
    arms = [storage_arms()[0], storage_arms()[2]]
    headlines = report.build(storage_ledger(tmp_path / "run", arms, own, blocks=2)).suite("storage").headlines
    assert {one.arm: one.tone for one in headlines} == {"host": Tone.REFERENCE, "runc": Tone.MISSING}
    assert "none in the cells that this line is about" in headlines[-1].text


def test_results_that_do_not_count_leave_reasons_and_no_figures(tmp_path: Path) -> None:
    flags = [Flag("wrong-answer", "3 reads brought other readings")]
    built = report.build(storage_ledger(tmp_path / "run", designs=[Design(**SMALL)], blocks=2, flags=flags))
    (table,) = tables(built, "storage", "missing")
    assert "invalid: wrong-answer: 3 reads brought other readings" in {row.cells[2] for row in table.rows}
    assert {headline.tone for headline in built.suite("storage").headlines} == {Tone.MISSING}
    assert not [one for one in built.suite("storage").blocks if isinstance(one, Chart)]


def test_the_terminal_tells_rates_durability_and_conclusions_at_any_width(usual: report.Report) -> None:
    for width in (80, 150):
        text = printed(usual, width)
        assert "durability is 99" in " ".join(text.split())
        assert "Tables IV and V" in text
        assert max(map(len, text.splitlines())) <= width


def test_names_of_a_run_cannot_become_markup(tmp_path: Path) -> None:
    arms = [StorageArm(arm_record("host", "host", EVIL, "reference")), StorageArm(arm_record("two", "oci", EVIL))]
    fields = {"settings": {EVIL: EVIL}, "database": EVIL}
    built = report.build(storage_ledger(tmp_path / "run", arms, [Design(**SMALL)], blocks=2, fields=fields))
    page = report.render_html(built)
    assert "<script>window.pwned" not in page
    assert "<img src=x" not in page
