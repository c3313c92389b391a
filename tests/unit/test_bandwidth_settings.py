"""The bandwidth suite's section of a plan: its cells and testbeds, and errors that name field, value and remedy."""

from __future__ import annotations

import pytest

from virtgauge.errors import UsageError
from virtgauge.execution.prepare import check_plan
from virtgauge.plan.load import load_plan, parse_plan
from virtgauge.suites.bandwidth import program
from virtgauge.suites.bandwidth.settings import CLOCKS, SLEEPS, Timing
from virtgauge.suites.bandwidth.suite import BandwidthSuite
from virtgauge.suites.base import Cell

FACTORS = ["estimator", "timing", "through", "capacity_mbps", "cross_mbps", "traffic", "delay_ms", "loss", "pacing"]


def refusal(section: str) -> str:
    text = f'[[platform]]\nname = "host"\nkind = "host"\n[[suite.bandwidth]]\n{section}\n'
    with pytest.raises(UsageError) as caught:
        check_plan(parse_plan(text, "my.toml"), "my.toml")
    return str(caught.value)


def cells(**design) -> list[Cell]:
    return BandwidthSuite.create(design).cells()


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ('estimators = ["pathload"]', ["suite.bandwidth[0].estimators[0] = 'pathload'", "'yaz-original'"]),
        ('estimators = ["kite2", "kite2"]', ["'kite2' is named twice", "name it once"]),
        ('timings = ["tsc"]', ["suite.bandwidth[0].timings[0] = 'tsc'", "use system, hptime, or CLOCK+SLEEP"]),
        ('timings = ["hptime+spin"]', ["timings[0] = 'hptime+spin'", "the sleeps system, usleep, hptime"]),
        ('timings = ["system+system"]', ["timings[0] = 'system+system'", "write system"]),
        ('through = ["preload"]', ["through[0] = 'preload'", "'shim'"]),
        (
            'timings = ["gettimeofday+usleep"]\nthrough = ["shim"]',
            ["timings = ['gettimeofday+usleep']", "swaps clock and sleep together", "add 'system' or 'hptime'"],
        ),
        ("capacities_mbps = [0]", ["capacities_mbps[0] = 0", "greater than or equal to 1"]),
        ("capacities_mbps = [40000]", ["capacities_mbps[0] = 40000", "less than or equal to 34000"]),
        ('capacities_mbps = ["asis"]', ["capacities_mbps[0] = 'asis'", "number"]),
        ('capacities_mbps = ["as-is", 300]', ["capacities_mbps: 'as-is' stands alone", "[[suite.bandwidth]]"]),
        (
            'capacities_mbps = ["as-is"]\ncross_mbps = [0]',
            ["cross_mbps is given", "neither shaped nor shared"],
        ),
        ('capacities_mbps = ["as-is"]\nthrough = ["shim"]', ["through: a path 'as-is'", "leave it out"]),
        ("capacities_mbps = []", ["suite.bandwidth[0].capacities_mbps = []"]),
        ("cross_mbps = [-1]", ["cross_mbps[0] = -1"]),
        ("cross_mbps = [0, 300]", ["cross_mbps = 300", "nothing is left of capacities_mbps = 300"]),
        ("capacities_mbps = [100, 1000]\ncross_mbps = [500]", ["cross_mbps = 500", "of its own"]),
        ('cross_mbps = [0]\ntraffic = ["poisson"]', ["traffic is given", "nothing but 0", "add a rate"]),
        ('traffic = ["pareto"]', ["traffic[0] = 'pareto'", "'poisson'"]),
        ("delays_ms = [-1]", ["delays_ms[0] = -1"]),
        ("losses = [0.5]", ["losses[0] = 0.5", "less than 0.5"]),
        ('link = "netem"', ["link = 'netem'", "neither delay nor loss", "add delays_ms"]),
        ('pacings = ["af_xdp"]', ["pacings[0] = 'af_xdp'", "'sendmmsg'"]),
        ("packet_bytes = 1501", ["packet_bytes = 1501", "less than or equal to 1500"]),
        ("packet_bytes = 63", ["packet_bytes = 63", "greater than or equal to 64"]),
        ('estimators = ["yaz-original"]\npacket_bytes = 1000', ["packet_bytes = 1000", "begins with 1500 B"]),
        ("cross_packet_bytes = 9000", ["cross_packet_bytes = 9000"]),
        ("first_gap_us = 10", ["first_gap_us is given", "yaz-original"]),
        ('estimators = ["yaz-original"]\nlowest_mbps = 10', ["lowest_mbps is given", "kite2"]),
        ('estimators = ["yaz-original"]\nhighest_mbps = 10', ["highest_mbps is given", "kite2"]),
        ("lowest_mbps = 100\nhighest_mbps = 50", ["lowest_mbps = 100", "it must be below highest_mbps = 50"]),
        ("lowest_mbps = 200_000", ["lowest_mbps = 200000", "it must be below highest_mbps = 100000"]),
        ("highest_mbps = 0.5", ["lowest_mbps = 1", "it must be below highest_mbps = 0.5"]),
        ("estimates = 0", ["estimates = 0"]),
        ("fifo = 100", ["fifo = 100", "less than or equal to 99"]),
        ('receiver = "cloud"', ["receiver = 'cloud'", "'guest'"]),
        ('shaper = "cake"', ["shaper = 'cake'", "'htb'"]),
        ("burst_us = 0", ["burst_us = 0"]),
        ("queue_ms = 0", ["queue_ms = 0"]),
        ("memory_mib = 1", ["memory_mib = 1"]),
        ("estimate = 5", ["suite.bandwidth[0].estimate: unknown field", "did you mean 'estimates'"]),
    ],
)
def test_a_bad_section_is_refused_with_field_value_and_remedy(section, said):
    message = refusal(section)
    assert all(part in message for part in said), message
    assert "→" in message


