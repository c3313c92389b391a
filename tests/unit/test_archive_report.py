"""What changed over an archive of runs: by runs with a known truth, as page, text and JSON."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from compared_runs import GUEST, HOST, ledger_of, plan_text
from synthetic import arm_record
from typer.testing import CliRunner

from virtgauge import cli
from virtgauge.errors import UsageError
from virtgauge.exchange.archive import Archived, archive_run
from virtgauge.exchange.archive_page import archive_document, archive_json, headline
from virtgauge.exchange.archive_series import ArchiveSeries, find_archive_series
from virtgauge.exchange.archive_steps import Series, with_steps
from virtgauge.exchange.entries import LEVELS_SCHEMA as SCHEMA
from virtgauge.exchange.entries import Entry, read_entries
from virtgauge.exchange.place import Place, open_place
from virtgauge.ledger.store import Ledger
from virtgauge.results.columns import Cell
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import find_measure

TIMER, SLEEP = find_measure("timing", "timer_cost.p50"), find_measure("timing", "sleep_lateness.p99")
RUNS, CHANGED_AT = 26, 13


def archived(place: Place, folder: Path) -> Archived:
    with Ledger.open(folder) as ledger:
        return archive_run(place, ledger).outcome


def made(folder: Path, number: int, **fields: Any) -> Path:
    """The n-th run, of one level until the guest's kernel changes, but for what days do."""
    later = number >= CHANGED_AT
    kernel = "6.18.0" if later else "6.1.0"
    known: dict[str, Any] = {
        "guest": 1.3 if later else 1.0,
        "host": 1 + random.Random(number).gauss(0, 0.01),
        "day": number + 1,
        "fingerprint": {"identity": {"cpu_model": "Xeon", "kernel_release": kernel}},
    }
    return ledger_of(folder / f"run-{number}", number, blocks=3, **(known | fields))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    root = tmp_path_factory.mktemp("archive")
    place = open_place(str(root / "archive"))
    for number in random.Random(1).sample(range(RUNS), RUNS):  # in whatever order they are archived
        assert archived(place, made(root, number)) is Archived.NEW
    return place


@pytest.fixture(scope="module")
def found(place: Place) -> ArchiveSeries:
    return find_archive_series(place, [TIMER, SLEEP], 0.05)


def series_of(found: ArchiveSeries, measure: str, arm: str) -> Series:
    (one,) = [one for one in found.series if (one.measure.full_name, one.arm) == (measure, arm)]
    return one


def groups(found: ArchiveSeries) -> list[tuple[str, str]]:
    """What the summary tells of each place: between which runs it is, and what happened."""
    return [(one.heading, *one.paragraphs) for one in archive_document(found).summary if one.tone == "finding"]


def test_a_step_is_found_where_it_was_with_its_size_and_what_else_changed(found: ArchiveSeries) -> None:
    changed = series_of(found, TIMER.full_name, "Guest")
    (step,) = changed.steps
    assert (step.after, step.finding, step.beside) == (CHANGED_AT - 1, "worse", ("kernel 6.1.0 → 6.18.0",))
    assert not step.is_of_few_days and not step.as_reference
    assert step.size.point == pytest.approx(1.3, rel=0.03)
    assert not step.size.excludes(1.3)
    told = changed.step_text(step, found.labels)
    assert told.startswith("worse between run-12 (2025-03-13) and run-13 (2025-03-14): 1.") and told.endswith(
        "; kernel 6.1.0 → 6.18.0"
    )


def test_what_did_not_change_has_no_step(found: ArchiveSeries) -> None:
    for measure in (TIMER, SLEEP):
        assert series_of(found, measure.full_name, "Host").steps == ()
    assert {one.arm for one in found.series} == {"Host", "Guest"}, "identical arms are no platform of their own"
    assert headline(found) == f"2 steps in 2 of 4 series over {RUNS} runs"


def test_levels_are_the_medians_of_the_ledgers(found: ArchiveSeries, place: Place, tmp_path: Path) -> None:
    with Ledger.open(made(tmp_path, 3)) as ledger:
        table = ResultTable(ledger)
        (cell,) = (one for one in table.cells() if one.probe == "timer_cost")
        expected = table.estimate(TIMER, cell, GUEST.name)
    level = series_of(found, TIMER.full_name, "Guest").level(3)
    assert dataclasses.replace(level, method=expected.method) == expected


