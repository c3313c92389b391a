"""Processes: who they are, what they used, how they end."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import platform
import signal
import subprocess
import sys
import time

import pytest

from virtgauge.host.process import (
    KTHREADD,
    KernelThreads,
    ProcessIdentity,
    die_with_parent,
    end_process,
    environment_of,
    process_name,
    stat_fields,
    tree_cpu_ns,
    tree_pids,
    user_of,
    wait_for_end,
    wait_for_exit,
    wait_until_gone,
)


def test_an_identity_survives_its_notations() -> None:
    me = ProcessIdentity.current()
    assert ProcessIdentity.from_dict(dataclasses.asdict(me)) == me
    assert ProcessIdentity.from_text(me.as_text()) == me
    assert me.alive()
    for text in ("", "1:2", "a:b:c", ":1:2:3"):
        with pytest.raises(ValueError, match=r".*"):
            ProcessIdentity.from_text(text)


def test_a_recycled_pid_is_another_process_and_is_not_killed() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        real = ProcessIdentity.of(process.pid)
        assert real is not None
        for other in (
            dataclasses.replace(real, start_ticks=real.start_ticks - 1),
            dataclasses.replace(real, boot_id="another"),
            dataclasses.replace(real, namespace="another"),
        ):
            assert not other.alive()
            assert not other.kill()
        assert process.poll() is None
        assert real.kill()
        assert process.wait() == -signal.SIGKILL
    assert not real.alive()
    assert not real.kill()


def test_a_process_may_give_itself_any_name() -> None:
    """And anybody's processes are looked at: a name that is no UTF-8 had ended every run on the machine."""
    script = (
        "import ctypes, time\nctypes.CDLL(None).prctl(15, b') \\xff (', 0, 0, 0); print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        identity = ProcessIdentity.of(process.pid)
        assert identity is not None and identity.alive()
        assert process_name(process.pid) == ") \ufffd ("
        assert user_of(process.pid) == os.getuid()
        assert process.pid in tree_pids(os.getpid())
        assert identity.kill()


def test_a_zombie_is_no_live_process() -> None:
    process = subprocess.Popen(["true"])
    while (state := os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)) is None:
        pass
    assert state.si_pid == process.pid
    assert ProcessIdentity.of(process.pid) is None
    process.wait()


def test_the_tree_is_counted_with_live_and_waited_for_children() -> None:
    burn = "import time; t=time.process_time\nwhile t() < 0.15: pass\n"
    script = (
        f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {burn!r}])\n"
        f"p = subprocess.Popen([sys.executable, '-c', {burn + 'time.sleep(60)'!r}])\n"
        "print('burnt', flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + 30
        while (tree_cpu_ns(process.pid) or 0) < 270_000_000 and time.monotonic() < deadline:
            time.sleep(0.01)
        counted, pids = tree_cpu_ns(process.pid), tree_pids(process.pid)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    assert counted is not None
    assert counted >= 270_000_000
    assert len(pids) == 2
    assert tree_cpu_ns(process.pid) is None


