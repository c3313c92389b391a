"""The isolation suite's section of a plan: its cells and testbeds, and errors that name field, value and remedy."""

from __future__ import annotations

import os

import pytest

from virtgauge.errors import UsageError
from virtgauge.execution.prepare import check_plan
from virtgauge.host.cgroup import QUOTA_PERIOD_US
from virtgauge.plan.load import load_plan, parse_plan
from virtgauge.plan.model import DesignScope
from virtgauge.platforms.local import HostPlatform
from virtgauge.platforms.qemu.platform import QemuPlatform
from virtgauge.platforms.qemu.tuning import Tuning
from virtgauge.platforms.uml import UmlPlatform
from virtgauge.specs.isolation_formatting import NOTHING
from virtgauge.suites.base import Cell
from virtgauge.suites.isolation import policies
from virtgauge.suites.isolation.benchmarks import BENCHMARKS, KINDS, LOADS, block_bytes, largest_cache_bytes
from virtgauge.suites.isolation.policies import placement
from virtgauge.suites.isolation.suite import IsolationSuite

MIB = 2**20
FACTORS = ["benchmark", "block", "load", "intensity", "cores", "policy", "on", "share"]


HAND = "policy_set_by_hand = true"


@pytest.fixture(autouse=True)
def four_cpus(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(policies, "core_of", str)


def refusal(section: str) -> str:
    text = f'[[platform]]\nname = "host"\nkind = "host"\n[[suite.isolation]]\n{section}\n'
    with pytest.raises(UsageError) as caught:
        check_plan(parse_plan(text, "my.toml"), "my.toml")
    return str(caught.value)


def cells(**design) -> list[Cell]:
    return IsolationSuite.create(design).cells()


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ('benchmarks = ["dhrystone"]', ["suite.isolation[0].benchmarks[0] = 'dhrystone'", "use one of integer"]),
        ("benchmarks = []", ["suite.isolation[0].benchmarks = []"]),
        ('benchmarks = ["integer", "integer"]', ["'integer' is named twice"]),
        ('loads = ["wake"]', ["suite.isolation[0].loads[0] = 'wake'", "is no load", "fork, flush"]),
        ('memory_blocks = ["64MB"]', ["memory_blocks[0] = '64MB'", "write 64MiB"]),
        ('memory_blocks = ["4KiB"]', ["memory_blocks[0] = '4KiB'", "1MiB to 64GiB"]),
        ('cores = ["2"]', ["cores[0] = '2'", "'1-apart'"]),
        ("cpus = [3, 7]", ["cpus: this machine has the CPUs [0, 1, 2, 3], not [7]"]),
        ('cpus = [3]\ncores = ["1-apart"]', ["cores = '1-apart'", "only CPU 3"]),
        ("shares = [101]", ["suite.isolation[0].shares[0] = 101", "less than or equal to 100"]),
        ("shares = [0]", ["suite.isolation[0].shares[0] = 0", "greater than 0"]),
        ("shares = [0.5]", ["0.5 with the policy 'limit'", "0.005 CPUs", "less than 0.01 is not accepted"]),
        ('policies = ["weight"]\nshares = [0.4]', ["policy 'weight'", "weights go from 1 to 10000"]),
        ('policies = ["reservation"]\nshares = [99.9]', ["policy 'reservation'", "weights go from 1 to 10000"]),
        ('policies = ["none"]\nshares = [50]', ["shares is given", 'nothing but "none"']),
        ('policies = ["disk-limit"]', ['"disk-limit" bounds the disk', "add a disk benchmark"]),
        ('policies = ["disk-limit"]\nloads = ["flush"]', ['"disk-limit" bounds the disk']),  # that is the other guest
        ('loads = ["none"]\nintensities = [50]', ["intensities is given", "add a load"]),
        ("intensities = [0]", ["intensities[0] = 0"]),
        ("slice_ms = 6000", ["slice_ms = 6000", "a trial of 5 s"]),
        ('loads = ["flush"]\ndisk_mib = 256', ["disk_mib = 256", "disk_file_mib = 256 do not fit"]),
        ("disk_random_kib = 5", ["disk_random_kib = 5", "multiple of 4"]),
        ("seconds = 0.1", ["seconds = 0.1"]),
        (HAND, ["policies = ['none', 'limit']", "is one thing in a plan; name one"]),
        (f'{HAND}\npolicies = ["limit"]\nshares = [25, 50]', ["shares = [25.0, 50.0]", "plans of their own"]),
        (f'{HAND}\npolicies = ["limit"]\nmemory_mib = 512', ["memory_mib is given", "leave it out"]),
        (f'{HAND}\npolicies = ["limit"]\nloads = ["flush"]', ["'flush' needs a disk", "leave it out"]),
        (f'{HAND}\npolicies = ["limit"]\nloads = ["cache"]', ["a block of 1xLLC", "give it in MiB"]),
        (f'{HAND}\npolicies = ["limit"]', ["platform 'host'", "two machines that exist already", "limit its designs"]),
        ("second = 1", ["suite.isolation[0].second: unknown field", "did you mean 'seconds'"]),
    ],
)
def test_a_bad_section_is_refused_with_field_value_and_remedy(section, said):
    message = refusal(section)
    assert all(part in message for part in said), message


