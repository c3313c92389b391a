"""A value of the kernel, set by a file while guests need it, and put back after them even after a kill -9."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from virtgauge.errors import UnavailableError
from virtgauge.host.rights import AS_ROOT, lacking
from virtgauge.host.undoing import undone

_RECORD = "kernel-value{}.json"  # In a scope's folder, by the value's path: what was in force before, and what is to be
_held: dict[Path, list[str]] = {}  # By record: the value, once for each guest that needs it


def hold_value(file: Path, value: str, scope_folder: Path) -> Callable[[], object]:
    """Have a file of the kernel's say a value for one more guest of a scope; returns what ends that.
    Raises UnavailableError: it cannot be set, had another value afterwards, or another guest of the scope needs
    another.
    """
    record = scope_folder / _RECORD.format(str(file).replace("/", "-"))
    holders = _held.setdefault(record, [])
    if holders and holders[0] != value:
        said = f"{file} = {value}: another guest of this run needs {holders[0]}"
        raise UnavailableError(said, "the kernel has one value for all of them; measure these guests one after another")
    try:
        if not holders:
            before = file.read_text().strip()
            record.write_text(json.dumps({"file": str(file), "set": value, "before": before}))
            file.write_text(value)
            if (found := file.read_text().strip()) != value:
                file.write_text(before)
                raise UnavailableError(f"{file} is {found} after {value} was set", None)
    except (OSError, UnavailableError) as error:
        _put_back(record)
        if isinstance(error, UnavailableError):
            raise
        words = f"{file} cannot be set to {value}: {error.strerror}{lacking('CAP_DAC_OVERRIDE')}"
        raise UnavailableError(words, AS_ROOT) from error
    holders.append(value)

    def end() -> None:
        holders.pop()
        if not holders:
            _put_back(record)

    return end


def put_back_values(scope_folder: Path) -> list[str]:
    """Put back what a scope has changed, unless somebody has changed it since; a line for people each."""
    return [line for record in sorted(scope_folder.glob(_RECORD.format("*"))) for line in _put_back(record)]


def _put_back(record: Path) -> list[str]:
    return undone(record, _write_before)


def _write_before(told: Any) -> str | None:
    file, ours, before = Path(told["file"]), str(told["set"]), str(told["before"])
    with contextlib.suppress(FileNotFoundError):  # it is gone: a module, a processor
        if file.read_text().strip() == ours != before:
            file.write_text(before)
            return f"put back {file} = {before}"
    return None
