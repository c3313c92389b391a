"""The estimator's executable: where it is."""

from __future__ import annotations

from pathlib import Path

from virtgauge.host.native_file import find_native

ENVIRONMENT_VARIABLE = "VIRTGAUGE_BANDWIDTH"


def find_bandwidth() -> Path:
    """Find the estimator: ``$VIRTGAUGE_BANDWIDTH``, then the one inside the installed package.

    Raises:
        UnavailableError: neither exists.
    """
    return find_native("bandwidth", ENVIRONMENT_VARIABLE, "the bandwidth estimator", "a built one", "bandwidth")
