"""The report's summary in the terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.report import factor_tables, tables
from virtgauge.report.model import Headline, Report, Series, Tone
from virtgauge.report.words import confidence, duration, duration_interval, ratio, ratio_interval, share

_STYLES = {
    Tone.REFERENCE: ("●", "bold"),
    Tone.SLOWER: ("▲", "red"),
    Tone.FASTER: ("▼", "green"),
    Tone.SAME: ("=", "default"),
    Tone.EMULATED: ("~", "yellow"),
    Tone.MISSING: ("✗", "dim"),
}
_VERDICTS = {"worse": "red", "better": "green", "plain": "dim"}


def render_text(report: Report, console: Console) -> None:
    """Print verdicts, the figures of every cell, which factors matter, and what was skipped or spoilt.

    Texts of a run are printed as they are: never read as Rich markup, control characters taken out.
    """
    _heading(report, console)
    for headline in report.headlines:
        _headline(report, headline, console)
    for caveat in report.caveats:
        console.print(Text(f"! {_clean(caveat)}", style="yellow"))
    for group in tables.detail(report):
        console.print()
        console.print(_group_table(group, console.width))
    _factors(report, console)
    _validity(report, console)
    for arm in report.arms:
        if not arm.record.usable:
            fix = f"  →  {arm.record.fix}" if arm.record.fix else ""
            console.print(Text(f"skipped {_clean(arm.record.label)}: {_clean(arm.record.reason + fix)}", style="dim"))


def _heading(report: Report, console: Console) -> None:
    run = report.run
    title = Text(f"{_clean(run.plan_name)} ", style="bold")
    title.append(f"{_clean(run.created_at[:16]).replace('T', ' ')} UTC, {run.blocks} repetitions", style="dim")
    console.print(title)


def _headline(report: Report, headline: Headline, console: Console) -> None:
    mark, style = _STYLES[headline.tone]
    labels = [len(_clean(other.label)) for other in report.headlines]
    line = Table.grid(padding=(0, 1))
    line.add_column(width=1)
    line.add_column(width=min(max(labels), 32))
    line.add_column()
    emulated = " (emulated)" if report.arm(headline.arm).record.emulated else ""
    text = _clean(headline.text) + emulated + (" (reference)" if headline.tone is Tone.REFERENCE else "")
    line.add_row(Text(mark, style=style), Text(_clean(headline.label), style="bold"), Text(text, style=style))
    console.print(line)


def _group_table(group: tables.DetailGroup, width: int) -> Table:
    """One probe's figures; a narrow terminal gets fewer columns."""
    columns = [name for name in _COLUMNS if width >= _WIDE or name not in _ONLY_WHEN_WIDE]
    title = Text(f"{group.title}: {group.meaning}" if group.meaning else group.title)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("platform", overflow="fold")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for part in group.tables:
        table.add_row(Text(_clean(part.title), style="bold"))
        for arm, series in part.rows:
            platform = Text(f"  {_clean(arm.record.name)}")
            if arm.record.emulated:
                platform.append(" (emulated)", style="yellow")
            figures = _figures(series, arm.record.emulated)
            table.add_row(platform, *(figures[column] for column in columns))
        table.add_section()
    return table


_COLUMNS = ("median", "interval", "× reference", "p99", "p99.9", "max", "n")
_ONLY_WHEN_WIDE = {"interval", "p99.9", "n"}
_WIDE = 110


def _figures(series: Series, emulated: bool) -> dict[str, Text]:
    figures, comparison = series.statistics, series.comparisons.get("p50")
    if series.missing is not None:
        reason = Text(_clean(series.missing)[:24], style="dim")
        return {name: Text("–") for name in _COLUMNS} | {"× reference": reason}
    if comparison is None or comparison.ratio.point is None:
        against = Text("")
    else:
        style = _VERDICTS[tables.verdict_class(comparison, emulated)]
        against = Text(f"{ratio(comparison.ratio)} ({ratio_interval(comparison.ratio)})", style=style)
    return {
        "median": Text(duration(figures["p50"].point), style="bold"),
        "interval": Text(duration_interval(figures["p50"]), style="dim"),
        "× reference": against,
        **{name: Text(duration(figures[name].point)) for name in ("p99", "p99.9", "max")},
        "n": Text(str(len(series.blocks))),
    }


def _factors(report: Report, console: Console) -> None:
    """What matters for the median of each probe; the page has the other parameters, the pairs and the tests."""
    for section in factor_tables.factor_sections(report):
        said = section.sentences[0][1] if section.sentences else section.found.notes
        line = Text(f"{section.title}: ", style="bold")
        line.append(_clean(" ".join(said)), style="not bold")
        console.print(line)
    counts = factor_tables.claim_counts(report)
    if counts:
        tally = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
        console.print(
            Text(f"the timing paper's conclusions on its own tables: {tally} (see the HTML report)", style="dim")
        )


def _validity(report: Report, console: Console) -> None:
    agreement, statuses = report.agreement, report.statuses
    spoilt = ", ".join(f"{number} {status}" for status, number in statuses.items() if status != "valid")
    line = f"{statuses.get('valid', 0)} of {len(report.trials)} trials valid" + (f" ({spoilt})" if spoilt else "")
    if agreement.ok is not None and agreement.widest is not None:
        verdict = "agree" if agreement.ok else "DIFFER"
        line += f"; identical arms (A/A) {verdict}, medians within {share(agreement.widest - 1)}"
    line += f"; intervals at {confidence(report.run.confidence)} where the repetitions allow"
    console.print(Text(line))


def _clean(text: str) -> str:
    """Without control characters: a name must not steer the terminal."""
    return "".join(character if character.isprintable() else "�" for character in text)
