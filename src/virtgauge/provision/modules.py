"""Which module files a guest needs of an extracted kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from virtgauge.provision.kernel import module_dependencies


class ModuleError(Exception):
    """A module, or one that it depends on, is not there."""


def module_closure(folder: Path, names: Sequence[str]) -> list[Path]:
    """The files of modules and of all that they depend on, in an order in which they can be loaded.

    What the kernel has built in (by its ``modules.builtin``) needs no file and is left out.

    Args:
        folder: holds uncompressed ``*.ko`` files anywhere below it.
        names: module names; dashes and underscores are the same.

    Raises:
        ModuleError: one of them is missing, or they depend on each other in a circle.
    """
    files = {canonical(path.stem): path for path in sorted(folder.rglob("*.ko"))}
    built_in = _built_in(folder)
    ordered: list[Path] = []

    def visit(name: str, wanted_by: tuple[str, ...]) -> None:
        if name in wanted_by:
            raise ModuleError(f"modules depend on each other: {' → '.join((*wanted_by, name))}")
        if name in built_in:
            return
        path = files.get(name)
        if path is None:
            needed = f" (needed by {wanted_by[-1]})" if wanted_by else ""
            raise ModuleError(f"the kernel has no module {name!r}{needed} below {folder}")
        if path in ordered:
            return
        for dependency in module_dependencies(path.read_bytes()):
            visit(canonical(dependency), (*wanted_by, name))
        ordered.append(path)

    for name in names:
        visit(canonical(name), ())
    return ordered


def canonical(name: str) -> str:
    """A module's name as the kernel reports it."""
    return name.replace("-", "_")


def _built_in(folder: Path) -> set[str]:
    try:
        lines = (folder / "modules.builtin").read_text().splitlines()
    except OSError:
        return set()
    return {canonical(Path(line).stem) for line in lines if line}
