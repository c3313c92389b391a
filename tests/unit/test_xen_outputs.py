from __future__ import annotations

import pytest
from xen_hosts import LIST, SHARES, VCPUS

from virtgauge.platforms.xen.dom0 import Ended, Share, XenError, affinities, cpu_times_s, facts, shares


def test_domains_are_read_with_their_processor_time() -> None:
    assert cpu_times_s(LIST) == {"Domain-0": 17.7, "u1": 3.2}


def test_shares_are_read_whatever_stands_above_them() -> None:
    text = SHARES.format(weight=512, cap=40)
    assert shares(text) == {"Domain-0": Share(2048, 0), "u1": Share(512, 40)}
    assert shares("\n".join(text.splitlines()[1:])) == shares(text), "asked of one domain, no pool is named"


def test_affinities_are_those_that_bind() -> None:
    assert affinities(VCPUS.format(cpus="0-1,3")) == ["0-1,3", "0-1,3"]


def test_facts_keep_what_follows_the_first_colon() -> None:
    text = "xen_version            : 4.17.7\nxen_commandline        : dom0_mem=512M,max:512M\n\n"
    assert facts(text) == {"xen_version": "4.17.7", "xen_commandline": "dom0_mem=512M,max:512M"}


def test_a_failure_is_told_by_its_causes_first() -> None:
    said = 'got a tsc mode string: "native"\n\nlibxl: error: no memory\nlibxl: error: cannot build\na\nb\n'
    with pytest.raises(XenError) as caught:
        Ended(3, "", said).checked(["xl", "create", "-q", "/run/g1.cfg"])
    assert str(caught.value) == (
        "`xl create -q` ended with status 3: libxl: error: no memory; libxl: error: cannot build; a"
    )


def test_another_output_holds_nothing() -> None:
    text = "libxl: error: something else\n"
    assert (cpu_times_s(text), shares(text), affinities(text)) == ({}, {}, [])
