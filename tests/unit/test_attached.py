"""Attached machines: their settings, what they are refused, their certificates, and the shell's command."""

from __future__ import annotations

import datetime
import shlex
import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from pydantic import ValidationError
from typer.testing import CliRunner

from virtgauge.agent import AgentBinary
from virtgauge.console.guests import attach as app
from virtgauge.errors import UsageError
from virtgauge.execution.prepare import check_plan
from virtgauge.plan import Hop
from virtgauge.plan.load import parse_plan
from virtgauge.platforms import create
from virtgauge.platforms.attached.credentials import CONTROLLER_NAME, Credentials
from virtgauge.platforms.attached.platform import AttachedSettings, Endpoint
from virtgauge.platforms.attached.remote_shell import Placement, removal_command
from virtgauge.platforms.base import Platform
from virtgauge.suites.isolation.suite import IsolationSuite


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"via": "telnet"}, "'ssh' or 'dial-in'"),
        ({"via": "ssh"}, "needs host"),
        ({"via": "dial-in"}, "needs listen"),
        ({"via": "ssh", "host": "x", "listen": "127.0.0.1:1"}, "listen means nothing"),
        ({"via": "dial-in", "listen": "127.0.0.1:1", "sudo": True}, "sudo means nothing"),
        ({"via": "dial-in", "listen": "0.0.0.0:7443"}, "give advertise"),
        ({"via": "dial-in", "listen": "controller:7443"}, "an IP address and a port"),
        ({"via": "dial-in", "listen": "127.0.0.1:0"}, "an IP address and a port"),
        ({"via": "dial-in", "listen": "::1:7443"}, "an IP address and a port"),
        ({"via": "ssh", "host": "x", "jump_host": "a b"}, r"\[user@\]host"),
        ({"via": "ssh", "host": "x", "jump_host": "a:99999"}, r"\[user@\]host"),
        ({"via": "ssh", "host": "x", "folder": "tmp"}, "absolute path"),
        ({"via": "ssh", "host": "x", "port": 0}, "port"),
        ({"via": "ssh", "host": "x", "hypervisor": "esxi"}, "give core_mhz"),
        ({"via": "ssh", "host": "x", "peer": {"via": "ssh"}}, "needs host"),
        ({"via": "ssh", "host": "x", "peer": {"via": "ssh", "host": "x"}}, "host = 'x' of the first machine"),
        ({"via": "ssh", "host": "x", "peer": {"via": "ssh", "host": "y", "address": "y"}}, "4 octets"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_the_remedy(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        AttachedSettings.model_validate(settings)


def test_addresses_are_read_and_written_alike() -> None:
    for text in ("192.0.2.1:7443", "[2001:db8::1]:7443"):
        assert str(Endpoint.parse(text)) == text
    assert Hop.parse("me@gate:2200") == Hop("gate", "me", 2200)
    assert Hop.parse("[2001:db8::1]") == Hop("2001:db8::1", None, None)


PLAN = """
reference = "far"
[[platform]]
name = "far"
kind = "attached"
via = "ssh"
host = "192.0.2.1"
[[suite.{suite}]]
{settings}
"""


@pytest.mark.parametrize(
    ("suite", "settings", "words"),
    [
        ("timing", 'loads = ["idle", "io"]', "suite.timing with load = 'io': it has no second machine beside it"),
        ("forwarding", "", "suite.forwarding"),
        ("isolation", "", "suite.isolation"),
        ("bandwidth", "", "suite.bandwidth"),
        ("storage", 'databases = ["sqlite"]', "suite.storage"),
    ],
)
def test_suites_that_need_more_than_a_machine_are_refused_before_anything_starts(
    suite: str, settings: str, words: str
) -> None:
    plan = parse_plan(PLAN.format(suite=suite, settings=settings), "p")
    with pytest.raises(UsageError, match="'far' cannot be measured") as caught:
        check_plan(plan, "p")
    assert words in caught.value.message
    assert caught.value.remedy is not None


PEER = 'peer = { via = "ssh", host = "192.0.2.2"'
AS_IS = 'capacities_mbps = ["as-is"]'


def between_two(peer: str, kind: str = 'kind = "attached"') -> None:
    far = PLAN.format(suite="bandwidth", settings=AS_IS).replace('host = "192.0.2.1"', f'host = "192.0.2.1"\n{peer}')
    if "attached" not in kind:
        far = far.replace('kind = "attached"\nvia = "ssh"\nhost = "192.0.2.1"', kind)
    assert check_plan(parse_plan(far, "p"), "p").cells


def test_a_path_as_it_is_is_of_two_machines_that_exist_already() -> None:
    between_two(PEER + ', address = "198.51.100.2" }')
    with pytest.raises(UsageError, match="with capacity_mbps = 'as-is': it has no second machine; name one: peer = "):
        between_two("")
    with pytest.raises(UsageError, match=r"its peer has no address on the path; give peer\.address"):
        between_two(PEER + " }")
    with pytest.raises(UsageError, match=r"'far' cannot be measured .* that is of two machines that exist already"):
        between_two("", 'kind = "host"')


def test_files_of_a_machine_that_exists_already_are_used_by_its_peer_at_its_address() -> None:
    def beside_io(machine: str) -> None:
        text = PLAN.format(suite="timing", settings='loads = ["idle", "io"]')
        check_plan(parse_plan(text.replace('host = "192.0.2.1"', f'host = "192.0.2.1"\n{machine}'), "p"), "p")

    beside_io(f'address = "198.51.100.1"\n{PEER} }}')
    for wrong in ("0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255"):
        with pytest.raises(UsageError, match="give an address at which another machine reaches it"):
            beside_io(f'address = "{wrong}"\n{PEER} }}')
    with pytest.raises(UsageError, match="with load = 'io': its address on the path to its peer is not known; give"):
        beside_io(PEER + ', address = "198.51.100.2" }')


DEVICE = 'guests = 1\nswitch = "none"\nvectors = ["equal"]'
PORTS = 'ports = { here = ["ens1", "ens2"], there = ["eth1", "eth2"]'


def between_ports(ports: str, settings: str = DEVICE, kind: str = 'kind = "attached"\nvia = "ssh"\nhost = "h"') -> None:
    far = PLAN.format(suite="forwarding", settings=settings)
    far = far.replace('kind = "attached"\nvia = "ssh"\nhost = "192.0.2.1"', f"{kind}\n{ports}")
    assert check_plan(parse_plan(far, "p"), "p").cells


def test_a_device_between_two_ports_is_a_machine_that_exists_already() -> None:
    between_ports(PORTS + " }")
    between_ports("", kind='kind = "simulated"')
    with pytest.raises(UsageError, match="with switch = 'none': it is between no two interfaces of this host; name"):
        between_ports("")
    with pytest.raises(UsageError, match=r"'far' cannot be measured .* that is of a machine that exists already"):
        between_ports("", kind='kind = "host"')
    with pytest.raises(UsageError, match=r'an attached machine has no interfaces .*; give guests = 1, switch = "none"'):
        between_ports(PORTS + " }", 'guests = 1\nswitch = "bridge"')
    with pytest.raises(UsageError, match="one machine is between the two ports; give guests = 1"):
        between_ports(PORTS + " }", 'switch = "none"')
    with pytest.raises(UsageError, match="the machine exists already; leave cpu_limit out"):
        between_ports(PORTS + " }", DEVICE + '\ncpu_limit = "fair"')
    with pytest.raises(UsageError, match="'ens1' is named twice"):
        between_ports(PORTS.replace("ens2", "ens1") + " }")
    with pytest.raises(UsageError, match="set_up: the agent sets up routers only"):
        between_ports(PORTS + ', forwards = "bridge", set_up = true }')


def pair(hypervisor: str, **design: object) -> tuple[IsolationSuite, Platform]:
    machine = {"via": "ssh", "host": "tested.example"} | ({"hypervisor": hypervisor} if hypervisor else {})
    peer = machine | {"host": "192.0.2.2", "vm": "its neighbour"}
    plain = {"policy_set_by_hand": True} | ({} if "policies" in design else {"policies": ["limit"], "shares": [25]})
    return IsolationSuite.create(plain | design), create("attached", machine | {"peer": peer})


def test_a_policy_that_is_set_by_hand_is_printed_in_the_hypervisors_words() -> None:
    suite, machines = pair("hyper-v")
    (words,) = suite.to_do(machines)
    assert "on the tested machine, attached tested.example (ssh), before its trials begin: cpu_limit = 0.25" in words
    assert "\n  Set-VMProcessor -VMName 'tested.example' -Maximum 25\n" in words
    suite, machines = pair("virtualbox", on=["loading"], cores=["all"], cpus=[4, 5])
    (words,) = suite.to_do(machines)
    assert "on the loading machine, attached 192.0.2.2 (ssh)" in words
    assert "cpu_limit = 0.5" in words
    assert "VBoxManage modifyvm 'its neighbour' --cpu-execution-cap=25" in words
    suite, machines = pair("")
    assert "virtgauge policy commands --hypervisor hyper-v|esxi|virtualbox|xen" in suite.to_do(machines)[0]
    suite, machines = pair("xen", policies=["none"])
    assert suite.to_do(machines) == ()


def test_one_plan_sets_one_policy_on_a_machine_by_hand() -> None:
    design = 'policy_set_by_hand = true\npolicies = ["limit"]'
    text = PLAN.format(suite="isolation", settings=f"{design}\nshares = [25]\n[[suite.isolation]]\n{design}")
    text = text.replace('host = "192.0.2.1"', 'host = "192.0.2.1"\n' + PEER + " }")
    with pytest.raises(UsageError, match="limit tested 25 1 and limit tested 50 1; give each a plan of its own"):
        check_plan(parse_plan(text, "p"), "p")


def test_the_frequency_of_a_host_that_is_not_reached_is_not_chosen() -> None:
    with pytest.raises(ValueError, match="governors: 'performance' is of the machines' host"):
        pair("", policies=["none"], governors=["performance"])


def test_timing_without_a_network_is_measured() -> None:
    plan = parse_plan(PLAN.format(suite="timing", settings='loads = ["idle", "cpu"]'), "p")
    assert check_plan(plan, "p").cells


def placement(path: Path, base: str = "@tmp") -> Placement:
    return Placement(AgentBinary(path, "ab" * 32), base, "vg012345", False, 600)


def test_the_command_can_be_read_by_any_login_shell(tmp_path: Path) -> None:
    """Between single quotes nothing may be special to sh, csh or fish."""
    agent = tmp_path / "agent"
    agent.write_bytes(b"x")
    for command in (placement(agent).command(), removal_command("/tmp/virtgauge.vg012345.x", 7)):
        prefix, script, *_ = command.split("'")
        assert prefix == "exec sh -c "
        assert not set("\\!\n") & set(script)
    words = shlex.split(placement(agent, "/with blank; rm -rf x").command())
    assert "/with blank; rm -rf x" in words


def test_only_a_folder_of_ours_is_ever_removed(tmp_path: Path) -> None:
    mine, other = tmp_path / "virtgauge.vg012345.abc", tmp_path / "other"
    for folder in (mine, other):
        folder.mkdir()
        done = subprocess.run(["sh", "-c", removal_command(str(folder), 2**22 + 1)], capture_output=True)
        assert (done.returncode == 0) == (folder is mine)
    assert not mine.exists()
    assert other.exists()


def test_only_two_certificates_exist_and_each_serves_one_purpose() -> None:
    made = Credentials.make(datetime.timedelta(hours=2))
    authority = x509.load_pem_x509_certificate(made.authority.encode())
    controller = x509.load_pem_x509_certificate(made.controller.encode())
    agent = x509.load_pem_x509_certificate(made.agent.encode())
    for certificate in (controller, agent):
        certificate.verify_directly_issued_by(authority)
        assert certificate.not_valid_after_utc.timestamp() == made.expires
    names = controller.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [CONTROLLER_NAME]
    purposes = [c.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value for c in (controller, agent)]
    assert [next(iter(purpose)).dotted_string for purpose in purposes] == ["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"]
    text = made.identity()
    assert text.startswith(f"virtgauge identity 1\nexpires {made.expires}\n")
    assert text.count("PRIVATE KEY") == 2
    assert made.controller.split("PRIVATE KEY")[1] not in text
    context = made.context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.num_tickets == 0


def test_saved_credentials_are_secret_and_refused_when_they_are_not(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    made = Credentials.make()
    made.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Credentials.load(path) == made
    path.chmod(0o644)
    with pytest.raises(UsageError, match="can be read by others"):
        Credentials.load(path)
    path.chmod(0o600)
    path.write_text("{}")
    with pytest.raises(UsageError, match="cannot be used"):
        Credentials.load(path)
    path.unlink()
    Credentials.make(datetime.timedelta(seconds=-1)).save(path)
    with pytest.raises(UsageError, match="have expired"):
        Credentials.load(path)


def test_attach_prepare_writes_what_both_sides_need(any_agent: Path, tmp_path: Path) -> None:
    out = tmp_path / "machine"
    command = ["prepare", "--listen", "0.0.0.0:7443", "--advertise", "192.0.2.1:17443", "--out", str(out)]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    assert out.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in out.iterdir()} == {"credentials.json", "dial-in.sh", "identity.pem"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in out.iterdir())
    assert (out / "dial-in.sh").read_bytes().endswith(any_agent.read_bytes())
    section = done.stdout.split("[[platform]]")[1].split("\n\n")[0]
    plan = parse_plan(f'reference = "machine"\n[[platform]]{section}\n[[suite.timing]]\n', "p")
    assert plan.platform[0].settings["advertise"] == "192.0.2.1:17443"
    again = CliRunner().invoke(app, command)
    assert isinstance(again.exception, UsageError)
    wrong = CliRunner().invoke(app, ["prepare", "--listen", "0.0.0.0:7443", "--out", str(tmp_path / "x")])
    assert isinstance(wrong.exception, UsageError)
    assert not (tmp_path / "x").exists()
