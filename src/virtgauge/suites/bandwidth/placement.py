"""Which of the host's processors the estimator, the router and the others run on."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Self


@dataclasses.dataclass(frozen=True)
class Placement:
    """The sender apart from the path, as far as there are processors.

    Attributes:
        sender: of the tested guest; None leaves it to the scheduler.
        router: on which the path's frames are worked on; None: wherever they are sent.
        others: of the cross traffic, the receiver and the link emulator.
        apart: the others are on a machine of their own.
    """

    sender: tuple[int, ...] | None
    router: int | None
    others: int | None
    apart: bool = False

    @property
    def crowded(self) -> bool:
        """The others have no processor apart from the path's own."""
        return not self.apart and (self.others is None or self.others == self.router)

    @classmethod
    def of_this_machine(cls) -> Self:
        """For the processors that this process may use."""
        return cls.of(sorted(os.sched_getaffinity(0)))

    @classmethod
    def beside_a_tester(cls) -> Self:
        """For the processors that this process may use, with receiver and others on another machine."""
        cpus = sorted(os.sched_getaffinity(0))
        return cls(tuple(cpus[:-1]) or None, cpus[-1] if len(cpus) > 1 else None, None, apart=True)

    @classmethod
    def of(cls, cpus: Sequence[int]) -> Self:
        """The last processors for the path and for the others, who share one where there are fewer than three.

        On a single one nothing can be kept apart.
        """
        match len(cpus):
            case 0 | 1:
                return cls(None, None, None)
            case 2:
                return cls(tuple(cpus[:1]), cpus[1], cpus[1])
            case _:
                return cls(tuple(cpus[:-2]), cpus[-1], cpus[-2])
