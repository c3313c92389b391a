"""A fleet's run through lost, lying and busy workers: every trial once, on its own host, everything said in words."""

import dataclasses
import json
from unittest import mock

import msgpack
import pytest
from fleet_runs import FakeCluster, across, as_another, execute, fleet_plan, go_on, in_process, kind_of, lost
from suites.simulated_runs import Recorder

from virtgauge.errors import UnavailableError, UsageError
from virtgauge.execution import run as single
from virtgauge.execution.progress import ProgressDisplay
from virtgauge.execution.run import OccupiedError
from virtgauge.fleet import run as fleet_run
from virtgauge.fleet import work
from virtgauge.fleet.batches import Slots, fleet_status
from virtgauge.fleet.cluster import WorkerLostError
from virtgauge.fleet.messages import (
    Assistance,
    Enrolment,
    ForeignMessageError,
    MachineIdentity,
    Refusal,
    Signature,
    pack,
    unpack,
)
from virtgauge.fleet.roster import DistrustError
from virtgauge.folders import cache_root
from virtgauge.ledger.read_only import HostLedger
from virtgauge.ledger.records import BLOCKS_PER_HOST, TESTER
from virtgauge.ledger.store import Ledger

pytestmark = pytest.mark.slow

TRIALS_OF_A_HOST = 2 * 2 * 2  # platforms, cells, repetitions


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch, private_state, any_agent):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def trials_of(folder):
    with Ledger.open(folder) as ledger:
        return ledger.trials()


def assert_every_trial_once(folder, hosts=2):
    trials = trials_of(folder)
    assert len(trials) == hosts * TRIALS_OF_A_HOST == len({trial.key for trial in trials})
    with Ledger.open(folder) as ledger:
        for trial in trials:
            assert ledger.histograms_of(trial.trial_id)[trial.probe].n == 2000
            assert len(ledger.samples(trial.trial_id, "reservoir")) == 10
        guests = {guest.guest_id: guest for guest in ledger.guests()}
        assert {(guests[t.guest_id].arm, guests[t.guest_id].block) for t in trials} == {
            (t.arm, t.block) for t in trials
        }


def boasting(*path):
    """The same answer with a number that no row can hold."""

    def answered(answer):
        message = inner = msgpack.unpackb(answer, strict_map_key=False)
        for name in ("content", *path):
            inner = inner[name]
        inner["evil"] = 2**63
        return msgpack.packb(message)

    return answered


