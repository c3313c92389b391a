"""The forwarding paper's conclusions: complete, well formed, and about what can be measured."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from virtgauge.reference.forwarding_claims import Bounds, Comparison, Range, forwarding_claims


def test_every_conclusion_has_a_name_of_its_own_a_place_and_a_way_to_judge_it() -> None:
    claims = forwarding_claims()
    assert len({claim.name for claim in claims}) == len(claims) >= 15
    for claim in claims:
        assert claim.place.startswith("section")
        assert claim.text and claim.note
        assert claim.tests


def test_the_papers_main_conclusion_is_the_factor_of_five() -> None:
    (claim,) = [claim for claim in forwarding_claims() if claim.name == "paravirtual-carries-more"]
    (test,) = claim.tests
    assert isinstance(test, Comparison)
    assert test.interfaces == ("paravirtual", "emulated")
    assert (test.ratio_at_least or 0) < 5 < (test.ratio_at_most or 0)


def test_every_figure_and_direction_concerns_named_interfaces() -> None:
    for claim in forwarding_claims():
        for test in claim.tests:
            assert test.interfaces
            assert len(test.interfaces) == (2 if test.kind in {"comparison", "interaction"} else 1)


def test_a_range_includes_its_ends() -> None:
    assert Range(at_least=200, at_most=750).includes(200)
    assert Range(at_least=200, at_most=750).includes(750)
    assert not Range(at_least=200).includes(199.9)
    assert Range().includes(0)


def test_a_bound_without_a_bound_is_refused() -> None:
    with pytest.raises(ValidationError, match="at_least or at_most"):
        Bounds(kind="bounds", quantity="latency_us", interfaces=("emulated",))
