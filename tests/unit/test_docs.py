"""What the documentation promises exists: pages, commands, options, keys of plans, and the tutorial's verdicts."""

from __future__ import annotations

import functools
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from virtgauge.cli import app
from virtgauge.console.plan_reference import field_docstrings, plan_reference
from virtgauge.plan.model import DesignScope
from virtgauge.plan.requirements import Budget, Requirement
from virtgauge.platforms import KINDS, settings_model
from virtgauge.provision.parts import GROUPS, PARTS
from virtgauge.suites.registry import SUITES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*DOCS.rglob("*.md"), *ROOT.glob("*.md"), ROOT / "native/hptime/README.md"], key=lambda page: page.as_posix()
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`\n]+)`")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", one)).lower() for one in headings)
    return {one.replace(" ", "-") for one in plain}


def commands(page: Path) -> Iterator[str]:
    """Every `virtgauge …` that a page shows: in spans, in fenced blocks, in indented ones."""
    for block in _FENCE.finditer(page.read_text()):
        yield from re.findall(r"^(?:\$ |sudo )?(virtgauge .+[^:\n])$", block[2], re.MULTILINE)
    text = prose(page)
    yield from re.findall(r"^    (?:\$ |sudo )?(virtgauge .+[^:\n])$", text, re.MULTILINE)
    yield from (span for span in _SPAN.findall(text) if span.startswith("virtgauge "))


@functools.cache
def _command() -> Any:
    return typer.main.get_command(app)


def wrong_in(command: str) -> str | None:
    """What of a command line does not exist; None if all does."""
    words = shlex.split(command.split("  ")[0].split(" > ")[0].split(" | ")[0], comments=True)
    here: Any = _command()
    for word in words[1:]:
        if word == "--" or word.startswith("["):
            break
        if word.startswith("-"):
            known = {"--help"} | {name for one in here.params for name in (*one.opts, *one.secondary_opts)}
            if word.split("=")[0].rstrip("]") not in known:
                return f"{here.name} has no option {word}"
        elif groups := getattr(here, "commands", None):
            if word not in groups:
                return None if word.isupper() or "…" in word else f"{here.name} has no command {word}"
            here = groups[word]
    return None


def test_the_readme_is_read_in_one_go() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def rows(page: str, after: str) -> list[list[str]]:
    """The table that follows some words of a page."""
    table = (ROOT / page).read_text().partition(after)[2].partition("|---|")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[1:]]


def test_readme_and_support_name_the_same_platforms_and_hypervisors() -> None:
    readme, support = rows("README.md", "## Which platforms"), rows("docs/support.md", "\n## Platforms")
    told = {"README.md": " ".join(map(str, readme)), "docs/support.md": " ".join(map(str, support))}
    guided = [name for row in rows("docs/platforms/README.md", "**ssh or an image?**") for name in row[0].split(", ")]
    assert "Proxmox VE" in guided
    for page, text in told.items():
        for name in (*(f"`{kind}`" for kind in KINDS), *(name.removeprefix("VMware ") for name in guided)):
            assert name in text, f"{name} has no state in {page}"


def test_readme_and_support_say_the_same_of_sandboxes_as_the_self_check() -> None:
    readme = next(row[-1] for row in rows("README.md", "## Which platforms") if "`bubblewrap`" in row)
    support = next(row[-1] for row in rows("docs/support.md", "\n## Platforms") if "`bubblewrap`" in row)
    assert re.sub(r"\[(.*?)\]\(.*?\)", r"\1", support) == readme
    checked = next(
        row for row in rows("docs/support.md", "made by `virtgauge support merge`") if "Bubblewrap" in row[0]
    )
    assert {*checked[4].split(", ")} == set(SUITES) and "every suite" in readme


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken = []
    for target in _LINK.findall(prose(page)):
        if "://" in target or target.startswith("mailto:"):
            continue
        file, _, anchor = target.partition("#")
        other = (page.parent / file).resolve() if file else page
        if not other.exists() or (anchor and other.suffix == ".md" and anchor not in anchors(other)):
            broken.append(target)
    assert not broken


def test_every_page_is_in_the_index() -> None:
    linked = {(DOCS / target.partition("#")[0]).resolve() for target in _LINK.findall((DOCS / "README.md").read_text())}
    missing = {name_of(page) for page in DOCS.rglob("*.md")} - {
        name_of(one) for one in linked if one.is_relative_to(ROOT)
    }
    assert missing == {"docs/README.md"}


def test_every_picture_is_shown_by_a_page() -> None:
    shown = {(page.parent / target).resolve() for page in PAGES for target in _LINK.findall(page.read_text())}
    assert {*DOCS.glob("*.png"), *DOCS.glob("*.svg")} <= shown


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_that_a_page_shows_exists_with_its_options(page: Path) -> None:
    wrong = [f"{command}: {why}" for command in commands(page) if (why := wrong_in(command)) is not None]
    assert not wrong


