"""The published coverage, on few runs, within what chance explains; and that a broken estimator shows."""

import dataclasses
import importlib
import re
from pathlib import Path

import pytest
from scipy import special

from virtgauge.analysis import estimate

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
RUNS = 150
CHANCE = 1e-4  # of a failure that is none, for each row


@pytest.fixture
def coverage(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("interval_coverage")


def unlikely(row, published):
    """Whether so few hits (or so many false findings) cannot be of the share published."""
    wrong = round((row.found if row.false else 1 - row.found) * row.runs)
    # of ties more is published than is stated, and how much depends on where the truth lies on the clock's grid
    share = max(published if row.false else 1 - min(published, row.stated), 1 / 1000)
    return wrong > 0 and special.bdtrc(wrong - 1, row.runs, share) < CHANCE


def published(coverage):
    found, columns = {}, []
    for line in coverage.PAGE.read_text(encoding="utf-8").splitlines():
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if name == "estimator":
            columns = cells[1:]
        elif len(cells) == 1 + len(columns) and re.match(r"[\d.]+ %", cells[0]):
            shares = [float(cell.split(" %")[0]) / 100 for cell in cells[1:]]
            found |= {(name, column): share for column, share in zip(columns, shares, strict=True)}
    return found


def test_few_runs_agree_with_the_page(coverage):
    page = published(coverage)
    rows = [row for shape in coverage.COLUMNS for row in coverage.rows_of(shape, RUNS, seed=7)]
    assert {(row.estimator, row.shape) for row in rows} == page.keys()
    assert [row for row in rows if unlikely(row, page[row.estimator, row.shape])] == []


def test_an_interval_of_half_the_width_shows(coverage, monkeypatch):
    whole = estimate.median_estimate

    def narrow(*arguments):
        found = whole(*arguments)
        low, high = (found.point + (end - found.point) / 2 for end in (found.low, found.high))
        return dataclasses.replace(found, low=low, high=high)

    page = published(coverage)
    monkeypatch.setattr(coverage, "median_estimate", narrow)
    monkeypatch.setattr("virtgauge.claims.figures.median_estimate", narrow)
    rows = coverage.rows_of("autocorrelated noise", RUNS, seed=7)
    broken = {row.estimator for row in rows if unlikely(row, page[row.estimator, row.shape])}
    assert {"median, 12 repetitions", "q in 12 blocks", "bound, each of 6 figures", "bound"} <= broken
