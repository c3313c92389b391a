"""Turns a refused section of a plan into an error that names file, field, value and remedy."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from virtgauge.errors import UsageError


def explain(
    error: ValidationError, source: str, path: Sequence[str | int] = (), model: type[BaseModel] | None = None
) -> UsageError:
    """All complaints of a validation, one line each.

    Args:
        source: the file or preset that was read.
        path: where in the plan the validated section stands.
        model: whose fields may be suggested for an unknown one.
    """
    lines = [_line((*path, *complaint["loc"]), complaint, model) for complaint in error.errors()]
    problem = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    return UsageError(
        f"{source}: {problem}, nothing was started\n" + "\n".join(f"  {line}" for line in lines),
        "correct the plan; `virtgauge plan check FILE` tries it without measuring",
    )


def _line(location: Sequence[str | int], complaint: Any, model: type[BaseModel] | None) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    kind, given = complaint["type"], complaint["input"]
    if kind == "extra_forbidden":
        return f"{where}: unknown field; {_suggest(str(location[-1]), list(model.model_fields) if model else [])}"
    if kind == "missing":
        return f"{where}: missing; it must be given"
    message = str(complaint["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if not where:
        return message
    return f"{where} = {_shown(given)}: {message}"


def _suggest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known fields: {', '.join(known)}" if known else "remove it"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
