"""Turns a refused section of a plan into an error that names file, field, value and remedy."""

from __future__ import annotations

import contextlib
import difflib
import json
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from virtgauge.errors import UsageError


class PlanError(UsageError):
    """Everything that is wrong with a plan.

    Attributes:
        source: the file or preset that was read.
        lines: a problem each: field, value, remedy.
        content: of the file, where its frame was refused; its sections may have problems of their own.
    """

    def __init__(self, source: str, lines: Sequence[str], content: Mapping[str, Any] | None = None) -> None:
        problem = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
        super().__init__(
            f"{source}: {problem}, nothing was started\n" + "\n".join(f"  {line}" for line in lines),
            "correct the plan; `virtgauge plan check FILE` tries it without measuring",
        )
        self.source, self.lines, self.content = source, tuple(lines), content


class Problems:
    """Collects what is wrong with the parts of a plan, so that all of it is told at once."""

    def __init__(self, source: str, lines: Sequence[str] = ()) -> None:
        self.source, self.lines = source, list(lines)

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Keep an error of the block, and go on behind it."""
        try:
            yield
        except PlanError as error:
            self.lines += error.lines
        except UsageError as error:
            message = error.message.removeprefix(f"{self.source}: ")
            self.lines.append(f"{message}; {error.remedy}" if error.remedy else message)

    def raise_if_any(self) -> None:
        """End the collection.

        Raises:
            PlanError: there was a problem.
        """
        if self.lines:
            raise PlanError(self.source, list(dict.fromkeys(self.lines)))


def explain(
    error: ValidationError,
    source: str,
    path: Sequence[str | int] = (),
    model: type[BaseModel] | None = None,
    content: Mapping[str, Any] | None = None,
) -> PlanError:
    """All complaints of a validation, one line each.

    Args:
        source: the file or preset that was read.
        path: where in the plan the validated section stands.
        model: whose fields may be suggested for an unknown one.
        content: what was validated, if it is a whole plan.
    """
    complaints = (_line((*path, *complaint["loc"]), complaint, model) for complaint in error.errors())
    return PlanError(source, [line for text in complaints for line in text.splitlines()], content)


def _line(location: Sequence[str | int], complaint: Any, model: type[BaseModel] | None) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    kind, given = complaint["type"], complaint["input"]
    if kind == "extra_forbidden":
        fields = _fields_at(location, model, len(complaint["loc"]))
        return f"{where}: unknown field; {_suggest(str(location[-1]), fields)}"
    if kind == "missing":
        instead = location[-1] == "kind" and isinstance(given, Mapping) and "type" in given
        return f"{where}: missing; " + ("write kind instead of type" if instead else "it must be given")
    if kind in ("tuple_type", "list_type") and not isinstance(given, dict):
        return f"{where} = {_shown(given)}: write a list: [{_toml(given)}]"
    message = str(complaint["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if not where:
        return message
    return f"{where} = {_shown(given)}: {message}"


def _fields_at(location: Sequence[str | int], model: type[BaseModel] | None, depth: int) -> list[str]:
    """The fields of the section that a location's last name stands in; empty where that is not known."""
    for part in location[len(location) - depth : -1]:
        if isinstance(part, str) and model is not None:
            field = model.model_fields.get(part)
            model = _model_in(field.annotation) if field else None
    return list(model.model_fields) if model else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds, be it in a tuple, beside None, or annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(argument) for argument in typing.get_args(annotation))
    return next((one for one in found if one is not None), None)


def _suggest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known fields: {', '.join(known)}" if known else "remove it"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, str) else str(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
