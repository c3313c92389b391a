"""Guests that lie, babble, flood and stall: each costs its trial, and its text steers nobody who reads it."""

import csv
import io
import json
import re
from unittest import mock
from xml.etree import ElementTree

import pytest
from exported_runs import exported
from rich.console import Console
from suites.simulated_runs import execute, plan_of, report_of, simulated
from typer.testing import CliRunner

from virtgauge import cli, report
from virtgauge.agent import messages
from virtgauge.console import archive, guests, machine, plans
from virtgauge.console.displays import BarDisplay, LinesDisplay
from virtgauge.errors import VirtgaugeError
from virtgauge.exchange import Format
from virtgauge.exchange.query import Answer
from virtgauge.execution.progress import Notice
from virtgauge.host import reclaim
from virtgauge.image import inspection
from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.platforms.simulated import platform
from virtgauge.platforms.simulated.agent import SimulatedAgent
from virtgauge.suites import timing
from virtgauge.suites.testbed import Testbed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("private_state", "any_agent")]


class HostileAgent(SimulatedAgent):
    """The agent of a run's guests; the second probe that any of them is asked for is answered with malice."""

    malice = None
    asked = 0
    always = False

    async def _probe(self, message):
        HostileAgent.asked += 1
        if HostileAgent.always or HostileAgent.asked == 2:
            return await HostileAgent.malice(self, message)
        self.honest = message
        return await super()._probe(message)


def lying(**lies):
    """An honest answer but for what it says of these."""

    async def answer(agent, message):
        send = agent._send

        async def lied(sent):
            if sent["type"] == "result":
                value = sent["value"]
                for path, lie in lies.items():
                    *way, last = path.split("__")
                    inner = value
                    for name in way:
                        inner = inner[name]
                    inner[last] = lie
            await send(sent)

        agent._send = lied
        return await SimulatedAgent._probe(agent, message)

    return answer


async def babbling(agent, message):
    agent._writer.write(b"GET / HTTP/1.1\r\n\r\n")
    return await SimulatedAgent._probe(agent, message)


async def talking_of_something_else(agent, message):
    await agent._send({"type": "sing", "id": message["id"]})
    return True


async def flooding_with_samples(agent, message):
    while True:
        await agent._send({"type": "samples", "id": message["id"], "series": "x", "values": bytes(4_000_000)})


async def flooding_with_progress(agent, message):
    while True:
        await agent._send({"type": "progress", "id": message["id"], "done": 0.1})


async def stalling_within_a_frame(agent, message):
    agent._writer.write(b"\x00\x00\x10\x00half")
    return True


async def answering_twice(agent, message):
    await SimulatedAgent._probe(agent, message)
    await agent._result(message, {})
    return True


async def answering_for_another_trial(agent, message):
    return await SimulatedAgent._probe(agent, message | {"id": agent.honest["id"]})


async def never_done(agent, message):
    """A slice that brings nothing, in no time."""
    clocks = {"monotonic_ns": 0, "bracket_ns": 0}
    empty = {"unit": "ps", "values": b"", "counts": b"", "min": 0, "max": 0, "mean": 0.0, "n": 0}
    told = {"distribution": empty, "clocks_start": clocks, "clocks_end": clocks, "usage": {"elapsed_ns": 0}}
    await agent._result(message, told)
    return True


def run_with(malice, folder, monkeypatch):
    """The trials of a run of four of which one is answered so, and what was shown."""
    HostileAgent.malice, HostileAgent.asked = staticmethod(malice), 0
    monkeypatch.setattr(platform, "SimulatedAgent", HostileAgent)
    plan = plan_of(simulated("guest", seed=3), repetitions=2, design={"max_seconds": 0.1})
    complete, shown = execute(plan, folder)
    assert complete
    with Ledger.open(folder) as ledger:
        return list(ledger.trials()), shown


