"""Figures as a Phoronix Test Suite result file, to be looked at and compared with ``phoronix-test-suite``.

The order of elements and the limits are those of its schema, ``result-file.xsd`` of version 10: a system for each
platform, a result for each measure and cell, and in it an entry for each system that has a figure.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree

import numpy as np

from virtgauge import __version__
from virtgauge.errors import UsageError
from virtgauge.exchange.estimates import Figure, RunFigures
from virtgauge.exchange.xml import child, document
from virtgauge.ledger.records import ArmRecord, Manifest
from virtgauge.results.measure import Better

_TITLE_LIMIT, _RESULT_TITLE_LIMIT, _SYSTEM_LIMIT = 126, 50, 128
_CLIENT = f"virtgauge {__version__}"


def phoronix(found: RunFigures) -> str:
    """The whole document.

    Raises:
        UsageError: there is no figure, and the format has no result without one.
    """
    # Their results are ordered one way or the other.
    ordered = (figure for figure in found.figures if figure.measure.better is not Better.NEITHER)
    figures = [figure for figure in ordered if figure.estimate.point is not None]
    if not figures:
        raise UsageError(
            f"the run {found.manifest.run_id} has no valid figure of these measures",
            "choose others with --measure, or export --format csv, which holds trials that do not count too",
        )
    manifest = found.manifest
    root = ElementTree.Element("PhoronixTestSuite")
    generated = child(root, "Generated")
    child(generated, "Title", f"{manifest.plan_name} ({manifest.run_id})"[:_TITLE_LIMIT])
    child(generated, "LastModified", _time(manifest))
    child(generated, "TestClient", _CLIENT)
    child(generated, "Description", f"virtgauge run {manifest.run_id} of the plan {manifest.plan_name}"[:2048])
    used = {figure.arm.name for figure in figures}
    for arm in manifest.arms:
        if arm.name in used:
            _system(root, arm, manifest)
    by_result: dict[tuple[str, str], list[Figure]] = {}
    for figure in figures:
        by_result.setdefault((figure.measure.full_name, figure.cell), []).append(figure)
    for own in by_result.values():
        _result(root, own)
    return document(root)


def _system(root: ElementTree.Element, arm: ArmRecord, manifest: Manifest) -> None:
    identity = manifest.fingerprint.get("identity")
    known = identity if isinstance(identity, dict) else {}
    system = child(root, "System")
    child(system, "Identifier", _identifier(arm))
    child(system, "Hardware", f"Processor: {known.get('cpu_model') or 'unknown'} ({known.get('cpu_count') or '?'})")
    child(system, "Software", f"Platform: {arm.label}, Kernel: {known.get('kernel_release') or 'unknown'}")
    child(system, "User", "virtgauge")
    child(system, "TimeStamp", _time(manifest))
    child(system, "TestClientVersion", manifest.tool_version)
    child(system, "Notes", "emulated: these figures must not be ranked" if arm.emulated else "")


def _result(root: ElementTree.Element, figures: list[Figure]) -> None:
    first = figures[0]
    measure = first.measure
    result = child(root, "Result")
    child(result, "Identifier", "")  # no test profile of theirs stands behind it
    child(result, "Title", measure.full_name[:_RESULT_TITLE_LIMIT])
    child(result, "AppVersion", __version__)
    child(result, "Arguments", first.cell)
    child(result, "Description", f"{measure.meaning}: {first.cell}")
    child(result, "Scale", measure.quantity.unit)
    child(result, "Proportion", "HIB" if measure.better is Better.HIGHER else "LIB")
    child(result, "DisplayFormat", "BAR_GRAPH")
    data = child(result, "Data")
    for figure in figures:
        entry = child(data, "Entry")
        child(entry, "Identifier", _identifier(figure.arm))
        child(entry, "Value", _numbers([figure.estimate.point or 0.0]))
        child(entry, "RawString", _numbers(figure.values))


def _identifier(arm: ArmRecord) -> str:
    return f"{arm.name} (emulated)" if arm.emulated else arm.name[:_SYSTEM_LIMIT]


def _numbers(values: Iterable[float]) -> str:
    """As they read them: in plain decimals, with colons between."""
    return ":".join(np.format_float_positional(value, precision=10, fractional=False, trim="-") for value in values)


def _time(manifest: Manifest) -> str:
    return manifest.created_at[:19].replace("T", " ")