def test_a_change_that_does_not_matter_is_none(place: Place) -> None:
    assert find_archive_series(place, [TIMER], 0.4).steps == 0


def test_cells_of_other_settings_platforms_and_hosts_are_other_series(tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "archive"))
    gone = (HOST, arm_record("guest", "oci", "Guest", emulated=True))
    for number, fields in enumerate(
        [
            {},
            {"plan_text": plan_text(sleep_samples=50)},
            {"fingerprint": {"identity": {"cpu_model": "EPYC"}}},
            {"arms": gone},
        ]
    ):
        archived(place, made(tmp_path, number, **fields))
    found = find_archive_series(place, [SLEEP], 0.05)
    assert sorted(one.runs for one in found.series if one.arm == "Guest") == [(0,), (1,), (2,), (3,)]
    assert sorted(one.runs for one in found.series if one.arm == "Host") == [(0, 3), (1,), (2,)]
    assert {one.emulated for one in found.series if one.runs == (3,)} == {True}
    (figures,) = [section for section in archive_document(found).sections if section.anchor == "all"]
    heads = [row.heads for block in figures.blocks for row in block.rows]
    assert len(set(zip(heads, [row.arm for block in figures.blocks for row in block.rows], strict=True))) == len(heads)
    assert any("sleep_samples 50" in head for head, _ in heads)
    assert set(found.hosts) == {"Xeon", "EPYC"}


def test_the_page_is_whole_and_says_it(found: ArchiveSeries) -> None:
    document = archive_document(found)
    page = document.html()
    assert "worse between run-12 (2025-03-13) and run-13 (2025-03-14)" in page and "kernel 6.1.0 → 6.18.0" in page
    assert "http://" not in page.partition("<script>")[0] and "Content-Security-Policy" in page
    assert [section.title for section in document.sections] == ["Charts", "Figures", "Figures by run"]
    told = json.loads(archive_json(found))
    assert (told["kind"], len(told["runs"]), len(told["series"])) == ("archive", RUNS, 4)
    assert [step["direction"] for step in told["series"][0]["steps"]] == ["worse"]
    assert told["series"][0]["of"]["platform"] == "oci"


def test_what_runs_call_themselves_cannot_leave_its_place(tmp_path: Path) -> None:
    place, evil = (
        open_place(str(tmp_path / "archive")),
        "</script><script>window.pwned=1</script>{{7*7}}[red]\x1b]0;x\x07",
    )
    arms = (HOST, arm_record("guest", "oci", evil))
    for number in range(2):
        facts = {"identity": {"cpu_model": evil, "kernel_release": f"{evil}{number}"}}
        named = {"arms": arms, "fingerprint": facts, "run_id": f"{evil}{number}"}
        archived(place, ledger_of(tmp_path / f"run-{number}", number, blocks=1, day=1 + number, **named))
    found = find_archive_series(place, [TIMER], 0.05)
    page = archive_document(found).html()
    assert "<script>window.pwned" not in page and "\x1b" not in page
    result = CliRunner().invoke(cli.app, ["archive", "report", place.root, "--measure", TIMER.full_name])
    assert result.exit_code == 0 and "\x1b]0" not in result.stdout


