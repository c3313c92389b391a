"""Hosts of a fleet that were away for a while, in what state they come back, and what others may do there."""

import asyncio
import datetime
from pathlib import Path
from unittest import mock

import pytest
from cryptography import x509
from fleet_runs import FakeCluster, across, as_another, execute, fleet_plan, go_on, in_process, kind_of, lost
from suites.simulated_runs import Recorder

from virtgauge.execution.run import InterruptedRunError
from virtgauge.fleet import coordinator, work
from virtgauge.fleet.cluster import Cluster, SchedulerLostError, TlsFiles, WorkerLostError, own_cluster
from virtgauge.fleet.messages import (
    Assignment,
    Assistance,
    BatchAnswer,
    Enlistment,
    Enrolment,
    MachineIdentity,
    Refusal,
    pack,
    unpack,
)
from virtgauge.fleet.roster import HostEnrolment
from virtgauge.ledger.records import BLOCKS_PER_HOST
from virtgauge.ledger.store import Ledger, LedgerWriteError

pytestmark = pytest.mark.slow

BATCHES = 2 * 2  # platforms, repetitions
LOSSES = [WorkerLostError("the worker was lost"), SchedulerLostError("the scheduler was lost")]
TOKEN = "0123456789abcdef"


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch, private_state, any_agent):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def batches(monkeypatch):
    """Those that were begun; each lasts for some time."""
    begun, really = [], work.Workplace.measure

    async def measure(place, assignment, *given):
        begun.append((assignment.block, assignment.arm))
        await asyncio.sleep(1.5)
        return await really(place, assignment, *given)

    monkeypatch.setattr(work.Workplace, "measure", measure)
    return begun


class Adrift(FakeCluster):
    """Connections are lost in this batch, which goes on; then ``meanwhile`` happens."""

    def __init__(self, loss, meanwhile=None):
        super().__init__()
        self._losses, self._meanwhile = [None, loss], meanwhile

    async def call(self, worker, request):
        loss = self._losses.pop(0) if self._losses and kind_of(request) is Assignment else None
        if loss is None:
            return await super().call(worker, request)
        self._now = worker
        self.task = asyncio.ensure_future(work.answer(request))
        await asyncio.sleep(0.1)
        if self._meanwhile is not None:
            await self._meanwhile()
        raise loss

    async def start_anew(self, host="north"):
        """The machine, and so its worker."""
        await work.end()
        self.machines[host] = MachineIdentity(self.machines[host].machine_id, "another boot", None)


@pytest.mark.parametrize("loss", LOSSES, ids=["worker", "scheduler"])
def test_a_batch_goes_on_under_a_lost_connection_and_is_waited_for_longer_than_an_absent_host(loss, batches, tmp_path):
    plan = fleet_plan("north")
    assert plan.fleet.wait_s == 1  # less than a batch takes
    fleet = execute(plan, tmp_path / "run", Adrift(loss))
    assert fleet.complete, fleet.notices
    assert len(batches) == len(set(batches)) == BATCHES
    assert "its batch goes on" in fleet.notices


@pytest.mark.parametrize("loss", LOSSES, ids=["worker", "scheduler"])
def test_a_host_that_was_started_anew_meanwhile_is_taken_on_again(loss, tmp_path):
    cluster = Adrift(loss, meanwhile=lambda: cluster.start_anew())
    fleet = execute(fleet_plan("north"), tmp_path / "run", cluster)
    assert fleet.complete, fleet.notices
    with Ledger.open(tmp_path / "run") as ledger:
        assert len({trial.key for trial in ledger.trials()}) == len(ledger.trials()) == 2 * BATCHES


def test_a_worker_that_answers_for_another_boot_without_a_word_lies(tmp_path):
    cluster = FakeCluster()
    cluster.faults = {"north": [None, as_another(boot_id="another")]}
    fleet = execute(fleet_plan("north"), tmp_path / "run", cluster)
    assert not fleet.complete
    assert "the worker lies about its identity" in fleet.notices


class Kernel:
    """What the fingerprint of north tells; that of others stays."""

    def __init__(self, monkeypatch):
        self.version = "6.1"
        monkeypatch.setattr(work, "fingerprint", self.fingerprint)

    def fingerprint(self):
        return {"identity": {"kernel": self.version if work._signature().worker == "north" else "6.1"}}


