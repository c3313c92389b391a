"""Scopes, and what is reclaimed of dead ones."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from virtgauge.host.process import ProcessIdentity, environment_of, tree_pids, wait_until_gone
from virtgauge.host.reclaim import find_dead_scopes, reclaim_dead, reclaim_folder
from virtgauge.host.scope import Scope
from virtgauge.host.tag import OWNER_FILE, OWNER_VARIABLE, TAG_PATTERN, TAG_VARIABLE, scratch_root

DEAD = dataclasses.replace(ProcessIdentity.current(), start_ticks=1)


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def dead_folder(state: Path, tag: str, owner: ProcessIdentity = DEAD) -> Path:
    folder = state / tag
    folder.mkdir(parents=True)
    (folder / OWNER_FILE).write_text(json.dumps(owner.as_dict()))
    return folder


def sleeper(tag: str, owner: ProcessIdentity) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        ["sh", "-c", "sleep 60 & wait"], env={TAG_VARIABLE: tag, OWNER_VARIABLE: owner.as_text(), "PATH": "/bin"}
    )
    deadline = time.monotonic() + 10
    while TAG_VARIABLE not in environment_of(process.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return process


def test_a_scope_has_a_folder_that_none_can_list_with_its_owner_and_is_gone_at_its_end(private_state: Path) -> None:
    with Scope() as scope:
        assert TAG_PATTERN.fullmatch(scope.tag)
        assert scope.folder.stat().st_mode & 0o777 == 0o711
        owner = ProcessIdentity.from_dict(json.loads((scope.folder / OWNER_FILE).read_text()))
        assert owner == ProcessIdentity.current()
        assert scope.guest_folder("a-1.b").stat().st_mode & 0o777 == 0o700
        assert find_dead_scopes() == []
    assert not private_state.exists()


def test_the_folder_of_all_scopes_stays_while_another_scope_lives(private_state: Path) -> None:
    with Scope() as outer:
        with Scope():
            pass
        assert outer.folder.is_dir()


def test_a_guest_name_cannot_leave_the_scope(private_state: Path) -> None:
    with Scope() as scope:
        for name in ("", "..", "a/b", "-x", "a b"):
            with pytest.raises(ValueError, match="folder's name"):
                scope.guest_folder(name)
            with pytest.raises(ValueError, match="folder's name"):
                scope.scratch_folder(name)


def test_scratch_is_in_the_cache_private_and_gone_with_its_scope(private_state: Path) -> None:
    with Scope() as scope:
        folder = scope.scratch_folder("files")
        (folder / "file").write_bytes(b"x")
        assert folder.is_relative_to(scratch_root())
        assert folder.stat().st_mode & 0o777 == 0o700
        assert scope.scratch_folder("more").parent == folder.parent
        with pytest.raises(FileExistsError):
            scope.scratch_folder("files")
        assert find_dead_scopes() == []
    assert not scratch_root().exists()


def test_scratch_of_a_dead_owner_is_removed_whatever_state_folder_it_had_and_that_of_a_living_one_is_not(
    private_state: Path,
) -> None:
    dead = dead_folder(scratch_root(), "vg0000f1")
    (dead / "files").mkdir()
    living = dead_folder(scratch_root(), "vg0000f2", ProcessIdentity.current())
    assert any("removed" in line and line.startswith("vg0000f1:") for line in reclaim_dead())
    assert not dead.exists()
    assert living.is_dir()


def test_an_environment_names_scope_and_owner_and_hands_on_little(
    private_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    with Scope() as scope:
        environment = scope.environment()
        assert environment[TAG_VARIABLE] == scope.tag
        assert ProcessIdentity.from_text(environment[OWNER_VARIABLE]) == ProcessIdentity.current()
        assert "SECRET_TOKEN" not in environment


def test_a_living_owners_scope_is_never_touched(private_state: Path) -> None:
    folder = dead_folder(private_state, "vg0000a1", ProcessIdentity.current())
    process = sleeper("vg0000a1", ProcessIdentity.current())
    try:
        assert reclaim_dead() == []
        assert folder.is_dir()
        assert process.poll() is None
    finally:
        reclaim_folder(folder)
        process.wait(10)


def test_a_dead_scope_is_found_by_its_owner_by_another_boot_and_by_an_unreadable_owner(private_state: Path) -> None:
    dead_folder(private_state, "vg0000b1")
    dead_folder(private_state, "vg0000b2", dataclasses.replace(ProcessIdentity.current(), boot_id="earlier"))
    (dead_folder(private_state, "vg0000b3") / OWNER_FILE).write_text("{")
    unborn = dead_folder(private_state, ".vg0000b4")
    found = {scope.tag: scope.folder for scope in find_dead_scopes()}
    assert found["vg0000b4"] == unborn
    assert set(found) >= {"vg0000b1", "vg0000b2", "vg0000b3"}
    lines = reclaim_dead()
    assert any(line.startswith("vg0000b1:") for line in lines)
    assert not private_state.exists()
    assert reclaim_dead() == []


def test_a_folder_that_may_be_just_in_the_making_is_spared_and_an_old_one_is_not(private_state: Path) -> None:
    folder = private_state / ".vg0000c1"
    folder.mkdir(parents=True)
    assert find_dead_scopes() == []
    long_ago = time.time() - 3600
    os.utime(folder, (long_ago, long_ago))
    assert [scope.folder for scope in find_dead_scopes()] == [folder]
    reclaim_dead()


def test_what_has_no_tag_is_not_ours(private_state: Path) -> None:
    for name in ("precious", "vgxyz", "vg12345", "vg1234567"):
        dead_folder(private_state, name)
    before = sorted(private_state.iterdir())
    assert reclaim_dead() == []
    assert sorted(private_state.iterdir()) == before
    with pytest.raises(ValueError, match="tag"):
        reclaim_folder(private_state / "precious")


def test_orphans_are_killed_with_their_children_even_when_no_folder_names_them(private_state: Path) -> None:
    process = sleeper("vg0000d1", DEAD)
    lines = reclaim_dead()
    assert process.wait(10) == -9
    assert sum("killed process" in line for line in lines) == 2


def test_processes_of_a_living_owner_in_another_state_folder_are_spared(private_state: Path) -> None:
    process = sleeper("vg0000e1", ProcessIdentity.current())
    try:
        assert reclaim_dead() == []
        assert process.poll() is None
    finally:
        for pid in tree_pids(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()


def test_members_of_a_cgroup_are_killed_when_they_hid_their_environment(private_state: Path) -> None:
    with Scope() as scope:
        group = scope.cgroup("g")
        with group.entrance() as join:
            process = subprocess.Popen(["sleep", "60"], env={}, preexec_fn=join)
        if group.reason is not None:
            process.kill()
            assert os.geteuid() != 0
        else:
            reclaim_folder(scope.folder)
        assert process.wait(10) == -9


@pytest.mark.usefixtures("root")
def test_mounts_below_a_scope_are_detached_before_its_folder_is_deleted(private_state: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    target = dead_folder(private_state, "vg0000f1") / "a b"
    target.mkdir()
    subprocess.run(["mount", "--bind", precious, target], check=True)
    lines = reclaim_dead()
    assert f"vg0000f1: unmounted {target}" in lines
    assert not private_state.exists()
    assert (precious / "file").read_text() == "kept"


@pytest.mark.usefixtures("root")
def test_network_namespaces_and_interfaces_that_begin_with_the_tag_are_removed(private_state: Path) -> None:
    dead_folder(private_state, "vg0000a9")
    script = (
        "from pyroute2 import IPRoute, netns\n"
        "netns.create('vg0000a9-n')\n"
        "with IPRoute() as route:\n"
        "    route.link('add', ifname='vg0000a9a', kind='veth', peer={'ifname': 'vg0000a9b'})\n"
    )
    namespaces = Path("/run/netns")
    prepared = namespaces.exists()
    subprocess.run([sys.executable, "-c", script], check=True)
    lines = reclaim_dead()
    if not prepared:  # the first namespace mounts the folder of all namespaces; this test was the first to want it
        subprocess.run(["umount", namespaces], check=True)
        namespaces.rmdir()
    assert "vg0000a9: removed the network namespace vg0000a9-n" in lines
    assert not (namespaces / "vg0000a9-n").exists()
    assert not Path("/sys/class/net/vg0000a9a").exists()
    assert not Path("/sys/class/net/vg0000a9b").exists()


def test_a_scope_whose_owner_was_killed_is_reclaimed(private_state: Path) -> None:
    script = (
        "import subprocess, time\nfrom virtgauge.host.scope import Scope\n"
        "scope = Scope()\n"
        "p = subprocess.Popen(['sleep', '60'], env=scope.environment(), start_new_session=True)\n"
        "print(scope.tag, p.pid, flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        tag, pid = owner.stdout.readline().decode().split()
        child = ProcessIdentity.of(int(pid))
        assert child is not None
        assert tag not in {scope.tag for scope in find_dead_scopes()}
        owner.kill()
    reclaim_dead()
    assert wait_until_gone([child], 10) == []
    assert not private_state.exists()
