"""From results to cells: estimates over independent searches, and each arm's comparison with the reference."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import Comparison, compare, paired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord, TrialRecord
from virtgauge.report.forwarding.model import Cell, GuestFigures, LatencyLevel, LossPoint, Series, TesterFigures
from virtgauge.report.forwarding.results import CellKey, Quantiles, Results, account_of, pps_as_mbps
from virtgauge.report.trial_results import flag_counts, why_missing

_OWN_PLACE = re.compile(r"guest (\d+)\b|(?:port|from) (?:in|out)(\d+)$")
AT_THROUGHPUT = 100.0
"""Per cent: where the paper states its latencies."""


class CellBuilder:
    """Makes the cells of a report.

    Args:
        arms: of the manifest; those that were skipped get no series.
        results: of the run.
        nominal: the confidence wanted.
    """

    def __init__(self, arms: Sequence[ArmRecord], results: Results, nominal: float) -> None:
        self._arms = [arm for arm in arms if arm.usable]
        self._results, self._nominal = results, nominal
        self._reference = next((arm.name for arm in arms if arm.role == "reference"), "")
        self._aa = next((arm.name for arm in arms if arm.role == "aa"), None)
        self.aa_ratios: list[Estimate] = []
        """Of the throughput, one for each cell where both arms of the A/A pair were measured."""

    def cell(self, key: CellKey) -> Cell:
        """One cell with the series of all arms that were tried in it."""
        design, vector, frame_bytes = key
        aa = self._aa_ratio(key)
        if aa is not None and aa.point is not None:
            self.aa_ratios.append(aa)
        series = tuple(self._series(key, arm, aa) for arm in self._arms if self._results.tried(key, arm.name))
        return Cell(vector, self._results.jain(key), frame_bytes, design, series)

    def _aa_ratio(self, key: CellKey) -> Estimate | None:
        if self._aa is None:
            return None
        reference = self._results.throughput_mbps(key, self._reference)
        return paired_ratio(self._results.throughput_mbps(key, self._aa), reference, self._nominal)

    def _estimate(self, values: Mapping[int, float], unit: str) -> Estimate:
        return median_estimate(list(values.values()), unit, self._nominal)

    def _series(self, key: CellKey, arm: ArmRecord, aa: Estimate | None) -> Series:
        tried, counted = self._results.tried(key, arm.name), self._results.counted(key, arm.name)
        throughput = self._results.throughput_mbps(key, arm.name)
        comparison: Comparison | None = None
        if arm.role != "reference" and throughput:
            reference = self._results.throughput_mbps(key, self._reference)
            comparison = compare(throughput, reference, aa, "Mbit/s", self._nominal)
        return Series(
            arm=arm.name,
            blocks=tuple(sorted(counted)),
            throughput_mbps=self._estimate(throughput, "Mbit/s"),
            throughput_pps=self._scalar(key, arm, "throughput_pps", "frames/s"),
            partial_drop_pps=self._partial_drop(counted),
            maximum_receive_pps=self._scalar(key, arm, "maximum_receive_pps", "frames/s"),
            comparison=comparison,
            latency=tuple(self._level(key, arm, load) for load in self._results.load_percents(key, arm.name)),
            guests=self._guests(key, arm, counted),
            **self._bursts(counted),
            losses=tuple(_loss_points(counted.values(), key[2])),
            tester=self._tester(tried),
            account=account_of(tried),
            flags=flag_counts(tried),
            searched={
                "trials": self._scalar(key, arm, "trials", "trials"),
                "offered_s": self._scalar(key, arm, "measuring_s", "s"),
            },
            rfc2544_complete=bool(counted) and all(t.result.get("rfc2544_complete") is True for t in counted.values()),
            missing=None if counted else why_missing(tried, "throughput"),
        )

    def _scalar(self, key: CellKey, arm: ArmRecord, field: str, unit: str) -> Estimate:
        return self._estimate(self._results.scalar(key, arm.name, field), unit)

    def _partial_drop(self, counted: Mapping[int, TrialRecord]) -> Estimate:
        rates = {block: trial.result["pdr"]["rate_pps"] for block, trial in counted.items()}
        return self._estimate({block: rate for block, rate in rates.items() if rate is not None}, "frames/s")

    def _level(self, key: CellKey, arm: ArmRecord, percent: float) -> LatencyLevel:
        entries = self._results.at_load(key, arm.name, percent)
        quantiles = self._results.quantiles(key, arm.name, f"latency@{percent:g}%")
        p50, p99 = self._quantile_estimates(quantiles)
        return LatencyLevel(
            load_percent=percent,
            load_mbps=self._estimate(self._results.load_mbps(key, arm.name, percent), "Mbit/s"),
            total_ns=self._estimate(self._results.latency_ns(key, arm.name, percent), "ns"),
            p50_ns=p50,
            p99_ns=p99,
            loss_ratio=self._estimate({b: float(entry["loss_ratio"]) for b, entry in entries.items()}, "ratio"),
            worst_loss_ratio=self._estimate(
                {b: float(entry["worst_loss_ratio"]) for b, entry in entries.items()}, "ratio"
            ),
        )

    def _quantile_estimates(self, quantiles: Mapping[int, Quantiles]) -> tuple[Estimate, Estimate]:
        tails = {block: one.p99 for block, one in quantiles.items() if one.p99 is not None}
        p50 = self._estimate({block: one.p50 for block, one in quantiles.items()}, "ns")
        if quantiles and not tails:
            return p50, Estimate.missing("ns", "p99 needs 1,000 frames")
        return p50, self._estimate(tails, "ns")

    def _guests(self, key: CellKey, arm: ArmRecord, counted: Mapping[int, TrialRecord]) -> tuple[GuestFigures, ...]:
        if not counted:
            return ()
        shares = next(iter(counted.values())).result["shares"]
        dropped = _dropped_by_guest([trial.result["loss_ledger"]["places"] for trial in counted.values()])
        percents = self._results.load_percents(key, arm.name)
        found = []
        for guest, share in enumerate(shares):
            means = {}
            for percent in percents:
                entries = self._results.at_load(key, arm.name, percent).items()
                by_block = {block: entry["guest_mean_ns"][guest] for block, entry in entries}
                values = {block: float(mean) for block, mean in by_block.items() if mean is not None}
                means[f"{percent:g}"] = self._estimate(values, "ns")
            measure = f"latency@{AT_THROUGHPUT:g}%/guest{guest}"
            p50, p99 = self._quantile_estimates(self._results.quantiles(key, arm.name, measure))
            found.append(GuestFigures(guest, float(share), means, p50, p99, dropped.get(guest, 0)))
        return tuple(found)

    def _bursts(self, counted: Mapping[int, TrialRecord]) -> dict[str, Estimate]:
        """The longest burst of each repetition's searches is their mean, as RFC 9004 has it."""
        told = {block: bursts for block, trial in counted.items() if (bursts := trial.result.get("back_to_back"))}
        if not told:
            reason = "no bursts were asked for"
            return {"burst_frames": Estimate.missing("frames", reason), "buffer_ns": Estimate.missing("ns", reason)}
        means = {b: sum(bursts["bursts"]) / len(bursts["bursts"]) for b, bursts in told.items() if bursts["bursts"]}
        buffers = {
            block: float(bursts["corrected_buffer_s"]) * 1e9
            for block, bursts in told.items()
            if bursts["corrected_buffer_s"] is not None
        }
        reason = next((bursts["reason"] for bursts in told.values() if bursts["reason"]), "")
        burst = self._estimate(means, "frames") if means else Estimate.missing("frames", reason)
        return {
            "burst_frames": burst,
            "buffer_ns": self._estimate(buffers, "ns") if buffers else Estimate.missing("ns", reason),
        }

    def _tester(self, tried: Sequence[TrialRecord]) -> TesterFigures:
        told = {trial.block: trial.result["calibration"] for trial in tried if "calibration" in trial.result}

        def figure(field: str, unit: str) -> Estimate:
            values = {block: one[field] for block, one in told.items() if one[field] is not None}
            return self._estimate({block: float(value) for block, value in values.items()}, unit)

        return TesterFigures(
            ports=tuple(sorted({str(one["port"]) for one in told.values() if one["port"]})),
            limit_pps=figure("limit_pps", "frames/s"),
            latency_mean_ns=figure("latency_mean_ns", "ns"),
            latency_max_ns=figure("latency_max_ns", "ns"),
            late_share=figure("late_share", "share"),
        )


def _loss_points(trials: Iterable[TrialRecord], frame_bytes: int) -> Iterator[LossPoint]:
    for trial in trials:
        for point in trial.result.get("loss_curve", ()):
            load = pps_as_mbps(point["rate_pps"], frame_bytes)
            yield LossPoint(load, point["loss_ratio"], point["worst_loss_ratio"], point["stretched"])


def _dropped_by_guest(accounts: Sequence[Mapping[str, int]]) -> dict[int, int]:
    """Frames that were dropped at places where a single guest's own flow passes."""
    found: dict[int, int] = {}
    for places in accounts:
        for place, frames in places.items():
            if own := _OWN_PLACE.search(place):
                guest = int(own[1] or own[2])
                found[guest] = found.get(guest, 0) + frames
    return found
