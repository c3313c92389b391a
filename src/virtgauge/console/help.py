"""Help texts as they are written: no word in brackets is lost, and an option's value has a name instead of a type.

What is refused of a command's words is an error as all others are, with a way on.
"""

from __future__ import annotations

import contextlib
import enum
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import typer
from rich.markup import escape
from typer.core import TyperArgument, TyperGroup

from virtgauge.errors import UsageError, nearest

_VALUES: dict[type, str] = {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH"}


class PlainHelp(TyperGroup):
    """The group of all commands."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        _finish(self)

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """The context of the whole command. Raises UsageError: its words were refused."""
        with _refusals():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        """Carry out the command that was named. Raises UsageError: its words were refused."""
        with _refusals():
            return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters, with the options of completion, which Typer adds at the end."""
        found = super().get_params(ctx)
        for parameter in found:
            _name_value(parameter)
        return found


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except typer.BadParameter.__base__ as error:  # type: ignore[misc]  # of Typer's own copy of click, where it has one
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        names: list[str] = []
        place = error.ctx
        while place is not None and place.parent is not None:
            names.insert(0, place.info_name)
            place = place.parent
        message = error.format_message()
        if message.startswith("No such option"):
            known = [one for parameter in error.ctx.command.get_params(error.ctx) for one in parameter.opts]
            message = f"no such option: {error.option_name}{nearest(error.option_name, known)}"
        message = message[:1].lower() + message[1:].rstrip(".")
        told = f"{' '.join(names)}: {message}" if names else message
        raise UsageError(told, f"`{' '.join(['virtgauge', *names])} --help` says what can be given") from None


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
