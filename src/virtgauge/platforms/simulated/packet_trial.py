"""The simulated agent's answer to the probe ``packet_trial``: the tester, the switches and the guests in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from virtgauge.platforms.simulated.forwarding import ForwardingDevice, SimulatedFlow
from virtgauge.platforms.simulated.truth import distribution_message

LOOP = "loop"
"""An interface of this name leads back to the tester, past the device."""


def packet_trial(device: ForwardingDevice, params: Mapping[str, Any]) -> dict[str, Any]:
    """One trial as docs/protocol.md has it; ``counters`` holds the drops of switches and guests too."""
    weights = [float(flow["weight"]) for flow in params["flows"]]
    total = sum(weights)
    trial = device.trial(
        float(params["rate_pps"]),
        [weight / total for weight in weights],
        int(params["frame_bytes"]),
        int(params["duration_ns"]) / 1e9,
        loop=params["transmit"] == LOOP,
    )
    return {
        "port": "simulated",
        "elapsed_ns": trial.elapsed_ns,
        "sent": sum(flow.sent for flow in trial.flows),
        "received": sum(flow.received for flow in trial.flows),
        "stretched": trial.stretched,
        "late": trial.late,
        "flows": [_flow(flow) for flow in trial.flows],
        "counters": trial.drops,
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
