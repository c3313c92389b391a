from __future__ import annotations

from pathlib import Path

import pytest
from provision_machine import Machine

from virtgauge.provision.progress import State, silence
from virtgauge.provision.registries import RUNSC

GO = """#!/bin/sh
[ "$1" = version ] && { echo "go version go9.9 linux/amd64"; exit; }
echo "$CGO_ENABLED $GOFLAGS $*" >>"$MACHINE/go-calls"
cp go.mod go.sum "$MACHINE"
cp "$MACHINE/built-runsc" "$GOBIN/runsc"
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path, monkeypatch)
    (tmp_path / "built-runsc").write_text("#!/bin/sh\necho runsc version pinned\n")
    return machine


def test_without_go_there_is_no_gvisor_and_the_reason_is_said(machine: Machine) -> None:
    outcome = RUNSC.provision(silence)
    assert outcome.state is State.SKIPPED
    assert "Go is not installed" in outcome.detail
    assert outcome.fix is not None
    assert RUNSC.find() is None


def test_a_go_that_fetches_no_newer_tool_chain_is_refused(machine: Machine) -> None:
    machine.add_program("go", GO.replace("go9.9", "go1.19.8"))
    outcome = RUNSC.provision(silence)
    assert outcome.state is State.SKIPPED
    assert "version 1.19" in outcome.detail
    assert "1.21" in str(outcome.fix)


def test_the_pinned_version_is_built_without_c_and_without_paths(machine: Machine) -> None:
    machine.add_program("go", GO)
    assert RUNSC.provision(silence).state is State.MADE
    (call,) = (machine.folder / "go-calls").read_text().splitlines()
    assert call == "0 -trimpath -mod=readonly install -ldflags -s -w gvisor.dev/gvisor/runsc"
    assert f"gvisor.dev/gvisor {RUNSC.version}" in (machine.folder / "go.mod").read_text()
    assert f"gvisor.dev/gvisor {RUNSC.version} h1:" in (machine.folder / "go.sum").read_text()
    assert RUNSC.find() == machine.cache / "runsc" / RUNSC.version / "runsc"


def test_a_second_set_up_builds_nothing(machine: Machine) -> None:
    machine.add_program("go", GO)
    RUNSC.provision(silence)
    assert RUNSC.provision(silence).state is State.OK
    assert len((machine.folder / "go-calls").read_text().splitlines()) == 1


def test_a_rotten_runsc_is_built_anew(machine: Machine) -> None:
    machine.add_program("go", GO)
    RUNSC.provision(silence)
    runsc = RUNSC.find()
    assert runsc is not None
    whole = runsc.read_text()
    runsc.write_text(whole.replace("pinned", "pinneD"))
    assert RUNSC.provision(silence).state is State.MADE
    assert runsc.read_text() == whole


def test_a_runsc_that_does_not_start_is_not_kept(machine: Machine) -> None:
    machine.add_program("go", GO)
    (machine.folder / "built-runsc").write_text("#!/bin/sh\nexit 1\n")
    outcome = RUNSC.provision(silence)
    assert outcome.state is State.SKIPPED
    assert RUNSC.find() is None


def test_a_build_that_fails_says_the_compilers_last_word(machine: Machine) -> None:
    machine.add_program("go", "#!/bin/sh\n[ $1 = version ] || { echo 'go: module lookup disabled'; exit 1; }\n")
    outcome = RUNSC.provision(silence)
    assert outcome.state is State.SKIPPED
    assert "module lookup disabled" in outcome.detail
    assert list((machine.cache / "runsc").iterdir()) == []


def test_the_pinned_runsc_comes_before_the_one_on_path(machine: Machine) -> None:
    machine.add_program("runsc", "#!/bin/sh\n")
    assert RUNSC.find() == machine.programs / "runsc"
    machine.add_program("go", GO)
    RUNSC.provision(silence)
    assert RUNSC.find() == machine.cache / "runsc" / RUNSC.version / "runsc"
