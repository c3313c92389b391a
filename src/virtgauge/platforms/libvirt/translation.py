"""From a running guest's description in libvirt's XML to the settings of a platform that measures its like.

Every element and attribute ends in a setting, or in the list of what was left out, with the reason.
Source: https://libvirt.org/formatdomain.html.
"""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from pydantic import BaseModel, ValidationError

from virtgauge.errors import UsageError, printable
from virtgauge.plan.load import preset_text
from virtgauge.platforms import settings_model
from virtgauge.platforms.libvirt.description import Description, Fact, facts_of, value_of

_ACCELERATORS = {"kvm": "kvm", "qemu": "tcg"}  # By the type of a domain
_SWITCHES = {"on": True, "yes": True, "off": False, "no": False}
_VIRTIO = ("virtio", "virtio-transitional", "virtio-non-transitional")
_NIC_MODELS = {"e1000": "e1000"} | dict.fromkeys(_VIRTIO, "virtio")
_OF_ITS_DISK = re.compile(r"(root|init|rd|console|earlyprintk)[=.].*|ro|rw|quiet|rhgb")
"""Words for a kernel that are of the guest's own disk, or of where it prints."""

_REASONS = (
    (
        r"@id|(uuid|title|description|metadata|genid|sysinfo)\b",
        "it tells the guest from others; no figure depends on it",
    ),
    (
        r"(os|vcpus)\b",
        'its disk is not booted; for its kernel see kernel, initrd and kernel_words, or write kernel = "rt"',
    ),
    (r"(on_|pm\b)", "virtgauge itself ends its guests"),
    (
        r"vcpu@cpuset|cputune/.*(quota|period|shares)\b|blkiotune|memtune|resource|devices/.*(iotune|bandwidth)",
        "limits are the suites' own factors, and policies of isolation: docs/policies.md",
    ),
    (r"currentMemory|maxMemory", "a guest has all its memory from the beginning; there is no balloon"),
    (r"cputune/(vcpupin|vcpusched)", "pinned is each vCPU, to one CPU of its own, and all have one scheduling class"),
    (r"cputune$", "limits are the suites' own factors: docs/policies.md; pinned is each vCPU, to one CPU of its own"),
    (r"cpu/topology", "its processors are not those that are there, or are of dies or clusters"),
    (r"cpu/feature", "whether the guest has it is up to its host"),
    (r"features/hyperv", "an aid for guests that are Windows"),
    (r"clock(@|$)", "no figure depends on the time of day"),
    (r"seclabel|keywrap|launchSecurity", "how libvirt confines or seals the guest"),
    (r"devices/.*(address|alias)", "a place or name of the device; the installed QEMU has its usual ones"),
    (r"devices/interface", "interfaces are all as the first one, and lead into a laboratory of the suite"),
    (r"devices/disk", "disks are virtio-blk, all as the first one, on new raw images of the suite"),
    (r"devices/hostdev", "the guest has it: name a free device by tuning.pci_devices"),
    (r"devices/emulator", "the qemu-system-x86_64 that is found on PATH is started"),
    (r"devices", "no suite uses such a device"),
    (r"commandline", "words for QEMU may name files: take those that matter into tuning.qemu_options yourself"),
    (r"", "there is no such setting"),
)
"""Why what no rule takes is left out, by its path: the first pattern that it begins with holds."""
_REPLACED = ("name", "description", "reference", "platform", "require", "profile", "budget", "fleet")
_HINTS = {
    "features/kvm/hidden@state": "!kvm",
    "features/kvm/hint-dedicated@state": "kvm-hint-dedicated",
    "features/kvm/poll-control@state": "kvm-poll-control",
    "features/kvm/pv-ipi@state": "kvm-pv-ipi",
    "features/apic@eoi": "kvm-pv-eoi",
    "features/pmu@state": "pmu",
    "features/pvspinlock@state": "kvm-pv-unhalt",
    "clock/timer[@name='kvmclock']@present": "kvmclock",
}
"""Elements that switch one feature of the processor on or off: QEMU's name of it, after ``!`` for the opposite."""
_OF_KVM = "only KVM has it, and this guest is emulated"
_TAPS = ("network", "bridge", "ethernet", "direct")
"""Types of interfaces behind which there is a tap, or a macvtap."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """What some facts come to: keys of a platform's section, those of a table in it as ``table.key``."""

    keys: dict[str, Any]  # empty where every guest of virtgauge is so
    facts: tuple[Fact, ...]


