"""Slices of a timing trial joined are what one piece would have told."""

import asyncio
import dataclasses
import math
import re
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from virtgauge.agent.channel import AgentError, Reply
from virtgauge.agent.messages import ProtocolError
from virtgauge.host import tracing
from virtgauge.platforms.simulated import agent as simulated_agent
from virtgauge.platforms.simulated.answers import cycle_fields, distribution_message
from virtgauge.specs.suites import find_measure
from virtgauge.specs.timing import watched_in
from virtgauge.suites import spikes
from virtgauge.suites.base import Cell
from virtgauge.suites.timing import CycleSettings, TimingSuite, TimingTrial

CELL = Cell(
    suite="timing",
    probe="sleep_lateness",
    factors={"function": "usleep", "load": "idle"},
    params={"function": "usleep", "samples": 1000, "max_ns": 10**9, "reservoir": 100},
    timeout_s=10,
)


class Agent:
    """Answers every request with the next values, in 0.1 s each time."""

    def __init__(self, *parts):
        self.parts, self.asked = list(parts), []

    async def request(self, type_, *, name, params, load, on_progress):
        self.asked.append(params)
        values = self.parts.pop(0)
        at = len(self.asked) * 10**9
        clocks = [{"monotonic_ns": at + ns, "tsc_ns": at + ns, "bracket_ns": 5} for ns in (0, 10**8)]
        value = {
            "function": "usleep",
            "distribution": distribution_message(values),
            "requested": params["samples"],
            "cpu_ns_per_sleep": float(values.mean()),
            "early_share": float((values < 10**8).mean()),
            "interrupted": 1,
            "hptime_fallback_reason": None,
            "clocks_start": clocks[0],
            "clocks_end": clocks[1],
            "usage": {
                "cpu_ns": 7,
                "steal_ns": 10,
                "elapsed_ns": 10**8,
                "machine": {"elapsed_ns": 10**8, "cpu_busy_share": len(values) / 1000},
            },
            "load": None,
        }
        return Reply(value, {"reservoir": values[:100]}, sent_ns=at, finished_ns=at + 10**8 + 5)


async def joined(*parts):
    agent = Agent(*parts)
    trial = TimingTrial(CELL, agent, None, lambda _: None)
    for _ in parts:
        trial.keep(await trial.measure(0.1))
    return trial, trial.joined(), agent


async def test_slices_without_any_value_are_no_result():
    class Silent(Agent):
        async def request(self, type_, **fields):
            reply = await super().request(type_, **fields)
            reply.value["distribution"] |= {"values": b"", "counts": b"", "n": 0}
            return reply

    trial = TimingTrial(CELL, Silent(np.arange(1, 9)), None, lambda _: None)
    trial.keep(await trial.measure(0.1))
    with pytest.raises(ProtocolError, match=r"result of sleep_lateness is not what .* says: .*nothing to merge"):
        trial.joined()


async def test_values_and_counts_are_those_of_one_piece():
    values = np.random.default_rng(1).integers(1000, 10**9, 1000)
    _, whole, _ = await joined(values)
    _, found, agent = await joined(values[:200], values[200:])
    (one,), (other,) = whole.histograms.values(), found.histograms.values()
    assert one.values.tolist() == other.values.tolist()
    assert one.counts.tolist() == other.counts.tolist()
    assert (other.n, other.minimum, other.maximum) == (1000, values.min(), values.max())
    assert other.mean == pytest.approx(values.mean())
    assert found.result["cpu_ns_per_sleep"] == pytest.approx(values.mean())
    assert found.result["early_share"] == pytest.approx((values < 10**8).mean())
    assert [params["samples"] for params in agent.asked] == [1000, 800]
    assert [params.get("continued", False) for params in agent.asked] == [False, True]
    assert found.flags == ()


async def test_spans_and_what_was_used_are_summed_and_rates_are_of_all_the_time():
    trial, found, _ = await joined(np.full(200, 1000), np.full(400, 1000))
    assert trial.done == 0.6
    assert [(clock.clock, clock.elapsed_ns, clock.uncertainty_ns) for clock in found.guest_clocks] == [
        ("CLOCK_MONOTONIC", 2e8, 20),
        ("TSC", 2e8, 20),
    ]
    assert found.controller_elapsed_ns == 2 * (10**8 + 5)
    assert found.guest_steal_ns == 20
    usage = found.result["usage"]
    assert (usage["cpu_ns"], usage["elapsed_ns"], found.result["interrupted"]) == (14, 2 * 10**8, 2)
    assert usage["machine"] == {"elapsed_ns": 2 * 10**8, "cpu_busy_share": pytest.approx(0.3)}
    assert [flag.name for flag in found.flags] == ["short"]
    assert found.result["requested"] == 1000


