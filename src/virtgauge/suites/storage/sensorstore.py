"""The load generator's executable: where it is (``native/sensorstore``, docs/sensorstore.md)."""

from __future__ import annotations

import os
from pathlib import Path

import virtgauge
from virtgauge.errors import UnavailableError

ENVIRONMENT_VARIABLE = "VIRTGAUGE_SENSORSTORE"


def find_sensorstore() -> Path:
    """Find it: ``$VIRTGAUGE_SENSORSTORE``, then the one inside the installed package.

    Raises:
        UnavailableError: neither exists.
    """
    override = os.environ.get(ENVIRONMENT_VARIABLE)
    path = Path(override) if override else Path(virtgauge.__file__).parent / "native" / "sensorstore"
    if not path.is_file():
        raise UnavailableError(
            f"the load generator for databases is missing: {path}",
            f"run `make` in the source tree, or set {ENVIRONMENT_VARIABLE} to a built sensorstore",
        )
    return path.resolve()
