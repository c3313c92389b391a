"""A run in the formats of others: what each is written from, and whether it can be narrowed to some measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from virtgauge.errors import UsageError
from virtgauge.exchange.estimates import RunFigures, chosen_measures, read_figures
from virtgauge.exchange.formats import Format
from virtgauge.exchange.rows import read_rows
from virtgauge.ledger.store import Ledger
from virtgauge.results.table import ResultTable

_TRIAL_TABLES = frozenset({Format.CSV, Format.PARQUET})
_OF_FIGURES = frozenset({Format.OPENMETRICS, Format.BENCHER, Format.PHORONIX})
_HEADLINES_ONLY = frozenset({Format.BENCHER, Format.PHORONIX})


def export(ledger: Ledger, kind: Format, path: Path, measures: Sequence[str] = ()) -> None:
    """Write a run to a file.

    Args:
        ledger: of a run, also of one in progress.
        path: replaced should it exist; what is written there half when this raises is the caller's to remove.
        measures: full names; none: all, and of what is meant for an overview the headline measures.

    Raises:
        UsageError: the format is not made of measures, there is no such measure, or the run has nothing for it.
        OSError: the file cannot be written.
    """
    if measures and kind not in _TRIAL_TABLES | _OF_FIGURES:
        named = ", ".join(sorted(_TRIAL_TABLES | _OF_FIGURES))
        raise UsageError(f"--measure: {kind} always holds the whole run", f"leave it out, or export one of {named}")
    if kind in _OF_FIGURES:
        wanted = chosen_measures(measures, headline=kind in _HEADLINES_ONLY)
        _write(path, _document_of(kind)(read_figures(ResultTable(ledger), wanted)))
    elif kind in _TRIAL_TABLES:
        _write_table(ledger, kind, path, measures)
    elif kind is Format.HDR:
        from virtgauge.exchange.hdr_log import write_hdr_log

        with _opened(path) as out:
            write_hdr_log(ResultTable(ledger), out)
    elif kind is Format.JUNIT:
        _write(path, _junit(ledger))
    else:
        from virtgauge.exchange import tidy

        table = ResultTable(ledger)
        with _opened(path) as out:
            tidy.write(table, out, tidy.claims_of(table))


def _document_of(kind: Format) -> Callable[[RunFigures], str]:
    from virtgauge.exchange.bencher import bencher
    from virtgauge.exchange.openmetrics import openmetrics
    from virtgauge.exchange.phoronix import phoronix

    return {Format.OPENMETRICS: openmetrics, Format.BENCHER: bencher, Format.PHORONIX: phoronix}[kind]


def _write_table(ledger: Ledger, kind: Format, path: Path, measures: Sequence[str]) -> None:
    from virtgauge.exchange.tables import write_csv, write_parquet

    rows = read_rows(ResultTable(ledger), chosen_measures(measures, headline=False) if measures else None)
    if kind is Format.PARQUET:
        write_parquet(rows, path)
    else:
        with _opened(path) as out:
            write_csv(rows, out)


def _junit(ledger: Ledger) -> str:
    """The verdicts of a run that has requirements, else whether its trials are valid."""
    from virtgauge.exchange.cases import trial_cases, verdict_cases
    from virtgauge.exchange.junit import junit
    from virtgauge.report.requirements import decisions_of

    manifest = ledger.manifest()
    properties = {"run": manifest.run_id, "virtgauge": manifest.tool_version, "seed": str(manifest.seed)}
    table = ResultTable(ledger)
    cases = verdict_cases(decisions_of(table), table) or trial_cases(table)
    return junit(cases, manifest.plan_name, manifest.created_at, properties)


def _opened(path: Path) -> IO[str]:
    return path.open("w", encoding="utf-8", newline="")


def _write(path: Path, text: str) -> None:
    with _opened(path) as out:
        out.write(text)
