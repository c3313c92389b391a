"""The last screen: twenty rows of eighty columns at most, the decision on it, and the report's path last."""

from __future__ import annotations

import dataclasses
import os
import pty
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from exported_runs import run_of_every_suite
from fleet_runs import FakeCluster, fleet_plan
from fleet_runs import execute as execute_fleet
from rich.cells import cell_len
from suites.simulated_runs import execute, plan_of, report_of, simulated
from synthetic import synthetic_ledger, trial, usual_arms
from typer.testing import CliRunner

from virtgauge import cli, report
from virtgauge.ledger.records import TrialStatus
from virtgauge.report.last_screen import Place, last_screen
from virtgauge.specs.headline import Headline, HeadlineFigure, Tone

pytestmark = pytest.mark.slow

PLACE = Place("runs/quick-20260101-120000", "runs/quick-20260101-120000/report.html", True, "plan.toml")
TIMER = {"suite": "timing", "measure": "timer_cost.p50", "unit": "ns"}


def rows_of(built: report.Report, place: Place = PLACE, width: int = 80) -> list[str]:
    """The screen, which is checked to be one, row by row as a terminal shows it."""
    lines = [line.plain for line in last_screen(built, place, width)]
    assert sum(max(1, -(-cell_len(line) // width)) for line in lines) <= 20
    assert lines[-1] == f"report: {place.page}"
    assert all(cell_len(line) <= width for line in lines if place.run not in line and place.page not in line)
    return lines


def built_of(folder: Path, **options: Any) -> report.Report:
    with synthetic_ledger(folder, **options) as ledger:
        return report.build(ledger)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    return built_of(tmp_path_factory.mktemp("screen") / "run", invalid_share=0.1)


@pytest.fixture(scope="module")
def scattered(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    return built_of(tmp_path_factory.mktemp("screen") / "run", spread=0.5)


@pytest.fixture(scope="module")
def every_suite(simulated_machine: Path) -> report.Report:
    return report_of(run_of_every_suite(simulated_machine / "run"))


def test_a_run_without_requirements_has_an_answer_for_each_platform(usual: report.Report) -> None:
    rows = rows_of(usual)
    for name in ("● host", "= runc", "▲ gvisor", "~ qemu-microvm"):
        assert sum(row.startswith(name) for row in rows) == 1
    assert any("worse: clock_gettime reads 53× slower (" in row for row in rows)
    assert any("no difference shown (even chance to see 1.0" in row for row in rows)
    assert "skipped kata: the runtime kata-runtime is not installed" in rows
    assert "next: virtgauge report runs/quick-20260101-120000 --full" in rows


def test_the_first_row_counts_trials_and_sums_up_why_some_are_not_valid(usual: report.Report) -> None:
    invalid = usual.statuses["invalid"]
    assert invalid > 10
    assert rows_of(usual)[0] == (
        f"quick: 6 repetitions, {usual.statuses['valid']} of {len(usual.trials)} trials valid "
        f"(not valid: foreign-load ×{invalid})"
    )


def test_what_was_never_possible_does_not_count_as_not_valid(tmp_path: Path) -> None:
    with synthetic_ledger(tmp_path / "run") as ledger:
        refused = trial(usual_arms()[2].record, "timer_cost", {"function": "rdtsc", "load": "net"}, 0)
        ledger.add_trial(dataclasses.replace(refused, status=TrialStatus.UNSUPPORTED), {}, {})
        built = report.build(ledger)
    number = len(built.trials) - 1
    assert rows_of(built)[0] == f"quick: 6 repetitions, {number} of {number} trials valid · 1 not supported"
    assert re.search(
        rf'class="badge good">{number} of {number} trials valid · 1 not supported<', report.render_html(built)
    )


def test_all_suites_of_two_platforms_have_their_row(every_suite: report.Report) -> None:
    rows = rows_of(every_suite)
    for suite in ("timing", "bandwidth", "forwarding", "storage", "isolation", "imported"):
        assert sum(f"  {suite} " in row for row in rows) == 2


def suites_of(platforms: int, suites: int) -> list[Any]:
    def headlines() -> tuple[Headline, ...]:
        tones = [Tone.REFERENCE, *[Tone.SLOWER if n % 2 else Tone.SAME for n in range(1, platforms)]]
        figure = HeadlineFigure("a figure with quite a long name", "of 12.3 Mbit/s and more " * 3)
        return tuple(Headline(f"platform-{n}-of-long-name", "", tone, "", (figure,)) for n, tone in enumerate(tones))

    names = ("timing", "bandwidth", "forwarding", "storage", "isolation")
    return [types.SimpleNamespace(suite=name, headlines=headlines()) for name in names[:suites]]


def with_answers(built: report.Report, platforms: int, suites: int) -> report.Report:
    arms = [
        dataclasses.replace(arm, record=dataclasses.replace(arm.record, name=f"platform-{n}-of-long-name", usable=True))
        for n, arm in enumerate(list(built.arms) * 2)
    ]
    return dataclasses.replace(built, arms=tuple(arms[:platforms]), suites=tuple(suites_of(platforms, suites)))


@pytest.mark.parametrize(("platforms", "suites"), [(1, 1), (4, 2), (8, 1), (8, 5)])
@pytest.mark.parametrize("width", [80, 120, 60])
def test_however_many_platforms_and_suites_there_are(
    usual: report.Report, platforms: int, suites: int, width: int
) -> None:
    rows = rows_of(with_answers(usual, platforms, suites), width=width)
    answers = sum("a figure with" in row for row in rows)
    if platforms * suites <= 8:
        assert answers == platforms * suites
    else:
        assert 8 <= answers < platforms * suites
        assert f"… {platforms * suites - answers} more answers: virtgauge report {PLACE.run} --full"[
            :width
        ] in rows or (f"… {platforms * suites - answers} more answers" in rows)


def test_where_not_all_fit_what_differs_stays(usual: report.Report) -> None:
    rows = rows_of(with_answers(usual, 8, 5))
    shown = [row for row in rows if "a figure with" in row]
    assert all(row.startswith("▲") for row in shown)


def test_a_long_path_is_whole_and_counts_as_the_rows_that_it_takes(usual: report.Report) -> None:
    folder = "/a/very/long/path" * 12
    rows_of(with_answers(usual, 8, 5), Place(folder, f"{folder}/report.html", True, None))


def test_a_run_that_has_not_finished_says_so_first_and_how_to_go_on(tmp_path: Path) -> None:
    rows = rows_of(built_of(tmp_path / "run", finished=False))
    assert rows[0].startswith("quick: NOT FINISHED, ")
    assert rows[1].startswith("! This run has not finished")
    assert "next: virtgauge resume runs/quick-20260101-120000" in rows


def test_a_caveat_that_does_not_fit_goes_on_in_a_second_row(tmp_path: Path) -> None:
    built = built_of(tmp_path / "run", blocks=3)
    assert any(one.startswith("Some intervals reach 75 % confidence, not 95 %: ") for one in built.caveats)
    long = (
        "Identical arms (A/A) differ in 5 of 64 cells, more than chance explains (3): order matters. " + "More. " * 40
    )
    rows = rows_of(dataclasses.replace(built, caveats=(long, *built.caveats, long)))
    place = next(n for n, row in enumerate(rows) if row.startswith("! Identical arms"))
    assert rows[place + 1].startswith("  ")
    assert "chance explains (3): order" in f"{rows[place]} {rows[place + 1].strip()}"
    assert rows[place + 1].endswith(" …")
    assert rows[place + 2].startswith("!")


def test_a_page_that_is_not_written_yet_has_its_command(usual: report.Report) -> None:
    rows = rows_of(usual, dataclasses.replace(PLACE, written=False))
    assert any("--format html" in row for row in rows)


def test_what_was_not_resolved_says_why_and_more_repetitions_are_offered(scattered: report.Report) -> None:
    rows = rows_of(scattered)
    assert any(
        re.match(r"not resolved: runc clock_gettime: even chance to see [\d.]+× \(interval of 6 ", row) for row in rows
    )
    assert any("virtgauge run plan.toml --repetitions 12" in row for row in rows)
    assert any(re.match(r"A/A: \d+ of \d+ headline figures too noisy to show 1.5×", row) for row in rows)


def test_without_identical_arms_no_repetitions_are_offered_that_would_show_nothing(scattered: report.Report) -> None:
    bare = dataclasses.replace(scattered, arms=tuple(arm for arm in scattered.arms if arm.record.role != "aa"))
    assert not any("--repetitions" in row for row in rows_of(bare))


def required(
    folder: Path, *, bounds: list[float], repetitions: int = 8, platforms: int = 2, **fields: Any
) -> list[str]:
    medians = [20.0, 200.0, 100.0]
    sections = [
        simulated(f"p{n}", truth={"*": {"median_ns": medians[n % 3], "guest_sigma": 0.02}}, seed=n + 1)
        for n in range(platforms)
    ]
    requirements = [TIMER | {"at_most": bound, "name": f"read within {bound:g} ns"} for bound in bounds]
    plan = plan_of(*sections, repetitions=repetitions, require=requirements, design={"timers": ["rdtsc"]}, **fields)
    execute(plan, folder)
    return rows_of(report_of(folder))


def test_verdicts_come_first_with_the_figure_that_decides(tmp_path: Path, private_state: None, any_agent: Any) -> None:
    rows = required(tmp_path / "run", bounds=[100, 150, 900])
    place = rows.index("✓ p0 meets 3 of 3 requirements")
    assert re.match(
        r"    closest: read within 100 ns: [\d.]+ ns \([\d.]+ ns to [\d.]+ ns\); [\d.]+ % to spare",
        rows[place + 1],
    )
    assert rows[place + 2] == "✗ p1 meets 1 of 3 requirements, fails 2"
    assert re.match(r"    read within 100 ns: 20\d ns \(.*\); .* times the bound|    .* beyond", rows[place + 3])
    assert rows.index("✓ p0 meets 3 of 3 requirements") < next(n for n, row in enumerate(rows) if "timing" in row)


def test_an_undecided_one_says_how_many_more_repetitions(tmp_path: Path, private_state: None, any_agent: Any) -> None:
    rows = required(tmp_path / "run", bounds=[20.2], repetitions=4, platforms=1)
    assert "? p0 meets 0 of 1 requirement, 1 undecided" in rows
    assert any("more repetition" in row for row in rows)
    more = next(row for row in rows if row.startswith("next: virtgauge run plan.toml --repetitions "))
    assert int(more.rsplit(" ", 1)[1]) > 4


def test_many_requirements_of_many_platforms_fit(tmp_path: Path, private_state: None, any_agent: Any) -> None:
    rows = required(tmp_path / "run", bounds=[50 + n for n in range(12)], platforms=9, repetitions=6)
    assert "✓ p0 meets 12 of 12 requirements" in rows
    assert "✗ p1 meets 0 of 12 requirements, fails 12" in rows


def test_a_fleet_is_told_of_and_resumed_as_one(tmp_path: Path, private_state: None, any_agent: Any) -> None:
    execute_fleet(fleet_plan("a", "b"), tmp_path / "run", FakeCluster())
    built = report_of(tmp_path / "run")
    assert built.hosts is not None
    rows_of(built)
    unfinished = dataclasses.replace(built, finished=False)
    assert f"next: virtgauge fleet resume {PLACE.run}" in rows_of(unfinished)


@pytest.fixture(scope="module")
def folder(simulated_machine: Path) -> Path:
    long = simulated_machine / ("a-folder-with-quite-a-long-name-" * 3)
    execute(plan_of(simulated("a"), simulated("b", seed=2), repetitions=2), long)
    return long


def printed_by(words: list[str], environment: dict[str, str]) -> list[str]:
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


@pytest.mark.parametrize("full", [False, True])
def test_nothing_is_broken_where_it_is_piped(folder: Path, full: bool) -> None:
    page = folder / "report.html"
    words = [sys.executable, "-m", "virtgauge.cli", "report", str(folder), *(["--full"] if full else [])]
    environment = os.environ | {"PATH": "/usr/bin:/bin"}  # without any virtgauge
    lines = printed_by(words, environment)
    assert lines[-1] == f"report: {page}"
    (next_one,) = [line.removeprefix("next:").strip() for line in lines if line.endswith(f" report {folder} --full")]
    assert printed_by(["sh", "-c", next_one], environment)[-1] == lines[-1], "what to type next works as it stands"
    assert full or len(lines) <= 20
    assert full or not any("…" in line for line in lines), "no line is cut"


@pytest.mark.parametrize("columns", [80, 120])
def test_on_a_terminal_it_is_as_wide_as_that(folder: Path, columns: int) -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "virtgauge.cli", "report", str(folder)]
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm"}
    child = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    written = b""
    try:
        while chunk := os.read(ours, 65536):
            written += chunk
    except OSError:  # the end of what a terminal gives
        pass
    finally:
        os.close(ours)
    assert child.wait(timeout=60) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())
    lines = text.rstrip().splitlines()
    assert lines[-1] == f"report: {folder / 'report.html'}"
    assert sum(max(1, -(-cell_len(line) // columns)) for line in lines) <= 20


def test_the_page_has_the_badge_in_amber_where_nothing_small_could_be_shown(
    usual: report.Report, scattered: report.Report
) -> None:
    steady, page = report.render_html(usual), report.render_html(scattered)
    assert re.search(r'class="badge good"\s+title="The reference measured against itself[^>]*>A/A ok', steady)
    assert re.search(
        r'class="badge warn"\s+title="The reference measured[^>]*>A/A: \d+ of \d+ headline figures too noisy', page
    )
    assert re.search(r">unresolved:\s+even chance to see [\d.]+×<", page)
    assert re.search(r'title="[^"]*; even chance to see [\d.]+×( up, [\d.]+× down)?"', page)
    assert page.count("unresolved:") > 2 * steady.count("unresolved:")  # of tails some are


def test_a_ratio_without_resolving_power_is_replaced_in_the_terminal(tmp_path: Path) -> None:
    with synthetic_ledger(tmp_path / "run", spread=0.5):
        pass
    result = CliRunner().invoke(cli.app, ["report", str(tmp_path / "run"), "--full"])
    assert re.search(r"unresolved:\s", result.stdout)
    assert "could have been shown" not in result.stdout
