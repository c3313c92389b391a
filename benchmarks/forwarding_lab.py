"""Set-up and teardown of forwarding laboratories: containers between two switches, checked before use.

The laboratory is the suite's own: guests launched, links and switches made, one rule for each flow, and a few frames
sent through every guest to prove that they reach it and only it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from typing import Any

from benchmark import BenchmarkError, Outcome, figure, main, progress

from virtgauge.agent import find_agent
from virtgauge.errors import UnavailableError
from virtgauge.host.scope import Scope
from virtgauge.network.switch import find_openvswitch
from virtgauge.platforms.base import LaunchError
from virtgauge.platforms.oci.platform import OciPlatform
from virtgauge.suites.forwarding.guest_lab import GuestLab
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.testbed import Stage

_GUESTS = (12, 64)
_SWITCHES = {"bridge": "Linux bridge", "openvswitch": "Open vSwitch"}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=5, help="laboratories of each kind")


def measure(arguments: argparse.Namespace) -> Outcome:
    try:
        find_openvswitch()
    except UnavailableError as error:
        raise BenchmarkError(str(error)) from error
    repeats = 1 if arguments.quick else arguments.repeats
    rows, values = [], []
    for guests in _GUESTS:
        for switch, name in _SWITCHES.items():
            try:
                runs = [asyncio.run(_laboratory(guests, switch)) for _ in range(repeats)]
            except LaunchError as error:
                raise BenchmarkError(f"{guests} guests: {error}") from error
            medians = {part: statistics.median(run[part] for run in runs) for part in runs[0]}
            rows.append([f"{guests} guests, {name}", *(figure(medians[part]) for part in medians)])
            values.append({"guests": guests, "switch": switch, "runs": runs})
            progress(" ".join(rows[-1]))
    return Outcome(
        columns=("laboratory", "set up, s", "checked, s", "torn down, s"),
        rows=rows,
        meaning="From nothing to a checked laboratory of containers (runc), and back.",
        notes=[
            f"Medians of {repeats}. The check sends two rounds of frames through all guests, a fifth of a second each, "
            "and waits a fifth of a second for stragglers after each.",
        ],
        values={"laboratories": values},
    )


async def _laboratory(guests: int, switch: str) -> dict[str, Any]:
    """Seconds for each part of one laboratory's life."""
    settings = ForwardingSettings.model_validate({"guests": guests, "switch": switch, "port": "af_packet"})
    with Scope() as scope:
        stage = Stage(OciPlatform(), scope, find_agent(), "lab")
        try:
            times = [time.perf_counter()]
            lab = await GuestLab.create(settings, stage)
            times.append(time.perf_counter())
            await lab.check()
            times.append(time.perf_counter())
        finally:
            await stage.close()
        times.append(time.perf_counter())
    return dict(
        zip(
            ("set_up_s", "checked_s", "torn_down_s"),
            (b - a for a, b in itertools.pairwise(times)),
            strict=True,
        )
    )


if __name__ == "__main__":
    main(measure, __doc__ or "", options)
