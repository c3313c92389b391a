"""The benchmarks' own arithmetic: where a run's time went, how figures are shown, what makes a page."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from virtgauge.ledger.records import EventRecord, GuestRecord, TrialRecord, TrialStatus

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks_on_path(monkeypatch):
    """Scripts import one another by bare names; those names are forgotten again afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    ours = {path.stem for path in BENCHMARKS.glob("*.py")}
    for name in (set(sys.modules) - before) & ours:
        del sys.modules[name]


def module(name):
    return importlib.import_module(name)


def at(second):
    return f"2025-03-01T10:{int(second) // 60:02}:{second % 60:06.3f}+00:00"


def event(second, kind):
    return EventRecord(at(second), kind, "")


def guest(number, launched, ready):
    ready_ns = None if ready is None else int(ready * 1e9)
    return GuestRecord(
        guest_id=number, arm="host", platform="host", block=0, launched_at=at(launched), ready_ns=ready_ns, facts={}
    )


def trial(number, guest_id, started, elapsed, loop=None):
    usage = {} if loop is None else {"usage": {"elapsed_ns": int(loop * 1e9)}}
    return TrialRecord(
        number,
        f"t{number}",
        "timing",
        "timer_cost",
        "host",
        "host",
        0,
        1,
        {},
        TrialStatus.VALID,
        (),
        usage,
        {},
        None,
        guest_id,
        at(started),
        int(elapsed * 1e9),
    )


def spent(events, guests, trials):
    return {activity.name: s for activity, s in module("run_time").run_time(events, guests, trials).items() if s}


def approx(**seconds):
    return pytest.approx(seconds, abs=2e-3)


def test_every_moment_of_a_run_belongs_to_one_activity():
    found = spent(
        [event(0, "started"), event(20, "completed")],
        [guest(1, launched=1, ready=2), guest(2, launched=11, ready=1)],
        [trial(1, 1, started=3.5, elapsed=2, loop=1.5), trial(2, 1, 6, 3, loop=3), trial(3, 2, 12, 6, loop=4)],
    )
    assert found == approx(OTHER=1, LAUNCHING=3, ASKING=0.5, MEASURING=8.5, AROUND=2.5, RECORDING=0.5, CLOSING=2 + 2)
    assert sum(found.values()) == pytest.approx(20)


def test_the_time_between_an_interruption_and_its_resumption_is_not_the_runs():
    found = spent(
        [event(0, "started"), event(4, "interrupted"), event(50, "resumed"), event(56, "completed")],
        [guest(1, 1, 1), guest(2, 51, 1)],
        [trial(1, 1, 2, 1), trial(2, 2, 52, 3)],
    )
    assert sum(found.values()) == pytest.approx(4 + 6)


def test_a_killed_session_ends_with_the_last_that_it_recorded():
    found = spent(
        [event(0, "started"), event(50, "resumed"), event(51, "completed")], [guest(1, 1, 1)], [trial(1, 1, 2, 3)]
    )
    assert found == approx(OTHER=1 + 1, LAUNCHING=1, AROUND=3)


def test_a_launch_that_failed_is_no_launch_and_its_trials_were_never_begun():
    found = spent(
        [event(0, "started"), event(10, "completed")], [guest(1, 1, None), guest(2, 6, 1)], [trial(1, None, 5, 0)]
    )
    assert found == approx(OTHER=1, FAILED_LAUNCH=5, LAUNCHING=1, ASKING=3)


def test_a_loop_is_never_longer_than_its_trial():
    assert spent([event(0, "started"), event(2, "completed")], [], [trial(1, 1, 0, 2, loop=2.1)]) == approx(MEASURING=2)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.00123, "0.0012"), (0.993, "0.993"), (1.5, "1.50"), (12.345, "12.3"), (3081.2, "3081")],
)
def test_figures_have_three_digits_and_no_exponent(value, text):
    assert module("benchmark").figure(value) == text


