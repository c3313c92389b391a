"""What joins the links of a lab: bridges on which every flow has its one rule; what has none is dropped."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
import re
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyroute2 import IPRoute

from virtgauge.errors import UnavailableError
from virtgauge.host.process import child_setup, end_process, find_program, output_of, ran
from virtgauge.host.scope import Scope
from virtgauge.network import NetworkError
from virtgauge.network.links import disconnect, link_counts
from virtgauge.network.namespace import Namespace, network_error


@dataclasses.dataclass(frozen=True)
class Rule:
    """Frames to a hardware address that come in by one port go out by another, and by no third."""

    in_port: str
    dst_mac: str
    out_port: str


class Switch(abc.ABC):
    """Some bridges in one namespace.

    The ports are interfaces of the namespace (``Nic.port``).  A frame without a rule is dropped, a broadcast too: hosts
    on a switch need permanent neighbours.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self.bridges: dict[str, tuple[str, ...]] = {}  # their ports
        self._rules: list[Rule] = []

    def add_bridge(self, name: str, ports: Sequence[str]) -> None:
        """Make a bridge of ports that no other has.  Raises NetworkError: a port is not there."""
        if missing := sorted({*ports} - self._namespace.interfaces().keys()):
            raise NetworkError(f"{self._namespace.name} has no interface {missing[0]}", "launch its guest first")
        self._add_bridge(name, ports)
        self.bridges[name] = tuple(ports)

    def add_rules(self, rules: Sequence[Rule]) -> None:
        """Let frames pass between ports of one bridge.  Raises NetworkError: the switch refuses."""
        self._add_rules(rules)
        self._rules += rules

    @abc.abstractmethod
    def counters(self) -> Mapping[Rule, int | None]:
        """Frames that every rule has sent on until now, those too that its port then dropped, and counted as dropped.

        None where this switch cannot tell a rule from others.
        """

    def unmatched(self) -> int | None:
        """Frames dropped for want of a rule; None where this switch does not count them."""
        return None

    def cpu_ns(self) -> int | None:
        """CPU time of the switch's own processes; None where it has none and its work is charged to who sends."""
        return None

    @abc.abstractmethod
    def close(self) -> None:
        """Remove the bridges, leaving the ports.  Idempotent."""

    @abc.abstractmethod
    def _add_bridge(self, name: str, ports: Sequence[str]) -> None: ...

    @abc.abstractmethod
    def _add_rules(self, rules: Sequence[Rule]) -> None: ...


_FORWARDING = 3
_CARRIER_S = 10.0
_STATIC = 0x40  # NUD_NOARP; a permanent entry would be an address of the bridge itself


class LinuxBridge(Switch):
    """Bridges of the namespace's kernel, whose work is done in the sender's context: none learns or floods anything.

    An entry names a hardware address and its port, and holds for frames of every other port: that a frame comes in
    where its rule says is not checked here.  Rules are counted by the counters of a port that only one of them uses.
    """

    def hand_over(self) -> None:
        """Let every frame pass to the other port, without a rule: for bridges of two ports, that are part of a wire.
        Raises NetworkError: the kernel refuses.
        """
        ports = [port for ports in self.bridges.values() for port in ports]

        def flood(route: IPRoute) -> None:
            for port in ports:
                index = socket.if_nametoindex(port)
                route.brport("set", index=index, unicast_flood=1, mcast_flood=1, bcast_flood=1)

        with network_error("a bridge cannot hand frames over"):
            self._namespace.netlink(flood)

    def counters(self) -> Mapping[Rule, int | None]:
        counts = link_counts(self._namespace)
        senders = Counter(rule.in_port for rule in self._rules)
        receivers = Counter(rule.out_port for rule in self._rules)

        def count(rule: Rule) -> int | None:
            if receivers[rule.out_port] == 1:
                return counts[rule.out_port].tx_frames + counts[rule.out_port].tx_dropped
            return counts[rule.in_port].rx_frames if senders[rule.in_port] == 1 else None

        return {rule: count(rule) for rule in self._rules}

    def close(self) -> None:
        if self.bridges and self._namespace.path.exists():
            disconnect(self._namespace, self.bridges)
        self.bridges.clear()
        self._rules.clear()

    def _add_bridge(self, name: str, ports: Sequence[str]) -> None:
        def make(route: IPRoute) -> None:
            route.link("add", ifname=name, kind="bridge", br_stp_state=0, br_mcast_snooping=0, br_forward_delay=0)
            bridge = socket.if_nametoindex(name)
            indices = [socket.if_nametoindex(port) for port in ports]
            for index in indices:
                route.link("set", index=index, master=bridge)
                route.brport("set", index=index, learning=0, unicast_flood=0, mcast_flood=0, bcast_flood=0)
            route.link("set", index=bridge, state="up")
            _wait_until_forwarding(route, indices)

        with network_error(f"the bridge {name} cannot be made"):
            self._namespace.netlink(make)

    def _add_rules(self, rules: Sequence[Rule]) -> None:
        def add(route: IPRoute) -> None:
            for rule in rules:
                index = socket.if_nametoindex(rule.out_port)
                route.fdb("replace", ifindex=index, lladdr=rule.dst_mac, state=_STATIC)

        with network_error("an entry cannot be added"):
            self._namespace.netlink(add)


