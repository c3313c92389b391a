"""Modules in their order, and the archive that carries them."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest

from virtgauge.agent import AgentBinary
from virtgauge.platforms.boot_files import build_initramfs
from virtgauge.provision.kernel import ModuleError, module_closure

LONG_AGO = time.time() - 86_400


def module(folder: Path, name: str, depends: str) -> Path:
    path = folder / "kernel" / f"{name}.ko"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x7fELF...\0license=GPL\0depends=" + depends.encode() + b"\0name=" + name.encode() + b"\0")
    return path


def unpack(archive: bytes) -> dict[str, tuple[int, bytes, tuple[int, int]]]:
    """Name → mode, content, device: a reader of the newc format of its own."""
    found, at = {}, 0
    while True:
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        name_at = at + 110
        name = archive[name_at : name_at + fields[11] - 1].decode()
        data_at = (name_at + fields[11] + 3) // 4 * 4
        if name == "TRAILER!!!":
            assert data_at == len(archive)
            return found
        found[name] = (fields[1], archive[data_at : data_at + fields[6]], (fields[9], fields[10]))
        at = (data_at + fields[6] + 3) // 4 * 4


def names(paths: list[Path]) -> list[str]:
    return [path.stem for path in paths]


def test_what_a_module_needs_comes_before_it_and_once(tmp_path: Path) -> None:
    module(tmp_path, "virtio_console", "virtio,virtio_ring")
    module(tmp_path, "virtio_mmio", "virtio,virtio_ring")
    module(tmp_path, "virtio", "virtio_ring")
    module(tmp_path, "virtio_ring", "")
    module(tmp_path, "unrelated", "")
    ordered = names(module_closure(tmp_path, ["virtio_mmio", "virtio_console"]))
    assert ordered == ["virtio_ring", "virtio", "virtio_mmio", "virtio_console"]


def test_dashes_and_underscores_are_the_same(tmp_path: Path) -> None:
    module(tmp_path, "virtio-rng", "rng-core")
    module(tmp_path, "rng_core", "")
    assert names(module_closure(tmp_path, ["virtio_rng"])) == ["rng_core", "virtio-rng"]


def test_what_is_built_in_needs_no_file(tmp_path: Path) -> None:
    module(tmp_path, "virtio_console", "virtio")
    (tmp_path / "modules.builtin").write_text("kernel/drivers/virtio/virtio.ko\nkernel/drivers/virtio/virtio-pci.ko\n")
    assert names(module_closure(tmp_path, ["virtio_pci", "virtio_console"])) == ["virtio_console"]


def test_a_missing_module_is_named_with_what_needs_it(tmp_path: Path) -> None:
    module(tmp_path, "a", "b")
    with pytest.raises(ModuleError, match="no module 'b' \\(needed by a\\)"):
        module_closure(tmp_path, ["a"])
    with pytest.raises(ModuleError, match="no module 'z' below"):
        module_closure(tmp_path, ["z"])


def test_a_circle_is_an_error_and_no_endless_walk(tmp_path: Path) -> None:
    module(tmp_path, "a", "b")
    module(tmp_path, "b", "a")
    with pytest.raises(ModuleError, match="a → b → a"):
        module_closure(tmp_path, ["a"])


@pytest.fixture
def agent(tmp_path: Path) -> AgentBinary:
    path = tmp_path / "agent"
    path.write_bytes(b"an agent of odd length")
    return AgentBinary(path, "0" * 64)


def test_the_archive_holds_init_console_and_modules(tmp_path: Path, agent: AgentBinary) -> None:
    paths = [module(tmp_path, "virtio-x", ""), module(tmp_path, "y", "")]
    found = unpack(build_initramfs(agent, paths, tmp_path / "cache").read_bytes())
    assert found["init"][:2] == (stat.S_IFREG | 0o755, agent.path.read_bytes())
    assert found["dev/console"] == (stat.S_IFCHR | 0o600, b"", (5, 1))
    assert found["modules/virtio_x.ko"][1] == paths[0].read_bytes()
    assert found["modules/y.ko"][1] == paths[1].read_bytes()
    for folder in ("dev", "proc", "sys", "run", "tmp", "modules"):
        assert found[folder][0] == stat.S_IFDIR | 0o755
    order = list(found)
    assert order.index("dev") < order.index("dev/console")
    assert order.index("modules") < order.index("modules/y.ko")


def test_other_programs_can_read_it(tmp_path: Path, agent: AgentBinary) -> None:
    cpio = shutil.which("cpio")
    archive = build_initramfs(agent, [], tmp_path / "cache").read_bytes()
    assert b"init" in archive
    if cpio:
        listed = subprocess.run([cpio, "-t"], input=archive, capture_output=True, check=True).stdout
        assert b"init" in listed.splitlines()


def test_the_cache_is_used_until_something_changes(tmp_path: Path, agent: AgentBinary) -> None:
    cache = tmp_path / "cache"
    one = build_initramfs(agent, [], cache)
    made = one.stat().st_ino
    assert build_initramfs(agent, [], cache) == one
    assert one.stat().st_ino == made
    assert build_initramfs(agent, [module(tmp_path, "m", "")], cache) != one
    agent.path.write_bytes(b"another agent")
    assert build_initramfs(agent, [], cache) != one
    assert all(not path.name.startswith(".partial") for path in cache.iterdir())


def built(agent: AgentBinary, cache: Path, builds: int) -> list[Path]:
    """The archives of so many agents, one after another, which nobody has used since."""
    made = []
    for build in range(builds):
        agent.path.write_bytes(b"agent %d" % build)
        made.append(build_initramfs(agent, [], cache))
        assert made[-1].is_file()
        os.utime(made[-1], (LONG_AGO + build, LONG_AGO + build))
    return made


def test_the_cache_does_not_grow_with_every_build(tmp_path: Path, agent: AgentBinary) -> None:
    made = built(agent, tmp_path / "cache", 20)
    assert {path for path in made if path.exists()} == set(made[-8:])


def test_what_another_run_has_just_found_in_the_cache_is_not_removed_before_it_boots(
    tmp_path: Path, agent: AgentBinary
) -> None:
    cache = tmp_path / "cache"
    made = built(agent, cache, 8)
    agent.path.write_bytes(b"agent 0")
    assert build_initramfs(agent, [], cache) == made[0]  # the one that was made first, and is about to be booted
    agent.path.write_bytes(b"agent of another run")
    build_initramfs(agent, [], cache)
    assert [path.exists() for path in made] == [True, False, *[True] * 6]


def test_a_cache_that_can_only_be_read_is_used(
    tmp_path: Path, agent: AgentBinary, monkeypatch: pytest.MonkeyPatch
) -> None:
    (made,) = built(agent, tmp_path / "cache", 1)

    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(os, "utime", refuse)
    assert build_initramfs(agent, [], tmp_path / "cache") == made


def test_whatever_was_used_within_the_hour_stays(tmp_path: Path, agent: AgentBinary) -> None:
    cache = tmp_path / "cache"
    made = built(agent, cache, 12)[-8:]
    now = time.time()
    for path in made:
        os.utime(path, (now - 1800, now - 1800))
    for build in range(4):
        agent.path.write_bytes(b"agent %d of another run" % build)
        build_initramfs(agent, [], cache)
    assert all(path.exists() for path in made)