async def test_every_slice_is_represented_among_the_raw_values_by_its_samples():
    _, found, _ = await joined(np.full(900, 1), np.full(100, 2))
    kept = found.samples["reservoir"]
    assert len(kept) == 100
    assert 70 <= (kept == 1).sum() < 100


async def test_a_slice_asks_for_no_more_time_than_the_trial_has_left():
    agent = Agent(np.full(10, 1), np.full(10, 1))
    trial = TimingTrial(CELL, agent, None, lambda _: None)
    trial.keep(await trial.measure(0.3))
    await trial.measure(5.0)
    assert [params["max_ns"] for params in agent.asked] == [300_000_000, 900_000_000]


@pytest.mark.parametrize(
    ("read", "shares", "asked"),
    [
        ((1000, 10, 10), [0.4, 0.8, 1.02], [(1000, 250e6), (1, 150e6), (1, 50e6)]),
        ((600, 200, 100, 100), [0.4, 0.8, 0.9, 1.0], [(1000, 250e6), (400, 150e6), (200, 50e6), (100, 1)]),
    ],
    ids=["fast", "slow"],
)
async def test_a_clock_is_read_as_often_and_for_as_long_as_asked_in_all_slices_together(read, shares, asked):
    params = CELL.params | {"least_ns": 250_000_000}
    agent = Agent(*(np.full(n, 1) for n in read))
    trial = TimingTrial(dataclasses.replace(CELL, params=params), agent, None, lambda _: None)
    found = []
    while trial.done < 1:
        trial.keep(await trial.measure(0.1))
        found.append(trial.done)
    assert found == shares
    assert [(one["samples"], one["least_ns"]) for one in agent.asked] == asked


async def test_hptime_learns_once_in_a_trial_though_the_first_slice_is_left_out():
    agent = Agent(np.full(10, 1), np.full(10, 1))
    trial = TimingTrial(CELL, agent, None, lambda _: None)
    for _ in range(2):
        await trial.measure(0.1)
    assert [params.get("continued", False) for params in agent.asked] == [False, True]


def test_only_cells_without_a_load_are_measured_in_slices():
    suite = TimingSuite.create({"loads": ["idle", "cpu", "io"]})
    testbed = SimpleNamespace(guest=SimpleNamespace(channel=None))
    sliced = {cell.factors["load"]: suite.sliced(cell, testbed, lambda _: None) is not None for cell in suite.cells()}
    assert sliced == {"idle": True, "cpu": False, "io": False}


def test_a_clock_is_read_until_the_threads_of_a_load_had_their_turns_and_as_long_without_one():
    design = {"loads": ["idle", "cpu", "io"], "timers": ["rdtsc"], "sleeps": [], "reads": 1000}
    cells = TimingSuite.create(design).cells()
    assert {cell.factors["load"]: cell.params["least_ns"] for cell in cells} == dict.fromkeys(design["loads"], 10**8)


def test_a_load_takes_time_to_settle_and_turns_from_who_is_awake():
    design = {"timers": ["rdtsc"], "sleeps": ["usleep", "spin", "hptime"], "slacks": ["default"], "sleep_samples": 100}
    cells = TimingSuite.create(design | {"max_seconds": 4}).cells()
    found = {(cell.factors["function"], cell.factors["load"]): round(cell.expected_s, 2) for cell in cells}
    assert found == {
        ("rdtsc", "idle"): 0.2,
        ("rdtsc", "cpu"): 3.41,  # a million reads of 60 ns, one of 51 turns
        ("usleep", "idle"): 0.12,
        ("usleep", "cpu"): 0.86,
        ("spin", "idle"): 0.12,
        ("spin", "cpu"): 4.35,
        ("hptime", "idle"): 0.42,
        ("hptime", "cpu"): 1.16,
    }


def test_a_load_settles_as_long_in_the_simulation_as_in_the_agent():
    source = Path(__file__).parents[2] / "native" / "agent" / "src" / "probes" / "mod.rs"
    (settling_ms,) = re.findall(r"SETTLING: Duration = Duration::from_millis\((\d+)\)", source.read_text())
    assert int(settling_ms) * 1_000_000 == simulated_agent._SETTLING_NS