def test_a_child_dies_with_its_parent() -> None:
    script = (
        "import os, subprocess, sys, time\n"
        "from virtgauge.host.process import die_with_parent\n"
        "me = os.getpid()\n"
        "p = subprocess.Popen(['sleep', '60'], preexec_fn=lambda: die_with_parent(me))\n"
        "print(p.pid, flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = ProcessIdentity.of(int(parent.stdout.readline()))
        assert child is not None
        parent.kill()
    assert wait_until_gone([child], 10) == []


def test_a_child_whose_parent_is_gone_already_does_not_start() -> None:
    process = subprocess.Popen(["sleep", "60"], preexec_fn=lambda: die_with_parent(2**22 + 1))
    assert process.wait(10) == 127


async def test_a_child_has_not_ended_while_one_of_its_threads_works() -> None:
    """Its first thread is a zombie then, which looks like an end of all."""
    words = "import threading, time, ctypes; threading.Thread(target=time.sleep, args=(0.15,)).start()"
    thread_exit = 60 if platform.machine() == "x86_64" else 93
    process = subprocess.Popen([sys.executable, "-c", f"{words}; ctypes.CDLL(None).syscall({thread_exit}, 0)"])
    while (stat_fields(process.pid) or ["Z"])[0] != "Z":
        await asyncio.sleep(0.005)
    assert await wait_for_exit(process, 10) == 0


async def test_waiting_for_an_exit_is_bounded_and_leaves_the_code_to_the_caller() -> None:
    process = subprocess.Popen(["sh", "-c", "sleep 0.2; exit 7"])
    identity = ProcessIdentity.of(process.pid)
    assert identity is not None
    assert await wait_for_exit(process, 0.01) is None
    assert not await wait_for_end(identity, 0.01)
    assert await wait_for_exit(process, 10) == 7
    assert await wait_for_end(identity, 10)
    assert await wait_for_exit(process, 10) == 7


async def test_waiting_can_be_cancelled() -> None:
    process = subprocess.Popen(["sleep", "60"])
    task = asyncio.create_task(wait_for_exit(process, 60))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    end_process(process)
    end_process(process)
    assert process.returncode == -signal.SIGKILL


def test_an_environment_is_read_and_a_missing_process_has_none() -> None:
    with subprocess.Popen(["sleep", "60"], env={"A": "b=c", "EMPTY": ""}) as process:
        deadline = time.monotonic() + 10
        while "A" not in environment_of(process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert environment_of(process.pid) == {"A": "b=c", "EMPTY": ""}
        process.kill()
    assert environment_of(process.pid) == {}


@pytest.mark.parametrize("clock", [None, 0])
def test_the_kernels_threads_are_visible_only_where_their_cpu_time_can_be_read(clock, monkeypatch) -> None:
    monkeypatch.setattr("virtgauge.host.process.is_kernel_thread", lambda pid: True)
    monkeypatch.setattr("virtgauge.host.process.cpu_clock_ns", lambda pid: clock)
    assert KernelThreads().visible is (clock is not None)


def test_the_kernels_threads_only_ever_add_to_what_they_used() -> None:
    threads = KernelThreads()
    first = threads.cpu_ns()
    os.sync()  # the kernel's threads write back
    assert 0 <= first <= threads.cpu_ns()


def test_a_kernels_thread_is_not_counted_while_it_is_in_a_guests_group(monkeypatch: pytest.MonkeyPatch) -> None:
    used, group = {KTHREADD: 0, 4: 0}, {KTHREADD: "3:cpuacct:/", 4: "3:cpuacct:/virtgauge/vg12ab34/g"}
    monkeypatch.setattr("virtgauge.host.process.all_pids", lambda: iter(used))
    monkeypatch.setattr("virtgauge.host.process.is_kernel_thread", lambda pid: True)
    monkeypatch.setattr("virtgauge.host.process.cpu_clock_ns", lambda pid: used[pid])
    monkeypatch.setattr("virtgauge.host.process.text_of", lambda path: group[int(path.parent.name)])
    threads = KernelThreads()
    used.update({KTHREADD: 10, 4: 1000})
    assert threads.cpu_ns() == 10
    group[4] = group[KTHREADD]  # given back: what it did for the guest stays the guest's
    assert threads.cpu_ns() == 10
    used[4] += 5
    assert threads.cpu_ns() == 15


def test_a_process_whose_pid_counts_elsewhere_is_neither_alive_nor_gone() -> None:
    me = ProcessIdentity.current()
    assert not me.gone()
    assert dataclasses.replace(me, start_ticks=1).gone()
    assert dataclasses.replace(me, boot_id="earlier", namespace="another").gone()
    elsewhere = dataclasses.replace(me, namespace="another")
    assert not elsewhere.alive()
    assert not elsewhere.gone()
    old = me.as_text().rpartition(":")[0]  # as a run of an earlier version has it
    assert ProcessIdentity.from_text(old) == me
