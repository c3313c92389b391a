"""The real-time kernel of the distribution as a plan names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from virtgauge.errors import UnavailableError
from virtgauge.execution.prepare import check_plan
from virtgauge.plan.load import parse_plan
from virtgauge.platforms import create, guest_kernel
from virtgauge.platforms.guest_kernel import OwnKernel, kernel_of
from virtgauge.provision.kernel import GuestKernel

PLAN = """[[platform]]
name = "host"
kind = "host"
[[platform]]
name = "rt"
kind = "qemu"
kernel = "rt"
[[suite.timing]]
timers = ["rdtsc"]
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, GuestKernel]:
    """Kernels by their part."""
    kept: dict[str, GuestKernel] = {}
    monkeypatch.setattr(guest_kernel, "find_kernel", kept.get)
    return kept


def test_the_generic_kernel_is_booted_unless_the_plan_says_rt(cache: dict[str, GuestKernel], tmp_path: Path) -> None:
    for part, release in (("kernel", "6.1.0-9-amd64"), ("kernel-rt", "6.1.0-9-rt-amd64")):
        image = tmp_path / part
        image.write_bytes(part.encode())
        cache[part] = GuestKernel(release, image, tmp_path, f"linux-image-{release} 6.1.9-1")
    usual, real_time = kernel_of(OwnKernel()), kernel_of(OwnKernel(kernel="rt"))
    assert [one.release for one in (usual, real_time)] == ["6.1.0-9-amd64", "6.1.0-9-rt-amd64"]
    assert usual.key != real_time.key, "whether a guest boots is found out for each"
    assert real_time.record()["kernel"] == "linux-image-6.1.0-9-rt-amd64 6.1.9-1"


def test_where_it_is_not_there_its_own_command_is_named(cache: dict[str, GuestKernel]) -> None:
    with pytest.raises(UnavailableError, match="no real-time guest kernel") as caught:
        kernel_of(OwnKernel(kernel="rt"))
    assert caught.value.remedy == "virtgauge provision kernel --flavour rt"


def test_a_plan_needs_the_kernel_that_it_names_and_no_other() -> None:
    needed = check_plan(parse_plan(PLAN, "plan"), "plan").needs()
    assert "kernel-rt" in needed
    assert "kernel" not in needed
    assert "kernel" not in create("qemu", {"kernel": __file__}).needs()


def test_a_file_of_that_name_is_meant_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rt").write_bytes(b"a kernel")
    assert OwnKernel(kernel="rt").parts == ("kernel-rt",)
    assert OwnKernel(kernel=str(tmp_path / "rt")).parts == ()
