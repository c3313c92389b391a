"""What the paths were: capacity and cross traffic declared and counted, and what makes the link."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import TrialRecord
from virtgauge.report.bandwidth.keys import Path
from virtgauge.report.bandwidth.model import PathAccount
from virtgauge.report.bandwidth.results import Results, nested
from virtgauge.report.bandwidth.vocabulary import volume


def path_accounts(results: Results, arms: Sequence[str]) -> tuple[PathAccount, ...]:
    """Of every path and arm, over all estimators and timings on it.

    Args:
        results: of the run.
        arms: to tell of, by name.
    """
    groups: dict[tuple[Path, str], list[TrialRecord]] = {}
    for key in results.keys:
        for arm in arms:
            groups.setdefault((key.path, arm), []).extend(results.counted(key, arm).values())
    order = sorted({path for path, _ in groups}, key=lambda path: path.rank)
    return tuple(
        _account(arm, path, groups[path, arm], results.nominal) for path in order for arm in arms if groups[path, arm]
    )


def _account(arm: str, path: Path, trials: Sequence[TrialRecord], nominal: float) -> PathAccount:
    def over(*place: str, unit: str = "Mbit/s") -> Estimate:
        """All trials of a repetition are on the same path: their median is the repetition's."""
        blocks: dict[int, list[float]] = {}
        for trial in trials:
            if (value := nested(trial.result, *place)) is not None:
                blocks.setdefault(trial.block, []).append(value)
        return median_estimate([statistics.median(values) for values in blocks.values()], unit, nominal)

    links = dict.fromkeys(_link_words(trial.result.get("link") or {}) for trial in trials)
    return PathAccount(
        arm=arm,
        path=path,
        measured_mbps=over("capacity", "measured_mbps"),
        counted_mbps=over("cross", "counted_mbps"),
        truth_mbps=over("truth_mbps"),
        dropped=sum(int(nested(trial.result, "cross", "dropped") or 0) for trial in trials),
        link=" or ".join(link for link in links if link),
        late_p99_ns=over("link", "lateness_p99_ns", unit="ns"),
    )


def _link_words(link: Mapping[str, Any]) -> str:
    """``TBF, a bucket of 3.03 kB, a queue of 96.9 kB``."""
    kind = str(link.get("kind") or "")
    parts = [{"emulator": "link emulator"}.get(kind, kind if kind == "netem" else kind.upper())]
    parts += [f"a bucket of {volume(link['burst_bytes'])}"] if link.get("burst_bytes") else []
    parts += [f"a queue of {volume(link['limit_bytes'])}"] if link.get("limit_bytes") else []
    return ", ".join(part for part in parts if part)
