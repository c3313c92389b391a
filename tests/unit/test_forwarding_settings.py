"""The forwarding suite's section of a plan: its cells, and errors that name field, value and remedy."""

from __future__ import annotations

import itertools

import pytest

from virtgauge.analysis.packets import frames_for, wire_frames_per_s
from virtgauge.errors import UsageError
from virtgauge.execution.prepare import check_plan
from virtgauge.plan.load import load_plan, parse_plan
from virtgauge.suites.forwarding.searches import PARTIAL_DROP
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.suite import ForwardingSuite


def refusal(section: str) -> str:
    text = f'[[platform]]\nname = "host"\nkind = "host"\n[[suite.forwarding]]\n{section}\n'
    with pytest.raises(UsageError) as caught:
        check_plan(parse_plan(text, "my.toml"), "my.toml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("q = 1.0", ["suite.forwarding[0].q = 1.0", "less than 1"]),
        ("q = -0.5", ["suite.forwarding[0].q = -0.5", "equal to 0"]),
        ("guests = 4\nk = [1, 5]", ["suite.forwarding[0].k", "k = 5", "from 1 to guests = 4"]),
        ("frame_bytes = [63]", ["suite.forwarding[0].frame_bytes[0] = 63", "equal to 64"]),
        ("guests = 65", ["suite.forwarding[0].guests = 65", "64"]),
        ("q = 0.2", ["suite.forwarding[0]", "q = 0.2", "k = 10", "at most"]),
        ("guests = 3\nuser_vectors = { mine = [1, 2] }", ["mine has 2 weights", "each of the 3 guests"]),
        ("guests = 2\nuser_vectors = { mine = [1, -1] }", ["user_vectors.mine[1] = -1", "equal to 0"]),
        ("guests = 2\nuser_vectors = { mine = [0, 0] }", ["at least one weight must be above 0"]),
        ('guests = 2\nuser_vectors = { "k=1" = [1, 2] }', ["'k=1'", "choose another"]),
        ("vectors = []", ["vectors is empty", "user_vectors"]),
        ("trial_s = 30", ["duration_sum_s = 21", "at least trial_s = 30"]),
        ('search = "guess"', ["suite.forwarding[0].search = 'guess'", "mlrsearch"]),
        ("frame_size = [64]", ["suite.forwarding[0].frame_size: unknown field"]),
        ("min_pps = 100.0\nmax_pps = 50.0", ["max_pps = 50", "above min_pps = 100"]),
        ("medium_mbps = 10\nframe_bytes = [64, 1518]", ["min_pps = 1000", "carries 813 frames/s of 1518 B"]),
        # what the agent would refuse of every trial
        ("max_pps = 148_809_523", ["suite.forwarding[0].max_pps", "100000000"]),
        ("min_pps = 0.5", ["suite.forwarding[0].min_pps"]),
        ("calibration_s = 0.0005", ["suite.forwarding[0].calibration_s"]),
    ],
)
def test_a_bad_section_is_refused_with_field_value_and_remedy(section, said):
    message = refusal(section)
    assert all(part in message for part in said), message


def test_the_default_design_is_the_papers_sixty_cells():
    cells = ForwardingSuite.create({}).cells()
    assert len(cells) == 12 * 5
    assert len({cell.key for cell in cells}) == 60
    assert len({cell.testbed for cell in cells}) == 1
    jain = {cell.factors["vector"]: cell.factors["jain"] for cell in cells}
    assert (jain["k=1"], jain["k=6"], jain["k=12"]) == ("0.085", "0.510", "1.000")


def test_designs_that_differ_in_their_laboratory_do_not_share_one():
    differing = [
        {},
        {"guests": 4},
        {"switch": "bridge"},
        {"cpu_limit": 0.5},
        {"memory_mib": 128},
        {"port": "af_packet"},
    ]
    testbeds = [ForwardingSuite.create(settings).cells()[0].testbed for settings in differing]
    assert len(set(testbeds)) == len(differing)


def test_the_papers_preset_is_the_papers_design():
    plan, source = load_plan("full:forwarding-2016")
    cells = check_plan(plan, source).cells
    assert {cell.factors["guests"] for cell in cells} == {"12"}
    assert {int(cell.factors["frame_bytes"]) for cell in cells} == {64, 128, 512, 1024, 1518}
    assert {cell.factors["vector"] for cell in cells} >= {f"k={k}" for k in range(1, 13)}
    models = {section.settings.get("nic_model", "virtio") for section in plan.platform if section.kind == "qemu"}
    assert models == {"virtio", "e1000"}


@pytest.mark.parametrize("name", ["forwarding-2016", "full:forwarding-2016"])
def test_at_the_speed_of_the_medium_the_lightest_router_carries_enough_frames_for_conclusions_about_j(name):
    """Else not even the paper's curves of 1518 B, which are flat at 1 Gbit/s, could be confirmed on any machine."""
    plan, _ = load_plan(name)
    designs = [ForwardingSettings.model_validate(_plain(one)) for one in plan.suite["forwarding"]]
    of_j = [one for one in designs if one.cpu_limit == "fair" and one.medium_mbps == 1000 and len(one.strong) > 2]
    assert of_j
    for one in of_j:
        carried = wire_frames_per_s(max(one.frame_bytes), 1e9) * min(map(min, one.shares().values()))
        assert carried * one.duration_sum_s >= frames_for(PARTIAL_DROP)


def test_the_afternoons_design_takes_its_time_for_what_decides():
    """Virtual machines, of which one is the A/A arm; with two frame sizes below 512 B, where latency is constant."""
    plan, source = load_plan("forwarding-2016")
    design = check_plan(plan, source)

    def hours(*arms):
        return plan.repetitions * sum(cell.expected_s for arm in arms for cell in design.cells_of(arm)) / 3600

    assert plan.aa
    assert 0 < hours("runc") < 0.25
    assert hours("runc", plan.reference, "qemu-virtio", "qemu-e1000") < 3.25
    assert design.cells_of(plan.reference) == design.cells_of("qemu-e1000") == list(design.cells)
    assert len({cell.factors["frame_bytes"] for cell in design.cells if int(cell.factors["frame_bytes"]) < 512}) == 2


@pytest.mark.parametrize("name", ["paper:forwarding", "forwarding-2016"])
def test_between_near_loads_latencies_of_unlike_platforms_can_be_read_at_the_same_one(name):
    """From 4 to 100 % of the throughput, for a platform that carries 1 Gbit/s and one that carries 40 Mbit/s."""
    plan, _ = load_plan(name)
    first, design = map(_plain, plan.suite["forwarding"][:2])
    loads = first["latency_loads"]
    assert loads[0] <= 4 and loads[-1] == 100
    assert all(low < high <= 1.5 * low for low, high in itertools.pairwise(loads))
    (cell,) = ForwardingSuite.create(first).cells()
    assert cell.key in {one.key for one in ForwardingSuite.create(design).cells()}, "it takes no search of its own"
    differing = {key for key in first.keys() | design.keys() if first.get(key) != design.get(key)}
    assert differing == {"k", "frame_bytes", "latency_loads"}


def _plain(design):
    """A design without what says for which platforms it is."""
    return {key: value for key, value in design.items() if key not in ("platforms", "aa", "emulated")}
