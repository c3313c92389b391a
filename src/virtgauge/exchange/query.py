"""Questions to an archive, answered by DuckDB: it reads the columns and row groups that a question needs, no more.

DuckDB gets the trials as an Arrow data set and has no access to files or networks of its own, so that a query that
somebody else wrote can read the archive and do nothing beside: no file is read or written, no extension loaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import tempfile
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import dataset

from virtgauge.errors import UsageError, VirtgaugeError
from virtgauge.exchange.entries import Entry, read_entries
from virtgauge.exchange.place import Place
from virtgauge.exchange.trials import COLUMNS, FILE_SCHEMA
from virtgauge.extras import require

_SCHEMA = pa.schema([*FILE_SCHEMA, ("suite", pa.string()), ("month", pa.string())])
_FACTOR = re.compile(r"factor\.([A-Za-z0-9_. -]{1,60})")


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a query may take."""

    memory_mib: int = 1024  # of DuckDB; what needs more goes to a scratch folder that is removed, up to ``scratch_mib``
    scratch_mib: int = 4096
    seconds: float = 300.0  # until it is interrupted
    rows: int = 10_000  # of its answer, at most


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a query found."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    cut: bool  # whether there were more rows than the limit


class QueryError(VirtgaugeError):
    """A query that is wrong, not allowed, or takes too much."""


def ask(place: Place, limits: Limits, sql: str, parameters: Sequence[Any] = ()) -> Answer:
    """What an archive, with the runs that it holds at this moment, answers to one SELECT.

    Its tables: ``runs``, and ``trials`` with a row for each trial and measure: :class:`virtgauge.exchange.trials.Row`,
    and ``month``.

    Raises UsageError: there is no archive; UnavailableError: DuckDB is not installed; QueryError: the SELECT is none,
    is wrong, or goes beyond the limits.
    """
    require("query", "asking an archive")
    import duckdb

    entries = read_entries(place)
    limited: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{limits.memory_mib}MiB",
        "max_temp_directory_size": f"{limits.scratch_mib}MiB",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    with (
        tempfile.TemporaryDirectory(prefix="virtgauge-query-") as scratch,
        contextlib.closing(duckdb.connect(":memory:", config=limited | {"temp_directory": scratch})) as connection,
    ):
        connection.register("trials", _trials(place, entries))
        connection.register("runs", _runs(entries))
        for setting in ("python_enable_replacements = false", "enable_external_access = false"):
            connection.execute(f"SET {setting}")
        connection.execute("SET lock_configuration = true")
        timer = threading.Timer(limits.seconds, connection.interrupt)
        try:
            _require_select(sql)
            timer.start()
            cursor = connection.execute(sql, list(parameters))
            rows = cursor.fetchmany(limits.rows + 1)
        except duckdb.InterruptException:
            raise QueryError(
                f"the query took longer than {limits.seconds:g} s", "ask for less, or give it more with --seconds"
            ) from None
        except duckdb.OutOfMemoryException as error:
            raise QueryError(
                f"the query needs more than {limits.memory_mib} MiB: {_first_line(error)}",
                "ask for less, or give it more with --memory",
            ) from error
        except duckdb.Error as error:
            raise QueryError(
                f"the query is refused: {_first_line(error)}",
                "tables: trials, runs; `virtgauge query ARCHIVE --sql 'DESCRIBE trials'` names columns",
            ) from error
        finally:
            timer.cancel()
        columns = tuple(column[0] for column in cursor.description or ())
        return Answer(columns, rows[: limits.rows], len(rows) > limits.rows)


def _trials(place: Place, entries: Sequence[Entry]) -> dataset.Dataset:
    files = [one for entry in entries for one in entry.files]
    if not files:
        return dataset.dataset(_SCHEMA.empty_table())
    try:
        for one in files:
            place.require_file(place.path(one.path))
    except ValueError as error:
        raise UsageError(f"{place.name}: {error}", "archive its run anew") from error
    keys = dataset.HivePartitioning(pa.schema([_SCHEMA.field("suite"), _SCHEMA.field("month")]))
    return dataset.FileSystemDataset.from_paths(
        [place.path(one.path) for one in files],
        schema=_SCHEMA,
        format=dataset.ParquetFileFormat(),
        filesystem=place.files,
        partitions=[keys.parse(one.path.removeprefix("trials/")) for one in files],
    )


def _runs(entries: Sequence[Entry]) -> pa.Table:
    names = ("archive", "run", "plan", "created_at", "archived_at")
    columns = {name: pa.array([getattr(entry, name) for entry in entries], pa.string()) for name in names}
    return pa.table({**columns, "trials": pa.array([entry.trials for entry in entries], pa.int64())})


def _require_select(sql: str) -> None:
    import duckdb

    statements = duckdb.extract_statements(sql)
    allowed = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN, duckdb.StatementType.RELATION)
    if len(statements) != 1 or statements[0].type not in allowed:
        raise QueryError(
            "--sql: is not one SELECT", "an archive is read only; ask one question at a time, from trials or runs"
        )


def summary_sql(suite: str, measure: str, by: Sequence[str], where: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
    """A measure's figures in groups: the query and its parameters.

    ``by`` and ``where`` (with the text that it must have) name columns of ``trials``, or ``factor.NAME`` for a level.
    Raises UsageError: there is no such column.
    """
    conditions = ["suite = ?", "measure = ?", "value IS NOT NULL"]
    conditions += [f"CAST({_column(name)} AS VARCHAR) = ?" for name, _ in where]
    shown = [f'{_column(name)} AS "{name}"' for name in by]
    figures = [
        "count(*) AS trials",
        "quantile_cont(value, 0.05) AS p5",
        "median(value) AS median",
        "quantile_cont(value, 0.95) AS p95",
        "min(value) AS min",
        "max(value) AS max",
        "any_value(unit) AS unit",
        "bool_or(emulated) AS emulated",
    ]
    sql = f"SELECT {', '.join([*shown, *figures])} FROM trials WHERE {' AND '.join(conditions)}"
    if by:
        numbers = ", ".join(str(number) for number in range(1, len(by) + 1))
        sql += f" GROUP BY {numbers} ORDER BY {numbers}"
    return sql, [suite, measure, *(text for _, text in where)]


def _column(name: str) -> str:
    if found := _FACTOR.fullmatch(name):
        return f"json_extract_string(factors, '$.\"{found[1]}\"')"
    if name not in (*COLUMNS, "month"):
        raise UsageError(
            f"{name!r} is no column of an archive", f"use one of {', '.join(COLUMNS)}, month, or factor.NAME"
        )
    return f'"{name}"'


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