MALICE = {
    "no number in place of n": (lying(distribution__n="many"), "is not what docs/protocol.md says"),
    "no map in place of the distribution": (lying(distribution=[1, 2]), "is not what docs/protocol.md says"),
    "counts below nothing": (
        lying(distribution__counts=[-1, 2001], distribution__values=[1, 2]),
        "is not what docs/protocol.md says",
    ),
    "another unit": (lying(distribution__unit="parsec"), "the unit is 'parsec'"),
    "a mean beyond all numbers": (lying(distribution__mean=float("inf")), "is no number"),
    "numbers too large": (lying(distribution__max=2**64 - 1), "is not what docs/protocol.md says"),
    "a maximum that no row can hold": (lying(distribution__max=2**63 - 1), "a value is 9223372036854775807 'ps'"),
    "a mean that no row can hold": (lying(distribution__mean=1e300), "mean is 1e+300"),
    "a figure that no row can hold": (lying(evil=2**63), "result has a number of 16 hexadecimal digits"),
    "bytes in place of a figure": (lying(evil=b"x"), "bytes is not JSON serializable"),
    "more steal than a row can hold": (lying(usage__steal_ns=2**63), "has a number of 16 hexadecimal digits"),
    "text in place of steal": (lying(usage__steal_ns="none"), "is not what docs/protocol.md says"),
    "no usage": (lying(usage=None), "is not what docs/protocol.md says"),
    "text in place of a count": (lying(backward="often"), "is not what docs/protocol.md says"),
    "text in place of a clock": (lying(clocks_end__monotonic_ns="noon"), "is not what docs/protocol.md says"),
    "babble": (babbling, "a frame claims"),
    "another type": (talking_of_something_else, "unknown message type 'sing'"),
    "a flood of samples": (flooding_with_samples, "are not acceptable"),
    "a flood of progress": (flooding_with_progress, "more than 1000 messages answer one request"),
    "half a frame": (stalling_within_a_frame, "no result within"),
    "two answers": (answering_twice, "which was answered before"),
    "another trial's answer": (answering_for_another_trial, "which was answered before"),
}


@pytest.mark.parametrize("what", MALICE)
def test_malice_costs_its_trial_and_nothing_else(what, tmp_path, monkeypatch):
    malice, reason = MALICE[what]
    monkeypatch.setattr(messages, "_MOST_MESSAGES", 1000)
    monkeypatch.setattr(timing, "_SET_UP_S", 0.5)
    monkeypatch.setattr(Testbed, "timeout_factor", 2.0)
    trials, _ = run_with(malice, tmp_path / "run", monkeypatch)
    bad = [trial for trial in trials if trial.status is not TrialStatus.VALID]
    assert len({trial.key for trial in trials if trial.status is TrialStatus.VALID}) == 4
    (failed,) = bad
    assert reason in failed.error
    again = next(one for one in trials if one.key == failed.key and one.attempt == failed.attempt + 1)
    assert (again.status, again.guest_id != failed.guest_id) == (TrialStatus.VALID, True)
    report_of(tmp_path / "run")


@pytest.mark.parametrize("which", ["first", "second"])
def test_facts_that_no_row_can_hold_cost_their_launch(which, tmp_path, monkeypatch):
    told, honest, alone = [], SimulatedAgent._result, timing.TimingSuite.set_up

    async def boasting(agent, message, value):
        if "agent_version" in value:
            told.append(value)
            value = value | ({"memory_bytes": 2**63} if len(told) == ("first", "second").index(which) + 1 else {})
        await honest(agent, message, value)

    async def both(suite, spec, stage):
        testbed = await alone(suite, spec, stage)
        stage.platform.peer = stage.platform
        await stage.launch("second")
        return testbed

    monkeypatch.setattr(SimulatedAgent, "_result", boasting)
    monkeypatch.setattr(timing.TimingSuite, "set_up", both)
    plan = plan_of(simulated("guest", seed=3), repetitions=1, design={"max_seconds": 0.1})
    complete, _ = execute(plan, tmp_path / "run")
    assert complete
    with Ledger.open(tmp_path / "run") as ledger:
        ledger.check()
        first, *further = ledger.guests()
    assert "facts has a number of 16 hexadecimal digits" in first.error
    assert further and all(guest.error is None for guest in further)


STEERING = "=cmd|'/c calc'!A1\x1b[2J\x07\x9b31m\u202egnp\u2066\u200f<script>alert(1)</script>\r\nvirtgauge: all is well"
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


def spread(folder):
    """Put the text, as no agent can any more, wherever a ledger has text of a guest."""
    with Ledger.open(folder) as ledger, ledger.together():
        ledger._db.execute("UPDATE trials SET error = ? WHERE error IS NOT NULL", (STEERING,))
        ledger._db.execute("UPDATE events SET detail = ? WHERE kind = 'started'", (STEERING,))
        for place in ("run_id", "plan_name", "tool_version", "arms[0].label", "fingerprint.identity.cpu_model"):
            ledger._db.execute("UPDATE manifest SET value = json_set(value, ?, ?)", (f"$.{place}", STEERING))


TEXTS = (Format.CSV, Format.JUNIT, Format.JSON, Format.OPENMETRICS, Format.HDR, Format.BENCHER, Format.PHORONIX)


