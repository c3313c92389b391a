"""Reads a plan from a preset or a file."""

from __future__ import annotations

import difflib
import re
import secrets
import tomllib
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from virtgauge.errors import UsageError
from virtgauge.plan.explain import PlanError, explain
from virtgauge.plan.model import Plan
from virtgauge.plan.paper_presets import paper_names, paper_text

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,79}")
"""Of a plan: run folders are named after it."""


def preset_names() -> list[str]:
    """The presets that come with virtgauge."""
    files = (entry.name.removesuffix(".toml") for entry in _presets().iterdir() if entry.name.endswith(".toml"))
    return [*sorted(files), *paper_names()]


def preset_text(name: str) -> str:
    """A preset's TOML.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in preset_names():
        close = difflib.get_close_matches(name, preset_names(), n=1)
        raise UsageError(
            f"no preset and no file is named {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""),
            f"presets: {', '.join(preset_names())}; or give the path of a plan (FILE.toml)",
        )
    return paper_text(name) if name in paper_names() else (_presets() / f"{name}.toml").read_text()


def load_plan(preset_or_path: str) -> tuple[Plan, str]:
    """A preset by its name, else a file; returns the plan and what to call its source in errors.

    Raises:
        UsageError: it does not exist, is not TOML, or is no plan.
    """
    text, source = plan_text(preset_or_path)
    plan = parse_plan(text, source)
    if not _NAME.fullmatch(plan.name):  # asked of new plans only: a run of any name can still be read
        allowed = "use 1 to 80 letters, digits, dots, dashes, underscores and colons, beginning with a letter or digit"
        raise PlanError(source, [f"name = {plan.name!r}: {allowed}"])
    return plan, source


def plan_text(preset_or_path: str) -> tuple[str, str]:
    """The TOML of a preset by its name, else of a file, and what to call its source in errors.

    Raises:
        UsageError: it does not exist, or cannot be read.
    """
    path = Path(preset_or_path)
    if preset_or_path in preset_names() or not (path.suffix == ".toml" or path.exists()):
        return preset_text(preset_or_path), f"preset {preset_or_path}"
    if (path / "ledger.sqlite").exists():
        raise UsageError(
            f"{path} is the folder of a run, not a plan",
            f"`virtgauge resume {path}` goes on with it; `virtgauge run {path}/plan.toml` runs its plan anew",
        )
    try:
        return path.read_text(), str(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the plan {path}: {error}", "check the path") from error


def parse_plan(text: str, source: str) -> Plan:
    """A plan from TOML; a seed is drawn when it names none.

    Raises:
        UsageError: naming source, field, value and remedy.
    """
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
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
