"""Removal of what a controller left on this host: at its own end, and after a kill -9.

Nothing is touched that does not carry a tag: a scope's folders and what is mounted in them, processes whose
environment names the scope, members of cgroups, network namespaces, interfaces and traces named after it.  Every
step can be repeated and is bounded in time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from virtgauge.host.cgroup import Cgroup, Hierarchies, marked_with
from virtgauge.host.domains import destroy_domains, destroy_tagged_domains, has_domains
from virtgauge.host.lending import HOME, give_all_back, is_lent_something, put_back
from virtgauge.host.mounts import detach_below, mounts
from virtgauge.host.process import (
    ProcessIdentity,
    all_pids,
    environment_of,
    in_thread,
    is_locked,
    output_of,
    process_name,
    tree_pids,
    user_of,
    wait_until_gone,
)
from virtgauge.host.tag import (
    CGROUP_PARENT,
    OWNER_FILE,
    OWNER_VARIABLE,
    STATE_FOLDER_VARIABLE,
    TAG_PATTERN,
    TAG_VARIABLE,
    StateFolder,
    forget_empty_state_folder,
    is_own_file,
    known_state_folders,
    open_word,
    scratch_root,
    state_root,
)
from virtgauge.host.tracing import instance_of, remove_instance

_NAMESPACES, _INTERFACES = Path("/run/netns"), Path("/sys/class/net")
_YOUNG_S = 60.0  # A nameless rest younger than this may be one that another run is just making


@dataclasses.dataclass(frozen=True)
class DeadScope:
    """A scope whose owner is gone."""

    tag: str
    folder: Path | None  # its folder; None when only processes or cgroups are left of it
    why: str  # how we know that the owner is gone, in words
    state: StateFolder | None  # to which it belonged; None where that is not known
    own: bool  # it belonged to the state folder of this process, or to one below it


def find_dead_scopes() -> list[DeadScope]:
    """Scopes of all users and state folders that this process can see, and orphans that no folder names any more."""
    search = _Search()
    search.folders()
    search.processes()
    search.cgroups()
    return [scope for tag, scope in search.found.items() if tag not in search.living]


def tags_at_hand() -> set[str]:
    """Tags of this state folder's scopes of which anything is on this machine, living or dead, of whatever age."""
    places = [state_root(), scratch_root(), _NAMESPACES, _INTERFACES]
    places += [root / CGROUP_PARENT for root in Hierarchies.detect().all_roots()]
    names = [found[0] for place in places for name in _listed(place) if (found := TAG_PATTERN.match(name.lstrip(".")))]
    names += [tag for pid in all_pids() if TAG_PATTERN.fullmatch(tag := environment_of(pid).get(TAG_VARIABLE, ""))]
    return set(filter(StateFolder.own().has_marked, names))


