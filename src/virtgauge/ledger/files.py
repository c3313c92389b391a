"""Files of a run's folder: which may be opened, when they are durable, and a trial's raw values.

Raw values are one Parquet file with a row for each, which names its series.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from virtgauge.ledger.damage import DamagedError

_MOST = 10_000_000  # Raw values of a trial
_LEAST_BYTES, _BYTES_EACH = 2**20, 32  # Before compression


def is_regular(path: Path) -> bool | None:
    """Whether it is a file: opening a pipe would wait for ever, and a link leads elsewhere; None of what is not there.

    Asked at once, for a log goes with the last who has it open.
    """
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return None


def sync(path: Path) -> None:
    """Return when what was written to a file, or to a folder's list of names, survives a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_raw_values(path: Path, values_of: Mapping[str, npt.NDArray[np.int64]]) -> None:
    """Write the values of each series, durably: the file is there as a whole, or not. Raises OSError."""
    from pyarrow import DictionaryArray, parquet, table  # slow to import, and most runs keep no samples

    places = np.repeat(np.arange(len(values_of), dtype=np.int32), [len(values) for values in values_of.values()])
    names = DictionaryArray.from_arrays(places, [*values_of])
    rows = table({"series": names, "value": np.concatenate([*values_of.values()])})
    partial = path.with_suffix(".partial")
    try:
        parquet.write_table(rows, partial, compression="zstd")
        sync(partial)
        partial.rename(path)
        sync(path.parent)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def read_raw_values(path: Path) -> dict[str, npt.NDArray[np.int64]]:
    """The values of each series, of a file from anywhere. Raises DamagedError: it is none of raw values."""
    if not is_regular(path):
        raise DamagedError(path, "", "it is no file")
    import pyarrow  # slow to import, and most runs keep no samples
    from pyarrow.parquet import ParquetFile

    kind = pyarrow.schema(
        [("series", pyarrow.dictionary(pyarrow.int32(), pyarrow.string())), ("value", pyarrow.int64())]
    )
    try:
        with ParquetFile(path, page_checksum_verification=True) as file:
            told = file.metadata
            if not file.schema_arrow.equals(kind) or told.num_rows > _MOST:
                raise ValueError(f"{file.metadata.num_rows} rows of {', '.join(file.schema_arrow.names)[:200]}")
            groups = (told.row_group(number) for number in range(told.num_row_groups))
            size = sum(group.column(place).total_uncompressed_size for group in groups for place in range(2))
            if size > _LEAST_BYTES + _BYTES_EACH * told.num_rows:
                raise ValueError(f"{told.num_rows} rows of {size} bytes")
            # By buffers: Arrow's own filters and conversions load pandas where there is one, which takes a second.
            table = file.read().combine_chunks()
        table.validate(full=True)
        names = table["series"].combine_chunks()
        of = np.from_dlpack(names.indices)
        values = np.asarray(np.from_dlpack(table["value"].combine_chunks()), dtype=np.int64)
        return {name: values[of == place] for place, name in enumerate(names.dictionary.to_pylist())}
    except (OSError, ValueError, TypeError, AttributeError, BufferError, pyarrow.ArrowException) as error:
        raise DamagedError(path, "", f"no samples: {str(error).splitlines()[0][:200]}") from error
