"""Manual pages of every command, from the help that the commands give: setup/man_pages.py FOLDER.

Needs an environment in which virtgauge is installed.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SECTION = 1


def pages() -> Iterator[tuple[str, str]]:
    """Name and text in roff (man(7)) of each command that users see, the whole program first."""
    import typer

    from virtgauge.cli import app

    yield from _pages(typer.main.get_command(app), ("virtgauge",))


def _pages(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    within = {name: one for name, one in getattr(command, "commands", {}).items() if not one.hidden}
    yield "-".join(path), "\n".join(_page(command, path, within)) + "\n"
    for name, one in within.items():
        yield from _pages(one, (*path, name))


def _page(command: Any, path: tuple[str, ...], within: dict[str, Any]) -> Iterator[str]:
    from virtgauge import __version__

    context = command.make_context(" ".join(path), [], resilient_parsing=True)
    summary, _, rest = (command.help or "").replace("\b", "").partition("\n\n")
    name = "-".join(path)
    yield f'.TH "{_text(name).upper()}" {SECTION} "" "virtgauge {_text(__version__)}" "virtgauge"'
    yield from (".SH NAME", f"{_text(name)} \\- {_text(_plain(summary)).rstrip('.')}")
    yield from (".SH SYNOPSIS", f".B {_text(' '.join(path))}", _text(" ".join(command.collect_usage_pieces(context))))
    if rest.strip():
        yield ".SH DESCRIPTION"
        for paragraph in re.split(r"\n\s*\n", rest.strip()):
            yield from (_text(_plain(paragraph)), ".PP")
    records = [record for one in command.get_params(context) if (record := one.get_help_record(context))]
    if records:
        yield ".SH OPTIONS"
    for option, told in records:
        yield from (".TP", f".B {_text(option)}", _text(_plain(told)) or "\\&")
    if within:
        yield ".SH COMMANDS"
    for one, own in within.items():
        yield from (".TP", f".BR {_text(f'{name}-{one}')} ({SECTION})", _text(_plain(own.get_short_help_str(200))))
    if command.epilog:
        yield ".SH NOTES"
        for paragraph in command.epilog.split("\n\n"):
            yield from (_text(_plain(paragraph)), ".PP")


def _plain(words: str) -> str:
    """In one line, with the brackets that are escaped because rich would take them for marks; no help has marks."""
    return " ".join(words.replace("\\[", "[").split())


def _text(words: str) -> str:
    """As roff takes it: nothing is a request, and a minus can be copied."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def write_pages(folder: Path) -> None:
    """All of them, compressed, the same bytes from the same help."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (folder / f"{name}.{SECTION}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