def test_a_spread_is_median_and_range():
    spread = module("benchmark").spread
    assert spread([3e6, 1e6, 2e6], scale=1e-6, unit="ms") == "2.00 (1.00–3.00) ms"
    assert spread([4.0]) == "4.00"


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_every_script_finds_what_it_imports(name):
    assert module(name).__doc__


def test_ratios_are_made_pair_by_pair_and_a_missing_half_is_an_error():
    ratios = module("benchmark").ratios
    assert ratios([2, 9], [1, 3]) == [2, 3]
    with pytest.raises(ValueError):
        ratios([1, 2], [1])


def test_the_command_names_the_script_in_the_project_and_not_where_its_record_went():
    argv = [str(BENCHMARKS / "agent_ready.py"), "--pairs", "20", "--json", "/tmp/a.json"]
    assert module("benchmark").command_line(argv) == "python benchmarks/agent_ready.py --pairs 20"


def test_the_figures_of_the_report_are_found_in_what_report_scale_prints():
    printed = (
        "imports             1.33 s\nanalysis            1.77 s\npage                1.66 s   2.44 MB\n"
        "report.html total   4.77 s   (CPU time of the process so far 4.70 s)\n"
        "peak memory          271 MiB\nJSON besides        0.50 s   9.10 MB\n"
    )
    found = module("report_time").report_figures(printed)
    assert (found["total_s"], found["size_mb"], found["peak_mib"]) == (4.77, 2.44, 271)


def test_a_report_scale_that_prints_otherwise_is_an_error_and_no_missing_row():
    report_time = module("report_time")
    with pytest.raises(module("benchmark").BenchmarkError, match="total_s"):
        report_time.report_figures("analysis 1.0 s")


def record(**fields):
    known = {
        "columns": ["platform", "ms"],
        "rows": [["host", "1.00"]],
        "meaning": "It is fast.",
        "peers": {"runc": "1.1.5"},
        "notes": ["By turns."],
        "machine": "AMD EPYC, 2 processors",
        "date": "2025-03-01 10:00 UTC",
        "commit": "abc1234",
        "load_before": 0.25,
        "command": "python benchmarks/agent_ready.py",
        "took_s": 61.2,
    }
    return known | fields


def test_the_page_holds_every_figure_with_command_commit_and_peer():
    benchmarks, page_of = module("registry").BENCHMARKS, module("results_page").results_page
    page = page_of(benchmarks, "", {"agent-ready": record()})
    for text in (
        f"## {benchmarks[0].title}",
        "It is fast.",
        "| host     | 1.00 |",
        "runc 1.1.5",
        "abc1234",
        "0.25",
        "61 s",
        "AMD EPYC, 2 processors",
    ):
        assert text in page
    assert f"## {benchmarks[1].title}" not in page


def test_a_new_section_takes_the_place_of_the_old_one_and_the_others_stay_to_the_letter():
    benchmarks, page_of = module("registry").BENCHMARKS, module("results_page").results_page
    before = (BENCHMARKS / "RESULTS.md").read_text()
    assert page_of(benchmarks, before, {}) == before
    after = page_of(benchmarks, before, {"image": record(meaning="Measured anew.")})
    removed, added = set(before.split("\n")) - set(after.split("\n")), set(after.split("\n")) - set(before.split("\n"))
    assert "What has to be carried to a hypervisor before a guest of it can be measured." in removed
    assert "Measured anew." in added
    assert len(re.findall("^## ", after, re.M)) == len(re.findall("^## ", before, re.M))
    assert page_of(benchmarks, after, {"image": record(meaning="Measured anew.")}) == after


def test_a_section_whose_benchmark_is_gone_goes():
    page_of = module("results_page").results_page
    assert "Gone" not in page_of(module("registry").BENCHMARKS, "# Benchmarks\n\n## Gone\n\nFast.\n", {})