def test_a_cell_is_named_by_all_its_factors_in_order():
    (reference, limited) = cells(benchmarks=["integer"], loads=["none"], policies=["limit"], shares=[12.5])
    assert list(reference.factors) == FACTORS
    assert limited.key == (
        "isolation/kernel/benchmark=integer,block=,load=none,intensity=0,cores=1,policy=limit,on=tested,share=12.5"
    )
    assert limited.params["share"] == 0.125


def test_the_reference_of_every_benchmark_block_and_cores_is_measured_though_the_design_does_not_name_it():
    found = cells(
        benchmarks=["integer", "memory-read-simd"],
        memory_blocks=["64MiB", "4xLLC"],
        loads=["fork"],
        cores=["1", "all"],
        policies=["weight"],
    )
    plain = {"load": "none", "intensity": "0", "policy": "none", "on": "none", "share": "100"}
    references = [cell.factors for cell in found if plain.items() <= cell.factors.items()]
    assert {(one["benchmark"], one["block"], one["cores"]) for one in references} == {
        (benchmark, block, cores)
        for benchmark, block in (("integer", ""), ("memory-read-simd", "64MiB"), ("memory-read-simd", "4xLLC"))
        for cores in ("1", "all")
    }
    assert len(found) == 2 * len(references)


def test_levels_that_mean_nothing_make_no_cells_of_their_own():
    """No load has one intensity, no policy one share and nobody who gets it."""
    found = cells(
        benchmarks=["integer"],
        loads=["none", "integer"],
        intensities=[25, 100],
        policies=["none", "limit"],
        on=["tested", "loading"],
        shares=[25, 75],
    )
    assert len(found) == len({cell.key for cell in found}) == (1 + 2) * (1 + 2 * 2)
    for cell in found:
        levels = cell.factors
        assert (levels["load"] == "none") == (levels["intensity"] == "0")
        assert (levels["policy"] == "none") == (levels["on"] == "none") == (levels["share"] == "100")


def test_a_bound_for_the_disk_is_given_only_to_a_guest_that_uses_one():
    found = cells(
        benchmarks=["integer", "disk-random-read"],
        loads=["none", "integer", "flush"],
        policies=["disk-limit"],
        on=["tested", "loading"],
    )
    bound = {
        (one["benchmark"], one["load"], one["on"])
        for one in (cell.factors for cell in found)
        if one["policy"] == "disk-limit"
    }
    assert bound == {
        ("disk-random-read", "none", "tested"),
        ("disk-random-read", "integer", "tested"),
        ("disk-random-read", "flush", "tested"),
        ("disk-random-read", "flush", "loading"),
        ("integer", "flush", "loading"),
    }


