"""Blocks of memory by their names: ``64MiB``, or ``4xLLC``, so many times the host's largest cache."""

from __future__ import annotations

import re
from pathlib import Path

_SIZE = re.compile(r"([1-9][0-9]{0,6})(KiB|MiB|GiB)")
_CACHES = re.compile(r"([1-9][0-9]{0,2}(?:\.[0-9])?|0\.[1-9])xLLC")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
LEAST_BYTES, LARGEST_BYTES = 2**20, 2**36


def largest_cache_bytes(caches: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """The largest cache of any one processor of this host, by its kernel; None where that does not tell."""
    found = []
    for size in caches.glob("cpu[0-9]*/cache/index[0-9]*/size"):
        try:
            text = size.read_text().strip()
            found.append(int(text.rstrip("KMG")) * _UNITS.get(text[-1:], 1))
        except (OSError, ValueError):
            continue
    return max(found, default=None)


def is_a_block(text: str) -> str:
    """Check a block's name; for pydantic.

    Raises:
        ValueError: it is none, or one of a size that no benchmark takes.
    """
    if not (_SIZE.fullmatch(text) or _CACHES.fullmatch(text)):
        raise ValueError("is no block; write 64MiB, or 4xLLC for four times the largest cache")
    if (size := _SIZE.fullmatch(text)) is not None:
        count = int(size[1]) * _UNITS[size[2][0]]
        if not LEAST_BYTES <= count <= LARGEST_BYTES:
            raise ValueError("is out of range; a block has from 1MiB to 64GiB")
    return text


def block_bytes(name: str, cache_bytes: int | None) -> int | None:
    """The size of a block.

    Args:
        name: as :func:`is_a_block` accepts it.
        cache_bytes: of the largest cache; None where it is not known.

    Returns:
        None where it depends on a cache that is not known.
    """
    if (size := _SIZE.fullmatch(name)) is not None:
        return int(size[1]) * _UNITS[size[2][0]]
    caches = _CACHES.fullmatch(name)
    assert caches is not None
    if cache_bytes is None:
        return None
    return min(max(round(float(caches[1]) * cache_bytes), LEAST_BYTES), LARGEST_BYTES)