class _Search:
    """What is dead, and the tags of what lives: nothing that says it is of a living scope is another's to remove."""

    def __init__(self) -> None:
        self.found: dict[str, DeadScope] = {}
        self._states = known_state_folders()
        self._own = [state for state in self._states if self._states[0].holds(state)]
        self.living: set[str] = set()

    def folders(self) -> None:
        """In state folders, and in the cache, which all state folders of a user have in common."""
        places: list[tuple[Path, StateFolder | None]] = [(Path(state.path), state) for state in self._states]
        for root, state in (*places, (scratch_root(), None)):
            for folder in _folders(root):
                tag = folder.name.lstrip(".")
                why, owners_state = _why_dead(folder)
                if why is not None:
                    self._add(tag, folder, why, owners_state or state)
                else:
                    self._lives(tag)

    def processes(self) -> None:
        """Those whose environment names a scope; the word that an owner lives counts once what is ours is found."""
        living = []
        for pid in all_pids():
            environment = environment_of(pid)
            tag, gone = environment.get(TAG_VARIABLE, ""), _owner_gone(environment.get(OWNER_VARIABLE, ""))
            if not TAG_PATTERN.fullmatch(tag):
                continue
            if gone and tag not in self.living:
                state = _state_from(environment.get(STATE_FOLDER_VARIABLE), user_of(pid))
                self._add(tag, None, "its processes outlived their controller", state)
            elif gone is False:
                living.append(tag)
        for tag in living:
            self._lives(tag)

    def cgroups(self) -> None:
        """Empty ones that no folder and no process has named; one whose owner lives keeps its tag, empty or not."""
        for group in _marked_cgroups():
            tag, known = group.name, marked_with(group, STATE_FOLDER_VARIABLE)
            gone = _owner_gone(marked_with(group, OWNER_VARIABLE) or "")
            if known and gone is False:
                self._lives(tag)
            if tag in self.living or (known and not gone) or not _is_abandoned(tag):
                continue
            state = next((state for state in self._states if state.has_marked(tag)), None)
            with contextlib.suppress(OSError):  # it is gone
                state = _state_from(known, group.stat().st_uid) if known else state
                self._add(tag, None, "its cgroup is empty and belongs to no scope", state)

    def _lives(self, tag: str) -> None:
        if tag not in self.found or not self.found[tag].own:  # a stranger's word keeps nothing of ours
            self.living.add(tag)

    def _add(self, tag: str, folder: Path | None, why: str, state: StateFolder | None) -> None:
        if tag not in self.found:
            own = self._states[0].holds(state) if state else any(mine.has_marked(tag) for mine in self._own)
            self.found[tag] = DeadScope(tag, folder, why, state, own)


def _folders(root: Path) -> list[Path]:
    found = [root / name for name in _listed(root) if TAG_PATTERN.fullmatch(name.lstrip("."))]
    # A folder that lists its names may still refuse to tell of them: they are none, then, and no error.
    return [path for path in found if os.path.isdir(path) and not os.path.islink(path)]


def _why_dead(folder: Path) -> tuple[str | None, StateFolder | None]:
    """Why the owner of a scope's folder is known to be gone, None while it may live; and whose it is by its own word.

    That word is its writer's, who can speak for himself only, and for folders where the scope's is.
    """
    try:
        with open_word(folder / OWNER_FILE) as (file, text):
            record, writer, locked = json.loads(text), os.fstat(file.fileno()).st_uid, is_locked(file.fileno())
        owner = ProcessIdentity.from_dict(record)
        state = _state_from(record.get("state_folder"), writer)
        if state and folder.parent != scratch_root() and not folder.is_relative_to(state.path):
            state = None
    except FileNotFoundError:
        return ("it never got an owner" if _is_old(folder) else None), None
    except PermissionError:
        return None, None  # another user's, who alone can tell
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return "its owner's name cannot be read", None
    # Locked: its owner lives in another namespace of pids, or on another machine with the same home.
    return (None if locked or owner.alive() else f"its controller (pid {owner.pid}) is gone"), state


