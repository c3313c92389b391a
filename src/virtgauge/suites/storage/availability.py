"""What keeps a cell from being measured on this machine, found out before anything is started for it."""

from __future__ import annotations

import functools

from virtgauge.suites.storage.client import StoreError
from virtgauge.suites.storage.databases.base import Durability, Found, Missing, Profile
from virtgauge.suites.storage.databases.registry import database


@functools.cache
def found(name: str) -> Found | Missing:
    """Where a database is; looked for once in a run."""
    return database(name).find()


def shortfall(name: str) -> str | None:
    """Why a database cannot be started here and what would help, in words; None where it can."""
    place = found(name)
    if isinstance(place, Found):
        return None
    fix = f" (to enable it: {place.fix})" if place.fix else ""
    return f"{database(name).title} is not here: {place.reason}{fix}"


def level_of(name: str, durability: Durability, period_ms: int) -> tuple[Found, Profile]:
    """Where a database is, and its settings of a level.

    Raises:
        StoreError: ``unsupported``: it is not here, or has no such level.
    """
    place = found(name)
    if not isinstance(place, Found):
        raise StoreError("unsupported", shortfall(name) or f"{name} is not here")
    return place, profile_of(name, durability, period_ms)


def profile_of(name: str, durability: Durability, period_ms: int) -> Profile:
    """The settings of a level.

    Raises:
        StoreError: ``unsupported``: the database has no such level.
    """
    profile = database(name).level(durability, period_ms)
    if isinstance(profile, str):
        raise StoreError("unsupported", f"{database(name).title} has no level {durability.value!r}: {profile}")
    return profile
