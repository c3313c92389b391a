"""Which bench a platform and a database need."""

from __future__ import annotations

from virtgauge.suites.bench import Stage
from virtgauge.suites.storage.benches import BenchSpec
from virtgauge.suites.storage.embedded import EmbeddedBench
from virtgauge.suites.storage.existing_bench import ExistingBench
from virtgauge.suites.storage.laboratory import StorageBench
from virtgauge.suites.storage.served import ServedBench
from virtgauge.suites.storage.simulated import SimulatedBench


async def set_up_bench(stage: Stage, spec: BenchSpec) -> StorageBench:
    """Build it.

    Raises:
        StoreError: ``unsupported`` where it cannot be here; or the server did not come up.
        LaunchError: guest or peer did not.
        AgentError, ChannelClosedError, ProtocolError, TimeoutError: an agent failed meanwhile.
    """
    if spec.existing is not None:
        return await ExistingBench.create(stage, spec)
    if stage.platform.kind == "simulated":
        return await SimulatedBench.create(stage, spec)
    if spec.database is None:
        return await EmbeddedBench.create(stage, spec)
    return await ServedBench.create(stage, spec)