def test_every_benchmark_of_the_registry_is_a_script_with_a_name_of_its_own():
    benchmarks = module("registry").BENCHMARKS
    assert len({benchmark.name for benchmark in benchmarks}) == len(benchmarks)
    for benchmark in benchmarks:
        assert "main(measure, " in (BENCHMARKS / benchmark.script).read_text()


@pytest.mark.slow
def test_many_hosts_are_coordinated_through_losses_and_with_clocks_that_differ(tmp_path):
    """Its own checks fail where a trial is missing, twice or out of its host's order, or nothing was lost."""
    argv = [sys.executable, str(BENCHMARKS / "fleet_scale.py"), "--quick", "--json", str(tmp_path / "record")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "record").read_text())["values"]["found"]
    assert found["trials"] == 4 * found["batches"] and found["losses"] >= 3


def test_the_peak_of_a_process_is_what_the_kernel_has_seen():
    peak_kib = module("memory_flat").peak_kib
    resident_kib = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    block = b"x" * (64 << 20)  # written to, and so resident
    del block
    assert peak_kib(os.getpid()) >= resident_kib + (60 << 10)


def real_time(ours, theirs):
    """Figures of eight turns, ns: those of the first turn, and more by as much in each."""
    return {
        name: {what: {turn: value * (turn + 1) for turn in range(8)} for what in ("p50", "p99", "max")}
        for name, value in (ours, theirs)
    }


def test_real_time_figures_agree_turn_by_turn_and_maxima_that_are_always_larger_differ():
    agreement = module("realtime_agreement")
    peers = {peer.tool: peer for peer in agreement._PEERS}
    _, within, p = agreement._compared(real_time(("cycle", 5100.0), ("cyclictest", 5000.0)), peers["cyclictest"])
    assert (within, p) == ([True, True], 2 / 2**8)
    _, within, _ = agreement._compared(real_time(("cycle", 6000.0), ("rtla", 5000.0)), peers["rtla"])
    assert within == [False, False]


def test_gaps_are_put_into_oslat_s_bins_before_they_are_compared():
    agreement = module("realtime_agreement")
    (oslat,) = (peer for peer in agreement._PEERS if peer.tool == "oslat")
    _, within, p = agreement._compared(real_time(("stall", 990.0), ("oslat", 1000.0)), oslat)
    assert (within, p) == ([True, True], 1.0)


def test_gaps_that_all_lie_in_oslat_s_first_bin_agree_with_nothing():
    agreement = module("realtime_agreement")
    (oslat,) = (peer for peer in agreement._PEERS if peer.tool == "oslat")
    found = {
        name: {what: dict.fromkeys(range(8), value) for what in ("p50", "p99", "max")}
        for name, value in (("stall", 40.0), ("oslat", 1000.0))
    }
    assert agreement._compared(found, oslat)[1] == []


async def test_our_probe_is_asked_as_a_plan_would_ask_it():
    agreement = module("realtime_agreement")
    told = {"unit": "ps", "values": [5, 9], "counts": [98, 2], "n": 100, "min": 5, "max": 9, "mean": 5.1}
    asked = []

    async def request(kind, **fields):
        asked.append((kind, fields["name"], fields["params"]))
        return SimpleNamespace(value={"distribution": told})

    guest = SimpleNamespace(channel=SimpleNamespace(request=request))
    setting = agreement.Setting(cpu=1, period_us=500, priority=80, seconds=10)
    figures = [await agreement._ours(guest, kind, setting) for kind in ("cycle", "stall")]
    assert figures == [pytest.approx({"p50": 0.005, "p99": 0.009, "max": 0.009})] * 2
    assert [(kind, name, params["kind"]) for kind, name, params in asked] == [
        ("probe", "cycle", "sleep"),
        ("probe", "cycle", "stall"),
    ]
    wanted = {"cpus": [1], "period_ns": 500_000, "class": "fifo", "priority": 80, "worst": 0, "max_ns": 10**10}
    assert all(wanted.items() <= params.items() for _, _, params in asked)
