"""A simulated path whose available bandwidth is known, and its ends, whose estimators are off by what they were told.

The path is one hop of a capacity beside counted cross traffic, as the real one; only estimates let time pass on it, and
none of it real.  The ends answer the probe ``bandwidth``, the program and the loads as docs/protocol.md has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from virtgauge.agent.channel import AgentError
from virtgauge.plan import Section
from virtgauge.platforms.simulated.answers import distribution_message, ended, histogram
from virtgauge.platforms.simulated.truth import NotNegative, Positive, Share, Sigma, lognormal

ENDS = ("tested", "receiver", "others")  # How the names of guests end that share a path

_HEADER_BYTES = 14
LOADS = ("bandwidth_listener", "cross_traffic")
_DRAWN = 2000
_TRAIN_PACKETS = 50
_FIRST_NUMBER = 1000  # Of this module's loads, so that they are told from others'


class BandwidthTruth(Section):
    """The network path of a guest, and the estimators.

    Settings by timing name it as a plan does (``system``, ``hptime``, ``gettimeofday+usleep``), with ``*`` for all
    others. A program under the shim has the timing ``hptime``, without it ``system``.
    """

    error: dict[str, Annotated[float, Field(gt=-1)]] = Field(default_factory=dict)
    """Signed error of estimates as a share of the truth, by timing; 0 by default."""
    spread: dict[str, Sigma] = Field(default_factory=dict)
    """Standard deviation of the logarithm of single searches, by timing; 0.01 by default."""
    max_paced_mbps: dict[str, Positive] = Field(default_factory=dict)
    """Highest rate of IP packets that the sender paces, by timing; unlimited by default."""
    interval_share: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """How far intervals reach to either side of an estimate, as a share of it."""
    testbed_sigma: Sigma = 0.0
    """Every testbed draws a factor on its estimates, lognormal with median 1 and this sigma."""

    as_is_mbps: Positive = 300.0
    """Capacity of a path that is not shaped."""
    capacity_share: Positive = 1.0
    """Capacity of the path ÷ what it was shaped to."""
    capacity_drift: Positive = 1.0
    """Factor on the capacity after each estimate."""
    flood_fills: bool = True
    """A flood fills the path and so shows its capacity."""
    cross_share: NotNegative = 1.0
    """Rate of the cross traffic ÷ what was asked for."""
    cross_sigma: Share = 0.0
    """The cross traffic varies from trial to trial by a lognormal factor with this sigma."""

    search_ms: Positive = 500.0
    """Duration of a search."""
    trains: Annotated[int, Field(ge=1)] = 20
    """Packet trains of a search."""
    stalled_share: Share = 0.0
    """Share of the trains in which the sender stalled."""
    foreign_packets: Annotated[int, Field(ge=0)] = 0
    """Packets of foreign_packets that arrive in a trial."""
    stamp: Literal["hardware", "kernel", "program"] = "kernel"
    """Who stamps arriving packets."""
    hptime_fallback_reason: str | None = None
    """Why hptime falls back to the system's clock; none by default."""
    late_us: dict[str, Positive] = Field(default_factory=dict)
    """Median lateness of bursts, by timing; 1 by default."""
    emulator_late_ns: Annotated[int, Field(ge=0)] = 5000
    """99th percentile of the link emulator's lateness."""