def test_the_command_prints_or_writes_the_report(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = ["archive", "report", place.root, "--measure", TIMER.full_name]
    text = CliRunner().invoke(cli.app, report).stdout
    assert (
        "1 step in 1 of 2 series over 26 runs" in text
        and "between run-12 (2025-03-13) and run-13 (2025-03-14): 1 figure worse" in text
    )
    assert CliRunner().invoke(cli.app, [*report, "--format", "html"]).stdout == "report: archive.html\n"
    assert "between run-12 (2025-03-13) and run-13 (2025-03-14)" in (tmp_path / "archive.html").read_text()
    assert CliRunner().invoke(cli.app, [*report, "--format", "json", "--out", "own.json"]).exit_code == 0
    assert json.loads((tmp_path / "own.json").read_text())["place"] == place.root
    assert CliRunner().invoke(cli.app, [*report, "--fail-on", "worse"]).exit_code == 1
    assert CliRunner().invoke(cli.app, [*report, "--fail-on", "worse", "--equivalent", "40"]).exit_code == 0


def test_an_archive_of_before_tells_which_runs_have_no_levels(tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "archive"))
    for number in range(2):
        archived(place, made(tmp_path, number))
    entry = read_entries(place)[0]
    path = Path(place.root) / "runs" / f"{entry.archive}.json"
    old = json.loads(path.read_text())
    (Path(place.root) / old["levels"]).unlink()
    path.write_text(json.dumps(old | {"levels": None}))
    found = find_archive_series(place, [TIMER], 0.05)
    assert (found.without_levels, len(found.runs)) == ((entry.run,), 1)
    assert any(
        f"1 more run without levels, archived by an older virtgauge: {entry.run};" in caveat
        for caveat in archive_document(found).caveats
    )
    assert archived(place, tmp_path / entry.run) is Archived.RENEWED
    assert find_archive_series(place, [TIMER], 0.05).without_levels == ()


def test_levels_that_are_missing_or_damaged_are_refused_with_a_remedy(tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "archive"))
    archived(place, made(tmp_path, 0))
    (levels,) = Path(place.root).glob("levels/*.parquet")
    whole = levels.read_bytes()
    for content in (whole[:-9], b"", whole.replace(b"PAR1", b"PARX")):
        levels.write_bytes(content)
        with pytest.raises(UsageError, match="levels cannot be read"):
            find_archive_series(place, [TIMER], 0.05)
    levels.unlink()
    with pytest.raises(UsageError, match="levels cannot be read"):
        find_archive_series(place, [TIMER], 0.05)
    levels.symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="is no file"):
        find_archive_series(place, [TIMER], 0.05)


def test_an_archive_without_such_figures_says_what_to_do(place: Place, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no run has levels of storage\.throughput"):
        find_archive_series(place, [find_measure("storage", "throughput")], 0.05)
    with pytest.raises(UsageError, match="holds no archive"):
        find_archive_series(open_place(str(tmp_path / "none")), [TIMER], 0.05)


def test_a_run_that_has_grown_replaces_its_levels(tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "archive"))
    archived(place, made(tmp_path, 0))
    with Ledger.open(tmp_path / "run-0") as ledger:
        one = ledger.trials()[0]
        ledger.add_trial(dataclasses.replace(one, block=7, key="b0007/new"), ledger.histograms_of(one.trial_id))
    assert archived(place, tmp_path / "run-0") is Archived.RENEWED
    assert len(list(Path(place.root).glob("levels/*.parquet"))) == 1
    series = find_archive_series(place, [TIMER, SLEEP], 0.05).series
    assert {repetitions for one in series for *_, repetitions in one.ends} == {3, 4}


@pytest.fixture
def levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ArchiveSeries]:
    """An archive of one run a level, of which nothing but these is known."""

    def found(
        values: Sequence[float],
        columns: Mapping[str, Any] | None = None,
        equivalent: float = 0.05,
        facts: Sequence[Mapping[str, str]] = (),
    ) -> ArchiveSeries:
        place = open_place(str(tmp_path / "archive"))
        entries = [
            Entry(
                **{"version": 1, "archive": f"run-{number:03}", "run": f"run-{number}", "plan": "p", "trials": 1},
                **{"digest": "", "archived_at": "", "files": (), "levels": "levels/all.parquet"},
                created_at=f"2025-01-01T00:00:{number:03}",
                facts={"": facts[number]} if facts else {},
            )
            for number in range(len(values))
        ]
        monkeypatch.setattr("virtgauge.exchange.archive_series.read_entries", lambda _: entries)
        rows = {
            **{name: [""] * len(values) for name in SCHEMA.names},
            **{"archive": [one.archive for one in entries], "level": list(values), "label": ["Guest"] * len(values)},
            **{name: [None] * len(values) for name in ("low", "high", "confidence")},
            **{"emulated": [False] * len(values), "repetitions": [1] * len(values), "unit": ["ns"] * len(values)},
            **{"measure": [TIMER.full_name] * len(values), "probe": ["timer_cost"] * len(values)},
            **(columns or {}),
        }
        monkeypatch.setattr(
            "virtgauge.exchange.archive_series.read_levels",
            lambda *_: (pa.table({field.name: pa.array(rows[field.name], field.type) for field in SCHEMA}), {}),
        )
        return find_archive_series(place, [TIMER], equivalent)

    return found


