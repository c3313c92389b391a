"""Figures as OpenMetrics text 1.0: a family of gauges for each measure, in the units that the format asks for.

https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md: base units, which end a family's
name and stand in its UNIT line; a family's samples together; escapes in label values; the end marked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from virtgauge.exchange.estimates import Figure, RunFigures
from virtgauge.results import quantities
from virtgauge.results.quantities import Quantity

_UNITS = {
    quantities.DURATION.name: ("seconds", 1e-9),
    quantities.BIT_RATE.name: ("bits_per_second", 1.0),
    quantities.FRAME_RATE.name: ("frames_per_second", 1.0),
    quantities.OPERATION_RATE.name: ("operations_per_second", 1.0),
    quantities.ROW_RATE.name: ("rows_per_second", 1.0),
    quantities.WORK_RATE.name: ("units_per_second", 1.0),
    quantities.SHARE.name: ("ratio", 0.01),
    quantities.SIZE.name: ("bytes", 1.0),
    quantities.FACTOR.name: ("ratio", 1.0),
    quantities.RATIO.name: ("ratio", 1.0),
    quantities.CPUS.name: ("processors", 1.0),
    quantities.FLUSH_RATE.name: ("flushes_per_second", 1.0),
    quantities.FLUSHES.name: ("flushes", 1.0),
}
"""By quantity, its unit here and how many of it the base unit of the catalogue has; without one: a plain number."""

_OWN = ("run", "plan", "platform", "kind", "role", "emulated", "probe")


def openmetrics(found: RunFigures) -> str:
    """The whole exposition.

    Of each measure: ``virtgauge_SUITE_MEASURE_UNIT``, the same with ``_low`` and ``_high`` before the unit for the
    interval's ends, where there is one, and with ``_repetitions`` for how many stand behind it.  Factors are labels;
    one that is called like a label of ours has ``factor_`` before it.
    """
    by_measure: dict[str, list[Figure]] = {}
    for figure in found.figures:
        by_measure.setdefault(figure.measure.full_name, []).append(figure)
    lines: list[str] = []
    for figures in by_measure.values():
        lines += _families(found, figures)
    return "".join(f"{line}\n" for line in [*lines, "# EOF"])


def _families(found: RunFigures, figures: list[Figure]) -> Iterator[str]:
    measure = figures[0].measure
    unit, factor = _unit(measure.quantity)
    base = _name(f"virtgauge_{measure.full_name}")
    labels = [_labels(found, figure) for figure in figures]
    estimates = [figure.estimate for figure in figures]
    for suffix, about, values in (
        ("", "median over the repetitions", [one.point for one in estimates]),
        ("_low", "lower end of the interval", [one.low for one in estimates]),
        ("_high", "upper end of the interval", [one.high for one in estimates]),
    ):
        scaled = [None if value is None else value * factor for value in values]
        yield from _family(f"{base}{suffix}", unit, f"{measure.meaning}; {about}", zip(labels, scaled, strict=True))
    counts = [float(one.n) for one in estimates]
    yield from _family(f"{base}_repetitions", "", "how many stand behind it", zip(labels, counts, strict=True))


def _family(name: str, unit: str, about: str, samples: Iterable[tuple[str, float | None]]) -> Iterator[str]:
    present = [(labels, value) for labels, value in samples if value is not None]
    if present:
        full = f"{name}_{unit}" if unit else name
        yield f"# TYPE {full} gauge"
        if unit:
            yield f"# UNIT {full} {unit}"
        yield f"# HELP {full} {_escaped(about)}"
        for labels, value in present:
            yield f"{full}{{{labels}}} {value:.12g}"


def _unit(quantity: Quantity) -> tuple[str, float]:
    return _UNITS.get(quantity.name, ("", 1.0))


def _labels(found: RunFigures, figure: Figure) -> str:
    own = (
        found.manifest.run_id,
        found.manifest.plan_name,
        figure.arm.name,
        figure.arm.kind,
        figure.arm.role,
        "true" if figure.arm.emulated else "false",
        figure.probe,
    )
    labels = dict(zip(_OWN, own, strict=True))
    for factor, level in figure.factors.items():
        name = _name(factor)
        labels[f"factor_{name}" if name in _OWN or name.startswith("__") else name] = level
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _name(text: str) -> str:
    return re.sub(r"^(?=\d)|[^A-Za-z0-9_]", "_", text)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
