"""Timings by their names: which clock the estimator reads, and how it sleeps."""

from __future__ import annotations

import dataclasses
from typing import Self

SYSTEM, HPTIME = "system", "hptime"
CLOCKS = (SYSTEM, "gettimeofday", HPTIME)
SLEEPS = (SYSTEM, "usleep", HPTIME)


@dataclasses.dataclass(frozen=True)
class Timing:
    """A clock and a sleep, as the estimator names them (docs/bandwidth.md)."""

    clock: str
    sleep: str

    @classmethod
    def named(cls, name: str) -> Self:
        """``system`` and ``hptime`` are both alike; else ``CLOCK+SLEEP``.

        Raises:
            ValueError: it is none.
        """
        if name in (SYSTEM, HPTIME):
            return cls(name, name)
        clock, plus, sleep = name.partition("+")
        if not plus or clock not in CLOCKS or sleep not in SLEEPS:
            raise ValueError(
                f"is no timing; use system, hptime, or CLOCK+SLEEP of the clocks {', '.join(CLOCKS)} "
                f"and the sleeps {', '.join(SLEEPS)}"
            )
        if clock == sleep:
            raise ValueError(f"has a shorter name; write {clock}")
        return cls(clock, sleep)

    @property
    def is_mixed(self) -> bool:
        """Whether clock and sleep are of different kinds, which a preloaded library cannot bring about."""
        return self not in (Timing(SYSTEM, SYSTEM), Timing(HPTIME, HPTIME))


def is_a_timing(name: str) -> str:
    """Check a timing's name; for pydantic.

    Raises:
        ValueError: it is none.
    """
    Timing.named(name)
    return name