def noisy(*parts: tuple[int, float], spread: float = 0.001) -> list[float]:
    chance = random.Random(3)
    return [level * (1 + chance.gauss(0, spread)) for number, level in parts for _ in range(number)]


def test_of_steps_that_are_too_small_each_for_itself_the_whole_is_told(levels: Callable[..., ArchiveSeries]) -> None:
    (one,) = levels(noisy((16, 1.0), (6, 1.04), (16, 1.08))).series
    assert len(one.steps) == 1 and one.doubtful == 1
    assert one.steps[0].size.point == pytest.approx(1.07, rel=0.02)


def test_what_changed_most_at_a_place_is_what_changed_most_there(levels: Callable[..., ArchiveSeries]) -> None:
    values = noisy((20, 1.0), (20, 3.0), (20, 3.3), (40, 1.0), (20, 2.0))
    cells = {"factors": ['{"function": "rdtsc"}'] * 60 + ['{"function": "rdtscp"}'] * 60}
    archives = [f"run-{number:03}" for number in range(60)] * 2
    found = levels(values, cells | {"archive": archives})
    last = dict(groups(found))["between run-39 (2025-01-01) and run-40 (2025-01-01)"]
    assert last.startswith("2 figures worse; most of all") and "rdtscp" in last and "2.0" in last


def test_a_kernel_that_goes_back_and_forth_is_not_named(levels: Callable[..., ArchiveSeries]) -> None:
    values = noisy((20, 1.0), (20, 1.5))
    (one,) = levels(values, {"kernel": ["6.1", "6.18"] * 20}).series
    assert [step.beside for step in one.steps] == [()]
    (one,) = levels(values, {"kernel": ["6.1"] * 21 + ["6.18"] * 19, "version": ["1"] * 20 + ["2"] * 20}).series
    assert [step.beside for step in one.steps] == [("kernel 6.1 → 6.18", "virtgauge 1 → 2")]


def test_neighbours_that_are_alike_are_told(levels: Callable[..., ArchiveSeries]) -> None:
    chance = random.Random(4)
    (one,) = levels(noisy((20, 1.0), (20, 1.5), spread=0.01)).series
    assert not one.alike
    walk = [1.0]
    for _ in range(80):
        walk.append(1 + 0.9 * (walk[-1] - 1) + chance.gauss(0, 0.02))
    (one,) = levels([*walk, *(2 * level for level in walk)]).series
    assert one.steps and one.alike


def test_a_figure_in_another_unit_is_no_level_of_this_one(levels: Callable[..., ArchiveSeries]) -> None:
    units = ["ns"] * 20 + ["us"] * 20
    (one,) = levels(noisy((40, 1.0)), {"unit": units}).series
    assert one.runs == tuple(range(20))
    with pytest.raises(UsageError, match="no run has levels"):
        levels(noisy((40, 1.0)), {"unit": ["us"] * 40})


def test_levels_of_two_rows_in_one_run_are_refused(levels: Callable[..., ArchiveSeries]) -> None:
    with pytest.raises(UsageError, match="twice in one run"):
        levels([1.0, 1.0], {"archive": ["run-000"] * 2})


@pytest.mark.parametrize("values", [[0.0] * 40, [-1.0, 1.0] * 20, [1e-29, 1e29] * 20, [1.0] * 3, noisy((40, 1e29))])
def test_whatever_levels_are_they_are_told(levels: Callable[..., ArchiveSeries], values: list[float]) -> None:
    found = levels(values, {"factors": ["[" * 2000] * len(values), "settings": ["x"] * len(values)})
    assert archive_document(found).sections and json.loads(archive_json(found))


