"""CPUs as the kernel lists them: ``0-2,4``."""

from __future__ import annotations


def cpu_list(text: str) -> frozenset[int]:
    """Their numbers; none of an empty list.

    Raises:
        ValueError: it is no such list.
    """
    ranges = (part.partition("-") for part in text.split(",") if part)
    return frozenset(cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1))