class SimulatedLink:
    """The path of one testbed, which its guests hold: it ends with the last of them."""

    def __init__(self, truth: BandwidthTruth, seed: int) -> None:
        self.truth = truth
        self.random = np.random.default_rng(seed)
        self.factor = lognormal(truth.testbed_sigma, self.random)  # of this testbed, on all estimates
        self._shaped_bps = truth.as_is_mbps * 1e6
        self._drift = 1.0
        self._cross_bps = 0.0
        self._frame_bytes = 1500 + _HEADER_BYTES
        self._cross_frames = self._cross_bytes = self._passed_ns = 0.0

    def shape(self, bps: float) -> None:
        """Give it a capacity, as its shaper counts."""
        self._shaped_bps, self._drift = bps, 1.0

    def cross(self, ip_bps: float, packet_bytes: int) -> None:
        """Have the others send so much from now on."""
        self._frame_bytes = packet_bytes + _HEADER_BYTES
        varied = lognormal(self.truth.cross_sigma, self.random)
        self._cross_bps = ip_bps * self._frame_bytes / packet_bytes * self.truth.cross_share * varied

    @property
    def capacity_bps(self) -> float:
        """What it lets pass now, as its shaper counts."""
        return self._shaped_bps * self.truth.capacity_share * self._drift

    def flooded_bps(self) -> float | None:
        """What is seen of that by a flood."""
        return self.capacity_bps if self.truth.flood_fills else None

    def available_bps(self, packet_bytes: int) -> float:
        """What is left for IP packets of a length."""
        left = self.capacity_bps - self._cross_bps
        return max(left, 0.0) * packet_bytes / (packet_bytes + _HEADER_BYTES)

    def estimated(self, ns: float) -> None:
        """Let the time of an estimate pass."""
        crossed = self._cross_bps * ns / 8e9
        self._cross_bytes += crossed
        self._cross_frames += crossed / self._frame_bytes
        self._passed_ns += ns
        self._drift *= self.truth.capacity_drift

    def counters(self) -> tuple[int, int, int]:
        """Bytes and frames of the others, and simulated time (ns), since the link was made."""
        return round(self._cross_bytes), round(self._cross_frames), round(self._passed_ns)


