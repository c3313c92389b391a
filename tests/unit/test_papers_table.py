"""The page of the papers' conclusions says what the run's own report says."""

import importlib
import io
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.figures import restore

from virtgauge import report
from virtgauge.claims.verdicts import counted
from virtgauge.exchange import tidy
from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.results.table import ResultTable

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_run_s_conclusions_as_a_page(monkeypatch, tmp_path, capsys):
    recording = (ROOT / "tests/data/recorded/replay.sql").read_text(encoding="utf-8")
    with ReadOnlyLedger.open(restore(recording, tmp_path / "run")) as ledger:
        document = io.StringIO()
        tidy.write(ResultTable(ledger), document)
        (part,) = [one for one in report.build(ledger).replay.parts if one.measured]
    run, content = tmp_path / "run.json", json.loads(document.getvalue())
    usable = content["arms"][0] | {"arm": "left-out", "label": "Usable and never measured", "role": "test"}
    unsupported = content["rows"][0] | {"trial": -1, "validity": "unsupported"}
    against = next(one for one in content["claims"] if one["verdict"] == "contradicted")
    elsewhere = against | {"arm": "another", "verdict": "undecided here"}
    changed = {
        "arms": [*content["arms"], usable],
        "rows": [*content["rows"], unsupported],
        "claims": [*content["claims"], elsewhere],
    }
    run.write_text(json.dumps(content | changed), encoding="utf-8")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(sys, "argv", ["papers_table.py", str(run)])

    importlib.import_module("papers_table").main()

    page = capsys.readouterr().out
    (summary,) = re.findall(r"conclusions: (.*)\.", page)
    assert " contradicted (1 of these undecided on other platforms), " in summary
    summary = re.sub(r" \(.*?\)", "", summary)
    told = {name: int(n) for n, name in (one.split(" ", 1) for one in summary.split(", "))}
    assert told == counted(claim.verdict for claim in part.claims)
    # the first row of each that could be tested names it, with the verdict of the report
    tested = Counter(claim.paper.text for claim in part.claims if claim.verdict != "not testable here")
    rows = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in page.splitlines() if "**" in line]
    assert Counter(cells[0].partition(" *")[0] for cells in rows if len(cells) == 6) == tested
    assert "undecided" in {cells[-1] for cells in rows}, "nothing of a paper's own figures is said to be so here"
    assert not any(cells[-1].endswith(" here") for cells in rows)
    assert content["run"]["plan"] in page
    trials = {row["trial"]: row["validity"] for row in content["rows"]}
    assert f" {Counter(trials.values())['valid']} of {len(trials)} trials valid, 1 not supported." in page
    assert content["arms"][0]["label"] in page and usable["label"] not in page