@dataclasses.dataclass(frozen=True)
class Translation:
    """A platform's section that is like a domain, and what of the domain is not in it."""

    name: str  # of the domain
    section: dict[str, Any]  # of the plan, with name and kind
    left_out: list[tuple[str, str]]  # what, by its path and value, and why

    def plan(self, preset: str) -> str:
        """A plan in TOML of it and the host, by a preset's suites.  Raises UsageError: there is no such preset."""
        import tomli_w

        kept = {key: value for key, value in tomllib.loads(preset_text(preset)).items() if key not in _REPLACED}
        suites = {suite: [of] if isinstance(of, dict) else of for suite, of in kept.pop("suite").items()}
        for design in (one for designs in suites.values() for one in designs):
            design.pop("platforms", None)
        name = self.section["name"]
        head = {"name": f"like-{name}", "description": f"Guests like {name}, by the suites of {preset}"}
        platforms = [{"name": "host", "kind": "host"}, self.section]
        lines = [
            f"A guest like the domain {self.name}. Shut that one down meanwhile: they would share CPUs and memory.",
            *(["Left out of its description, and why:"] if self.left_out else []),
            *(f"  {where}: {why}" for where, why in self.left_out),
        ]
        comment = "".join(f"# {printable(line, 300)}\n" for line in lines)
        return comment + tomli_w.dumps({**head, **kept, "platform": platforms, "suite": suites})


def translate(domain: Description, kind: str, uri: str | None = None) -> Translation:
    """The section of kind ``qemu``, or ``libvirt`` with a URI, that is like a domain.
    Raises UsageError: it is no virtual machine of QEMU for x86, or says something that libvirt would never write.
    """
    settings = settings_model(kind)
    section: dict[str, Any] = {} if uri is None else {"uri": uri}
    for rule in _RULES:
        for finding in rule(domain):
            grown, why = _with(section, finding.keys, settings, kind)
            if why is None:
                section = grown
                domain.use(finding.facts)
            else:
                domain.refuse(finding.facts, why)
    name = domain.root.find("name")
    title = "" if name is None else value_of((name, ""))
    if name is not None:
        domain.use([(name, "")])
    left_out = domain.left_out(lambda path: next(why for pattern, why in _REASONS if re.match(pattern, path)))
    return Translation(title, {"name": _platform_name(title), "kind": kind, **section}, left_out)