class BandwidthEnd:
    """One guest's part."""

    def __init__(self, link: SimulatedLink) -> None:
        self._link = link
        self._loads: dict[int, str] = {}

    def probe(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """What the probe ``bandwidth`` answers, without the clocks."""
        timing = _timing(params["clock"], params["sleep"])
        lateness, gaps = self._times(timing)
        return self._estimate(params, timing) | {
            **{name: params[name] for name in ("estimator", "clock", "sleep")},
            "hptime_fallback_reason": self._link.truth.hptime_fallback_reason,
            "gaps": distribution_message(gaps, "permille"),
            "lateness": distribution_message(lateness, "ns"),
            "usage": {"cpu_ns": 0, "steal_ns": None, "elapsed_ns": 0},
            "load": None,
        }

    def run(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """What ``run`` answers where the estimator's program is asked for; None where it is another."""
        argv = message["argv"]
        if argv[1:2] != ["estimate"]:
            return None
        options = dict(zip(argv[3::2], argv[4::2], strict=True))
        highest = options.get("--highest")
        params = {
            "estimator": options["--estimator"],
            "settings": json.loads(options["--settings"]),
            "instants": int(options["--instants"]),
            "packet_bytes": int(options["--packet-bytes"]),
            "highest_bps": None if highest is None else float(highest),
        }
        shim = "LD_PRELOAD" in message["env"]
        timing = "hptime" if shim else _timing(options["--clock"], options["--sleep"])
        said = self._estimate(params, timing)
        lateness, gaps = self._times(timing)
        said |= {"gaps": histogram(gaps, "permille"), "lateness": histogram(lateness, "ns")}
        refusal = said.pop("refusal")
        said |= {"event": "result"} if refusal is None else {"event": "error", "kind": "cannot_pace"} | refusal
        return ended(said, exit_code=0 if refusal is None else 1, stderr=self._shim_report() if shim else b"")

    def start(self, name: str, params: Mapping[str, Any]) -> int:
        """Start a load; its number."""
        if name == "cross_traffic":
            self._link.cross(float(params["rate_bps"]), int(params["packet_bytes"]))
        number = _FIRST_NUMBER + len(self._loads)
        self._loads[number] = name
        return number

    def stop(self, number: int) -> dict[str, Any] | None:
        """Stop it; what it came to, None where it is none of these.  Raises AgentError: it was stopped before."""
        if number < _FIRST_NUMBER:
            return None
        if number not in self._loads:
            raise AgentError("not-found", "there is no such load")
        if self._loads.pop(number) == "cross_traffic":
            self._link.cross(0.0, 1500)
            return {"packets": 0, "bytes": 0, "error": None}  # who counts is the path
        return {"sessions": 1, "streams": 1, "foreign_packets": self._link.truth.foreign_packets, "error": None}

    def _estimate(self, params: Mapping[str, Any], timing: str) -> dict[str, Any]:
        """Outcome or refusal, and what else is the same of probe and program."""
        link, truth = self._link, self._link.truth
        instants, packet_bytes = params["instants"], params["packet_bytes"]
        ceiling_bps = float(params["highest_bps"] or 100e9)
        if params["estimator"] == "yaz-original":
            ceiling_bps = float(packet_bytes * 8e6 / params["settings"].get("first_gap_us", 40))
        available_bps = link.available_bps(packet_bytes)
        max_paced_bps = _of(truth.max_paced_mbps, timing, float("inf")) * 1e6
        search_ns, search_bytes = truth.search_ms * 1e6, truth.trains * _TRAIN_PACKETS * packet_bytes
        link.estimated(instants * search_ns)
        known: dict[str, Any] = {
            **{"method": "send", "stamp": truth.stamp, "outcome": None, "refusal": None},
            "tally": {"bytes": instants * search_bytes},
            "limits": {"max_paced_bps": None if max_paced_bps == float("inf") else max_paced_bps},
        }
        if max_paced_bps < min(available_bps, ceiling_bps):
            message = f"this host cannot pace more than {max_paced_bps / 1e6:.1f} Mbit/s"
            refusal = {"max_paced_bps": max_paced_bps, "carried_bps": max_paced_bps, "message": message}
            return known | {"refusal": refusal}
        middle = available_bps * (1 + _of(truth.error, timing, 0.0)) * link.factor
        found = middle * np.exp(_of(truth.spread, timing, 0.01) * link.random.standard_normal(instants))
        found = np.minimum(found, ceiling_bps)
        stalled = round(truth.stalled_share * truth.trains)
        ceilings = found >= ceiling_bps
        cost = {"duration_ns": round(search_ns), "bytes": search_bytes, "streams": truth.trains, "discarded": stalled}
        outcome = {
            "estimate": {
                **self._interval(float(np.median(found))),
                "confidence": 0.95,
                "lower_bound": bool(2 * ceilings.sum() >= instants),
            },
            "instants": [
                {**self._interval(float(bps)), "at_ceiling": bool(ceiling), **cost}
                for bps, ceiling in zip(found, ceilings, strict=True)
            ],
            "capacity_hint_bps": link.capacity_bps if params["estimator"] == "kite2" else None,
            "bytes": instants * search_bytes,
            "packets": instants * truth.trains * _TRAIN_PACKETS,
            "duration_ns": round(instants * search_ns),
            "discarded": instants * stalled,
            "stalled": instants * stalled,
            "foreign_packets": truth.foreign_packets,
        }
        return known | {"outcome": outcome}

    def _interval(self, bps: float) -> dict[str, float]:
        width = self._link.truth.interval_share
        return {"available_bps": bps, "low_bps": bps * (1 - width), "high_bps": bps * (1 + width)}

    def _times(self, timing: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """How late bursts left, in ns, and their gaps in thousandths of what was planned."""
        late_ns = _of(self._link.truth.late_us, timing, 1.0) * 1e3
        lateness, gaps = np.exp(0.5 * self._link.random.standard_normal((2, _DRAWN))) * [[late_ns], [1000.0]]
        return np.maximum(np.rint(lateness), 1).astype(np.int64), np.rint(gaps).astype(np.int64)

    def _shim_report(self) -> bytes:
        """What the library writes when the program ends."""
        refusal = self._link.truth.hptime_fallback_reason
        report = {
            "process": 1,
            "reason": refusal,
            "served": {} if refusal else {"clock_gettime": 1000, "nanosleep": 100},
            "passed": {"clock_gettime": 1000} if refusal else {},
            "sleeps": 100,
            "interrupted": 0,
            "spin_ns": 0,
        }
        return f"{json.dumps(report)}\n".encode()


def _of(by_timing: Mapping[str, float], timing: str, otherwise: float) -> float:
    return by_timing.get(timing, by_timing.get("*", otherwise))


def _timing(clock: str, sleep: str) -> str:
    return clock if clock == sleep else f"{clock}+{sleep}"
