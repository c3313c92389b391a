"""Results in the formats of others, and the results of others as trials.

The formats' names stand here, apart from what writes them: a command's help need not load that.
"""

from __future__ import annotations

import enum

Format = enum.StrEnum("Format", "JSON CSV PARQUET JUNIT OPENMETRICS HDR BENCHER PHORONIX")
