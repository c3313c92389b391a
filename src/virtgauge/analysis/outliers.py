"""Outliers of a sample: values beyond the fences of J. W. Tukey (1977), "Exploratory Data Analysis", section 2D."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

FENCE = 1.5
"""Interquartile ranges from the quartiles; Tukey's."""
LEAST_VALUES = 20
"""Quartiles of fewer are themselves too uncertain to say what lies far beyond them."""


@dataclasses.dataclass(frozen=True)
class Outliers:
    """Shares of a sample's values, 0 … 1."""

    below: float
    above: float

    @property
    def all(self) -> float:
        return self.below + self.above


def outliers(values: Sequence[float]) -> Outliers | None:
    """The shares beyond the fences; None of fewer values than :data:`LEAST_VALUES`."""
    if len(values) < LEAST_VALUES:
        return None
    low, high = np.quantile(values, [0.25, 0.75])
    reach = FENCE * (high - low)
    found = np.asarray(values, dtype=np.float64)
    return Outliers(float(np.mean(found < low - reach)), float(np.mean(found > high + reach)))
