"""Which platforms, servers or moments a slow test meets in `make test`, and which only in `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(kept: Iterable[Any], rest: Iterable[Any]) -> list[Any]:
    """Parameters: a value is one argument, a tuple several."""
    return [
        *kept,
        *(pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=pytest.mark.full) for one in rest),
    ]


def on(kept: str, rest: str = "") -> pytest.MarkDecorator:
    """For tests with a fixture `platform`: names of platforms, in words."""
    return pytest.mark.parametrize("platform", sampled(kept.split(), rest.split()), indirect=True)
