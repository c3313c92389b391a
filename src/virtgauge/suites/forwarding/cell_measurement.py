"""One cell: the tester first, then a search, latency, bursts, and the ledger of everything that was lost meanwhile."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from virtgauge.analysis.forwarding import (
    DropCounter,
    LossAccounting,
    Shares,
    add_accountings,
    bits_per_s,
    close_accounting,
    jain_index,
    wire_frames_per_s,
)
from virtgauge.ledger.records import Flag
from virtgauge.suites.base import Elapsed, Measurement
from virtgauge.suites.forwarding.flags import Conditions, flags_of
from virtgauge.suites.forwarding.laboratory import ForwardingLab
from virtgauge.suites.forwarding.latency import LatencyAtLoad, latency_at_loads
from virtgauge.suites.forwarding.searches.back_to_back import BackToBack, back_to_back
from virtgauge.suites.forwarding.searches.base import Limits, SearchError, SearchResult
from virtgauge.suites.forwarding.searches.worst_vector import find_worst
from virtgauge.suites.forwarding.settings import WORST, ForwardingSettings
from virtgauge.suites.forwarding.trial import PACED, Sending, TrialResult

_SEARCH_PART = 0.7
"""Of a cell's time, for the progress shown."""


async def measure_cell(
    settings: ForwardingSettings,
    lab: ForwardingLab,
    vector: str,
    frame_bytes: int,
    on_progress: Callable[[float], None],
) -> Measurement:
    """Measure one load vector and frame size.

    Raises:
        AgentError, ChannelClosedError, ProtocolError: as :meth:`ForwardingLab.measure`.
    """
    calibration = await lab.calibration(frame_bytes, settings.max_pps, settings.calibration_s)
    base = {"calibration": calibration.record(), "frame_bytes": frame_bytes, "guests": settings.guests}
    if calibration.limit_pps is None or calibration.limit_pps <= settings.min_pps:
        detail = "the tester cannot send and receive even the plan's lowest load on a bare loop"
        return Measurement(base, {}, {}, (Flag("generator-limited", detail),))
    medium_pps = wire_frames_per_s(frame_bytes, settings.medium_mbps * 1e6) if settings.medium_mbps else None
    highest = min(calibration.limit_pps, settings.max_pps, medium_pps or calibration.limit_pps)
    limits = Limits(settings.min_pps, max(highest, settings.min_pps * 1.01))
    tally = await Tally.begin(lab, frame_bytes, settings.ledger_tolerance)
    try:
        shares, search, searched = await _search(settings, tally, vector, limits, on_progress)
    except SearchError as error:
        return Measurement(base, {}, {}, (Flag("search-failed", str(error)),))
    latencies, bursts = await _at_throughput(settings, tally.load(shares), search, limits, on_progress)
    found = Conditions(
        calibration=calibration,
        search=search,
        medium_pps=medium_pps,
        ledger=add_accountings(tally.ledgers),
        duplicates=tally.duplicates,
        reordered=tally.reordered,
        late_share=_late_share(latencies),
        late_bound=settings.late_share,
        unbound=lab.unbound(),
    )
    histograms = {name: one for at_load in latencies for name, one in at_load.histograms().items()}
    result = base | {
        "shares": list(shares),
        "jain": jain_index(shares),
        "searched_vectors": list(searched),
        "port": tally.port,
        **_throughputs(search, frame_bytes),
        "latency_mode": "one_tagged" if settings.tagged_latency else "every_frame",
        "cpu_limit_unbound": found.unbound,
        "latency": [at_load.record(shares) for at_load in latencies],
        "back_to_back": None if bursts is None else dataclasses.asdict(bursts),
        "loss_accounting": _ledger_record(tally.ledgers),
        "frames_sent": tally.sent,
        "rfc2544_complete": _is_complete(settings, search),
    }
    return Measurement(
        result,
        histograms,
        {},
        tuple(flags_of(found)),
        guest_clocks=tuple(tally.clocks.values()),
    )


class Tally:
    """Offers loads to a laboratory, adds up what is sent, and closes a ledger of lost frames after every trial."""

    def __init__(self, lab: ForwardingLab, frame_bytes: int, tolerance: float, counters: list[DropCounter]) -> None:
        self._lab, self._frame_bytes, self._tolerance, self._counters = lab, frame_bytes, tolerance, counters
        self.sent = self.duplicates = self.reordered = 0
        self.ledgers: list[LossAccounting] = []
        self.clocks: dict[str, Elapsed] = {}
        self.port = ""

    @classmethod
    async def begin(cls, lab: ForwardingLab, frame_bytes: int, tolerance: float) -> Tally:
        """From what the counters say now."""
        return cls(lab, frame_bytes, tolerance, await lab.drop_counters())

    def load(self, shares: Shares) -> LoadOfVector:
        """The laboratory with this vector, for searches."""
        return LoadOfVector(self, shares)

    async def measure(
        self, shares: Shares, rate_pps: float, duration_s: float, sending: Sending = PACED
    ) -> TrialResult:
        """One trial."""
        trial = await self._lab.measure(shares, self._frame_bytes, rate_pps, duration_s, sending)
        self.port = trial.port
        self.sent += trial.sent
        self.duplicates += sum(flow.duplicates for flow in trial.flows)
        self.reordered += sum(flow.reordered for flow in trial.flows)
        self._add_clocks(trial)
        self.ledgers.append(await self._ledger(trial))
        return trial

    def _add_clocks(self, trial: TrialResult) -> None:
        for one in trial.clocks:
            sum_ = self.clocks.get(one.clock, Elapsed(one.clock, 0.0, 0.0))
            self.clocks[one.clock] = Elapsed(
                one.clock, sum_.elapsed_ns + one.elapsed_ns, sum_.uncertainty_ns + one.uncertainty_ns
            )

    async def _ledger(self, trial: TrialResult) -> LossAccounting:
        before, self._counters = self._counters, await self._lab.drop_counters()
        # A place that is known by a difference goes back when frames that were under way have passed it after all.
        since = [
            dataclasses.replace(now, dropped=max(now.dropped - then.dropped, 0))
            for then, now in zip(before, self._counters, strict=True)
        ]
        tester = [DropCounter(f"tester: {place}", frames) for place, frames in trial.drops.items()]
        return close_accounting([flow.lost for flow in trial.flows], [*since, *tester], tolerance_share=self._tolerance)


