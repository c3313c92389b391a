"""What a simulated agent answers to the requests of the suites isolation, forwarding and storage."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from virtgauge.platforms.simulated import kernels
from virtgauge.platforms.simulated.forwarding import ForwardingDevice, SimulatedFlow
from virtgauge.platforms.simulated.kernels import Work
from virtgauge.platforms.simulated.neighbours import Load, Machine, Slice, Tenant
from virtgauge.platforms.simulated.storage import SimulatedRefusal, StorageDevice
from virtgauge.platforms.simulated.truth import distribution_message

# The simulated agent's answers to the probe ``kernel`` and to the load of that name, as docs/protocol.md has them.

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


# The simulated agent's answer to the probe ``packet_trial``: the tester, the switches and the guests in one.

LOOP = "loop"
"""An interface of this name leads back to the tester, past the device."""
DROPS = "simulated_drops"
"""A field that no real agent has: frames by the place of the device that dropped them."""


def packet_trial(device: ForwardingDevice, params: Mapping[str, Any]) -> dict[str, Any]:
    """One trial as docs/protocol.md has it, and the drops of switches and guests beside it."""
    weights = [float(flow["weight"]) for flow in params["flows"]]
    total = sum(weights)
    rate_pps, burst = float(params["rate_pps"]), int(params["burst"])
    trial = device.trial(
        rate_pps,
        [weight / total for weight in weights],
        int(params["frame_bytes"]),
        burst / rate_pps if burst else int(params["duration_ns"]) / 1e9,
        loop=params["transmit"] == LOOP,
    )
    sent, received = (sum(getattr(flow, name) for flow in trial.flows) for name in ("sent", "received"))
    return {
        "port": "simulated",
        "port_reasons": [],
        "frames_planned": sent,
        "sent": sent,
        "received": received,
        "lost": sent - received,
        "stretched": trial.stretched,
        "late": trial.late,
        "elapsed_ns": trial.elapsed_ns,
        "refused": 0,
        "receiver_ring_full": 0,
        "receiver_dropped": 0,
        "transmit_counters": {"sent": sent, "send_dropped": 0},
        "receive_counters": {"received": received, "receive_dropped": 0},
        "flows": [_flow(flow) for flow in trial.flows],
        DROPS: trial.drops,
    }


def _flow(flow: SimulatedFlow) -> dict[str, Any]:
    return {
        "sent": flow.sent,
        "received": flow.received,
        "lost": flow.lost,
        "duplicates": flow.duplicates,
        "reordered": flow.reordered,
        "latency": distribution_message(flow.latencies_ps, total=flow.received) if flow.received else None,
    }


# What the agent's ``run`` does on a simulated guest: the load generator, and the end of its server.

KILL = "kill-the-server"
"""A program that no real guest has: ends the load that goes on until it fails."""
_SPECIFICATION = "SENSORSTORE_SPECIFICATION"
"""As docs/sensorstore.md has it."""


class StorageCommands:
    """Answers requests of type ``run``; a load that goes on until it fails is answered when the server was killed."""

    def __init__(self, device: StorageDevice) -> None:
        self._device = device
        self._waiting: list[Mapping[str, Any]] = []

    def run(self, message: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Requests that are answered now, each with its result."""
        argv = message["argv"]
        if argv[0] == KILL:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                yield dict(one), self._answer(one)
            yield dict(message), _ended({})
        elif argv[-1] == "measure" and _specification(message)["until_failure"]:
            self._waiting.append(message)
        else:
            yield dict(message), self._answer(message)

    def _answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return _ended(self._device.answer(message["argv"][-1], _specification(message)))
        except SimulatedRefusal as refusal:
            return _ended({"error": {"kind": refusal.kind, "message": refusal.message}}, exit_code=1)


def _specification(message: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(message["env"][_SPECIFICATION])
    return found


def _ended(printed: Mapping[str, Any], exit_code: int = 0) -> dict[str, Any]:
    return {
        "exit_code": exit_code,
        "signal": None,
        "stdout": json.dumps(printed).encode(),
        "stderr": b"",
        "truncated": False,
        "timed_out": False,
    }
