"""An estimate: a figure together with what is known of its uncertainty."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Estimate:
    """One figure with its interval."""

    # the figure, in ``unit``; None when there is none (which is not zero), then ``method`` says why
    point: float | None
    # low, high: ends of the interval, in ``unit``; both None when no interval is possible
    low: float | None
    high: float | None
    # that the interval really has, which with few repetitions is less than was asked for; None without an interval
    confidence: float | None
    n: int  # how many independent repetitions stand behind it
    unit: str  # ``ns``, ``ratio`` …
    method: str  # how point and interval were found, or why one of them is missing

    @classmethod
    def missing(cls, unit: str, reason: str, n: int = 0) -> Estimate:
        return cls(None, None, None, None, n, unit, reason)

    @classmethod
    def bare(cls, point: float, unit: str, reason: str, n: int = 1) -> Estimate:
        """A figure without an interval, and why it has none."""
        return cls(point, None, None, None, n, unit, reason)

    @property
    def has_interval(self) -> bool:
        return self.low is not None and self.high is not None

    def reaches(self, nominal: float) -> bool:
        """Whether there is an interval with that confidence: few repetitions give one with less."""
        return self.confidence is not None and self.confidence >= nominal

    def excludes(self, value: float) -> bool:
        """Whether there is an interval and ``value`` lies outside it."""
        return self.low is not None and self.high is not None and not self.low <= value <= self.high

    def mapped(self, function: Callable[[float], float], unit: str) -> Estimate:
        """The estimate of an increasing function of the figure (its interval maps end by end)."""

        def apply(value: float | None) -> float | None:
            return None if value is None else function(value)

        return dataclasses.replace(self, point=apply(self.point), low=apply(self.low), high=apply(self.high), unit=unit)
