"""Makes dask.distributed keep still: an idle worker on a measured host shall not be felt.

By default a process of a cluster wakes fifty times a second to check on its own loop, twice to look at the machine's
load, twice to tell the scheduler, and a hundred times to profile what it executes.
"""

from __future__ import annotations

import logging

SLOT = "host"
"""The resource of which every worker has one and every batch takes one."""
HEARTBEAT_S = 30.0
"""A worker's; that one has died is known by its closed connection."""

_SETTINGS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "30s",
    "distributed.admin.tick.cycle": "30s",
    "distributed.admin.tick.limit": "1h",
    "distributed.admin.system-monitor.interval": "30s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.client.scheduler-info-interval": "30s",
}


def configure() -> None:
    """Set it, before anything of dask.distributed is made; what it would log, the run says in its own words."""
    import dask
    import distributed

    dask.config.set(_SETTINGS)
    for name in (distributed.__name__, "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
