"""An instance of tracefs: what it is told to record, and what refuses it. A folder stands for the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from virtgauge.errors import UnavailableError
from virtgauge.host import tracing
from virtgauge.host.mounts import Mount

TAG = "vg0000t1"


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As the kernel makes it, without KVM; the folder stays, for it is not empty."""
    folder = tmp_path / "tracing" / "instances" / f"virtgauge-{TAG}"
    events = [event for event in tracing.EVENTS if not event.startswith("kvm/")]
    files = [f"events/{event}/enable" for event in events] + [f"per_cpu/cpu{cpu}/buffer_size_kb" for cpu in range(4)]
    files += [f"options/{name}" for name in ("overwrite", "verbose", "stacktrace")]
    for name in (*files, "tracing_on", "trace_clock", "buffer_size_kb", "trace"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    monkeypatch.setattr(tracing, "mounts", lambda: [Mount(tmp_path / "tracing", "tracefs", ())])
    return folder


def test_it_records_what_the_kernel_has_by_the_clock_of_the_lateness_and_ends(instance: Path, tmp_path: Path) -> None:
    with tracing.traced(tmp_path / TAG) as trace:
        assert trace.absent == ("kvm/kvm_entry", "kvm/kvm_exit")
        told = {name: (instance / name).read_text() for name in ("trace_clock", "tracing_on", "options/overwrite")}
        assert told == {"trace_clock": "mono", "tracing_on": "1", "options/overwrite": "1"}
        assert [(instance / "options" / name).read_text() for name in ("verbose", "stacktrace")] == ["0", "0"]
        assert (instance / "events/sched/sched_switch/enable").read_text() == "1"
        (instance / "trace").write_bytes(b"# tracer: nop\n b\xffs\rh-12\n")
        assert list(trace.lines()) == ["# tracer: nop\n", " b\N{REPLACEMENT CHARACTER}s\rh-12\n"]
        trace.stop()
        trace.abandon()
        assert list(trace.lines()) == []
        assert (instance / "tracing_on").read_text() == "0"
    assert (instance / "tracing_on").read_text() == "0"


@pytest.mark.parametrize(("cpus", "large"), [((), range(4)), ((2,), [2]), ((7,), range(4))])
def test_rings_are_bounded_and_large_where_the_cycles_are(
    instance: Path, tmp_path: Path, cpus: tuple[int, ...], large: list[int]
) -> None:
    with tracing.traced(tmp_path / TAG, cpus) as trace:
        own = [(instance / f"per_cpu/cpu{cpu}/buffer_size_kb").read_text() for cpu in range(4)]
    assert own == [str(trace.kib) if cpu in large else "" for cpu in range(4)]
    assert (instance / "buffer_size_kb").read_text() == "1024"
    assert 1024 <= trace.kib <= 64 * 1024


def test_a_kernel_that_does_not_tell_of_switches_is_refused_and_stops(instance: Path, tmp_path: Path) -> None:
    (instance / "events/sched/sched_switch/enable").unlink()
    with pytest.raises(UnavailableError, match="sched_switch/enable: No such file"), tracing.traced(tmp_path / TAG):
        pass
    assert (instance / "tracing_on").read_text() == "0"


def test_a_trace_that_somebody_has_removed_is_no_defect_of_ours(instance: Path, tmp_path: Path) -> None:
    with tracing.traced(tmp_path / TAG) as trace:
        (instance / "trace").unlink()
        with pytest.raises(UnavailableError, match="trace: No such file"):
            list(trace.lines())
        (instance / "tracing_on").unlink()
        with pytest.raises(UnavailableError, match="tracing_on: No such file"):
            trace.stop()


def test_an_instance_is_its_scopes_alone(instance: Path) -> None:
    assert tracing.instance_of(TAG) == instance
    assert tracing.instance_of("vg0000t2") is None
    assert tracing.remove_instance("vg0000t2") == []
    assert tracing.remove_instance(TAG) == [f"the trace {instance} is still in use"]


def test_a_mount_that_is_another_scopes_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with that scope, and what can be reached by it alone would stay for ever."""
    found, made = [Mount(tmp_path / "vg0000t2" / ".tracefs", "tracefs", ())], list[Path]()
    monkeypatch.setattr(tracing, "mounts", lambda: found)
    monkeypatch.setattr(tracing, "mount", lambda _, point, __: made.append(point))
    (scope_folder := tmp_path / TAG).mkdir()
    own = scope_folder / ".tracefs"
    assert (tracing._root(scope_folder), made) == (own, [own])
    found.append(Mount(own, "tracefs", ()))
    assert (tracing._root(scope_folder), made) == (own, [own])