def test_every_make_target_that_a_page_shows_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {
        target
        for page in PAGES
        for target in re.findall(r"(?:`|^ *)make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE)
    }
    assert shown and shown <= targets


def test_every_part_that_a_page_provisions_exists() -> None:
    shown = {
        word
        for page in PAGES
        for command in commands(page)
        for word in shlex.split(command.replace("--flavour ", "--flavour="), comments=True)[2:]
        if command.startswith("virtgauge provision ") and word.islower() and not word.startswith("-")
    }
    assert shown and shown <= {*PARTS, *GROUPS}


def test_commands_and_options_that_do_not_exist_are_noticed() -> None:
    assert wrong_in("virtgauge run quick --out runs/a") is None
    assert "frobnicate" in (wrong_in("virtgauge frobnicate") or "")
    assert "--frobnicate" in (wrong_in("virtgauge run quick --frobnicate") or "")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_plans_that_a_page_shows_are_accepted(page: Path) -> None:
    for language, block in _FENCE.findall(page.read_text()):
        if language != "toml":
            continue
        shown = tomllib.loads(block)
        for suite, designs in shown.get("suite", {}).items():
            for design in [designs] if isinstance(designs, dict) else designs:
                SUITES[suite].create(DesignScope.split(design)[1])
        for platform in shown.get("platform", ()):
            settings_model(platform["kind"]).model_validate(
                {key: value for key, value in platform.items() if key not in ("name", "kind")}
            )
        for requirement in shown.get("require", ()):
            Requirement.model_validate(requirement)
        if "budget" in shown:
            Budget.model_validate(shown["budget"])


@pytest.mark.slow
def test_the_reference_of_plan_keys_is_what_the_models_say() -> None:
    assert (DOCS / "plan-reference.md").read_text() == plan_reference(), (
        "write it anew: virtgauge plan reference > docs/plan-reference.md"
    )


@pytest.mark.parametrize(
    "model",
    [*(suite.Settings for suite in SUITES.values()), *map(settings_model, KINDS)],
    ids=lambda model: model.__name__,
)
def test_every_key_of_a_plan_has_a_meaning(model: type) -> None:
    assert set(model.model_fields) <= set(field_docstrings(model))  # type: ignore[attr-defined]


def test_the_tutorials_second_plan_is_whole(tmp_path: Path) -> None:
    text = (DOCS / "tutorial.md").read_text()
    (plan,) = (block for language, block in _FENCE.findall(text) if language == "toml" and 'kind = "host"' in block)
    (tmp_path / "mine.toml").write_text(plan)
    checked = CliRunner().invoke(app, ["plan", "check", str(tmp_path / "mine.toml")])
    assert checked.exit_code == 0, checked.output
    assert "duration on this machine: about " in checked.output


@pytest.mark.slow
def test_the_tutorial_ends_in_the_verdicts_that_it_prints(tmp_path: Path, private_state: Path) -> None:
    text = (DOCS / "tutorial.md").read_text()
    plan, budget = (block for language, block in _FENCE.findall(text) if language == "toml" and "host" not in block)
    printed = re.findall(r"(pass|FAIL|undecided) +simulated \[(\w+)\] +([^;]+);", text)
    runner = CliRunner()
    found = []
    for name, added, status in (("first", "", 4), ("decided", budget, 4)):
        file = tmp_path / f"{name}.toml"
        file.write_text(f"{plan}\n{added}")
        run = tmp_path / "runs" / name
        assert runner.invoke(app, ["run", str(file), "--out", str(run), "--quiet"]).exit_code == status
        answer = runner.invoke(app, ["verdict", str(run), "--json"])
        document = json.loads(answer.output)
        found += [
            (
                verdict["outcome"],
                verdict["arm"],
                *(verdict["decisive"]["estimate"][end] for end in ("point", "low", "high")),
            )
            for verdict in document["verdicts"]
        ]
    words = {"pass": "pass", "FAIL": "fail", "undecided": "inconclusive"}
    for outcome, arm, figures in printed:
        told = [
            float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6}[unit]
            for number, unit in re.findall(r"([\d.]+) (\ws)", figures)
        ]
        assert any((words[outcome], arm) == one[:2] and told == pytest.approx(one[2:], rel=0.005) for one in found), (
            f"{outcome} {arm} {figures} is none of {found}"
        )
    assert len(printed) == 6


def test_the_workflows_and_the_issue_template_run_what_exists() -> None:
    files = sorted([*(ROOT / ".github").rglob("*.yml"), *(ROOT / ".github").rglob("*.md")])
    text = "\n".join(file.read_text() for file in files)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z][a-z-]*)$", text, re.MULTILINE)) <= targets
    shown = re.findall(r"\b(virtgauge [a-z][^`\n]+)", text.replace(".venv/bin/", ""))
    assert {command.split()[1] for command in shown} == {"self-check", "support"}
    assert not [why for command in shown if (why := wrong_in(command)) is not None]
    assert all((ROOT / path).exists() for path in re.findall(r"run: (\.ci\S+)", text))