def test_testbeds_differ_in_what_their_guests_have():
    plain = {"benchmarks": ["integer"], "loads": ["none"], "policies": ["none"]}
    names = {
        cells(**plain | change)[0].testbed
        for change in (
            {},
            {"cores": ["1-apart"]},
            {"cores": ["all"]},
            {"cpus": [0, 1], "cores": ["all"]},
            {"loads": ["none", "flush"]},
            {"loads": ["none", "flush"], "disk_file_mib": 32},
            {"loads": ["none", "memory-read-simd"]},
            {"memory_mib": 1024},
        )
    }
    assert len(names) == 8
    alike = {"memory_mib": 512, "disk_mib": 600}
    assert len({cells(**plain | change | alike)[0].testbed for change in ({}, {"loads": ["none", "flush"]})}) == 1


def test_guests_have_memory_for_the_largest_block_of_every_thread():
    suite = IsolationSuite.create(
        {"benchmarks": ["memory-read-simd"], "memory_blocks": ["64MiB", "256MiB"], "cores": ["all"], "loads": ["none"]}
    )
    testbed = suite.cells()[0].testbed
    assert suite._testbeds[testbed].memory_mib >= 256 + 4 * 256
    small = IsolationSuite.create({"benchmarks": ["integer"], "loads": ["none"]})
    assert small._testbeds[small.cells()[0].testbed].memory_mib == 256
    named = IsolationSuite.create({"benchmarks": ["integer"], "loads": ["none"], "memory_blocks": ["256MiB"]})
    assert named._testbeds[named.cells()[0].testbed].memory_mib == 256 + 2 * 256


def test_a_guest_that_is_given_little_gets_more_time():
    def limit_s(**design):
        return max(cell.timeout_s for cell in cells(**{"benchmarks": ["integer"], "loads": ["none"]} | design))

    assert limit_s(shares=[5]) > limit_s(shares=[50]) > 5 + 1
    disk = {"benchmarks": ["disk-sequential-write"], "policies": ["disk-limit"], "disk_full_mb_per_s": 1.0}
    assert limit_s(**disk, shares=[50]) > 256 * MIB / 0.5e6  # only to fill the file


def test_a_trial_is_expected_to_take_also_what_its_files_take_to_be_filled():
    found = cells(
        benchmarks=["integer", "disk-random-read"], loads=["none", "flush"], policies=["none"], disk_file_mib=95
    )
    plain_s, *filled_s = (cell.expected_s for cell in found)
    assert [one - plain_s for one in filled_s] == pytest.approx([1, 1, 2], rel=0.01)  # at 100 MB/s


def test_guests_share_the_last_cpu_or_have_one_each_or_share_all():
    cpus = (0, 1, 2, 3)
    assert [(p.tested, p.loading) for p in (placement(cores, cpus) for cores in ("1", "1-apart", "all"))] == [
        ((3,), (3,)),
        ((3,), (2,)),
        (cpus, cpus),
    ]
    assert [placement(cores, cpus).shared for cores in ("1", "1-apart", "all")] == [True, False, True]
    assert [placement(cores, cpus).capacity for cores in ("1", "1-apart", "all")] == [1, 1, 4]


