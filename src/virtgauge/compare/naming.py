"""What runs and cells are called beside one another: only what tells them apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from virtgauge.compare.runs import ReadRun
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import probe_title


def cell_names(cells: Sequence[Cell]) -> dict[Cell, str]:
    """A name for each cell: its probe, and the levels in which the cells of that probe differ.

    ``Sleep lateness: usleep · minimal · cpu``; a level that is a number or a plain yes or no keeps its factor's name.
    """
    factors: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    levels: defaultdict[tuple[str, str], defaultdict[str, set[str | None]]] = defaultdict(lambda: defaultdict(set))
    for suite, probe, items in cells:
        factors[suite, probe].update(dict.fromkeys(factor for factor, _ in items))
    for suite, probe, items in cells:
        has = dict(items)
        for factor in factors[suite, probe]:
            levels[suite, probe][factor].add(has.get(factor))
    return {cell: _name(cell, levels[cell[0], cell[1]]) for cell in cells}


def _name(cell: Cell, levels: Mapping[str, set[str | None]]) -> str:
    suite, probe, items = cell
    said = [_level(factor, str(level)) for factor, level in items if len(levels[factor]) > 1 and level]
    title = probe_title(probe) if suite == "timing" else f"{suite.capitalize()} {probe_title(probe)}"
    if not said:
        said = [_level(factor, str(level)) for factor, level in items[:1] if level]
    return f"{title}: {' · '.join(said)}" if said else title


def _level(factor: str, level: str) -> str:
    plain = level.replace(".", "", 1).isdigit() or level in ("yes", "no", "none", "default")
    return f"{factor.replace('_', ' ')} {level}" if plain else level


def run_labels(runs: Sequence[ReadRun]) -> list[str]:
    """A label for each run: its name, and where two have the same one, when it was made."""
    names = [run.manifest.run_id for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({run.manifest.created_at[:19].replace('T', ' ')})"
        for name, run in zip(names, runs, strict=True)
    ]
