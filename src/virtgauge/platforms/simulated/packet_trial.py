"""The simulated agent's answer to the probe ``packet_trial``: the tester, the switches and the guests in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from virtgauge.platforms.simulated.forwarding import ForwardingDevice, SimulatedFlow
from virtgauge.platforms.simulated.truth import distribution_message

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
