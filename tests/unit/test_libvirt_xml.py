"""Domains in libvirt's XML, against libvirt's own schema, and what a plan may say of them."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import types
from pathlib import Path
from xml.etree import ElementTree

import pytest
from lxml import etree
from pydantic import ValidationError

from virtgauge.agent import AgentBinary
from virtgauge.host import domains
from virtgauge.host.domains import DomainRecord, destroy_domains, has_domains
from virtgauge.host.reclaim import reclaim_folder
from virtgauge.host.scope import Scope
from virtgauge.plan.load import load_plan
from virtgauge.platforms.base import GuestSpec
from virtgauge.platforms.boot_files import RootPart
from virtgauge.platforms.libvirt.boot import kernel_boot, management_interface
from virtgauge.platforms.libvirt.connection import DomainHandle, LibvirtError
from virtgauge.platforms.libvirt.domain_xml import Domain, Interface, KernelBoot
from virtgauge.platforms.libvirt.platform import LibvirtPlatform
from virtgauge.platforms.libvirt.settings import DRIVERS, ChannelKind, LibvirtSettings, target_of
from virtgauge.platforms.qemu.command import Drive

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
KERNEL = KernelBoot(Path("/c/vmlinuz"), Path("/c/initramfs.cpio"), "console=ttyS0 quiet virtgauge.channel=virtio:x")
LOCAL = {
    "qemu": "qemu:///system",
    "xen": "xen:///",
    "lxc": "lxc:///",
    "vbox": "vbox:///session",
    "test": "test:///default",
}
CALL = {
    "image": "/images/g.qcow2",
    "listen": "192.0.2.1:7443",
    "credentials": "c.json",
    "management": "VM Network",
}
REMOTE = {"esx": "esx://root@esx1/", "hyperv": "hyperv://admin@hv1/"}


@pytest.fixture(scope="module")
def schema() -> etree.RelaxNG:
    assert SCHEMA.is_file(), "libvirt's schemas are missing (Debian: libvirt0)"
    return etree.RelaxNG(etree.parse(SCHEMA))


def domain(scheme: str, **changes: object) -> Domain:
    """A guest as the driver has it, of an image or, where that is usual, of a kernel or a folder."""
    driver = target_of((LOCAL | REMOTE)[scheme]).driver
    plain = Domain(
        driver=driver,
        domain_type=driver.domain_type,
        name="vg012345-g1",
        uuid="b3c7f0d0-6a0c-4d0e-9d0a-2f7d7c3c7a10",
        description="whose it is",
        vcpus=2,
        memory_mib=512,
        channel=driver.channel if driver.kernel_boot or scheme == "lxc" else driver.image_channel,
        machine=driver.machines[0] if driver.machines else None,
        boot=KERNEL if driver.kernel_boot else None,
        image=f"/images/g.{driver.image_format}" if driver.image_format and not driver.kernel_boot else None,
        image_format=driver.image_format,
        root=Path("/s/root") if scheme == "lxc" else None,
        socket=Path("/s/agent.sock"),
        console=Path("/s/console.log") if scheme == "qemu" else None,
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


def nics(scheme: str) -> tuple[Interface, ...]:
    """One of each model, in the lab or on a network of the hypervisor."""
    driver = target_of((LOCAL | REMOTE)[scheme]).driver
    place = {"device": "vg012345n0"} if driver.in_lab else {"network": "VM Network"}
    return tuple(
        Interface(f"52:54:00:00:00:{number:02x}", model, **place)
        for number, model in enumerate(driver.nic_models.values(), 1)
    )


VARIANTS = {
    "plain": {},
    "confined": {"cpus": (0, 1), "cpu_limit": 0.5},
    "kvm": {"domain_type": "kvm"},
    "image": {"boot": None, "image": "/images/g.qcow2", "image_format": "qcow2", "channel": ChannelKind.SERIAL},
    "disks": {"drives": [Drive(Path(f"/d/{name}"), Path(f"/s/{name}"), "none", n) for n, name in enumerate("ab")]},
    "root": {"exports": (RootPart("lower", Path("/usr"), "/usr"), RootPart("write", Path("/w"), "/w"))},
    "labels": {"security": ("dac", "apparmor", "selinux"), "environment": (("VIRTGAUGE_SCOPE", "vg012345"),)},
    "pc": {"machine": "pc"},
}


@pytest.mark.parametrize("scheme", DRIVERS)
def test_every_drivers_domain_is_valid_by_libvirts_schema(schema: etree.RelaxNG, scheme: str) -> None:
    for guest in (domain(scheme), domain(scheme, nics=nics(scheme)), domain(scheme, cpus=(0,), cpu_limit=0.5)):
        assert schema.validate(etree.fromstring(guest.xml())), schema.error_log
    broken = domain(scheme).xml().replace("<vcpu", "<vcpus").replace("</vcpu>", "</vcpus>")
    assert not schema.validate(etree.fromstring(broken)), "the schema would accept anything"


async def test_virtualbox_boots_the_image_of_the_cache_and_says_how_to_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the papers' presets have it, which cannot name a file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    monkeypatch.setattr(LibvirtPlatform, "_look", lambda self: {"libvirt": "9.0.0"})
    monkeypatch.setattr("virtgauge.platforms.libvirt.platform.find_agent", lambda: None)
    plan, _ = load_plan("paper:timing")
    (section,) = (one for one in plan.platform if one.name == "virtualbox")
    arm = LibvirtSettings.model_validate(section.settings)
    image = tmp_path / "my cache" / "virtgauge" / "guest.vdi"
    found = await LibvirtPlatform(arm).probe()
    assert not found.usable and f"virtgauge image build --out '{image}'" in (found.fix or "")
    image.parent.mkdir(parents=True)
    image.touch()
    platform = LibvirtPlatform(arm)
    assert (await platform.probe()).usable
    assert platform.describe()["image"] == str(image)
    assert LibvirtPlatform(LibvirtSettings(uri=LOCAL["vbox"], image="/other.vdi")).settings.image == "/other.vdi"
    assert LibvirtPlatform(LibvirtSettings(uri=REMOTE["esx"])).settings.image is None


@pytest.mark.parametrize("management", ["VM Network", "br0", "network:default"])
@pytest.mark.parametrize("uri", [*REMOTE.values(), LOCAL["vbox"], LOCAL["xen"], "qemu+ssh://root@other/system"])
def test_a_guest_whose_agent_calls_has_an_interface_for_it_in_every_driver(
    schema: etree.RelaxNG, uri: str, management: str
) -> None:
    settings = LibvirtSettings(uri=uri, **CALL | {"management": management})
    driver = settings.target.driver
    model = next(iter(driver.nic_models.values()))
    interface = management_interface(settings, model)
    assert interface is not None
    image = {"boot": None, "image": settings.image, "image_format": "qcow2", "channel": ChannelKind.DIAL_IN}
    beside = Interface("52:54:00:00:00:01", model, network="VM Network 2")
    tree = etree.fromstring(domain(driver.scheme, **image, nics=(interface, beside)).xml())
    assert schema.validate(tree), schema.error_log
    first, second = tree.findall("devices/interface")
    kind = "network" if management == "network:default" else "bridge"
    assert (first.get("type"), first.find("source").get(kind)) == (kind, management.removeprefix("network:"))
    assert second.find("source").get("bridge") == "VM Network 2"


def test_the_interface_for_calls_has_the_same_address_in_every_guest_and_none_of_a_suites() -> None:
    one, again, other = (
        management_interface(LibvirtSettings(uri=uri, **CALL), "")
        for uri in ("esx://root@esx1/", "esx://root@esx1/", "esx://root@esx2/")
    )
    assert one is not None
    assert other is not None
    assert one == again
    assert one.mac != other.mac
    assert one.mac.startswith("52:54:00:")
    assert int(one.mac.split(":")[3], 16) >= 0x80
    chosen = LibvirtSettings(uri="esx://root@esx1/", management_mac="00:50:56:00:00:0A", **CALL)
    asked = management_interface(chosen, "")
    assert asked is not None
    assert asked.mac == "00:50:56:00:00:0a"
    assert management_interface(LibvirtSettings(), "virtio") is None


def test_only_containers_have_no_kernel_of_their_own() -> None:
    own = {scheme: LibvirtPlatform(LibvirtSettings(uri=uri)).is_virtual for scheme, uri in (LOCAL | REMOTE).items()}
    assert own.pop("lxc") is False
    assert set(own.values()) == {True}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_qemus_domain_is_valid(schema: etree.RelaxNG, variant: str) -> None:
    assert schema.validate(etree.fromstring(domain("qemu", **VARIANTS[variant]).xml())), schema.error_log


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"image": "/images/g.qcow2", "kernel_words": ["nosmt"]},
            "kernel_words means nothing here: an image has its own",
        ),
        ({"uri": "lxc:///", "kernel": "rt"}, "kernel means nothing here: it is for QEMU and Xen on this machine"),
        ({"uri": "qemu+ssh://root@other/system", "initrd": __file__}, "initrd means nothing here"),
        ({"kernel": "rt", "kernel_modules": "/"}, "kernel_modules means nothing without a kernel of your own"),
    ],
)
def test_a_kernel_where_none_is_booted_is_refused_by_its_key(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        LibvirtSettings(**settings)


async def test_a_kernel_of_the_plan_with_initrd_and_words_is_in_a_valid_description(
    schema: etree.RelaxNG, tmp_path: Path, private_state: Path, any_agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("kernel", "initrd"):
        (tmp_path / name).write_bytes(name.encode())
    own = {name: tmp_path / name for name in ("kernel", "initrd")} | {"kernel_words": ["isolcpus=1", "a<b&c"]}
    with Scope() as scope:
        guest = GuestSpec(name="g", scope=scope, agent=AgentBinary(any_agent, "0" * 64))
        for uri in (LOCAL["qemu"], LOCAL["xen"]):
            settings = LibvirtSettings(uri=uri, **own)
            boot = await kernel_boot(guest, settings, settings.target.driver, "kvm", "virtio", ())
            tree = etree.fromstring(domain(settings.target.driver.scheme, boot=boot).xml())
            assert schema.validate(tree), schema.error_log
            assert tree.findtext("os/kernel") == str(tmp_path / "kernel")
            assert str(tree.findtext("os/cmdline")).endswith(" isolcpus=1 a<b&c")
            assert Path(str(tree.findtext("os/initrd"))).read_bytes().startswith(b"initrd")


@pytest.mark.parametrize("machine", ["xenpvh", "xenpv"])
def test_both_kinds_of_xens_guests_are_valid(schema: etree.RelaxNG, machine: str) -> None:
    tree = etree.fromstring(domain("xen", machine=machine).xml())
    assert schema.validate(tree), schema.error_log
    assert tree.findtext("os/type") == {"xenpvh": "xenpvh", "xenpv": "linux"}[machine]
    assert tree.findtext("os/kernel") == "/c/vmlinuz"


def test_a_guest_of_qemu_has_nothing_that_libvirt_would_add() -> None:
    tree = ElementTree.fromstring(domain("qemu").xml())
    devices = tree.find("devices")
    assert devices is not None
    assert [device.tag for device in devices] == ["serial", "channel", "controller", "memballoon"]
    assert {device.get("model") for device in devices} >= {"none"}
    assert [tree.findtext(f"on_{event}") for event in ("poweroff", "reboot", "crash")] == ["destroy"] * 3


def test_the_agent_finds_its_port_and_qemu_our_socket() -> None:
    tree = ElementTree.fromstring(domain("qemu").xml())
    channel = tree.find("devices/channel")
    assert channel is not None
    assert channel.find("source").attrib == {"mode": "connect", "path": "/s/agent.sock"}  # type: ignore[union-attr]
    assert channel.find("target").attrib == {"type": "virtio", "name": "org.virtgauge.agent"}  # type: ignore[union-attr]


def test_a_tap_is_opened_and_not_made_and_carries_whole_frames_only() -> None:
    tree = ElementTree.fromstring(domain("qemu", nics=nics("qemu")).xml())
    virtio, e1000 = tree.findall("devices/interface")
    for interface in (virtio, e1000):
        assert interface.get("type") == "ethernet"
        assert interface.find("target").attrib == {"dev": "vg012345n0", "managed": "no"}  # type: ignore[union-attr]
    driver = virtio.find("driver")
    assert driver is not None
    assert {value for side in driver for value in side.attrib.values()} == {"off"}
    assert e1000.find("driver") is None


def test_a_limit_is_of_the_whole_machine_and_cores_are_of_every_thread() -> None:
    tree = ElementTree.fromstring(domain("qemu", cpus=(1, 0), cpu_limit=0.25).xml())
    assert tree.findtext("cputune/global_quota") == "25000"
    assert tree.findtext("cputune/global_period") == "100000"
    assert [pin.get("cpuset") for pin in tree.findall("cputune/vcpupin")] == ["0,1", "0,1"]
    assert tree.find("cputune/emulatorpin").get("cpuset") == "0,1"  # type: ignore[union-attr]
    container = ElementTree.fromstring(domain("lxc", cpu_limit=0.25).xml())
    assert container.findtext("cputune/quota") == "25000"


def test_a_container_without_interfaces_does_not_share_this_machines() -> None:
    tree = ElementTree.fromstring(domain("lxc").xml())
    assert tree.find("features/privnet") is not None
    assert [argument.text for argument in tree.findall("os/initarg")] == ["--channel", "/channel.sock"]


def test_names_with_marks_of_xml_stay_names() -> None:
    path = '/im<a>ges/"g" & h.qcow2'
    tree = ElementTree.fromstring(domain("qemu", boot=None, image=path).xml())
    assert tree.find("devices/disk/source").get("file") == path  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("uri", "scheme", "remote"),
    [
        ("qemu:///system", "qemu", False),
        ("qemu+unix:///system?socket=/s/libvirt-sock", "qemu", False),
        ("qemu+ssh://root@other/system", "qemu", True),
        ("xen:///", "xen", False),
        ("esx://root@esx1/?no_verify=1", "esx", True),
        ("hyperv://admin@hv1/", "hyperv", True),
    ],
)
def test_an_uri_tells_the_driver_and_whose_machine_it_is(uri: str, scheme: str, remote: bool) -> None:
    found = target_of(uri)
    assert (found.driver.scheme, found.remote) == (scheme, remote)
    assert not (remote and (found.driver.kernel_boot or found.driver.in_lab))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"uri": "kvm:///system"}, "names no driver that is known here .*qemu:///system"),
        ({"uri": ""}, "names no driver"),
        ({"uri": "esx:///"}, "names no host; write it as in esx://user@host/"),
        ({"machine": "xenpv"}, "is none of QEMU: choose one of: q35, pc"),
        ({"uri": "lxc:///", "machine": "q35"}, "is none of LXC: leave it out"),
        ({"nic_model": "vmxnet3"}, "is none of QEMU: choose one of: virtio, e1000"),
        ({"uri": "xen:///", "accelerator": "kvm"}, "accelerator is QEMU's"),
        ({"uri": "lxc:///", "image": "x.raw"}, "LXC boots no image"),
        ({"networks": ["br0"]}, "are put into the lab: leave networks out"),
        ({"image": ""}, "image"),
        (CALL | {"management": None}, "listen, credentials without management: .*a port group.* go together"),
        (CALL | {"listen": None}, "credentials, management without listen"),
        (CALL | {"image": None}, "listen means nothing without image"),
        (CALL | {"management": "network:"}, "names no network of the hypervisor"),
        (CALL | {"management": "br\n0"}, "names no network of the hypervisor"),
        ({"uri": "esx://h/", "networks": [" "]}, "names no network of the hypervisor"),
        (CALL | {"management_mac": "01:00:5e:00:00:01"}, "give the hardware address of one device"),
        ({"management_mac": "52:54:00:00:00:01"}, "management_mac means nothing without management"),
        (CALL | {"wait_s": 0}, "wait_s"),
        ({"vcpu": 1}, "vcpu"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_what_does(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        LibvirtSettings.model_validate(settings)


@pytest.mark.parametrize(
    ("image", "found"),
    [("/i/a.qcow2", "qcow2"), ("[datastore1] vg/a.VMDK", "vmdk"), ("C:\\vm\\a.vhdx", "vhdx"), ("/i/a.iso", "raw")],
)
def test_an_images_format_is_its_suffixs(image: str, found: str) -> None:
    assert LibvirtSettings(uri="esx://h/", image=image).image_format == found


def test_a_left_domain_that_cannot_be_destroyed_is_said_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "libvirt", None)
    guest = tmp_path / "g1"
    guest.mkdir()
    DomainRecord("qemu:///system", "vg012345-g1").write(guest)
    half = tmp_path / "g2"
    half.mkdir()
    (half / "libvirt.json").write_text('{"uri": ')
    (line,) = destroy_domains(tmp_path)
    assert "could not destroy the domain vg012345-g1" in line
    assert "virsh -c qemu:///system destroy vg012345-g1" in line
    assert has_domains(tmp_path), "the next start tries again"


def test_the_record_of_a_domain_that_stays_outlives_its_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libvirt", None)
    with Scope() as scope:
        DomainRecord("qemu:///system", f"{scope.tag}-g1").write(scope.guest_folder("g1"))
    assert has_domains(scope.folder)
    monkeypatch.setitem(sys.modules, "libvirt", types.SimpleNamespace(registerErrorHandler=lambda *_: None))
    monkeypatch.setattr(domains, "open_unattended", lambda *_: types.SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(domains, "remove_domain", lambda _, name: name == f"{scope.tag}-g1")
    assert reclaim_folder(scope.folder) == [f"destroyed the domain {scope.tag}-g1"]
    assert not has_domains(scope.folder)
    shutil.rmtree(scope.folder)


@pytest.mark.parametrize("stays", [True, False])
def test_a_domain_that_is_not_removed_is_known_to_be_left(stays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(_: DomainHandle) -> None:
        if stays:
            raise LibvirtError("the connection has expired")

    monkeypatch.setattr(DomainHandle, "remove", remove)
    handle = DomainHandle("test:///default", "vg012345-g1")
    handle.leave_nothing()
    assert handle.left is stays