def _state_from(text: object, user: int | None) -> StateFolder | None:
    """What somebody says to be his state folder; None where it is another's, or nothing of the kind."""
    try:
        state = StateFolder.from_text(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return state if state and state.uid == user else None


def _owner_gone(text: str) -> bool | None:
    try:
        return ProcessIdentity.from_text(text).gone()
    except ValueError:
        return None  # said by something else that knows our variable: not ours to judge


def _marked_cgroups() -> list[Path]:
    """One folder of each group that is named as a scope's: one that says whose it is, where there is such."""
    found: dict[str, list[Path]] = {}
    for root in Hierarchies.detect().all_roots():
        for folder in _folders(root / CGROUP_PARENT):
            if TAG_PATTERN.fullmatch(folder.name):  # a scope's folder has a dot before while it is made, its group none
                found.setdefault(folder.name, []).append(folder)
    return [
        max(folders, key=lambda folder: marked_with(folder, STATE_FOLDER_VARIABLE) is not None)
        for folders in found.values()
    ]


def _is_abandoned(tag: str) -> bool:
    """Whether a scope's group is empty, and was not made just now."""
    folders = [root / CGROUP_PARENT / tag for root in Hierarchies.detect().all_roots()]
    old = all(_is_old(folder) for folder in folders if folder.is_dir())
    return old and not Cgroup(f"{CGROUP_PARENT}/{tag}").pids()


def _is_old(path: Path) -> bool:
    """Whether it was made so long ago that it would be complete; false where it is gone."""
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime > _YOUNG_S
    return False


# In a guest's folder: the OCI runtime's command line up to ``--root DIR``, and the container's id.
RUNTIME_FILE = "runtime.json"
RUNTIME_STATE = "runtime"  # Beside it: the runtime's own folder; there is no container before it exists

_KILL_S = 5.0
_RUNTIME_S = 10.0


def reclaim_dead(dead: Sequence[DeadScope] | None = None) -> list[str]:
    """Remove everything that dead scopes left: the given ones, else those of this state folder. Returns what was
    removed, a line for people each; empty when there was nothing.
    """
    lines: list[str] = []
    scopes = [scope for scope in find_dead_scopes() if scope.own] if dead is None else dead
    for scope in scopes:
        lines.append(f"{scope.tag}: {scope.why}")
        lines.extend(f"{scope.tag}: {line}" for line in _reclaim(scope.tag, scope.folder))
        if scope.folder is not None and not is_left_something(scope.folder) and not remove_folder(scope.folder):
            lines.append(f"{scope.tag}: could not remove {scope.folder}; are you its user?")
    forget_empty_state_folder()
    for root in {state_root(), scratch_root(), *(scope.folder.parent for scope in scopes if scope.folder)}:
        with contextlib.suppress(OSError):
            root.rmdir()
    return lines


def holdings(scope: DeadScope) -> list[str]:
    """What a dead scope holds and :func:`reclaim_dead` would remove, in words; it touches nothing."""
    group = Cgroup(f"{CGROUP_PARENT}/{scope.tag}")
    folders = [] if scope.folder is None else [scope.folder]
    return [
        *(f"process {pid} ({process_name(pid) or ''})" for pid in _tagged_pids(scope.tag, group)),
        *(f"mount {mount.point}" for mount in mounts() for of in folders if mount.point.is_relative_to(of)),
        *(f"network namespace {name}" for name in _named(_NAMESPACES, scope.tag)),
        *(f"interface {name}" for name in _named(_INTERFACES, scope.tag)),
        *([] if (trace := instance_of(scope.tag)) is None else [f"trace {trace}"]),
        *([f"cgroup {group.name}"] if group.present() else []),
        *(f"folder {path}" for path in dict.fromkeys([*folders, *_scratch(scope.tag)])),
    ]


def reclaim_folder(folder: Path) -> list[str]:
    """Remove everything that belongs to one scope except its folder, which the caller may still want to read.

    What it was lent and cannot give back stays in its namespaces; the folder has to stay then, too.  Returns what was
    removed, a line for people each.
    """
    return _reclaim(folder.name.lstrip("."), folder)


def is_left_something(folder: Path) -> bool:
    """Whether a scope's folder records what could not be undone yet: without it nobody would try again."""
    return is_lent_something(folder) or has_domains(folder)


def _reclaim(tag: str, folder: Path | None) -> list[str]:
    if not TAG_PATTERN.fullmatch(tag):
        raise ValueError(f"not the tag of a scope: {tag!r}")
    lines: list[str] = []
    group = Cgroup(f"{CGROUP_PARENT}/{tag}")
    group.release_kernel_threads()
    # Another user may have exchanged his folder for a link to one of ours since it was found.
    believed = folder if folder is not None and is_own_file(folder) else None
    # Runtimes first, while their processes live: they undo what they know of (their cgroups, their sockets).
    if believed is not None:
        lines += _delete_containers(believed)
        lines += destroy_domains(believed)
    lines += destroy_tagged_domains(tag)
    lines += _kill_processes(tag, group)
    lines += destroy_tagged_domains(tag)  # that a toolstack which was just killed had begun to make
    if believed is not None:
        lines += put_back(believed)
    lines += remove_instance(tag)  # before the mount by which it can be reached
    if folder is not None:
        lines += [f"unmounted {point}" for point in detach_below(folder)]
    if believed is not None:
        lines += give_all_back(believed)  # before the namespaces go, and a virtual interface with them
    if group.present():
        lines.append(
            f"removed the cgroup {group.name}" if group.remove() else f"the cgroup {group.name} is still in use"
        )
    if folder is not None and is_lent_something(folder):
        lines.append(f"kept its network namespaces and {folder}, for an interface that could not be given back")
    else:
        lines += _remove_network(tag)
    for large in _scratch(tag):  # after what had it mounted
        lines.append(f"removed {large}" if remove_folder(large) else f"could not remove {large}; are you its user?")
    return lines


def _delete_containers(folder: Path) -> list[str]:
    lines = []
    for record in sorted(folder.glob(f"*/{RUNTIME_FILE}")):
        if not is_own_file(record):
            continue  # another user's word is nothing to execute
        try:
            value = json.loads(record.read_text())
            command, container = [str(part) for part in value["command"]], str(value["container"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half-written: nothing was started after it
        if not (record.parent / RUNTIME_STATE).is_dir():
            continue
        if output_of([*command, "delete", "--force", container], timeout_s=_RUNTIME_S) is not None:
            lines.append(f"deleted the container {container}")
    return lines


def _kill_processes(tag: str, group: Cgroup) -> list[str]:
    killed: dict[int, ProcessIdentity] = {}
    deadline = time.monotonic() + _KILL_S
    # Again until a pass finds none: a process may fork between being listed and being killed.
    while time.monotonic() < deadline:
        victims = [identity for pid in _tagged_pids(tag, group) if (identity := ProcessIdentity.of(pid))]
        if not victims:
            break
        for identity in victims:
            if identity.kill():
                killed[identity.pid] = identity
        wait_until_gone(victims, 0.5)
    group.kill_all(max(0.1, deadline - time.monotonic()))
    return [f"killed process {pid}" for pid in sorted(killed)]


def _tagged_pids(tag: str, group: Cgroup) -> list[int]:
    me = os.getpid()
    tagged = {pid for pid in all_pids() if environment_of(pid).get(TAG_VARIABLE) == tag}
    for pid in list(tagged):
        if pid != me:
            tagged.update(tree_pids(pid))
    tagged.update(group.pids())
    return sorted(tagged - {me})


def _remove_network(tag: str) -> list[str]:
    """Named network namespaces and interfaces whose names begin with the tag."""
    lines = []
    namespaces, interfaces = _named(_NAMESPACES, tag), _named(_INTERFACES, tag)
    if namespaces:
        from pyroute2 import netns

        for name in namespaces:
            with contextlib.suppress(OSError):
                netns.remove(name)
                if not name.endswith(HOME):  # that one was not made by a scope, and stays
                    lines.append(f"removed the network namespace {name}")
    if interfaces:
        lines += in_thread(lambda: _remove_interfaces(interfaces))
    return lines


def _named(folder: Path, tag: str) -> list[str]:
    return [name for name in _listed(folder) if name.startswith(tag)]


def _remove_interfaces(names: list[str]) -> list[str]:
    from pyroute2 import IPRoute, NetlinkError

    lines = []
    with IPRoute() as route:
        for name in names:
            # the second end of a pair is gone with the first
            with contextlib.suppress(NetlinkError, OSError):
                for index in route.link_lookup(ifname=name):
                    route.link("del", index=index)
                    lines.append(f"removed the interface {name}")
    return lines


def _scratch(tag: str) -> list[Path]:
    return [folder for folder in (scratch_root() / tag, scratch_root() / f".{tag}") if folder.is_dir()]


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def remove_folder(folder: Path) -> bool:
    """Remove a folder whose path has no symbolic links, unless something is mounted there; whether it is gone."""
    if any(mount.point.is_relative_to(folder) for mount in mounts()):
        return False  # deleting through a mount would delete what is mounted
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()
