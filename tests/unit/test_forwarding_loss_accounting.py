"""The loss accounting: every lost frame has a place, or the result must not count."""

from __future__ import annotations

import pytest

from virtgauge.analysis.packets import DropCounter, add_accountings, close_accounting


def test_losses_that_counters_explain_close_the_ledger() -> None:
    counters = [
        DropCounter("guest 0 backlog", 70, flow=0),
        DropCounter("tester receive ring", 35),
        DropCounter("br0 port to guest 1", 0, flow=1),
    ]
    ledger = close_accounting([100, 5], counters)
    assert ledger.closed
    assert ledger.places == {"guest 0 backlog": 70, "tester receive ring": 35}


def test_no_loss_and_no_drop_is_closed() -> None:
    assert close_accounting([0, 0], []).closed


def test_a_frame_without_a_counter_leaves_it_open() -> None:
    ledger = close_accounting([100, 5], [DropCounter("guest 0 backlog", 104, flow=0)])
    assert not ledger.closed
    assert (ledger.unattributed, ledger.excess) == (5, 4)  # what guest 0 dropped cannot be guest 1's frames


def test_drops_that_nobody_misses_leave_it_open() -> None:
    assert close_accounting([10], [DropCounter("br1", 12)]).excess == 2


def test_counters_read_under_way_may_be_off_by_the_tolerance() -> None:
    assert close_accounting([10_000], [DropCounter("br0", 9_995)], tolerance_share=0.001).closed
    assert not close_accounting([10_000], [DropCounter("br0", 9_989)], tolerance_share=0.001).closed


def test_a_large_loss_that_is_explained_hides_no_small_one() -> None:
    large = close_accounting([100_000], [DropCounter("br0", 99_950)], tolerance_share=0.001)
    small = close_accounting([3], [])
    together = add_accountings([large, small])
    assert large.closed
    assert not together.closed
    assert (together.lost, together.unattributed, together.places) == (100_003, 3, {"br0": 99_950})
    assert add_accountings([large]).closed


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="backwards by 3"):
        close_accounting([1], [DropCounter("br0", -3)])
    with pytest.raises(ValueError, match="fewer than no frames"):
        close_accounting([-1], [])
