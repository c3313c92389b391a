"""Scopes, and what is reclaimed of dead ones."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from virtgauge import cli, folders
from virtgauge.errors import UsageError
from virtgauge.execution.progress import ProgressDisplay
from virtgauge.execution.run import machine_to_ourselves
from virtgauge.host import mounts as host_mounts
from virtgauge.host import reclaim
from virtgauge.host.cgroup import Cgroup, Hierarchies
from virtgauge.host.lending import Loan
from virtgauge.host.mounts import Mount, detach_below
from virtgauge.host.process import ProcessIdentity, environment_of, tree_pids, wait_until_gone
from virtgauge.host.reclaim import (
    RUNTIME_FILE,
    RUNTIME_STATE,
    DeadScope,
    find_dead_scopes,
    reclaim_dead,
    reclaim_folder,
)
from virtgauge.host.scope import Scope
from virtgauge.host.tag import (
    CGROUP_PARENT,
    OWNER_FILE,
    OWNER_VARIABLE,
    STATE_FOLDER_VARIABLE,
    STATE_VARIABLE,
    TAG_PATTERN,
    TAG_VARIABLE,
    StateFolder,
    known_state_folders,
    make_state_root,
    scratch_root,
)

DEAD = dataclasses.replace(ProcessIdentity.current(), start_ticks=1)


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def own_dead_scopes() -> list[DeadScope]:
    """Those of this state folder: other tests leave dead runs in theirs on purpose."""
    return [scope for scope in find_dead_scopes() if scope.own]


def dead_of(*tags: str) -> list[DeadScope]:
    """Of these runs: other tests leave dead ones on purpose, in other processes at the same time."""
    return [scope for scope in find_dead_scopes() if scope.tag in tags]


def dead_folder(state: Path, tag: str, owner: ProcessIdentity = DEAD) -> Path:
    folder = state / tag
    folder.mkdir(parents=True)
    (folder / OWNER_FILE).write_text(
        json.dumps(dataclasses.asdict(owner) | {"state_folder": StateFolder.own().as_text()})
    )
    return folder


def sleeper(tag: str, owner: ProcessIdentity, user: int | None = None) -> subprocess.Popen[bytes]:
    environment = {
        TAG_VARIABLE: tag,
        OWNER_VARIABLE: owner.as_text(),
        STATE_FOLDER_VARIABLE: StateFolder.own().as_text(),
        "PATH": "/bin",
    }
    process = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], env=environment, user=user)
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
        assert own_dead_scopes() == []
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
        assert own_dead_scopes() == []
    assert not scratch_root().exists()


def test_scratch_of_a_dead_owner_is_removed_and_that_of_a_living_one_is_not(
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
        assert StateFolder.from_text(environment[STATE_FOLDER_VARIABLE]) == StateFolder(
            os.geteuid(), str(private_state)
        )
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
    assert own_dead_scopes() == []
    long_ago = time.time() - 3600
    os.utime(folder, (long_ago, long_ago))
    assert folder in [scope.folder for scope in find_dead_scopes()]  # other tests' dead runs may stand beside it
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
@pytest.mark.parametrize("detached", [True, False])
def test_what_is_mounted_in_a_scope_outlives_it_also_where_the_state_folder_is_a_link(
    private_state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detached: bool
) -> None:
    real, precious = tmp_path / "real", tmp_path / "precious"
    for folder in (real, precious):
        folder.mkdir()
    private_state.symlink_to(real)
    (precious / "file").write_text("kept")
    if not detached:
        monkeypatch.setattr(reclaim, "detach_below", lambda _: [])
    with Scope() as scope:
        target = scope.guest_folder("g")
        subprocess.run(["mount", "--bind", precious, target], check=True)
    if not detached:
        subprocess.run(["umount", target], check=True)
    assert (precious / "file").read_text() == "kept"
    assert scope.folder.exists() is not detached
    assert scope.folder.parent == real


@pytest.mark.usefixtures("root")
def test_a_folder_that_became_a_link_once_mounts_were_listed_unmounts_nothing_of_the_host(
    strangers_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, precious = strangers_folder / "vg0000f2", tmp_path / "precious" / "data"
    precious.mkdir(parents=True)
    listed.symlink_to(precious.parent)
    monkeypatch.setattr(host_mounts, "mounts", lambda: iter([Mount(listed / "data", "ext4", ())]))
    subprocess.run(["mount", "-t", "tmpfs", "none", precious], check=True)
    try:
        assert detach_below(listed) == []
        assert precious.is_mount()
    finally:
        subprocess.run(["umount", precious], check=True)


@pytest.mark.alone  # it may take the folder of all namespaces away again
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


KILLED = """
import subprocess, time
from virtgauge.host.scope import Scope
scope = Scope()
scope.scratch_folder("files")
p = subprocess.Popen(["sleep", "60"], env=scope.environment(), start_new_session=True)
print(scope.tag, p.pid, flush=True)
time.sleep(60)
"""


@dataclasses.dataclass(frozen=True)
class Rest:
    """What a killed run left."""

    state: Path
    tag: str
    child: ProcessIdentity

    def whole(self) -> bool:
        return self.child.alive() and (self.state / self.tag).is_dir() and (scratch_root() / self.tag).is_dir()

    def gone(self) -> bool:
        nothing = wait_until_gone([self.child], 10) == [] and not (scratch_root() / self.tag).exists()
        return nothing and not self.state.exists()


def killed_run(state: Path) -> Rest:
    environment = os.environ | {"VIRTGAUGE_STATE": str(state)}
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, env=environment) as owner:
        assert owner.stdout is not None
        tag, pid = owner.stdout.readline().decode().split()
        child = ProcessIdentity.of(int(pid))
        assert child is not None
        assert tag not in {scope.tag for scope in find_dead_scopes()}
        owner.kill()
    return Rest(state, tag, child)


def test_a_scope_whose_owner_was_killed_is_reclaimed(private_state: Path) -> None:
    rest = killed_run(private_state)
    assert rest.whole()
    reclaim_dead()
    assert rest.gone()


@pytest.mark.slow
def test_what_another_state_folders_dead_run_left_is_removed_by_clean_all_only(
    private_state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = killed_run(private_state), killed_run(tmp_path / "other")
    monkeypatch.setattr(reclaim, "find_dead_scopes", lambda: dead_of(own.tag, other.tag))
    try:
        lines = reclaim_dead()  # as every run does at its beginning
        assert lines
        assert all(line.startswith(own.tag) for line in lines)
        assert own.gone()
        assert other.whole()
        told = CliRunner().invoke(cli.app, ["clean"]).stdout
        assert f"left alone, --all removes it: {other.tag}" in told
        assert f"state folder {other.state}" in told
        assert "killed" not in told
        assert other.whole()
        told = CliRunner().invoke(cli.app, ["clean", "--all", "--yes"]).stdout
        assert (
            0 <= told.index(f"would remove {other.tag}") < told.index(f"{other.tag}: killed process {other.child.pid}")
        )
        assert other.gone()
        assert CliRunner().invoke(cli.app, ["clean", "--all", "--yes"]).stdout == "nothing was left behind\n"
    finally:
        for rest in (own, other):
            rest.child.kill()


def test_a_run_of_another_state_folder_that_lives_is_spared_by_clean_all(
    private_state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Scope() as living:
        scratch = living.scratch_folder("files")
        monkeypatch.setenv("VIRTGAUGE_STATE", str(tmp_path / "other"))
        # A process that claims to be of the living run, with an owner that is dead, opens no way to it.
        liar = sleeper(living.tag, DEAD)
        try:
            assert reclaim_dead(dead_of(living.tag)) == []
            assert living.folder.is_dir()
            assert scratch.is_dir()
        finally:
            for pid in tree_pids(liar.pid):
                os.kill(pid, signal.SIGKILL)
            liar.wait()


def test_a_state_folder_below_ones_own_is_ones_own(private_state: Path) -> None:
    rest = killed_run(private_state / "fleet-a")
    reclaim_dead()
    assert wait_until_gone([rest.child], 10) == []
    assert not (rest.state / rest.tag).exists()


def test_a_tag_tells_state_folder_and_user() -> None:
    one, other, someone = StateFolder(0, "/run/a"), StateFolder(0, "/run/b"), StateFolder(1000, "/run/a")
    for state in (one, other, someone):
        assert all(TAG_PATTERN.fullmatch(tag) and state.has_marked(tag) for tag in (state.new_tag(), state.new_tag()))
    assert len({state.mark for state in (one, other, someone)}) == 3
    assert one.holds(one)
    assert one.holds(StateFolder(0, "/run/a/fleet-x"))
    assert not one.holds(other)
    assert not one.holds(someone)
    assert not one.holds(StateFolder(0, "/run/ab"))


@pytest.mark.usefixtures("root")
def test_an_empty_cgroup_of_another_state_folder_is_left_alone(private_state: Path, tmp_path: Path) -> None:
    long_ago = time.time() - 3600
    own, other = StateFolder.own(), StateFolder(os.geteuid(), str(tmp_path / "other"))
    groups = {state: Cgroup(f"{CGROUP_PARENT}/{state.new_tag()}") for state in (own, other)}
    folders = {state: [r / g.name for r in Hierarchies.detect().all_roots()] for state, g in groups.items()}
    try:
        for each in folders.values():
            for folder in each:
                folder.mkdir(parents=True, exist_ok=True)
                os.utime(folder, (long_ago, long_ago))
        reclaim_dead()
        assert not any(folder.exists() for folder in folders[own])
        assert all(folder.exists() for folder in folders[other])
        reclaim_dead(dead_of(groups[other].name.removeprefix(f"{CGROUP_PARENT}/")))
        assert not any(folder.exists() for folder in folders[other])
    finally:
        for group in groups.values():
            group.remove()


@pytest.mark.usefixtures("root")
def test_a_cgroup_is_no_scope_s_whose_name_only_ends_as_one(private_state: Path) -> None:
    """A scope's folder has a dot before its name while it is made; its group never has."""
    group = Cgroup(f"{CGROUP_PARENT}/.{StateFolder.own().new_tag()}")
    try:
        for root in Hierarchies.detect().all_roots():
            (root / group.name).mkdir(parents=True, exist_ok=True)
        assert not dead_of(Path(group.name).name)
    finally:
        group.remove()