@dataclasses.dataclass(frozen=True)
class LoadOfVector:
    """A laboratory with one load vector and frame size: the device of a search."""

    tally: Tally
    shares: Shares

    async def measure(self, rate_pps: float, duration_s: float) -> TrialResult:
        """As :class:`Device`."""
        return await self.tally.measure(self.shares, rate_pps, duration_s)

    async def measure_tagged(self, rate_pps: float, duration_s: float) -> TrialResult:
        """The same, timing the frame in the middle alone."""
        return await self.tally.measure(self.shares, rate_pps, duration_s, Sending(tagged=True))

    async def burst(self, frames: int, rate_pps: float) -> TrialResult:
        """So many frames as fast as the tester can."""
        return await self.tally.measure(self.shares, rate_pps, frames / rate_pps, Sending(burst=frames))


async def _search(
    settings: ForwardingSettings, tally: Tally, vector: str, limits: Limits, on_progress: Callable[[float], None]
) -> tuple[Shares, SearchResult, tuple[str, ...]]:
    """The vector (of the worst, the one found), its search, and the vectors that were searched."""
    method = settings.search_method()
    if vector != WORST:
        shares = settings.shares()[vector]
        return shares, await method.run(tally.load(shares), limits), (vector,)
    vectors = settings.two_level_shares()
    worst = await find_worst(
        {name: tally.load(shares) for name, shares in vectors.items()},
        method,
        limits,
        challenge_s=settings.length_of_trial_s,
        on_vector=lambda done: on_progress(_SEARCH_PART * done / len(vectors)),
    )
    return vectors[worst.name], worst.result, worst.searched


async def _at_throughput(
    settings: ForwardingSettings,
    load: LoadOfVector,
    search: SearchResult,
    limits: Limits,
    on_progress: Callable[[float], None],
) -> tuple[list[LatencyAtLoad], BackToBack | None]:
    """Latency and bursts, which are defined at the throughput alone: none without one."""
    throughput = search.ndr.rate_pps
    if throughput is None:
        return [], None
    latencies = await latency_at_loads(
        load.measure_tagged if settings.tagged_latency else load.measure,
        throughput,
        (*settings.latency_loads, *settings.load_curve),
        duration_s=settings.latency_s,
        repeats=settings.latency_repeats,
        highest_pps=limits.max_pps,
        on_progress=lambda done: on_progress(_SEARCH_PART + (1 - _SEARCH_PART) * done),
    )
    if not settings.back_to_back:
        return latencies, None
    return latencies, await back_to_back(load, limits.max_pps, throughput, repeats=settings.back_to_back)


def _ledger_record(ledgers: Sequence[LossAccounting]) -> dict[str, Any]:
    together = add_accountings(ledgers)
    return {
        "closed": together.closed,
        "lost": together.lost,
        "places": dict(together.places),
        "unattributed": together.unattributed,
        "excess": together.excess,
        "unclosed_trials": sum(not ledger.closed for ledger in ledgers),
    }


def _late_share(latencies: Sequence[LatencyAtLoad]) -> float:
    """In the trials up to the throughput; beyond it, a device that holds the sender up makes it late."""
    trials = [trial for at_load in latencies if at_load.load_percent <= 100 for trial in at_load.trials]
    sent = sum(trial.sent for trial in trials)
    return sum(trial.late for trial in trials) / sent if sent else 0.0


def _throughputs(search: SearchResult, frame_bytes: int) -> dict[str, Any]:
    ndr, pdr = search.ndr, search.pdr
    return {
        "search": search.method,
        "throughput_pps": ndr.rate_pps,
        "throughput_bps": None if ndr.rate_pps is None else bits_per_s(ndr.rate_pps, frame_bytes),
        "ndr": dataclasses.asdict(ndr),
        "pdr": dataclasses.asdict(pdr),
        "maximum_receive_pps": search.maximum_receive_pps,
        "trials": len(search.points),
        "measuring_s": search.measuring_s,
        "stretched_trials": search.stretched,
        "loss_curve": [dataclasses.asdict(point) for point in search.points],
    }


def _is_complete(settings: ForwardingSettings, search: SearchResult) -> bool:
    """Whether durations and repeats are those of RFC 2544, sections 24 and 26.2."""
    return (
        search.method == "rfc2544"
        and settings.length_of_trial_s >= 60
        and settings.latency_s >= 120
        and settings.latency_repeats >= 20
        and 100 in settings.latency_loads
        and settings.tagged_latency
    )
