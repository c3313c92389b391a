"""From libvirt's description of a guest to a plan: what is in it, what is not and why, and what is no description."""

from __future__ import annotations

import re
import tomllib
import tracemalloc
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import pytest
from typer.testing import CliRunner

from virtgauge.cli import app
from virtgauge.errors import UsageError
from virtgauge.execution.prepare import check_plan
from virtgauge.plan.load import parse_plan
from virtgauge.platforms.libvirt.description import Description
from virtgauge.platforms.libvirt.translation import Translation, translate

DOMAINS = sorted((Path(__file__).parents[1] / "data" / "domains").glob("*.xml"))
PLAIN = """<domain type='{type}'><name>{name}</name><memory unit='MiB'>512</memory><vcpu>2</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os>{more}</domain>"""


def described(more: str = "", *, kind: str = "qemu", type: str = "kvm", name: str = "g") -> Translation:
    text = PLAIN.format(more=more, type=type, name=name)
    return translate(Description(text.encode(), "g.xml"), kind, "qemu:///system" if kind == "libvirt" else None)


def domain(name: str, kind: str = "qemu") -> tuple[dict[str, Any], dict[str, str]]:
    """The section made of a file of tests/data/domains, without name and kind, and what was left out, with why."""
    content = next(path for path in DOMAINS if path.stem == name).read_bytes()
    made = translate(Description(content, name), kind, "qemu:///system" if kind == "libvirt" else None)
    return {key: value for key, value in made.section.items() if key not in ("name", "kind")}, dict(made.left_out)


def because(left_out: dict[str, str], beginning: str) -> str:
    """The only reason of what begins so."""
    found = {why for where, why in left_out.items() if where.startswith(beginning)}
    assert len(found) == 1, (beginning, found)
    return found.pop()


def test_the_usual_guest_of_virt_install() -> None:
    section, left_out = domain("virt-install")
    assert section == {
        "machine": "q35",
        "accelerator": "kvm",
        "vcpus": 2,
        "memory_mib": 2048,
        "nic_model": "virtio",
        "tuning": {
            "cpu_flags": ["-invtsc"],
            "disk_discard": True,
            "vhost": True,
            "rtc_lost_ticks": "slew",
            "pit_lost_ticks": "delay",
            "hpet": False,
        },
    }
    assert "no suite uses" in because(left_out, "devices/graphics")
    assert "kernel" in because(left_out, "os/boot")
    assert "virtio-blk" in because(left_out, "devices/disk/source")


def test_a_real_time_guest_with_its_pinning() -> None:
    section, left_out = domain("real-time")
    tuning = section.pop("tuning")
    assert section == {"machine": "q35", "accelerator": "kvm", "vcpus": 4, "memory_mib": 4096, "nic_model": "virtio"}
    assert tuning == {
        "cpu_flags": [
            *("+tsc-deadline", "-hypervisor", "-invtsc"),
            *("-kvm", "+kvm-hint-dedicated", "+kvm-poll-control", "-pmu", "-kvmclock"),
        ],
        **{"sockets": 1, "cores": 4, "threads": 1},
        **{"vcpu_cpus": [20, 22, 24, 26], "emulator_cpus": [1, 3, 5, 7], "vcpu_scheduling": "fifo:1"},
        **{"hugepages": "1G", "memory_prealloc": True, "memory_locked": True, "numa_node": 0},
        **{"disk_cache": "none", "disk_aio": "native", "disk_iothread": True, "iothread_cpus": [9]},
        **{"disk_discard": False, "disk_queues": 4, "vhost": True, "nic_queues": 4, "nic_tx": "bh"},
        **{"nic_mergeable": False, "pit": False, "hpet": False},
    }  # fmt: skip
    assert "pci_devices" in because(left_out, "devices/hostdev")
    assert "as the first one" in because(left_out, "devices/interface/driver@queues = '2'")


