from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from virtgauge.provision.parts import Lane, Part, provide
from virtgauge.provision.progress import Outcome, Progress, SetUpDisplay, State
from virtgauge.provision.tools import ToolError, run_logged


def part(name: str, lane: Lane, work: Callable[[], None] = lambda: None, after: tuple[str, ...] = ()) -> Part:
    def made(_: Progress) -> Outcome:
        work()
        return Outcome(name, State.MADE, name)

    return Part(name, name, lane, lambda: False, made, after=after)


def quiet() -> SetUpDisplay:
    return SetUpDisplay(Console(quiet=True))


def test_a_download_and_a_build_go_on_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=20)
    outcomes = provide([part("a", Lane.FETCH, both.wait), part("b", Lane.BUILD, both.wait)], quiet())
    assert {outcome.step for outcome in outcomes} == {"a", "b"}


def test_what_comes_after_waits_for_what_comes_before() -> None:
    order: list[str] = []

    def first() -> None:
        time.sleep(0.05)
        order.append("first")

    later = part("later", Lane.FETCH, lambda: order.append("later"), after=("first", "not asked for"))
    provide([later, part("first", Lane.BUILD, first)], quiet())
    assert order == ["first", "later"]


@pytest.mark.slow
def test_each_step_tells_how_long_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    (outcome,) = provide([part("a", Lane.BUILD, lambda: time.sleep(0.6))], SetUpDisplay())
    assert outcome.elapsed_s is not None and outcome.elapsed_s >= 0.6
    assert "[1 s]" in capsys.readouterr().err


def test_an_interrupted_set_up_ends_the_programs_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ended = threading.Event()
    started = tmp_path / "started"

    def run_for_long() -> None:
        try:
            run_logged(["sh", "-c", f"sleep 60 & touch {started}; wait"], log="x")
        except ToolError:
            ended.set()

    def break_off() -> None:
        while not started.exists():
            time.sleep(0.01)
        raise RuntimeError("a defect")

    with pytest.raises(ExceptionGroup):
        provide([part("long", Lane.FETCH, run_for_long), part("defect", Lane.BUILD, break_off)], quiet())
    assert ended.is_set()


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (["error: no default is configured", "13: <unknown>"], "error: no default is configured"),
        (["E: not found", "try another"], "E: not found"),
        (["warning: old", "it broke"], "it broke"),
    ],
)
def test_what_failed_is_told_by_its_last_error_and_not_by_what_came_after(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: list[str], told: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ToolError, match=f"ended with status 3: {re.escape(told)}"):
        run_logged(["sh", "-c", 'printf "%s\\n" "$@"; exit 3', "sh", *printed], log="x")
