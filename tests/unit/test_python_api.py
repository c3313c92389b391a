"""A run in Python says what its JSON export says, and docs/python.md can be executed."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import synthetic
from support.figures import restore
from typer.testing import CliRunner

import virtgauge
from virtgauge.cli import app
from virtgauge.errors import UsageError
from virtgauge.exchange import tidy
from virtgauge.ledger.store import Ledger
from virtgauge.results.table import ResultTable

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python.md"
NAMES = ("simulated-timing", "simulated-fleet")


def restored(name: str, folder: Path) -> Path:
    return restore((ROOT / "tests" / "data" / "recorded" / f"{name}.sql").read_text(), folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("python") / "runs"
    return {name: restored(name, folder / name) for name in NAMES}


@pytest.fixture(scope="module")
def documents(runs: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """The JSON export of each run."""
    found = {}
    for name, folder in runs.items():
        table, out = ResultTable.open(folder), io.StringIO()
        with table.ledger:
            tidy.write(table, out)
        found[name] = json.loads(out.getvalue())
    return found


def narrowed(record: dict[str, Any], to: list[str]) -> dict[str, Any]:
    return {name: record[name] for name in to}


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_those_of_the_json_export_with_the_levels_of_their_cells(runs, documents, name) -> None:
    expected = [row for row in documents[name]["rows"] if row["measure"]]
    found = virtgauge.load(runs[name]).table().to_pylist()
    assert [narrowed(row, [*expected[0]]) for row in found] == expected
    cells = {cell["cell"]: cell for cell in documents[name]["cells"]}
    for row in found:
        cell, levels = cells[row["cell"]], {key: row[key] for key in row if key.startswith("factor.") and row[key]}
        assert levels == {f"factor.{factor}": level for factor, level in cell["factors"].items() if level}
        assert row["probe"] == cell["probe"]


@pytest.mark.parametrize("name", NAMES)
def test_estimates_and_comparisons_are_those_of_the_json_export(runs, documents, name) -> None:
    document, run = documents[name], virtgauge.load(runs[name])
    fields, estimates, comparisons = [*document["estimates"][0]], run.estimates(), run.comparisons()
    assert {*fields} <= {*estimates.column_names, *comparisons.column_names}
    compared = [one for one in document["estimates"] if one["judgement"]]
    assert compared
    for table, expected in ((estimates, document["estimates"]), (comparisons, compared)):
        shared = [field for field in fields if field in table.column_names]
        assert table.select(shared).to_pylist() == [narrowed(one, shared) for one in expected]
    (reference,) = [arm["arm"] for arm in document["arms"] if arm["role"] == "reference"]
    assert set(comparisons["reference"].to_pylist()) == {reference}


@pytest.mark.parametrize("name", NAMES)
def test_arms_verdicts_and_measures_are_those_of_the_json_export(runs, documents, name) -> None:
    document, run = documents[name], virtgauge.load(runs[name])
    arms = run.arms()
    assert arms.to_pylist() == [narrowed(arm, arms.column_names) for arm in document["arms"]]
    assert run.verdicts().to_pylist() == document["verdicts"] != []
    held = {row["measure"] for row in document["rows"]} - {None}
    assert run.measures().to_pylist() == [one for one in document["measures"] if one["measure"] in held]


def test_a_measure_is_named_with_its_suite_or_without_and_once(runs) -> None:
    run = virtgauge.load(runs["simulated-fleet"])
    full = run.table("timing.timer_cost.p50")
    assert full.equals(run.table("timer_cost.p50"))
    assert full.equals(run.table("timer_cost.p50", "timing.timer_cost.p50"))
    assert set(full["measure"].to_pylist()) == {"timing.timer_cost.p50"}
    both = run.estimates("timer_cost.p50", "storage.throughput")
    assert set(both["measure"].to_pylist()) == {"timing.timer_cost.p50", "storage.throughput"}


@pytest.mark.parametrize("name", ["timer_cost.p51", "timing.timer_cost.p51", "forwarding.ndr", ""])
def test_a_measure_that_the_run_has_not_is_named_with_the_run(runs, name) -> None:
    run = virtgauge.load(runs["simulated-timing"])
    told = re.escape(f"measure = {name!r}: the run in {run.folder} has no such measure")
    near = "; did you mean .*timer_cost.p50'" if "p51" in name else ""
    for call in (run.table, run.estimates, run.comparisons):
        with pytest.raises(UsageError, match=told + near):
            call("timer_cost.p99", name)


def test_of_a_fleets_run_one_hosts_part_is_loaded(runs, documents) -> None:
    expected = [row for row in documents["simulated-fleet"]["rows"] if row["host"] == "north" and row["measure"]]
    found = virtgauge.load(runs["simulated-fleet"], host="north").table().to_pylist()
    assert [(row["trial"], row["value"]) for row in found] == [(row["trial"], row["value"]) for row in expected] != []
    with pytest.raises(UsageError, match="there is no such host"):
        virtgauge.load(runs["simulated-fleet"], host="nowhere")


def test_a_run_is_found_by_its_name_within_runs(runs, monkeypatch) -> None:
    folder = runs["simulated-timing"]
    monkeypatch.chdir(folder.parent.parent)
    assert virtgauge.load(folder.name).arms().equals(virtgauge.load(str(folder)).arms())


def test_what_is_no_run_is_the_error_of_the_commands(runs, tmp_path) -> None:
    for folder in (tmp_path / "none", tmp_path, runs["simulated-timing"].parent):
        told = CliRunner().invoke(app, ["export", str(folder)])
        with pytest.raises(UsageError) as raised:
            virtgauge.load(folder)
        assert str(raised.value) == str(told.exception)


def test_a_run_in_progress_is_read_as_it_is_at_each_call(tmp_path) -> None:
    arm = synthetic.arm_record("host", "host", "Host", "reference")
    levels = {"function": "rdtsc", "load": "idle"}
    with Ledger.create(tmp_path / "run", synthetic.manifest([arm])) as ledger:
        run = virtgauge.load(tmp_path / "run")
        assert (run.table().num_rows, run.estimates().num_rows, run.measures().num_rows) == (0, 0, 0)
        for block in range(2):
            ledger.add_trial(synthetic.trial(arm, "timer_cost", levels, block))
            assert run.table("timer_cost.p50")["block"].to_pylist() == [*range(block + 1)]


def test_raw_values_that_are_lost_are_warned_of(tmp_path) -> None:
    design = list(synthetic.cells(timers=("rdtsc",), sleeps=(), loads=("idle",)))
    synthetic.synthetic_ledger(tmp_path / "run", blocks=1, design=design, reservoir=5).close()
    next((tmp_path / "run" / "samples").iterdir()).unlink()
    with pytest.warns(UserWarning, match="Raw values that were recorded are missing") as told:
        virtgauge.load(tmp_path / "run")
    assert told[0].filename == __file__


def test_importing_virtgauge_imports_nothing_else() -> None:
    told = "import sys, virtgauge; print([one for one in sys.modules if one.startswith(('virtgauge.', 'pyarrow'))])"
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"


def test_the_page_is_a_notebook_that_runs_and_says_what_it_shows(tmp_path, monkeypatch, capsys) -> None:
    restored("simulated-timing", tmp_path / "runs" / "timing")
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for block in blocks:
        exec(block, names)
    assert len(blocks) == text.count("```python")
    (printed,) = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert capsys.readouterr().out == printed

    left_out, beside, shown = names["left_out"], names["beside"], names["shown"]
    assert (left_out["arm"].tolist(), set(left_out["validity"])) == (["slower"] * 4, {"invalid"})
    assert left_out["reason"].str.startswith("clock-drift").all()
    loaded = beside[(beside["arm"] == "slower") & (beside["factor.load"] == "cpu")].sort_values("factor.slack")
    assert loaded["judgement"].tolist() == ["inconclusive", "higher"]
    assert loaded["pairs"].tolist() == [5, 6]
    assert ((loaded["ratio"] > 13) & (loaded["ratio"] < 14)).all()
    assert "bare-aa" in set(beside["arm"]) - set(shown["arm"])
    assert "emulated" in set(shown["arm"]) - set(names["comparable"]["arm"])
    assert (names["p99"]["value_us"] > 20).all()
    assert set(names["verdicts"]["arm"]) >= {"bare", "same", "slower", "faster", "emulated", "absent"}