def test_a_guest_of_nova_whose_cpus_are_shared_and_whose_switch_is_in_user_space() -> None:
    section, left_out = domain("nova")
    tuning = section.pop("tuning")
    assert section == {"machine": "pc", "accelerator": "kvm", "vcpus": 4, "memory_mib": 8192, "nic_model": "virtio"}
    assert tuning["cpu_model"] == "Cascadelake-Server-noTSX"
    assert tuning["cpu_flags"] == ["+vmx", "-mpx"]
    assert not {"vhost", "vhost_user", "vcpu_cpus", "qemu_options"} & tuning.keys()
    assert "one CPU of its own" in because(left_out, "cputune/vcpupin")
    assert "policies" in because(left_out, "cputune/shares")
    assert "policies" in because(left_out, "devices/disk/iotune")
    assert "vhost_user" in because(left_out, "devices/interface@type")
    assert "qemu_options" in because(left_out, "commandline")


def test_a_guest_as_proxmox_would_have_it() -> None:
    section, left_out = domain("proxmox-like")
    tuning = section.pop("tuning")
    assert section == {"machine": "pc", "accelerator": "kvm", "vcpus": 2, "memory_mib": 2048, "nic_model": "e1000"}
    assert tuning["disk_aio"] == "io_uring"
    assert tuning["cpu_flags"] == ["+aes", "+x2apic", "+kvm-pv-unhalt"]
    assert "cores" not in tuning, "eight cores, of which two are there"
    assert "virtio-blk" in because(left_out, "devices/disk/target")


@pytest.mark.parametrize("kind", ["qemu", "libvirt"])
@pytest.mark.parametrize("path", DOMAINS, ids=lambda path: path.stem)
def test_each_plan_is_one(path: Path, kind: str) -> None:
    words = ["plan", "from-libvirt", str(path), *(["--libvirt"] if kind == "libvirt" else [])]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    plan = parse_plan(done.stdout, path.name)
    check_plan(plan, path.name)
    assert [section.kind for section in plan.platform] == ["host", kind]
    assert plan.name.startswith("like-")
    comment = [line for line in done.stdout.splitlines() if line.startswith("#")]
    assert len(comment) > 10
    assert "Shut that one down" in comment[0]


@pytest.mark.parametrize("path", DOMAINS, ids=lambda path: path.stem)
def test_each_element_is_in_the_plan_or_among_what_was_left_out(path: Path) -> None:
    """Without an element the plan or the list is another one, whichever element that is."""
    whole = Description(path.read_bytes(), path.name)
    told = translate(whole, "qemu")
    one_line = {where.split(" ")[0] for where, _ in told.left_out}  # with all that is in it

    def without_each(parent: Element, place: str) -> None:
        for at, inner in enumerate(list(parent)):
            here = f"{place}/{inner.tag.rpartition('}')[2]}".lstrip("/")
            if place in one_line or here in SILENT or (path.stem, here) in SILENT:
                continue
            parent.remove(inner)
            less = Description(path.read_bytes(), path.name)
            less.root = whole.root
            found = translate(less, "qemu")
            assert (found.section, found.left_out) != (told.section, told.left_out), here
            parent.insert(at, inner)
            without_each(inner, here)

    without_each(whole.root, "")


SILENT = {
    *("name", "features/acpi", "features/apic"),  # every guest has them
    "currentMemory",  # as much as the guest may have
    "iothreads",  # a disk says that it uses one
    ("nova", "features"),  # no others than these
    ("real-time", "devices/interface/model"),  # of a second interface, as of the first
}
"""Elements without which the guest would be the same."""


def test_a_domain_that_says_it_has_a_thousand_billion_processors_takes_no_memory_for_them() -> None:
    pins = "<cputune><vcpupin vcpu='0' cpuset='0'/></cputune>"
    text = PLAIN.format(more=pins, type="kvm", name="g").replace("<vcpu>2<", f"<vcpu>{10**12}<")
    tracemalloc.start()
    try:
        made = translate(Description(text.encode(), "g.xml"), "qemu")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert "vcpu_cpus" not in made.section["tuning"]


