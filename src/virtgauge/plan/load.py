"""Reads a plan from a preset or a file; what is refused is an error that names file, field, value and remedy."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import secrets
import shlex
import tomllib
import typing
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from virtgauge.errors import UsageError, closest, nearest
from virtgauge.plan.model import Plan
from virtgauge.plan.requirements import toml_names


class PlanError(UsageError):
    """Everything that is wrong with a plan: of the file or preset, a line for each field, value and remedy.

    ``content`` is the file's where its frame was refused; its sections may have problems of their own.
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

    def add(self, message: str, remedy: str | None) -> None:
        self.lines.append(f"{message}; {remedy}" if remedy else message)

    @contextlib.contextmanager
    def collected(self, path: Sequence[str | int] = (), model: type[BaseModel] | None = None) -> Iterator[None]:
        """Keep an error of the block, which may be of a section of that path and model, and go on behind it."""
        try:
            yield
        except ValidationError as error:
            self.lines += explain(error, self.source, path, model).lines
        except PlanError as error:
            self.lines += error.lines
        except UsageError as error:
            self.add(error.message.removeprefix(f"{self.source}: "), error.remedy)

    def raise_if_any(self) -> None:
        """End the collection. Raises PlanError: there was a problem."""
        if self.lines:
            raise PlanError(self.source, list(dict.fromkeys(self.lines)))


def explain(
    error: ValidationError,
    source: str,
    path: Sequence[str | int] = (),
    model: type[BaseModel] | None = None,
    content: Mapping[str, Any] | None = None,
) -> PlanError:
    """All complaints of a validation, one line each; a mistake is told once, without what follows from it.

    The validated section stands at ``path`` in the plan; fields of ``model`` are suggested for an unknown one.
    ``content`` is what was validated, if it is a whole plan.
    """
    found = error.errors()
    complaints = (_line((*path, *one["loc"]), one, model) for one in found if not _follows(one, found, model))
    return PlanError(source, [line for text in complaints for line in text.splitlines()], content)


def _follows(complaint: Any, others: Sequence[Any], model: type[BaseModel] | None) -> bool:
    """Whether it is about a field that was given under a misspelt name, or a list whose elements were refused."""
    where, kind = complaint["loc"], complaint["type"]
    if kind == "too_short":
        return any(len(one["loc"]) > len(where) and one["loc"][: len(where)] == where for one in others)
    known = _fields_at(where, model, len(where)) if kind == "missing" else []
    unknown = (one["loc"] for one in others if one["type"] == "extra_forbidden")
    return any(loc[:-1] == where[:-1] and closest(str(loc[-1]), known) == where[-1] for loc in unknown)