def test_simulated_misses_are_in_a_row_until_a_cycle_is_in_time_as_the_agent_counts_them():
    late_us = np.array([5, 2500, 1200, 3, 1800])
    params = {"kind": "sleep", "class": "fifo", "period_ns": 1_000_000, "worst": 1}
    found = cycle_fields(late_us * 1_000_000, params)
    assert (found["missed"], found["longest_missed"]) == (4, 3)


@pytest.mark.parametrize(("kept", "clusters"), [(0, (1, 4)), (1, (1, 3)), (2, (2, 2)), (5, (2, 2))])
def test_a_trial_of_cycles_tells_its_time_and_how_many_clusters_of_misses_it_may_have(kept, clusters):
    """Misses of which nothing is kept came together, or each by itself."""
    late_us = np.full(5000, 5)
    late_us[[100, 4000]] = 2500, 2400  # 3.9 s apart
    params = {"kind": "sleep", "class": "fifo", "period_ns": 1_000_000, "worst": kept}
    told = watched_in(cycle_fields(late_us * 1_000_000, params) | {"usage": {"elapsed_ns": 1}})
    assert told.seconds == pytest.approx(5.004)
    assert (told.least, told.most) == clusters
    assert told.floor == (0, 2_500_000, 2_400_000, 0, 0, 5000)[kept]
    assert told.peaks[:1] == ((2_500_000,) if kept else ())


def test_a_miss_whose_time_is_not_known_may_have_joined_two_clusters():
    late_us = np.full(5000, 5)
    late_us[[100, 900, 1600]] = 2500, 1500, 2400
    params = {"kind": "sleep", "class": "fifo", "period_ns": 1_000_000}
    told = [
        watched_in(cycle_fields(late_us * 1_000_000, params | {"worst": kept}) | {"usage": {"elapsed_ns": 1}})
        for kept in (2, 3)
    ]
    assert [(one.least, one.most) for one in told] == [(1, 3), (1, 1)]


@pytest.mark.parametrize("part", [None, 0, "?", [], [{}]])
def test_what_is_no_result_of_cycles_has_watched_for_no_time(part):
    watch = find_measure("timing", "cycle.max").watch
    told = watch.read(*[part] * len(watch.paths))
    assert (told.seconds, told.most, told.peaks, told.floor) == (0, 0, (), math.inf)


def test_a_thread_that_never_sleeps_watches_as_long_as_it_runs():
    params = {"kind": "stall", "class": "fifo", "period_ns": 1_000_000, "worst": 2}
    told = watched_in(cycle_fields(np.array([5, 9_000]) * 1_000_000, params) | {"usage": {"elapsed_ns": 7 * 10**9}})
    assert (told.seconds, told.least, told.most, told.peaks) == (7, 0, 0, (9_000_000,))


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"cpus": [0]}, "cpus"),
        ({"periods_us": [50, 1000]}, "periods_us"),
        ({"kinds": ["stall"]}, "classes"),
    ],
)
def test_a_deadline_class_that_no_kernel_accepts_is_refused_by_its_field(wrong, field):
    CycleSettings(**({"classes": ["fifo"]} | wrong))
    with pytest.raises(ValueError, match=f"{field}: "):
        CycleSettings(**({"classes": ["deadline"]} | wrong))


def test_cycles_are_cells_of_their_own_that_take_the_machine_as_it_is():
    suite = TimingSuite.create(
        {"timers": [], "sleeps": [], "loads": ["idle"]}
        | {"cycles": {"kinds": ["cycle", "stall"], "classes": ["fifo", "deadline"], "periods_us": [250, 1000]}}
    )
    cells = suite.cells()
    assert [dict(cell.factors) for cell in cells] == [
        {"function": "cycle", "policy": "fifo", "load": "idle", "period_ns": "250000"},
        {"function": "cycle", "policy": "fifo", "load": "idle", "period_ns": "1000000"},
        {"function": "cycle", "policy": "deadline", "load": "idle", "period_ns": "250000"},
        {"function": "cycle", "policy": "deadline", "load": "idle", "period_ns": "1000000"},
        {"function": "stall", "policy": "fifo", "load": "idle"},
    ]
    assert not any(cell.in_peace for cell in cells)
    assert all(suite.sliced(cell, None, lambda _: None) is None for cell in cells)