@pytest.mark.parametrize(
    ("name", "column", "why"),
    [
        ("factors", pa.nulls(1, pa.string()), "factors is missing"),
        ("kernel", pa.Array.from_buffers(pa.string(), 1, [None, *pa.array([b"\xff\xfe"]).buffers()[1:]]), "UTF"),
        ("repetitions", pa.nulls(1, pa.int32()), "repetitions is missing"),
    ],
)
def test_columns_that_are_damaged_are_refused(tmp_path: Path, name: str, column: pa.Array, why: str) -> None:
    place = open_place(str(tmp_path / "archive"))
    archived(place, made(tmp_path, 0))
    (path,) = Path(place.root).glob("levels/*.parquet")
    whole = pq.read_table(path).filter(pc.equal(pq.read_table(path)["measure"], TIMER.full_name)).slice(0, 1)
    pq.write_table(whole.set_column(whole.schema.get_field_index(name), name, column), path)
    with pytest.raises(UsageError, match=f"levels cannot be read: .*{why}"):
        find_archive_series(place, [TIMER], 0.05)


def test_levels_that_are_no_figures_are_left_out(tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "archive"))
    archived(place, made(tmp_path, 0))
    (path,) = Path(place.root).glob("levels/*.parquet")
    whole = pq.read_table(path)
    for name, value in (("level", float("nan")), ("low", float("inf")), ("high", 1e300)):
        broken = pa.array([value] * whole.num_rows, pa.float64())
        pq.write_table(whole.set_column(whole.schema.get_field_index(name), name, broken), path)
        with pytest.raises(UsageError, match="no run has levels"):
            find_archive_series(place, [TIMER], 0.05)


def test_what_else_changed_is_all_that_was_recorded(levels: Callable[..., ArchiveSeries]) -> None:
    before = {
        "microcode": "0x1",
        "cmdline": "root=/dev/sda1 quiet console=ttyS0 mitigations=auto",
        "guest: memory": "1",
    }
    after = {"microcode": "0x2", "cmdline": "root=/dev/sda1 console=ttyS0 mitigations=off", "guest: memory": "2"}
    fixed = {"boot id": "x", "other: memory": "1"}
    facts = [{**fixed, **(before if number < 20 else after), "boot id": str(number)} for number in range(40)]
    (one,) = levels(noisy((20, 1.0), (20, 1.5)), {"arm": ["guest"] * 40}, facts=facts).series
    told = ("microcode 0x1 → 0x2", "cmdline −quiet −mitigations=auto +mitigations=off", "guest: memory 1 → 2")
    assert [step.beside for step in one.steps] == [told]


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("boot id", ["a", "b", "a", "c"], "boot id (a, b, c)"),
        ("memory bytes", ["1000000000", "2000000000"] * 4, "memory bytes (1.00 GB, 2.00 GB)"),
        ("memory bytes", ["2000000000", "2000000001"] * 4, ""),  # what a boot more or less takes
        ("cpu count", ["4", "4", "8", "8", "4", "4"], ""),  # threads of cores that were switched off for a while
        ("boot id", ["a", "a", "b", "c"], ""),
    ],
)
def test_several_machines_in_one_series_are_told(
    levels: Callable[..., ArchiveSeries], name: str, values: list[str], told: str
) -> None:
    found = levels([1.0] * len(values), {"cpu": ["Xeon"] * len(values)}, facts=[{name: value} for value in values])
    assert found.alternating == ({"Xeon": (told,)} if told else {})
    assert [told in caveat for caveat in archive_document(found).caveats] == [True] * bool(told)


def test_a_machine_that_is_named_has_series_of_its_own(tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "archive"))
    for number, name in enumerate(("alpha", "beta")):
        with Ledger.open(made(tmp_path, number)) as ledger:
            assert archive_run(place, ledger, host=name).outcome is Archived.NEW
    assert set(find_archive_series(place, [TIMER], 0.05).hosts) == {"alpha", "beta"}
    product = {"identity": {"cpu_model": "Xeon"}, "context": {"hypervisor": {"product": "R640"}}}
    archived(place, made(tmp_path, 2, fingerprint=product))
    assert "Xeon (R640)" in find_archive_series(place, [TIMER], 0.05).hosts


