"""Figures in a person's units."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtgauge.analysis.comparison import Comparison, Difference, Judgement
from virtgauge.analysis.estimate import Estimate
from virtgauge.results import formatting
from virtgauge.results.quantities import DURATION, SHARE, Quantity


def estimate(point: float, low: float | None, high: float | None, unit: str = "ratio") -> Estimate:
    return Estimate(point, low, high, None if low is None else 0.95, 6, unit, "given")


def comparison(point: float, low: float, high: float, judgement: Judgement) -> Comparison:
    return Comparison(estimate(point, low, high), 1.02, judgement, "because", Estimate.missing("ns", ""))


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "–"),
        (0, "0 ns"),
        (0.192, "0.192 ns"),
        (23.04, "23.0 ns"),
        (999.4, "999 ns"),
        (999.7, "1.00 µs"),
        (62_070, "62.1 µs"),
        (3_900_000, "3.90 ms"),
        (1.5e9, "1.50 s"),
        (1.234e11, "123 s"),
        (-4_200, "-4.20 µs"),
    ],
)
def test_durations(ns: float | None, text: str) -> None:
    assert formatting.duration(ns) == text


@given(st.floats(1e-3, 1e12))
def test_a_duration_is_within_half_a_percent_of_what_it_says(ns: float) -> None:
    number, unit = formatting.duration(ns).split()
    factor = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert math.isclose(float(number) * factor, ns, rel_tol=0.0051)


@pytest.mark.parametrize(("ns", "text"), [(100_000, "100 µs"), (1_500_000, "1.5 ms"), (1e9, "1 s")])
def test_a_given_duration_has_no_invented_digits(ns: float, text: str) -> None:
    assert formatting.exact_duration(ns) == text


def test_an_interval_shares_its_unit_or_names_both() -> None:
    assert formatting.interval_text(estimate(23, 22.8, 23.4, "ns"), DURATION) == "22.8–23.4 ns"
    assert formatting.interval_text(estimate(900, 650, 1150, "ns"), DURATION) == "650 ns–1.15 µs"
    assert formatting.interval_text(estimate(900, None, None, "ns"), DURATION) == ""


def test_differences_have_their_signs_and_a_share_is_told_in_points() -> None:
    def told(*ends: float, quantity: Quantity = DURATION) -> str:
        found = Difference(estimate(*ends, quantity.unit), 0.1, Judgement.HIGHER, "because")
        return formatting.beside(found, quantity)

    assert told(1.3, 0.8, 2.1, quantity=SHARE) == "+1.30 points (+0.800 to +2.10)"
    assert told(-0.186, -0.309, -0.0633, quantity=SHARE) == "−0.186 points (−0.309 to −0.0633)"
    assert told(-1500, -2000, 10) == "−1.50 µs (−2.00 µs to +10.0 ns)"


@pytest.mark.parametrize(
    ("point", "low", "high", "text", "interval"),
    [
        (53.2, 49.8, 56.1, "53×", "50–56×"),
        (10.9, 10.6, 11.2, "10.9×", "10.6–11.2×"),
        (1.314, 1.28, 1.35, "1.31×", "1.28–1.35×"),
        (1.004, 0.98, 1.02, "1.00×", "0.98–1.02×"),
        (1.004, 1.003, 1.005, "1.004×", "1.003–1.005×"),
        (1234.0, 1200.0, 1300.0, "1230×", "1200–1300×"),
    ],
)
def test_ratios(point: float, low: float, high: float, text: str, interval: str) -> None:
    given_ratio = estimate(point, low, high)
    assert formatting.ratio(given_ratio) == text
    assert formatting.ratio_interval(given_ratio) == interval


def test_faster_counts_the_other_way_round() -> None:
    said = {"higher": "slower", "lower": "faster"}
    assert formatting.change_phrase(comparison(0.25, 0.2, 0.3, Judgement.LOWER), **said) == "4.00× faster (3.33–5.00×)"
    assert formatting.change_phrase(comparison(0.8, 0.7, 0.9, Judgement.LOWER), **said) == "20 % faster (10–30 %)"
    alike = comparison(1, 0.97, 1.06, Judgement.INCONCLUSIVE)
    assert formatting.change_phrase(alike, **said) == "1.00× the reference (0.97–1.06×)"


def test_lists_and_plurals() -> None:
    assert [formatting.count(number, "run") for number in (0, 1, 1234)] == ["0 runs", "1 run", "1,234 runs"]
    assert formatting.count(2, "crash", "crashes") == "2 crashes"
    assert [formatting.joined(["a", "b", "c"][:number]) for number in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert [formatting.first_of(["a", "b", "c"], most) for most in (1, 3)] == ["a; and 2 more", "a; b; c"]
    assert formatting.first_of(["a", "b", "c"], 2, ", ") == "a, b and 1 more"