@pytest.mark.parametrize("path", [("trials", 0, "record", "result"), ("guests", 0, "facts")])
def test_figures_that_no_row_can_hold_cost_their_host(path, tmp_path):
    cluster = FakeCluster()
    cluster.faults = {"south": [boasting(*path)]}
    fleet = execute(fleet_plan("north", "south"), tmp_path / "run", cluster)
    assert not fleet.complete
    assert "host south is set aside with 4 batches to do: " in fleet.notices
    assert f"cannot be recorded: {path[-1]} has a number of 16 hexadecimal digits" in fleet.notices
    with Ledger.open(tmp_path / "run") as ledger:
        ledger.check()
        assert {trial.block // BLOCKS_PER_HOST for trial in ledger.trials()} == {0}
        assert {guest.block // BLOCKS_PER_HOST for guest in ledger.guests()} == {0}


def test_a_host_whose_fingerprint_no_ledger_can_hold_is_refused(tmp_path):
    signature = Signature("south", MachineIdentity("0", "1", None), "1", "0")
    enrolment = boasting("fingerprint")(pack(Enrolment(signature, {}, (), ())))
    with pytest.raises(ForeignMessageError, match=r"the worker of south answers .* a number of 16 hexadecimal digits"):
        unpack(enrolment, (Enrolment,), "the worker of south")


def test_hosts_are_measured_apart_and_merged_into_one_ledger(tmp_path):
    cluster = FakeCluster()
    fleet = execute(fleet_plan("north", "south"), tmp_path / "run", cluster)
    assert fleet.complete
    assert_every_trial_once(tmp_path / "run")
    assert {trial.block for trial in trials_of(tmp_path / "run")} == {0, 1, BLOCKS_PER_HOST, BLOCKS_PER_HOST + 1}
    with Ledger.open(tmp_path / "run") as ledger:
        assert [host.name for host in ledger.manifest().hosts] == ["north", "south"]
        hosts, _, course = fleet_status(ledger)
    assert [(host.done, host.total, host.valid) for host in hosts] == [(8, 8, 8)] * 2
    assert course == "complete"
    assert cluster.left
    assert not list((cache_root() / "fleet").iterdir())  # workers keep nothing of a complete run


def test_who_resumes_it_as_the_run_of_one_host_is_told_the_command_to_copy(tmp_path):
    execute(fleet_plan("north", "south"), tmp_path / "my run", FakeCluster())
    with pytest.raises(UsageError, match="is the run of a fleet") as refused:
        single.resume_run(tmp_path / "my run", Recorder())
    assert refused.value.remedy == f"virtgauge fleet resume '{tmp_path}/my run'"


def test_one_host_of_a_fleet_can_be_looked_at_alone(tmp_path):
    execute(fleet_plan("north", "south"), tmp_path / "run", FakeCluster())
    with HostLedger.of(tmp_path / "run", "south") as ledger:
        assert {trial.block // BLOCKS_PER_HOST for trial in ledger.trials()} == {1}
        assert {guest.block // BLOCKS_PER_HOST for guest in ledger.guests()} == {1}
        assert ledger.manifest().hosts == ()
    with pytest.raises(UsageError, match="its hosts are north, south"):
        HostLedger.of(tmp_path / "run", "west")


def test_a_batch_whose_answer_was_lost_is_answered_again_and_counted_once(tmp_path):
    cluster = FakeCluster()
    cluster.faults = {"north": [None, lost, lost], "south": [lost]}
    fleet = execute(fleet_plan("north", "south"), tmp_path / "run", cluster)
    assert fleet.complete
    assert_every_trial_once(tmp_path / "run")
    assert len(cluster.measured) == 8 + 3
    assert fleet.notices.count("its batch goes on when it is back") == 3
    with Ledger.open(tmp_path / "run") as ledger:
        assert len(ledger.guests()) == 8  # nothing was launched anew for an answer that was kept


def test_a_batch_that_always_loses_its_worker_sets_its_host_aside_and_no_other_measures_it(tmp_path):
    cluster = FakeCluster()
    cluster.faults = {"north": [lost] * 10}
    fleet = execute(fleet_plan("north", "south", fleet={"losses": 2}), tmp_path / "run", cluster)
    assert not fleet.complete
    assert "host north is set aside with 4 batches to do" in fleet.notices
    assert "3 times in one batch" in fleet.notices
    trials = trials_of(tmp_path / "run")
    assert len(trials) == TRIALS_OF_A_HOST
    assert {trial.block // BLOCKS_PER_HOST for trial in trials} == {1}

    again = go_on(tmp_path / "run", FakeCluster())
    assert again.complete
    assert_every_trial_once(tmp_path / "run")


def test_a_worker_that_stays_away_is_waited_for_no_longer_than_the_plan_says(tmp_path):
    cluster = FakeCluster()
    cluster.faults = {"north": [lambda answer: [cluster.gone.add("north"), lost(answer)]]}
    fleet = execute(fleet_plan("north", "south"), tmp_path / "run", cluster)
    assert not fleet.complete
    assert "is not available within 1 s" in fleet.notices
    assert len(trials_of(tmp_path / "run")) == TRIALS_OF_A_HOST


def test_a_worker_that_lies_about_its_identity_is_not_used_and_its_figures_are_discarded(tmp_path):
    cluster = FakeCluster()
    cluster.faults = {"south": [None, as_another(machine_id="f" * 32)]}
    fleet = execute(fleet_plan("north", "south"), tmp_path / "run", cluster)
    assert not fleet.complete
    assert "the worker lies about its identity" in fleet.notices
    assert cluster.measured.count("south") == 2
    of_south = [trial for trial in trials_of(tmp_path / "run") if trial.block >= BLOCKS_PER_HOST]
    assert len(of_south) == 2  # of the batch before the lie


def test_two_workers_of_one_machine_are_refused_before_anything_is_measured(tmp_path):
    cluster = FakeCluster()
    cluster.machines = {name: MachineIdentity(name[0] * 32, "one boot", None) for name in ("north", "south")}
    here = {"workers": None, "listen": "127.0.0.1", "one_machine": False}
    hosts = [{"name": name, "address": f"{name}.example"} for name in ("north", "south")]
    plan = fleet_plan("north", "south", fleet=here | {"hosts": hosts})
    cluster.machines = {host["address"]: MachineIdentity(host["name"][0] * 32, "one boot", None) for host in hosts}
    with pytest.raises(DistrustError, match="'north' and 'south' are one machine"):
        execute(plan, tmp_path / "run", cluster)
    assert not (tmp_path / "run").exists()


def test_a_host_that_never_comes_is_named_with_the_command_that_would_bring_it(tmp_path):
    cluster = FakeCluster()
    cluster.gone = {"south"}
    with pytest.raises(UnavailableError, match=r"host 'south' is not available.*\n.*virtgauge fleet worker"):
        execute(fleet_plan("north", "south"), tmp_path / "run", cluster)
    assert not (tmp_path / "run").exists()


def test_a_busy_machine_is_waited_for_in_words(tmp_path):
    cluster = FakeCluster()
    words = "another virtgauge run is measuring"
    with single.machine_to_ourselves(ProgressDisplay()), pytest.raises(UnavailableError, match=words):
        execute(fleet_plan("north"), tmp_path / "run", cluster)


def test_a_platform_that_only_some_hosts_have_is_measured_there(tmp_path):
    cluster = FakeCluster()
    real = cluster.call

    async def lacking(worker, request):
        answer = await real(worker, request)
        message = msgpack.unpackb(answer, strict_map_key=False)
        if worker == "north" and message["kind"] == "Enrolment":
            message["content"]["arms"][1] |= {"usable": False, "reason": "there is none", "fix": "install it"}
        return msgpack.packb(message)

    cluster.call = lacking
    fleet = execute(fleet_plan("north", "south"), tmp_path / "run", cluster)
    assert fleet.complete
    assert "host north: skipped b: there is none (to enable it: install it)" in fleet.notices
    arms = {(trial.arm, trial.block // BLOCKS_PER_HOST) for trial in trials_of(tmp_path / "run")}
    assert arms == {("a", 0), ("a", 1), ("b", 1)}
    with HostLedger.of(tmp_path / "run", "north") as ledger:
        assert [arm.usable for arm in ledger.manifest().arms] == [True, False]


def test_a_resumed_host_that_became_another_machine_is_set_aside(tmp_path):
    cluster = FakeCluster()
    cluster.faults = {"north": [lost] * 10}
    execute(fleet_plan("north", "south", fleet={"losses": 0}), tmp_path / "run", cluster)
    replaced = FakeCluster()
    replaced.machines = dict(cluster.machines) | {"north": MachineIdentity("e" * 32, "boot of north", None)}
    fleet = go_on(tmp_path / "run", replaced)
    assert not fleet.complete
    assert "host 'north' is not the machine that it was" in fleet.notices


def test_a_fleet_is_measured_and_resumed_by_its_own_commands_only(tmp_path):
    plan = fleet_plan("north", repetitions=1)
    with pytest.raises(UsageError, match="virtgauge fleet run"):
        single.start_run(plan, "test", tmp_path / "alone", ProgressDisplay())
    execute(plan, tmp_path / "run", FakeCluster())
    with pytest.raises(UsageError, match="virtgauge fleet resume"):
        single.resume_run(tmp_path / "run", ProgressDisplay())
    without = plan.model_copy(update={"fleet": None})
    with pytest.raises(UsageError, match=r"no \[fleet\]"):
        execute(without, tmp_path / "other", FakeCluster())


def test_resuming_a_complete_fleet_measures_nothing(tmp_path):
    execute(fleet_plan("north", "south"), tmp_path / "run", FakeCluster())
    cluster = FakeCluster()
    assert go_on(tmp_path / "run", cluster).complete
    assert cluster.measured == []
    assert_every_trial_once(tmp_path / "run")


CLOSE = {"suite": "timing", "measure": "timer_cost.p50", "unit": "ns", "at_most": 1000}  # which all meet


def repetitions_of(folder):
    """By host, arm and cell, which there are."""
    found = {}
    for trial in trials_of(folder):
        host, repetition = divmod(trial.block, BLOCKS_PER_HOST)
        found.setdefault((host, trial.arm, trial.factors["function"]), set()).add(repetition)
    return found


def test_repetitions_are_added_on_every_host_alike_until_each_requirement_is_decided(tmp_path):
    plan = fleet_plan("north", "south", require=[CLOSE], budget={"repetitions": 30})
    fleet = execute(plan, tmp_path / "run", FakeCluster())
    assert fleet.complete
    assert "repetitions 3 to at most 30 follow on each host" in fleet.notices
    assert "every requirement is decided after " in fleet.notices
    found = repetitions_of(tmp_path / "run")
    (alike,) = {frozenset(own) for own in found.values()}
    assert alike == set(range(len(alike))) and 2 < len(alike) < 30
    again = go_on(tmp_path / "run", FakeCluster())
    assert again.complete and repetitions_of(tmp_path / "run") == found


def test_only_what_is_open_is_measured_further(tmp_path):
    only_b = CLOSE | {"platforms": ["b"], "conditions": {"function": "rdtsc"}}
    fleet = execute(
        fleet_plan("north", "south", require=[only_b], budget={"repetitions": 30}), tmp_path / "run", FakeCluster()
    )
    assert fleet.complete
    longest = {key: max(own) + 1 for key, own in repetitions_of(tmp_path / "run").items()}
    assert {longest[host, arm, "rdtscp"] for host in (0, 1) for arm in "ab"} == {2}
    assert longest[0, "b", "rdtsc"] == longest[1, "b", "rdtsc"] > 2


def test_a_budget_that_is_spent_is_told_and_a_resumed_fleet_goes_on_with_it(tmp_path):
    plan = fleet_plan("north", "south", require=[CLOSE], budget={"repetitions": 3})
    cluster = FakeCluster()
    cluster.faults["south"] = [None] * 4 + [lost] * 4  # in the first repetition that was added
    fleet = execute(plan, tmp_path / "run", cluster)
    assert not fleet.complete and "is set aside" in fleet.notices
    again = go_on(tmp_path / "run", FakeCluster())
    assert again.complete
    assert {frozenset(own) for own in repetitions_of(tmp_path / "run").values()} == {frozenset({0, 1, 2})}
    assert "the budget of 3 repetitions is spent" in again.notices


def test_nothing_is_added_while_a_host_is_not_there(tmp_path):
    """Though all that each host has in any case is complete: its figures would be missing."""
    plan = fleet_plan("north", "south", require=[CLOSE], budget={"repetitions": 30})
    cluster = FakeCluster()
    cluster.faults["south"] = [None] * 4 + [lost] * 4  # in the first repetition that was added
    execute(plan, tmp_path / "run", cluster)
    before = repetitions_of(tmp_path / "run")
    assert {max(own) for (host, *_), own in before.items() if host == 0} == {2}
    alone = FakeCluster()
    alone.gone = {"south"}
    fleet = go_on(tmp_path / "run", alone)
    assert not fleet.complete
    assert "nothing is added while a host is set aside" in fleet.notices
    assert repetitions_of(tmp_path / "run") == before
    assert go_on(tmp_path / "run", FakeCluster()).complete
    (alike,) = {frozenset(own) for own in repetitions_of(tmp_path / "run").values()}
    assert alike == set(range(len(alike))) and len(alike) > 3


def test_conclusions_of_papers_are_not_repeated_for_on_a_fleet(tmp_path):
    plan = fleet_plan("north", require=[CLOSE], budget={"repetitions": 3, "claims": True})
    with pytest.raises(UsageError, match=r"budget\.claims"):
        execute(plan, tmp_path / "run", FakeCluster())


def test_old_ledgers_without_hosts_still_open(tmp_path):
    single.start_run(
        fleet_plan("north").model_copy(update={"fleet": None}), "test", tmp_path / "run", ProgressDisplay()
    )
    with Ledger.open(tmp_path / "run") as ledger:
        old = dataclasses.asdict(ledger.manifest())
        del old["hosts"]
        with ledger._db as db:
            db.execute("UPDATE manifest SET value = ?", (json.dumps(old),))
        assert ledger.manifest().hosts == ()


def assert_each_once(folder):
    trials = trials_of(folder)
    assert len(trials) == len({trial.key for trial in trials}) == 2 * 2 * (2 + 1)  # hosts, platforms, cells


def test_a_suite_with_its_tester_elsewhere_claims_both_hosts_at_once(tmp_path, monkeypatch):
    claims, real, cluster = [], Slots.claim, FakeCluster()
    monkeypatch.setattr(Slots, "claim", lambda slots, *hosts: claims.append(hosts) or real(slots, *hosts))
    assert execute(across(), tmp_path / "run", cluster).complete
    with Ledger.open(tmp_path / "run") as ledger:
        batches = {(t.suite, t.arm, t.block // BLOCKS_PER_HOST) for t in ledger.trials()}
        told = [event.detail for event in ledger.events() if event.kind == TESTER]
    assert len(batches) == len(claims) == 2 * 2 * 2  # suites, platforms, hosts
    assert sorted(claims) == [("north",)] * 4 + [("south",)] * 2 + [("south", "north")] * 2
    assert cluster.assisted == ["north"] * 2
    assert told == ["suite.bandwidth of south: its tester is on north, joined by tunnels (VXLAN)"]


def test_a_host_that_is_only_a_tester_is_not_measured(tmp_path):
    hosts = [{"name": "north", "measured": False}, {"name": "south"}]
    assert execute(across(hosts=hosts), tmp_path / "run", FakeCluster()).complete
    assert {trial.block // BLOCKS_PER_HOST for trial in trials_of(tmp_path / "run")} == {1}
    with Ledger.open(tmp_path / "run") as ledger:
        north, south = ledger.manifest().hosts
    assert (north.arms, south.arms) == ((), ("a", "b"))


def test_a_tester_that_does_not_answer_the_guests_is_asked_again_as_often_as_the_plan_allows(tmp_path):
    def unheard(answer):
        return pack(Refusal("the tester's host north cannot be reached", None, tester_lost=True))

    cluster = FakeCluster()
    cluster.faults = {"south": [unheard] * 9}
    fleet = execute(across(losses=2), tmp_path / "run", cluster)
    assert not fleet.complete
    assert "host south is set aside" in fleet.notices
    cluster = FakeCluster()
    cluster.faults = {"south": [unheard]}
    assert go_on(tmp_path / "run", cluster).complete
    assert_each_once(tmp_path / "run")


def test_a_tester_whose_worker_is_lost_is_enrolled_again(tmp_path):
    cluster, losses = FakeCluster(), iter([True])
    really = cluster.call

    async def call(worker, request):
        if kind_of(request) is Assistance and next(losses, False):
            raise WorkerLostError("the worker was lost")
        return await really(worker, request)

    cluster.call = call
    assert execute(across(), tmp_path / "run", cluster).complete
    assert_each_once(tmp_path / "run")


def test_a_host_that_something_else_measures_on_is_no_tester_until_it_is_free(tmp_path):
    cluster = FakeCluster()
    folder = tmp_path / "run"
    plan = across(wait_s=1, losses=0)
    with in_process(cluster):
        really = work.PeerServer.listen
        asked = []

        async def busy_once(*given, **named):
            asked.append(given)
            if len(asked) == 1:
                raise OccupiedError("another run is measuring", None)
            return await really(*given, **named)

        with mock.patch.object(work.PeerServer, "listen", busy_once):
            assert fleet_run.start_fleet(plan, "test", folder, Recorder())
    assert len(asked) == 3
    assert_each_once(folder)