def test_nothing_that_another_kernel_could_have_measured_is_ever_merged(tmp_path, monkeypatch):
    kernel, begun, really = Kernel(monkeypatch), [], work.Workplace.measure

    async def measure(place, assignment, *given):
        begun.append(kernel.version)
        return await really(place, assignment, *given)

    monkeypatch.setattr(work.Workplace, "measure", measure)

    async def start_another():
        kernel.version = "6.12"
        await cluster.start_anew()

    cluster = Adrift(LOSSES[0], start_another)
    fleet = execute(fleet_plan("north"), tmp_path / "run", cluster)
    assert not fleet.complete
    assert "host 'north' is not as it was when the run began: kernel: '6.1' then, '6.12' now" in fleet.notices
    assert begun == ["6.1"] * 2  # one batch, and the one that was lost
    kernel.version = "6.1"
    back = FakeCluster()
    back.machines = {"north": MachineIdentity(cluster.machines["north"].machine_id, "a third boot", None)}
    assert go_on(tmp_path / "run", back).complete
    assert begun == ["6.1"] * (2 + BATCHES - 1)
    with Ledger.open(tmp_path / "run") as ledger:
        assert len(ledger.trials()) == 2 * BATCHES


def test_a_host_that_was_set_aside_for_what_it_is_now_is_no_tester_either(tmp_path, monkeypatch):
    """Though it was not started anew: microcode, and which processors are there, may change without."""
    kernel, cluster = Kernel(monkeypatch), FakeCluster()
    hosts = [{"name": "north", "measured": False}, {"name": "south"}]
    cluster.faults = {"south": [lost]}
    assert not execute(across(hosts=hosts, losses=0), tmp_path / "run", cluster).complete
    kernel.version = "another"
    again = FakeCluster()
    again.machines = cluster.machines
    fleet = go_on(tmp_path / "run", again)
    assert not fleet.complete and again.assisted == []


@pytest.mark.parametrize("kernel_after", ["6.1", "6.12"])
def test_a_testers_host_that_was_started_anew_while_nobody_asked_it_is_taken_on_or_refused(
    kernel_after, tmp_path, monkeypatch
):
    kernel, really = Kernel(monkeypatch), FakeCluster.call

    async def call(cluster, worker, request):
        answer = await really(cluster, worker, request)
        if kind_of(request) is Assistance and len(cluster.assisted) == 1:
            kernel.version = kernel_after
            identity = cluster.machines["north"].machine_id
            cluster.machines["north"] = MachineIdentity(identity, "another boot", None)
        return answer

    monkeypatch.setattr(FakeCluster, "call", call)
    hosts = [{"name": "north", "measured": False}, {"name": "south"}]
    cluster = FakeCluster()
    fleet = execute(across(hosts=hosts, losses=0), tmp_path / "run", cluster)
    assert fleet.complete is (kernel_after == "6.1"), fleet.notices
    assert ("host 'north' is not as it was" in fleet.notices) is (kernel_after == "6.12")
    assert "lies" not in fleet.notices


def test_the_tester_that_ended_while_the_guests_host_was_away_is_no_second_loss(tmp_path):
    cluster = FakeCluster()
    unheard = pack(Refusal("the tester's host north cannot be reached", None, tester_lost=True))
    cluster.faults = {"south": [lost, lambda _: unheard]}
    fleet = execute(across(losses=1), tmp_path / "run", cluster)
    assert fleet.complete, fleet.notices


def test_a_testers_host_that_does_not_come_back_is_waited_for_and_not_asked_without_end(tmp_path):
    class Lost(FakeCluster):
        async def call(self, worker, request):
            if kind_of(request) is Assistance:
                self.assisted.append(worker)
                self.gone.add(worker)
                raise SchedulerLostError("the scheduler was lost, and is back")
            return await super().call(worker, request)

    cluster = Lost()
    fleet = execute(across(), tmp_path / "run", cluster)
    assert not fleet.complete
    assert "host 'north' is not available within 1 s" in fleet.notices
    assert len(cluster.assisted) == 1


