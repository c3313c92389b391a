"""What results of the bandwidth suite are of: estimator, timing and path; rates in Mbit/s as a shaper counts."""

from __future__ import annotations

import dataclasses

from virtgauge.report.bandwidth.vocabulary import NO_TRAFFIC, arrangement, rate


@dataclasses.dataclass(frozen=True)
class Link:
    """A path without what others send over it.

    Attributes:
        capacity_mbps: declared, as the shaper counts.
        delay_ms: of the way there and back, added to the path's own.
        loss: share of the packets that the path drops, 0 … 1.
    """

    capacity_mbps: float
    delay_ms: float
    loss: float

    @property
    def label(self) -> str:
        """``1 Gbit/s``, ``10 Gbit/s, 20 ms``."""
        parts = [rate(self.capacity_mbps)]
        parts += [f"{self.delay_ms:g} ms"] if self.delay_ms else []
        parts += [f"{self.loss * 100:g} % lost"] if self.loss else []
        return ", ".join(parts)


@dataclasses.dataclass(frozen=True)
class Path:
    """A link and what others send over it.

    Attributes:
        cross_mbps: asked for, as the shaper counts.
        traffic: ``none``, ``constant``, ``poisson``.
    """

    link: Link
    cross_mbps: float
    traffic: str

    @property
    def cross_label(self) -> str:
        """``no cross traffic``, ``150 Mbit/s constant``."""
        return "no cross traffic" if self.free else f"{rate(self.cross_mbps)} {self.traffic}"

    @property
    def label(self) -> str:
        """``300 Mbit/s, 150 Mbit/s constant``."""
        return f"{self.link.label}, {self.cross_label}"

    @property
    def rank(self) -> tuple[float | str, ...]:
        """By which paths are sorted: those without cross traffic first."""
        link = self.link
        traffic = "" if self.free else self.traffic
        return link.capacity_mbps, link.delay_ms, link.loss, traffic, self.cross_mbps

    @property
    def free(self) -> bool:
        """Whether nobody else sends."""
        return self.cross_mbps == 0 or self.traffic == NO_TRAFFIC


@dataclasses.dataclass(frozen=True)
class Key:
    """What a result is of, whatever its arm and block.

    Attributes:
        estimator: ``kite2``, ``yaz``, ``yaz-original``.
        timing: ``hptime``, ``system``, ``gettimeofday+usleep``, or another ``clock+sleep``.
        through: ``inside`` (of the estimator itself) or ``shim`` (a program of plain system calls, for ``hptime`` with
            the shim preloaded).
        pacing: how bursts are handed to the kernel: ``auto``, ``send``, ``sendmmsg``, ``gso``.
    """

    estimator: str
    timing: str
    through: str
    pacing: str
    path: Path

    @property
    def arrangement(self) -> str:
        """``hptime by the shim``."""
        return arrangement(self.timing, self.through)

    @property
    def pacing_label(self) -> str:
        """``, gso``; empty where the sender chooses."""
        return "" if self.pacing == "auto" else f", {self.pacing}"

    @property
    def label(self) -> str:
        """``kite2 · hptime · 300 Mbit/s, no cross traffic``."""
        return f"{self.estimator} · {self.arrangement}{self.pacing_label} · {self.path.label}"

    def timed(self, timing: str) -> Key:
        """The same with another timing."""
        return dataclasses.replace(self, timing=timing)
