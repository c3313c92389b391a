"""Reads a plan from a preset or a file."""

from __future__ import annotations

import difflib
import secrets
import tomllib
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from virtgauge.errors import UsageError
from virtgauge.plan.explain import explain
from virtgauge.plan.model import Plan
from virtgauge.plan.paper_presets import paper_names, paper_text


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
    path = Path(preset_or_path)
    if preset_or_path not in preset_names() and (path.suffix == ".toml" or path.exists()):
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the plan {path}: {error}", "check the path") from error
        return parse_plan(text, str(path)), str(path)
    source = f"preset {preset_or_path}"
    return parse_plan(preset_text(preset_or_path), source), source


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
        raise explain(error, source, model=Plan) from error
    if plan.seed is None:
        plan = plan.model_copy(update={"seed": secrets.randbelow(2**31)})
    return plan


def _presets() -> resources.abc.Traversable:
    return resources.files("virtgauge.plan") / "presets"