def test_what_the_platform_refuses_is_left_out_with_its_own_words() -> None:
    made = described("<cputune><vcpupin vcpu='0' cpuset='3'/><vcpupin vcpu='1' cpuset='3'/></cputune>")
    assert "vcpu_cpus" not in made.section["tuning"]
    assert "two vCPUs on one CPU" in because(dict(made.left_out), "cputune/vcpupin@cpuset")
    many = translate(
        Description(PLAIN.format(more="", type="kvm", name="g").replace("<vcpu>2<", "<vcpu>900<").encode(), "g.xml"),
        "qemu",
    )
    assert "255" in because(dict(many.left_out), "vcpu")


def test_what_there_are_settings_for_is_not_said_to_have_none() -> None:
    made = described(
        "<cputune><shares>2048</shares><vcpupin vcpu='0' cpuset='0-1'/></cputune>"
        "<cpu mode='host-model'><topology sockets='8' cores='1' threads='1'/>"
        "<feature policy='optional' name='aes'/></cpu>"
    )
    left_out = dict(made.left_out)
    assert "docs/policies.md" in because(left_out, "cputune")
    assert "not those that are there" in because(left_out, "cpu/topology")
    assert "up to its host" in because(left_out, "cpu/feature")


def test_a_guest_of_another_processor_is_not_asked_for_again() -> None:
    text = PLAIN.format(more="", type="kvm", name="g").replace("x86_64", "aarch64")
    with pytest.raises(UsageError) as refused:
        translate(Description(text.encode(), "g.xml"), "qemu")
    assert "aarch64" in refused.value.message
    assert "virsh" not in str(refused.value.remedy)


def test_libvirts_platform_has_fewer_settings_and_says_so() -> None:
    section, left_out = domain("real-time", "libvirt")
    assert section == {
        "uri": "qemu:///system",
        **{"machine": "q35", "accelerator": "kvm", "vcpus": 4, "memory_mib": 4096, "nic_model": "virtio"},
    }
    assert because(left_out, "memoryBacking/locked") == "tuning.memory_locked is no setting of kind = 'libvirt'"


def test_words_for_its_kernel_are_kept_but_those_of_its_own_disk() -> None:
    text = PLAIN.format(more="", type="kvm", name="g").replace(
        "</os>",
        "<kernel>/no/such/kernel</kernel><cmdline>root=/dev/vda1 ro console=ttyS0 isolcpus=1 quiet</cmdline></os>",
    )
    made = translate(Description(text.encode(), "g.xml"), "qemu")
    assert made.section["kernel_words"] == ["isolcpus=1"]
    assert "is no file" in because(dict(made.left_out), "os/kernel")


def test_a_guest_that_stays_on_its_host_is_told_that_its_counter_is_invariant() -> None:
    for mode in ("host-passthrough", "maximum"):
        for more in ("migratable='off'", "migratable='on'"):
            feature = "" if more.endswith("'off'") else "<feature policy='require' name='invtsc'/>"
            made = described(f"<cpu mode='{mode}' {more}>{feature}</cpu>")
            assert "-invtsc" not in made.section.get("tuning", {}).get("cpu_flags", [])
        assert described(f"<cpu mode='{mode}'/>").section["tuning"]["cpu_flags"] == ["-invtsc"]


def test_without_a_processor_it_is_qemus_own_and_not_the_hosts() -> None:
    assert described().section["tuning"] == {"cpu_model": "qemu64"}
    left_out = dict(described(kind="libvirt").left_out)
    assert because(left_out, "cpu/model") == "tuning.cpu_model is no setting of kind = 'libvirt'"


def test_the_end_of_interrupts_by_memory_is_a_feature() -> None:
    made = described("<features><apic eoi='on'/></features>")
    assert made.section["tuning"]["cpu_flags"] == ["+kvm-pv-eoi"]