@pytest.mark.usefixtures("root")
def test_a_command_that_another_user_wrote_is_not_executed(private_state: Path, tmp_path: Path) -> None:
    guest = dead_folder(private_state, "vg0000e9") / "g"
    (guest / RUNTIME_STATE).mkdir(parents=True)
    (guest / RUNTIME_FILE).write_text(json.dumps({"command": ["sh", "-c", f"touch {tmp_path}/here"], "container": "x"}))
    os.chown(guest / RUNTIME_FILE, 12345, 12345)
    reclaim_dead()
    assert not (tmp_path / "here").exists()
    assert not guest.exists()


def test_a_state_folder_is_listed_as_long_as_it_has_scopes(private_state: Path) -> None:
    registry = scratch_root().parent / "states"
    with Scope():
        with Scope():
            assert len(list(registry.iterdir())) == 1
        assert len(list(registry.iterdir())) == 1
    assert list(registry.iterdir()) == []


def test_the_word_of_a_state_folder_that_belongs_to_somebody_else_is_not_believed(
    private_state: Path, tmp_path: Path
) -> None:
    with Scope():
        (registry,) = scratch_root().parent.glob("states")
        (registry / "lie").write_text(f"{os.geteuid() + 1}:{tmp_path}")
        (registry / "rubbish").write_bytes(b"\xff\x00")
        states = known_state_folders()
        assert StateFolder(os.geteuid(), str(private_state)) in states
        assert str(tmp_path) not in {state.path for state in states}


