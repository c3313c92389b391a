"""The simulated agent's answers to the probe ``kernel`` and to the load of that name, as docs/protocol.md has them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from virtgauge.platforms.simulated import kernels
from virtgauge.platforms.simulated.kernels import Work
from virtgauge.platforms.simulated.neighbours import Load, Machine, Slice, Tenant
from virtgauge.platforms.simulated.truth import distribution_message

_DRAWN = 2000
"""Latencies of a trial; each stands for as many as it takes to make up all."""


def kernel_trial(tenant: Tenant, params: Mapping[str, Any]) -> dict[str, Any]:
    """One trial, without the clocks.

    Raises:
        SimulatedFailure: ``bad-request``.
    """
    work = Work.from_params(params, ("warmup_ns", "duration_ns", "slice_ns"))
    warmup_ns, duration_ns, slice_ns = (int(params[name]) for name in ("warmup_ns", "duration_ns", "slice_ns"))
    machine = tenant.machine
    slices = machine.trial(tenant, work, warmup_ns=warmup_ns, duration_ns=duration_ns, slice_ns=slice_ns)
    cpus = sum(one.given.cpus * one.ns for one in slices) / duration_ns
    wanted = sum(one.given.demand * one.ns for one in slices) / duration_ns
    seen = wanted if machine.truth.guest_sees == "itself" else cpus
    stolen_ns = round((wanted - cpus) * duration_ns) if machine.truth.guest_sees == "steal" else 0
    units = _counted([one.units for one in slices])
    hertz = machine.truth.frequency_hz
    return {
        "unit": work.unit,
        "units": sum(units),
        "elapsed_ns": duration_ns,
        "cpu_ns": round(seen * duration_ns),
        "threads": _threads(work, units, [one.ns for one in slices], seen),
        "direct": machine.truth.disk_direct if work.kernel == kernels.DISK else None,
        "latency": _latency(machine, work, slices, sum(units)),
        "frequency_before_hz": hertz * slices[0].given.frequency,
        "frequency_after_hz": hertz * slices[-1].given.frequency * machine.truth.frequency_drift,
        "usage": {
            "cpu_ns": 0,
            "steal_ns": None if machine.truth.guest_sees == "nothing" else stolen_ns,
            "elapsed_ns": warmup_ns + duration_ns,
        },
        "load": None,
    }


def load_result(load: Load) -> dict[str, Any]:
    """What ``load_stop`` answers."""
    return {
        "name": "kernel",
        "unit": load.work.unit,
        "threads": load.work.threads,
        "intensity_percent": round(load.work.intensity * 100),
        "elapsed_ns": round(load.elapsed_ns),
        "cpu_ns": round(load.cpu_ns),
        "units": round(load.units),
        "error": "the simulation was told to die" if load.breaks == "loader-dies" else None,
        "achieved": {"elapsed_ns": round(load.elapsed_ns), "cpu_busy_share": None},
    }


def _counted(units: Sequence[float]) -> list[int]:
    """Whole units by slice; what a slice leaves over is counted in the next."""
    whole = [round(total) for total in itertools.accumulate(units)]
    return [after - before for before, after in itertools.pairwise([0, *whole])]


def _threads(work: Work, units: Sequence[int], slice_ns: Sequence[int], cpus: float) -> list[dict[str, Any]]:
    """The threads share evenly; what cannot be is the first ones'."""
    duration_ns = sum(slice_ns)
    threads = []
    for number in range(work.threads):
        own = [count // work.threads + (number < count % work.threads) for count in units]
        threads.append(
            {
                "units": sum(own),
                "elapsed_ns": duration_ns,
                "cpu_ns": round(cpus * duration_ns / work.threads),
                "slice_units": own,
                "slice_ns": list(slice_ns),
            }
        )
    return threads


def _latency(machine: Machine, work: Work, slices: Sequence[Slice], units: int) -> dict[str, Any] | None:
    """Of a disk's operations, exponential; of wake-ups, lognormal about what the neighbour makes of the median."""
    truth, random = machine.truth, machine.random
    count = units // work.block_bytes if work.kernel == kernels.DISK else units
    if work.kernel not in (kernels.DISK, kernels.WAKE) or count == 0:
        return None
    values: npt.NDArray[np.float64]
    if work.kernel == kernels.DISK:
        duration_ns = sum(one.ns for one in slices)
        values = random.exponential(work.threads * duration_ns / count, min(_DRAWN, count))
    else:
        crowd = sum(one.given.crowd * one.ns for one in slices) / sum(one.ns for one in slices)
        spread = np.exp(truth.wake_sigma * random.standard_normal(min(_DRAWN, count)))
        values = truth.lateness_ns(crowd) / machine.factor * spread
    return distribution_message(np.maximum(np.rint(values * 1000), 1).astype(np.int64), total=count)
