"""What workers answer, into the ledger: every trial once however often it comes, and nothing that was not asked for."""

import dataclasses

import msgpack
import numpy as np
import pytest
from fleet_runs import FakeCluster, execute, fleet_plan

from virtgauge.execution.prepare import check_plan
from virtgauge.execution.schedule import schedule_block
from virtgauge.fleet.coordinator import Merger
from virtgauge.fleet.messages import BatchAnswer, ForeignMessageError, Refusal, pack, unpack
from virtgauge.ledger.store import Ledger, LedgerWriteError


@pytest.fixture(scope="module")
def asked(simulated_machine, tmp_path_factory):
    """A batch of a fleet, the worker's real answer, and an empty ledger of the same run."""
    folder = tmp_path_factory.mktemp("asked")
    answers, cluster = [], FakeCluster()
    cluster.faults = {"north": [lambda answer: answers.append(answer) or answer]}
    plan = fleet_plan("north", repetitions=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        execute(plan, folder / "run", cluster)
    with Ledger.open(folder / "run") as ledger:
        manifest = ledger.manifest()
    batch = next(iter(schedule_block(plan.seed, 0, ["a", "b"], check_plan(plan, "test").cells, lambda *_: True)))
    with Ledger.create(folder / "empty", manifest) as ledger:
        yield batch, answers[0], ledger


@pytest.fixture
def own_ledger(asked, tmp_path):
    with Ledger.create(tmp_path / "own", asked[2].manifest()) as ledger:
        yield ledger


def read(answer):
    found = unpack(answer, [BatchAnswer, Refusal], "the worker")
    assert isinstance(found, BatchAnswer)
    return found


def changed(answer, *path, to):
    """The same answer with one field changed on its way."""
    message = msgpack.unpackb(answer, strict_map_key=False)
    value = message["content"]
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = to
    return msgpack.packb(message)


def test_an_answer_that_comes_twice_is_counted_once(asked, own_ledger):
    batch, answer, _ = asked
    merger = Merger(own_ledger)
    assert len(merger.merge(batch, read(answer))) == 2
    trials, guests = own_ledger.trials(), own_ledger.guests()
    assert merger.merge(batch, read(answer)) == []
    assert Merger(own_ledger).merge(batch, read(answer)) == []  # nor after the coordinator was started again
    assert (own_ledger.trials(), own_ledger.guests()) == (trials, guests)


def test_everything_that_the_worker_kept_of_a_trial_arrives(asked, own_ledger):
    batch, answer, _ = asked
    sent = read(answer)
    Merger(own_ledger).merge(batch, sent)
    for packed, trial in zip(sent.trials, own_ledger.trials(), strict=True):
        ignored = {"trial_id": 0, "guest_id": None}
        assert dataclasses.replace(trial, **ignored) == dataclasses.replace(packed.record, **ignored)
        for measure in packed.histograms:
            kept, came = own_ledger.histograms_of(trial.trial_id)[measure], packed.unpacked()[1][measure]
            assert np.array_equal(kept.values, came.values)
            assert np.array_equal(kept.counts, came.counts)
            assert (kept.minimum, kept.maximum, kept.mean) == (came.minimum, came.maximum, came.mean)
        assert list(own_ledger.samples_of(trial.trial_id)) == list(packed.samples)
        assert own_ledger.samples(trial.trial_id, "reservoir").tobytes() == packed.samples["reservoir"]


def test_a_batch_is_recorded_whole_or_not_at_all(asked, own_ledger, monkeypatch):
    batch, answer, _ = asked
    merger, real, calls = Merger(own_ledger), own_ledger.add_trial, []

    def full_at_the_second(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise LedgerWriteError(own_ledger.folder, OSError(28, "no space left"))
        return real(*arguments)

    monkeypatch.setattr(own_ledger, "add_trial", full_at_the_second)
    with pytest.raises(LedgerWriteError):
        merger.merge(batch, read(answer))
    with Ledger.open(own_ledger.folder) as afresh:
        assert (afresh.trials(), afresh.guests()) == ([], [])
    monkeypatch.undo()
    assert len(merger.merge(batch, read(answer))) == 2


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda answer: b"no message at all", "no message of virtgauge"),
        (lambda answer: {"a": "python object"}, "no message of virtgauge"),
        (lambda answer: msgpack.packb({"format": 99, "kind": "BatchAnswer", "content": {}}), "another version"),
        (lambda answer: changed(answer, "trials", 0, "record", "key", to="b0000/a/other"), "not asked for"),
        (lambda answer: changed(answer, "trials", 0, "record", "block", to=1), "not asked for"),
        (lambda answer: changed(answer, "trials", 1, "record", "attempt", to=0), "not asked for"),
        (lambda answer: changed(answer, "trials", 0, "record", "status", to="splendid"), "status"),
        (lambda answer: changed(answer, "trials", 0, "record", "guest_id", to=77), "not asked for"),
        (lambda answer: changed(answer, "guests", 0, "arm", to="other"), "another batch"),
        (lambda answer: changed(answer, "trials", 0, "samples", to={"reservoir": b"123"}), "cannot be read"),
    ],
)
def test_an_answer_that_is_none_leaves_no_trace_in_the_ledger(asked, spoil, words):
    batch, answer, ledger = asked
    merger = Merger(ledger)
    with pytest.raises(ForeignMessageError, match=words):
        merger.merge(batch, unpack(spoil(answer), [BatchAnswer, Refusal], "the worker of host 'north'"))
    assert ledger.trials() == []
    assert ledger.guests() == []


def test_a_refusal_comes_in_place_of_an_answer():
    refusal = Refusal("the machine is on fire", "put it out", busy=True)
    assert unpack(pack(refusal), [BatchAnswer, Refusal], "the worker") == refusal


def test_what_a_guest_tells_of_emulation_on_one_host_marks_the_arm_of_the_fleet(asked, own_ledger):
    batch, answer, _ = asked
    told = changed(answer, "emulated", to=["b"])
    Merger(own_ledger).merge(batch, read(told))
    assert {arm.name: arm.emulated for arm in own_ledger.manifest().arms} == {"a": False, "b": True}
