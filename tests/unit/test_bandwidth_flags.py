"""What makes an estimate invalid, and what is only said with it."""

from __future__ import annotations

from typing import Any

import pytest

from virtgauge.suites.bandwidth.outcome import Answer, Found, Instant, Refused, Trial, allowance_bps
from virtgauge.suites.bandwidth.testbed import Conditions, Counted, LinkRecord


def flags(
    *,
    cross_asked_bps: float = 150e6,
    cross_counted_bps: float = 150e6,
    cross_frames: int = 60_000,
    poisson: bool = False,
    before_bps: float | None = 300e6,
    after_bps: float | None = 300e6,
    overrun: int = 0,
    refused: str | None = None,
    stalled: int = 0,
    streams: int = 200,
    probes_s: float = 1.0,
    at_ceiling: float | None = None,
    **answer: Any,
) -> dict[str, tuple[bool, str]]:
    """Fatal or not and the words, by name, of an estimate on a path of 300 Mbit/s."""
    instant = Instant(150e6, 140e6, 160e6, 10**9, 10**6, streams, 0, False)
    found = Found(
        *(at_ceiling or 150e6, 140e6, 160e6, 0.95, at_ceiling is not None, (instant,), None),
        *(round(probes_s * 150e6 / 8), 10**9, 0, stalled, 0),
    )
    known = {"found": found} if refused is None else {"refused": Refused(0.0, None, refused)}
    trial = Trial(
        params={"timing": "hptime"},
        conditions=Conditions(
            300e6, "tbf", 100.0, 10.0, cross_asked_bps, "poisson" if poisson else "constant", delay_ms=0.0, loss=0.0
        ),
        packet_bytes=1500,
        receiver="host",
        answer=Answer(0, **known | {"stamp": "kernel"} | answer),
        counted=Counted(round(cross_counted_bps / 8), cross_frames, 0, 10**9),
        before_bps=before_bps,
        after_bps=after_bps,
        link=LinkRecord("tbf", 0, 0, overrun=overrun),
        foreign_packets=None,
    )
    return {flag.name: (flag.fatal, flag.detail) for flag in trial.flags()}


def test_a_clean_estimate_has_none():
    assert flags() == {}


@pytest.mark.parametrize(
    ("counted", "probes_s", "missing"),
    [(147e6, 1.0, None), (147e6, 0.03, "67 %"), (149.8e6, 0.03, None), (146e6, 0.01, "100 %"), (151e6, 0.03, None)],
)
def test_cross_traffic_that_is_missing_just_while_probes_pass_is_fatal(counted, probes_s, missing):
    """Trains are a thirtieth of the time: of a fiftieth that is missing two thirds may have been due beside them."""
    found = flags(cross_counted_bps=counted, probes_s=probes_s)
    assert found.keys() == ({"cross-traffic-held-up"} if missing else set())
    if missing:
        fatal, words = found["cross-traffic-held-up"]
        assert fatal and missing.replace(" ", "") in words
    assert flags(cross_counted_bps=147e6, probes_s=0.03, poisson=True) == {}, "so many frames fewer may be chance"


@pytest.mark.parametrize(
    ("asked", "counted", "short"),
    [
        (150e6, 145.6e6, False),
        (150e6, 145.4e6, True),
        (150e6, 154.6e6, True),
        (10e6, 9.1e6, False),  # 9 %, which is less than 1 Mbit/s
        (10e6, 8.9e6, True),
        (0, 0.9e6, False),
        (0, 1.1e6, True),  # somebody sends whom nobody asked
    ],
)
def test_cross_traffic_that_is_not_what_was_asked_for_is_fatal(asked, counted, short):
    found = flags(cross_asked_bps=asked, cross_counted_bps=counted)
    assert found.keys() == ({"cross-traffic-short"} if short else set())
    if short:
        fatal, words = found["cross-traffic-short"]
        assert fatal
        assert f"{asked / 1e6:g} Mbit/s" in words
        assert f"{counted / 1e6:.1f}" in words


def test_exponential_gaps_may_be_off_by_chance_and_less_so_the_more_there_are():
    assert allowance_bps(100e6, None) == pytest.approx(3e6)
    assert allowance_bps(100e6, 10_000) == pytest.approx(7e6)
    assert allowance_bps(100e6, 1_000_000) == pytest.approx(3.4e6)
    off = {"cross_asked_bps": 100e6, "cross_counted_bps": 94e6, "cross_frames": 10_000}
    assert flags(**off, poisson=True) == {}
    assert "cross-traffic-short" in flags(**off, poisson=False)


def test_a_path_that_changed_meanwhile_is_fatal_and_one_that_was_not_seen_is_not():
    assert flags(after_bps=295e6) == {}
    for after in (293e6, 307e6):
        fatal, words = flags(after_bps=after)["path-changed"]
        assert fatal
        assert "300.0 Mbit/s before" in words and f"{after / 1e6:.1f} after" in words
    assert flags(before_bps=None) == flags(after_bps=None) == flags(before_bps=None, after_bps=None) == {}


def test_a_path_that_lets_pass_less_than_it_was_shaped_to_is_fatal():
    assert flags(before_bps=295e6, after_bps=295e6) == {}
    fatal, words = flags(before_bps=290e6, after_bps=291e6)["path-short"]
    assert fatal
    assert "290.0 of its 300 Mbit/s" in words
    assert flags(before_bps=None, after_bps=100e6) == {}


def test_an_emulator_that_loses_frames_itself_is_fatal_unless_there_is_no_estimate():
    fatal, words = flags(overrun=17)["link-overrun"]
    assert fatal
    assert "17 frames" in words
    assert flags(overrun=17, refused="cannot pace")["link-overrun"][0] is False


def test_no_estimate_is_a_result_as_a_refusal_is():
    assert flags(silence="the path answers differently each time") == {
        "no-estimate": (False, "the path answers differently each time")
    }
    assert flags(refused="this host cannot pace 900 Mbit/s") == {
        "cannot-pace": (False, "this host cannot pace 900 Mbit/s")
    }


def test_what_a_reader_should_know_is_said_and_not_fatal():
    assert flags(stamp="hardware") == {}
    (fatal, _), *rest = flags(stamp="program").values()
    assert (fatal, rest) == (False, [])
    assert flags(stalled=20) == {}
    assert flags(stalled=21)["sender-stalls"][0] is False
    assert "300 Mbit/s" in flags(at_ceiling=300e6)["ceiling"][1]
    assert flags(hptime_fallback_reason="the counter is trapped")["hptime-refused"] == (
        False,
        "timed by the system's clock: the counter is trapped",
    )
    assert flags(streams=0, stalled=0, stamp=None) == {}
