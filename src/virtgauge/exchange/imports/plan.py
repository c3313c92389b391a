"""The plan of a run that holds imported trials only: which platform is the reference, and what is required."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from virtgauge.decisions.requirements import resolve
from virtgauge.errors import UsageError
from virtgauge.plan.explain import explain
from virtgauge.plan.requirements import Requirement

NAME = "imported"
"""Of the plan, of its platforms' kind and of the trials' suite: nothing of it was ever started here."""


class _RequirementsFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    require: tuple[Requirement, ...]


def read_requirements(path: Path) -> str:
    """The text of a file of ``[[require]]`` tables, checked.

    Raises:
        UsageError: it is none, or requires what no imported trial has.
    """
    try:
        text = path.read_text(encoding="utf-8")
        found = _RequirementsFile.model_validate(tomllib.loads(text)).require
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"--require {path}: {error}", "give a TOML file of [[require]] tables") from error
    except ValidationError as error:
        raise explain(error, str(path), model=Requirement) from error
    for index, required in enumerate(found):
        where = f"{path}: require[{index}]"
        if required.suite != NAME:
            raise UsageError(
                f"{where}.suite = {required.suite!r}: an import brings trials of the suite {NAME} only",
                f"`virtgauge measures {NAME}` lists what can be required of it",
            )
        if required.platforms:
            raise UsageError(
                f"{where}.platforms: platforms are imported one after another, and each is held to every requirement",
                "leave it out",
            )
    resolve(found, None, [], 0.95, str(path))
    return text


def plan_text(reference: str, requirements: str) -> str:
    """The plan as TOML, in the form of every plan.

    Args:
        reference: name of the platform; it is one of a plan.
        requirements: as they stand in a file of their own; empty where nothing is required.
    """
    return (
        "# Measured by other tools and imported: it says what is required, and cannot be run.\n"
        f'name = "{NAME}"\nreference = "{reference}"\naa = false\nseed = 0\n\n'
        f'[[platform]]\nname = "{reference}"\nkind = "{NAME}"\n\n[suite]\n{NAME} = []\n\n{requirements}'
    )