@pytest.mark.usefixtures("root")
def test_nothing_that_another_user_put_down_is_waited_for_or_fills_the_memory(
    private_state: Path, strangers_folder: Path
) -> None:
    registry = scratch_root().parent / "states"
    os.mkfifo(registry / "pipe")
    (registry / "endless").symlink_to("/dev/zero")
    for tag, word in (("vg0000i1", '{"pid": 1e999, "start_ticks": 1, "boot_id": ""}'), ("vg0000i2", "[" * 50_000)):
        (strangers_folder / tag).mkdir()
        (strangers_folder / tag / OWNER_FILE).write_text(word)
    (strangers_folder / "vg0000i3").mkdir()
    with (strangers_folder / "vg0000i3" / OWNER_FILE).open("wb") as endless:
        endless.truncate(2**40)
    strangers(strangers_folder)
    dead = {
        scope.tag: scope.why for scope in find_dead_scopes() if scope.folder and scope.folder.parent == strangers_folder
    }
    assert dead == dict.fromkeys(("vg0000i1", "vg0000i2", "vg0000i3"), "its owner's name cannot be read")


@pytest.mark.usefixtures("root")
def test_a_state_folder_that_another_user_made_is_not_used(
    strangers_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(strangers_folder))
    words = f"{strangers_folder}: cannot be written: it belongs to another user"
    with pytest.raises(UsageError, match=words):
        Scope()
    with pytest.raises(UsageError, match=words), machine_to_ourselves(ProgressDisplay()):
        pass
    assert list(strangers_folder.iterdir()) == []