def _wait_until_forwarding(route: IPRoute, ports: Sequence[int]) -> None:
    """Wait for the bridge to use its ports: it does as soon as the kernel has noticed the carrier of the links.

    Linux looks at most once a second, and drops without counting until then.
    """
    deadline = time.monotonic() + _CARRIER_S
    while True:
        states = {port["index"]: port.get_nested("IFLA_PROTINFO", "IFLA_BRPORT_STATE") for port in route.brport("dump")}
        idle = [index for index in ports if states.get(index) != _FORWARDING]
        if not idle:
            return
        if time.monotonic() > deadline:
            raise NetworkError(f"{len(idle)} ports of a bridge have no carrier", "bring both ends of the links up")
        time.sleep(0.01)


_PROGRAMS = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
_SCHEMAS = (Path("/usr/share/openvswitch/vswitch.ovsschema"), Path("/usr/local/share/openvswitch/vswitch.ovsschema"))
_START_S = 10.0
_CALL_S = 20.0
_TRIES, _PAUSE_S = 6, 0.05
_FLOW = re.compile(r"cookie=0x([0-9a-f]+),.*? n_packets=(\d+)")


class OpenVSwitch(Switch):
    """Bridges of one Open vSwitch, started by hand in the namespace, with one OpenFlow rule for each flow.

    It is no service of the machine: database, sockets and logs are in a folder of the scope, its processes end with the
    controller, and its datapath lives in the namespace.

    A flow's first frame is slow: it goes to the controller part, which then keeps its entry for an hour.  Warm up.
    """

    def __init__(
        self, scope: Scope, namespace: Namespace, *, name: str = "openvswitch", cpus: tuple[int, ...] | None = None
    ) -> None:
        """Start the switch in a folder and a cgroup of that name, from the main thread, with which its processes end.
        Raises UnavailableError: it is not installed; NetworkError: it does not start.
        """
        super().__init__(namespace)
        self._programs = find_openvswitch()
        self._folder = scope.guest_folder(name)
        self._environment = scope.environment() | {
            variable: str(self._folder) for variable in ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR")
        }
        self._cgroup = scope.cgroup(name)
        self._database = f"unix:{self._folder}/db.sock"
        self._cpus = cpus
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ports: dict[str, int] = {}
        # ``netdev`` is in user space: there its one thread takes the frames of all ports and sends them on
        self.datapath = "system" if _kernel_module() else "netdev"
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def counters(self) -> Mapping[Rule, int | None]:
        counts = self._counts()
        return {rule: counts[number] for number, rule in enumerate(self._rules, start=1)}

    def unmatched(self) -> int | None:
        return self._counts()[0]

    def cpu_ns(self) -> int | None:
        return self._cgroup.cpu_ns()

    def close(self) -> None:
        if self._processes:
            with contextlib.suppress(NetworkError):  # it also removes a datapath of the kernel
                self._call("ovs-appctl", "-T", "2", "-t", f"{self._folder}/ovs-vswitchd.ctl", "exit", "--cleanup")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._processes[-1].wait(2)
        for process in reversed(self._processes):
            end_process(process)
        self._processes.clear()
        self._cgroup.kill_all()
        self._cgroup.remove()
        shutil.rmtree(self._folder, ignore_errors=True)
        self.bridges.clear()
        self._rules.clear()

    def _start(self) -> None:
        database, schema = self._folder / "conf.db", next((path for path in _SCHEMAS if path.exists()), _SCHEMAS[0])
        self._call("ovsdb-tool", "create", str(database), str(schema))
        self._launch("ovsdb-server", str(database), f"--remote=p{self._database}")
        self._vsctl("--no-wait", "init")
        # One thread of each kind; a flow's entry stays, however long the pause between two trials; and the counters,
        # which are read by waiting for the next round, come ten times a second.
        settings = ("n-handler-threads=1", "n-revalidator-threads=1", "max-idle=3600000", "max-revalidator=100")
        self._vsctl("--no-wait", "set", "Open_vSwitch", ".", *(f"other_config:{setting}" for setting in settings))
        self._launch("ovs-vswitchd", self._database, *(["--disable-system"] if self.datapath == "netdev" else []))

    def _launch(self, program: str, *arguments: str) -> None:
        control = self._folder / f"{program}.ctl"
        command = [self._programs[program], *arguments, f"--unixctl={control}", "-vsyslog:off", "-vconsole:warn"]
        with (
            self._cgroup.entrance() as join,
            self._namespace.entrance() as enter,
            (self._folder / f"{program}.log").open("wb") as log,
        ):
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    cwd=self._folder,
                    preexec_fn=child_setup(join, enter, cpus=self._cpus),
                    start_new_session=True,
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise NetworkError(f"{program} cannot be started: {error}") from error
        self._processes.append(process)
        deadline = time.monotonic() + _START_S
        while not control.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                said = (self._folder / f"{program}.log").read_text(errors="replace").strip()
                raise NetworkError(f"{program} does not start: {said or 'it said nothing'}")
            time.sleep(0.005)

    def _add_bridge(self, name: str, ports: Sequence[str]) -> None:
        words = ["add-br", name, "--", "set", "bridge", name, f"datapath_type={self.datapath}", "fail_mode=secure"]
        numbers = {port: len(self._ports) + index for index, port in enumerate(ports, start=1)}
        for port, number in numbers.items():
            words += ["--", "add-port", name, port, "--", "set", "interface", port, f"ofport_request={number}"]
        self._vsctl(*words)
        columns = self._vsctl("--format=json", "--columns=name,ofport,error", "list", "Interface")
        for interface, number, error in json.loads(columns)["data"]:
            if interface in numbers and number != numbers[interface]:
                raise NetworkError(f"Open vSwitch does not take the port {interface}: {error}")
        self._ports |= numbers
        self._add_flows(name, ["cookie=0,priority=0,actions=drop"])

    def _add_rules(self, rules: Sequence[Rule]) -> None:
        flows: dict[str, list[str]] = {}
        for number, rule in enumerate(rules, start=len(self._rules) + 1):
            match = f"in_port={self._ports[rule.in_port]},dl_dst={rule.dst_mac}"
            flow = f"cookie={number:#x},priority=1,{match},actions=output:{self._ports[rule.out_port]}"
            bridge = next(name for name, ports in self.bridges.items() if rule.in_port in ports)
            flows.setdefault(bridge, []).append(flow)
        for bridge, lines in flows.items():
            self._add_flows(bridge, lines)

    def _add_flows(self, bridge: str, flows: Sequence[str]) -> None:
        self._call("ovs-ofctl", "add-flows", self._management(bridge), "-", text="\n".join(flows) + "\n")

    def _counts(self) -> Counter[int]:
        """Frames by number of the rule; 0 is what drops."""
        # the datapath's counters reach the rules at intervals, or when that is asked for
        self._call("ovs-appctl", "-t", f"{self._folder}/ovs-vswitchd.ctl", "revalidator/wait")
        counts: Counter[int] = Counter()
        for bridge in self.bridges:
            for cookie, frames in _FLOW.findall(self._call("ovs-ofctl", "dump-flows", self._management(bridge))):
                counts[int(cookie, 16)] += int(frames)
        return counts

    def _management(self, bridge: str) -> str:
        return f"unix:{self._folder}/{bridge}.mgmt"

    def _vsctl(self, *words: str) -> str:
        return self._call("ovs-vsctl", f"--db={self._database}", f"--timeout={_START_S:.0f}", *words)

    def _call(self, program: str, *words: str, text: str = "") -> str:
        argv = [self._programs[program], *words]
        tries = 0
        while True:
            tries += 1
            try:
                done = ran(argv, timeout_s=_CALL_S, env=self._environment, cwd=self._folder, text=text)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise NetworkError(f"Open vSwitch does not answer: {error}") from error
            if done.returncode == 0:
                return done.stdout
            # a switch that is just taking in a change hangs up on who asks meanwhile
            if tries == _TRIES or "(Broken pipe)" not in done.stderr:
                raise NetworkError(f"{program} {words[-1]}: {done.stderr.strip() or f'status {done.returncode}'}")
            time.sleep(_PAUSE_S)


def find_openvswitch() -> dict[str, str]:
    """Open vSwitch's programs, by name.  Raises UnavailableError: one is missing."""
    found = {name: str(path) for name in _PROGRAMS if (path := find_program(name)) is not None}
    missing = [name for name in _PROGRAMS if name not in found]
    if missing:
        raise UnavailableError(
            f"Open vSwitch is not installed: there is no {missing[0]}",
            "apt install openvswitch-switch, or choose the Linux bridge",
        )
    return found


def _kernel_module() -> bool:
    """Whether the kernel has Open vSwitch's datapath, after loading it where that is possible."""
    modprobe = find_program("modprobe")
    if modprobe is not None and not Path("/sys/module/openvswitch").exists():
        output_of([modprobe, "--quiet", "openvswitch"], timeout_s=_START_S)
    return Path("/sys/module/openvswitch").exists()
