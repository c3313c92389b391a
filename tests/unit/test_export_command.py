"""`virtgauge export`: where an export goes, and what is refused before anything is written."""

import json

import pytest
from synthetic import cells, synthetic_ledger
from typer.testing import CliRunner

from virtgauge import cli
from virtgauge.errors import UsageError
from virtgauge.exchange import Format


@pytest.fixture
def invoke():
    return lambda *arguments: CliRunner().invoke(cli.app, ["export", *(str(a) for a in arguments)])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("command") / "run"
    synthetic_ledger(folder, blocks=2, design=list(cells(("rdtsc",), (), ("idle",))), reads=20_000).close()
    return folder


@pytest.mark.parametrize("kind", [kind for kind in Format if kind is not Format.PARQUET])
def test_standard_output_and_a_file_get_the_same(invoke, run, tmp_path, kind):
    printed = invoke(run, "--format", kind)
    assert printed.exit_code == 0
    written = invoke(run, "--format", kind, "--out", tmp_path / "export")
    assert written.stdout == f"export: {tmp_path / 'export'}\n"
    with (tmp_path / "export").open(newline="") as text:
        assert text.read().splitlines() == printed.stdout.splitlines()
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_json_is_the_default_and_the_schema_is_printed_without_a_run(invoke, run):
    assert json.loads(invoke(run).stdout)["run"]["run"] == "synthetic-1"
    assert json.loads(invoke("--schema").stdout)["$schema"].endswith("2020-12/schema")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "RUN is missing"),
        (("RUN", "--format", "parquet"), "name a file with --out"),
        (("RUN", "--format", "hdr", "--measure", "timing.timer_cost.p50"), "hdr always holds the whole run"),
        (("RUN", "--format", "csv", "--out", "/no/such/folder/x"), "/no/such/folder/x: cannot be written"),
        (("/no/such/run",), "no run in"),
    ],
)
def test_what_cannot_be_exported_is_refused(invoke, run, options, words):
    result = invoke(*(run if option == "RUN" else option for option in options))
    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)


def test_an_export_that_fails_leaves_the_file_that_was_there(invoke, run, tmp_path):
    (tmp_path / "export").write_text("before")
    result = invoke(run, "--format", "csv", "--measure", "timing.nothing", "--out", tmp_path / "export")
    assert isinstance(result.exception, UsageError)
    assert (tmp_path / "export").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["export"]