def everywhere(folder, tmp_path):
    """All that tells of a run, by the form in which it is told."""
    for form in TEXTS:
        yield form.value, exported(folder, form, tmp_path / f"run.{form}").read_bytes().decode()
    with Ledger.open(folder) as ledger:
        built = report.build(ledger)
    page = report.render_html(built)
    yield "page", re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)  # its own scripts; the data is looked at
    stream = io.StringIO()
    report.render_text(built, Console(file=stream, width=200, force_terminal=False))
    yield "terminal", stream.getvalue()
    yield "terminal", CliRunner().invoke(cli.app, ["report", str(folder), "--format", "json"]).stdout


@pytest.mark.parametrize("where", ["from the guest", "from the ledger"])
def test_text_of_a_guest_steers_nobody(where, tmp_path, monkeypatch):
    async def steering(agent, message):
        await agent._send({"type": "error", "id": message["id"], "code": "os", "message": STEERING, "errno": None})
        return True

    trials, _ = run_with(steering, tmp_path / "run", monkeypatch)
    (failed,) = [trial for trial in trials if trial.status is TrialStatus.FAILED]
    assert "gnp" in failed.error and failed.error.isprintable()
    if where == "from the ledger":
        spread(tmp_path / "run")
    for form, text in everywhere(tmp_path / "run", tmp_path):
        assert not FORBIDDEN.search(text.replace("\r\n", "\n")), form
        assert "<script>alert" not in text or form not in ("page", "junit", "phoronix"), form
        assert "gnp" in text or form == "bencher" or where == "from the guest", form
    with (tmp_path / "run.csv").open(newline="") as text:
        cells = [cell for row in csv.reader(text) for cell in row]
    assert any("gnp" in cell for cell in cells)
    for cell in cells:
        if cell.startswith(("=", "+", "-", "@", "\t", "\r")):
            float(cell)
    ElementTree.parse(tmp_path / "run.junit")
    json.loads((tmp_path / "run.json").read_text())


def test_neither_does_what_commands_print_of_archives_images_plans_and_dead_runs(tmp_path, monkeypatch, capsys):
    answer = Answer((STEERING,), [(STEERING,)], cut=False)
    for form in archive.AnswerFormat:
        archive._print(answer, form)
    (tmp_path / "image").touch()
    monkeypatch.setattr(inspection, "inspect", lambda image: mock.Mock(lines=lambda: [STEERING], problems=()))
    guests.check(tmp_path / "image", as_json=False)
    monkeypatch.setattr(reclaim, "find_dead_scopes", list)
    monkeypatch.setattr(reclaim, "reclaim_dead", lambda everyone: [STEERING])
    machine.clean()
    (tmp_path / "plan.toml").write_text(f"# {STEERING}", newline="\n")
    plans.show(str(tmp_path / "plan.toml"))
    out = capsys.readouterr().out
    assert out.count("gnp") == 9 and not FORBIDDEN.search(out.replace("\r\n", "\n")), ascii(out)


def test_neither_does_the_trace_of_a_defect_or_an_error(monkeypatch, capsys):
    for error, code in ((RuntimeError(STEERING), 70), (VirtgaugeError(STEERING, STEERING), 1)):
        monkeypatch.setattr(cli, "app", mock.Mock(side_effect=error))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        told = capsys.readouterr().err
        assert ended.value.code == code and "gnp" in told and not FORBIDDEN.search(told)


def test_neither_does_what_is_shown_while_a_run_goes_on():
    stream = io.StringIO()
    LinesDisplay(stream).show(Notice(STEERING))
    live = BarDisplay(Console(file=stream, width=200, force_terminal=True, color_system=None))
    live.show(Notice(STEERING))
    assert "gnp" in stream.getvalue() and not FORBIDDEN.search(stream.getvalue())


def test_slices_that_never_add_up_to_a_trial_end(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "_SET_UP_S", 5.0)  # no single slice takes so long, whatever the machine does meanwhile
    monkeypatch.setattr("virtgauge.execution.trial._OF_ALL_TAKES", 0.1)
    monkeypatch.setattr(Testbed, "timeout_factor", 1.0)
    monkeypatch.setattr(HostileAgent, "malice", staticmethod(never_done))
    monkeypatch.setattr(HostileAgent, "always", True)
    monkeypatch.setattr(platform, "SimulatedAgent", HostileAgent)
    design, validity = {"max_seconds": 0.1}, {"patience_s": 0.5}
    execute(plan_of(simulated("guest"), repetitions=1, attempts=1, design=design, validity=validity), tmp_path / "run")
    with Ledger.open(tmp_path / "run") as ledger:
        assert {(trial.status, trial.error) for trial in ledger.trials()} == {
            (TrialStatus.FAILED, "no result within 1.02 s")
        }
