"""What is asked of a cluster whose client is a stand-in: answers that are fetched by others, and a scheduler's loss."""

import asyncio

import pytest

from virtgauge.fleet.cluster import SLOT, Cluster, SchedulerLostError, WorkerLostError


class Scripted:
    """A client, its scheduler, and the future of whatever is submitted.

    Attributes:
        results: what fetching the answer comes to, one after the other; an exception is raised.
        workers: names of those that are connected.
        answers: scheduler's name; None where none answers.
    """

    id, status = "client", "running"

    def __init__(self, *results, workers=("north",), answers="one"):
        self.results, self.workers, self.answers, self.released = list(results), list(workers), answers, 0
        self.scheduler, self.address, self.lost = self, "tls://192.0.2.1:8786", False

    async def identity(self):
        if self.answers is None:
            raise ConnectionError("nobody")
        found = {f"tls://{name}": {"name": name, "resources": {SLOT: 1}} for name in self.workers}
        return {"id": self.answers, "workers": found}

    async def ncores(self, workers=None):
        if self.answers is None:
            raise ConnectionError("nobody")
        there = [f"tls://{name}" for name in self.workers]
        return {address: 1 for address in there if workers is None or address in workers}

    def submit(self, *_, **__):
        return self

    async def result(self):
        found = self.results.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    def cancelled(self):
        return self.lost

    def release(self):
        self.released += 1


async def test_an_answer_whose_fetching_ended_with_another_hosts_is_fetched_again():
    client = Scripted(asyncio.CancelledError(), asyncio.CancelledError(), b"answer")
    assert await Cluster(client, None).call("north", b"") == b"answer"
    assert client.results == [] and client.released == 1


async def test_a_future_that_is_gone_with_its_scheduler_is_no_loss_of_the_worker():
    client = Scripted(asyncio.CancelledError())
    client.lost = True
    with pytest.raises(SchedulerLostError):
        await Cluster(client, None).call("north", b"")


async def test_a_worker_that_is_missing_is_lost_unless_its_scheduler_is_another_now():
    client = Scripted(b"answer")
    cluster = Cluster(client, None)
    await cluster.call("north", b"")
    client.results = [b"again"]
    assert await cluster.call("north", b"") == b"again"
    client.workers = []
    with pytest.raises(WorkerLostError, match="not connected") as lost:
        await cluster.call("north", b"")
    assert not isinstance(lost.value, SchedulerLostError)
    client.answers = "another"
    with pytest.raises(SchedulerLostError, match="is back"):
        await cluster.call("north", b"")
    client.answers = None
    with pytest.raises(SchedulerLostError, match="was lost"):
        await cluster.call("north", b"")
