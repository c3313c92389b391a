"""How much of a ranking is durability.

The spread of a ranking is the rate of the fastest over that of the slowest.  At mixed levels it has two causes, at an
equal level one.  Rates differ by factors, so shares are of the logarithm: a spread of 100 at mixed levels and of 10 at
an equal level is half durability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def spread(rates: Sequence[float]) -> float:
    """The largest rate over the smallest.

    Raises:
        ValueError: there is none, or one that is not positive.
    """
    if not rates or min(rates) <= 0:
        raise ValueError("a spread needs positive rates")
    return max(rates) / min(rates)


def durability_share(mixed: float, equal: float) -> float | None:
    """The part of the mixed levels' spread that an equal level takes away, of its logarithm, within 0…1.

    Args:
        mixed: spread at mixed levels.
        equal: spread at an equal level.

    Returns:
        None where the mixed levels have no spread to be explained.
    """
    if mixed <= 1:
        return None
    return min(1.0, max(0.0, 1 - math.log(max(equal, 1.0)) / math.log(mixed)))