def test_cycles_name_their_idle_states_where_they_are_not_the_default_and_a_stall_has_the_first():
    cycles = {"kinds": ["cycle", "stall"], "idle_states": ["default", "shallow"]}
    cells = TimingSuite.create({"timers": [], "sleeps": [], "loads": ["idle"], "cycles": cycles}).cells()
    assert [
        (cell.factors["function"], cell.factors.get("idle_states"), cell.params["idle_states"]) for cell in cells
    ] == [("cycle", None, "default"), ("cycle", "shallow", "shallow"), ("stall", None, "default")]


def test_cells_that_are_traced_are_named_and_refused_where_the_kernel_cannot_be_traced(monkeypatch):
    design = {"timers": [], "sleeps": [], "loads": ["idle"], "cycles": {}}
    (plain,) = TimingSuite.create(design).cells()
    suite = TimingSuite.create(design | {"cycles": {"trace": True}})
    (cell,) = suite.cells()
    assert dict(cell.factors) == dict(plain.factors) | {"trace": "on"}
    assert cell.params == {**plain.params, "trace": True}
    monkeypatch.setattr(tracing, "refused", lambda: "no")
    assert suite.missing_prerequisites() == ["no"]
    assert TimingSuite.create(design).missing_prerequisites() == []
    told = {simulated: suite.refusal(cell, SimpleNamespace(simulated=simulated)) for simulated in (True, False)}
    assert told == {True: None, False: "no"}
    assert suite.refusal(plain, SimpleNamespace(simulated=False)) is None


async def test_a_machine_that_is_another_is_not_traced_by_what_this_one_does():
    suite = TimingSuite.create({"timers": [], "sleeps": [], "loads": ["idle"], "cycles": {"trace": True}})
    accounting = SimpleNamespace(of_this_machine=False)
    stage = SimpleNamespace(platform=SimpleNamespace(simulated=False), accounting=lambda: accounting)
    with pytest.raises(AgentError, match=r"unsupported: .* another machine"):
        await suite.measure(suite.cells()[0], SimpleNamespace(stage=stage), lambda _: None)


@pytest.fixture(autouse=True)
def numbered_as_traced(monkeypatch):
    """Also where the tests run in a PID namespace of their own."""
    monkeypatch.setattr(spikes, "numbered_as_traced", lambda: True)


