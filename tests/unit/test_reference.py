"""The published figures are those of the papers, with their source."""

from __future__ import annotations

import pytest

from virtgauge import reference


@pytest.mark.parametrize("name", reference.NAMES)
def test_every_table_has_rows_and_a_citation(name: str) -> None:
    table = reference.table(name)
    assert table.rows
    assert str(table.source.year) in table.source.citation


def test_the_timing_papers_tables_are_complete() -> None:
    for name in ("timer_cost", "sleep_miss"):
        figures = reference.timing_figures(name)
        assert len(figures) == 2 * 5 * 3
        assert all(figure.min_ns <= figure.median_ns <= figure.max_ns for figure in figures)


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(KeyError):
        reference.table("nonsense")