def _platform_name(title: str) -> str:
    """The domain's name as a platform may have it."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", title)[:34].strip("-.") or "guest"
    return f"{name}-guest" if name == "host" or name.endswith("-aa") else name


def _with(
    section: dict[str, Any], keys: dict[str, Any], settings: type[BaseModel], kind: str
) -> tuple[dict[str, Any], str | None]:
    """A section with further keys, and why the platform does not take them; None where it does."""
    grown = {key: dict(value) if isinstance(value, dict) else value for key, value in section.items()}
    for path, value in keys.items():
        table, _, key = path.rpartition(".")
        if (table or key) not in settings.model_fields:
            return section, f"{path} is no setting of kind = {kind!r}"
        (grown.setdefault(table, {}) if table else grown)[key] = value
    try:
        settings.model_validate(grown)
    except ValidationError as error:
        return section, str(error.errors()[0]["msg"]).removeprefix("Value error, ")
    return grown, None


def _machine(domain: Description) -> Iterator[Finding]:
    kind, system = (domain.root, "type"), domain.root.find("os/type")
    if value_of(kind) not in _ACCELERATORS:
        raise UsageError(
            f"{domain.source} is a domain of type {value_of(kind)!r}, and not of QEMU (kvm, qemu)",
            "write its plan by hand: see docs/platforms/libvirt.md for other hypervisors",
        )
    if system is not None:
        for fact, known in (((system, ""), "hvm"), ((system, "arch"), "x86_64")):
            if value_of(fact) not in (known, ""):
                wrong = domain.wrong(fact, f"{known} is expected: virtgauge's guests are whole machines, of x86-64")
                raise UsageError(wrong.message, "name a guest that is one")
        yield Finding({}, ((system, ""), (system, "arch")))
        machine = (system, "machine")
        if found := re.match(r"(?:pc-)?(q35|microvm)\b|(pc)\b", value_of(machine)):
            name = found[1] or found[2]
            yield Finding({"machine": name}, (machine,) if value_of(machine) == name else ())
            domain.refuse([machine], f"{name} as the installed QEMU has it, in no other version")
    yield Finding({"accelerator": _ACCELERATORS[value_of(kind)]}, (kind,))
    for path in ("features/acpi", "features/apic", "features/pae"):  # which every guest of virtgauge has
        if (element := domain.root.find(path)) is not None:
            yield Finding({}, ((element, ""),))


def _vcpus(domain: Description) -> int:
    """How many are there, of those that there may be; 0 where nothing is said."""
    vcpu = domain.root.find("vcpu")
    return 0 if vcpu is None else domain.number((vcpu, "current" if "current" in vcpu.attrib else ""))


def _size(domain: Description) -> Iterator[Finding]:
    if (vcpu := domain.root.find("vcpu")) is not None:
        yield Finding({"vcpus": _vcpus(domain)}, ((vcpu, ""), (vcpu, "current"), (vcpu, "placement")))
    if (memory := domain.root.find("memory")) is not None:
        size = domain.size((memory, ""))
        yield Finding({"memory_mib": size // 2**20}, ((memory, ""), (memory, "unit")))
        now = domain.root.find("currentMemory")
        if now is not None and domain.size((now, "")) == size:
            yield Finding({}, tuple(facts_of(now)))


def _processor(domain: Description) -> Iterator[Finding]:
    if (cpu := domain.root.find("cpu")) is None:
        return
    mode, model = value_of((cpu, "mode")), cpu.find("model")
    if mode in ("host-passthrough", "maximum"):  # what virtgauge has where nothing is said
        yield Finding({}, tuple((cpu, name) for name in ("mode", "check", "migratable")))
    elif mode in ("custom", "") and model is not None:
        facts: tuple[Fact, ...] = ((model, ""), *((cpu, name) for name in ("mode", "check", "match")))
        yield Finding({"tuning.cpu_model": value_of((model, ""))}, facts)
    else:
        domain.refuse(
            [(cpu, "mode")], "the guest sees the whole processor of the host, and no model that is near to it"
        )
    signs = {"require": "+", "force": "+", "disable": "-", "forbid": "-"}
    features = [one for one in cpu.findall("feature") if one.get("policy", "require") in signs]
    flags = {one.get("name", ""): signs[one.get("policy", "require")] for one in features}
    if mode in ("host-passthrough", "maximum") and cpu.get("migratable") != "off" and _by_kvm(domain):
        flags.setdefault("invtsc", "-")  # a guest that may be moved is not told that its counter is invariant
    hints, facts = _hints(domain)
    flags |= hints
    if flags:
        facts = (*(fact for one in features for fact in facts_of(one)), *facts)
        yield Finding({"tuning.cpu_flags": [sign + name for name, sign in flags.items()]}, facts)


def _by_kvm(domain: Description) -> bool:
    return domain.root.get("type") == "kvm"


def _hints(domain: Description) -> tuple[dict[str, str], tuple[Fact, ...]]:
    """Features that are elements of their own, with the sign of each, and where they stand."""
    flags: dict[str, str] = {}
    facts: list[Fact] = []
    for path, flag in _HINTS.items():
        place, _, attribute = path.rpartition("@")
        element = domain.root.find(place)
        if element is None or (value := value_of((element, attribute))) not in _SWITCHES:
            continue
        if flag != "pmu" and not _by_kvm(domain):
            domain.refuse(facts_of(element), _OF_KVM)
            continue
        flags[flag.lstrip("!")] = "-" if _SWITCHES[value] is (flag[0] == "!") else "+"
        facts += [(element, attribute), (element, "name")]
    return flags, tuple(facts)


def _topology(domain: Description) -> Iterator[Finding]:
    topology = domain.root.find("cpu/topology")
    if topology is None:
        return
    numbers = {name: domain.number((topology, name)) for name in topology.attrib}
    keys = {f"tuning.{name}": numbers.get(name, 1) for name in ("sockets", "cores", "threads")}
    if math.prod(numbers.values()) == math.prod(keys.values()) == _vcpus(domain):
        yield Finding(keys, tuple(facts_of(topology)))


def _pinning(domain: Description) -> Iterator[Finding]:
    pins, count = domain.root.findall("cputune/vcpupin"), _vcpus(domain)
    each = {domain.number((pin, "vcpu")): domain.cpus((pin, "cpuset")) for pin in pins}
    facts = tuple(fact for pin in pins for fact in facts_of(pin))
    whole = len(each) == count and each.keys() == set(range(count))  # a stranger may say that it has any number
    if pins and whole and all(len(cpus) == 1 for cpus in each.values()):
        yield Finding({"tuning.vcpu_cpus": [each[number][0] for number in range(count)]}, facts)
    if (emulator := domain.root.find("cputune/emulatorpin")) is not None:
        cpus = domain.cpus((emulator, "cpuset"))
        yield Finding({"tuning.emulator_cpus": list(cpus)}, ((emulator, "cpuset"),))
    classes = domain.root.findall("cputune/vcpusched")
    words = {one.get("scheduler", "") + (f":{one.get('priority')}" if one.get("priority") else "") for one in classes}
    covered = {number for one in classes for number in domain.cpus((one, "vcpus"))}
    if len(words) == 1 and covered == set(each):
        yield Finding({"tuning.vcpu_scheduling": words.pop()}, tuple(fact for one in classes for fact in facts_of(one)))


def _memory(domain: Description) -> Iterator[Finding]:
    if (pages := domain.root.find("memoryBacking/hugepages")) is not None:
        sizes = {domain.size((page, "size")): page for page in pages.findall("page")}
        if not sizes:
            domain.refuse(
                facts_of(pages), 'of the size that is its host\'s default: write tuning.hugepages = "2M" or "1G"'
            )
        for size, page in sizes.items() if len(sizes) == 1 else ():
            name = {2 * 2**20: "2M", 2**30: "1G"}.get(size, f"{size} bytes")
            yield Finding(  # libvirt has such pages there before the guest boots
                {"tuning.hugepages": name, "tuning.memory_prealloc": True},
                ((page, "size"), (page, "unit"), (pages, "")),
            )
    if (locked := domain.root.find("memoryBacking/locked")) is not None:
        yield Finding({"tuning.memory_locked": True}, ((locked, ""),))
    allocation = domain.root.find("memoryBacking/allocation")
    if allocation is not None and allocation.get("mode") == "immediate":
        yield Finding({"tuning.memory_prealloc": True}, ((allocation, "mode"),))
    bound = domain.root.find("numatune/memory")
    if bound is not None and "nodeset" in bound.attrib:
        nodes = domain.cpus((bound, "nodeset"))
        if bound.get("mode", "strict") == "strict" and len(nodes) == 1:
            yield Finding({"tuning.numa_node": nodes[0]}, ((bound, "mode"), (bound, "nodeset")))
        else:
            domain.refuse(facts_of(bound), "memory is bound to one node (strict), or to none")


def _disks(domain: Description) -> Iterator[Finding]:
    disks = [one for one in domain.root.findall("devices/disk") if one.get("device", "disk") == "disk"]
    keys = {"cache": "disk_cache", "io": "disk_aio", "iothread": "", "discard": "disk_discard", "queues": "disk_queues"}
    for attribute, key in keys.items():
        facts, value = _alike(disks, "driver", attribute)
        if not value or value == "default":
            continue
        if attribute == "iothread":
            yield from _iothread(domain, facts)
            continue
        told: Any = domain.number(facts[0]) if attribute == "queues" else value
        if attribute == "discard":
            told = {"unmap": True, "ignore": False}.get(value, value)
        yield Finding({f"tuning.{key}": told}, facts)


def _iothread(domain: Description, facts: tuple[Fact, ...]) -> Iterator[Finding]:
    """The thread of the first disk, and what is said of it elsewhere."""
    number = domain.number(facts[0])
    counted = domain.root.find("iothreads")
    yield Finding({"tuning.disk_iothread": True}, (*facts, *(() if counted is None else ((counted, ""),))))
    for pin in domain.root.findall("cputune/iothreadpin"):
        if domain.number((pin, "iothread")) == number:
            yield Finding({"tuning.iothread_cpus": list(domain.cpus((pin, "cpuset")))}, tuple(facts_of(pin)))


def _interfaces(domain: Description) -> Iterator[Finding]:
    interfaces = domain.root.findall("devices/interface")
    facts, model = _alike(interfaces, "model", "type")
    if not model:
        return
    if model not in _NIC_MODELS:
        domain.refuse(facts, "interfaces are virtio or e1000")
        return
    yield Finding({"nic_model": _NIC_MODELS[model]}, facts)
    first, source = interfaces[0], interfaces[0].find("source")
    facts, backend = _alike(interfaces, "driver", "name")
    if model != "e1000" and _by_kvm(domain) and first.get("type") in _TAPS:
        yield Finding({"tuning.vhost": backend != "qemu"}, facts)  # libvirt itself takes it where nothing is said
    facts, queues = _alike(interfaces, "driver", "queues")
    if queues:
        yield Finding({"tuning.nic_queues": domain.number(facts[0])}, facts)
    facts, mode = _alike(interfaces, "driver", "txmode")
    if mode:
        yield Finding({"tuning.nic_tx": {"iothread": "bh"}.get(mode, mode)}, facts)
    facts, merged = _alike(interfaces, "driver/host", "mrg_rxbuf")
    if merged in _SWITCHES:
        yield Finding({"tuning.nic_mergeable": _SWITCHES[merged]}, facts)
    if first.get("type") == "direct" and source is not None and source.get("mode") == "passthrough":
        yield Finding({"tuning.nic_backend": "macvtap"}, ((first, "type"), (source, "mode")))
    elif first.get("type") == "vhostuser":
        domain.refuse([(first, "type")], "the switch's socket is the guest's: name another by tuning.vhost_user")


def _alike(devices: Sequence[Element], path: str, attribute: str) -> tuple[tuple[Fact, ...], str]:
    """What the first of some devices says, with the facts of all that say the same; empty where it says nothing."""
    said = [(one, one.get(attribute) or "") for device in devices if (one := device.find(path)) is not None]
    first = devices[0].find(path) if devices else None
    value = "" if first is None else first.get(attribute) or ""
    return tuple((one, attribute) for one, other in said if value and other == value), value


def _timers(domain: Description) -> Iterator[Finding]:
    for timer in domain.root.findall("clock/timer"):
        name, present, policy = (timer.get(key, "") for key in ("name", "present", "tickpolicy"))
        if name in ("hpet", "pit") and present in _SWITCHES:
            yield Finding({f"tuning.{name}": _SWITCHES[present]}, ((timer, "name"), (timer, "present")))
        policies = {"rtc": {"catchup": "slew", "delay": "discard"}, "pit": {"delay": "delay", "discard": "discard"}}
        if name == "pit" and policy and not _by_kvm(domain):
            domain.refuse(facts_of(timer), _OF_KVM)
        elif policy in policies.get(name, {}):
            key = f"tuning.{name}_lost_ticks"
            yield Finding({key: policies[name][policy]}, ((timer, "name"), (timer, "tickpolicy")))


def _kernel(domain: Description) -> Iterator[Finding]:
    """One that the host hands to the guest, and what it is told; its words are often how the guest was tuned."""
    if (kernel := domain.root.find("os/kernel")) is not None:
        yield Finding({"kernel": value_of((kernel, ""))}, ((kernel, ""),))
    if (line := domain.root.find("os/cmdline")) is not None:
        words = [word for word in value_of((line, "")).split() if not _OF_ITS_DISK.fullmatch(word)]
        yield Finding({"kernel_words": words} if words else {}, ((line, ""),))


_RULES: tuple[Callable[[Description], Iterator[Finding]], ...] = (
    *(_machine, _size, _kernel, _processor, _topology, _pinning, _memory, _disks, _interfaces, _timers),
)
"""In the order of their keys: a rule's may need those before it."""