def test_levels_that_are_damaged_are_left_out_named_and_mended(tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "archive"))
    for number in range(3):
        archived(place, made(tmp_path, number))
    lost = next(one for one in read_entries(place) if one.run == "run-1")
    assert lost.levels is not None
    Path(place.path(lost.levels)).write_bytes(b"PAR1")
    found = find_archive_series(place, [TIMER], 0.05)
    assert ([run.label for run in found.runs], [*found.unread]) == (["run-0", "run-2"], ["run-1"])
    (caveat,) = archive_document(found).caveats
    assert "run-1: " in caveat and f"`virtgauge archive add RUN --to {place.name}`" in caveat
    assert archived(place, tmp_path / "run-1") is Archived.MENDED
    assert find_archive_series(place, [TIMER], 0.05).unread == {}
    (trials,) = Path(place.root).glob("trials/*/*/run-2-*.parquet")
    trials.unlink()
    assert archived(place, tmp_path / "run-2") is Archived.MENDED
    assert archived(place, tmp_path / "run-2") is Archived.KNOWN
    assert len(place.found("trials")) == len(place.found("levels")) == 3


def test_too_few_runs_are_no_finding(levels: Callable[..., ArchiveSeries]) -> None:
    for number in (1, 6, 7):
        found = levels(noisy((number // 2, 1.0), (number - number // 2, 1.5)))
        assert (found.needed, found.series[0].steps) == (8, ())
        assert headline(found) == f"too few runs to tell a change: {number} of the 8 that it takes with 1 series"
        text = " ".join(text for block in archive_document(found).summary for text in getattr(block, "paragraphs", ()))
        assert "chance" not in text and "`virtgauge compare --series RUNS`" in text
    assert headline(levels([1.0] * 8)) == "no change shown in any of 1 series over 8 runs"


@pytest.mark.parametrize(("falls_to", "kept"), [(1.2, 0), (1.9, 1)])
def test_a_step_whose_interval_reaches_no_change_is_none(falls_to: float, kept: int) -> None:
    """Levels that rise and fall slowly have one that exceeds what neighbours differ by."""
    levels = np.array([*np.linspace(1.0, 1.5, 12), *np.linspace(1.53, falls_to, 12)])
    one = Series(
        **{"measure": TIMER, "cell": Cell("timing", "timer_cost", ()), "arm": "Guest", "runs": tuple(range(24))},
        **{"levels": levels, "ends": (), "dates": [str(day) for day in range(24)], "facts": [{}] * 24},
        **{"host": "", "of": {"arm": "guest"}, "emulated": False, "is_reference": False},
    )
    assert len(with_steps(one, [11], 0.05).steps) == kept


def test_steps_of_few_days_are_marked_and_the_newest_come_first(levels: Callable[..., ArchiveSeries]) -> None:
    found = levels(noisy((20, 1.0), (20, 1.5), (20, 3.0), (20, 6.0)))
    (one,) = found.series
    assert [step.is_of_few_days for step in one.steps] == [True] * 3, "all runs are of one day"
    assert "the runs on one side are of fewer than 4 days" in one.step_text(one.steps[0], found.labels)
    places = [int(between.split("run-")[1].split(" ")[0]) for between, _ in groups(found)]
    assert places == [59, 39, 19]
    assert len(one.drift) == 3
    (told,) = [text for text in archive_document(found).summary[-1].paragraphs if "a drift?" in text]
    assert "in steps of the same direction, 6.0" in told


def test_what_the_reference_does_too_is_told(tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "archive"))
    for number in range(20):
        slower = 1.3 if number >= 10 else 1.0
        archived(place, made(tmp_path, number, guest=1.0, host=slower * (1 + random.Random(number).gauss(0, 0.01))))
    found = find_archive_series(place, [TIMER], 0.05)
    guest, host = (series_of(found, TIMER.full_name, name) for name in ("Guest", "Host"))
    assert host.is_reference and [step.as_reference for step in (*guest.steps, *host.steps)] == [True, False]
    assert "; as the reference does" in guest.step_text(guest.steps[0], found.labels)


def test_where_series_end_and_others_begin_is_told(tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "archive"))
    for number in range(12):
        plan = {"plan_text": plan_text(sleep_samples=50)} if number >= 6 else {}
        arms = {"arms": (HOST,)} if number >= 8 else {}
        archived(place, made(tmp_path, number, **plan, **arms))
    found = find_archive_series(place, [SLEEP], 0.05)
    told = {(turn.last, turn.first): (turn.what, number) for turn, number in found.turns.items()}
    assert told == {(7, None): ("Guest on Xeon", 1), (5, 6): ("sleep_samples 1000 → 50", 2)}
    words = [text for text in archive_document(found).summary[-1].paragraphs if " end" in text]
    assert words[1] == (
        "2 series end at run-5 (2025-03-06) and 2 begin at run-6 (2025-03-07): sleep_samples 1000 → 50."
    )
    assert sorted((one.runs[-1], one.ended) for one in found.series) == [(5, True), (5, True), (7, True), (11, False)]
    (notes,) = {
        row.cells[2].note
        for section in archive_document(found).sections
        for block in section.blocks
        for row in getattr(block, "rows", ())
        if len(row.cells) == 7 and row.arm == "Guest" and "50" in row.heads[0] and "1000" not in row.heads[0]
    }
    assert notes == "on 2025-03-08"


def test_what_fails_is_what_goes_on_since_a_date_and_is_measured(tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "archive"))
    for number in range(RUNS):
        archived(place, made(tmp_path, number))
    found = find_archive_series(place, [TIMER], 0.05)
    assert [one.arm for one in found.failing()] == [one.arm for one in found.failing("2025-03-14")] == ["Guest"]
    assert found.failing("2025-03-15") == []
    command = ["archive", "report", place.root, "--measure", TIMER.full_name]
    result = CliRunner().invoke(cli.app, [*command, "--fail-on", "worse"])
    assert result.exit_code == 1
    assert result.stderr.count("virtgauge: Guest on Xeon, Timer cost: rdtscp, idle, timer_cost.p50: worse between") == 1
    assert CliRunner().invoke(cli.app, [*command, "--fail-on", "worse", "--since", "2025-03-15"]).exit_code == 0
    assert isinstance(CliRunner().invoke(cli.app, [*command, "--since", "2025-03-15"]).exception, UsageError)
    for number in range(RUNS, RUNS + 4):
        archived(place, made(tmp_path, number, arms=(HOST,)))
    assert find_archive_series(place, [TIMER], 0.05).failing() == [], "its platform is gone"


