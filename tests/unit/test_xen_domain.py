from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xen_hosts import PLAIN

from virtgauge.platforms.xen.dom0 import DomainConfig, Vif


def settings(config: DomainConfig) -> dict[str, object]:
    """What a reader of the file finds: its syntax is Python's for what is written here."""
    found: dict[str, object] = {}
    exec(config.text(), {}, found)
    return found


def test_a_plain_domain_is_gone_however_it_ends() -> None:
    found = settings(PLAIN)
    assert {found.pop(f"on_{ending}") for ending in ("poweroff", "reboot", "crash", "watchdog")} == {"destroy"}
    assert found == {
        "name": "vg12ab34-g1",
        "type": "pv",
        "kernel": "/kernels/a.elf",
        "ramdisk": "/archives/b.cpio",
        "extra": "console=hvc0 quiet",
        "memory": 256,
        "vcpus": 1,
        "tsc_mode": "default",
    }


def test_a_pvh_domain_differs_in_its_type_only() -> None:
    assert settings(dataclasses.replace(PLAIN, type="pvh")) == settings(PLAIN) | {"type": "pvh"}


def test_interfaces_are_in_their_order_each_on_its_bridge() -> None:
    vifs = (Vif("52:54:00:00:00:01", "br-eth1"), Vif("52:54:00:00:00:02", "br-eth0"))
    assert settings(dataclasses.replace(PLAIN, vifs=vifs))["vif"] == [
        "mac=52:54:00:00:00:01,bridge=br-eth1",
        "mac=52:54:00:00:00:02,bridge=br-eth0",
    ]


def test_an_interface_may_be_joined_to_its_bridge_by_a_script_of_the_hosts() -> None:
    vif = Vif("52:54:00:00:00:01", "br-eth1", "/run/vif-join")
    assert settings(dataclasses.replace(PLAIN, vifs=(vif,)))["vif"] == [
        "mac=52:54:00:00:00:01,bridge=br-eth1,script=/run/vif-join"
    ]


def test_limits_and_processors_are_there_only_where_they_were_asked_for() -> None:
    found = settings(dataclasses.replace(PLAIN, cpus=(0, 2), cap=40, tsc_mode="native"))
    assert (found["cpus"], found["cap"], found["tsc_mode"]) == ("0,2", 40, "native")


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\\b"])
def test_what_the_file_cannot_hold_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be written into a domain's configuration"):
        dataclasses.replace(PLAIN, kernel=Path(f"/{name}")).text()


@given(st.text(st.characters(codec="utf-8", exclude_categories=("C",)), max_size=30))
def test_a_text_comes_back_as_it_was_or_is_refused(text: str) -> None:
    config = dataclasses.replace(PLAIN, command_line=text)
    try:
        written = config.text()
    except ValueError:
        assert set(text) & set('"\\\n')
    else:
        assert f'extra = "{text}"\n' in written
