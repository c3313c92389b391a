"""Hosts of a fleet that were away for a while, in what state they come back, and what others may do there."""

import asyncio
import datetime
from pathlib import Path

import pytest
from cryptography import x509
from fleet_runs import FakeCluster, across, as_another_boot, execute, fleet_plan, in_process, kind_of

from virtgauge.fleet import coordinator, work, workplace
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
    begun, really = [], workplace.Workplace.measure

    async def measure(place, assignment, *given):
        begun.append((assignment.block, assignment.arm))
        await asyncio.sleep(1.5)
        return await really(place, assignment, *given)

    monkeypatch.setattr(workplace.Workplace, "measure", measure)
    return begun


class Adrift(FakeCluster):
    """Connections are lost in this batch, which goes on; then ``meanwhile`` happens."""

    def __init__(self, loss, number=1, meanwhile=lambda: None):
        super().__init__()
        self._losses, self._meanwhile = [*[None] * number, loss], meanwhile

    async def call(self, worker, request):
        loss = self._losses.pop(0) if self._losses and kind_of(request) is Assignment else None
        if loss is None:
            return await super().call(worker, request)
        self._now = worker
        self.task = asyncio.ensure_future(work.answer(request))
        await asyncio.sleep(0.1)
        self._meanwhile()
        raise loss

    def start_anew(self):
        """The machine, and so its worker."""
        self.task.cancel()
        work._state.current = None
        self.machines["north"] = MachineIdentity(self.machines["north"].machine_id, "another boot", None)


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


def test_a_host_that_was_not_away_cannot_have_been_started_anew(tmp_path):
    cluster = FakeCluster()
    cluster.faults = {"north": [None, as_another_boot]}
    fleet = execute(fleet_plan("north"), tmp_path / "run", cluster)
    assert not fleet.complete
    assert "the worker lies about its identity" in fleet.notices


def test_a_host_that_comes_back_with_another_kernel_is_set_aside(tmp_path, monkeypatch):
    kernel = ["6.1"]
    monkeypatch.setattr(work, "fingerprint", lambda: {"identity": {"kernel": kernel[0]}})

    def start_anew():
        kernel[0] = "6.12"
        cluster.start_anew()

    cluster = Adrift(LOSSES[0], meanwhile=start_anew)
    fleet = execute(fleet_plan("north"), tmp_path / "run", cluster)
    assert not fleet.complete
    assert "host 'north' is not as it was when the run began: kernel: '6.1' then, '6.12' now" in fleet.notices
    with Ledger.open(tmp_path / "run") as ledger:
        assert len(ledger.trials()) == 2  # of the batch before


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
        cluster._client = real


def test_a_defect_on_one_host_costs_that_host_and_is_told_on_both_ends(tmp_path, monkeypatch, capsys):
    really = workplace.Workplace.measure

    async def measure(place, assignment, *given):
        if assignment.first_block:
            raise RuntimeError("boom")
        return await really(place, assignment, *given)

    monkeypatch.setattr(workplace.Workplace, "measure", measure)
    fleet = execute(fleet_plan("north", "south"), tmp_path / "run", FakeCluster())
    assert not fleet.complete
    assert "host south is set aside with 4 batches to do: a defect of virtgauge there: RuntimeError('boom')" in (
        fleet.notices
    )
    assert "Traceback" in capsys.readouterr().err
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


def assignment(plan, token=TOKEN):
    """The first batch of a host."""
    text = plan.to_toml()
    return Assignment(token, "north", 0, text, ("a", "b"), 0, "", "a", (), ())


async def asked(cluster, request, worker="north"):
    data = await cluster.call(worker, pack(request))
    return unpack(data, (Refusal, Enrolment, BatchAnswer, work.Assisting), "the worker")


async def test_a_run_can_be_stopped_while_a_host_makes_itself_ready(monkeypatch):
    opening, cluster = asyncio.Event(), FakeCluster()

    async def opened(_):
        opening.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(workplace.Workplace, "open", opened)
    with in_process(cluster):
        waiting = asyncio.ensure_future(asked(cluster, assignment(fleet_plan("north"))))
        await opening.wait()
        await cluster.stop("f" * 16, ["north"])  # another run
        assert not waiting.done()
        await cluster.stop(TOKEN, ["north"])
        assert (await asyncio.wait_for(waiting, 5)).message == "the batch was stopped"


async def test_nobody_else_takes_the_machine_on_which_a_tester_is_waited_for():
    cluster, plan = FakeCluster(), fleet_plan("north").to_toml()
    with in_process(cluster):
        try:
            assert isinstance(await asked(cluster, Assistance(TOKEN)), work.Assisting)
            for other in (Enlistment(plan), Assistance("f" * 16), assignment(fleet_plan("north"), "f" * 16)):
                refused = await asked(cluster, other)
                assert refused.busy and "the tester of another run's guests is here" in refused.message
            assert isinstance(await asked(cluster, Assistance(TOKEN)), work.Assisting)
            await cluster.leave(TOKEN, ["north"])
            assert isinstance(await asked(cluster, Enlistment(plan)), Enrolment)
        finally:
            await work.end()


async def test_a_batch_that_begins_as_the_idle_machine_is_given_back_keeps_it(monkeypatch):
    place = type("Place", (), {"close": list})()
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
