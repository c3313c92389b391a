"""A run in the formats of others: what each is written from, and whether it can be narrowed to some measures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from virtgauge.decisions.decisions import decisions_of
from virtgauge.errors import UsageError
from virtgauge.exchange import Format, tidy
from virtgauge.exchange.figures import bencher, openmetrics, read_figures
from virtgauge.exchange.trials import read_rows, write_csv, write_hdr_log, write_parquet
from virtgauge.exchange.xml import junit, phoronix, trial_cases, verdict_cases
from virtgauge.ledger.store import Ledger
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import headline_measures, named_measures

_TRIAL_TABLES = frozenset({Format.CSV, Format.PARQUET})
_OF_FIGURES = {Format.OPENMETRICS: openmetrics, Format.BENCHER: bencher, Format.PHORONIX: phoronix}


def export(ledger: Ledger, kind: Format, path: Path, measures: Sequence[str] = ()) -> None:
    """Write a run, also one in progress, to a file; what is there half when this raises is the caller's to remove.

    Without full names of measures it holds all, and what is meant for an overview the headline ones.

    Raises UsageError: the format is not made of measures, there is no such measure, or the run has nothing for it;
    OSError: the file cannot be written; ChangedError: the run went on meanwhile.
    """
    if measures and kind not in _TRIAL_TABLES | _OF_FIGURES.keys():
        named = ", ".join(sorted(_TRIAL_TABLES | _OF_FIGURES.keys()))
        raise UsageError(f"--measure: {kind} always holds the whole run", f"leave it out, or export one of {named}")
    table = ResultTable(ledger)
    chosen = named_measures(measures) or None
    if kind is Format.PARQUET:
        write_parquet(read_rows(table, chosen), path)
        ledger.confirm()
        return
    with path.open("w", encoding="utf-8", newline="") as out:
        if kind is Format.CSV:
            write_csv(read_rows(table, chosen), out)
        elif kind is Format.HDR:
            write_hdr_log(table, out)
        elif kind is Format.JSON:
            tidy.write(table, out)
        elif kind is Format.JUNIT:
            # The verdicts of a run that has requirements, else whether its trials are valid.
            run = table.manifest
            properties = {"run": run.run_id, "virtgauge": run.tool_version, "seed": str(run.seed)}
            cases = verdict_cases(decisions_of(table), table) or trial_cases(table)
            out.write(junit(cases, run.plan_name, run.created_at, properties))
        else:
            if kind is not Format.OPENMETRICS:
                chosen = chosen or headline_measures()
            out.write(_OF_FIGURES[kind](table.manifest, read_figures(table, chosen)))
    ledger.confirm()
