"""The truth of a simulated guest: distributions with known quantiles, and the faults it shall show."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

_SUB_BUCKET_BITS = 11  # an HDR histogram with 3 significant digits has 2048 sub-buckets


class Distribution(BaseModel):
    """Lognormal values with a known median, plus rare stalls.

    Every guest draws a factor of its own, lognormal with median 1 and ``guest_sigma``: repetitions on fresh guests
    differ, as they do in reality, and the median over guests is still ``median_ns``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    median_ns: Annotated[float, Field(gt=0)]
    sigma: Annotated[float, Field(ge=0, le=5)] = 0.1
    guest_sigma: Annotated[float, Field(ge=0, le=5)] = 0.02
    stall_probability: Annotated[float, Field(ge=0, le=1)] = 0.0
    stall_ns: Annotated[float, Field(ge=0)] = 1_000_000.0

    def draw(self, n: int, factor: float, random: np.random.Generator) -> npt.NDArray[np.int64]:
        """``n`` values in picoseconds, for a guest with this factor."""
        values = self.median_ns * factor * np.exp(self.sigma * random.standard_normal(n))
        if self.stall_probability > 0:
            values += self.stall_ns * (random.random(n) < self.stall_probability)
        return np.maximum(np.rint(values * 1000), 1).astype(np.int64)

    def guest_factor(self, random: np.random.Generator) -> float:
        """A guest's own factor; its median over guests is 1."""
        return float(np.exp(self.guest_sigma * random.standard_normal()))


class Fault(BaseModel):
    """Something that goes wrong.

    Attributes:
        kind: ``hang`` (never answers), ``crash`` (the stream ends inside a frame), ``garbage`` (random bytes),
            ``refuse`` (an error answer), ``unsupported``, ``no-launch`` (the guest does not come up),
            ``clock-drift`` (its clocks disagree).  Of the agent's kernels: ``wrong-result`` and ``disk-full`` (error
            answers), ``out-of-memory`` (a process of the guest is killed at its memory limit meanwhile), ``killed``
            (the agent is); of estimates of bandwidth: ``peer-lost``, ``peer-version``, ``no-answer`` and ``clock-step``
            (error answers); of kernels as loads: ``loader-dies`` (ends half-way through the trial, and says so),
            ``loader-idle`` (does nothing, and does not say so), ``loader-lost`` (ends half-way, with its guest).
        function: only in trials of this function, kernel (``memory-write-simd``) or estimator.
        probability: per trial (per launch for ``no-launch``; per start of a load).
        first_guests: only in so many guests, counted from the first; 0 means in all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal[
        "hang",
        "crash",
        "garbage",
        "refuse",
        "unsupported",
        "no-launch",
        "clock-drift",
        "wrong-result",
        "disk-full",
        "out-of-memory",
        "killed",
        "loader-dies",
        "loader-idle",
        "loader-lost",
        "peer-lost",
        "peer-version",
        "no-answer",
        "clock-step",
    ]
    function: str | None = None
    probability: Annotated[float, Field(ge=0, le=1)] = 1.0
    first_guests: Annotated[int, Field(ge=0)] = 0


def distribution_message(
    values: npt.NDArray[np.int64], unit: str = "ps", *, total: int | None = None
) -> dict[str, Any]:
    """Values as the ``distribution`` of docs/protocol.md, binned as an HDR histogram would.

    With ``total`` each value stands for as many as it takes to make that many of all, give or take one.
    """
    n = len(values) if total is None else total
    bins, counts = histogram_bins(values, n)
    return {
        "unit": unit,
        "values": bins.astype("<i8").tobytes(),
        "counts": counts.astype("<u8").tobytes(),
        "min": int(values.min()),
        "max": int(values.max()),
        "mean": float(values.mean()),
        "n": n,
    }


def histogram_bins(values: npt.NDArray[np.int64], total: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Bins of an HDR histogram and their counts; each value stands for as many as it takes to make ``total`` of all."""
    shift = np.maximum(np.frexp(values.astype(np.float64))[1] - _SUB_BUCKET_BITS, 0)
    half = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)  # the middle of a bin stands for it
    bins, position = np.unique(((values >> shift) << shift) + half, return_inverse=True)
    stands_for = total // len(values) + (np.arange(len(values)) < total % len(values))
    return bins, np.bincount(position, weights=stands_for).astype(np.int64)
