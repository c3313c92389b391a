"""What a scope has changed on this machine: written down before it is, and undone by that even after a kill -9."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from virtgauge.host.tag import is_own_file


def undone(record: Path, undo: Callable[[Any], str | None]) -> list[str]:
    """Undo what a record of ours tells, and remove it; what was done, in a line for people.

    Args:
        undo: is given what the record holds, and returns such a line, or none where there was nothing to do.  Where it
            raises OSError the record stays: another user may have the right to.
    """
    if not is_own_file(record):
        return []
    line = None
    try:
        line = undo(json.loads(record.read_text()))
    except (ValueError, KeyError, TypeError):
        pass  # half-written: nothing was changed yet
    except OSError:
        return []
    record.unlink(missing_ok=True)
    return [line] if line else []