def test_what_only_kvm_has_is_left_out_of_an_emulated_guest() -> None:
    made = described(
        "<features><kvm><hidden state='on'/></kvm></features><clock><timer name='pit' tickpolicy='delay'/></clock>"
        "<devices><interface type='bridge'><model type='virtio'/></interface></devices>",
        type="qemu",
    )
    assert made.section["accelerator"] == "tcg"
    assert made.section["tuning"] == {"cpu_model": "qemu64"}
    assert "only KVM" in because(dict(made.left_out), "features/kvm/hidden")
    assert "only KVM" in because(dict(made.left_out), "clock/timer@tickpolicy")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("web_1", "web-1"), ("host", "host-guest"), ("a-aa", "a-aa-guest"), ("⛔", "guest"), ("-x.", "x")],
)
def test_its_name_is_one_that_a_platform_may_have(name: str, expected: str) -> None:
    made = described(name=name)
    assert made.section["name"] == expected
    parse_plan(made.plan("quick"), "plan")


def test_what_steers_a_terminal_is_not_printed() -> None:
    made = described("<title>\u202e\u2066</title><description>two\nlines</description>", name="g")
    text = made.plan("quick")
    assert "\u202e" not in text
    tomllib.loads(text)


HOSTILE = {
    "entities": b'<!DOCTYPE domain [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><domain type="kvm"><name>&b;</name></domain>',
    "an entity of a file": b'<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><domain><name>&x;</name></domain>',
    "no XML": b"name = 'plan'",
    "nothing": b"",
    "cut off": b"<domain type='kvm'><name>x",
    "bytes": bytes(range(256)),
    "an unknown encoding": b"<?xml version='1.0' encoding='ebcdic-x'?><domain/>",
    "something else": b"<network><name>default</name></network>",
    "huge": b"<domain type='kvm'><name>" + b"x" * 2_000_000 + b"</name></domain>",
    "very deep": b"<domain type='kvm'>" + b"<a>" * 5000,
    "very many": b"<domain type='kvm'>" + b"<a/>" * 50_000 + b"</domain>",
    "another hypervisor": b"<domain type='xen'><name>x</name></domain>",
    "no type": b"<domain><name>x</name></domain>",
    "another processor": b"<domain type='kvm'><os><type arch='aarch64'>hvm</type></os></domain>",
    "no number": b"<domain type='kvm'><vcpu>many</vcpu></domain>",
    "a long number": b"<domain type='kvm'><memory>" + b"9" * 5000 + b"</memory></domain>",
    "a negative number": b"<domain type='kvm'><vcpu>-2</vcpu></domain>",
    "no unit": b"<domain type='kvm'><memory unit='parsec'>2</memory></domain>",
    "no list": b"<domain type='kvm'><cputune><emulatorpin cpuset='0-'/></cputune></domain>",
    "a list backwards": b"<domain type='kvm'><cputune><emulatorpin cpuset='7-3'/></cputune></domain>",
    "a pin of nothing": b"<domain type='kvm'><cputune><vcpupin/></cputune></domain>",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_description_is_one_error_with_the_file_and_a_remedy(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "guest.xml"
    path.write_bytes(content)
    done = CliRunner().invoke(app, ["plan", "from-libvirt", str(path)])
    assert done.stdout == ""
    error = done.exception
    assert isinstance(error, UsageError), repr(error)
    assert "guest.xml" in error.message
    assert error.remedy
    assert len(error.message) < 500


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    done = CliRunner().invoke(app, ["plan", "from-libvirt", "/dev/zero"])
    assert re.search(r"/dev/zero has more than \d+ bytes", str(done.exception))


def test_a_file_that_is_not_there_is_named() -> None:
    done = CliRunner().invoke(app, ["plan", "from-libvirt", "/no/such/guest.xml"])
    assert isinstance(done.exception, UsageError)
    assert "/no/such/guest.xml" in done.exception.message


def test_a_domain_is_asked_for_although_a_folder_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "web1").mkdir()
    monkeypatch.chdir(tmp_path)
    asked: list[tuple[str, str]] = []

    def description_of(uri: str, name: str) -> bytes:
        asked.append((uri, name))
        return PLAIN.format(more="", type="kvm", name=name).encode()

    monkeypatch.setattr("virtgauge.platforms.libvirt.connection.description_of", description_of)
    done = CliRunner().invoke(app, ["plan", "from-libvirt", "web1"])
    assert done.exit_code == 0, done.output
    assert asked == [("qemu:///system", "web1")]