def test_a_run_is_complete_although_nobody_could_be_told_so(tmp_path):
    class Deaf(FakeCluster):
        async def leave(self, token, workers):
            raise SchedulerLostError("the scheduler was lost")

    fleet = execute(fleet_plan("north"), tmp_path / "run", Deaf())
    assert fleet.complete
    assert "until `virtgauge clean --fleets` there: the scheduler was lost" in fleet.notices
    with Ledger.open(tmp_path / "run") as ledger:
        assert ledger.events()[-1].kind == "completed"


async def test_a_scheduler_that_goes_away_while_workers_are_told_is_lost_in_words():
    async with own_cluster("127.0.0.1", TlsFiles.temporary()) as (cluster, _):

        async def workers():
            return "one", {"north": "tls://127.0.0.1:1"}

        async def run(*_, **__):
            raise ConnectionResetError("gone")

        cluster._workers, real = workers, cluster._client
        cluster._client = type("Client", (), {"run": staticmethod(run)})
        with pytest.raises(SchedulerLostError, match="was lost"):
            await cluster.leave(TOKEN, ["north"])
        await cluster.stop(TOKEN, ["south"])  # which is not there

        async def fails(*_, **__):
            return {"tls://127.0.0.1:1": ConnectionRefusedError("unheard")}

        cluster._client = type("Client", (), {"run": staticmethod(fails)})
        with pytest.raises(WorkerLostError, match="does not stop: unheard"):
            await cluster.stop(TOKEN, ["north"])
        cluster._client = real


