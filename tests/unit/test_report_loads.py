"""What loads achieved: their own figures, per repetition, and nothing that they did not tell."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console
from synthetic import arm_record, manifest, timing_of, trial

from virtgauge import report
from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.report.timing.loads import achieved_loads

HOST = arm_record("host", "host", "Host", "reference")
GUEST = arm_record("guest", "oci", "Guest")
ACHIEVED = {
    "elapsed_ns": 2_000_000_000,
    "cpu_busy_share": 0.5,
    "interrupts_per_s": 2500.0,
    "context_switches_per_s": 12_345.6,
}


def beside(load: str, told: dict[str, Any] | None, block: int = 0, arm: Any = HOST, **fields: Any) -> TrialRecord:
    return trial(arm, "timer_cost", {"function": "rdtsc", "load": load}, block, result={"load": told}, **fields)


def test_bytes_of_both_directions_count() -> None:
    told = {"service": "nfs-ganesha", "fallback": None, "read_mb_per_s": 150.0, "written_mb_per_s": 50.0}
    (found,) = achieved_loads([beside("io", told | {"achieved": ACHIEVED})], ["host"], 0.95)
    assert found.service == "nfs-ganesha"
    points = {name: estimate.point for name, estimate in found.measures.items()}
    expected = {"cpu_busy": 0.5, "bytes": 200.0, "interrupts": 2500.0, "switches": 12_345.6, "operations": None}
    assert points == expected


@pytest.mark.parametrize("told", [None, {}, {"achieved": None}, {"achieved": {"cpu_busy_share": None}}])
def test_what_a_load_does_not_tell_is_missing_and_not_zero(told: dict[str, Any] | None) -> None:
    (found,) = achieved_loads([beside("cpu", told)], ["host"], 0.95)
    assert found.service is None
    assert {estimate.point for estimate in found.measures.values()} == {None}
    assert {estimate.method for estimate in found.measures.values()} == {"not told"}


def test_repetitions_count_once_however_many_trials_they_have() -> None:
    def busy(share: float) -> dict[str, Any]:
        return {"achieved": ACHIEVED | {"cpu_busy_share": share}}

    trials = [beside("cpu", busy(share), block) for block, share in ((0, 0.1), (0, 0.1), (0, 0.1), (1, 0.5), (2, 0.9))]
    (found,) = achieved_loads(trials, ["host"], 0.95)
    assert found.trials == 5
    assert found.measures["cpu_busy"].point == pytest.approx(0.5)
    assert found.measures["cpu_busy"].n == 3


def test_a_service_that_stands_in_for_another_says_why() -> None:
    told = {"service": "agent file service", "fallback": "ganesha.nfsd ended: no FSAL", "achieved": ACHIEVED}
    (found,) = achieved_loads([beside("io", told)], ["host"], 0.95)
    assert (found.service, found.fallback) == ("agent file service", "ganesha.nfsd ended: no FSAL")


def test_idle_and_invalid_trials_have_no_row_and_arms_keep_their_order() -> None:
    trials = [
        beside("idle", None),
        beside("cpu", {"achieved": ACHIEVED}, arm=GUEST),
        beside("cpu", {"achieved": ACHIEVED}),
        beside("io", {"achieved": ACHIEVED}, status=TrialStatus.INVALID),
    ]
    found = achieved_loads(trials, ["host", "guest"], 0.95)
    assert [(one.load, one.arm) for one in found] == [("cpu", "host"), ("cpu", "guest")]


def test_the_page_says_not_told(tmp_path: Any) -> None:
    ledger = Ledger.create(tmp_path / "run", manifest([HOST]))
    ledger.add_trial(beside("cpu", {"elapsed_ns": 10**9, "operations": 4_560_000, "achieved": ACHIEVED}))
    built = report.build(ledger)
    text = report.render_html(built)
    assert timing_of(built).loads[0].load == "cpu"
    assert "What the loads achieved" in text
    assert "4,560,000" in text and "50.0 %" in text and "12,300" in text
    assert "not told" in text  # MB/s
    report.render_text(built, Console(quiet=True))