class Late:
    """A guest whose cycles were late; its clock is behind by 5 s, then by 3 ms more, and answers take 2 ms."""

    def __init__(self, *vcpus: int, takes_ns: int = 2_000_000, sandbox: tuple[int, ...] = ()) -> None:
        self.vcpus, self.channel, self._takes_ns, self._read = vcpus, self, takes_ns, 0
        self.sandbox = [*sandbox]

    async def vcpu_threads(self) -> tuple[int, ...]:
        return self.vcpus

    def sandbox_threads(self) -> frozenset[int]:
        return frozenset(self.sandbox)

    def throttling(self) -> None:
        return None

    async def request(self, type_, *, paths, timeout_s):
        again = self._read > spikes._IN_VAIN  # the first, and as many as make nothing better
        self._read += 1
        sent_ns = 6_000_000_000 + again * 3_000_000_000
        value = {"monotonic_ns": sent_ns + self._takes_ns // 2 - 5_000_000_000 - again * 3_000_000, "files": {}}
        return Reply(value=value, samples={}, sent_ns=sent_ns, finished_ns=sent_ns + self._takes_ns)


def cycles_of(**worst):
    worst = {"late_ns": 1_000_000, "thread": 3, "counter": 5, "monotonic_ns": 1_001_000_000, "realtime_ns": 6} | worst
    return {"worst": [worst] * 300, "period_ns": 1_000_000, "threads": [{"cpu": cpu} for cpu in (0, 1, None, 1)]}


def trace_of(*lines, absent=()):
    return SimpleNamespace(lines=lambda: lines, kib=64, absent=absent)


async def test_the_record_has_the_worst_cycles_with_their_causes():
    woken = "comm=cycle-3 pid=42 prio=9 target_cpu=001"
    hog = "prev_comm=h\x1bg prev_pid=77 prev_prio=4 prev_state=S ==> next_comm=cycle-3 next_pid=42 next_prio=9"
    lines = [
        f"             h\x1bg-77      [001] d.h2.     1.000002: sched_waking: {woken}\n",
        f"             h\x1bg-77      [001] d..2.     1.000990: sched_switch: {hog}\n",
    ]
    watched = await spikes.Watched.begin(Late())
    told = await watched.told(cycles_of(), trace_of(*lines, absent=("kvm/kvm_exit",)))
    assert (told["ring_kib"], told["absent"], len(told["worst"])) == (64, ["kvm/kvm_exit"], 100)
    first = told["worst"][0]
    assert (first["late_ns"], first["cause"], first["by"], first["share"]) == (1_000_000, "preempted", "h�g", 0.988)
    assert sum(ns for _, _, ns in first["course"]) == 1_000_000
    with pytest.raises(ProtocolError, match="the result of cycle"):
        await watched.told(cycles_of(late_ns="?"), trace_of())


@pytest.mark.parametrize(("thread", "by"), [(1, ""), (3, ""), (2, "on which processor: name the cpus")])
async def test_a_guests_processor_is_looked_for_in_the_trace_by_its_number(thread, by):
    left = "prev_comm=CPU 1 prev_pid=901 prev_prio=120 prev_state=T"
    switch = f"sched_switch: {left} ==> next_comm=x next_pid=7 next_prio=1"
    lines = [
        f"           CPU 1-901     [001] d..2.     6.999900: {switch}\n",
        "               x-7       [001] d.h..     7.050000: local_timer_entry: vector=236\n",
        "               x-7       [001] d.h..     7.050002: local_timer_exit: vector=236\n",
    ]
    late = cycles_of(thread=thread, late_ns=100_000_000, monotonic_ns=2_100_000_000)  # at 7.1 s of the host's
    told = await (await spikes.Watched.begin(Late(900, 901))).told(late, trace_of(*lines))
    assert told["clocks_uncertain_ns"] == 1_000_000
    assert (told["worst"][0]["cause"], told["worst"][0]["by"]) == ("unrecorded" if by else "stopped", by)


async def test_of_a_sandbox_those_threads_are_followed_that_it_had_before_or_after():
    left = "prev_comm=exe prev_pid={} prev_prio=120 prev_state=T"
    switch = "sched_switch: {} ==> next_comm=x next_pid=7 next_prio=1"
    lines = [
        f"             exe-{pid}     [001] d..2.     6.999900: {switch.format(left.format(pid))}\n"
        for pid in (950, 951)
    ]
    lines.append("               x-7       [001] d.h..     7.050000: local_timer_entry: vector=236\n")
    late = cycles_of(late_ns=100_000_000, monotonic_ns=2_100_000_000)  # at 7.1 s of the host's
    for before, after in (((950,), ()), ((8,), (8, 951))):
        guest = Late(sandbox=before)
        watched = await spikes.Watched.begin(guest)
        guest.sandbox = [*after]
        told = await watched.told(late, trace_of(*lines))
        assert (told["worst"][0]["cause"], told["clocks_uncertain_ns"]) == ("stopped", 1_000_000)
    guest = Late(900, sandbox=[950])  # whose processors are known
    watched = await spikes.Watched.begin(guest)
    assert (await watched.told(late, trace_of(*lines)))["worst"][0]["cause"] == "unrecorded"


async def test_where_processes_have_other_numbers_than_in_the_trace_no_guest_is_looked_for_by_these(monkeypatch):
    monkeypatch.setattr(spikes, "numbered_as_traced", lambda: False)
    watched = await spikes.Watched.begin(Late(900, sandbox=(950,)))
    assert (watched.vcpus, watched.sandbox, watched.offset) == ((), frozenset(), None)


async def test_what_a_guests_own_kernel_saw_is_told_beside_what_the_hosts_did():
    """The host's has recorded nothing of it; a name may have any byte."""
    told = "prev_comm=hog prev_pid=7 prev_prio=4 prev_state=S ==> next_comm=cycle-3 next_pid=42 next_prio=9"
    lines = [
        b"             h\xf6g-7       [001] d.h2.     1.000002: sched_waking: comm=cycle-3 pid=42 prio=9\n",
        b"             h\xf6g-7       [001] d..2.     1.000990: sched_switch: " + told.encode() + b"\n",
    ]
    watched = await spikes.Watched.begin(Late())
    traced = {spikes.KERNEL_TRACE: b"".join(lines), spikes.KERNEL_TRACE_CYCLES: 100}
    recorded = await watched.told(cycles_of() | traced, trace_of())
    first = recorded["worst"][0]
    assert (first["cause"], first["by"], first["course"]) == ("guest", "preempted: hog", [])
    assert sum(ns for _, _, ns in first["inside"]) == 1_000_000
    for lie in ("text", 10**9, ["x"]):
        with pytest.raises(ProtocolError, match="the result of cycle"):
            await watched.told(cycles_of() | traced | {spikes.KERNEL_TRACE: lie}, trace_of())
    for lie in (-1, 301, True, 1.0, "1", None):
        with pytest.raises(ProtocolError, match="kernel_trace_cycles"):
            await watched.told(cycles_of() | traced | {spikes.KERNEL_TRACE_CYCLES: lie}, trace_of())
    del traced[spikes.KERNEL_TRACE_CYCLES]
    with pytest.raises(ProtocolError, match="kernel_trace_cycles"):
        await watched.told(cycles_of() | traced, trace_of())


async def test_of_cycles_around_which_a_guest_has_sent_nothing_nothing_is_said():
    """Even where what it has sent of others is of that time, too."""
    told = "prev_comm=hog prev_pid=7 prev_prio=4 prev_state=S ==> next_comm=cycle-3 next_pid=42 next_prio=9"
    lines = [
        "             hog-7       [001] d.h2.     1.000002: sched_waking: comm=cycle-3 pid=42 prio=9\n",
        f"             hog-7       [001] d..2.     1.000990: sched_switch: {told}\n",
    ]
    traced = {spikes.KERNEL_TRACE: "".join(lines).encode(), spikes.KERNEL_TRACE_CYCLES: 2}
    recorded = await (await spikes.Watched.begin(Late())).told(cycles_of() | traced, trace_of())
    assert [bool(one["inside"]) for one in recorded["worst"]] == [True] * 2 + [False] * 98


def test_the_same_events_are_recorded_of_the_host_and_of_guests_but_those_of_guests_and_quotas():
    source = Path(__file__).parents[2] / "native" / "agent" / "src" / "kernel_trace.rs"
    needed, beside = re.findall(r"const (?:NEEDED|EVENTS): .*?;$", source.read_text(), re.DOTALL | re.MULTILINE)
    of_guests = re.findall(r'"(\w+/\w+)"', needed + beside)
    assert of_guests == [event for event in tracing.EVENTS if not event.startswith(("kvm/", "timer/"))]


async def test_clocks_that_are_not_known_well_beside_the_lateness_name_no_cause():
    watched = await spikes.Watched.begin(Late(900, takes_ns=120_000_000))
    told = await watched.told(cycles_of(thread=0, late_ns=100_000_000), trace_of())
    assert (told["clocks_uncertain_ns"], told["worst"][0]["cause"]) == (60_000_000, "unrecorded")
    assert "clocks" in told["worst"][0]["by"]


async def test_a_guests_clock_is_read_as_long_as_that_makes_it_better_known():
    """Ten answers take 64 ms, ten 32 ms and so on to 1 ms, and the guest reads its clock half-way."""
    read = []

    async def request(type_, *, paths, timeout_s):
        read.append(type_)
        takes_ns, sent_ns = 1_000_000 * max(64 >> len(read) // 10, 1), 6_000_000_000
        value = {"monotonic_ns": sent_ns + takes_ns // 2 - 5_000_000_000, "files": {}}
        return Reply(value=value, samples={}, sent_ns=sent_ns, finished_ns=sent_ns + takes_ns)

    offset = await spikes.Offset.read(SimpleNamespace(request=request))
    assert (offset.ns, offset.uncertainty_ns, len(read)) == (5_000_000_000, 500_000, 60 + spikes._IN_VAIN)


def test_a_time_of_the_guests_clock_is_put_between_the_readings_of_both_ends():
    offsets = [spikes.Offset(10_000, 90, 110), spikes.Offset(20_000, 190, 210)]  # at 9,900 and 19,800 of the guest's
    assert [spikes.by_host(ns, offsets) for ns in (9_900, 14_850, 19_800)] == [10_000, 15_000, 20_000]
    assert spikes.by_host(9_900, offsets[:1]) == 10_000


async def test_whoever_gives_a_trial_up_waits_until_nothing_reads_its_trace():
    """The kernel removes none that is read."""
    begun, given_up, ended = threading.Event(), threading.Event(), threading.Event()

    def lines():
        begun.set()
        given_up.wait(60)
        ended.set()
        yield "# the last\n"

    trace = SimpleNamespace(lines=lines, abandon=given_up.set, kib=64, absent=())
    reading = asyncio.create_task((await spikes.Watched.begin(Late())).told({"worst": [], "threads": []}, trace))
    await asyncio.to_thread(begun.wait, 60)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert ended.is_set()
