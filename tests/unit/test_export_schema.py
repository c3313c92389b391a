"""The JSON form and its published schema: every suite's report is valid, and a broken one is refused."""

import json

import jsonschema
import pytest
from exported_runs import SUITES, exported, run_of_every_suite

from virtgauge.exchange.formats import Format
from virtgauge.exchange.report_schema import published_schema, report_schema


@pytest.fixture(scope="module")
def document(simulated_machine):
    folder = run_of_every_suite(simulated_machine / "run")
    return json.loads(exported(folder, Format.JSON, simulated_machine / "report.json").read_text())


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(published_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_published_schema_is_that_of_the_types_that_a_report_is_written_from():
    assert json.loads(published_schema()) == report_schema(), (
        "renew it: python -m virtgauge.exchange.report_schema > src/virtgauge/exchange/schemas/report.schema.json"
    )


def test_a_report_of_every_suite_is_valid(document, validator):
    assert {suite["suite"] for suite in document["suites"]} == SUITES.keys() | {"imported"}
    validator.validate(document)


@pytest.mark.parametrize(
    "broken",
    [
        lambda report: report.pop("trials"),
        lambda report: report.update(schema_version=1),
        lambda report: report["run"].update(seed="7"),
        lambda report: report["run"].update(colour="red"),
        lambda report: report["arms"][0]["ready"].update(point="fast"),
        lambda report: report["trials"][0].pop("status"),
        lambda report: report["suites"][0].update(suite="cooking"),
        lambda report: report["suites"][0].pop("headlines"),
    ],
)
def test_a_broken_report_is_refused(document, validator, broken):
    copy = json.loads(json.dumps(document))
    broken(copy)
    assert not validator.is_valid(copy)


def test_a_missing_figure_is_null_and_valid(document, validator):
    copy = json.loads(json.dumps(document))
    copy["arms"][0]["ready"].update(point=None, low=None, high=None, confidence=None)
    validator.validate(copy)
