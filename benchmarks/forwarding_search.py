"""Time and error of the searches for the no-drop rate, over the sixty cells of the forwarding paper's design.

The device is simulated and its truth is known: guests with limits of their own behind a shared path, without stalls and
with rare ones.  Measuring time is what the trials would take on a real device; wall time is that of the search alone.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import importlib.metadata
import statistics
import sys
import time
from typing import Any

from benchmark import FOLDER, Outcome, figure, main, progress

from virtgauge.platforms.simulated.forwarding import ForwardingDevice, ForwardingTruth
from virtgauge.suites.forwarding.mlrsearch import MlrSearch
from virtgauge.suites.forwarding.searches import Limits, Rfc2544Search, Search, Tst009Search
from virtgauge.suites.forwarding.settings import ForwardingSettings

_SEARCHES: tuple[Search, ...] = (MlrSearch(), Rfc2544Search(), Tst009Search())
_CALM = ForwardingTruth(frame_ns=1000, byte_ns=0.5, guest_frame_ns=6000, guest_byte_ns=2)
_TRUTHS = {"no stalls": _CALM, "0.2 stalls/s": _CALM.model_copy(update={"stalls_per_s": 0.2, "stall_ms": 5.0})}
_LIMITS = Limits(1000, 1.5e6)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=3, help="devices of each kind, each with stalls of its own")


def measure(arguments: argparse.Namespace) -> Outcome:
    sys.path.insert(0, str(FOLDER.parent / "tests"))
    seeds = 1 if arguments.quick else arguments.seeds
    rows, values = [], []
    for kind, truth in _TRUTHS.items():
        for search in _SEARCHES:
            found = [asyncio.run(_design(search, truth, seed)) for seed in range(seeds)]
            errors = [error for design in found for error in design["ndr_errors"]]
            pdr_errors = [error for design in found for error in design["pdr_errors"]]
            rows.append(
                [
                    f"{search.name}, {kind}",
                    figure(statistics.median(design["measuring_s"] for design in found) / 3600),
                    figure(statistics.median(design["wall_s"] for design in found)),
                    _percent(errors),
                    _percent(pdr_errors),
                ]
            )
            values.append({"search": dataclasses.asdict(search) | {"name": search.name}, "device": kind, "runs": found})
            progress(" ".join(rows[-1]))
    cells = len(values[0]["runs"][0]["ndr_errors"])
    return Outcome(
        columns=("search, device", "measuring, h", "search itself, s", "NDR error", "PDR error"),
        rows=rows,
        meaning=f"What {cells} cells (12 load vectors × 5 frame sizes) take by each search, and its error.",
        peers={"MLRsearch": importlib.metadata.version("mlrsearch")},
        notes=[
            f"{seeds} simulated devices of each kind. Measuring: the sum of all trials' durations, without the pauses. "
            "Errors: median (smallest to largest) of found less true, as part of the true.",
            "mlrsearch decides by 21 s of 1 s trials; rfc2544 and tst009 have trials of 60 s; all end at 0.5 %. "
            "A stall stops the shared path for 5 ms in the mean (exponential); its queue holds 1024 frames.",
        ],
        values={"searches": values},
    )


async def _design(search: Search, truth: ForwardingTruth, seed: int) -> dict[str, Any]:
    """All cells of the paper's design on one device."""
    from forwarding_offers import simulated_offer

    design = ForwardingSettings()
    device = ForwardingDevice(truth, seed)
    found: dict[str, Any] = {"measuring_s": 0.0, "wall_s": 0.0, "ndr_errors": [], "pdr_errors": []}
    for shares in design.shares().values():
        for frame_bytes in design.frame_bytes:
            began = time.perf_counter()
            result = await search.run(simulated_offer(device, shares, frame_bytes), _LIMITS)
            found["wall_s"] += time.perf_counter() - began
            found["measuring_s"] += result.measuring_s
            for name, throughput in (("ndr", result.ndr), ("pdr", result.pdr)):
                true = truth.throughput_pps(shares, frame_bytes, throughput.loss_ratio)
                # Of PDR, what was offered is compared: the truth is the load at which 0.5 % are lost.
                found[f"{name}_errors"].append((throughput.lower_pps or 0.0) / true - 1)
    return found


def _percent(errors: list[float]) -> str:
    return f"{statistics.median(errors):+.1%} ({min(errors):+.1%} to {max(errors):+.1%})"


if __name__ == "__main__":
    main(measure, __doc__ or "", options)