@pytest.mark.usefixtures("root")
def test_a_state_folder_that_others_may_exchange_is_not_used_and_one_in_a_sticky_folder_is(private_state: Path) -> None:
    above = private_state.parent
    for mode in (0o777, 0o770, 0o1777):
        above.chmod(mode)
        if mode & 0o1000:
            Scope().close()
            continue
        words = f"{private_state}: is not safe: other users may exchange what is in {above}\n"
        with pytest.raises(UsageError, match=words) as caught:
            Scope()
        assert STATE_VARIABLE in (caught.value.remedy or "")
        with pytest.raises(UsageError, match=words), machine_to_ourselves(ProgressDisplay()):
            pass
    above.chmod(0o755)
    private_state.mkdir(mode=0o700)
    private_state.chmod(0o777)
    with pytest.raises(UsageError, match=f"what is in {private_state}\n"):
        Scope()


@pytest.mark.usefixtures("root")
def test_a_pods_user_may_have_his_state_in_a_volume_in_which_all_may_write(
    private_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kubelet makes an ``emptyDir``: 0777, and not sticky."""
    private_state.parent.chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: 65532)
    assert make_state_root() == private_state


@pytest.mark.usefixtures("root")
def test_a_state_folder_below_another_users_is_not_used(
    private_state: Path, strangers_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(strangers_folder / "state"))
    with pytest.raises(UsageError, match=f"what is in {strangers_folder}\n"):
        Scope()


@pytest.mark.usefixtures("root")
def test_where_the_machine_belongs_to_nobody_a_state_folder_below_nobodys_is_used(
    private_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in ``unshare -r``, whose namespace does not map the machine's root."""
    os.chown(private_state.parent, 65534, 65534)
    with pytest.raises(UsageError, match=f"what is in {private_state.parent}\n"):
        make_state_root()
    monkeypatch.setattr(folders, "root", lambda: 65534)
    assert make_state_root() == private_state


@pytest.mark.usefixtures("root")
def test_clean_all_removes_what_dead_runs_of_other_users_left(
    private_state: Path, strangers_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag, state = "vg0000i4", StateFolder(STRANGER, str(strangers_folder))
    monkeypatch.setattr(reclaim, "find_dead_scopes", lambda: dead_of(tag))
    left = strangers_folder / tag
    left.mkdir()
    (left / OWNER_FILE).write_text(json.dumps(dataclasses.asdict(DEAD) | {"state_folder": state.as_text()}))
    (left / "log").touch()
    strangers(left)
    environment = {TAG_VARIABLE: tag, OWNER_VARIABLE: DEAD.as_text(), STATE_FOLDER_VARIABLE: state.as_text()}
    with subprocess.Popen(["sleep", "60"], env=environment, user=STRANGER) as process:
        try:
            done = CliRunner().invoke(cli.app, ["clean"])
            assert f"left alone, --all removes it: {tag} of user {STRANGER}" in done.stdout
            assert left.is_dir() and process.poll() is None
            done = CliRunner().invoke(cli.app, ["clean", "--all", "--yes"])
            assert done.exit_code == 0, done.output
            assert not left.exists()
            assert process.wait(10) == -signal.SIGKILL
        finally:
            process.kill()


@pytest.fixture
def strangers_folder(tmp_path: Path) -> Path:
    """A state folder of another user that root knows of."""
    folder = tmp_path / "stranger"
    folder.mkdir()
    os.chown(folder, STRANGER, STRANGER)
    registry = scratch_root().parent / "states"
    registry.mkdir(parents=True)
    (registry / "stranger").write_text(StateFolder(STRANGER, str(folder)).as_text())
    return folder


STRANGER = 12345


def strangers(folder: Path) -> Path:
    for path in (folder, *folder.iterdir()):
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    return folder


@pytest.mark.usefixtures("root")
def test_no_word_of_another_user_makes_a_living_scope_dead_or_a_dead_one_living(
    private_state: Path, strangers_folder: Path
) -> None:
    with Scope() as scope:
        strangers(dead_folder(strangers_folder, scope.tag))
        dead_folder(private_state, "vg0000h1")
        strangers(dead_folder(strangers_folder, "vg0000h1", ProcessIdentity.current()))
        found = {scope.tag: scope for scope in find_dead_scopes()}
        assert scope.tag not in found
        assert found["vg0000h1"].folder == private_state / "vg0000h1"
    liar, orphan = sleeper("vg0000h7", ProcessIdentity.current(), user=STRANGER), sleeper("vg0000h7", DEAD)
    try:
        assert [scope.own for scope in dead_of("vg0000h7")] == [True]
    finally:
        for pid in (*tree_pids(liar.pid), *tree_pids(orphan.pid)):
            os.kill(pid, signal.SIGKILL)
        liar.wait()
        orphan.wait()


@pytest.mark.usefixtures("root")
def test_a_strangers_dead_folder_makes_nobody_dead_whose_process_or_cgroup_names_a_living_owner(
    private_state: Path, strangers_folder: Path, tmp_path: Path
) -> None:
    """Of a third user, whose state folder and cache are not known here."""
    owner, state = ProcessIdentity.current(), f"{STRANGER + 1}:{tmp_path / 'unknown'}"
    marked = Cgroup(f"{CGROUP_PARENT}/vg0000j2")
    for tag in ("vg0000j1", "vg0000j2", "vg0000j3"):
        strangers(dead_folder(strangers_folder, tag))
    process = sleeper("vg0000j1", owner, user=STRANGER + 1)
    tags = {"vg0000j1", "vg0000j3"}
    try:
        for root in Hierarchies.detect().all_roots():
            with contextlib.suppress(OSError):  # another container's
                (root / marked.name).mkdir(parents=True)
                os.setxattr(root / marked.name, f"user.{OWNER_VARIABLE}", owner.as_text().encode())
                os.setxattr(root / marked.name, f"user.{STATE_FOLDER_VARIABLE}", state.encode())
                tags.add("vg0000j2")
        assert {scope.tag for scope in dead_of(*tags)} == {"vg0000j3"}
        assert process.poll() is None
    finally:
        marked.remove()
        for pid in tree_pids(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()


@pytest.mark.usefixtures("root")
def test_another_users_folder_or_process_is_not_ours_because_it_says_so(
    private_state: Path, strangers_folder: Path
) -> None:
    strangers(dead_folder(strangers_folder, "vg0000h2"))
    (private_state / "vg0000h3").mkdir(parents=True)
    os.mkfifo(private_state / "vg0000h3" / OWNER_FILE)
    process = sleeper("vg0000h4", DEAD, user=STRANGER)
    try:
        found = {scope.tag: scope for scope in find_dead_scopes()}
        assert not found["vg0000h2"].own
        assert found["vg0000h2"].state == StateFolder(STRANGER, str(strangers_folder))
        assert found["vg0000h3"].own  # and nobody waits for what a pipe may say
        assert not found["vg0000h4"].own
    finally:
        for pid in tree_pids(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()


@pytest.mark.usefixtures("root")
def test_a_folder_that_was_exchanged_for_a_link_is_no_word_of_ours(
    private_state: Path, strangers_folder: Path, tmp_path: Path
) -> None:
    guest = dead_folder(private_state, "vg0000h5") / "g"
    (guest / RUNTIME_STATE).mkdir(parents=True)
    (guest / RUNTIME_FILE).write_text(json.dumps({"command": ["sh", "-c", f"touch {tmp_path}/here"], "container": "x"}))
    link = strangers_folder / "vg0000h6"
    link.symlink_to(guest.parent)
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    reclaim_folder(link)
    assert not (tmp_path / "here").exists()
    reclaim_folder(guest.parent)
    assert (tmp_path / "here").exists()


@pytest.mark.usefixtures("root")
def test_what_could_not_be_given_back_is_kept_with_its_record_until_it_can(private_state: Path, tmp_path: Path) -> None:
    folder, lab = dead_folder(private_state, "vg0000i1"), tmp_path / "lab"
    lab.write_text("no namespace")
    record = Loan("vgnone0", str(lab), "/proc/self/ns/net", True, ()).record(folder)
    (folder / "lent-vgnone1.json").write_text("{")  # nothing was lent by one that is half-written
    interface = "vg0000i1a"
    subprocess.run(["ip", "link", "add", interface, "type", "veth"], check=True)
    try:
        lines = reclaim_dead()
        assert any("could not give the interface vgnone0 back" in line for line in lines)
        assert any(line.startswith("vg0000i1: kept its network namespaces") for line in lines)
        assert list(folder.glob("lent-*")) == [record]
        assert Path("/sys/class/net", interface).exists()
        lab.unlink()  # gone, as its interfaces are
        assert f"vg0000i1: removed the interface {interface}" in reclaim_dead()
        assert not folder.exists()
    finally:
        subprocess.run(["ip", "link", "del", interface], check=False, stderr=subprocess.DEVNULL)


@pytest.mark.usefixtures("root")
def test_a_scope_that_could_not_give_back_leaves_its_folder_to_the_next_run(
    private_state: Path, tmp_path: Path
) -> None:
    (tmp_path / "lab").write_text("no namespace")
    with Scope() as scope:
        record = Loan("vgnone0", str(tmp_path / "lab"), "/proc/self/ns/net", True, ()).record(scope.folder)
    assert record.exists()


@pytest.mark.usefixtures("root")
def test_a_living_run_whose_pids_count_elsewhere_is_spared_and_a_dead_one_is_not(private_state: Path) -> None:
    """As one in a container that has the host's folders: the same user and state folder, and another pid 1."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", KILLED]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as container:
        assert container.stdout is not None
        tag = container.stdout.readline().decode().split()[0]
        inside = [pid for pid in tree_pids(container.pid) if environment_of(pid).get(TAG_VARIABLE) == tag]
        try:
            assert inside
            assert reclaim_dead() == []
            assert tag not in {scope.tag for scope in find_dead_scopes()}
            assert (private_state / tag).is_dir()
            assert (scratch_root() / tag).is_dir()
            assert all(ProcessIdentity.of(pid) for pid in inside)
        finally:
            container.kill()
    deadline = time.monotonic() + 10
    while any(map(ProcessIdentity.of, inside)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert any(line.startswith(f"{tag}: its controller") for line in reclaim_dead())
    assert not (private_state / tag).exists()
    assert not (scratch_root() / tag).exists()


def test_nobody_else_can_read_an_owners_word_and_so_none_can_lock_it(private_state: Path) -> None:
    with Scope() as scope:
        assert (scope.folder / OWNER_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("root")
def test_a_living_scopes_empty_cgroup_is_spared_wherever_its_state_folder_is(
    private_state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_ago = time.time() - 3600
    with Scope() as scope:
        group = scope.cgroup("guest")
        parents = [root / CGROUP_PARENT / scope.tag for root in Hierarchies.detect().all_roots()]
        for parent in filter(Path.is_dir, parents):
            os.utime(parent, (long_ago, long_ago))
        # Another run, of a state folder and a cache that know nothing of this one.
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other cache"))
        monkeypatch.setenv("VIRTGAUGE_STATE", str(tmp_path / "other"))
        assert scope.tag not in {dead.tag for dead in find_dead_scopes()}
        marked = {OWNER_VARIABLE: DEAD.as_text(), STATE_FOLDER_VARIABLE: f"{os.geteuid()}:{private_state}"}
        group.mark_parent(marked)
        for parent in filter(Path.is_dir, parents):
            os.utime(parent, (long_ago, long_ago))
        (found,) = dead_of(scope.tag)
        assert found.state == StateFolder(os.geteuid(), str(private_state))
        assert not found.own
        monkeypatch.undo()
        group.remove()


def test_clean_all_says_what_it_would_remove_and_removes_nothing_unasked(private_state: Path, tmp_path: Path) -> None:
    other = killed_run(tmp_path / "other")
    try:
        done = CliRunner().invoke(cli.app, ["clean", "--all"])
        assert isinstance(done.exception, UsageError)
        assert done.exception.remedy == "add --yes"
        for held in (f"process {other.child.pid} (sleep)", f"folder {other.state / other.tag}"):
            assert f"\n  {held}\n" in done.stdout
        assert f"\n  folder {scratch_root() / other.tag}\n" in done.stdout
        assert other.whole()
        (scope,) = dead_of(other.tag)
        assert "killed process" in "".join(reclaim_dead([scope]))
        assert other.gone()
    finally:
        other.child.kill()
