"""The JSON form: its schema, its tables, and that other tools read it as the documentation says."""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import duckdb
import jsonschema
import pytest
from exported_runs import SUITES, exported, run_of_every_suite
from forwarding_results import add_result, forwarding_ledger, paper_arms, result

from virtgauge.exchange import Format, tidy
from virtgauge.ledger.records import Flag
from virtgauge.ledger.store import Ledger
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import find_measure

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parent.parent.parent / "docs" / "exchange.md"


@pytest.fixture(scope="module")
def run(simulated_machine):
    return run_of_every_suite(simulated_machine / "run")


@pytest.fixture(scope="module")
def file(run, simulated_machine):
    return exported(run, Format.JSON, simulated_machine / "run.json")


@pytest.fixture(scope="module")
def document(file):
    return json.loads(file.read_text())


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(json.dumps(tidy.schema()))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_a_run_of_every_suite_is_valid(document, validator):
    assert {cell["suite"] for cell in document["cells"]} == SUITES.keys() | {"imported"}
    assert all(document[name] for name in ("rows", "estimates", "arms", "measures", "claims"))
    validator.validate(document)


def test_the_schema_says_what_every_field_means(validator):
    records = validator.schema["$defs"] | {"Document": validator.schema}
    fields = {f"{name}.{key}": field for name, record in records.items() for key, field in record["properties"].items()}
    assert {"Document.rows", "Row.validity", "Estimate.band"} <= fields.keys()
    assert not [name for name, field in fields.items() if not field.get("description")]


def test_a_figure_that_something_else_limited_is_a_lower_bound(tmp_path):
    runc, virtio, _ = paper_arms()
    ledger = forwarding_ledger(tmp_path / "run", [runc, virtio], blocks=0)
    for block, arm in itertools.product(range(6), (runc, virtio)):
        flags = (Flag("generator-limited", "why", fatal=False),) if arm is runc and block < 3 else ()
        add_result(ledger, arm.record, "k=12", 64, block, result(arm, 12, 64, 1 + block / 1000), flags)
    found = tidy.estimates(ResultTable(ledger), [find_measure("forwarding", "ndr")])
    assert {one.arm: one.at_least for one in found} == {runc.record.name: True, virtio.record.name: False}


@pytest.mark.parametrize(
    "broken",
    [
        lambda run: run.pop("rows"),
        lambda run: run.update(schema_version=2),
        lambda run: run["run"].update(seed="7"),
        lambda run: run["run"].update(colour="red"),
        lambda run: run["estimates"][0].update(value="fast"),
        lambda run: run["rows"][0].pop("validity"),
        lambda run: run["rows"][0].update(validity="good"),
    ],
)
def test_a_broken_document_is_refused(document, validator, broken):
    copy = json.loads(json.dumps(document))
    broken(copy)
    assert not validator.is_valid(copy)


def test_every_reference_names_a_record(document):
    cells = [one["cell"] for one in document["cells"]]
    assert cells == list(range(len(cells)))
    arms, measures = ({one[name] for one in document[f"{name}s"]} for name in ("arm", "measure"))
    for one in [*document["rows"], *document["estimates"]]:
        assert one["cell"] in cells
        assert one["arm"] in arms
        assert one["measure"] in measures | {None}


def test_a_row_has_a_value_or_a_reason(document):
    assert all((row["value"] is None) == (row["reason"] is not None) for row in document["rows"] if row["measure"])


def test_estimates_and_comparisons_are_those_of_the_report(run, document):
    rate = find_measure("storage", "throughput")
    cells = {one["cell"]: one for one in document["cells"]}
    with Ledger.open(run) as ledger:
        table, seen = ResultTable(ledger), 0
        for one in document["estimates"]:
            if one["measure"] == rate.full_name and one["arm"] == "other":
                cell = table.find("storage", cells[one["cell"]]["probe"], cells[one["cell"]]["factors"])
                assert cell is not None
                assert one["value"] == table.estimate(rate, cell, "other").point
                compared = table.compared(rate, cell, "other")
                assert (one["ratio"], one["judgement"]) == (compared.ratio.point, compared.judgement.value)
                seen += 1
    assert seen


def test_the_reference_is_not_compared_with_itself(document):
    (reference,) = [arm["arm"] for arm in document["arms"] if arm["role"] == "reference"]
    assert {one["judgement"] for one in document["estimates"] if one["arm"] == reference} == {None}


def snippet(language: str) -> str:
    """The example of the documentation."""
    found = re.search(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert found, f"docs/exchange.md has no {language} example"
    return found[1]


@pytest.fixture
def beside(file, tmp_path, monkeypatch):
    shutil.copy(file, tmp_path / "run.json")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("beside")
def test_pandas_reads_it_as_documented(document):
    names: dict[str, object] = {}
    exec(snippet("python"), names)
    medians = names["medians"]
    valid = {(row["measure"], row["arm"]) for row in document["rows"] if row["value"] is not None}
    assert len(medians) >= len(valid)  # type: ignore[arg-type]


@pytest.mark.usefixtures("beside")
def test_duckdb_reads_it_as_documented(document):
    found = duckdb.sql(snippet("sql")).fetchall()
    assert len(found) == sum(one["judgement"] in ("higher", "lower") for one in document["estimates"])


if shutil.which("jq"):  # neither is a package that the tests install

    @pytest.mark.usefixtures("beside")
    def test_jq_reads_it_as_documented(document):
        command = snippet("sh")
        found = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, check=True).stdout.splitlines()
        assert len(found) == sum(one["n"] > 0 and one["value"] is not None for one in document["estimates"])


if shutil.which("Rscript"):

    @pytest.mark.usefixtures("beside")
    def test_r_reads_it_as_documented():
        subprocess.run(["Rscript", "-e", snippet("r")], check=True, timeout=60)