def test_guests_apart_are_on_different_cores_where_there_are_such(monkeypatch):
    for core_of, loading in ((lambda cpu: cpu // 2, 1), (lambda cpu: 0, 2)):
        monkeypatch.setattr(policies, "core_of", core_of)
        where = placement("1-apart", (0, 1, 2, 3))
        assert (where.tested, where.loading, where.on_one_core) == ((3,), (loading,), loading == 2)


@pytest.mark.parametrize("preset", ["isolation-quick", "isolation-2014", "full:isolation-2014", "paper:isolation"])
def test_on_one_cpu_the_rest_of_a_preset_is_measured(preset, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr("virtgauge.suites.isolation.suite.available_mib", lambda: None)
    monkeypatch.setattr("virtgauge.suites.isolation.suite.missing_governor", lambda name: None)
    design = check_plan(*load_plan(preset))
    said = {(cell.factors["cores"], design.suites[cell.key].refusal(cell, HostPlatform())) for cell in design.cells}
    (why,) = {why for _, why in said if why is not None}
    assert "CPU 0 is the only one" in why
    assert said >= {("1", None), ("1-apart", why)}
    assert ("1-apart", None) not in said
    assert why in design.missing_prerequisites()


@pytest.mark.parametrize(
    ("own", "remedy"), [({}, "name smaller memory_blocks"), ({"memory_mib": 768}, "set memory_mib to less")]
)
def test_cells_that_fill_memory_which_the_machine_lacks_are_refused_with_the_remedy(monkeypatch, own, remedy):
    design = {
        "benchmarks": ["integer", "latency"],
        "memory_blocks": ["256MiB"],
        "loads": ["none", "memory-write-integer"],
    }
    preallocated = QemuPlatform(QemuPlatform.Settings(tuning=Tuning(memory_prealloc=True)))
    for available, lacks in ((None, False), (2 * 768 - 1, True), (2 * 768, False)):
        monkeypatch.setattr("virtgauge.suites.isolation.suite.available_mib", lambda mib=available: mib)
        suite = IsolationSuite.create(design | own)
        for cell in suite.cells():
            has_block = cell.factors["benchmark"] == "latency" or cell.factors["load"] != NOTHING
            for platform, fills in ((HostPlatform(), has_block), (preallocated, True)):
                words = suite.refusal(cell, platform) or ""
                assert (f"1535 MiB are available; {remedy}" in words) is (lacks and fills)
                assert (words in suite.missing_prerequisites()) is (lacks and fills)
    suite = IsolationSuite.create(design | {"benchmarks": ["integer"], "loads": ["none"], "memory_mib": 2**24})
    assert not any("MiB are available" in words for words in suite.missing_prerequisites())


def test_a_guest_that_cannot_have_as_many_processors_is_not_launched_for_a_cell_of_all():
    """It would fail to launch, and after three times nothing more would be measured of the platform."""
    suite = IsolationSuite.create({"benchmarks": ["integer"], "loads": ["none"], "cores": ["1", "1-apart", "all"]})
    told = {cell.factors["cores"]: suite.refusal(cell, UmlPlatform()) for cell in suite.cells()}
    assert told == {
        "1": None,
        "1-apart": None,
        "all": "cores = 'all': 4 virtual processors, of which User Mode Linux has 1",
    }


def test_a_block_is_of_a_size_or_of_so_many_of_the_largest_cache(tmp_path):
    for number, size in enumerate(("48K", "1024K", "32M", "junk")):
        folder = tmp_path / "cpu0" / "cache" / f"index{number}"
        folder.mkdir(parents=True)
        (folder / "size").write_text(size + "\n")
    assert largest_cache_bytes(tmp_path) == 32 * MIB
    assert block_bytes("64MiB", None) == 64 * MIB
    assert block_bytes("4xLLC", 32 * MIB) == 128 * MIB
    assert block_bytes("0.5xLLC", 32 * MIB) == 16 * MIB
    assert block_bytes("4xLLC", largest_cache_bytes(tmp_path / "nothing")) == 64 * MIB  # the paper's


def test_every_benchmark_and_load_has_a_kernel_and_figures_of_its_own():
    for name in (*BENCHMARKS, *LOADS):
        if name != NOTHING:
            kind = KINDS[name]
            assert kind.name == name
            assert kind.kernel["kernel"]
    assert KINDS["integer"].value(1757e3, 1, None) == pytest.approx(1000)  # DMIPS
    assert KINDS["floating"].value(100.0, 1, None) == pytest.approx(10)  # MWIPS
    assert KINDS["memory-copy-simd"].value(5e9, 2, 64 * MIB) == pytest.approx(5000)  # MB/s
    assert KINDS["latency"].value(2e7, 2, 64 * MIB) == pytest.approx(100)  # ns, of two threads
    assert KINDS["latency"].value(0.0, 1, 64 * MIB) is None
    assert KINDS["disk-sequential-read"].value(5e7, 1, 65536) == pytest.approx(50)  # MB/s
    assert KINDS["disk-random-write-flush"].value(409600.0, 1, 4096) == pytest.approx(100)  # operations/s
    assert KINDS["wake"].value(999.0, 1, None) == 999.0


@pytest.mark.parametrize("preset", ["isolation-quick", "isolation-2014", "full:isolation-2014", "paper:isolation"])
def test_trials_with_a_quota_are_of_whole_slices_and_these_of_whole_periods(preset):
    for design in load_plan(preset)[0].suite["isolation"]:
        settings = IsolationSuite.create(DesignScope.split(design)[1]).settings
        assert settings.slice_ms * 1000 % QUOTA_PERIOD_US == 0
        assert round(settings.seconds * 1000) % settings.slice_ms == 0


def test_the_papers_design_has_its_benchmarks_loads_cores_and_shares():
    found = [cell.factors for cell in check_plan(*load_plan("full:isolation-2014")).cells]
    paper = [one for one in found if one["policy"] == "limit+reservation"]
    memory = {f"memory-{access}-{element}" for access in ("read", "write") for element in ("integer", "float", "simd")}
    disk = {f"disk-{o}-{what}" for o in ("sequential", "random") for what in ("read", "write", "write-flush")}
    assert {one["benchmark"] for one in paper} >= {"integer", "floating", *memory, *disk}
    assert {one["load"] for one in paper} == {"none", "integer", "memory-write-integer", "disk-sequential-write"}
    assert {one["on"] for one in paper} == {"tested", "loading"}
    for cores in ("1", "all"):
        figure_1 = [one for one in paper if one["benchmark"] == "integer" and one["cores"] == cores]
        for load, on in (("none", "tested"), ("integer", "tested"), ("integer", "loading")):
            shares = {float(one["share"]) for one in figure_1 if (one["load"], one["on"]) == (load, on)}
            assert {5, 50, 95, 100} <= shares
    assert {one["cores"] for one in paper if one["block"] and one["on"] == "loading"} == {"1-apart", "all"}


@pytest.mark.parametrize(
    ("preset", "of_disks"), [("isolation-quick", 0), ("isolation-2014", 1), ("paper:isolation", 1)]
)
def test_the_short_forms_share_their_guests_and_contend_for_memory_from_two_cpus(preset, of_disks):
    """Those of the paper have others for the disk: guests of Xen have none, and are measured in all else."""
    cells = check_plan(*load_plan(preset)).cells
    cores = {cell.factors["cores"] for cell in cells}
    assert len({cell.testbed for cell in cells if "governor" not in cell.factors}) == len(cores) + of_disks
    memory = [cell.factors for cell in cells if cell.factors["block"]]
    assert {one["block"] for one in memory} == {"4xLLC"}
    beside = {one["cores"] for one in memory if one["load"].startswith("memory-")}
    assert beside == cores - {"1"}


def test_a_policy_that_is_set_by_hand_is_in_every_cell():
    design = {"benchmarks": ["integer"], "loads": ["none", "integer"], "policy_set_by_hand": True}
    bound = cells(**design, policies=["limit"], shares=[25])
    assert [(cell.factors["load"], cell.factors["policy"]) for cell in bound] == [
        ("none", "limit"),
        ("integer", "limit"),
    ]
    free = cells(**design, policies=["none"])
    assert [(cell.factors["load"], cell.factors["policy"]) for cell in free] == [("none", "none"), ("integer", "none")]
    assert all(cell.as_is for cell in (*bound, *free))


def test_its_cpus_are_those_of_a_host_that_may_have_more():
    suite = IsolationSuite.create({"policy_set_by_hand": True, "policies": ["limit"], "cores": ["all"], "cpus": [8, 9]})
    assert suite.cells()[0].testbed == "isolation-as-is-all-8_9_-_8_9"
