"""Platforms from their section of a plan."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from virtgauge.errors import UsageError
from virtgauge.platforms import KINDS, create, settings_model
from virtgauge.platforms.guest_kernel import OwnKernel

LEAST = {"attached": {"via": "ssh", "host": "192.0.2.1"}}
"""What kinds need that cannot be made from nothing."""


def test_every_kind_can_be_made_from_next_to_nothing_and_describes_itself() -> None:
    for kind in KINDS:
        platform = create(kind, LEAST.get(kind, {}))
        assert platform.kind == kind
        assert platform.describe()["kind"] == kind
        assert platform.label


def test_an_unknown_kind_is_refused_with_what_there_is() -> None:
    with pytest.raises(UsageError, match="did you mean 'qemu'"):
        create("qemo", {})
    with pytest.raises(UsageError, match="oci, qemu, simulated"):
        create("zzz", {})


@pytest.mark.parametrize(
    ("kind", "settings", "field"),
    [
        ("host", {"vcpus": 1}, "vcpus"),
        ("oci", {"runtime": ""}, "runtime"),
        ("oci", {"runtimes": "runc"}, "runtimes"),
        ("oci", {"memory_mib": 1}, "memory_mib"),
        ("qemu", {"machine": "virt"}, "machine"),
        ("qemu", {"accelerator": "hvf"}, "accelerator"),
        ("qemu", {"vcpus": 0}, "vcpus"),
    ],
)
def test_wrong_settings_are_refused_by_field(kind: str, settings: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        create(kind, settings)
    assert [error["loc"][0] for error in caught.value.errors()] == [field]


def test_the_settings_of_a_kind_can_be_listed() -> None:
    assert set(settings_model("oci").model_fields) == {"runtime", "options", "vcpus", "memory_mib"}
    own = {"machine", "accelerator", "vcpus", "memory_mib", "nic_model", "disk_image", "tuning"}
    assert set(settings_model("qemu").model_fields) == own | set(OwnKernel.model_fields)


def test_labels_tell_containers_and_sandboxes_apart() -> None:
    assert create("oci", {"runtime": "/opt/x/runsc"}).label == "gVisor (runsc, systrap)"
    assert create("oci", {"runtime": "kata-runtime"}).label == "Kata Containers"
    assert create("oci", {"runtime": "crun"}).label == "container (crun)"
    assert create("qemu", {"accelerator": "tcg", "machine": "q35"}).label == "QEMU q35 (tcg, emulated)"
