"""Figures as Bencher Metric Format, for continuous benchmarking: https://bencher.dev/docs/reference/bencher-metric-format.

A benchmark is a cell on a platform, a measure is named by its slug, and an interval's ends are the metric's lower and
upper value.  The format has no units: they are the catalogue's base units, and belong to the measure in Bencher.
"""

from __future__ import annotations

import hashlib
import json
import re

from virtgauge.exchange.estimates import RunFigures

NAME_LIMIT = 1024
SLUG_LIMIT = 64


def bencher(found: RunFigures) -> str:
    """The whole document; figures that are missing are left out."""
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for figure in found.figures:
        estimate = figure.estimate
        if estimate.point is not None:
            metric = {"value": estimate.point}
            if estimate.low is not None and estimate.high is not None:
                metric |= {"lower_value": estimate.low, "upper_value": estimate.high}
            emulated = " (emulated)" if figure.arm.emulated else ""
            name = f"{figure.arm.name}{emulated}: {figure.measure.suite} {figure.cell}"
            benchmarks.setdefault(_within(name, NAME_LIMIT), {})[slug(figure.measure.full_name)] = metric
    return json.dumps(benchmarks, ensure_ascii=False, allow_nan=False, indent=1)


def slug(name: str) -> str:
    """A measure's slug: ``timing-sleep-lateness-p99-9``."""
    return _within(re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"), SLUG_LIMIT)


def _within(text: str, limit: int) -> str:
    """Cut to a length, and told apart from others that begin alike by a hash of the whole."""
    if len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[: limit - len(digest) - 1]}-{digest}"
