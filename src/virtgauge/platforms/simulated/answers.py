"""Parts of the answers of simulated guests, as docs/protocol.md and programs have them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

_SUB_BUCKET_BITS = 11  # an HDR histogram with 3 significant digits has 2048 sub-buckets


def distribution_message(
    values: npt.NDArray[np.int64], unit: str = "ps", *, total: int | None = None
) -> dict[str, Any]:
    """Values as the ``distribution`` of docs/protocol.md: a :func:`histogram` whose bins and counts are packed."""
    told = histogram(values, unit, total=total)
    packed = {"values": np.array(told["values"], "<i8"), "counts": np.array(told["counts"], "<u8")}
    return told | {name: array.tobytes() for name, array in packed.items()}


def histogram(values: npt.NDArray[np.int64], unit: str, *, total: int | None = None) -> dict[str, Any]:
    """Values binned as an HDR histogram would, as programs print it.

    With ``total`` each value stands for as many as it takes to make that many of all, give or take one.
    """
    n = len(values) if total is None else total
    shift = np.maximum(np.frexp(values.astype(np.float64))[1] - _SUB_BUCKET_BITS, 0)
    half = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)  # the middle of a bin stands for it
    bins, position = np.unique(((values >> shift) << shift) + half, return_inverse=True)
    stands_for = n // len(values) + (np.arange(len(values)) < n % len(values))
    return {
        "unit": unit,
        "values": bins.tolist(),
        "counts": np.bincount(position, weights=stands_for).astype(np.int64).tolist(),
        "min": int(values.min()),
        "max": int(values.max()),
        "mean": float(values.mean()),
        "n": n,
    }


def ended(printed: Mapping[str, Any], *, exit_code: int = 0, stderr: bytes = b"") -> dict[str, Any]:
    """The result of ``run``, of a program that prints JSON."""
    return {
        "exit_code": exit_code,
        "signal": None,
        "stdout": f"{json.dumps(printed)}\n".encode(),
        "stderr": stderr,
        "truncated": False,
        "timed_out": False,
    }


def cycles_of(params: Mapping[str, Any]) -> int:
    """How many cycles a trial of the probe ``cycle`` has."""
    return max(int(params["max_ns"]) // int(params["period_ns"]), 1) * max(len(params["cpus"]), 1)


def cycle_fields(values_ps: npt.NDArray[np.int64], params: Mapping[str, Any]) -> dict[str, Any]:
    """What the probe ``cycle`` tells besides the distribution, of latenesses as one thread has them in their order."""
    late_ns, period_ns, worst = values_ps // 1000, int(params["period_ns"]), int(params["worst"])
    missed = np.maximum(late_ns // period_ns, 0) if params["kind"] == "sleep" else np.zeros_like(late_ns)
    total = np.cumsum(missed)
    in_a_row = total - np.maximum.accumulate(np.where(missed == 0, total, 0))
    latest = np.argsort(-late_ns, kind="stable")[:worst]
    began_ns = {clock: now() for clock, now in (("monotonic_ns", time.monotonic_ns), ("realtime_ns", time.time_ns))}
    at = [{clock: int(began + period_ns * n) for clock, began in began_ns.items()} for n in latest]
    own = {"cycles": len(late_ns), "missed": int(missed.sum()), "longest_missed": int(in_a_row.max(initial=0))}
    of_all = own if params["kind"] == "sleep" else own | {"missed": None, "longest_missed": None}
    return {
        **{name: params[name] for name in ("kind", "class", "period_ns")},
        **{**of_all, "locked": True, "own_ns": 0},
        "threads": [{"cpu": None, **own, "largest_ns": int(late_ns.max(initial=0))}],
        "worst": [
            {"late_ns": int(late_ns[n]), "thread": 0, "counter": 0, **clocks}
            for n, clocks in zip(latest, at, strict=True)
        ],
    }
