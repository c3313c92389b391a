"""Results in the formats of others, and the results of others as trials.

The formats' names stand here, apart from what writes them: a command's help need not load that.
"""

from __future__ import annotations

import enum


class Format(enum.StrEnum):
    """``--format``."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    JUNIT = "junit"
    OPENMETRICS = "openmetrics"
    HDR = "hdr"
    BENCHER = "bencher"
    PHORONIX = "phoronix"


BINARY = frozenset({Format.PARQUET})  # Those that no terminal should get