def _line(location: Sequence[str | int], complaint: Any, model: type[BaseModel] | None) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    kind, given = complaint["type"], complaint["input"]
    if kind == "extra_forbidden":
        fields = _fields_at(location, model, len(complaint["loc"]))
        known = f"; known fields: {', '.join(fields)}" if fields else "; remove it"
        return f"{where}: unknown field{nearest(str(location[-1]), fields) or known}"
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
            model = model_in(field.annotation) if field else None
    return list(model.model_fields) if model else []


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds, be it in a tuple, beside None, or annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (model_in(argument) for argument in typing.get_args(annotation))
    return next((one for one in found if one is not None), None)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, str) else str(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


PAPER_PREFIX = "paper:"  # Of a plan's name whose report sets the papers' conclusions beside what was measured
ALL = f"{PAPER_PREFIX}all"
FULL_PREFIX = "full:"  # Of the exhaustive form of a preset
_PARTS = ("timing", "bandwidth", "forwarding", "storage", "isolation")
_ABOUT = (
    "A short replay of four papers: each of their conclusions beside what is measured here; an hour on two cores, and "
    "up to twice as long while conclusions are open"
)
_HEAD = f"""\
# The designs of {", ".join(PAPER_PREFIX + part for part in _PARTS)},
# composed into one plan; `virtgauge plan show {PAPER_PREFIX}timing` and so on say why each is what it is.
"""


@functools.cache
def _composed() -> str:
    import tomli_w

    plans = [tomllib.loads(preset_text(PAPER_PREFIX + part)) for part in _PARTS]
    platforms: dict[str, dict[str, Any]] = {}
    for plan in plans:
        for section in plan["platform"]:
            if platforms.setdefault(section["name"], section) != section:
                raise ValueError(f"{plan['name']}: platform {section['name']!r} differs from another plan's")
    composed = {
        "name": ALL,
        "description": _ABOUT,
        "repetitions": max(plan["repetitions"] for plan in plans),
        "budget": {key: max(plan["budget"][key] for plan in plans) for key in plans[0]["budget"]},
        "platform": list(platforms.values()),
        "suite": {suite: designs for plan in plans for suite, designs in _scoped(plan).items()},
    }
    return _HEAD + tomli_w.dumps(composed)


def _scoped(plan: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """A plan's designs, each for the platforms of that plan, and for its A/A arm only if that plan has one."""
    scope: dict[str, Any] = {"platforms": [section["name"] for section in plan["platform"]]}
    if not plan.get("aa", True):
        scope["aa"] = False
    return {suite: [scope | design for design in designs] for suite, designs in plan["suite"].items()}


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,79}")  # Of a plan: run folders are named after it


def preset_names() -> list[str]:
    """The presets that come with virtgauge."""
    papers = (ALL, *(PAPER_PREFIX + part for part in _PARTS))
    return [*toml_names(_presets()), *papers, *(FULL_PREFIX + name for name in toml_names(_presets() / "full"))]


def full_form(preset: str) -> str:
    """The name of a preset's exhaustive form. Raises UsageError: it has none."""
    if FULL_PREFIX + preset not in preset_names():
        known = ", ".join(name.removeprefix(FULL_PREFIX) for name in preset_names() if name.startswith(FULL_PREFIX))
        raise UsageError(f"--full: {preset!r} has no exhaustive form", f"leave it out; it is of {known}")
    return FULL_PREFIX + preset


def preset_text(name: str) -> str:
    """A preset's TOML. Raises UsageError: there is none of that name."""
    if name not in preset_names():
        raise UsageError(
            f"no preset and no file is named {name!r}{nearest(name, preset_names())}",
            f"presets: {', '.join(preset_names())}; or give the path of a plan (FILE.toml)",
        )
    if name == ALL:
        return _composed()
    folder, _, file = name.rpartition(":")
    return (_presets() / folder / f"{file}.toml").read_text(encoding="utf-8")


def load_plan(preset_or_path: str) -> tuple[Plan, str]:
    """A preset by its name, else a file; returns the plan and what to call its source in errors.
    Raises UsageError: it does not exist, is not TOML, or is no plan.
    """
    text, source = plan_text(preset_or_path)
    plan = parse_plan(text, source)
    if not _NAME.fullmatch(plan.name):  # asked of new plans only: a run of any name can still be read
        allowed = "use 1 to 80 letters, digits, dots, dashes, underscores and colons, beginning with a letter or digit"
        raise PlanError(source, [f"name = {plan.name!r}: {allowed}"])
    return plan, source


def plan_text(preset_or_path: str) -> tuple[str, str]:
    """The TOML of a preset by its name, else of a file, and what to call its source in errors.
    Raises UsageError: it does not exist, or cannot be read.
    """
    path = Path(preset_or_path)
    if preset_or_path in preset_names() or not (path.suffix == ".toml" or path.exists()):
        return preset_text(preset_or_path), f"preset {preset_or_path}"
    if (path / "ledger.sqlite").exists():
        run, plan = shlex.quote(str(path)), shlex.quote(f"{path}/plan.toml")
        raise UsageError(
            f"{path} is the folder of a run, not a plan",
            f"`virtgauge resume {run}` goes on with it; `virtgauge run {plan}` runs its plan anew",
        )
    try:
        return path.read_text(), str(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the plan {path}: {error}", "check the path") from error


def parse_plan(text: str, source: str) -> Plan:
    """A plan from TOML; a seed is drawn when it names none.
    Raises UsageError: naming source, field, value and remedy.
    """
    try:
        value = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # of TOML; an integer of too many digits; too many brackets
        raise UsageError(f"{source} is not TOML: {error}", "correct that line") from error
    try:
        plan = Plan.model_validate(value)
    except ValidationError as error:
        raise explain(error, source, model=Plan, content=value) from error
    if plan.seed is None:
        plan = plan.model_copy(update={"seed": secrets.randbelow(2**31)})
    return plan


def _presets() -> resources.abc.Traversable:
    return resources.files("virtgauge.plan") / "presets"