@pytest.mark.parametrize("heard", [True, False])
def test_a_defect_on_one_host_costs_that_host_and_is_told_on_both_ends(heard, tmp_path, monkeypatch, capsys):
    really = work.Workplace.measure

    async def measure(place, assignment, *given):
        if assignment.first_block:
            raise RuntimeError("boom")
        return await really(place, assignment, *given)

    monkeypatch.setattr(work.Workplace, "measure", measure)
    if not heard:
        monkeypatch.setattr(work, "tell", mock.Mock(side_effect=BrokenPipeError))
    fleet = execute(fleet_plan("north", "south"), tmp_path / "run", FakeCluster())
    assert not fleet.complete
    assert "host south is set aside with 4 batches to do: a defect of virtgauge there: RuntimeError('boom')" in (
        fleet.notices
    )
    assert ("Traceback" in capsys.readouterr().err) is heard
    with Ledger.open(tmp_path / "run") as ledger:
        assert [trial.block // BLOCKS_PER_HOST for trial in ledger.trials()] == [0] * 2 * BATCHES


@pytest.mark.parametrize("error", [LedgerWriteError(Path("run"), OSError(28, "full")), RuntimeError("boom")])
def test_workers_are_stopped_whatever_ends_the_coordinator(error, tmp_path, monkeypatch):
    def merge(*_):
        raise error

    monkeypatch.setattr(coordinator.Merger, "merge", merge)
    cluster = FakeCluster()
    with pytest.raises(type(error)):
        execute(fleet_plan("north"), tmp_path / "run", cluster)
    assert cluster.stopped
    assert work._state.place is None
    with Ledger.open(tmp_path / "run") as ledger:
        assert ledger.events()[-1].kind == "ended incomplete"


def test_a_complete_run_that_is_interrupted_as_its_workers_are_told_is_recorded_as_complete(tmp_path):
    class Slow(FakeCluster):
        async def leave(self, token, workers):
            raise asyncio.CancelledError

    with pytest.raises(InterruptedRunError):
        execute(fleet_plan("north"), tmp_path / "run", Slow())
    with Ledger.open(tmp_path / "run") as ledger:
        assert ledger.events()[-1].kind == "completed"


BOOT = "boot of north"
ASSISTANCE = Assistance(TOKEN, BOOT)


def assignment(token=TOKEN):
    """The first batch of a host."""
    text = fleet_plan("north").to_toml()
    return Assignment(token, 0, text, ("a", "b"), 0, "", "a", (), (), boot_id=BOOT)


async def asked(cluster, request, worker="north"):
    data = await cluster.call(worker, pack(request))
    return unpack(data, (Refusal, Enrolment, BatchAnswer, work.Assisting), "the worker")


async def test_a_run_can_be_stopped_while_a_host_makes_itself_ready(monkeypatch):
    opening, cluster = asyncio.Event(), FakeCluster()

    async def opened(_):
        opening.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(work.Workplace, "open", opened)
    with in_process(cluster):
        waiting = asyncio.ensure_future(asked(cluster, assignment()))
        await opening.wait()
        await work.stop("f" * 16)  # another run
        assert not waiting.done()
        await work.stop(TOKEN)
        assert (await asyncio.wait_for(waiting, 5)).message == "the batch was stopped"


async def test_nobody_else_takes_the_machine_on_which_a_tester_is_waited_for():
    cluster, plan = FakeCluster(), fleet_plan("north").to_toml()
    with in_process(cluster):
        try:
            assert isinstance(await asked(cluster, ASSISTANCE), work.Assisting)
            for other in (Enlistment(plan), Assistance("f" * 16, BOOT), assignment("f" * 16)):
                refused = await asked(cluster, other)
                assert refused.busy and "the tester of a run's guests is here" in refused.message
            assert isinstance(await asked(cluster, ASSISTANCE), work.Assisting)
            await cluster.leave(TOKEN, ["north"])
            assert isinstance(await asked(cluster, Enlistment(plan)), Enrolment)
        finally:
            await work.end()


async def test_a_stop_is_heard_while_what_was_open_before_is_given_back(monkeypatch):
    closing, cluster, really = asyncio.Event(), FakeCluster(), work.PeerServer.close

    async def close(server):
        closing.set()
        await asyncio.sleep(0.2)
        await really(server)

    monkeypatch.setattr(work.PeerServer, "close", close)
    with in_process(cluster):
        await asked(cluster, ASSISTANCE)
        waiting = asyncio.ensure_future(asked(cluster, assignment()))
        await closing.wait()
        await work.stop(TOKEN)
        assert (await asyncio.wait_for(waiting, 5)).message == "the batch was stopped"
        assert work._state.place is None


async def test_what_a_killed_command_left_under_way_is_ended_by_who_resumes_its_run(monkeypatch):
    begun, cluster = asyncio.Event(), FakeCluster()

    async def measure(*_):
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(work.Workplace, "measure", measure)
    plan = fleet_plan("north", fleet={"wait_s": 20})
    (host,) = plan.fleet.hosts
    with in_process(cluster):
        cluster._now = "north"
        left = asyncio.ensure_future(work.answer(pack(assignment())))
        await begun.wait()
        agent_sha256 = cluster.signature().agent_sha256
        enrolment = HostEnrolment(plan.fleet, agent_sha256, cluster, Recorder(), plan.to_toml())
        enrolment.token = TOKEN
        await asyncio.wait_for(enrolment.enrol(host), 10)
        assert unpack(await left, [Refusal], "the worker").message == "the batch was stopped"


class Place:
    """Something that is open for a run."""

    origin = assignment()

    def close(self):
        return ["two boots stood still"]


async def test_a_batch_that_begins_as_the_idle_machine_is_given_back_keeps_it(monkeypatch):
    place = Place()
    monkeypatch.setattr(work._state, "place", place)
    monkeypatch.setattr(work._state, "current", asyncio.ensure_future(asyncio.sleep(60)))
    work._close_soon()
    await asyncio.sleep(0)
    assert work._state.place is place
    work._state.current.cancel()
    await asyncio.sleep(0)
    work._close_soon()
    await work._state.closing
    assert work._state.place is None
    assert await work.leave(TOKEN) == ["two boots stood still"]  # what platforms remarked is told all the same
    assert await work.leave(TOKEN) == []
    work._stay()


def test_certificates_of_a_run_hold_where_a_clock_is_some_hours_behind():
    made = x509.load_pem_x509_certificate(TlsFiles.temporary().certificate.encode())
    now = datetime.datetime.now(datetime.UTC)
    assert made.not_valid_before_utc < now - datetime.timedelta(hours=23)
    assert made.not_valid_after_utc > now + datetime.timedelta(days=364)


def test_the_fake_cluster_is_asked_as_the_real_one():
    """What these tests rely on."""
    for name in ("present", "call", "stop", "leave"):
        real, fake = getattr(Cluster, name).__code__, getattr(FakeCluster, name).__code__
        assert real.co_varnames[: real.co_argcount] == fake.co_varnames[: fake.co_argcount]
