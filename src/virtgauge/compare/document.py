"""A comparison as one JSON document, in base units; ``schema_version`` says how to read it."""

from __future__ import annotations

import dataclasses
import json

from virtgauge.compare.model import Comparison, SeriesComparison


def render_json(found: Comparison | SeriesComparison) -> str:
    """The whole comparison; a missing figure is null, and the estimate's ``method`` says why."""
    kind = "series" if isinstance(found, SeriesComparison) else "comparison"
    document = {"kind": kind} | dataclasses.asdict(found)
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
