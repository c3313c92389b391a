"""The forwarding suite: throughput by load vector and frame size, latency, and where lost frames went.

A cell is one independent search for one load vector and frame size (Batalla et al. 2016, section 3.3), made on a fresh
laboratory of N guests; its throughput T|J is the highest total load with no loss in any guest.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from virtgauge.analysis.packets import (
    DropCounter,
    LossAccounting,
    Shares,
    add_accountings,
    bits_per_s,
    close_accounting,
    frames_for,
    jain_index,
    shows_more_loss,
    wire_frames_per_s,
)
from virtgauge.host.machine import NETWORK, lack_of_rights
from virtgauge.ledger.records import Flag
from virtgauge.platforms.base import Platform
from virtgauge.suites.answers import added_up
from virtgauge.suites.base import Cell, Elapsed, Measurement, Suite
from virtgauge.suites.forwarding.at_throughput import (
    BackToBack,
    LatencyAtLoad,
    back_to_back,
    latency_at_loads,
    soak,
    soak_record,
)
from virtgauge.suites.forwarding.device_lab import DeviceLab, to_do
from virtgauge.suites.forwarding.guest_lab import GuestLab
from virtgauge.suites.forwarding.laboratory import ForwardingLab, SimulatedLab, TesterCalibration
from virtgauge.suites.forwarding.searches import PARTIAL_DROP, Limits, SearchResult, find_worst
from virtgauge.suites.forwarding.settings import WORST, ForwardingSettings
from virtgauge.suites.forwarding.trial import Load, Offer, TrialResult
from virtgauge.suites.testbed import Stage, Testbed

_OVERHEAD = 2.0
"""What a trial may take against its offered load: waiting for the last frames, reading counters, a crowded machine."""
_TRIAL_OVERHEAD_S = 2.0
_SET_UP_S = 60.0

_SEARCH_PART = 0.7  # Of a cell's time, for the progress shown
_NEAR_THE_LIMIT = 0.9


class ForwardingSuite(Suite):
    """See the module."""

    name = "forwarding"
    Settings = ForwardingSettings
    settings: ForwardingSettings

    def needs(self) -> tuple[str, ...]:
        return ("openvswitch",) if self.settings.switch == "openvswitch" else ()

    def lacking(self, cell: Cell) -> str | None:
        return lack_of_rights("the suite forwarding", *NETWORK)

    def cells(self) -> list[Cell]:
        names = [*self.settings.shares(), *([WORST] if WORST in self.settings.vectors else [])]
        return [self._cell(vector, size) for vector, size in itertools.product(names, self.settings.frame_bytes)]

    def _cell(self, vector: str, frame_bytes: int) -> Cell:
        s = self.settings
        shares = s.shares().get(vector)
        searches = len(s.strong) if vector == WORST else 1
        latency_s = len({*s.latency_loads, *s.load_curve}) * s.latency_s * s.latency_repeats
        longest_s = searches * s.search_method().longest_s(Limits(s.min_pps, s.max_pps)) + 80 * s.calibration_s
        longest_s += latency_s + 45 * s.back_to_back + s.soak_s
        trials = longest_s / min(s.length_of_trial_s, s.latency_s)
        # Of a search some ten trials; of mlrsearch, which repeats them, about four times what decides of one load.
        search_s = 4 * s.duration_sum_s if s.search == "mlrsearch" else 10 * s.length_of_trial_s
        return Cell(
            suite=self.name,
            probe="throughput",
            factors={
                "vector": vector,
                "jain": "" if shares is None else f"{jain_index(shares):.3f}",
                "frame_bytes": str(frame_bytes),
                "guests": str(s.guests),
                "switch": s.switch,
                "cpu_limit": _limit_level(s.cpu_limit),
                "search": s.search,
            },
            params={"vector": vector, "frame_bytes": frame_bytes},
            timeout_s=_OVERHEAD * longest_s + _TRIAL_OVERHEAD_S * trials + _SET_UP_S,
            testbed=f"forwarding-{s.guests}-{s.switch}-{_limit_level(s.cpu_limit)}-{s.memory_mib or 0}-{s.port}",
            expected_s=searches * search_s + latency_s + s.soak_s + 10 * s.calibration_s,
            as_is="device" if s.switch == "none" else "",
        )

    def to_do(self, platform: Platform) -> tuple[str, ...]:
        return to_do(platform) if self.settings.switch == "none" else ()

    async def set_up(self, testbed: str, stage: Stage) -> Testbed:
        lab: ForwardingLab
        if stage.platform.simulated:
            await stage.launch()
            lab = SimulatedLab(self.settings, stage)
        elif self.settings.switch == "none":
            lab = await DeviceLab.create(self.settings, stage)
        else:
            lab = await GuestLab.create(self.settings, stage)
        await lab.check()
        return lab

    async def measure(self, cell: Cell, testbed: Testbed, on_progress: Callable[[float], None]) -> Measurement:
        assert isinstance(testbed, ForwardingLab)
        settings, vector, frame_bytes = self.settings, cell.params["vector"], cell.params["frame_bytes"]
        calibration = await testbed.calibration(frame_bytes, settings.max_pps, settings.calibration_s)
        base = {"calibration": dataclasses.asdict(calibration), "frame_bytes": frame_bytes, "guests": settings.guests}
        if calibration.limit_pps is None or calibration.limit_pps <= settings.min_pps:
            detail = "the tester cannot send and receive even the plan's lowest load on a bare loop"
            return Measurement(base, {}, {}, (Flag("generator-limited", detail),))
        medium_pps = wire_frames_per_s(frame_bytes, settings.medium_mbps * 1e6) if settings.medium_mbps else None
        highest = min(calibration.limit_pps, settings.max_pps, medium_pps or calibration.limit_pps)
        limits = Limits(settings.min_pps, max(highest, settings.min_pps * 1.01))
        tally = Tally(testbed, frame_bytes, settings.accounting_tolerance, await testbed.drop_counters())
        shares, search, searched = await self._search(vector, tally, limits, on_progress)
        latencies, bursts, soaked = await self._at_throughput(search, shares, tally, limits, on_progress)
        unbound, together = testbed.unbound, add_accountings(tally.accounts)
        flags = [*_limits_met(search, calibration, medium_pps), *_late(latencies, soaked, settings)]
        few = _with_few_frames(settings, shares, search.ndr.rate_pps)
        flags += [*_disorders(tally, together), *_cautions(testbed, shares, few, latencies)]
        if unbound is not None:
            flags.append(Flag("cpu-limit-unbound", unbound, fatal=False))
        histograms = {name: one for at_load in latencies for name, one in at_load.histograms().items()}
        ndr, pdr = search.ndr, search.pdr
        most = math.floor(max(shares) * (pdr.rate_pps or 0.0) * settings.length_of_trial_s)
        if pdr.rate_pps is not None and shows_more_loss(1, most, PARTIAL_DROP):
            reason = f"it cannot differ from the NDR: of a guest's {most} frames in a trial one is more than allowed"
            pdr = dataclasses.replace(pdr, rate_pps=None, reason=reason)
        result = base | {
            "shares": list(shares),
            "jain": None if search.failure else jain_index(shares),  # of the worst vector, which nobody knows then
            "searched_vectors": list(searched),
            "port": tally.port,
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
            "latency_mode": "one_tagged" if settings.tagged_latency else "every_frame",
            "cpu_limit_unbound": unbound,
            "own_processors": testbed.own_processors,
            "few_frames": [*few],
            "latency": [at_load.record(shares) for at_load in latencies],
            "back_to_back": None if bursts is None else dataclasses.asdict(bursts),
            "soak": soak_record(soaked, search.points) if soaked else None,
            "loss_accounting": {
                "closed": together.closed,
                "lost": together.lost,
                "places": dict(together.places),
                "unattributed": together.unattributed,
                "excess": together.excess,
                "unclosed_trials": sum(not account.closed for account in tally.accounts),
            },
            "frames_sent": tally.sent,
            # as RFC 2544, sections 24 and 26.2; section 23 is not met: no learning frames, 2 s of drain and 5 s of rest
            "rfc2544_durations": search.method == "rfc2544"
            and settings.length_of_trial_s >= 60
            and settings.latency_s >= 120
            and settings.latency_repeats >= 20
            and 100 in (*settings.latency_loads, *settings.load_curve)
            and settings.tagged_latency,
        }
        return Measurement(result, histograms, {}, tuple(flags), guest_clocks=added_up(tally.clocks))

    async def _search(
        self, vector: str, tally: Tally, limits: Limits, on_progress: Callable[[float], None]
    ) -> tuple[Shares, SearchResult, tuple[str, ...]]:
        """The vector (of the worst, the one found), its search, and the vectors that were searched."""
        method = self.settings.search_method()
        if vector != WORST:
            shares = self.settings.shares()[vector]
            return shares, await method.run(tally.offering(shares), limits), (vector,)
        vectors = self.settings.two_level_shares()
        name, result, searched = await find_worst(
            {name: tally.offering(shares) for name, shares in vectors.items()},
            method,
            limits,
            challenge_s=self.settings.length_of_trial_s,
            on_vector=lambda done: on_progress(_SEARCH_PART * done / len(vectors)),
        )
        return vectors[name], result, searched

    async def _at_throughput(
        self, search: SearchResult, shares: Shares, tally: Tally, limits: Limits, on_progress: Callable[[float], None]
    ) -> tuple[list[LatencyAtLoad], BackToBack | None, tuple[TrialResult, ...]]:
        """Latency, bursts and a soak, which are defined at the throughput alone: none without one."""
        settings, throughput = self.settings, search.ndr.rate_pps
        if throughput is None:
            return [], None, ()
        measuring = (1 - _SEARCH_PART) / (2 if settings.soak_s else 1)
        latencies = await latency_at_loads(
            tally.offering(shares, tagged=settings.tagged_latency),
            settings,
            throughput,
            limits.max_pps,
            lambda done: on_progress(_SEARCH_PART + measuring * done),
        )
        bursts, soaked = None, tuple[TrialResult, ...]()
        if settings.back_to_back:

            async def burst(frames: int, rate_pps: float) -> TrialResult:
                return await tally.measure(shares, rate_pps, frames / rate_pps, burst=frames)

            bursts = await back_to_back(burst, limits.max_pps, throughput, repeats=settings.back_to_back)
        if settings.soak_s:
            rate_pps = min(throughput * settings.soak_load / 100, limits.max_pps)
            soaked = await soak(
                tally.offering(shares), rate_pps, settings.soak_s, lambda done: on_progress(1 - measuring * (1 - done))
            )
        return latencies, bursts, soaked


def _limit_level(limit: float | str | None) -> str:
    return "none" if limit is None else limit if isinstance(limit, str) else f"{limit:g}"


class Tally:
    """Offers loads to a laboratory, adds up what is sent, and accounts for lost frames after every trial."""

    def __init__(self, lab: ForwardingLab, frame_bytes: int, tolerance: float, counters: list[DropCounter]) -> None:
        self._lab, self._frame_bytes, self._tolerance, self._counters = lab, frame_bytes, tolerance, counters
        self.sent = self.duplicates = self.reordered = 0
        self.accounts: list[LossAccounting] = []
        self.clocks: list[tuple[Elapsed, ...]] = []
        self.port = ""

    async def measure(
        self, shares: Shares, rate_pps: float, duration_s: float, *, burst: int = 0, tagged: bool = False
    ) -> TrialResult:
        trial = await self._lab.measure(Load(shares, self._frame_bytes, rate_pps, duration_s, burst, tagged))
        self.port = trial.port
        self.sent += trial.sent
        self.duplicates += sum(flow.duplicates for flow in trial.flows)
        self.reordered += sum(flow.reordered for flow in trial.flows)
        self.clocks.append(trial.clocks)
        self.accounts.append(await self._account(trial))
        return trial

    def offering(self, shares: Shares, *, tagged: bool = False) -> Offer:
        return functools.partial(self.measure, shares, tagged=tagged)

    async def _account(self, trial: TrialResult) -> LossAccounting:
        before, self._counters = self._counters, await self._lab.drop_counters()
        # A place that is known by a difference goes back when frames that were under way have passed it after all.
        since = [
            dataclasses.replace(now, dropped=max(now.dropped - then.dropped, 0))
            for then, now in zip(before, self._counters, strict=True)
        ]
        tester = [DropCounter(f"tester: {place}", frames) for place, frames in trial.drops.items()]
        return close_accounting([flow.lost for flow in trial.flows], [*since, *tester], tolerance_share=self._tolerance)


def _limits_met(search: SearchResult, tester: TesterCalibration, medium_pps: float | None) -> Iterator[Flag]:
    """What bounded the search beside the device: the medium, the tester, the switches, or sending in time.

    Of the figures only the first that is near a limit is named: the others are no lower.
    """
    ndr, pdr, received = search.ndr.rate_pps, search.pdr.rate_pps, search.maximum_receive_pps
    if search.failure:  # an outcome: of searches that are made until one ends, only those that do would be figures
        yield Flag("search-failed", search.failure, fatal=False)
    elif ndr is None:
        yield Flag("no-throughput", search.ndr.reason, fatal=False)
    limits = {
        "medium-limited": (medium_pps, 0.99, "the medium's"),
        "generator-limited": (tester.limit_pps, _NEAR_THE_LIMIT, "the tester's own on a bare loop, or max_pps"),
        "switch-limited": (tester.switch_pps, _NEAR_THE_LIMIT, "what passes the switches without a guest"),
    }
    rates = {"": ndr, "pdr-limited": pdr, "received-limited": received}
    for (figure, rate), (name, (limit, near, what)) in itertools.product(rates.items(), limits.items()):
        if rate is not None and limit is not None and rate >= near * limit:
            detail = f"{rate:,.0f} frames/s of {limit:,.0f}, {what}: the device may be faster"
            yield Flag(figure or name, detail, fatal=False)
            break
    if stretched := search.stretched:
        detail = f"{stretched} of {len(search.points)} trials could not be sent in time, and counted as failed"
        yield Flag("stretched", detail, fatal=False)
    # Beyond the next load that failed a device may hold the sender up.
    deciding = [one for one in search.points if one.rate_pps <= (search.ndr.upper_pps or one.rate_pps)]
    if late := sum(one.may_be_testers for one in deciding):
        detail = f"in {late} of {len(deciding)} trials no more frames were lost than the tester sent late"
        if overrun := sum(one.overrun for one in deciding if one.may_be_testers):
            detail += f" or, of what came back, had no room for ({overrun} frames)"
        yield Flag("late-losses", f"{detail}: they may be its own losses", fatal=False)


def _late(
    latencies: Sequence[LatencyAtLoad], soaked: Sequence[TrialResult], settings: ForwardingSettings
) -> Iterator[Flag]:
    """Of the trials up to the throughput; beyond it, a device that holds the sender up makes it late.

    A soak, whose many frames would hide the others, is judged by itself, and without its stretched trials.
    """
    streams = [trial for at_load in latencies if at_load.load_percent <= 100 for trial in at_load.trials]
    offered = [trial for trial in soaked if settings.soak_load <= 100 and not trial.stretched]
    for part, trials in (("the latency streams", streams), ("the soak", offered)):
        share = sum(trial.late for trial in trials) / (sum(trial.sent for trial in trials) or 1)
        if share > settings.late_share:
            yield Flag("late", f"{share:.1%} of the frames left late in {part}; {settings.late_share:.1%} is allowed")


def _cautions(
    lab: ForwardingLab, shares: Shares, few: Mapping[int, int], latencies: Sequence[LatencyAtLoad]
) -> Iterator[Flag]:
    """What results that count do not show."""
    if not lab.own_processors:
        detail = "the guests share processors, whose shares bound how the throughput depends on the load's fairness"
        yield Flag("shared-processors", detail, fatal=False)
    if few:
        least = min(few.values())
        seen = f"a loss below {3 / least:.1%} of theirs is not seen" if least > 3 else "their losses are not seen"
        detail = f"not enough frames for {_guests([*few])}: {least} of the {frames_for(PARTIAL_DROP)} needed; {seen}"
        yield Flag("few-frames", detail, fatal=False)
    if silent := sorted({guest for one in latencies for guest in one.record(shares)["without_latency"]}):
        weight = sum(shares[guest] for guest in silent)
        detail = f"L_tot leaves out {_guests(silent)} with {weight:.2%} of the load: no frame of theirs came back"
        yield Flag("without-latency", detail, fatal=False)


def _with_few_frames(settings: ForwardingSettings, shares: Shares, throughput: float | None) -> dict[int, int]:
    """Guests that carry too few frames at the throughput for its loss to show, with how many, by a load's trials."""
    deciding_s = settings.duration_sum_s if settings.search == "mlrsearch" else settings.length_of_trial_s
    offered = (throughput or 0.0) * deciding_s
    frames = {guest: math.floor(share * offered) for guest, share in enumerate(shares) if share}
    needed = frames_for(PARTIAL_DROP)
    return {guest: number for guest, number in frames.items() if number < needed} if throughput is not None else {}


def _guests(numbers: Sequence[int]) -> str:
    """``guest 7``, ``guests 2 to 12``."""
    if len(numbers) == 1:
        return f"guest {numbers[0] + 1}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"guests {numbers[0] + 1} to {numbers[-1] + 1}"
    return f"guests {', '.join(str(number + 1) for number in numbers)}"


def _disorders(tally: Tally, account: LossAccounting) -> Iterator[Flag]:
    if tally.duplicates:
        yield Flag("duplicated", f"{tally.duplicates} frames came more than once: a flow reaches two guests")
    if tally.reordered:
        yield Flag("reordered", f"{tally.reordered} frames came after later ones", fatal=False)
    if not account.closed:
        yield Flag(
            "unaccounted-loss",
            f"of {account.lost} lost frames no counter explains {account.unattributed}, "
            f"and drop counters report {account.excess} that were not lost",
        )
