"""Tidy rows as CSV and as Parquet, in batches: a run may have millions."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from virtgauge.exchange.rows import COLUMNS, Row

ROWS_AT_ONCE = 50_000

_TEXT = pa.dictionary(pa.int32(), pa.string())
_TYPES = {
    "emulated": pa.bool_(),
    "block": pa.int32(),
    "attempt": pa.int32(),
    "trial_id": pa.int64(),
    "elapsed_ns": pa.int64(),
    "value": pa.float64(),
    "key": pa.string(),
    "error": pa.string(),
    "started_at": pa.string(),
}

SCHEMA = pa.schema([(name, _TYPES.get(name, _TEXT)) for name in COLUMNS])
"""Of the Parquet form: :class:`~virtgauge.exchange.rows.Row` by columns; texts that repeat are dictionaries."""

_FIELDS = attrgetter(*COLUMNS)


def batches(rows: Iterable[Row]) -> Iterator[pa.Table]:
    """Rows as Arrow tables of :data:`SCHEMA`, at most :data:`ROWS_AT_ONCE` rows each."""
    source = iter(rows)
    while gathered := list(itertools.islice(source, ROWS_AT_ONCE)):
        yield table_of(gathered)


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Rows, one at least, as an Arrow table of :data:`SCHEMA`."""
    columns = zip(*map(_FIELDS, rows), strict=True)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def write_csv(rows: Iterable[Row], out: IO[str]) -> None:
    """RFC 4180, with a line of names; what is missing is empty, numbers have all their digits."""
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([str(value).lower() if isinstance(value, bool) else value for value in _FIELDS(row)])


def write_parquet(rows: Iterable[Row], path: Path) -> None:
    """One Parquet file, in row groups of one batch each."""
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for table in batches(rows):
            writer.write_table(table)