def test_a_cell_is_named_by_all_its_factors_in_order():
    (cell,) = cells(
        estimators=["yaz-original"],
        timings=["gettimeofday+usleep"],
        capacities_mbps=[12.5],
        cross_mbps=[2],
        traffic=["poisson"],
        delays_ms=[20],
        losses=[0.001],
        pacings=["gso"],
    )
    assert list(cell.factors) == FACTORS
    assert cell.key == (
        "bandwidth/estimate/estimator=yaz-original,timing=gettimeofday+usleep,through=inside,capacity_mbps=12.5,"
        "cross_mbps=2,traffic=poisson,delay_ms=20,loss=0.001,pacing=gso"
    )
    assert (cell.params["capacity_mbps"], cell.params["loss"]) == (12.5, 0.001)


def test_a_capacity_is_named_in_full():
    assert cells(capacities_mbps=[10_000], cross_mbps=[0])[0].factors["capacity_mbps"] == "10000"


def test_levels_that_mean_nothing_make_no_cells_of_their_own():
    """No cross traffic has one kind; a library swaps clock and sleep together."""
    found = cells(
        timings=["system", "hptime", "hptime+system"],
        through=["inside", "shim"],
        cross_mbps=[0, 100],
        traffic=["constant", "poisson"],
    )
    assert len(found) == len({cell.key for cell in found}) == (3 + 2) * (1 + 2)
    for cell in found:
        assert (cell.factors["cross_mbps"] == "0") == (cell.factors["traffic"] == "none")
        assert cell.factors["through"] == "inside" or "+" not in cell.factors["timing"]


def test_cells_share_a_testbed_unless_they_need_another():
    plain = cells(estimators=["yaz-original", "kite2"], capacities_mbps=[300, 100], cross_mbps=[0, 50], estimates=3)
    assert len({cell.testbed for cell in plain}) == 1
    both = cells(delays_ms=[0, 20])
    assert {cell.testbed for cell in both if cell.factors["delay_ms"] == "0"} == {plain[0].testbed}
    others = [cells(**design)[0].testbed for design in ({"receiver": "guest"}, {"memory_mib": 256}, {"losses": [0.01]})]
    others += [cells(through=["inside", "shim"])[0].testbed, cells(link="emulator", losses=[0.01])[0].testbed]
    assert len({plain[0].testbed, *others}) == 6


def test_every_clock_goes_with_every_sleep():
    named = {"system": ("system", "system"), "hptime": ("hptime", "hptime")}
    named |= {f"{clock}+{sleep}": (clock, sleep) for clock in CLOCKS for sleep in SLEEPS if clock != sleep}
    for name, (clock, sleep) in named.items():
        timing = Timing.named(name)
        assert (timing.clock, timing.sleep) == (clock, sleep)
        assert timing.is_mixed == ("+" in name)


def test_a_program_that_is_missing_is_said_before_the_run(monkeypatch, tmp_path):
    monkeypatch.setenv(program.ENVIRONMENT_VARIABLE, str(tmp_path / "nothing"))
    suite = BandwidthSuite.create({"through": ["inside", "shim"]})
    (words,) = suite.missing_prerequisites()
    assert "through shim" in words and "nothing" in words and "virtgauge provision bandwidth" in words
    assert BandwidthSuite.create({}).missing_prerequisites() == []


def test_the_papers_design_has_its_three_scenarios():
    plan, source = load_plan("full:bandwidth-2019")
    found = [cell.factors for cell in check_plan(plan, source).cells]
    by_capacity: dict[str, set[tuple[str, ...]]] = {}
    for one in found:
        levels = (one["estimator"], one["cross_mbps"], one["delay_ms"])
        by_capacity.setdefault(one["capacity_mbps"], set()).add(levels)
        assert one["timing"] in ("system", "hptime")
    assert by_capacity == {
        "300": {("yaz-original", str(cross), "0") for cross in (0, 50, 100, 150, 200, 250)},
        "1000": {("yaz-original", cross, "0") for cross in ("0", "500")},
        "10000": {("kite2", "1000", "20")},
    }
    ways = {(one["timing"], one["through"]) for one in found}
    assert ways == {(timing, through) for timing in ("system", "hptime") for through in ("inside", "shim")}
    assert len(found) == 4 * (6 + 2 + 1)
    assert {platform["kind"] for platform in plan.model_dump()["platform"]} == {"host", "oci", "qemu"}


def test_a_path_as_it_is_is_one_cell_of_each_estimator_and_timing() -> None:
    found = cells(capacities_mbps=["as-is"], timings=["system", "hptime"])
    assert [(cell.factors["capacity_mbps"], cell.factors["cross_mbps"]) for cell in found] == [("as-is", "0")] * 2
    assert all(cell.as_is for cell in found)
