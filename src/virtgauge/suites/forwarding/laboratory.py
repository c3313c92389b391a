"""The forwarding laboratory as the suite sees it: something that offers loads to N guests and reads counters.

The tester comes first: what it can do on a bare loop, before anything is said of a platform.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections import Counter

from virtgauge.analysis.packets import DropCounter, equal_shares
from virtgauge.ledger.records import merged
from virtgauge.platforms.base import LaunchError
from virtgauge.platforms.simulated.forwarding import DROPS, LOOP
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.trial import Load, Offer, Path, Tester, TrialResult, trial_of
from virtgauge.suites.testbed import Stage, Testbed

_WARM_UP = 100.0, 0.1  # A few frames: the first of a flow is slow in Open vSwitch
_BACK_OFF = 0.95
_FIRST_TRIAL_S = 0.01
_MOST_STEPS = 40


@dataclasses.dataclass(frozen=True)
class TesterCalibration:
    """The tester with one frame size."""

    # highest rate that it sends as asked and receives without loss; None: not even the lowest tried
    limit_pps: float | None
    port: str  # kind of port that it used
    # latency_mean_ns, latency_max_ns: its own, at half of that rate; None where nothing was timed
    latency_mean_ns: float | None = None
    latency_max_ns: float | None = None
    late_share: float | None = None  # part of the frames that left late at half of that rate
    # highest rate that passes the switches with no guest between them; None where not measured, or where none does
    switch_pps: float | None = None


async def calibrate(loop: Offer, highest_pps: float, duration_s: float) -> TesterCalibration:
    """Find the tester's limit on the bare loop, and its own latency at half of that."""
    limit_pps, port = await _limit(loop, highest_pps, duration_s)
    if limit_pps is None:
        return TesterCalibration(None, port)
    half = await loop(limit_pps / 2, duration_s)
    latency = merged([flow.latency for flow in half.flows if flow.latency is not None])
    return TesterCalibration(
        limit_pps=limit_pps,
        port=port,
        latency_mean_ns=latency.mean / 1000 if latency else None,
        latency_max_ns=latency.maximum / 1000 if latency else None,
        late_share=half.late / half.sent if half.sent else None,
    )


async def _limit(offer: Offer, highest_pps: float, duration_s: float) -> tuple[float | None, str]:
    """The highest rate that passes whole, coming from above, or None where not even the lowest does; and the port."""
    rate = highest_pps
    # A short trial far beyond the limit stretches, and so tells the rate at which it was really sent.
    first = await offer(rate, _FIRST_TRIAL_S)
    if not first.passes(0.0):
        rate = min(rate, first.received_pps)
    for _ in range(_MOST_STEPS):
        if rate * duration_s < 1:
            break
        trial = await offer(rate, duration_s)
        if trial.passes(0.0):
            return rate, trial.port
        rate = min(rate, max(trial.received_pps, rate / 2)) * _BACK_OFF
    return None, first.port


class ForwardingLab(Testbed, abc.ABC):
    """N guests between two switches, and a tester at both ends.  Flow number i goes through guest number i alone."""

    own_processors = True  # every guest has a processor that no other guest runs on
    # why the guests' CPU limit is not in force, in words; None where it is, as far as seen, or there is none
    unbound: str | None = None

    def __init__(self, stage: Stage, tester: Tester, loop: Tester, past: Tester | None = None) -> None:
        super().__init__(stage)
        self._tester = dataclasses.replace(tester, drain_ns=round(tester.drain_ns * self.timeout_factor))
        self._loop = loop  # the same tester on a bare loop to itself: what it can do
        self._past = past  # the same past all guests, through the switches alone
        self.flows = len(tester.paths)
        self._calibrations: dict[tuple[int, float, float], TesterCalibration] = {}

    @abc.abstractmethod
    async def check(self) -> None:
        """Prove that every flow passes its own guest and no other, and comes back.  Raises LaunchError: else."""

    @abc.abstractmethod
    async def measure(self, load: Load) -> TrialResult:
        """Offer a load. Raises AgentError, ChannelClosedError, ProtocolError: tester or guest failed."""

    @abc.abstractmethod
    async def drop_counters(self) -> list[DropCounter]:
        """What every watched place has dropped since it exists; in the same order at every call.

        Places on the tester's side are counted by the trials themselves.
        """

    async def calibration(self, frame_bytes: int, highest_pps: float, duration_s: float) -> TesterCalibration:
        """The tester on its bare loop, and through the switches alone, measured once for each of these."""

        async def offer(tester: Tester, rate_pps: float, duration_s: float) -> TrialResult:
            return await tester.measure(Load([1.0], frame_bytes, rate_pps, duration_s))

        key = frame_bytes, highest_pps, duration_s  # designs share the laboratory
        if key not in self._calibrations:
            found = await calibrate(functools.partial(offer, self._loop), highest_pps, duration_s)
            if self._past is not None and found.limit_pps is not None:
                await offer(self._past, *_WARM_UP)
                switch_pps, _ = await _limit(functools.partial(offer, self._past), found.limit_pps, duration_s)
                found = dataclasses.replace(found, switch_pps=switch_pps)
            self._calibrations[key] = found
        return self._calibrations[key]


class SimulatedLab(ForwardingLab):
    """One simulated agent that is tester, switches and guests in one; it speaks the real protocol."""

    def __init__(self, settings: ForwardingSettings, stage: Stage) -> None:
        paths = [
            Path("52:54:00:00:00:01", f"52:54:00:01:00:{index:02x}", "10.0.0.1", f"10.1.{index}.1")
            for index in range(settings.guests)
        ]
        tester = Tester(stage.guests[0].channel, settings.port, "eth0", "eth1", paths)
        super().__init__(stage, tester, dataclasses.replace(tester, transmit=LOOP, receive=LOOP, paths=paths[:1]))
        self._dropped: Counter[str] = Counter()

    async def check(self) -> None:
        """Offer a few frames to each guest: all of them come back, and none twice."""
        trial = await self.measure(Load(equal_shares(self.flows), 64, 100.0 * self.flows, 0.1))
        for index, flow in enumerate(trial.flows):
            if flow.sent == flow.lost:
                raise LaunchError("laboratory check", f"no frame comes back through guest {index}")

    async def measure(self, load: Load) -> TrialResult:
        value = await self._tester.ask(load)
        # The agent is switch and guests too, and so tells their drops, which a real laboratory reads at those places.
        self._dropped.update(value[DROPS])
        return trial_of(value, load)

    async def drop_counters(self) -> list[DropCounter]:
        guests = [DropCounter(f"guest {flow}", self._dropped[f"guest {flow}"], flow) for flow in range(self.flows)]
        return [DropCounter("shared path", self._dropped["shared path"]), *guests]
