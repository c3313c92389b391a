"""Help texts as they are written: no word in brackets is lost, and an option's value has a name instead of a type."""

from __future__ import annotations

import enum
import types
from pathlib import Path
from typing import Any, get_args, get_origin

from rich.markup import escape
from typer.core import TyperArgument, TyperGroup

_VALUES: dict[type, str] = {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH"}


class PlainHelp(TyperGroup):
    """The group of all commands."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        _finish(self)

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters, with the options of completion, which Typer adds at the end."""
        found = super().get_params(ctx)
        for parameter in found:
            _name_value(parameter)
        return found


def _finish(command: Any) -> None:
    """Correct what a command and those below it show.

    Typer reads help texts as Rich's markup, in which ``[fleet]`` is a style, and has no setting for Rich's looks
    without that.  It shows the Python type of every argument and flag.
    """
    for field in ("help", "short_help", "epilog"):
        if text := getattr(command, field):
            setattr(command, field, _as_written(text))
    for parameter in [*command.params, command.get_help_option(command.context_class(command))]:
        if parameter.help:
            parameter.help = _as_written(parameter.help)
        _name_value(parameter)
    for below in getattr(command, "commands", {}).values():
        _finish(below)


def _as_written(text: str) -> str:
    """In markup; a paragraph's lines are joined, for the terminal has a width of its own."""
    return escape("\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n")))


def _name_value(parameter: Any) -> None:
    annotation = parameter.type_descriptor.annotation
    if isinstance(parameter, TyperArgument):
        chosen = isinstance(annotation, type) and issubclass(annotation, enum.Enum)
        parameter.metavar = parameter.metavar or (_value(annotation) if chosen else (parameter.name or "").upper())
        # Beside its name there is nothing more to say in the column of types.
        parameter.display_type_rich = lambda ctx: ""  # type: ignore[method-assign]
    elif parameter.metavar is None:
        parameter.metavar = "" if parameter.is_flag else _value(annotation)


def _value(annotation: Any) -> str:
    if get_origin(annotation) in (list, types.UnionType):
        return _value(next(one for one in get_args(annotation) if one is not type(None)))
    if issubclass(annotation, enum.Enum):
        return "|".join(str(one.value) for one in annotation)
    return _VALUES[annotation]
