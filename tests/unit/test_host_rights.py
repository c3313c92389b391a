"""Which right an ordinary user lacks, and the remedy: in refusals, before a run, and for `virtgauge doctor`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from suites.simulated_runs import execute, plan_of, simulated

from virtgauge.agent import AgentBinary
from virtgauge.execution.prepare import check_plan
from virtgauge.host import machine
from virtgauge.host.machine import AS_ROOT, NETWORK, lack_of_rights, lacking, missing_rights
from virtgauge.host.scope import Scope
from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.plan.load import load_plan
from virtgauge.platforms import create, local
from virtgauge.platforms.base import Disk, GuestSpec
from virtgauge.platforms.local import NO_IMAGE, mounted_disks
from virtgauge.suites.timing import TimingSuite

ASKED = """
import json
from virtgauge.host.machine import NETWORK, lacking, missing_rights
print(json.dumps([lacking(*NETWORK), lacking("CAP_SYS_NICE"), missing_rights()]))
"""
DESIGNS = """
name = "designs"
repetitions = 1
[[platform]]
name = "host"
kind = "{kind}"
[[suite.bandwidth]]
capacities_mbps = [300]
[[suite.forwarding]]
guests = 1
[[suite.isolation]]
policies = ["none", "limit"]
[[suite.storage]]
databases = ["sqlite", "postgresql"]
"""


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without any right."""
    monkeypatch.setattr(machine, "lacking", lambda *names: f" (this user lacks {' and '.join(names)})")


def without(*names: str) -> tuple[str, str, dict[str, tuple[str, str]]]:
    """What root is told that has given rights up; of things that it cannot have, why, and the remedy."""
    given_up = ["setpriv", f"--bounding-set={','.join(names)}", sys.executable, "-c", ASKED]
    network, nice, missing = json.loads(subprocess.run(given_up, capture_output=True, check=True).stdout)
    return network, nice, {what: (why, fix) for what, why, fix in missing}


@pytest.mark.usefixtures("root")
def test_root_lacks_nothing_and_who_gave_a_right_up_lacks_that_one() -> None:
    assert lacking(*NETWORK, "CAP_SYS_NICE", "CAP_DAC_OVERRIDE") == ""
    assert missing_rights() == []
    assert lack_of_rights("the suite bandwidth", *NETWORK) is None
    network, nice, missing = without("-net_admin")
    assert (network, nice) == (" (this user lacks CAP_NET_ADMIN)", "")
    assert list(missing.values()) == [("this user lacks CAP_NET_ADMIN", AS_ROOT)]
    assert "the suites bandwidth and forwarding" in next(iter(missing))


@pytest.mark.usefixtures("root")
def test_who_has_no_right_is_told_of_each_with_its_remedy() -> None:
    network, nice, missing = without("-all")
    assert network == " (this user lacks CAP_NET_ADMIN and CAP_SYS_ADMIN)"
    assert nice == " (this user lacks CAP_SYS_NICE)"
    reasons = [why.removeprefix("this user lacks ") for why, _ in missing.values()]
    assert reasons == ["CAP_NET_ADMIN and CAP_SYS_ADMIN", "CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE", "CAP_SYS_NICE"]
    assert all(fix.startswith(AS_ROOT) for _, fix in missing.values())


@pytest.mark.usefixtures("nothing")
def test_what_a_plan_cannot_have_is_said_before_the_run_and_nothing_lacks_for_a_simulation(tmp_path: Path) -> None:
    told = {}
    for kind in ("host", "simulated"):
        (tmp_path / f"{kind}.toml").write_text(DESIGNS.format(kind=kind))
        told[kind] = check_plan(*load_plan(str(tmp_path / f"{kind}.toml"))).missing_prerequisites()
    assert told["simulated"] == []
    words = "\n".join(told["host"])
    for what, names in (
        ("the suite bandwidth", "CAP_NET_ADMIN and CAP_SYS_ADMIN"),
        ("the suite forwarding", "CAP_NET_ADMIN and CAP_SYS_ADMIN"),
        ("the suite storage: postgresql", "CAP_NET_ADMIN and CAP_SYS_ADMIN"),
        ("the suite isolation: its policies", "CAP_DAC_OVERRIDE"),
    ):
        assert f"{what} (this user lacks {names}): {AS_ROOT}" in words


@pytest.mark.usefixtures("nothing")
def test_what_this_user_cannot_have_is_refused_without_a_guest_and_the_rest_is_not(tmp_path: Path) -> None:
    (tmp_path / "host.toml").write_text(DESIGNS.format(kind="host"))
    design = check_plan(*load_plan(str(tmp_path / "host.toml")))
    simulation = create("simulated", {})
    refused = set()
    for cell in design.cells:
        suite = design.suites[cell.key]
        assert suite.refusal(cell, simulation) is None
        if words := suite.refusal(cell, design.platforms["host"]):
            assert words.endswith(f"(this user lacks CAP_NET_ADMIN and CAP_SYS_ADMIN): {AS_ROOT}")
            refused.add((cell.suite, cell.factors.get("database")))
    assert refused == {("bandwidth", None), ("forwarding", None), ("storage", "postgresql")}


def test_a_refused_cell_costs_no_other(
    simulated_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(simulated("a"), repetitions=1)
    monkeypatch.setattr(
        TimingSuite, "refusal", lambda self, cell, platform: "no" if cell.factors["function"] == "rdtsc" else None
    )
    execute(plan, tmp_path / "run")
    with Ledger.open(tmp_path / "run") as ledger:
        found = {(trial.factors["function"], trial.status, trial.error) for trial in ledger.trials()}
        assert len(ledger.guests()) == 1
    assert found == {("rdtsc", TrialStatus.UNSUPPORTED, "no"), ("rdtscp", TrialStatus.VALID, None)}
    monkeypatch.setattr(TimingSuite, "refusal", lambda self, cell, platform: "no")
    execute(plan, tmp_path / "none")
    with Ledger.open(tmp_path / "none") as ledger:
        assert {trial.status for trial in ledger.trials()} == {TrialStatus.UNSUPPORTED}
        assert ledger.guests() == []


def test_who_may_not_mount_has_a_folder_in_place_of_a_disk(
    private_state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "lacking", lambda *names: f" (this user lacks {' and '.join(names)})")
    (tmp_path / "place").mkdir()
    image = tmp_path / "place" / "disk.img"
    image.write_bytes(bytes(4096))
    with Scope() as scope:
        disk = Disk(image, scope.folder / "disk")
        spec = GuestSpec(name="g", scope=scope, agent=AgentBinary(Path("/bin/true"), "0" * 64), disks=(disk,))
        for _ in range(2):  # and anew, as after a crash
            with contextlib.ExitStack() as removal:
                assert mounted_disks(spec, removal) == f"{NO_IMAGE} (this user lacks CAP_SYS_ADMIN)"
                (disk.folder / "file").write_text("data")
                assert not image.exists(), "it has taken room that the folder needs"
            assert not disk.folder.exists()
            assert (image.parent / "files" / "file").read_text() == "data"