def test_emulated_figures_fail_only_where_nothing_else_is_there(levels: Callable[..., ArchiveSeries]) -> None:
    steps = noisy((20, 1.0), (20, 1.5))
    assert len(levels(steps, {"emulated": [True] * 40}).failing()) == 1
    columns = {"emulated": [True] * 40 + [False] * 40, "archive": [f"run-{number:03}" for number in range(40)] * 2}
    assert levels([*steps, *[1.0] * 40], columns).failing() == []


def test_json_says_of_each_series_what_was_found(found: ArchiveSeries) -> None:
    told = json.loads(archive_json(found))
    assert [one["finding"] for one in told["series"]] == ["steps", "steps", "none shown", "none shown"]
    step, levels = told["series"][0]["steps"][0], told["series"][0]["levels"]
    assert (step["before"], step["after"], step["run_before"], step["run_after"]) == (12, 13, "run-12", "run-13")
    assert (step["date"], step["few_days"], step["as_reference"]) == ("2025-03-14", False, False)
    assert {len(levels[name]) for name in ("run", "level", "low", "high", "confidence", "repetitions")} == {RUNS}
    assert told["needed"] == 12 and told["runs"][13]["hosts"]["Xeon"]["kernel"] == "6.18.0"


def test_every_drawn_figure_stands_in_a_table_by_run_with_its_confidence(found: ArchiveSeries) -> None:
    document = archive_document(found)
    (by_run,) = [section for section in document.sections if section.anchor == "runs"]
    (charts,) = [section for section in document.sections if section.anchor == "charts"]
    assert [len(block.rows) for block in by_run.blocks] == [RUNS] * 2
    first = by_run.blocks[0].rows[0]
    assert (first.heads, first.cells[-1]) == (("run-0", "2025-03-01"), "75 %")
    assert "Drawn: 4 of 4 series" in charts.blocks[0].paragraphs[0]
    for chart in charts.blocks[1:]:
        assert "Intervals are at 75 % confidence" in chart.caption and chart.x.labels[13] == "2025-03-13"
        assert {row["arm"] for row in chart.panels[0].rows if row["kind"] == "ours"} == {"Host", "Guest"}
        assert all(row["interval"].endswith("(75 %)") for row in chart.panels[0].rows if row["kind"] == "ours")
