"""The report as one JSON document: every estimate, trial, guest and event; durations in nanoseconds."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from virtgauge.report.model import Report
from virtgauge.report.sections import SuiteReport


def render_json(report: Report) -> str:
    """The whole report; ``schema_version`` says how to read it.

    A missing figure is null, and the estimate's ``method`` says why.
    """
    return json.dumps(report, default=plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def plain(value: object) -> Any:
    """What JSON can hold of a part of a report: for ``json.dumps(…, default=plain)``."""
    if isinstance(value, SuiteReport):
        return {"suite": value.suite} | plain(value.findings)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} has no place in a report")
