"""The storage paper's conclusions: complete, well formed, and tested on the paper's own tables."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from virtgauge.reference.storage_claims import Ratio, storage_claims
from virtgauge.report.storage.claim_figures import PaperFigures, Place, grouped_ratio
from virtgauge.report.storage.paper_cells import paper_cells


def test_every_conclusion_has_a_name_of_its_own_a_place_and_a_way_to_judge_it() -> None:
    claims = storage_claims()
    assert len({claim.name for claim in claims}) == len(claims) >= 25
    for claim in claims:
        assert claim.place.startswith("section")
        assert claim.text and claim.tests
        assert ("ours" in claim.note or "the paper’s" in claim.note) or not any(
            getattr(test, bound, None) not in (None, 1) for test in claim.tests for bound in ("at_least", "at_most")
        ), f"{claim.name} has a bound that is not the paper's and does not say so"


def test_conclusions_that_rank_what_is_written_are_tested_at_one_level_too() -> None:
    ranking = {claim.name for claim in storage_claims() if claim.ranking}
    assert {"single-write-order", "single-write-huge-difference", "no-clear-winner"} <= ranking


def test_a_test_without_a_bound_is_refused() -> None:
    with pytest.raises(ValidationError, match="at_least or at_most"):
        Ratio(kind="ratio", factor="server", of="virtual", to="physical")


def test_the_tables_have_all_48_figures_each_in_its_place() -> None:
    assert len(paper_cells()) == 48
    figures = PaperFigures()
    assert figures.middle(Place("PostgreSQL", "single-write", "physical", "1")) == 120
    assert figures.middle(Place("Cassandra", "multi-read", "virtual", "many")) == 560_000


def test_the_factors_that_the_paper_states_come_out_of_its_table() -> None:
    figures = PaperFigures()

    def virtual_over_physical(database: str, operation: str, clients: str) -> float | None:
        place = Place(database, operation, "virtual", clients)
        return figures.ratio(place, place.at(server="physical")).point

    assert virtual_over_physical("Cassandra", "single-read", "many") == pytest.approx(1 / 16)
    assert virtual_over_physical("MongoDB", "single-read", "many") == pytest.approx(1 / 12.5)
    assert virtual_over_physical("PostgreSQL", "single-write", "1") == pytest.approx(3.33, rel=0.01)


def test_a_change_up_and_one_down_do_not_cancel() -> None:
    figures = PaperFigures()
    up = figures.estimate([4.0])
    down = figures.estimate([0.25])
    assert grouped_ratio([up, down]).point == pytest.approx(4.0)
